"""Runs the kernels of a lowered schedule as OpenCL, on PoCL where there is no GPU.

TVM's wheel generates OpenCL source and has no OpenCL runtime, so the launches that its host code
would make are made here, through pyopencl.
"""

import re
import warnings
from typing import Any

import numpy as np

from d2ltvm.compiler.launches import Lowered
from d2ltvm.errors import MissingError
from d2ltvm.system.devices import opencl_device

TYPES = {"cl_khr_fp16": "float16", "cl_khr_fp64": "float64"}  # by the extension that has it


class Program:
    """A compiled OpenCL program and the buffers its kernels pass to each other.

    Args:
        lowered: a `d2ltvm.compiler.launches.Lowered` for an OpenCL target.
    """

    def __init__(self, lowered: Lowered) -> None:
        import pyopencl as cl

        self.lowered = lowered
        self.context = cl.Context([opencl_device()])
        self.queue = cl.CommandQueue(self.context)
        _check_types(lowered.source, opencl_device())
        with warnings.catch_warnings():
            # PoCL's notes on a kernel it compiled without trouble.
            warnings.simplefilter("ignore", cl.CompilerWarning)
            try:
                program = cl.Program(self.context, lowered.source).build()
            except cl.RuntimeError as error:
                raise _refused(error) from error
        self.kernels = {name: getattr(program, name) for name in program.kernel_names.split(";")}

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

    def launch(self, buffers: dict[str, Any]) -> None:
        """Run every launch of the program once, and wait for the last."""
        opencl_device()  # as above
        for launch in self.lowered.launches:
            threads = tuple(g * b for g, b in zip(launch.grid, launch.block, strict=True))
            kernel = self.kernels[launch.name]
            kernel(self.queue, threads, launch.block, *[buffers[name] for name in launch.args])
        self.queue.finish()

    def download(self, buffers: dict[str, Any], arrays: Any) -> None:
        """Copy what the kernels wrote back into the arrays."""
        import pyopencl as cl

        for p, array in zip(self.lowered.params, arrays, strict=True):
            if p.output:
                cl.enqueue_copy(self.queue, array, buffers[p.name])
        self.queue.finish()


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
