"""Where NVIDIA's compiler, headers and disassemblers are: in pip packages, or else in a toolkit.

The packages install into `site-packages/nvidia/cu13`, laid out like a CUDA toolkit. They come
first: a toolkit that happens to be on the machine must not change what a reader sees. This module
imports nothing but the standard library. `cuda.pathfinder` would also find single files, but of any
CUDA version, not on PATH, and not where cuda-bindings is missing; the roots would be needed still.
"""

import ctypes
import importlib.util
import os
import shutil
import sys
from pathlib import Path

from d2ltvm.errors import MissingError

# The CUDA major version that the TVM wheel links, and so the one whose packages are looked for.
CUDA_MAJOR = 13

# The pip package that brings each file, as a path under the root of a toolkit.
PACKAGES = {
    "include/cuda_runtime.h": "nvidia-cuda-runtime",
    "include/crt/mma.h": "nvidia-cuda-crt",
    "include/cccl/cuda/std/cstdint": "nvidia-cuda-cccl",
    "bin/nvdisasm": "nvidia-cuda-nvdisasm",
    "bin/cuobjdump": "nvidia-cuda-cuobjdump",
}

# The environment of a process whose copies use a GPU. Beside PyTorch, `import tvm` asks PyTorch for
# a GPU, which starts CUDA; a copy made afterwards could not start it any more. With this variable
# PyTorch asks the driver's other library, which starts nothing.
FORKS = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}

# One command for all that a cubin takes; pip passes over what is there already.
INSTALL_COMPILER = (
    "pip install cuda-bindings nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl "
    "nvidia-cuda-crt"
)
INSTALL_TOOLS = "pip install nvidia-cuda-nvdisasm nvidia-cuda-cuobjdump"


def pip_roots() -> list[Path]:
    """Directories that hold the files of NVIDIA's pip packages: `[…/nvidia/cu13]`, or none."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        spec = None
    places = (spec.submodule_search_locations or []) if spec else []
    roots = (Path(place) / f"cu{CUDA_MAJOR}" for place in places)
    return [root for root in roots if root.is_dir()]


def toolkit_roots() -> list[Path]:
    """Directories of CUDA toolkits: CUDA_HOME, CUDA_PATH, that of `nvcc`, /usr/local/cuda."""
    nvcc = shutil.which("nvcc")
    places: list[str | Path | None]
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    places += [Path(nvcc).resolve().parent.parent if nvcc else None, "/usr/local/cuda"]
    return [Path(place) for place in places if place and Path(place).is_dir()]


def headers() -> tuple[Path, list[Path]]:
    """The root to compile against, and what to pass to the compiler as include directories.

    >>> root, include = headers()
    >>> [str(path.relative_to(root)) for path in include]
    ['include', 'include/cccl']

    Returns:
        A Path and a list of Path.

    Raises:
        MissingError: neither the pip packages nor a toolkit has the headers.
    """
    wanted = [path for path in PACKAGES if path.startswith("include/")]
    for root in pip_roots() + toolkit_roots():
        if all((root / path).is_file() for path in wanted):
            return root, [root / "include", root / "include" / "cccl"]
    roots = pip_roots()
    absent = [p for path, p in PACKAGES.items() if path in wanted and not _in(roots, path)]
    raise MissingError(
        f"CUDA headers are not installed ({', '.join(absent)})",
        "CUDA source for any architecture, and kernels on OpenCL and the CPU",
        INSTALL_COMPILER,
    )


def tool(name: str) -> Path:
    """Path of one of NVIDIA's binary tools.

    >>> tool("nvdisasm").name
    'nvdisasm'

    Args:
        name: 'nvdisasm' or 'cuobjdump'.

    Returns:
        A Path.

    Raises:
        MissingError: neither its pip package nor a toolkit has it.
    """
    path = Path("bin") / name
    for root in pip_roots() + toolkit_roots():
        if os.access(root / path, os.X_OK):
            return root / path
    if on_path := shutil.which(name):
        return Path(on_path)
    raise MissingError(
        f"{name} is not installed",
        "CUDA source and cubins; only looking into a cubin needs it",
        INSTALL_TOOLS,
    )


def load_cuda_runtime() -> bool:
    """Let TVM find the CUDA runtime library in its pip package.

    TVM's CUDA part links `libcudart.so.13` by name. Without a toolkit the system's loader does not
    find it, `import tvm` passes over its CUDA part in silence, and `tvm.cuda(0).exist` is False on
    a machine with a GPU. A library that is loaded already satisfies the name, so this loads the one
    from pip, and then TVM's CUDA part if TVM has been imported without it. It may be called before
    or after `import tvm`, and again.

    Returns:
        True when TVM has its CUDA part, or will have once imported (which also takes a driver).
    """
    base = sys.modules.get("tvm.base")
    if base and "tvm_runtime_cuda" in base._LOADED_LIBS:
        return True
    if not _load_cudart(f"libcudart.so.{CUDA_MAJOR}"):
        return False
    if base is None:
        return True
    library = Path(base._LOADED_LIBS["tvm_runtime"]._name).with_name("libtvm_runtime_cuda.so")
    try:
        base._LOADED_LIBS["tvm_runtime_cuda"] = ctypes.CDLL(str(library))
    except OSError:  # the driver's libcuda.so.1 is not there
        return False
    return True


def _load_cudart(name: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name, mode=os.RTLD_NOLOAD)  # PyTorch, say, has brought its own
    except OSError:
        pass
    for path in [root / "lib" / name for root in pip_roots()] + [name]:
        try:
            return ctypes.CDLL(str(path))
        except OSError:
            continue
    return None


def _in(roots: list[Path], path: str) -> bool:
    return any((root / path).is_file() for root in roots)
