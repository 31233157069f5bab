"""Lowers a schedule by TVM's passes: which of them, with which options, for which target."""

import re
from typing import Any

import tvm
from tvm.tirx.compilation_pipeline import register_tir_pipeline

from d2ltvm.compiler import bounds, checks, names
from d2ltvm.compiler.ir import find
from d2ltvm.compiler.launches import (
    LaunchParts,
    Lowered,
    Param,
    check_host,
    read,
    read_tensor_maps,
    unbound,
)
from d2ltvm.errors import MissingError
from d2ltvm.system import devices


def lower(
    mod: Any, target: Any, config: dict[str, Any] | None = None, asynchronous: bool = True
) -> Lowered:
    """Compile a module for a target and read off its launches.

    Args:
        mod: an IRModule with one PrimFunc named `main`.
        target: a `tvm.target.Target`.
        config: options of TVM's PassContext. Where a schedule asks for asynchronous copies and the
            architecture has them, `tirx.use_async_copy` is set without being told.
        asynchronous: whether to make asynchronous copies at all; others go through registers, and
            have the same addresses.

    Returns:
        A `Lowered`.

    Raises:
        ValueError: a stage or a loop that should be bound to blocks and threads is not, one is
            bound and the target is a CPU, an index lies outside of its tensor, or more threads,
            blocks or shared memory are asked for than a GPU has.
    """
    if is_tile_kernel(mod):
        return _lower_tile_kernel(mod, target, config or {})
    mod = names.distinct(mod)
    params = parameters(mod)
    checks.loops(mod["main"], target)
    bounds.check(mod["main"])
    static_kib: int | None = checks.STATIC_SHARED_KIB
    one_kind = target.kind.name in ("opencl", "webgpu")
    if one_kind and (static := _with_static_shared_memory(mod)) is not mod:
        mod, static_kib = static, None
    mod, options = _asynchronous(mod, target, asynchronous)
    warp, across = _uses_warp_memory(mod), []
    if warp:
        if target.kind.name == "cuda":
            devices.need_ampere(target.arch)
        # LowerWarpMemory wants buffers outside the threads, where the rewriting of storage puts
        # them, and does not see through names for parts of an index.
        options.update({"tirx.disable_storage_rewrite": False, "tirx.disable_cse_tir": True})
    elif across := _sums_across_threads(mod):
        # The rewriting of storage gives a sum and what is computed from it, such as its reciprocal,
        # one place in registers. Then the sum moves to shared memory, and its reciprocal with it:
        # each thread takes that of what another thread may have written already.
        options["tirx.disable_storage_rewrite"] = True
    elif _stores_fragments_in_shared(mod):
        # It gives the sums of a wmma kernel, in float32, the place of a tile in float16, and then
        # refuses that a float32 is stored there. Shared memory is put together by bytes later on.
        options["tirx.disable_storage_rewrite"] = True
    config = {**options, **(config or {})}
    capture = _AfterSplit()
    context = tvm.transform.PassContext(
        config=config, instruments=[capture], disabled_pass=NOT_FOR_GPUS
    )
    with context:
        try:
            executable = tvm.compile(mod, target=target, tir_pipeline=PIPELINE if warp else "s_tir")
        except Exception as error:
            if capture.mod:  # too much of something is said better here than by the CUDA compiler
                _checked(capture.mod, target, static_kib)
            raise _explained(error) from error
    launches, temporaries, kernels = _checked(capture.mod, target, static_kib)
    if capture.shared_sums < len(across):
        raise ValueError(
            f"TVM does not add up over threads in all of the blocks {', '.join(across)}: expected "
            "a loop of threads that has no guard, or whose guard rests on no other thread or block"
        )
    if warp:
        kernels = {n: _lower_warp_memory(tvm.IRModule({n: f}))[n] for n, f in kernels.items()}
    return Lowered(executable, params, launches, temporaries, kernels)


def kernels_of(mod: Any, target: Any) -> LaunchParts:
    """What a module launches, read off when host and device are apart: nothing is compiled.

    It takes a fraction of the time of `lower`, and nothing is checked. Asynchronous copies go
    through registers, and parts of indices that repeat have no names.

    Args:
        mod: as for `lower`.
        target: likewise, of a GPU.

    Returns:
        Launches, temporaries, and kernels as IR by name.
    """
    mod, options = _asynchronous(names.distinct(mod), target, False)
    host = tvm.target.Target("llvm")
    passes, *_ = tvm.tirx.get_tir_pipeline("s_tir")
    capture = _AfterSplit()
    config = {**options, "tirx.disable_cse_tir": True}
    with tvm.transform.PassContext(config=config, instruments=[capture]):
        passes(tvm.tirx.transform.BindTarget(target.with_host(host))(mod))
    return read(capture.mod)


def _checked(
    mod: Any, target: Any, static_kib: int | None = checks.STATIC_SHARED_KIB
) -> LaunchParts:
    """What a module launches whose host and device are apart, or a ValueError if no GPU can."""
    if target.kind.name != "llvm":
        check_host(mod["main"])
    launches, temporaries, kernels = read(mod)
    for launch in launches:
        checks.launch(launch, kernels[launch.name], target, static_kib)
    return launches, temporaries, kernels


def is_tile_kernel(mod: Any) -> bool:
    """Whether `main` is written thread by thread, in TIRx, with nothing for a schedule to do."""
    return not (mod["main"].attrs and mod["main"].attrs.get("s_tir"))


def architecture(mod: Any, arch: str) -> str:
    """The architecture to compile for, such as 'sm_90': 'sm_90a' where wgmma or TMA is used.

    Raises:
        ValueError: the kernel is for Hopper, and `arch` is another architecture.
    """
    if not is_tile_kernel(mod):
        return arch
    if str(arch).removesuffix("a") != "sm_90":
        raise ValueError(f"arch is {arch!r}; expected 'sm_90a': this kernel uses wgmma and TMA")
    return "sm_90a"


def _lower_tile_kernel(mod: Any, target: Any, config: dict[str, Any]) -> Lowered:
    if target.kind.name != "cuda" or str(target.arch).removesuffix("a") != "sm_90":
        raise MissingError(
            "this kernel uses wgmma and TMA, which only Hopper has",
            "its source, cubin and SASS, by build(kernel, 'sm_90a')",
            "a machine with an H100 or H200",
        )
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}, host=target.host or "llvm")
    capture = _AfterSplit()
    with tvm.transform.PassContext(config=config, instruments=[capture]):
        executable = tvm.compile(mod, target=target, tir_pipeline="tirx")
    maps = read_tensor_maps(capture.mod["main"])
    return Lowered(executable, parameters(mod), *_checked(capture.mod, target), maps)


# Where asynchronous copies are allowed, it looks for those that Hexagon's DMA engine could make. In
# a GPU's kernel it changes nothing, and it takes most of the time of lowering.
NOT_FOR_GPUS = ["s_tir.LowerAsyncDMA"]
PIPELINE = "d2ltvm"  # TVM's, with the pass below in place of its LowerWarpMemory


def _pipeline() -> tuple[Any, Any, Any]:
    """TVM's passes, but all buffers of scope `warp` become registers.

    LowerWarpMemory of TVM 0.27 takes the first one in a sequence and leaves those behind it, which
    would then be 32 times too large and indexed by the lane: local memory, not registers.
    """
    passes, host, _ = tvm.tirx.get_tir_pipeline("s_tir")

    def device() -> Any:
        transform = tvm.tirx.transform
        warp = tvm.transform.module_pass(lambda mod, _: _lower_warp_memory(mod), opt_level=0)
        return tvm.transform.Sequential([warp, transform.StmtSimplify(), transform.LowerIntrin()])

    return passes, host, device


def _lower_warp_memory(mod: Any) -> Any:
    """The module with each buffer of scope `warp` spread over the registers of the lanes."""
    while any(
        alloc.buffer.scope() == "warp"
        for function in mod.functions.values()
        for alloc in find(function.body, "AllocBuffer")
    ):
        mod = tvm.tirx.transform.LowerWarpMemory()(mod)
    return mod


def _uses_warp_memory(mod: Any) -> bool:
    """Whether a schedule has a buffer of scope `warp`."""
    return any(buffer.scope() == "warp" for buffer in _allocated(mod))


def _allocated(mod: Any) -> list[Any]:
    """The buffers that a schedule's blocks allocate."""
    blocks = find(mod["main"].body, "SBlock")
    return [buffer for block in blocks for buffer in block.alloc_buffers]


def _stores_fragments_in_shared(mod: Any) -> bool:
    """Whether a schedule has fragments of wmma, and buffers of several dtypes in shared memory."""
    buffers = _allocated(mod)
    if not any(buffer.scope().startswith("wmma") for buffer in buffers):
        return False
    return len({str(b.dtype) for b in buffers if b.scope().startswith("shared")}) > 1


def _sums_across_threads(mod: Any) -> list[str]:
    """The blocks that add up, or the like, over a loop that is bound to threads, by their names."""
    threads = {
        hash(loop.loop_var)
        for loop in find(mod["main"].body, "For")
        if loop.thread_binding is not None
        and loop.thread_binding.thread_tag.startswith("threadIdx")
    }
    return [
        realize.block.name_hint
        for realize in find(mod["main"].body, "SBlockRealize")
        if any(
            hash(var) in threads
            for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
            if axis.iter_type == tvm.tirx.IterVar.CommReduce
            for var in find(value, "Var")
        )
    ]


register_tir_pipeline(PIPELINE, _pipeline)

ASYNC = "software_pipeline_async_stages"  # how a schedule asks for asynchronous copies


def asks_for_asynchronous_copies(mod: Any) -> bool:
    """Whether a schedule asks for copies that go on beside the threads, where there are any."""
    return any(ASYNC in loop.annotations for loop in find(mod["main"].body, "For"))


def _asynchronous(mod: Any, target: Any, allowed: bool) -> tuple[Any, dict[str, Any]]:
    """The module and the options that it needs, where it asks for asynchronous copies."""
    if not asks_for_asynchronous_copies(mod):
        return mod, {}
    arch = re.fullmatch(r"sm_(\d+)[af]?", str(getattr(target, "arch", "")))
    if allowed and target.kind.name == "cuda" and arch and int(arch[1]) >= 80:
        # The rewriting of storage would give shared memory a vector type, which the pass that makes
        # cp.async of its copies does not understand.
        return mod, {"tirx.use_async_copy": True, "tirx.disable_storage_rewrite": True}
    # The others get copies through registers. The annotation has to go, or TVM would have them wait
    # for asynchronous ones.
    sch = tvm.s_tir.Schedule(mod)
    for block in find(mod["main"].body, "SBlock"):
        if block.name_hint != "root":
            for loop in sch.get_loops(sch.get_sblock(block.name_hint)):
                if ASYNC in sch.get(loop).annotations:
                    sch.unannotate(loop, ASYNC)
    return sch.mod, {}


def _with_static_shared_memory(mod: Any) -> Any:
    """The module with `shared.dyn` turned into `shared`: OpenCL and WGSL have no other."""
    dynamic = [
        (block.name_hint, k)
        for block in find(mod["main"].body, "SBlock")
        for k, region in enumerate(block.writes)
        if region.source.ty.storage_scope == "shared.dyn"
    ]
    if not dynamic:
        return mod
    sch = tvm.s_tir.Schedule(mod)
    for name, k in dynamic:
        sch.set_scope(sch.get_sblock(name), k, "shared")
    return sch.mod


def as_module(sch: Any) -> Any:
    """The IRModule of a schedule, of an IRModule, or of a PrimFunc, which is then its `main`.

    Raises:
        TypeError: `sch` is none of these.
        ValueError: the module has no PrimFunc named `main`.
    """
    if isinstance(sch, tvm.tirx.PrimFunc):
        return tvm.IRModule({"main": sch})
    mod = sch.mod if isinstance(sch, tvm.s_tir.Schedule) else sch
    if not isinstance(mod, tvm.IRModule):
        made = "; d2ltvm.schedule(tensors) makes one" if isinstance(sch, list | tuple) else ""
        raise TypeError(f"sch is a {type(sch).__name__}; expected {SCHEDULES}{made}")
    names = [str(name.name_hint) for name in mod.functions]
    if "main" not in names or not isinstance(mod["main"], tvm.tirx.PrimFunc):
        raise ValueError(
            f"sch is a module of {', '.join(names) or 'nothing'}; expected {SCHEDULES}"
        )
    return mod


SCHEDULES = "a Schedule, a PrimFunc, or an IRModule with a PrimFunc named main"


def parameters(mod: Any) -> tuple[Param, ...]:
    """The tensors that `mod["main"]` takes, as a tuple of `Param`.

    Blocks and stores say what they write. Where there are none, in TIRx, it is the last one.

    Raises:
        ValueError: a parameter is no tensor, or its shape is not known.
    """
    written = {mod["main"].params[-1].name} if is_tile_kernel(mod) else set()
    for block in find(mod["main"].body, "SBlock"):
        written.update(region.source.name for region in block.writes)
    written.update(store.buffer.name for store in find(mod["main"].body, "BufferStore"))
    _check_shapes(mod["main"].params)
    return tuple(
        Param(b.name, tuple(int(s) for s in b.shape), str(b.dtype), b.name in written)
        for b in mod["main"].params
    )


def _check_shapes(params: Any) -> None:
    """A ValueError unless all parameters are tensors whose shapes are known."""
    for p in params:
        if type(p.ty).__name__ != "BufferType":
            raise ValueError(f"main takes {p.name}, which is no tensor; expected tensors alone")
        if not all(isinstance(size, int | tvm.tirx.IntImm) for size in p.shape):
            shape = ", ".join(str(size) for size in p.shape)
            raise ValueError(f"{p.name} has shape ({shape}); expected integers, fixed at the build")


@tvm.instrument.pass_instrument
class _AfterSplit:
    """Keeps the module as it stands when host and device code have just been split.

    At this point the host function is a plain list of launches with their extents, which
    later passes turn into packed calls.
    """

    mod: Any = None
    shared_sums: int = 0  # blocks whose threads add up together, as far as TVM sees them

    def run_before_pass(self, mod: Any, info: Any) -> None:
        if info.name == "s_tir.InjectPTXAsyncCopy":
            for function in mod.functions.values():
                checks.neighbours(function.body)

    def run_after_pass(self, mod: Any, info: Any) -> None:
        if info.name == "s_tir.LowerCrossThreadReduction":
            calls = (c for f in mod.functions.values() for c in find(f.body, "Call"))
            self.shared_sums = sum("thread_allreduce" in str(c.op) for c in calls)
        if info.name == "tirx.SplitHostDevice":
            self.mod = mod


def _explained(error: Exception) -> Exception:
    """The exception to raise for one of TVM's, in terms of the schedule."""
    return unbound() if "Did you forget to bind" in str(error) else error
