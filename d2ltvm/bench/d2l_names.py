"""Benchmarks by the names of Dive into Deep Learning Compiler, whose readers look for them.

As there, each times one contender and returns GFLOPS, an array with one number for each size; those
of pooling and batch norm return seconds, and so does `bench_workload`. All other benchmarks of this
package return a `Measurement`.
"""

import math
import timeit
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from d2ltvm.bench import contenders, operator_contenders
from d2ltvm.bench.contenders import Contender, Schedule, tvm_add, tvm_conv, tvm_matmul
from d2ltvm.bench.run import as_sizes, clock_of
from d2ltvm.bench.timing import time_together
from d2ltvm.compute.convolution import conv_gflop
from d2ltvm.compute.data import (
    bcast_data,
    get_abc,
    get_bn_data,
    get_conv_data,
    square_matrices,
)
from d2ltvm.errors import as_number, shown

GFLOPS = np.ndarray[Any, np.dtype[np.float64]]
Seconds = np.ndarray[Any, np.dtype[np.float64]]
ConvSizes = Iterable[tuple[int, int, int]]  # channels, height and width of the image, of the kernel
NormSizes = Iterable[tuple[int, int]]  # channels, height and width of the image


def bench_workload(workload: Callable[[int], float]) -> float:
    """Seconds for one run of a workload, timed for about a second in all.

    >>> d2ltvm.bench_workload(timeit.Timer("sum(range(100))").timeit) < 1
    True

    Args:
        workload: function of a number of repeats that returns the seconds they took together.

    Returns:
        Seconds per repeat, a float.

    Raises:
        ValueError: the workload returns less than no seconds: its clock went back.
    """
    _seconds(workload, 1)  # warm up
    once = _seconds(workload, 1)
    if once > 1:
        return once
    repeats = max(int(1 / max(once, 1e-9)), 5)
    return _seconds(workload, repeats) / repeats


def _seconds(workload: Callable[[int], float], repeats: int) -> float:
    if not callable(workload):
        raise TypeError(f"workload is {shown(workload)}; expected a function of repeats")
    seconds = as_number(f"workload({repeats})", workload(repeats))
    if not 0 <= seconds < math.inf:
        raise ValueError(f"workload({repeats}) is {seconds!r}; expected seconds, 0 or more")
    return seconds


def bench_vector_add_tvm(func: Schedule, sizes: Iterable[int], target: Any = None) -> GFLOPS:
    """GFLOPS of a scheduled vector add.

    >>> d2ltvm.bench_vector_add_tvm(d2ltvm.schedules.cpu_vector_add, [2**10, 2**20], "llvm").shape
    (2,)

    Args:
        func: function of a length that returns a schedule of `vector_add`.
        sizes: lengths.
        target: as for `d2ltvm.build`.

    Returns:
        GFLOPS at each size, an array of float64. One addition an element.
    """
    return _bench_one(sizes, tvm_add(func, target), get_abc, lambda n: n, clock_of(target))


def bench_bcast_add_tvm(func: Schedule, sizes: Iterable[int], target: Any = None) -> GFLOPS:
    """GFLOPS of a scheduled broadcast add of (n, 1) and (n, n).

    Args:
        func: function of `n` that returns a schedule of `broadcast_add((n, 1), (n, n))`.
        sizes: values of `n`.
        target: as for `d2ltvm.build`.

    Returns:
        GFLOPS at each size, an array of float64. One addition an element of the result.
    """
    return _bench_one(sizes, tvm_add(func, target), bcast_data, lambda n: n * n, clock_of(target))


def bench_vector_add_mxnet(sizes: Iterable[int], ctx: str = "cpu") -> GFLOPS:
    """GFLOPS of MXNet's vector add, on the CPU or, where there is such a build, on the GPU."""
    return _bench_one(sizes, contenders.mxnet_add(ctx), get_abc, lambda n: n, "host")


def bench_bcast_add_mxnet(sizes: Iterable[int], ctx: str = "cpu") -> GFLOPS:
    """GFLOPS of MXNet's broadcast add of (n, 1) and (n, n)."""
    return _bench_one(sizes, contenders.mxnet_add(ctx), bcast_data, lambda n: n * n, "host")


def bench_vector_add_torch(sizes: Iterable[int]) -> GFLOPS:
    """GFLOPS of PyTorch's vector add on the GPU."""
    return _bench_one(sizes, contenders.torch_add(), get_abc, lambda n: n, "graph")


def bench_bcast_add_torch(sizes: Iterable[int]) -> GFLOPS:
    """GFLOPS of PyTorch's broadcast add of (n, 1) and (n, n) on the GPU."""
    return _bench_one(sizes, contenders.torch_add(), bcast_data, lambda n: n * n, "graph")


def bench_matmul_tvm(func: Schedule, sizes: Iterable[int], target: Any = None) -> GFLOPS:
    """GFLOPS of a scheduled product of two n by n matrices.

    >>> d2ltvm.bench_matmul_tvm(d2ltvm.schedules.cpu_matmul, [64, 128], "llvm").shape
    (2,)

    Args:
        func: function of n, m and l that returns a schedule of `matmul(n, m, l)`.
        sizes: values of n, of which m and l are the same.
        target: as for `d2ltvm.build`.

    Returns:
        GFLOPS at each size, an array of float64. 2 n**3 operations.
    """
    contender = tvm_matmul(func, target)
    return _bench_one(sizes, contender, square_matrices, lambda n: 2 * n**3, clock_of(target))


def bench_conv_tvm(func: Schedule, sizes: ConvSizes, target: Any = None) -> GFLOPS:
    """GFLOPS of a scheduled convolution with as many channels out as in, and the size kept.

    >>> d2ltvm.bench_conv_tvm(default_sch, [(64, 64, 3)], "cuda")  # doctest: +SKIP
    array([240.3])

    Args:
        func: function of oc, ic, n, k, p and s that returns a schedule of a convolution.
        sizes: tuples (channels, height and width of the image, those of the kernel).
        target: as for `d2ltvm.build`.

    Returns:
        GFLOPS at each size, an array of float64.
    """
    return _bench_conv(sizes, lambda p: tvm_conv(func, p, target=target), clock_of(target))


def bench_conv_mxnet(sizes: ConvSizes, ctx: str = "cpu") -> GFLOPS:
    """GFLOPS of MXNet's convolution; `sizes` as for `bench_conv_tvm`, `ctx` 'cpu' or 'gpu'."""
    return _bench_conv(sizes, lambda p: contenders.mxnet_conv(p, ctx=ctx), "host")


def bench_conv_torch(sizes: ConvSizes) -> GFLOPS:
    """GFLOPS of PyTorch's convolution on the GPU, cuDNN's; `sizes` as for `bench_conv_tvm`."""
    return _bench_conv(sizes, contenders.torch_conv, "graph")


def bench_depthwise_conv_tvm(func: Schedule, sizes: ConvSizes, target: Any = None) -> GFLOPS:
    """GFLOPS of a scheduled depthwise convolution that keeps the size.

    >>> d2ltvm.bench_depthwise_conv_tvm(
    ...     d2ltvm.schedules.cpu_depthwise, [(4, 9, 3)], "llvm").shape
    (1,)

    Args:
        func: function of c, n, k, p and s that returns a schedule of `depthwise_conv`.
        sizes: tuples (channels, height and width of the image, those of the kernel).
        target: as for `d2ltvm.build`.

    Returns:
        GFLOPS at each size, an array of float64.
    """

    def contender(p: int) -> Contender:
        return operator_contenders.tvm_depthwise(func, p, target=target)

    return _bench_conv(sizes, contender, clock_of(target), "depthwise")


def bench_depthwise_conv_mxnet(sizes: ConvSizes, ctx: str = "cpu") -> GFLOPS:
    """GFLOPS of MXNet's depthwise convolution; `sizes` as for `bench_depthwise_conv_tvm`."""
    return _bench_conv(
        sizes, lambda p: operator_contenders.mxnet_depthwise(p, ctx=ctx), "host", "depthwise"
    )


def bench_pooling_tvm(
    func: Callable[[tuple[int, int, int]], Any],
    sizes: ConvSizes,
    target: Any = None,
    pool_type: str = "max",
) -> Seconds:
    """Seconds of a scheduled pooling with a border of 1 and stride 1.

    >>> largest = lambda size: d2ltvm.schedules.cpu_pool(*size, 1, 1)
    >>> d2ltvm.bench_pooling_tvm(largest, [(4, 9, 3)], "llvm").shape
    (1,)

    Args:
        func: function of one of `sizes` that returns a schedule of `pool`.
        sizes: tuples (channels, height and width of the image, those of the window).
        target: as for `d2ltvm.build`.
        pool_type: what the schedule computes, 'max' or 'avg', for the check.

    Returns:
        Seconds at each size, an array of float64.
    """

    def contender(k: int) -> Contender:
        sized = lambda c, n, k, _p, _s: func((c, n, k))  # noqa: E731
        return operator_contenders.tvm_pool(sized, pool_type, k, target=target)

    return _bench_pooling(sizes, contender, clock_of(target))


def bench_pooling_mxnet(pool_type: str, sizes: ConvSizes, ctx: str = "cpu") -> Seconds:
    """Seconds of MXNet's pooling, 'max' or 'avg'; `sizes` as for `bench_pooling_tvm`."""
    return _bench_pooling(
        sizes, lambda k: operator_contenders.mxnet_pool(pool_type, k, ctx=ctx), "host"
    )


def bench_bn_tvm(
    func: Callable[[tuple[int, int]], Any], sizes: NormSizes, target: Any = None
) -> Seconds:
    """Seconds of a scheduled batch norm.

    >>> norm = lambda size: d2ltvm.schedules.cpu_batch_norm(*size)
    >>> d2ltvm.bench_bn_tvm(norm, [(4, 9)], "llvm").shape
    (1,)

    Args:
        func: function of one of `sizes` that returns a schedule of `batch_norm`.
        sizes: tuples (channels, height and width of the image).
        target: as for `d2ltvm.build`.

    Returns:
        Seconds at each size, an array of float64.
    """
    sized = lambda c, n: func((c, n))  # noqa: E731
    return _bench_bn(sizes, operator_contenders.tvm_bn(sized, target), clock_of(target))


def bench_bn_mxnet(sizes: NormSizes, ctx: str = "cpu") -> Seconds:
    """Seconds of MXNet's batch norm; `sizes` as for `bench_bn_tvm`."""
    return _bench_bn(sizes, operator_contenders.mxnet_bn(ctx), "host")


def _bench_pooling(sizes: ConvSizes, contender: Callable[[int], Contender], clock: str) -> Seconds:
    found = []
    for c, n, k in sizes:
        data, _, out = get_conv_data(c, c, n, k, 1, conv_type="depthwise")
        found.append(time_together({"": contender(k)(data, out)}, clock)[""].median)
    return np.array(found)


def _bench_bn(sizes: NormSizes, contender: Contender, clock: str) -> Seconds:
    runs = (contender(*get_bn_data(c, n)) for c, n in sizes)
    return np.array([time_together({"": run}, clock)[""].median for run in runs])


def _bench_conv(
    sizes: ConvSizes, contender: Callable[[int], Contender], clock: str, conv_type: str = "direct"
) -> GFLOPS:
    gflops = []
    for c, n, k in sizes:
        p = (k - 1) // 2
        run = contender(p)(*get_conv_data(c, c, n, k, p, conv_type=conv_type))
        seconds = time_together({"": run}, clock)[""].median
        ic = c if conv_type == "direct" else 1
        gflops.append(conv_gflop(c, ic, n, k, p, 1) / seconds)
    return np.array(gflops)


def _bench_one(
    sizes: Iterable[int],
    contender: Contender,
    data: Callable[[int], Any],
    operations: Callable[[int], int],
    clock: str,
) -> GFLOPS:
    gflops = []
    for n in as_sizes(sizes):
        seconds = time_together({"": contender(*data(n))}, clock)[""].median
        gflops.append(operations(n) / 1e9 / seconds)
    return np.array(gflops)


def np_matmul_timer(n: int) -> Callable[[int], float]:
    """A timer of NumPy's product of two n by n matrices, for `bench_workload`.

    >>> gflops = 2 * 64**3 / d2ltvm.bench_workload(d2ltvm.np_matmul_timer(64)) / 1e9
    >>> gflops > 0.001
    True

    Args:
        n: rows and columns, a positive integer.

    Returns:
        A function of a number of repeats that returns the seconds they took together.
    """
    return timeit.Timer(contenders.numpy_matmul()(*square_matrices(n))).timeit
