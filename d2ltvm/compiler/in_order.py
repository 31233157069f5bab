"""Kernels whose loads stay behind the stores that stand before them."""

import contextlib
from collections.abc import Iterator

import tvm_ffi

_HOOK = "tvm_callback_cuda_postproc"  # TVM hands it the CUDA source before that is compiled


@contextlib.contextmanager
def in_order() -> Iterator[None]:
    """While it is open, kernels are built as if their tensors might overlap.

    TVM tells the compiler that tensors do not overlap, by `__restrict__`. So the compiler may load
    for the next rounds of a loop before it stores the result of this one, and how far ahead it
    loads is its own choice. Without the word, a load stays behind every store that stands before
    it, and the source says how many loads are under way.

    >>> with in_order():
    ...     kernel = d2ltvm.build(d2ltvm.schedules.one_thread_each(1024), "sm_90")
    >>> "__restrict__" in kernel.source
    False
    """
    tvm_ffi.register_global_func(_HOOK, lambda code, _: code.replace("__restrict__ ", ""), True)
    try:
        yield
    finally:
        tvm_ffi.remove_global_func(_HOOK)
