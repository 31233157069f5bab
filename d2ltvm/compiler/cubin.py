"""From CUDA source to machine code, with neither a GPU nor a CUDA toolkit.

NVRTC, NVIDIA's compiler as a library, makes the cubin; `nvdisasm` and `cuobjdump` read it. All come
from pip packages (see `d2ltvm.system.toolchain`). What they make is kept on disk (see
`d2ltvm.compiler.cache`).
"""

import functools
import os
import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from d2ltvm.compiler import cache, nvrtc, sass_text
from d2ltvm.system import toolchain

# Shared memory that the system keeps in each block. Source: CUDA C++ Programming Guide, "Compute
# Capabilities", Shared Memory of 8.x, 9.x and newer.
RESERVED_SHARED = 1024


def compile_cubin(source: str, arch: str = "sm_90", agree: int = 2) -> bytes:
    """Compile CUDA source to a cubin, an ELF file with the machine code of one architecture.

    NVRTC does not always make the same of the same source: of 680 cubins of one kernel, two loaded
    a word twice. A kernel whose instructions are counted is therefore compiled until two cubins
    agree. One that is only run, or asked for its registers, can do with the first.

    >>> cubin = compile_cubin(kernel.cuda_source("sm_80"), "sm_80")
    >>> cubin[:4]
    b'\\x7fELF'

    Args:
        source: CUDA source, as TVM generates it. `mma.h` and `cuda_fp16.h` may be included.
        arch: such as 'sm_75' (T4), 'sm_80' (A100), 'sm_89' (L4), 'sm_90' or 'sm_90a' (H100, H200).
        agree: how many compilations have to agree. Of five that do not, the most frequent counts.

    Returns:
        bytes.

    Raises:
        ValueError: NVRTC does not know `arch`, or `source` does not compile.
        MissingError: a package that brings NVRTC or the CUDA headers is not installed.
    """
    if not isinstance(source, str):
        raise ValueError(f"source is {type(source).__name__}; expected CUDA source as str")
    nvrtc.check_arch(arch)
    return _compile(source, arch, agree)


@functools.lru_cache(maxsize=64)  # a chapter asks for the cubin, its SASS and its registers
def _compile(source: str, arch: str, agree: int) -> bytes:
    """The cubin that the compiler makes `agree` times, from the cache if it is there."""
    return cache.remember(
        lambda: _most_frequent(source, arch, agree), source, arch, agree, nvrtc.identity()
    )


def _most_frequent(source: str, arch: str, agree: int) -> bytes:
    made: Counter[bytes] = Counter()
    while max(made.values(), default=0) < agree and made.total() < 5:
        made[nvrtc.compile_once(source, arch)] += 1
    return made.most_common(1)[0][0]


def disassemble(cubin: bytes) -> str:
    """The machine code of a cubin as text, one instruction a line.

    >>> print(next(line for line in disassemble(cubin).splitlines() if "STG" in line))
            /*...*/                   STG.E.128 ...

    Args:
        cubin: bytes, as `compile_cubin` returns them.

    Returns:
        The output of `nvdisasm -c`.

    Raises:
        ValueError: `cubin` is not one.
        MissingError: `nvdisasm` is not installed.
    """
    return _inspect("nvdisasm", "-c", cubin)


def instructions(sass: str) -> Counter[str]:
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

    Raises:
        TypeError: `sass` is no text.
    """
    if not isinstance(sass, str):
        raise TypeError(f"sass is a {type(sass).__name__}; expected a disassembly as text")
    counts: Counter[str] = Counter()
    for section in sass_text.sections(sass):
        padding, labels = False, set(section.labels.values())
        for line in section.lines:
            padding = padding and line.address not in labels
            padding = padding or (line.opcode == "BRA" and section.target(line) == line.address)
            if not padding:
                counts[line.opcode] += 1
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


def resources(cubin: bytes) -> dict[str, Resources]:
    """Registers, shared memory and local memory of every kernel in a cubin.

    >>> resources(cubin)
    {'main_kernel': Resources(registers=..., shared=0, local=0, constant=...)}

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
def ensure_cuda_compiler() -> None:
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
    nvrtc.nvrtc_version()

    import tvm.support.nvcc  # noqa: F401  registers the callback that is replaced here
    import tvm_ffi

    tvm_ffi.register_global_func("tvm_callback_cuda_compile", _compile_for_device, override=True)


def _compile_for_device(source: str) -> bytes:
    """What TVM calls with the source of a module, inside the scope of its target."""
    from tvm.support.nvcc import get_target_compute_version
    from tvm.target import Target

    version = get_target_compute_version(Target.current(allow_none=True))  # such as '9.0.a'
    return compile_cubin(source, "sm_" + version.replace(".", ""), agree=1)  # it is only run


def _inspect(name: str, option: str, cubin: bytes) -> str:
    """Output of one of NVIDIA's tools on a cubin, from the cache if it is there."""
    if not isinstance(cubin, bytes | bytearray) or cubin[:4] != b"\x7fELF":
        raise ValueError(
            f"cubin is {bytes(cubin[:8])!r}…; expected the bytes of a cubin, an ELF file"
            if isinstance(cubin, bytes | bytearray)
            else f"cubin is {type(cubin).__name__}; expected bytes"
        )
    program, cubin = toolchain.tool(name), bytes(cubin)
    key = (option, cubin, cache.file_identity(program))
    return cache.remember(lambda: _output(program, option, cubin).encode(), *key).decode()


def _output(program: Path, option: str, cubin: bytes) -> str:
    """Output of a tool on a cubin, which it reads from a file."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([program, option, file.name], capture_output=True, text=True)
    if done.returncode:
        reason = done.stderr.replace(file.name, "cubin").strip()
        raise ValueError(f"cubin is not read by {program.name}: {reason}; expected NVRTC's")
    return done.stdout
