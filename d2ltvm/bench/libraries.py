"""The libraries that kernels are compared with, imported with care: MXNet, and PyTorch with cuDNN.

MXNet stopped at 1.9.1, in 2022. Three things follow, and all of them are dealt with here:

- It says `np.bool`, which NumPy removed in 1.24. `mxnet()` puts the name back before the import.
- It reads names that NumPy 2 removed, so that under NumPy 2 it cannot be imported at all.
- Its newest wheel for GPUs has machine code for the architectures in `MXNET_ARCHS` and no PTX, so
  that it cannot start a kernel on a GPU whose major version is newer.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from d2ltvm.errors import MissingError
from d2ltvm.system import devices, threads

# Read off mxnet-cu112 1.9.1 with `cuobjdump --list-elf`; `--list-ptx` is empty.
MXNET_ARCHS = ((5, 0), (6, 0), (7, 0), (8, 0), (8, 6))


def mxnet() -> Any:
    """MXNet, imported beside TVM.

    >>> mx = d2ltvm.bench.libraries.mxnet()  # doctest: +SKIP
    >>> mx.nd.ones((2, 2)).shape  # doctest: +SKIP
    (2, 2)

    Raises:
        MissingError: it is not installed, or NumPy is too new for it.
    """
    if int(np.__version__.split(".")[0]) >= 2:
        raise MissingError(
            f"MXNet 1.9.1 cannot be imported under NumPy {np.__version__}",
            "every kernel, with NumPy as the baseline",
            "pip install 'numpy==1.26.4' 'mxnet==1.9.1'",
        )
    vars(np).setdefault("bool", np.bool_)
    threads.use_all_cores()
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


def mxnet_context(ctx: str = "cpu") -> Any:
    """The MXNet context for 'cpu' or 'gpu'.

    Args:
        ctx: 'cpu', or 'gpu', which wants a build of MXNet for GPUs with code for this one.

    Raises:
        ValueError: `ctx` is neither.
        MissingError: MXNet is not there, sees no GPU, or has no code for it.
    """
    if ctx not in ("cpu", "gpu"):
        raise ValueError(f"ctx is {ctx!r}; expected 'cpu' or 'gpu'")
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


def mxnet_gpu_problem(capability: tuple[int, int]) -> str | None:
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
    name = f"compute capability {major}.{minor}"
    return f"MXNet 1.9.1 has no code for {name}, and no PTX to make it from"


def torch_cuda() -> Any:
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


def torch_kernels(run: Callable[[], object]) -> list[str]:
    """The names of the GPU kernels that a function launches through PyTorch, in no order.

    >>> conv = d2ltvm.contenders.torch_conv(1)  # doctest: +SKIP
    >>> run = conv(*d2ltvm.get_conv_data(64, 64, 64, 3, 1))  # doctest: +SKIP
    >>> d2ltvm.bench.libraries.torch_kernels(run)  # doctest: +SKIP
    ['sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize32x32x8_stage3_...']

    Args:
        run: function without arguments.

    Raises:
        MissingError: as for `torch_cuda`.
    """
    torch = torch_cuda()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as seen:
        run()
        torch.cuda.synchronize()
    # The profiler's own entries have no underscore in their names.
    return [str(event.key) for event in seen.key_averages() if "_" in event.key]
