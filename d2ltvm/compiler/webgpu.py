"""A schedule as WGSL, the language of WebGPU's shaders, for the GPU that a reader's browser has.

TVM generates the source. What WGSL cannot say is adapted before, in the spirit of the schedule, and
named: `blockIdx.z`, which TVM's generator keeps for itself, is fused with `blockIdx.y`; vectors of
more than four elements become several; shared memory is of one kind. A fetch that is asynchronous
on CUDA goes through registers. Accesses of 16 bytes to storage become four of 4 bytes, by TVM.

An array of a thread can be in registers only where its indices are known when the shader is
compiled. CUDA's compiler unrolls loops until they are. WGSL cannot ask for that, and a browser adds
checks to a loop that keep a driver from it. So each loop that indexes such an array is unrolled
here, and each access to such an array has a number for an index.
"""

import json
import math
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from d2ltvm.compiler import cache
from d2ltvm.compiler.ir import find
from d2ltvm.compiler.launches import Lowered, Param
from d2ltvm.compiler.lowering import as_module, lower
from d2ltvm.system import devices

# What every device with WebGPU has. Source: W3C, WebGPU, section 3.6.2, "Limits".
MAX_THREADS = 256
MAX_BLOCK = (256, 256, 64)
MAX_GRID = 65535  # along each dimension
MAX_SHARED = 16384  # bytes of workgroup memory
MAX_BINDING = 2**27  # bytes of a storage buffer that a shader sees
MAX_BUFFERS = 8

DTYPES = ("float32", "int32", "uint32")

# Loops that index an array of a thread are unrolled, up to this many steps; of others none by
# itself: a depth of -1 is never reached.
UNROLL = {"unroll_local_access": True, "auto_max_extent": 64, "auto_max_depth": -1}
LONGEST_SOURCE = 2**16  # bytes of a source


@dataclass(frozen=True)
class Shader:
    """A kernel in WGSL, and all that a launch of it needs.

    Attributes:
        source: WGSL, as TVM generated it.
        entry: the name of its entry point.
        grid: blocks along x, y and z, as the schedule has them.
        block: threads of a block along x, y and z, the workgroup's size.
        params: what it takes, a tuple of `Param(name, shape, dtype, output)`, in the order of the
            schedule's function.
        bindings: names of the parameters in the order of their binding numbers, from 0 on. The
            number after the last is that of a uniform buffer, which holds `uniform`.
        shared: bytes of workgroup memory.
        adapted: what of the schedule WGSL cannot say, a sentence each.
    """

    source: str
    entry: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    params: tuple[Param, ...]
    bindings: tuple[str, ...]
    shared: int
    adapted: tuple[str, ...] = ()

    @property
    def dispatch(self) -> tuple[int, int, int]:
        """What `dispatchWorkgroups` is called with: x in pieces along z, where it is too long."""
        pieces = -(-self.grid[0] // MAX_GRID)
        return -(-self.grid[0] // pieces), self.grid[1], pieces

    @property
    def uniform(self) -> tuple[int, ...]:
        """The uniform's numbers, of 32 bits each: `packGridDimX`, the last block along x."""
        return (self.grid[0] - 1,)


def wgsl(sch: Any) -> Shader:
    """Compile a schedule into a shader that any device with WebGPU can run.

    >>> from d2ltvm.compiler.webgpu import wgsl
    >>> shader = wgsl(d2ltvm.schedules.matmul_tiled(256, 256, 256))
    >>> shader.grid, shader.block, shader.shared
    ((2, 2, 1), (256, 1, 1), 16384)
    >>> shader.bindings, shader.uniform
    (('A', 'B', 'C'), (1,))
    >>> "@compute @workgroup_size(256, 1, 1)" in shader.source
    True

    Args:
        sch: a `tvm.s_tir.Schedule`, an IRModule with a PrimFunc named `main`, or a PrimFunc.

    Returns:
        A `Shader`. One that was compiled before comes from the cache on disk.

    Raises:
        TypeError: `sch` is no schedule.
        ValueError: it is not bound to blocks and threads, makes more than one kernel, or asks for
            more than WebGPU guarantees; or it has elements that WGSL lacks.
    """
    mod = as_module(sch)
    versions = cache.package_versions("apache-tvm", "apache-tvm-ffi")
    key = (
        "wgsl",
        versions,
        cache.hash_of_text(Path(__file__).parent, "*.py"),
        mod.script(show_meta=True),
    )
    return _read(cache.remember(lambda: _write(_compile(mod)), *key))


def _compile(mod: Any) -> Shader:
    main, adapted = mod["main"], []
    for adapt in (_named_loops, _without_block_z, _short_vectors, _one_shared_memory):
        main, what = adapt(main)
        adapted += what
    lowered, what = _lowered(main)
    adapted += what
    if len(lowered.launches) != 1 or lowered.temporaries:
        raise ValueError(
            f"the schedule makes {len(lowered.launches)} kernels; expected one, with all its "
            "stages under loops that are bound to blocks"
        )
    (launch,) = lowered.launches
    source = lowered.source
    adapted += _scalar_accesses(source)
    shader = Shader(
        source=source,
        entry=launch.name,
        grid=launch.grid,
        block=launch.block,
        params=lowered.params,
        bindings=_bindings(source, launch.args),
        shared=_workgroup_bytes(source),
        adapted=tuple(adapted),
    )
    check_limits(shader)
    return shader


def _lowered(main: Any) -> tuple[Lowered, list[str]]:
    """The function's WGSL. Where it is too long, outer loops are unrolled by fewer steps."""
    most = steps = max((int(loop.extent) for loop in _outer_unrolled(main)), default=1)
    config = {"tirx.UnrollLoop": UNROLL}
    while True:
        lowered = lower(tvm.IRModule({"main": _at_most(main, steps)}), _target(), config)
        if len(lowered.source) <= LONGEST_SOURCE or steps == 1:
            break
        steps //= 2
    if steps == most:
        return lowered, []
    how = f"unrolled {steps} at a time" if steps > 1 else "not unrolled"
    return lowered, [f"a loop of {most} steps is {how}, which keeps the shader short"]


def _outer_unrolled(main: Any) -> list[Any]:
    """The unrolled loops of a function that have loops inside."""
    return [
        loop
        for loop in find(main.body, "For")
        if loop.kind == tvm.tirx.ForKind.UNROLLED and find(loop.body, "For")
    ]


def _at_most(main: Any, steps: int) -> Any:
    """The function with outer unrolled loops in pieces of so many steps, or of a divisor."""
    long = {hash(loop.loop_var) for loop in _outer_unrolled(main) if int(loop.extent) > steps}

    def cut(loop: Any) -> Any:
        if hash(loop.loop_var) not in long:
            return loop
        return _cut(loop, math.gcd(int(loop.extent), steps), loop.kind, tvm.tirx.ForKind.SERIAL)

    return _mapped(main, cut) if long else main


def _target() -> Any:
    # TVM's own limit on shared memory, which its message does not explain, is out of the way.
    kind = {"kind": "webgpu", "max_num_threads": MAX_THREADS, "max_shared_memory_per_block": 2**20}
    return devices.to_read(tvm.target.Target(kind))


def check_limits(shader: Shader) -> None:
    """A ValueError in one line where a shader asks for more than WebGPU guarantees."""
    threads = math.prod(shader.block)
    if threads > MAX_THREADS:
        raise _too_much(f"{threads} threads a block, {shader.block}", MAX_THREADS)
    if any(size > most for size, most in zip(shader.block, MAX_BLOCK, strict=True)):
        raise _too_much(f"a block of {shader.block}", MAX_BLOCK)
    if shader.shared > MAX_SHARED:
        raise _too_much(f"{shader.shared:,} bytes of shared memory a block", f"{MAX_SHARED:,}")
    if len(shader.params) > MAX_BUFFERS:
        raise _too_much(f"{len(shader.params)} tensors", MAX_BUFFERS)
    for p in shader.params:
        if p.nbytes > MAX_BINDING:
            raise _too_much(f"{p.nbytes:,} bytes of {p.name}", f"{MAX_BINDING:,}")
        if p.dtype not in DTYPES:
            raise ValueError(f"{p.name} is {p.dtype}; expected one of {', '.join(DTYPES)}")


def _too_much(what: str, most: Any) -> ValueError:
    return ValueError(f"the kernel takes {what}; expected at most {most}, which WebGPU guarantees")


def _without_block_z(main: Any) -> tuple[Any, list[str]]:
    """The function with `blockIdx.z` and `blockIdx.y` as one loop: TVM packs long grids into z."""
    if not any(_tag(loop) == "blockIdx.z" for loop in find(main.body, "For")):
        return main, []

    def fuse(outer: Any) -> Any:
        if _tag(outer) != "blockIdx.z":
            return outer
        inner = outer.body
        if _tag(inner) != "blockIdx.y":
            raise ValueError(
                f"loop {outer.loop_var.name} is bound to 'blockIdx.z'; expected one bound to "
                "'blockIdx.y' right inside of it, with which it becomes one: WebGPU has two"
            )
        rows = inner.extent
        both = tvm.ir.Var(f"{outer.loop_var.name}_{inner.loop_var.name}", outer.loop_var.ty)
        values = {outer.loop_var: both // rows, inner.loop_var: both % rows}
        body = _substituted(inner.body, values)
        return _loop(both, outer.extent * rows, body, inner.kind, inner.thread_binding)

    said = "the grid has blockIdx.z and blockIdx.y as one dimension"
    return _mapped(main, fuse), [said]


def _named_loops(main: Any) -> tuple[Any, list[str]]:
    """The function with a name for each loop: `_` and what begins with two of them WGSL reserves.

    The second loop named `_` would be `__1`. Chromium takes that; Firefox has naga, which does not.
    """
    loops = (loop.loop_var for loop in find(main.body, "For"))
    named = {var: tvm.ir.Var("step", var.ty) for var in loops if var.name.startswith("_")}
    if not named:
        return main, []
    return tvm_ffi.structural_map(main, (tvm.ir.Var, lambda var: named.get(var, var))), []


def _short_vectors(main: Any) -> tuple[Any, list[str]]:
    """The function with vectors of 2, 3 or 4 elements, which WGSL has, in place of longer ones."""
    vectorized = tvm.tirx.ForKind.VECTORIZED
    lengths = {int(loop.extent) for loop in find(main.body, "For") if loop.kind == vectorized}
    if max(lengths, default=0) <= 4:
        return main, []

    def cut(loop: Any) -> Any:
        if loop.kind != vectorized or int(loop.extent) <= 4:
            return loop
        width = next((w for w in (4, 3, 2) if int(loop.extent) % w == 0), 1)
        inner = vectorized if width > 1 else tvm.tirx.ForKind.SERIAL
        return _cut(loop, width, inner, tvm.tirx.ForKind.UNROLLED)

    said = f"vectors of {max(lengths)} elements are several of at most 4"
    return _mapped(main, cut), [said]


def _one_shared_memory(main: Any) -> tuple[Any, list[str]]:
    """Says so where `shared.dyn` becomes `shared`, or a fetch is not asynchronous: `lower` does."""
    said = []
    blocks = find(main.body, "SBlock")
    if any(b.scope() == "shared.dyn" for block in blocks for b in block.alloc_buffers):
        said.append("shared memory is sized in the source, and not at the launch")
    loops = find(main.body, "For")
    if any("software_pipeline_async_stages" in loop.annotations for loop in loops):
        said.append("tiles are fetched ahead through registers: WGSL has no cp.async")
    return main, said


def _scalar_accesses(source: str) -> list[str]:
    """Says so where TVM has written a wide access to storage as several narrow ones."""
    wide = {*re.findall(r"vec([234])<f32>\(\w+_ptr\[", source)}
    wide |= {str(int(last) + 1) for last in re.findall(r"\w+_ptr\[v__\d+ \+ ([123])\] = ", source)}
    if not wide:
        return []
    return [f"an access to {max(wide)} neighbours in device memory is {max(wide)} accesses"]


def _tag(node: Any) -> str:
    bound = getattr(node, "thread_binding", None)
    return str(bound.thread_tag) if bound is not None else ""


def _mapped(main: Any, change: Any) -> Any:
    return main.with_body(tvm_ffi.structural_map(main.body, (tvm.tirx.For, change)))


def _substituted(body: Any, values: dict[Any, Any]) -> Any:
    return tvm_ffi.structural_map(body, (tvm.ir.Var, lambda var: values.get(var, var)))


def _cut(loop: Any, size: int, inner: Any, outer: Any) -> Any:
    """A loop as one of one kind over pieces of a size, which are loops of another kind."""
    piece, step = (tvm.ir.Var(f"{loop.loop_var.name}_{k}", loop.loop_var.ty) for k in (0, 1))
    body = _substituted(loop.body, {loop.loop_var: piece * size + step})
    return _loop(piece, int(loop.extent) // size, _loop(step, size, body, inner), outer)


def _loop(var: Any, extent: Any, body: Any, kind: Any, binding: Any = None) -> Any:
    zero = tvm.tirx.const(0, "int32")
    return tvm.tirx.For(var, zero, tvm.sym.Analyzer().simplify(extent + zero), kind, body, binding)


def _bindings(source: str, args: tuple[str, ...]) -> tuple[str, ...]:
    """The parameters by binding number, read off the source and held against the launch."""
    found = re.findall(r"@binding\((\d+)\) var<storage[^>]*> (\w+)_ptr :", source)
    names = tuple(name for _, name in sorted(found, key=lambda pair: int(pair[0])))
    pods = re.findall(r"struct PODArgs \{([^}]*)\}", source)
    fields = re.findall(r"(\w+): \w+", pods[0]) if pods else []
    if names != args or fields != ["packGridDimX"]:
        raise ValueError(
            f"the shader takes {', '.join((*names, *fields))}; expected {', '.join(args)} and "
            "packGridDimX, as this version of TVM has them"
        )
    return names


SIZES = {"f32": 4, "i32": 4, "u32": 4, "vec2": 8, "vec3": 16, "vec4": 16}


def _workgroup_bytes(source: str) -> int:
    arrays = re.findall(r"var<workgroup> \w+ : array<(\w+)(?:<\w+>)?, (\d+)>", source)
    if len(arrays) != source.count("var<workgroup>"):
        raise ValueError("the shader has workgroup memory that is no array of numbers or vectors")
    return sum(SIZES[kind] * int(count) for kind, count in arrays)


def _write(shader: Shader) -> bytes:
    return json.dumps(asdict(shader)).encode()


def _read(data: bytes) -> Shader:
    held = json.loads(data)
    lists = ("grid", "block", "bindings", "adapted")
    held["params"] = tuple(Param(**{**p, "shape": tuple(p["shape"])}) for p in held["params"])
    return Shader(**{**held, **{name: tuple(held[name]) for name in lists}})
