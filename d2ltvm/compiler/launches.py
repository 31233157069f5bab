"""What is launched once TVM has lowered a schedule: parameters, launches, temporaries, TMA's maps.

All is read off the host function, as it stands when host and device code have just been split.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import tvm

from d2ltvm.compiler.im2col import ENCODE
from d2ltvm.compiler.ir import find
from d2ltvm.layouts import Walk

DEPENDENT = "tirx.use_programtic_dependent_launch"  # of a launch; the spelling is TVM's


@dataclass(frozen=True)
class Param:
    """A tensor that the kernel takes: `name`, `shape`, `dtype`, and whether it is an `output`."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    output: bool

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * int(tvm.DataType(self.dtype).itemsize)


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Attributes:
        name: the kernel's name in the source.
        grid: blocks along x, y and z.
        block: threads of a block along x, y and z.
        args: names of the tensors it is called with, in the order of its signature.
        shared: bytes of shared memory that a block is given at its launch, in scope `shared.dyn`.
        dependent: whether it is a programmatic dependent launch, which may begin before the kernel
            before it has ended.
        cluster: blocks of a cluster, along x.
    """

    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[str, ...]
    shared: int = 0
    dependent: bool = False
    cluster: int = 1

    def __str__(self) -> str:
        return f"{self.name}: grid {self.grid}, block {self.block}"


@dataclass(frozen=True)
class TensorMap:
    """What TMA is told about a tensor before the launch.

    Attributes:
        tensor: name of the parameter that it is.
        shape: how TMA sees it, the outermost dimension first, as for `box`.
        box: what it copies at once.
        dtype: of its elements.
        swizzled: within how many bytes shared memory is swizzled, 32, 64 or 128, or 0: not at all.
        simple: whether elements lie next to each other.
        steps: elements from one to the next, as `shape`; None for neighbours.
        walk: how TMA walks over images, in its im2col mode; else None.
    """

    tensor: str
    shape: tuple[int, ...]
    box: tuple[int, ...]
    dtype: str
    swizzled: int
    simple: bool
    walk: Walk | None = None
    steps: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Lowered:
    """A compiled schedule: the executable, its parameters, its launches and their temporaries.

    `device_functions` are the kernels as IR, `tensor_maps` what they are called with by TMA: a
    `TensorMap` each, both by name.
    """

    executable: Any
    params: tuple[Param, ...]
    launches: tuple[Launch, ...]
    temporaries: tuple[Param, ...]
    device_functions: dict[str, Any]
    tensor_maps: dict[str, TensorMap] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """The CUDA or OpenCL source; the LLVM IR for a CPU target."""
        imports = self.executable.mod.imports
        mod = self.executable.mod
        return str(imports[0].inspect_source() if imports else mod.inspect_source("ll"))


LaunchParts = tuple[tuple[Launch, ...], tuple[Param, ...], dict[str, Any]]


def read(mod: Any) -> LaunchParts:
    """Launches, temporaries, and kernels by name, of a module whose host and device are apart."""
    launches, temporaries = _read_host(mod["main"])
    return launches, temporaries, {launch.name: mod[launch.name] for launch in launches}


def check_host(main: Any) -> None:
    """A ValueError unless the host has nothing left to do but to launch kernels.

    Args:
        main: the host function, after it was split from the kernels.
    """
    if not _calls(main):
        raise unbound()
    for store in find(main.body, "BufferStore"):
        raise ValueError(
            f"the stage that writes {store.buffer.name} is bound to no thread, beside others that "
            "are: bind one of its loops to 'blockIdx.x' or 'threadIdx.x', or move it into a stage "
            "that is bound, by compute_at or compute_inline"
        )
    for loop in find(main.body, "For"):
        raise ValueError(
            f"loop {loop.loop_var.name} is bound to no thread and lies around loops that are: bind "
            "it to 'blockIdx.x', or reorder it to the inside"
        )
    for alloc in find(main.body, "AllocBuffer"):
        if alloc.buffer.scope() != "global":
            raise ValueError(
                f"{alloc.buffer.name} is in scope {alloc.buffer.scope()!r} and lies outside of all "
                "kernels: move its stage under a loop that is bound to blocks, by compute_at or "
                "reverse_compute_at"
            )


def unbound() -> ValueError:
    """The error for a schedule of which nothing is bound."""
    return ValueError(
        "a loop nest of the schedule is bound to no thread: bind one of its loops to 'blockIdx.x' "
        "or 'threadIdx.x', or build for target='llvm'"
    )


def _calls(main: Any) -> list[Any]:
    """The calls of a host function that launch kernels."""
    return [c for c in find(main.body, "Call") if c.op.name == "tirx.call_ffi_kernel"]


def _read_host(main: Any) -> tuple[tuple[Launch, ...], tuple[Param, ...]]:
    """Launches of the host function, and the buffers it allocates for them."""
    temporaries = tuple(_temporary(alloc.buffer) for alloc in find(main.body, "AllocBuffer"))
    views = {  # the same data under another name
        d.buffer.name: d.data.args[0].name
        for d in find(main.body, "DeclBuffer")
        if getattr(getattr(d.data, "op", None), "name", "") == "tirx.buffer_data"
    }
    return tuple(_read_launch(call, views) for call in _calls(main)), temporaries


def _temporary(buffer: Any) -> Param:
    return Param(buffer.name, tuple(int(s) for s in buffer.shape), str(buffer.dtype), True)


def _read_launch(call: Any, views: dict[str, str]) -> Launch:
    tags = list(call.attrs.launch_params)
    axes = [tag for tag in tags if tag != DEPENDENT]  # that one has no value
    name, args = call.args[0].value, list(call.args[1:])
    extents = dict(zip(axes, (int(a) for a in args[len(args) - len(axes) :]), strict=True))
    return Launch(
        name=name,
        grid=tuple(extents.get(f"blockIdx.{d}", 1) for d in "xyz"),
        block=tuple(extents.get(f"threadIdx.{d}", 1) for d in "xyz"),
        args=tuple(views.get(_named(a), _named(a)) for a in args[: len(args) - len(axes)]),
        shared=extents.get("tirx.use_dyn_shared_memory", 0),
        dependent=DEPENDENT in tags,
        cluster=extents.get("clusterCtaIdx.x", 1),
    )


def _named(argument: Any) -> str:
    """The name of what a kernel is called with: the data of a tensor, or TMA's map of one."""
    return str(argument.name if hasattr(argument, "name") else argument.args[0].name)


def read_tensor_maps(main: Any) -> dict[str, TensorMap]:
    """Each `TensorMap` that a host function makes, by the name of its variable."""
    calls = find(main.body, "Call")
    tiled = [c for c in calls if c.op.name == "tirx.tensormap_encode_tiled"]
    walks = [c for c in calls if c.op.name == PACKED and c.args[0].value == ENCODE]
    told = [c for c in calls if c.op.name == PACKED and c.args[0].value == ENCODE_TILED]
    return {
        **{c.args[1].name: _read_told(*c.args[2:]) for c in told},
        **{c.args[0].name: _read_tensor_map(*c.args[1:], attrs=c.attrs) for c in tiled},
        **{c.args[1].name: _read_walk(*c.args[2:]) for c in walks},
    }


PACKED = "tirx.tvm_call_packed"
ENCODE_TILED = "runtime.cuTensorMapEncodeTiled"  # TVM's


def _read_told(dtype: Any, rank: Any, data: Any, *numbers: Any) -> TensorMap:
    """From the arguments of `ENCODE_TILED`, behind the map."""
    rank, values, kind = int(rank), tuple(int(n) for n in numbers), str(dtype.value)
    shape, box, steps = values[:rank], values[2 * rank - 1 :][:rank], values[3 * rank - 1 :][:rank]
    dense = tuple(tvm.DataType(kind).itemsize * math.prod(shape[: k + 1]) for k in range(rank - 1))
    many = tuple(-(-size // step) for size, step in zip(box, steps, strict=True))
    return TensorMap(
        tensor=_named(data),
        shape=shape[::-1],
        box=many[::-1],
        dtype=kind,
        swizzled=(0, 32, 64, 128)[values[4 * rank]],
        simple=values[rank : 2 * rank - 1] == dense,
        steps=steps[::-1],
    )


def _read_walk(data: Any, *numbers: Any) -> TensorMap:
    """From the arguments of `im2col.ENCODE`."""
    walk = Walk.of(tuple(int(n) for n in numbers))
    box = (walk.pixels, walk.channels)
    return TensorMap(_named(data), walk.shape, box, "float16", 2 * walk.channels, True, walk)


def _read_tensor_map(data: Any, *numbers: Any, attrs: Any) -> TensorMap:
    """From the arguments of cuTensorMapEncodeTiled, which name the innermost dimension first."""
    rank, values = int(attrs.rank), tuple(int(n) for n in numbers)
    shape, strides, box, steps = (
        values[k * rank - (k > 1) : (k + 1) * rank - (k > 0)] for k in range(4)
    )
    itemsize = tvm.DataType(attrs.descriptor_dtype).itemsize
    dense = tuple(itemsize * math.prod(shape[: k + 1]) for k in range(rank - 1))
    simple = strides == dense and set(steps) == {1}
    return TensorMap(
        tensor=_named(data.args[0]),
        shape=shape[::-1],
        box=box[::-1],
        dtype=str(attrs.descriptor_dtype),
        swizzled=(0, 32, 64, 128)[int(attrs.swizzle)],
        simple=simple,
    )
