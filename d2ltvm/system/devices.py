"""What this machine can run kernels on, and the TVM target for it."""

import functools
import os
import re
from dataclasses import dataclass
from typing import Any

import tvm

from d2ltvm.errors import MissingError, shown
from d2ltvm.system import colab, files, processor, toolchain

TARGETS = "'cuda', 'opencl', 'llvm', an architecture such as 'sm_80', or a tvm Target"


@functools.cache
def driver_version() -> tuple[int, ...] | None:
    """Version of the NVIDIA driver of this machine.

    >>> driver_version()  # doctest: +SKIP
    (580, 159, 4)

    Returns:
        A tuple of int, or None where no NVIDIA driver is loaded.
    """
    return colab.find_gpu()[0]


def driver_problem(version: tuple[int, ...] | None) -> str | None:
    """Why a driver of this version cannot run the CUDA 13 that the TVM wheel links.

    >>> driver_problem((550, 54, 15))
    'the NVIDIA driver is 550.54.15, and CUDA 13 wants 580 or newer'

    Args:
        version: a tuple of int, or None for no driver.

    Returns:
        One line, or None where the driver is new enough.
    """
    if version is None:
        return "no NVIDIA driver"
    if version[0] < colab.MIN_DRIVER:
        shown = colab.dotted(version)
        return f"the NVIDIA driver is {shown}, and CUDA 13 wants {colab.MIN_DRIVER} or newer"
    return None


def has_cuda() -> bool:
    """True where TVM sees an NVIDIA GPU. The environment variable D2LTVM_NO_CUDA=1 hides it."""
    return not colab.hidden() and _tvm_sees_gpu()


@functools.cache
def _tvm_sees_gpu() -> bool:
    toolchain.load_cuda_runtime()
    return bool(tvm.cuda(0).exist)


@dataclass(frozen=True)
class Reported:
    """What a GPU says of itself.

    Attributes:
        name: such as 'NVIDIA H200'.
        capability: its compute capability, as in 'sm_90'.
        sms: streaming multiprocessors.
        l2_mib: L2 cache, MiB.
        ghz: highest clock.
    """

    name: str
    capability: str
    sms: int
    l2_mib: int
    ghz: float


def reported() -> Reported | None:
    """What the GPU of this machine says of itself; None where there is none."""
    if not has_cuda():
        return None
    gpu = tvm.cuda(0)
    return Reported(
        name=gpu.device_name,
        capability="sm_" + gpu.compute_version.replace(".", ""),
        sms=int(gpu.multi_processor_count),
        l2_mib=int(gpu.l2_cache_size_bytes) >> 20,
        ghz=gpu.max_clock_rate / 1e6,  # TVM gives kHz
    )


def shows_records() -> bool:
    """Whether pages show what was measured elsewhere, although there may be a GPU.

    D2LTVM_RECORD=none says so. `pytest --nbval` sets it on other GPUs than an H200.
    """
    return os.environ.get("D2LTVM_RECORD") == "none"


def capability() -> tuple[int, int] | None:
    """Compute capability of the GPU, such as (9, 0); None where there is none."""
    if not has_cuda():
        return None
    major, minor = tvm.cuda(0).compute_version.split(".")
    return int(major), int(minor)


def need_cuda(still: str = "target='opencl', and CUDA source for any 'sm_…'") -> None:
    """Raise a MissingError where there is no NVIDIA GPU; `still` is what works without one."""
    if has_cuda():
        return
    problem, command = "the GPU is hidden by D2LTVM_NO_CUDA", "unset D2LTVM_NO_CUDA"
    if not colab.hidden():
        problem = driver_problem(driver_version()) or "the driver is there, but TVM sees no GPU"
        command = "a machine with an NVIDIA GPU and `sudo apt-get install nvidia-driver-580`"
    raise MissingError(problem, still, command)


def need_ampere(arch: str | None = None) -> None:
    """Raise a MissingError where the GPU, or an architecture, is older than compute capability 8.0.

    Asynchronous copies and `mma.sync` of 16 x 8 x 16 begin there.
    """
    version = capability() if arch is None else None
    found = str(arch) if arch else "sm_{}{}".format(*version) if version else ""
    number = re.match(r"sm_(\d+)", found)
    if number and int(number[1]) < 80:
        raise MissingError(
            f"cp.async and mma.sync of 16 x 8 x 16 need sm_80, and this is {found}",
            "wmma, and d2ltvm.emulate",
            "a machine with an A100, an L4 or a newer GPU",
        )


def has_hopper() -> bool:
    """True where the GPU is an H100 or H200, which have wgmma and TMA."""
    return capability() == (9, 0)


def need_hopper() -> None:
    """Raise a MissingError unless the GPU is an H100 or H200."""
    if not has_hopper():
        raise MissingError(
            "this GPU has no wgmma and no TMA" if has_cuda() else "there is no GPU",
            "the source and machine code of the kernels, for sm_90a",
            "a machine with an H100 or H200",
        )


def opencl_device() -> Any:
    """The OpenCL device that stands in for a GPU: PoCL's, which is the CPU, before any other.

    Returns:
        A `pyopencl.Device`.

    Raises:
        MissingError: pyopencl is not installed, or it finds no device, or this process was forked
            after the device was opened: its threads stayed behind, and kernels would hang.
    """
    device, process = _opened_opencl_device()
    if process != os.getpid():
        raise MissingError(
            "OpenCL was opened by the process that this one was forked from",
            "everything that needs no OpenCL",
            "processes that are spawned: multiprocessing.get_context('spawn')",
        )
    return device


@functools.cache
def _opened_opencl_device() -> tuple[Any, int]:
    """The device, and the process that opened it."""
    files.use_writable_caches()
    try:
        import pyopencl
    except ModuleNotFoundError as error:
        raise _no_opencl(f"{error.name} is not installed") from error
    except Exception as error:  # it compiles and caches while it is imported
        raise _no_opencl(f"pyopencl cannot be imported: {_line(error)}") from error
    try:
        found = [d for p in pyopencl.get_platforms() for d in p.get_devices()]
    except pyopencl.Error as error:  # its way to say that there is no platform
        raise _no_opencl(f"no OpenCL device: {_line(error)}") from error
    if not found:
        raise _no_opencl("no OpenCL device")
    device = max(found, key=is_pocl)
    if is_pocl(device):
        processor.name_for_pocl(device.int_ptr)
    return device, os.getpid()


def is_pocl(device: Any) -> bool:
    """Whether an OpenCL device is PoCL's."""
    return "Portable Computing Language" in device.platform.name


def has_opencl() -> bool:
    """True where kernels can run as OpenCL."""
    try:
        opencl_device()
    except MissingError:
        return False
    return True


def default_target() -> str:
    """Where kernels run when nothing else is said: 'cuda' with a GPU, else 'opencl'."""
    return "cuda" if has_cuda() else "opencl"


def as_target(target: Any = None) -> Any:
    """The TVM target for a short name.

    >>> d2ltvm.system.as_target("sm_80").arch
    'sm_80'

    Args:
        target: 'cuda' (the GPU of this machine), 'opencl' (PoCL on the CPU), 'llvm' (the CPU), an
            architecture such as 'sm_80' (CUDA source for it, with no device), a
            `tvm.target.Target`, or None for `default_target()`.

    Returns:
        A `tvm.target.Target`.

    Raises:
        ValueError: `target` is none of these.
        MissingError: this machine lacks the GPU, or an OpenCL device.
    """
    target = default_target() if target is None else target
    if isinstance(target, tvm.target.Target):
        return target
    if not isinstance(target, str):
        raise ValueError(f"target is {shown(target)}; expected {TARGETS}")
    if target == "cuda":
        need_cuda()
        return tvm.target.Target("cuda", host="llvm")
    if target == "opencl":
        opencl_device()
        # Limits of a GPU rather than OpenCL's smallest ones, so that one schedule serves both.
        limits = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152}
        return tvm.target.Target({"kind": "opencl", "max_num_threads": 1024, **limits}, host="llvm")
    if target == "llvm":
        cpu = tvm.target.codegen.llvm_get_system_cpu()
        return tvm.target.Target({"kind": "llvm", "mcpu": cpu})
    if re.fullmatch(r"sm_\d{2,3}[af]?", target):
        return tvm.target.Target({"kind": "cuda", "arch": target}, host="llvm")
    raise ValueError(f"target is {shown(target)}; expected {TARGETS}")


def to_read(target: Any) -> Any:
    """A target for a kernel whose code is read, or which TVM's host code does not launch.

    >>> int(to_read("sm_80").host.attrs["opt-level"])
    0

    LLVM optimizes that host code otherwise, which takes longer than all else for a short kernel.

    Args:
        target: of a GPU, OpenCL or WebGPU, as `as_target` takes it.

    Returns:
        The `tvm.target.Target` with another host.
    """
    return as_target(target).with_host(tvm.target.Target({"kind": "llvm", "opt-level": 0}))


def describe_device() -> dict[str, str]:
    """Name, driver and CUDA version of the GPU.

    >>> describe_device()  # doctest: +SKIP
    {'name': 'NVIDIA H200', 'driver': '580.159.04', 'cuda': '13.0'}

    Raises:
        MissingError: this machine has no GPU that TVM can use.
    """
    need_cuda()
    version = driver_version()
    driver = colab.dotted(version) if version else "unknown"
    return {"name": tvm.cuda(0).device_name, "driver": driver, "cuda": _cuda_version()}


def describe_processor() -> dict[str, str]:
    """The processor, in the form of `describe_device`."""
    name = processor.cpuinfo("model name") or "unknown processor"
    return {"name": f"{name}, {os.cpu_count()} cores", "driver": "", "cuda": ""}


def _cuda_version() -> str:
    """The CUDA version that the driver supports, such as '13.0'."""
    from cuda.bindings import driver

    error, number = driver.cuDriverGetVersion()
    return f"{number // 1000}.{number % 1000 // 10}" if int(error) == 0 else "unknown"


def _no_opencl(problem: str) -> MissingError:
    return MissingError(
        problem,
        "CUDA source and cubins for any 'sm_…', target='llvm'",
        "pip install pyopencl pocl-binary-distribution",
    )


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
