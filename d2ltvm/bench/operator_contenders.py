"""Depthwise convolution, pooling and batch norm of one image: the book's schedules, and MXNet's.

As in `contenders`, each function returns one that makes a run of arrays. The arrays are those of
`get_conv_data` (which pooling takes without the weights) and of `get_bn_data`.
"""

import functools
from typing import Any

import numpy as np

from d2ltvm.bench.contenders import Array, Contender, Run, Schedule
from d2ltvm.bench.libraries import mxnet, mxnet_context
from d2ltvm.compiler.kernel import build
from d2ltvm.compiler.verify import check, compare
from d2ltvm.compute.operators import depthwise_reference, pool_reference


def tvm_depthwise(func: Schedule, p: int = 0, s: int = 1, target: Any = None) -> Contender:
    """A depthwise convolution scheduled by `func`.

    >>> run = tvm_depthwise(d2ltvm.schedules.cpu_depthwise, 1, target="llvm")(
    ...     *d2ltvm.get_conv_data(4, 4, 8, 3, 1, conv_type="depthwise"))
    >>> run()

    Args:
        func: function of c, n, k, p and s that returns a schedule of `depthwise_conv`.
        p: padding on each side.
        s: stride.
        target: as for `d2ltvm.build`.

    Returns:
        A contender for `data`, `weight` and `out`, which builds the kernel, checks it and returns
        the launch.
    """

    def contender(data: Array, weight: Array, out: Array) -> Run:
        (c, n, _), k = data.shape, weight.shape[-1]
        kernel = build(func(c, n, k, p, s), target)
        reference = functools.partial(depthwise_reference, p=p, s=s)
        check(kernel, (data, weight), lambda x, w: reference(x, w), terms=2 * k * k)
        return kernel.bind(data, weight, out)

    return contender


def tvm_pool(
    func: Schedule, pool_type: str, k: int, p: int = 1, s: int = 1, target: Any = None
) -> Contender:
    """A pooling scheduled by `func`.

    >>> size = lambda c, n, k, p, s: d2ltvm.schedules.cpu_pool(c, n, k, p, s)
    >>> run = tvm_pool(size, "max", 3, target="llvm")(*d2ltvm.get_abc((4, 8, 8))[::2])
    >>> run()

    Args:
        func: function of c, n, k, p and s that returns a schedule of `pool`.
        pool_type: 'max' or 'avg', as the schedule has it.
        k: height and width of the window.
        p: border on each side.
        s: stride.
        target: as for `d2ltvm.build`.

    Returns:
        A contender for `data` and `out`, which builds the kernel, checks it and returns the launch.
    """

    def contender(data: Array, out: Array) -> Run:
        c, n, _ = data.shape
        kernel = build(func(c, n, k, p, s), target)
        check(kernel, (data,), lambda x: pool_reference(pool_type, x, k, p, s), terms=k * k + 1)
        return kernel.bind(data, out)

    return contender


def tvm_bn(func: Schedule, target: Any = None) -> Contender:
    """A batch norm scheduled by `func`.

    >>> run = tvm_bn(d2ltvm.schedules.cpu_batch_norm, "llvm")(*d2ltvm.get_bn_data(4, 8))
    >>> run()

    Args:
        func: function of c and n that returns a schedule of `batch_norm`.
        target: as for `d2ltvm.build`.

    Returns:
        A contender for the arrays of `get_bn_data`, which builds the kernel, checks it and returns
        the launch.
    """

    def contender(*arrays: Array) -> Run:
        *inputs, out = arrays
        data, mean, var, gamma, beta = inputs
        kernel = build(func(*out.shape[:2]), target)
        out.fill(np.nan)
        kernel(*inputs, out)
        compare("Y", out, *exact_bn(data, mean, var, gamma, beta), terms=6)
        return kernel.bind(*arrays)

    return contender


def exact_bn(
    data: Array, mean: Array, var: Array, gamma: Array, beta: Array, eps: float = 1e-5
) -> tuple[Array, Array]:
    """A batch norm in float64, and the sums of the magnitudes that go into it."""
    x, mean, var, gamma, beta = (a.astype("float64") for a in (data, mean, var, gamma, beta))
    scale = gamma / np.sqrt(var + np.float64(np.float32(eps)))
    want: Array = (x - mean) * scale + beta
    most: Array = (abs(x) + abs(mean)) * abs(scale) + abs(beta)
    return want, most


def mxnet_depthwise(p: int = 0, s: int = 1, ctx: str = "cpu") -> Contender:
    """MXNet's depthwise convolution, a convolution with as many groups as channels."""

    def contender(data: Array, weight: Array, out: Array) -> Run:
        mx, (x, w, y) = _on(ctx, data[None], weight, out[None])
        c, k = weight.shape[0], weight.shape[-1]
        pair = {"kernel": (k, k), "stride": (s, s), "pad": (p, p)}
        call = functools.partial(
            mx.nd.Convolution, x, w, num_filter=c, num_group=c, no_bias=True, out=y, **pair
        )
        return _waiting(call, y)

    return contender


def mxnet_pool(pool_type: str, k: int, p: int = 1, s: int = 1, ctx: str = "cpu") -> Contender:
    """MXNet's pooling, 'max' or 'avg'."""

    def contender(data: Array, out: Array) -> Run:
        mx, (x, y) = _on(ctx, data[None], out[None])
        pair = {"kernel": (k, k), "stride": (s, s), "pad": (p, p)}
        return _waiting(functools.partial(mx.nd.Pooling, x, pool_type=pool_type, out=y, **pair), y)

    return contender


def mxnet_bn(ctx: str = "cpu", eps: float = 1e-5) -> Contender:
    """MXNet's batch norm with the means and variances that it is given, as inference has it."""

    def contender(data: Array, *vectors: Array) -> Run:
        *four, out = vectors
        mx, (x, mean, var, gamma, beta, y) = _on(ctx, data[None], *map(np.ravel, four), out[None])
        options = {"eps": eps, "use_global_stats": True, "fix_gamma": False}
        call = functools.partial(mx.nd.BatchNorm, x, gamma, beta, mean, var, out=y, **options)
        return _waiting(call, y)

    return contender


def _on(ctx: str, *arrays: Array) -> tuple[Any, list[Any]]:
    """MXNet, and copies of arrays where it computes."""
    context, mx = mxnet_context(ctx), mxnet()
    return mx, [mx.nd.array(array, ctx=context) for array in arrays]


def _waiting(call: Any, out: Any) -> Run:
    """A run that ends when its result is there."""

    def run() -> None:
        call()
        out.wait_to_read()

    return run
