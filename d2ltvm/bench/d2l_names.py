"""Benchmarks by the names of Dive into Deep Learning Compiler: one contender, GFLOPS."""

import timeit

import numpy as np

from d2ltvm.bench import contenders
from d2ltvm.bench.contenders import numpy_matmul, tvm_add, tvm_conv, tvm_matmul
from d2ltvm.bench.timing import time_together
from d2ltvm.compute.convolution import conv_gflop
from d2ltvm.compute.data import (
    bcast_data,
    get_abc,
    get_conv_data,
    square_matrices,
)
from d2ltvm.system.devices import as_target


def bench_workload(workload):
    """Seconds for one run of a workload, timed for about a second in all.

    >>> d2ltvm.bench_workload(timeit.Timer("a + b", globals=globals()).timeit)
    1.3e-06

    Args:
        workload: function of a number of repeats that returns the seconds they took together.

    Returns:
        Seconds per repeat, a float.
    """
    workload(1)  # warm up
    once = workload(1)
    if once > 1:
        return once
    repeats = max(int(1 / max(once, 1e-9)), 5)
    return workload(repeats) / repeats


def bench_vector_add_tvm(func, sizes, target=None):
    """GFLOPS of a scheduled vector add.

    >>> d2ltvm.bench_vector_add_tvm(vectorized, [2**10, 2**20], "cuda")
    array([  0.8, 310.5])

    Args:
        func: function of a length that returns a schedule of `vector_add`.
        sizes: lengths.
        target: as for `d2ltvm.build`.

    Returns:
        GFLOPS at each size, an array of float64. One addition an element.
    """
    return _bench_one(sizes, tvm_add(func, target), get_abc, lambda n: n, _clock(target))


def bench_bcast_add_tvm(func, sizes, target=None):
    """GFLOPS of a scheduled broadcast add of (n, 1) and (n, n).

    Args:
        func: function of `n` that returns a schedule of `broadcast_add((n, 1), (n, n))`.
        sizes: values of `n`.
        target: as for `d2ltvm.build`.

    Returns:
        GFLOPS at each size, an array of float64. One addition an element of the result.
    """
    return _bench_one(sizes, tvm_add(func, target), bcast_data, lambda n: n * n, _clock(target))


def bench_vector_add_mxnet(sizes, ctx="cpu"):
    """GFLOPS of MXNet's vector add, on the CPU or, where there is such a build, on the GPU."""
    return _bench_one(sizes, contenders.mxnet_add(ctx), get_abc, lambda n: n, "host")


def bench_bcast_add_mxnet(sizes, ctx="cpu"):
    """GFLOPS of MXNet's broadcast add of (n, 1) and (n, n)."""
    return _bench_one(sizes, contenders.mxnet_add(ctx), bcast_data, lambda n: n * n, "host")


def bench_vector_add_torch(sizes):
    """GFLOPS of PyTorch's vector add on the GPU."""
    return _bench_one(sizes, contenders.torch_add, get_abc, lambda n: n, "graph")


def bench_bcast_add_torch(sizes):
    """GFLOPS of PyTorch's broadcast add of (n, 1) and (n, n) on the GPU."""
    return _bench_one(sizes, contenders.torch_add, bcast_data, lambda n: n * n, "graph")


def bench_matmul_tvm(func, sizes, target=None):
    """GFLOPS of a scheduled product of two n by n matrices.

    >>> d2ltvm.bench_matmul_tvm(matmul_coalesced, [512, 1024], "cuda")
    array([5120.4, 6480.1])

    Args:
        func: function of n, m and l that returns a schedule of `matmul(n, m, l)`.
        sizes: values of n, of which m and l are the same.
        target: as for `d2ltvm.build`.

    Returns:
        GFLOPS at each size, an array of float64. 2 n**3 operations.
    """
    return _bench_one(
        sizes, tvm_matmul(func, target), square_matrices, lambda n: 2 * n**3, _clock(target)
    )


def bench_conv_tvm(func, sizes, target=None):
    """GFLOPS of a scheduled convolution with as many channels out as in, and the size kept.

    >>> d2ltvm.bench_conv_tvm(default_sch, [(64, 64, 3)], "cuda")
    array([240.3])

    Args:
        func: function of oc, ic, n, k, p and s that returns a schedule of a convolution.
        sizes: tuples (channels, height and width of the image, those of the kernel).
        target: as for `d2ltvm.build`.

    Returns:
        GFLOPS at each size, an array of float64.
    """
    return _bench_conv(sizes, lambda p: tvm_conv(func, p, target=target), _clock(target))


def bench_conv_mxnet(sizes, ctx="cpu"):
    """GFLOPS of MXNet's convolution; `sizes` as for `bench_conv_tvm`, `ctx` 'cpu' or 'gpu'."""
    return _bench_conv(sizes, lambda p: contenders.mxnet_conv(p, ctx=ctx), "host")


def bench_conv_torch(sizes):
    """GFLOPS of PyTorch's convolution on the GPU, cuDNN's; `sizes` as for `bench_conv_tvm`."""
    return _bench_conv(sizes, contenders.torch_conv, "graph")


def _bench_conv(sizes, contender, clock):
    gflops = []
    for c, n, k in sizes:
        p = (k - 1) // 2
        run = contender(p)(c, *get_conv_data(c, c, n, k, p))
        seconds = time_together({"": run}, clock)[""].median
        gflops.append(conv_gflop(c, c, n, k, p, 1) / seconds)
    return np.array(gflops)


def _bench_one(sizes, prepare, data, operations, clock):
    seconds = [
        time_together({"": prepare(n, *data(n))}, clock)[""].median for n in (int(n) for n in sizes)
    ]
    return np.array([operations(int(n)) for n in sizes]) / 1e9 / np.array(seconds)


def _clock(target):
    return "graph" if as_target(target).kind.name == "cuda" else "host"


def np_matmul_timer(n):
    """A timer of NumPy's product of two n by n matrices, for `bench_workload`.

    >>> 2 * 1024**3 / d2ltvm.bench_workload(d2ltvm.np_matmul_timer(1024)) / 1e9   # GFLOPS

    Args:
        n: rows and columns, a positive integer.

    Returns:
        A function of a number of repeats that returns the seconds they took together.
    """
    a, b, c = get_abc((n, n))
    return timeit.Timer(numpy_matmul(n, a, b, c)).timeit
