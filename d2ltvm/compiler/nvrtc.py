"""NVRTC, NVIDIA's compiler as a library: from CUDA source to machine code in a tenth of a second.

TVM's own way to NVRTC is used, with TVM's options, so that a cubin made here holds what TVM would
load on a GPU. Only the headers are lighter. TVM's sources begin with
`#include <cuda/std/type_traits>` and the like, of which they use a few names. To read these headers
takes NVRTC two seconds, and four with `cuda/barrier`; to compile a kernel takes less than a tenth
of that. So a source is compiled with the folder `light_headers`, which has those names alone, and
where that fails with NVIDIA's. The machine code is the same: a test holds one against the other.
"""

import contextlib
import functools
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from d2ltvm.compiler import cache
from d2ltvm.errors import MissingError, shown
from d2ltvm.system import toolchain

LIGHT = Path(__file__).with_name("light_headers")

# TVM reads further options of the compiler from these variables.
_OPTIONS = ("TVM_CUDA_", "NVRTC_")

_LOCK = threading.Lock()


def compile_once(source: str, arch: str) -> bytes:
    """The cubin of a source for an architecture.

    Raises:
        ValueError: `source` does not compile.
        MissingError: a package that brings NVRTC or the CUDA headers is not installed.
    """
    with contextlib.suppress(ValueError):
        return _compile(*lighter(source), arch)
    return _compile(source, [], arch)


def lighter(source: str) -> tuple[str, list[Path]]:
    """A source that includes light headers, and the folder that has them."""
    # TVM looks for this header in the toolkit's folder, before any folder that it is given.
    light = source.replace("<cooperative_groups.h>", "<cooperative_groups.light.h>")
    return light, [LIGHT]


def _compile(source: str, folders: list[Path], arch: str) -> bytes:
    """The cubin of a source, with some folders of headers before those of the toolkit."""
    from tvm.support.nvcc import compile_cuda

    root, include = toolchain.headers()
    options = [f"-I{path}" for path in [*folders, *include]]
    with _environment("CUDA_PATH", str(root)):  # where compile_cuda looks for headers
        try:
            cubin = compile_cuda(source, "cubin", arch=arch, options=options, compiler="nvrtc")
        except RuntimeError as error:
            log = str(error).removeprefix("NVRTC compilation failed:").strip("\n \0")
            message = f"source does not compile for {arch}:\n{log}"
        else:
            return bytes(cubin)
    raise ValueError(message)  # outside of the except, so that no stack of TVM's hangs on it


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """An environment variable for the time of one call, put back as it was."""
    with _LOCK:
        before = os.environ.get(name)
        os.environ[name] = value
        try:
            yield
        finally:
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before


def identity() -> tuple[object, ...]:
    """What a cubin follows from besides its source and architecture: versions and options.

    Raises:
        MissingError: NVRTC or a header is not installed.
    """
    root, _ = toolchain.headers()
    packages = ("apache-tvm", "nvidia-cuda-nvrtc", *toolchain.PACKAGES.values())
    options = tuple(sorted(x for x in os.environ.items() if x[0].startswith(_OPTIONS)))
    header = cache.file_identity(root / "include" / "cuda_runtime.h")
    return nvrtc_version(), cache.package_versions(*packages), header, options, _light_headers()


@functools.cache
def _light_headers() -> tuple[str, ...]:
    return tuple(path.read_text() for path in sorted(LIGHT.rglob("*")) if path.is_file())


def architectures() -> tuple[str, ...]:
    """The architectures that NVRTC compiles for.

    >>> architectures()  # doctest: +ELLIPSIS
    ('sm_75', 'sm_80', 'sm_86', 'sm_87', 'sm_88', 'sm_89', 'sm_90', 'sm_90a', 'sm_100', ...)

    A suffix `a` stands for code that uses what only this architecture has (on sm_90a: `wgmma`, TMA
    multicast) and runs on no other; `f`, from sm_100, for what its family shares.

    Returns:
        A tuple of str.

    Raises:
        MissingError: NVRTC is not installed.
    """
    names = []
    for number in _library()[1]:
        suffixes = [""] + ["a"] * (number >= 90) + ["f"] * (number >= 100)
        names += [f"sm_{number}{suffix}" for suffix in suffixes]
    return tuple(names)


def nvrtc_version() -> tuple[int, ...]:
    """Version of NVRTC, such as (13, 5).

    Raises:
        MissingError: NVRTC is not installed.
    """
    return _library()[0]


def check_arch(arch: str) -> None:
    """Raise a ValueError unless NVRTC compiles for an architecture."""
    if not isinstance(arch, str) or arch not in architectures():
        version = ".".join(map(str, nvrtc_version()))
        plain = ", ".join(name for name in architectures() if name[-1].isdigit())
        raise ValueError(
            f"arch is {shown(arch)}; expected what NVRTC {version} knows: {plain}, "
            "with suffix 'a' from sm_90, with suffix 'f' from sm_100"
        )


@functools.cache
def _library() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Version of NVRTC and the numbers of its architectures."""
    try:
        from cuda.bindings import nvrtc

        status, *version = nvrtc.nvrtcVersion()
        archs = nvrtc.nvrtcGetSupportedArchs()[1]
    except ImportError as error:
        raise _no_nvrtc("cuda-bindings is not installed") from error
    except RuntimeError as error:  # cuda.pathfinder found no libnvrtc
        raise _no_nvrtc("NVRTC is not installed") from error
    if int(status) or version[0] < toolchain.CUDA_MAJOR:
        old = f"NVRTC is {version[0]}.{version[1]}, and the headers want {toolchain.CUDA_MAJOR}"
        raise _no_nvrtc(old, f"{toolchain.INSTALL_COMPILER} --upgrade")
    return tuple(version), tuple(archs)


def _no_nvrtc(missing: str, command: str = toolchain.INSTALL_COMPILER) -> MissingError:
    still = "CUDA source for any architecture, and kernels on OpenCL and the CPU"
    return MissingError(missing, still, command)
