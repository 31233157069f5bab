"""What a schedule needs to be lowered for a target, each in one line where it is missing."""

import math
from typing import Any

import tvm

from d2ltvm.compiler.ir import find
from d2ltvm.compiler.launches import Launch
from d2ltvm.system.chips import CHIPS

# Limits of every NVIDIA GPU since compute capability 5.0. Source: CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability".
MAX_THREADS_PER_BLOCK = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
STATIC_SHARED_KIB = 48  # in scope `shared`; more has to be asked for at the launch, `shared.dyn`

OPENCL_VECTORS = (1, 2, 3, 4, 8, 16)  # OpenCL C Specification, section 6.3.2
# Bytes. PoCL 3.0 with LLVM 14 ends the process where a processor with AVX-512 gets a longer one
# ("Do not know how to scalarize this operator's operand"), or is wrong. A GPU moves 16 at once.
OPENCL_WIDEST = 32


def loops(main: Any, target: Any) -> None:
    """A ValueError where a loop is bound, or made a vector, as the target cannot have it."""
    for loop in find(main.body, "For"):
        tag = loop.thread_binding.thread_tag if loop.thread_binding is not None else ""
        if target.kind.name == "llvm" and tag.startswith(("blockIdx", "threadIdx")):
            raise ValueError(
                f"loop {loop.loop_var.name} is bound to {tag!r}, which a CPU lacks; expected a "
                "schedule without bindings for target='llvm', or target 'cuda' or 'opencl'"
            )
        wide = loop.kind == tvm.tirx.ForKind.VECTORIZED and target.kind.name == "opencl"
        if wide and int(loop.extent) not in OPENCL_VECTORS:
            raise ValueError(
                f"loop {loop.loop_var.name} is a vector of {loop.extent} elements; expected one of "
                f"{', '.join(map(str, OPENCL_VECTORS[1:]))}, which OpenCL has"
            )
        for store in find(loop.body, "BufferStore") if wide else ():
            nbytes = int(loop.extent) * tvm.DataType(str(store.buffer.dtype)).bits // 8
            if nbytes > OPENCL_WIDEST:
                raise ValueError(
                    f"loop {loop.loop_var.name} is a vector of {nbytes} bytes; expected at most "
                    f"{OPENCL_WIDEST}, since PoCL cannot compile more on every processor"
                )


def launch(found: Launch, kernel: Any, target: Any, static_kib: int | None) -> None:
    """A ValueError where a launch has more threads, blocks or shared memory than a GPU takes.

    Args:
        found: what was read off the host function.
        kernel: its function on the device.
        target: on OpenCL, which takes as much shared memory as there is, the largest chip's limit
            counts.
        static_kib: the limit for scope `shared`; None where it stands for `shared.dyn` too.
    """
    threads = math.prod(found.block)
    if threads > MAX_THREADS_PER_BLOCK:
        raise ValueError(
            f"{found.name} has {threads} threads per block, {found.block}; "
            f"expected at most {MAX_THREADS_PER_BLOCK}"
        )
    for what, sizes, most in (
        ("block", found.block, MAX_BLOCK),
        ("grid", found.grid, MAX_GRID),
    ):
        if any(size > limit for size, limit in zip(sizes, most, strict=True)):
            raise ValueError(f"{found.name} has {what} {sizes}; expected at most {most}")
    if target.kind.name in ("cuda", "opencl"):
        _shared(found, kernel, str(getattr(target, "arch", "")), static_kib)


def _shared(found: Launch, kernel: Any, arch: str, static_kib: int | None) -> None:
    """A ValueError where a kernel takes more shared memory than the chip gives a block."""
    buffers = [alloc.buffer for alloc in find(kernel.body, "AllocBuffer")]
    static = sum(_nbytes(buffer) for buffer in buffers if buffer.scope() == "shared")
    known = [c.shared_block_kib for c in CHIPS.values() if c.capability == arch or not arch]
    most = max(known, default=None)
    for what, needed, limit in (
        ("shared memory of scope 'shared'", static, static_kib),
        ("shared memory", static + found.shared, most),
    ):
        if limit and needed > limit * 1024:
            raise ValueError(
                f"{found.name} takes {needed:,} bytes of {what} per block; expected at most "
                f"{limit * 1024:,}{f' on {arch}' if arch else ''}"
            )


ASYNC_BYTES = (4, 8, 16)  # of one cp.async; TVM makes none of a vector of another size


def neighbours(body: Any) -> None:
    """A ValueError where an asynchronous copy is of a vector whose elements are no neighbours.

    TVM 0.27 makes one `cp.async` of it, of the first element and those behind that in memory: other
    elements than the schedule's, or an address that ends the kernel.

    Args:
        body: of a kernel, before TVM makes `cp.async` of its copies.
    """
    scopes = (s for s in find(body, "AttrStmt") if s.attr_key == "async_scope")
    for store in (store for scope in scopes for store in find(scope.body, "BufferStore")):
        for load in find(store.value, "TensorLoad"):
            ramps = [r for index in (*store.indices, *load.indices) for r in find(index, "Ramp")]
            size = int(tvm.DataType(str(store.buffer.dtype)).itemsize)
            for ramp in ramps:
                if int(ramp.stride) != 1 and int(ramp.lanes) * size in ASYNC_BYTES:
                    raise ValueError(
                        f"an asynchronous copy of {load.source.name} to {store.buffer.name} is of "
                        f"{ramp.lanes} elements that lie {ramp.stride} apart; expected neighbours, "
                        "or no vector"
                    )


def _nbytes(buffer: Any) -> int:
    sizes = (int(size) for size in buffer.shape)
    return math.prod(sizes) * int(tvm.DataType(str(buffer.dtype)).itemsize)
