"""From CUDA source to machine code, with neither a GPU nor a CUDA toolkit.

NVRTC, NVIDIA's compiler as a library, makes the cubin; `nvdisasm` and `cuobjdump` read it. All come
from pip packages (see `d2ltvm.system.toolchain`). TVM's own road through NVRTC is used, so that a
cubin made here holds what TVM would load on a GPU.
"""

import contextlib
import functools
import os
import re
import subprocess
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass

from d2ltvm.errors import MissingError
from d2ltvm.system import toolchain

# Shared memory that the system keeps in each block. Source: CUDA C++ Programming Guide, "Compute
# Capabilities", Shared Memory of 8.x, 9.x and newer.
RESERVED_SHARED = 1024

_LOCK = threading.Lock()


def compile_cubin(source, arch="sm_90"):
    """Compile CUDA source to a cubin, an ELF file with the machine code of one architecture.

    >>> cubin = compile_cubin(kernel.cuda_source("sm_80"), "sm_80")
    >>> cubin[:4]
    b'\\x7fELF'

    Args:
        source: CUDA source, as TVM generates it. `mma.h` and `cuda_fp16.h` may be included.
        arch: such as 'sm_75' (T4), 'sm_80' (A100), 'sm_89' (L4), 'sm_90' or 'sm_90a' (H100, H200).

    Returns:
        bytes.

    Raises:
        ValueError: NVRTC does not know `arch`, or `source` does not compile.
        MissingError: a package that brings NVRTC or the CUDA headers is not installed.
    """
    if not isinstance(source, str):
        raise ValueError(f"source is {type(source).__name__}; CUDA source as str is allowed")
    _check_arch(arch)
    return _compile(source, arch, 2)


@functools.lru_cache(maxsize=64)  # a chapter asks for the cubin, its SASS and its registers
def _compile(source, arch, agree):
    """The cubin that the compiler makes `agree` times; after five, the one it makes most often.

    NVRTC does not always make the same of the same source: of 680 cubins of one kernel, two loaded
    a word twice. Who counts instructions wants those of the other 678.
    """
    made = Counter()
    while max(made.values(), default=0) < agree and made.total() < 5:
        made[_compile_once(source, arch)] += 1
    return made.most_common(1)[0][0]


def _compile_once(source, arch):
    from tvm.support.nvcc import compile_cuda

    root, include = toolchain.headers()
    options = [f"-I{path}" for path in include]
    with _environment("CUDA_PATH", str(root)):  # where compile_cuda looks for headers
        try:
            cubin = compile_cuda(source, "cubin", arch=arch, options=options, compiler="nvrtc")
        except RuntimeError as error:
            log = str(error).removeprefix("NVRTC compilation failed:").strip("\n \0")
            message = f"source does not compile for {arch}:\n{log}"
        else:
            return bytes(cubin)
    raise ValueError(message)  # outside of the except, so that no stack of TVM's hangs on it


def architectures():
    """The architectures that NVRTC compiles for.

    >>> architectures()
    ('sm_75', 'sm_80', 'sm_86', 'sm_87', 'sm_88', 'sm_89', 'sm_90', 'sm_90a', 'sm_100', ...)

    A suffix `a` stands for code that uses what only this architecture has (on sm_90a: `wgmma`, TMA
    multicast) and runs on no other; `f`, from sm_100, for what its family shares.

    Returns:
        A tuple of str.

    Raises:
        MissingError: NVRTC is not installed.
    """
    names = []
    for number in _nvrtc()[1]:
        suffixes = [""] + ["a"] * (number >= 90) + ["f"] * (number >= 100)
        names += [f"sm_{number}{suffix}" for suffix in suffixes]
    return tuple(names)


def nvrtc_version():
    """Version of NVRTC, such as (13, 5).

    Raises:
        MissingError: NVRTC is not installed.
    """
    return _nvrtc()[0]


def disassemble(cubin):
    """The machine code of a cubin as text, one instruction a line.

    >>> print(disassemble(cubin))
    ...
            /*0090*/                   FADD.FTZ R9, R2, R5 ;
            /*00a0*/                   STG.E [R6.64], R9 ;
            /*00b0*/                   EXIT ;

    Args:
        cubin: bytes, as `compile_cubin` returns them.

    Returns:
        The output of `nvdisasm -c`.

    Raises:
        ValueError: `cubin` is not one.
        MissingError: `nvdisasm` is not installed.
    """
    return _inspect("nvdisasm", "-c", cubin)


_OPCODE = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ +)?([A-Z][\w.]*)(?: `\((\S+)\))?")


def instructions(sass):
    """How often each instruction stands in a disassembly.

    >>> counts = instructions(disassemble(cubin))
    >>> counts["LDG.E.128.CONSTANT"]
    2
    >>> sum(n for opcode, n in counts.items() if opcode.startswith("LDG"))
    2

    It counts places in the code, not executions. Suffixes differ between architectures, so compare
    the beginnings. The padding that the assembler adds behind a kernel (a branch to itself, then
    NOPs) is left out.

    Args:
        sass: text from `disassemble`.

    Returns:
        A Counter from full opcodes, such as 'FADD.FTZ', to numbers.
    """
    counts = Counter()
    for section in re.split(r"^\.text\.\S+:$", sass, flags=re.MULTILINE)[1:]:
        found, label, padding = [], None, False
        for line in section.splitlines():
            if match := _OPCODE.match(line):
                opcode, to = match.groups()
                padding = padding or (opcode == "BRA" and to is not None and to == label)
                if not padding:
                    found.append(opcode)
                label = None
            elif line.startswith(".L") and line.endswith(":"):
                label, padding = line[:-1], False
        counts.update(found)
    return counts


@dataclass(frozen=True)
class Resources:
    """What one kernel takes.

    Attributes:
        registers: 32-bit registers of a thread.
        shared: bytes of shared memory that a block declares. What `extern __shared__` adds at
            launch is not in it, nor the 1024 bytes that CUDA reserves in every block from sm_80.
        local: bytes of local memory of a thread: registers that did not fit (spills), and arrays
            with an index that is not known when compiling. 0 is what one wants.
        constant: bytes in constant bank 0, which holds the launch parameters.
    """

    registers: int
    shared: int
    local: int
    constant: int


def resources(cubin):
    """Registers, shared memory and local memory of every kernel in a cubin.

    >>> resources(cubin)
    {'main_kernel': Resources(registers=12, shared=0, local=0, constant=376)}

    Args:
        cubin: bytes, as `compile_cubin` returns them.

    Returns:
        A dict from kernel names to `Resources`.

    Raises:
        ValueError: `cubin` is not one.
        MissingError: `cuobjdump` is not installed.
    """
    text = _inspect("cuobjdump", "--dump-resource-usage", cubin)
    # From sm_90 the assembler counts the reserved bytes into the section, and names their start.
    reserved = RESERVED_SHARED if b".nv.reservedSmem" in cubin else 0
    kernels = {}
    for name, usage in re.findall(r"Function (\S+):\n\s+(REG:.*)", text):
        use = {key: int(value) for key, value in re.findall(r"([A-Z]+(?:\[0\])?):(\d+)", usage)}
        local = use["STACK"] + use["LOCAL"]
        shared = max(use["SHARED"] - reserved, 0)
        kernels[name] = Resources(use["REG"], shared, local, use.get("CONSTANT[0]", 0))
    return kernels


@functools.cache
def ensure_cuda_compiler():
    """Make TVM compile for the GPU of this machine with pip packages alone.

    By itself TVM calls NVRTC with the headers of a toolkit, and fails on a machine that has a
    driver and no toolkit. This puts `compile_cubin` in the place of TVM's callback, and loads the
    CUDA runtime (`toolchain.load_cuda_runtime`). Where the variable TVM_CUDA_COMPILE_MODE is set,
    the reader has chosen a compiler, and the callback stays as it is. Call it before compiling for
    a CUDA device; only the first call does anything.

    Raises:
        MissingError: a package that brings NVRTC or the CUDA headers is not installed.
    """
    toolchain.load_cuda_runtime()
    if "TVM_CUDA_COMPILE_MODE" in os.environ:
        return
    toolchain.headers()
    _nvrtc()

    import tvm.support.nvcc  # noqa: F401  registers the callback that is replaced here
    import tvm_ffi

    tvm_ffi.register_global_func("tvm_callback_cuda_compile", _compile_for_device, override=True)


def _compile_for_device(source):
    """What TVM calls with the source of a module, inside the scope of its target."""
    from tvm.support.nvcc import get_target_compute_version
    from tvm.target import Target

    version = get_target_compute_version(Target.current(allow_none=True))  # such as '9.0.a'
    arch = "sm_" + version.replace(".", "")
    _check_arch(arch)
    return _compile(source, arch, 1)  # any will do to run it


@functools.cache
def _nvrtc():
    """Version of NVRTC and the numbers of its architectures."""
    try:
        from cuda.bindings import nvrtc

        error, *version = nvrtc.nvrtcVersion()
        archs = nvrtc.nvrtcGetSupportedArchs()[1]
    except ImportError as error:
        raise _no_nvrtc("cuda-bindings is not installed") from error
    except RuntimeError as error:  # cuda.pathfinder found no libnvrtc
        raise _no_nvrtc("NVRTC is not installed") from error
    if int(error) or version[0] < toolchain.CUDA_MAJOR:
        old = f"NVRTC is {version[0]}.{version[1]}, and the headers want {toolchain.CUDA_MAJOR}"
        raise _no_nvrtc(old, f"{toolchain.INSTALL_COMPILER} --upgrade")
    return tuple(version), tuple(archs)


def _no_nvrtc(missing, command=toolchain.INSTALL_COMPILER):
    still = "CUDA source for any architecture, and kernels on OpenCL and the CPU"
    return MissingError(missing, still, command)


def _check_arch(arch):
    if arch not in architectures():
        version = ".".join(map(str, nvrtc_version()))
        plain = ", ".join(name for name in architectures() if name[-1].isdigit())
        raise ValueError(
            f"arch is {arch!r}; NVRTC {version} compiles for {plain}, "
            "with suffix 'a' from sm_90, with suffix 'f' from sm_100"
        )


def _inspect(name, option, cubin):
    """Output of one of NVIDIA's tools on a cubin, which it reads from a file."""
    if not isinstance(cubin, bytes | bytearray) or cubin[:4] != b"\x7fELF":
        raise ValueError(
            f"cubin is {bytes(cubin[:8])!r}…; the bytes of a cubin, an ELF file, are allowed"
            if isinstance(cubin, bytes | bytearray)
            else f"cubin is {type(cubin).__name__}; bytes are allowed"
        )
    program = toolchain.tool(name)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([program, option, file.name], capture_output=True, text=True)
    if done.returncode:
        reason = done.stderr.replace(file.name, "cubin").strip()
        raise ValueError(f"cubin is not one that {name} reads: {reason}")
    return done.stdout


@contextlib.contextmanager
def _environment(name, value):
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
