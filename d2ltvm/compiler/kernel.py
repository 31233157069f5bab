"""From a schedule to something that runs: `build` and the `Kernel` that it returns."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm

from d2ltvm.compiler import cubin, opencl
from d2ltvm.compiler.launches import Param
from d2ltvm.compiler.lowering import architecture, as_module, lower
from d2ltvm.compiler.printing import kernel_code
from d2ltvm.errors import MissingError
from d2ltvm.system import devices, threads


def build(sch: Any, target: Any = None, config: dict[str, Any] | None = None) -> "Kernel":
    """Compile a schedule into a kernel that runs on NumPy arrays.

    >>> kernel = d2ltvm.build(d2ltvm.schedules.cpu_vector_add(1024), "llvm")
    >>> a, b, c = d2ltvm.get_abc(1024)
    >>> kernel(a, b, c)
    >>> np.array_equal(c, a + b)
    True

    Args:
        sch: a `tvm.s_tir.Schedule`, a PrimFunc, or an IRModule with a PrimFunc named `main`.
        target: where it runs, as for `system.as_target`; None is the GPU where there is one, and
            OpenCL on PoCL elsewhere. An architecture such as 'sm_80' gives a kernel with source,
            cubin and SASS that does not run.
        config: options of TVM's PassContext.

    Returns:
        A `Kernel`.

    Raises:
        TypeError: `sch` is no schedule.
        ValueError: `target` is unknown; a loop is not bound, or is and the target is a CPU; a block
            has too many threads; an index lies outside of its tensor.
        MissingError: this machine lacks the device, or the device the element type.
    """
    return Kernel(as_module(sch), target, config)


class Kernel:
    """A compiled schedule. `build` makes it.

    >>> kernel = d2ltvm.build(d2ltvm.schedules.one_thread_each(1024), "sm_80")
    >>> print(kernel.launches[0])
    main_kernel: grid (4, 1, 1), block (256, 1, 1)
    >>> kernel.code[:29]                      # the kernel as CUDA or OpenCL
    'extern "C" __global__ void __'
    >>> kernel.cubin("sm_80")[:4]             # machine code, with no GPU and no CUDA toolkit
    b'\\x7fELF'

    Attributes:
        target: the `tvm.target.Target` it was built for.
        params: what it takes, a tuple of `Param(name, shape, dtype, output)`.
        launches: the launches a call makes, a tuple of `Launch(name, grid, block, args)`.
        source: the whole source that the device's compiler gets.
    """

    def __init__(self, mod: Any, target: Any, config: dict[str, Any] | None) -> None:
        self.mod, self.config = mod, config
        self.target = devices.as_target(target)
        self.runs = not (isinstance(target, str) and target.startswith("sm_"))
        if self.target.kind.name == "cuda" and self.runs:
            cubin.ensure_cuda_compiler()
        if self.target.kind.name == "llvm":
            threads.use_all_cores()
        by_tvm = self.runs and self.target.kind.name in ("cuda", "llvm")  # it is launched
        lowered = lower(mod, self.target if by_tvm else devices.to_read(self.target), config)
        self._executable = lowered.executable
        self.params, self.launches, self.source = lowered.params, lowered.launches, lowered.source
        self._opencl = opencl.OpenCLProgram(lowered) if self.target.kind.name == "opencl" else None

    def __call__(self, *arrays: Any) -> None:
        """Run the kernel; what it computes is written into the arrays that it outputs.

        Args:
            arrays: one for each of `params`, in their order, all NumPy arrays or all tensors on
                the device (TVM's or PyTorch's), contiguous, of the right shape and dtype.

        Raises:
            TypeError: one is neither, or some are arrays and others are tensors.
            ValueError: their number, a shape, a dtype or the layout is not what `params` says.
            MissingError: the kernel was built for an architecture and not for a device.
        """
        self._check_arrays(arrays)
        if not all(isinstance(a, np.ndarray) for a in arrays):
            self._executable(*arrays)
        elif self._opencl:
            self._opencl.run(arrays)
        else:
            tensors = self.upload(arrays)
            self._executable(*tensors)
            for param, array, tensor in zip(self.params, arrays, tensors, strict=True):
                if param.output:
                    array[...] = tensor.numpy()

    def upload(self, arrays: Any) -> list[Any]:
        """Copies of NumPy arrays on the kernel's device, as TVM tensors (CUDA and CPU only)."""
        device = tvm.cuda(0) if self.target.kind.name == "cuda" else tvm.cpu(0)
        return [tvm.runtime.tensor(a, device=device) for a in arrays]

    def bind(self, *arrays: Any) -> Callable[[], Any]:
        """The launch alone, for timing: arrays are on the device already when it is called.

        >>> kernel = d2ltvm.build(d2ltvm.schedules.cpu_vector_add(64), "llvm")
        >>> launch = kernel.bind(*d2ltvm.get_abc(64))
        >>> launch()

        Args:
            arrays: as for a call; NumPy arrays are copied to the device once, now.

        Returns:
            A function without arguments. On CUDA it launches on the current stream and does not
            wait; on OpenCL and on the CPU it returns when the work is done.
        """
        self._check_arrays(arrays)
        if program := self._opencl:
            buffers = program.upload(arrays)
            return lambda: program.launch(buffers, timed=True)
        if all(isinstance(a, np.ndarray) for a in arrays):
            arrays = tuple(self.upload(arrays))
        main = self._executable["main"]
        return lambda: main(*arrays)

    @property
    def code(self) -> str:
        """The kernels of `source`, without TVM's header."""
        return kernel_code(self.source)

    def cuda_source(self, arch: str = "sm_90") -> str:
        """CUDA source for an architecture, with or without a GPU.

        Args:
            arch: such as 'sm_75' (T4), 'sm_80' (A100) or 'sm_90' (H100, H200).

        Returns:
            The source as text; `d2ltvm.kernel_code` cuts it down to the kernels.

        Raises:
            ValueError: `arch` is not an architecture.
        """
        if not str(arch).startswith("sm_"):
            raise ValueError(f"arch is {arch!r}; expected an architecture such as 'sm_80'")
        arch = architecture(self.mod, arch)
        target = devices.to_read(arch)
        return lower(self.mod, target, self.config).source

    def opencl_source(self) -> str:
        """OpenCL source, with or without an OpenCL device, as text."""
        return lower(self.mod, devices.to_read(tvm.target.Target("opencl")), self.config).source

    def cubin(self, arch: str = "sm_90") -> bytes:
        """Machine code for an architecture, compiled by NVRTC: bytes of an ELF file."""
        return cubin.compile_cubin(self.cuda_source(arch), architecture(self.mod, arch))

    def sass(self, arch: str = "sm_90") -> str:
        """The disassembly of `cubin(arch)`, as text."""
        return cubin.disassemble(self.cubin(arch))

    @property
    def assembly(self) -> str:
        """The machine code of a kernel for the CPU, as its assembler's text.

        Raises:
            ValueError: the kernel is not for a CPU; `sass` is what a GPU's kernel has.
        """
        if self.target.kind.name != "llvm":
            raise ValueError(f"the kernel is for {self.target.kind.name}; expected one for 'llvm'")
        return str(self._executable.mod.inspect_source("asm"))

    def _check_arrays(self, arrays: tuple[Any, ...]) -> None:
        if not self.runs:
            raise MissingError(
                f"this kernel was built for {self.target.arch} and not for a device",
                "reading its CUDA and its machine code",
                "build(sch) with no target",
            )
        if len(arrays) != len(self.params):
            names = ", ".join(p.name for p in self.params)
            raise ValueError(f"arrays are {len(arrays)}; expected {len(self.params)}: {names}")
        kinds = ("NumPy arrays",) if self._opencl else ("NumPy arrays", "tensors of the device")
        for param, array in zip(self.params, arrays, strict=True):
            if _kind(array) not in kinds or _kind(array) != _kind(arrays[0]):
                raise TypeError(
                    f"{param.name} is a {type(array).__name__}, the first array a "
                    f"{type(arrays[0]).__name__}; expected all {' or all '.join(kinds)}"
                )
            _check_array(param, array, GPU_ALIGNMENT if self.launches else CPU_ALIGNMENT)


def _kind(array: Any) -> str:
    if isinstance(array, np.ndarray):
        return "NumPy arrays"
    tensor = hasattr(array, "__dlpack__") and hasattr(array, "data_ptr")
    return "tensors of the device" if tensor else ""


def _check_array(param: Param, array: Any, alignment: int) -> None:
    """Hold an array of NumPy's, or a tensor of the device, to its parameter."""
    got = tuple(int(s) for s in array.shape), str(array.dtype).removeprefix("torch.")
    if got != (param.shape, param.dtype):
        raise ValueError(
            f"{param.name} is {got[1]} of shape {got[0]}; "
            f"expected {param.dtype} of shape {param.shape}"
        )
    numpy = isinstance(array, np.ndarray)
    if not (array.flags.c_contiguous if numpy else array.is_contiguous()):
        raise ValueError(f"{param.name} is not contiguous; expected np.ascontiguousarray(…) of it")
    if not numpy and array.data_ptr() % alignment:
        raise ValueError(
            f"{param.name} begins at an address that is no multiple of {alignment} bytes; expected "
            "tvm.runtime.tensor(…), which copies"
        )


# Bytes: compiled code takes it that tensors begin at a multiple, and loads whole vectors.
CPU_ALIGNMENT = 64
GPU_ALIGNMENT = 16
