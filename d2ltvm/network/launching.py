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
from d2ltvm.compiler import cache, cubin, im2col, lowering, nvrtc
from d2ltvm.errors import MissingError
from d2ltvm.network.hopper_kernels import HopperKernel, nbytes
from d2ltvm.network.on_hopper import Array, Program
from d2ltvm.system import devices

Function = Callable[..., Any]
# That make a kernel.
SOURCES = ("compiler/*.py", "hopper/*.py", "schedules/strips.py", "network/hopper_kernels.py")


def compile_library(kernel: HopperKernel, path: str) -> str:
    """Compile a kernel into a shared library, by TVM and NVRTC; returns its path.

    What was compiled once is kept on disk. It takes no GPU, but TVM's runtime for one: on a machine
    without a driver the library holds the kernel's source, and cannot be loaded.

    Raises:
        MissingError: there is no C++ compiler, which links it.
    """
    return _write(path, cache.remember(lambda: _exported(kernel), *_key(kernel)))


def _exported(kernel: HopperKernel) -> bytes:
    from tvm.support import cc

    if cc.get_cc() is None:
        raise MissingError("there is no C++ compiler", "--target llvm", "sudo apt-get install g++")
    cubin.ensure_cuda_compiler()
    mod = lowering.as_module(kernel.make())
    lowered = lowering.lower(mod, devices.as_target("sm_90a"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.so")
        lowered.executable.export_library(str(path))
        return path.read_bytes()


def _key(kernel: HopperKernel) -> tuple[object, ...]:
    """What a library follows from: a kernel's sizes, the modules that write it, and the tools."""
    text = cache.hash_of_text(Path(__file__).parents[1], "*.py", *SOURCES)
    versions = cache.package_versions("apache-tvm", "apache-tvm-ffi"), nvrtc.identity()
    return "library", repr(kernel), text, versions, devices.driver_version()


def _write(path: str, data: bytes) -> str:
    own = Path(f"{path}.{os.getpid()}")
    own.write_bytes(data)
    own.replace(path)  # whole or not at all
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
    """Have kernels compiled; the future path of each library, in the order given.

    One that the cache has takes no process: it is there already.
    """
    place = Path(folder or tempfile.mkdtemp(prefix="d2ltvm-"))
    found: dict[HopperKernel, Future[str]] = {}
    for number, kernel in enumerate(dict.fromkeys(kernels)):
        path = str(place / f"{number}.so")
        if (data := cache.kept(*_key(kernel))) is not None:
            found[kernel] = Future()
            found[kernel].set_result(_write(path, data))
        else:
            found[kernel] = pool.submit(compile_library, kernel, path)
    return found


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

    def __call__(self, images: Array) -> Array:
        """The result for images, (batch, height, width, channels), in float32."""
        import tvm_ffi

        torch = torch_cuda()
        self.images.copy_(torch.from_numpy(images))
        with tvm_ffi.use_torch_stream():
            self.launch()
        result: Array = self.result.float().cpu().numpy()
        return result

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
