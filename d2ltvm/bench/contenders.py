"""What is timed: the book's schedules, and the same work by NumPy, MXNet and PyTorch.

A contender is a function of arrays that returns a function without arguments, which does the work
once, on these arrays. Every function of this module is called with options and returns a contender.
Kernels are checked before they are handed out.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from d2ltvm.bench.libraries import mxnet, mxnet_context, torch_cuda
from d2ltvm.bench.timing import Run as Run
from d2ltvm.compiler.kernel import build
from d2ltvm.compiler.verify import WrongResultError, check, compare
from d2ltvm.compute import conv_batch
from d2ltvm.compute.convolution import conv_reference

Array = npt.NDArray[Any]
Contender = Callable[..., Run]  # makes a run of arrays
Schedule = Callable[..., Any]  # a schedule of sizes
Reference = Callable[..., Any]  # a result of arrays


def tvm_add(func: Schedule, target: Any = None) -> Contender:
    """An addition scheduled by `func`.

    >>> run = tvm_add(d2ltvm.schedules.cpu_vector_add, "llvm")(*d2ltvm.get_abc(1000))
    >>> run()

    Args:
        func: function of a size, the length of the result, that returns a schedule of an addition
            of two tensors.
        target: as for `d2ltvm.build`.

    Returns:
        A contender for arrays A, B and C. It builds the kernel, runs it once on poisoned output,
        compares every element with NumPy in float64, and returns the launch.
    """

    def contender(a: Array, b: Array, c: Array) -> Run:
        kernel = build(func(len(c)), target)
        _verify_add(kernel, a, b, c)
        return kernel.bind(a, b, c)

    return contender


def tvm_checked(sch: Any, reference: Reference, terms: int = 1, target: Any = None) -> Contender:
    """A schedule in hand of whatever one NumPy function computes.

    >>> run = tvm_checked(d2ltvm.schedules.cpu_vector_add(1000), np.add, 1, "llvm")(
    ...     *d2ltvm.get_abc(1000))
    >>> run()

    Args:
        sch: a schedule, as for `d2ltvm.build`, that writes its last tensor.
        reference: the same in NumPy: a function of all other arrays.
        terms: roundings, as for `d2ltvm.check`.
        target: as for `d2ltvm.build`.

    Returns:
        A contender for the schedule's arrays, which builds the kernel, checks it and returns the
        launch.
    """

    def contender(*arrays: Array) -> Run:
        kernel = build(sch, target)
        check(kernel, arrays[:-1], reference, terms)
        return kernel.bind(*arrays)

    return contender


def tvm_copy(func: Schedule, target: Any = None) -> Contender:
    """A copy scheduled by `func`.

    Args:
        func: function of a size that returns a schedule of `vector_copy`.
        target: as for `d2ltvm.build`.

    Returns:
        A contender for arrays A and C, which builds the kernel, checks it and returns the launch.
    """

    return tvm_move(lambda a, _: func(len(a)), lambda a, _: a, target)


def tvm_move(
    func: Callable[[Array, Array], Any],
    moved: Callable[[Array, Array], Array],
    target: Any = "cuda",
) -> Contender:
    """A kernel that puts numbers elsewhere and computes nothing.

    >>> turn = tvm_move(lambda a, c: d2ltvm.schedules.transpose(len(a)), lambda a, c: a.T)

    Args:
        func: function of arrays A and C that returns a schedule.
        moved: function of the same that returns what C is to hold.
        target: as for `d2ltvm.build`.

    Returns:
        A contender for arrays A and C, which builds the kernel, checks it and returns the launch.
    """

    def contender(a: Array, c: Array) -> Run:
        kernel = build(func(a, c), target)
        c.fill(np.nan)
        kernel(a, c)
        if not np.array_equal(c, moved(a, c)):
            raise WrongResultError("C is not what was to be moved")
        return kernel.bind(a, c)

    return contender


def tvm_matmul(func: Schedule, target: Any = None) -> Contender:
    """A matrix product scheduled by `func`.

    Args:
        func: function of n, m and l that returns a schedule of `matmul(n, m, l)`.
        target: as for `d2ltvm.build`.

    Returns:
        A contender for arrays A, B and C. It builds the kernel, runs it once on poisoned output,
        compares rows and columns all over the result with NumPy in float64, and returns the launch.
    """

    def contender(a: Array, b: Array, c: Array) -> Run:
        n, m = c.shape
        kernel = build(func(n, m, a.shape[1]), target)
        verify_matmul(kernel, a, b, c)
        return kernel.bind(a, b, c)

    return contender


def tvm_conv(func: Schedule, p: int = 0, s: int = 1, target: Any = None) -> Contender:
    """A convolution scheduled by `func`.

    Args:
        func: function of oc, ic, n, k, p and s that returns a schedule of a convolution.
        p: zeros on each side of the image.
        s: stride.
        target: as for `d2ltvm.build`.

    Returns:
        A contender for the arrays of `get_conv_data`. It builds the kernel, checks every element,
        and returns the launch.
    """

    def contender(data: Array, weight: Array, out: Array) -> Run:
        oc, ic, k, _ = weight.shape
        kernel = build(func(oc, ic, data.shape[1], k, p, s), target)
        verify_conv(kernel, data, weight, p, s)
        return kernel.bind(data, weight, out)

    return contender


def tvm_conv_batch(
    func: Schedule, p: int = 0, s: int = 1, layout: str = "hwcn", target: Any = "cuda"
) -> Contender:
    """A scheduled convolution of a batch.

    Args:
        func: function of batch, oc, ic, n, k, p and s that returns a schedule.
        p: zeros on each side of the image.
        s: stride.
        layout: 'hwcn' or 'nhwcnc'.
        target: as for `d2ltvm.build`.

    Returns:
        A contender for images in NCHW and weights in OIHW. It builds the kernel, checks every fifth
        image, and returns the launch.
    """
    change, back = _LAYOUTS[layout]

    def contender(images: Array, weights: Array) -> Run:
        oc, ic, k, _ = weights.shape
        kernel = build(func(len(images), oc, ic, images.shape[2], k, p, s), target)
        inputs = [f(a) for f, a in zip(change, (images, weights), strict=True)]
        out = np.full(kernel.params[2].shape, np.nan, "float32")
        kernel(*inputs, out)
        _verify_batch(back(out)[::5], images[::5], weights, p, s)
        return kernel.bind(*inputs, out)

    return contender


_LAYOUTS: dict[str, Any] = {
    "hwcn": ((conv_batch.to_hwcn, conv_batch.to_hwcn), conv_batch.from_hwcn),
    "nhwcnc": ((conv_batch.to_nhwcnc, conv_batch.to_hwioio), conv_batch.from_nhwcnc),
}


def verify_conv(kernel: Any, data: Array, weight: Array, p: int, s: int) -> float:
    """Hold every element of a convolution against NumPy; its relative error."""
    terms = 2 * weight[0].size  # a multiplication and an addition for each
    return check(kernel, (data, weight), lambda x, w: conv_reference(x, w, p, s), terms)


def exact_conv(images: Array, weights: Array, p: int, s: int) -> tuple[Array, Array]:
    """A convolution of a batch in float64, and the sum of magnitudes behind each element."""
    x, w = images.astype("float64"), weights.astype("float64")
    want: Array = conv_batch.conv_batch_reference(x, w, p, s)
    most: Array = conv_batch.conv_batch_reference(np.abs(x), np.abs(w), p, s)
    return want, most


_exact: dict[tuple[object, ...], tuple[Array, Array]] = {}  # the last one: it takes seconds


def _verify_batch(got: Array, images: Array, weights: Array, p: int, s: int) -> None:
    key = (images.shape, weights.shape, images.dtype, p, s, float(images.sum()))
    if key not in _exact:
        _exact.clear()
        _exact[key] = exact_conv(images, weights, p, s)
    compare("Y", got, *_exact[key], terms=2 * weights[0].size)


def _verify_add(kernel: Any, a: Array, b: Array, c: Array, rows: int = 2**16) -> None:
    """Every element against float64, a piece at a time: four times as fast, from the cache.

    Where all are the exact sums, rounded, there is nothing to say, and no bounds to work out.
    """
    c.fill(np.nan)
    kernel(a, b, c)
    step = max(1, rows // max(1, c[0].size))
    for start in range(0, len(c), step):
        piece = slice(start, start + step)
        want = a[piece].astype("float64") + b[piece].astype("float64")
        with np.errstate(over="ignore"):
            rounded = want.astype(c.dtype)
        if not np.array_equal(c[piece], rounded):
            compare(f"C[{start}:{start + step}]", c[piece], want)


def verify_matmul(
    kernel: Any, a: Array, b: Array, c: Array, lines: int = 20, most: int = 2**30
) -> None:
    """The product against float64: all of it, or, where that takes long, some rows and columns.

    These are a prime number apart, so that every place inside a tile has its turn.

    Args:
        kernel: function of A, B and C that writes A B into C.
        a, b, c: arrays of two dimensions.
        lines: how many rows or columns to look at, at least, of a large product.
        most: how many multiplications make a product large.
    """
    c.fill(np.nan)
    kernel(a, b, c)
    n, (l, m) = len(a), b.shape
    primes = (401, 199, 97, 47, 23, 11, 5, 3, 2)
    step = 1 if n * m * l <= most else next(p for p in primes if p * lines <= max(n, m) or p == 2)
    every, some = slice(None), slice(None, None, step)
    for rows, columns in ((some, every), (every, some)):
        x, y = a[rows].astype("float64"), b[:, columns].astype("float64")
        # Higham, Accuracy and Stability of Numerical Algorithms, section 3.1: 2 l roundings.
        name = f"C of {n} x {m}, every {step}th line"
        compare(name, c[rows, columns], x @ y, np.abs(x) @ np.abs(y), terms=2 * l)


def numpy_add() -> Contender:
    """NumPy's `c = a + b`."""
    return lambda a, b, c: lambda: np.add(a, b, out=c)


def numpy_matmul() -> Contender:
    """NumPy's `c = a @ b`."""
    return lambda a, b, c: lambda: np.dot(a, b, out=c)


def mxnet_add(ctx: str = "cpu") -> Contender:
    """MXNet's `c = a + b`, broadcast where shapes differ; `ctx` is 'cpu' or 'gpu'."""

    def function(mx: Any, a: Array, b: Array) -> Any:
        return mx.nd.elemwise_add if a.shape == b.shape else mx.nd.broadcast_add

    return _mxnet_call(function, ctx)


def mxnet_matmul(ctx: str = "cpu") -> Contender:
    """MXNet's `c = a @ b`; `ctx` is 'cpu' or 'gpu'."""
    return _mxnet_call(lambda mx, a, b: mx.nd.dot, ctx)


def mxnet_conv(p: int = 0, s: int = 1, ctx: str = "cpu") -> Contender:
    """MXNet's convolution of one image; on a CPU that is oneDNN's.

    Args:
        p: zeros on each side of the image.
        s: stride.
        ctx: 'cpu' or 'gpu'.
    """

    def function(mx: Any, data: Array, weight: Array) -> Any:
        sizes = {"kernel": weight.shape[2:], "num_filter": len(weight)}
        return functools.partial(
            mx.nd.Convolution, **sizes, stride=(s, s), pad=(p, p), no_bias=True
        )

    batch = _mxnet_call(function, ctx)
    return lambda data, weight, out: batch(data[None], weight, out[None])


def _mxnet_call(function: Callable[[Any, Array, Array], Any], ctx: str) -> Contender:
    """A contender that calls what `function(mxnet, a, b)` names."""

    def contender(a: Array, b: Array, c: Array) -> Run:
        context, mx = mxnet_context(ctx), mxnet()
        call = function(mx, a, b)
        x, y, z = (mx.nd.array(array, ctx=context) for array in (a, b, c))

        def run() -> object:
            call(x, y, out=z)
            z.wait_to_read()  # MXNet's calls return before the work is done
            return z

        return run

    return contender


def torch_add() -> Contender:
    """PyTorch's `c = a + b` on the GPU."""

    def contender(a: Array, b: Array, c: Array) -> Run:
        torch = torch_cuda()
        x, y, z = _to_gpu(a, b, c)
        return lambda: torch.add(x, y, out=z)

    return contender


def torch_copy() -> Contender:
    """PyTorch's copy of A to C on the GPU."""

    def contender(a: Array, c: Array) -> Run:
        x, z = _to_gpu(a, c)
        return lambda: z.copy_(x)

    return contender


def torch_transpose() -> Contender:
    """PyTorch's copy of A, transposed, to C on the GPU."""

    def contender(a: Array, c: Array) -> Run:
        x, z = _to_gpu(a, c)
        return lambda: z.copy_(x.T)

    return contender


def torch_matmul(tf32: bool = False) -> Contender:
    """PyTorch's `c = a @ b` on the GPU, which is cuBLAS's, in float32 proper.

    Args:
        tf32: whether TensorCores may multiply instead, which keep 10 bits behind the point of each
            input: PyTorch's `torch.backends.cuda.matmul.allow_tf32`.
    """

    def contender(a: Array, b: Array, c: Array) -> Run:
        torch = torch_cuda()
        x, y, z = _to_gpu(a, b, c)

        def run() -> object:
            # at each call, since contenders that differ in it take turns
            torch.backends.cuda.matmul.allow_tf32 = tf32
            return torch.matmul(x, y, out=z)

        return run

    return contender


def torch_conv(
    p: int = 0, s: int = 1, channels_last: bool | None = None, tf32: bool = False
) -> Contender:
    """PyTorch's convolution of one image on the GPU.

    That is cuDNN's, the best of all that its benchmark mode tries. By default it is in float32
    proper: TF32 is off.

    Args:
        p: zeros on each side of the image.
        s: stride.
        channels_last: whether image and kernels lie with their channels side by side, NHWC, as
            cuDNN prefers them on TensorCores; by default float16 does.
        tf32: whether products may be rounded to TF32, so that TensorCores do them.
    """
    batch = torch_conv_batch(p, s, channels_last, tf32)
    return lambda data, weight, out: batch(data[None], weight)


def torch_conv_batch(
    p: int = 0, s: int = 1, channels_last: bool | None = None, tf32: bool = False
) -> Contender:
    """The same of a batch of images in NCHW."""

    def contender(images: Array, weights: Array) -> Run:
        torch = torch_cuda()
        cudnn = torch.backends.cudnn
        cudnn.benchmark, cudnn.benchmark_limit = True, 0
        x, w = _to_gpu(images, weights)
        if x.dtype == torch.float16 if channels_last is None else channels_last:
            x, w = (t.contiguous(memory_format=torch.channels_last) for t in (x, w))

        def convolve(x: Any) -> object:
            cudnn.allow_tf32 = tf32  # here, since it is for all of PyTorch, others of a race too
            return torch.nn.functional.conv2d(x, w, stride=s, padding=p)

        # The search goes by the clock, and the first kernels of a process are slow to load. So it
        # is rehearsed on images that are one row higher.
        convolve(torch.nn.functional.pad(x, (0, 0, 0, 1)))

        def run() -> object:
            return convolve(x)

        for _ in range(3):  # the search for the best must not fall into a captured graph
            run()
        return run

    return contender


def _to_gpu(*arrays: Array) -> list[Any]:
    """Arrays as PyTorch's, on the GPU."""
    return [torch_cuda().from_numpy(array).cuda() for array in arrays]
