"""A program on the GPU: its kernels compiled in several processes, its launches in a CUDA graph."""

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from d2ltvm.bench import timing
from d2ltvm.bench.libraries import torch_cuda
from d2ltvm.compiler import cubin, im2col, lowering
from d2ltvm.network.hopper_kernels import HopperKernel, nbytes
from d2ltvm.network.on_hopper import Array, Program
from d2ltvm.system import devices

Function = Callable[..., Any]


def compile_library(kernel: HopperKernel, path: str) -> str:
    """Compile a kernel into a shared library, by TVM and NVRTC; returns its path.

    It takes no GPU, but TVM's runtime for one: on a machine without a driver the library holds the
    kernel's source, and cannot be loaded.
    """
    cubin.ensure_cuda_compiler()
    mod = lowering.as_module(kernel.make())
    lowered = lowering.lower(mod, devices.as_target("sm_90a"))
    own = f"{path}.{os.getpid()}.so"
    lowered.executable.export_library(own)
    os.replace(own, path)  # whole or not at all
    return path


def load_library(path: str) -> Function:
    """The function of a kernel in a library: it launches on the current stream."""
    import tvm

    assert im2col.ENCODE  # the host code of kernels calls this function by its name
    function: Function = tvm.runtime.load_module(path)["main"]
    return function


def processes(many: int | None = None) -> ProcessPoolExecutor:
    """Processes that compile. They are new ones, which share nothing with this one's GPU."""
    return ProcessPoolExecutor(many or os.cpu_count(), mp_context=get_context("spawn"))


def compile_all(
    kernels: Iterable[HopperKernel], pool: ProcessPoolExecutor, folder: str | None = None
) -> dict[HopperKernel, "Future[str]"]:
    """Have kernels compiled; the future path of each library, in the order given."""
    place = Path(folder or tempfile.mkdtemp(prefix="d2ltvm-"))
    return {
        kernel: pool.submit(compile_library, kernel, str(place / f"{number}.so"))
        for number, kernel in enumerate(dict.fromkeys(kernels))
    }


class OnGpu:
    """A program with its values and weights in the memory of the GPU, by PyTorch.

    >>> with processes() as pool:  # doctest: +SKIP
    ...     libraries = compile_all(program.kernels, pool)
    >>> on_gpu = OnGpu(program, {k: load_library(p.result()) for k, p in libraries.items()})
    ... # doctest: +SKIP
    >>> on_gpu.launch()  # doctest: +SKIP

    Attributes:
        program: what is run.
        images: (batch, height, width, channels), float16: to be filled by the caller.
        result: of the last step.
        steps, arrays, launches: of each step, its arguments, and a function that launches it.
    """

    def __init__(
        self,
        program: Program,
        functions: Mapping[HopperKernel, Function],
        constants: Mapping[str, Any] | None = None,
    ) -> None:
        self.program = program
        torch = torch_cuda()
        placed, size = program.places()
        self.memory = torch.zeros(size, dtype=torch.uint8, device="cuda")
        dtypes = {"float16": torch.float16, "float32": torch.float32}

        def value(name: str, shape: tuple[int, ...], dtype: str) -> Any:
            first = placed[name]
            piece = self.memory[first : first + nbytes((shape, dtype))]
            return piece.view(dtypes[dtype]).view(shape)

        held = upload(program.constants) if constants is None else constants
        bound = program.bind(value, held)
        self.steps = program.steps
        self.arrays = [arrays for _, arrays in bound]
        self.launches = [bound_to(functions[step.kernel], arrays) for step, arrays in bound]
        self.images, self.result = self.arrays[0][0], self.arrays[-1][-1]

    def launch(self) -> None:
        """Launch all steps on TVM's current stream."""
        for launch in self.launches:
            launch()


def bound_to(function: Function, tensors: Sequence[Any]) -> Callable[[], object]:
    """A function without arguments that launches a kernel on tensors of PyTorch's."""
    import tvm_ffi

    arguments = [tvm_ffi.from_dlpack(tensor) for tensor in tensors]
    return lambda: function(*arguments)


def upload(arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Arrays as PyTorch's tensors on the GPU."""
    torch = torch_cuda()
    return {name: torch.from_numpy(array).cuda() for name, array in arrays.items()}


def captured(launch: Callable[[], object], times: int = 1) -> Callable[[], object]:
    """A function that replays so many calls of another one, on PyTorch's current stream.

    They are captured into a CUDA graph. TVM has to be told of the stream that is captured: else the
    graph is empty.
    """
    torch = torch_cuda()
    import tvm_ffi

    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), tvm_ffi.use_torch_stream():
        graph = timing.capture(launch, times, stream.cuda_stream)
    torch.cuda.synchronize()
    return lambda: timing.cuda("cudaGraphLaunch", graph, torch.cuda.current_stream().cuda_stream)
