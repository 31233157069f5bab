"""What is timed: the book's schedules, and the same work by NumPy, MXNet and PyTorch.

A contender is a function of a size and arrays that returns a function without arguments, which does
the work once. Kernels are checked before they are handed out.
"""

import functools

import numpy as np

from d2ltvm.bench.libraries import mxnet, mxnet_context, torch_cuda
from d2ltvm.compiler.kernel import build
from d2ltvm.compiler.verify import WrongResultError, check
from d2ltvm.compute import conv_batch
from d2ltvm.compute.convolution import conv_reference


def tvm_add(func, target=None):
    """An addition scheduled by `func`, as a contender for `bench_together`.

    Args:
        func: function of a size that returns a schedule of an addition of two tensors.
        target: as for `d2ltvm.build`.

    Returns:
        A function of a size and three arrays. It builds the kernel, runs it once on poisoned
        output, compares every element with NumPy in float64, and returns the launch.
    """

    def prepare(n, a, b, c):
        kernel = build(func(n), target)
        _verify_add(kernel, a, b, c)
        return kernel.bind(a, b, c)

    return prepare


def tvm_copy(func, target=None):
    """A copy scheduled by `func`, as a contender for `bench_together`.

    Args:
        func: function of a size that returns a schedule of `vector_copy`.
        target: as for `d2ltvm.build`.

    Returns:
        A function of a size and two arrays, which builds the kernel, checks it and returns the
        launch.
    """

    def prepare(n, a, c):
        kernel = build(func(n), target)
        c.fill(np.nan)
        kernel(a, c)
        if not np.array_equal(a, c):
            raise WrongResultError("C is not A")
        return kernel.bind(a, c)

    return prepare


def tvm_matmul(func, target=None):
    """A matrix product scheduled by `func`, as a contender for `bench_together`.

    Args:
        func: function of n, m and l that returns a schedule of `matmul(n, m, l)`.
        target: as for `d2ltvm.build`.

    Returns:
        A function of a size and three square arrays. It builds the kernel, runs it once on poisoned
        output, compares rows and columns all over the result with NumPy in float64, and returns
        the launch.
    """

    def prepare(n, a, b, c):
        kernel = build(func(n, n, n), target)
        _verify_matmul(kernel, a, b, c)
        return kernel.bind(a, b, c)

    return prepare


def tvm_conv(func, p=0, s=1, target=None):
    """A convolution scheduled by `func`, as a contender for `bench_together`.

    Args:
        func: function of oc, ic, n, k, p and s that returns a schedule of a convolution.
        p: zeros on each side of the image.
        s: stride.
        target: as for `d2ltvm.build`.

    Returns:
        A function of a size, which it has no use for, and the arrays of `get_conv_data`. It builds
        the kernel, checks every element, and returns the launch.
    """

    def prepare(n, data, weight, out):
        oc, ic, k, _ = weight.shape
        kernel = build(func(oc, ic, data.shape[1], k, p, s), target)
        _verify_conv(kernel, data, weight, p, s)
        return kernel.bind(data, weight, out)

    return prepare


def _verify_conv(kernel, data, weight, p, s):
    terms = 2 * weight[0].size  # a multiplication and an addition for each
    return check(kernel, (data, weight), lambda x, w: conv_reference(x, w, p, s), terms)


def tvm_conv_batch(func, p=0, s=1, layout="hwcn", target="cuda"):
    """A scheduled convolution of a batch, as a contender for `bench_together`.

    Args:
        func: function of batch, oc, ic, n, k, p and s that returns a schedule.
        p: zeros on each side of the image.
        s: stride.
        layout: 'hwcn' or 'nhwcnc'.
        target: as for `d2ltvm.build`.

    Returns:
        A function of a size, which it has no use for, and arrays in NCHW and OIHW. It builds the
        kernel, checks every fifth image, and returns the launch.
    """

    def prepare(n, images, weights):
        oc, ic, k, _ = weights.shape
        kernel = build(func(len(images), oc, ic, images.shape[2], k, p, s), target)
        change, back = _LAYOUTS[layout]
        inputs = [f(a) for f, a in zip(change, (images, weights), strict=True)]
        out = np.full(kernel.params[2].shape, np.nan, "float32")
        kernel(*inputs, out)
        _verify_batch(back(out)[::5], images[::5], weights, p, s)
        return kernel.bind(*inputs, out)

    return prepare


_LAYOUTS = {
    "hwcn": ((conv_batch.to_hwcn, conv_batch.to_hwcn), conv_batch.from_hwcn),
    "nhwcnc": ((conv_batch.to_nhwcnc, conv_batch.to_hwioio), conv_batch.from_nhwcnc),
}
_exact = {}  # references by what identifies them: each takes seconds


def _verify_batch(got, images, weights, p, s):
    key = (images.shape, weights.shape, images.dtype, p, s, float(images.sum()))
    if key not in _exact:
        exact = [a.astype("float64") for a in (images, weights)]
        _exact.clear()
        _exact[key] = [
            conv_batch.conv_batch_reference(*f(exact), p, s)
            for f in (list, lambda a: map(np.abs, a))
        ]
    want, most = _exact[key]
    terms = 2 * weights[0].size
    if not np.all(np.abs(got - want) <= terms * np.finfo("float32").eps / 2 * most):
        raise WrongResultError(f"Y is not the convolution within {terms} roundings")


def _verify_add(kernel, a, b, c, rows=2**22):
    """Every element against float64, a piece at a time so that large sizes fit into memory."""
    c.fill(np.nan)
    kernel(a, b, c)
    step = max(1, rows // max(1, c[0].size))
    for start in range(0, len(c), step):
        piece = slice(start, start + step)
        want = a[piece].astype("float64") + b[piece].astype("float64")
        if not np.all(np.abs(c[piece] - want) <= np.finfo(c.dtype).eps / 2 * np.abs(want)):
            raise WrongResultError(f"C[{start}:{start + step}] is not A + B, rounded once")


def _verify_matmul(kernel, a, b, c, lines=20, most=2**30):
    """The product against float64: all of it, or, where that takes long, some rows and columns.

    These are a prime number apart, so that every place inside a tile has its turn.
    """
    c.fill(np.nan)
    kernel(a, b, c)
    n, (l, m) = len(a), b.shape
    primes = (401, 199, 97, 47, 23, 11, 5, 3, 2)
    step = 1 if n * m * l <= most else next(p for p in primes if p * lines <= max(n, m) or p == 2)
    for got, x, y in (
        (c[::step], a[::step], b),
        (c[:, ::step], a, b[:, ::step]),
    ):
        want = x.astype("float64") @ y.astype("float64")
        # Higham, Accuracy and Stability of Numerical Algorithms, section 3.1: 2 l roundings.
        bound = 2 * l * np.finfo(c.dtype).eps / 2 * (abs(x) @ abs(y))
        if not np.all(np.abs(got - want) <= bound):
            raise WrongResultError(f"C is not A B within {2 * l} roundings, at n = {n}, m = {m}")


def numpy_add(n, a, b, c):
    """NumPy's `c = a + b`, as a function to be timed. `n` is the size, which it has no use for."""
    return lambda: np.add(a, b, out=c)


def mxnet_add(ctx="cpu"):
    """MXNet's `c = a + b`, broadcast where shapes differ, for `bench_together`."""

    def function(mx, a, b):
        return mx.nd.elemwise_add if a.shape == b.shape else mx.nd.broadcast_add

    return _mxnet_call(function, ctx)


def mxnet_matmul(ctx="cpu"):
    """MXNet's `c = a @ b`, for `bench_together`."""
    return _mxnet_call(lambda mx, a, b: mx.nd.dot, ctx)


def mxnet_conv(p=0, s=1, ctx="cpu"):
    """MXNet's convolution of one image, for `bench_together`; on a CPU that is oneDNN's.

    Args:
        p: zeros on each side of the image.
        s: stride.
        ctx: 'cpu' or 'gpu'.
    """

    def function(mx, data, weight):
        sizes = {"kernel": weight.shape[2:], "num_filter": len(weight)}
        sizes.update(stride=(s, s), pad=(p, p), no_bias=True)
        return functools.partial(mx.nd.Convolution, **sizes)

    prepare = _mxnet_call(function, ctx)
    return lambda n, data, weight, out: prepare(n, data[None], weight, out[None])


def torch_conv(p=0, s=1):
    """PyTorch's convolution of one image on the GPU, for `bench_together`.

    That is cuDNN's, the best of all that its benchmark mode tries, in float32 proper: TF32 is off.
    """
    prepare = torch_conv_batch(p, s)
    return lambda n, data, weight, out: prepare(n, data[None], weight)


def torch_conv_batch(p=0, s=1):
    """The same of a batch of images in NCHW; float16 in cuDNN's own layout, channels last."""

    def prepare(n, images, weights):
        torch = torch_cuda()
        cudnn = torch.backends.cudnn
        cudnn.benchmark, cudnn.benchmark_limit, cudnn.allow_tf32 = True, 0, False
        x, w = (torch.from_numpy(array).cuda() for array in (images, weights))
        if x.dtype == torch.float16:
            x, w = (t.contiguous(memory_format=torch.channels_last) for t in (x, w))
        # The search goes by the clock, and the first kernels of a process are slow to load. So it
        # is rehearsed on images that are one row higher.
        torch.nn.functional.conv2d(torch.nn.functional.pad(x, (0, 0, 0, 1)), w, stride=s, padding=p)

        def run():
            return torch.nn.functional.conv2d(x, w, stride=s, padding=p)

        for _ in range(3):  # the search for the best must not fall into a captured graph
            run()
        return run

    return prepare


def _mxnet_call(function, ctx):
    """A contender that calls what `function(mxnet, a, b)` names."""

    def prepare(n, a, b, c):
        context, mx = mxnet_context(ctx), mxnet()
        call = function(mx, a, b)
        x, y, z = (mx.nd.array(array, ctx=context) for array in (a, b, c))

        def run():
            call(x, y, out=z)
            z.wait_to_read()  # MXNet's calls return before the work is done
            return z

        return run

    return prepare


def numpy_matmul(n, a, b, c):
    """NumPy's `c = a @ b`, as a function to be timed."""
    return lambda: np.dot(a, b, out=c)


def torch_matmul(n, a, b, c):
    """PyTorch's `c = a @ b` on the GPU, which is cuBLAS's, in float32 proper: TF32 is off."""
    torch = torch_cuda()
    torch.backends.cuda.matmul.allow_tf32 = False
    x, y, z = (torch.from_numpy(array).cuda() for array in (a, b, c))
    return lambda: torch.matmul(x, y, out=z)


def torch_add(n, a, b, c):
    """PyTorch's `c = a + b` on the GPU, for `bench_together`."""
    torch = torch_cuda()
    x, y, z = (torch.from_numpy(array).cuda() for array in (a, b, c))
    return lambda: torch.add(x, y, out=z)


def torch_copy(n, a, c):
    """PyTorch's copy of `a` on the GPU, for `bench_together`."""
    torch = torch_cuda()
    x, z = (torch.from_numpy(array).cuda() for array in (a, c))
    return lambda: z.copy_(x)
