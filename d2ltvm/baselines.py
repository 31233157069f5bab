"""The libraries that kernels are compared with: MXNet, PyTorch with cuDNN, NumPy.

MXNet stopped at 1.9.1, in 2022. Three things follow, and all of them are dealt with here:

- It says `np.bool`, which NumPy removed in 1.24. `mxnet()` puts the name back before the import.
- It reads names that NumPy 2 removed, so that under NumPy 2 it cannot be imported at all.
- Its newest wheel for GPUs has machine code for the architectures in `MXNET_ARCHS` and no PTX, so
  that it cannot start a kernel on a GPU whose major version is newer.
"""

import functools
import timeit
import warnings

import numpy as np

from d2ltvm import devices
from d2ltvm.data import get_abc
from d2ltvm.errors import MissingError

# Read off mxnet-cu112 1.9.1 with `cuobjdump --list-elf`; `--list-ptx` is empty.
MXNET_ARCHS = ((5, 0), (6, 0), (7, 0), (8, 0), (8, 6))


def mxnet():
    """MXNet, imported beside TVM.

    >>> mx = d2ltvm.mxnet()
    >>> mx.nd.ones((2, 2))

    Raises:
        MissingError: it is not installed, or NumPy is too new for it.
    """
    if int(np.__version__.split(".")[0]) >= 2:
        raise MissingError(
            f"MXNet 1.9.1 cannot be imported under NumPy {np.__version__}",
            "every kernel, with NumPy as the baseline",
            "pip install 'numpy==1.26.4' 'mxnet==1.9.1'",
        )
    if "bool" not in np.__dict__:
        np.bool = np.bool_
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a library that nobody will mend any more
            import mxnet
    except ImportError as error:
        raise MissingError(
            "MXNet is not installed",
            "every kernel, with NumPy as the baseline",
            "pip install 'mxnet==1.9.1'",
        ) from error
    return mxnet


def mxnet_context(ctx="cpu"):
    """The MXNet context for 'cpu' or 'gpu'.

    Args:
        ctx: 'cpu', or 'gpu', which wants a build of MXNet for GPUs with code for this one.

    Raises:
        ValueError: `ctx` is neither.
        MissingError: MXNet is not there, sees no GPU, or has no code for it.
    """
    if ctx not in ("cpu", "gpu"):
        raise ValueError(f"ctx is {ctx!r}; allowed: 'cpu', 'gpu'")
    mx = mxnet()
    if ctx == "cpu":
        return mx.cpu()
    capability = devices.capability()
    if mx.context.num_gpus() == 0 or capability is None:
        raise MissingError(
            "this build of MXNet sees no GPU",
            "ctx='cpu', and PyTorch as the baseline on a GPU",
            "pip install 'mxnet-cu112==1.9.1', with CUDA 11.2, cuDNN 8 and NCCL beside it",
        )
    problem = mxnet_gpu_problem(capability)
    if problem:
        raise MissingError(
            problem,
            "PyTorch as the baseline on this GPU",
            "pip install torch, which has code for it",
        )
    return mx.gpu()


def mxnet_gpu_problem(capability):
    """Why MXNet's GPU wheel cannot run on a GPU of this compute capability.

    >>> mxnet_gpu_problem((9, 0))
    'MXNet 1.9.1 has no code for compute capability 9.0, and no PTX to make it from'

    Machine code runs on its own major version, from its own minor version on (CUDA C++ Programming
    Guide, "Binary Compatibility").

    Args:
        capability: a pair of int.

    Returns:
        One line, or None where it can.
    """
    major, minor = capability
    if any(major == m and minor >= n for m, n in MXNET_ARCHS):
        return None
    capability = f"compute capability {major}.{minor}"
    return f"MXNet 1.9.1 has no code for {capability}, and no PTX to make it from"


def torch_cuda():
    """PyTorch, where it is installed and sees a GPU.

    Raises:
        MissingError: it is not installed, or sees no GPU.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingError(
            "PyTorch is not installed", "every kernel, with no GPU baseline", "pip install torch"
        ) from error
    if not torch.cuda.is_available():
        raise MissingError(
            "PyTorch sees no GPU", "every kernel, on the CPU", "a machine with an NVIDIA GPU"
        )
    return torch


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
