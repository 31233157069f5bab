"""Runs the kernels of a lowered schedule as OpenCL, on PoCL where there is no GPU.

TVM's wheel generates OpenCL source and has no OpenCL runtime, so the launches that its host code
would make are made here, through pyopencl.

PoCL compiles a kernel anew for each size of a block, and takes seconds to optimize what runs for
microseconds at the sizes of a check. So a call with little work is compiled without optimization;
what is timed, and a call with much work, is compiled with it.
"""

import contextlib
import math
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from d2ltvm.compiler.launches import Lowered
from d2ltvm.errors import MissingError
from d2ltvm.system.devices import is_pocl, opencl_device

QUICK = ["-cl-opt-disable"]  # how a kernel is compiled that has little to do
# So many steps take PoCL half a second without optimization: 7 to 9 ns each, measured on one core.
LITTLE = 2**26
TYPES = {"cl_khr_fp16": "float16", "cl_khr_fp64": "float64"}  # by the extension that has it


class OpenCLProgram:
    """A compiled OpenCL program and the buffers its kernels pass to each other.

    Args:
        lowered: a `d2ltvm.compiler.launches.Lowered` for an OpenCL target.
    """

    def __init__(self, lowered: Lowered) -> None:
        import pyopencl as cl

        self.lowered, device = lowered, opencl_device()
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context)
        _check_types(lowered.source, device)
        self.quick = is_pocl(device) and _stores(lowered) <= LITTLE
        self.built: dict[bool, dict[str, Any]] = {}
        self._kernels(self.quick)  # what the compiler refuses is refused now

    def _kernels(self, quick: bool) -> dict[str, Any]:
        """The kernels by name, compiled when they are first asked for."""
        import pyopencl as cl

        if quick not in self.built:
            with warnings.catch_warnings():
                # PoCL's notes on a kernel it compiled without trouble.
                warnings.simplefilter("ignore", cl.CompilerWarning)
                try:
                    with _without_headers(cl):
                        program = cl.Program(self.context, self.lowered.source).build(
                            QUICK if quick else []
                        )
                except cl.RuntimeError as error:
                    raise _refused(error) from error
            names = program.kernel_names.split(";")
            self.built[quick] = {name: getattr(program, name) for name in names}
        return self.built[quick]

    def run(self, arrays: Any) -> None:
        """Compute once, from arrays and into those that the kernels write."""
        buffers = self.upload(arrays)
        self.launch(buffers)
        self.download(buffers, arrays)

    def upload(self, arrays: Any) -> dict[str, Any]:
        """Device buffers by name: one for each array, and the temporaries."""
        import pyopencl as cl

        opencl_device()  # raises where this process was forked from the one that opened it
        flags = cl.mem_flags.READ_WRITE
        buffers = {
            p.name: cl.Buffer(self.context, flags | cl.mem_flags.COPY_HOST_PTR, hostbuf=array)
            for p, array in zip(self.lowered.params, arrays, strict=True)
        }
        for t in self.lowered.temporaries:
            size = int(np.prod(t.shape)) * np.dtype(t.dtype).itemsize
            buffers[t.name] = cl.Buffer(self.context, flags, size)
        return buffers

    def launch(self, buffers: dict[str, Any], timed: bool = False) -> None:
        """Run every launch of the program once, and wait for the last."""
        opencl_device()  # as above
        kernels = self._kernels(self.quick and not timed)
        for launch in self.lowered.launches:
            threads = tuple(g * b for g, b in zip(launch.grid, launch.block, strict=True))
            arguments = [buffers[name] for name in launch.args]
            kernels[launch.name](self.queue, threads, launch.block, *arguments)
        self.queue.finish()

    def download(self, buffers: dict[str, Any], arrays: Any) -> None:
        """Copy what the kernels wrote back into the arrays."""
        import pyopencl as cl

        for p, array in zip(self.lowered.params, arrays, strict=True):
            if p.output:
                cl.enqueue_copy(self.queue, array, buffers[p.name])
        self.queue.finish()


@contextlib.contextmanager
def _without_headers(cl: Any) -> Iterator[None]:
    """Compile without the folder of pyopencl's headers, of which TVM's kernels include none.

    PoCL keeps a compiled kernel by its source and the options. With the folder among them, another
    environment or clone compiles every kernel anew, a second each.
    """
    known = cl._DEFAULT_INCLUDE_OPTIONS
    cl._DEFAULT_INCLUDE_OPTIONS = []
    try:
        yield
    finally:
        cl._DEFAULT_INCLUDE_OPTIONS = known


def _stores(lowered: Lowered) -> int:
    """How often the threads of all launches store, or do what is no store, such as wait."""
    return sum(
        math.prod(launch.grid + launch.block) * _steps(lowered.device_functions[launch.name].body)
        for launch in lowered.launches
    )


def _steps(statement: Any) -> int:
    """The same of one thread that takes every branch; loops of a varying length count once."""
    if hasattr(statement, "seq"):
        return sum(map(_steps, statement.seq))
    times = getattr(statement, "extent", 1)
    parts = [getattr(statement, name, None) for name in ("body", "then_case", "else_case")]
    inside = [part for part in parts if part is not None]
    many = int(getattr(times, "value", times if isinstance(times, int) else 1))
    return many * sum(map(_steps, inside)) if inside else 1


def _check_types(source: str, device: Any) -> None:
    """A MissingError where the source needs an element type that the device lacks."""
    for extension, dtype in TYPES.items():
        if f"#ifdef {extension}" in source and extension not in device.extensions:
            raise MissingError(
                f"the OpenCL device {device.name.strip()} has no {dtype}",
                "source, cubin and SASS for an architecture, and d2ltvm.emulate",
                "a GPU, or a kernel in float32",
            )


def _refused(error: Exception) -> RuntimeError:
    """What OpenCL's compiler has against a kernel, in one line."""
    reasons = re.findall(r"error:(?:\s*\S+:\d+:\d+:)?\s*(.+)", str(error))
    return RuntimeError(f"the OpenCL compiler refuses the kernel: {(reasons or ['no reason'])[0]}")
