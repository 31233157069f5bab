"""Make the GPU of a Colab runtime usable, or say in one line why it is not.

The TVM wheel links CUDA 13, which wants NVIDIA driver 580 or newer, and Colab's driver has been
older. On data-centre GPUs NVIDIA's forward-compatibility package brings a newer user-mode driver,
`libcuda.so.1`, for the older kernel driver. It has to be in the process before TVM or PyTorch loads
the other one, so this module imports neither, nor anything else outside the standard library.
"""

import contextlib
import ctypes
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# Oldest driver for CUDA 13. Source: CUDA Toolkit 13 release notes, table "CUDA Toolkit and Minimum
# Required Driver Version for CUDA Minor Version Compatibility".
MIN_DRIVER = 580

# Driver branches from which cuda-compat-13-0 leads to CUDA 13. Source: NVIDIA_REQUIRE_CUDA of
# NVIDIA's container images nvidia/cuda:13.0.x, which lists them.
COMPAT_BRANCHES = (535, 550, 565, 570, 575)

# GPUs on which it works. Source: CUDA Compatibility, "Forward Compatibility": "NVIDIA Data Center
# GPUs" and select RTX cards, which are left out here. Those with a compute capability that CUDA 13
# still compiles for.
DATA_CENTRE = (
    *("T4", "A2", "A10", "A10G", "A16", "A30", "A40", "A100", "A800", "L4", "L20", "L40", "L40S"),
    *("H20", "H100", "H200", "H800", "GH200", "B100", "B200", "B300", "GB200", "GB300"),
)

# Oldest compute capability. Source: CUDA Toolkit 13.0 release notes: "Offline compilation and
# library support for" Maxwell, Pascal and Volta "have been removed".
MIN_CAPABILITY = (7, 5)

PACKAGE = "cuda-compat-13-0"
COMPAT_LIBRARY = "/usr/local/cuda-13.0/compat/libcuda.so.1"  # where that package puts it

APT_SECONDS = 40  # for each of three commands; the whole set-up cell has two minutes

WITHOUT = "kernels run as OpenCL on the CPU, and GPU figures come from the records"


Version = tuple[int, ...]


@dataclass(frozen=True)
class Preparation:
    """What `prepare` will do.

    Attributes:
        action: 'nothing', 'compat' (load the forward-compatibility driver) or 'cpu'.
        message: one line for the reader; empty where there is nothing to say.
    """

    action: str
    message: str = ""


def plan(
    driver: Version | None,
    gpu: str = "",
    capability: tuple[int, int] | None = None,
    loaded: str | None = None,
) -> Preparation:
    """Decide what a machine needs before the book can use its GPU.

    >>> plan((580, 82, 7), "Tesla T4").action
    'nothing'
    >>> plan((550, 54, 15), "Tesla T4").action
    'compat'
    >>> plan((550, 54, 15), "NVIDIA GeForce RTX 4090").message.split(", ")[:2]
    ['The GPU cannot be used: driver 550.54.15', 'CUDA 13 wants 580 or newer']

    Args:
        driver: version of the kernel driver, a tuple of int, or None where there is none.
        gpu: name of the GPU, as nvidia-smi gives it.
        capability: its compute capability, a pair of int, or None where it is not known.
        loaded: path of the `libcuda.so` that is in this process already, or None.

    Returns:
        A `Preparation`. It does nothing and asks nothing of the machine.
    """
    if driver is None:
        return Preparation(
            "cpu", f"No GPU here: {WITHOUT}. In Colab: Runtime > Change runtime type."
        )
    if capability is not None and tuple(capability) < MIN_CAPABILITY:
        have, want = (".".join(map(str, pair)) for pair in (capability, MIN_CAPABILITY))
        return _cpu(f"{gpu} has compute capability {have}, and CUDA 13 wants {want} or newer")
    if driver[0] >= MIN_DRIVER or (loaded and "/compat/" in loaded):
        return Preparation("nothing")
    old = f"driver {dotted(driver)}, CUDA 13 wants {MIN_DRIVER} or newer"
    if not set(DATA_CENTRE) & set(re.split(r"[^A-Za-z0-9]+", gpu)):
        return _cpu(f"{old}, and forward compatibility is for data-centre GPUs, not {gpu!r}")
    if driver[0] not in COMPAT_BRANCHES:
        branches = ", ".join(map(str, COMPAT_BRANCHES))
        return _cpu(f"{old}, and forward compatibility starts from one of {branches}")
    if loaded:
        return _cpu(f"{old}, and {loaded} is loaded; restart the runtime and run this cell first")
    return Preparation("compat")


def dotted(driver: Version) -> str:
    """A driver's version as NVIDIA writes it.

    >>> dotted((580, 159, 4))
    '580.159.04'
    """
    major, *minor = driver
    return ".".join([str(major), *(f"{part:02}" for part in minor)])


def hidden() -> bool:
    """Whether the environment variable D2LTVM_NO_CUDA hides the GPU, as any value but 0 does."""
    return os.environ.get("D2LTVM_NO_CUDA", "0") not in ("", "0")


def find_gpu() -> tuple[Version | None, str, tuple[int, int] | None]:
    """What nvidia-smi, or else the kernel module, says of the first GPU.

    >>> find_gpu()  # doctest: +SKIP
    ((550, 54, 15), 'Tesla T4', (7, 5))

    Returns:
        Version of the driver, name and compute capability; (None, '', None) where there is none.
    """
    fields = "--query-gpu=driver_version,name,compute_cap"
    row = _output("nvidia-smi", fields, "--format=csv,noheader").splitlines()
    version, name, capability = [*row[0].split(", "), "", ""][:3] if row else ("", "", "")
    if row and not re.match(r"\d+\.\d+", version):
        row = []  # nvidia-smi says why it cannot reach a driver on its standard output
    if not row:  # not there, or broken: the kernel module knows the version, but not the GPU
        found = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", _read("/proc/driver/nvidia/version"))
        version, name, capability = found.group() if found else "", "an unknown GPU", ""
    if not version:
        return None, "", None
    numbers = re.fullmatch(r"(\d+)\.(\d+)", capability)
    return (
        tuple(int(part) for part in version.split(".")),
        name,
        (int(numbers[1]), int(numbers[2])) if numbers else None,
    )


def prepare() -> Preparation:
    """Make this process ready for the GPU, before TVM or PyTorch is imported in it.

    >>> from d2ltvm.system import colab
    >>> plan = colab.prepare()  # doctest: +SKIP

    With no GPU, or a new enough driver, it changes nothing. With an older driver on a data-centre
    GPU it installs NVIDIA's package `cuda-compat-13-0` by apt, tries its driver in another process,
    and loads it into this one; child processes get it through LD_LIBRARY_PATH. Where the GPU cannot
    be used it prints one line with the reason and sets D2LTVM_NO_CUDA=1, which makes d2ltvm go on
    without. The same where anything fails: it never raises. A reader who has set D2LTVM_NO_CUDA
    is left in peace.

    Returns:
        The `Preparation` that was carried out.
    """
    if hidden():
        return Preparation("cpu")
    there = True
    try:
        driver, gpu, capability = find_gpu()
        there = driver is not None
        done = plan(driver, gpu, capability, _loaded_libcuda())
        if done.action == "compat":
            done = _use_compat()
    except Exception as error:  # a notebook goes on without the GPU, whatever it was
        done = _cpu(f"{type(error).__name__}: {error}")
    if done.action == "cpu" and there:
        os.environ["D2LTVM_NO_CUDA"] = "1"
    if done.message:
        print(" ".join(done.message.split()))
    return done


def _cpu(reason: str) -> Preparation:
    return Preparation("cpu", f"The GPU cannot be used: {reason}. Instead {WITHOUT}.")


def _use_compat() -> Preparation:
    """Install, try and load the forward-compatibility driver; what came of it."""
    if not Path(COMPAT_LIBRARY).exists() and (problem := _install()):
        return _cpu(problem)
    if problem := _try(COMPAT_LIBRARY):
        return _cpu(problem)
    folder = Path(COMPAT_LIBRARY).parent
    # libcuda looks for these by name when it compiles PTX; the old driver's would be found first.
    for helper in ("libnvidia-nvvm.so.4", "libnvidia-ptxjitcompiler.so.1"):
        with contextlib.suppress(OSError):
            _load(str(folder / helper))
    _load(COMPAT_LIBRARY)
    paths = [str(folder), *filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))]
    os.environ["LD_LIBRARY_PATH"] = ":".join(paths)
    return Preparation("compat")


def _install() -> str | None:
    """Install the package; the reason in words where that fails."""
    install = ("apt-get", "install", "-y", "-qq", "--no-install-recommends", PACKAGE)
    # The first try spares the update, which takes most of the time, where the lists are there.
    for command in (install, ("apt-get", "update", "-qq"), install):
        failure = _apt(command)
        if Path(COMPAT_LIBRARY).exists():
            return None
    reason = f": {failure}" if failure else f", which has no {COMPAT_LIBRARY}"
    return f"apt-get did not install {PACKAGE}{reason}"


def _apt(command: tuple[str, ...]) -> str | None:
    """Run apt-get; the last line of its complaint, or None when it succeeds."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=APT_SECONDS,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E:")] or lines or ["no reason given"]
    return errors[-1] if done.returncode else None


# Run in a process of its own: a driver that does not fit must not stay loaded in this one.
_TRIAL = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
version = ctypes.c_int()
print(cuda.cuInit(0), cuda.cuDriverGetVersion(ctypes.byref(version)), version.value)
"""

# Source: enum CUresult of the CUDA driver API.
_ERRORS = {
    100: "it sees no GPU",
    803: "it does not fit this driver",
    804: "it does not support this GPU",
}


def _try(library: str) -> str | None:
    """Start the driver in another process; the reason in words where it does not."""
    answer = _output(sys.executable, "-c", _TRIAL, library)
    numbers = [int(n) for n in answer.split()] if re.fullmatch(r"[\d\s]+", answer) else []
    if len(numbers) != 3:
        return f"{library} does not load"
    error, _, version = numbers
    if error:
        return f"{library} does not start: {_ERRORS.get(error, 'it fails')} (CUDA error {error})"
    return None if version >= 13000 else f"{library} brings CUDA {version // 1000} only"


def _load(path: str) -> ctypes.CDLL:
    """Load a library so that whoever asks for its name later gets this one."""
    return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


def _loaded_libcuda() -> str | None:
    """Path of the `libcuda.so` in this process, or None."""
    found = re.search(r"(/\S*/libcuda\.so\S*)", _read("/proc/self/maps"))
    return found.group(1) if found else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
