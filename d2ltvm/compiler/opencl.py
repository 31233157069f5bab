"""Runs the kernels of a lowered schedule as OpenCL, on PoCL where there is no GPU.

TVM's wheel generates OpenCL source and has no OpenCL runtime, so the launches that its host code
would make are made here, through pyopencl.
"""

import warnings

import numpy as np

from d2ltvm.system.devices import opencl_device


class Program:
    """A compiled OpenCL program and the buffers its kernels pass to each other.

    Args:
        lowered: a `d2ltvm.compiler.lowering.Lowered` for an OpenCL target.
    """

    def __init__(self, lowered):
        import pyopencl as cl

        self.lowered = lowered
        self.context = cl.Context([opencl_device()])
        self.queue = cl.CommandQueue(self.context)
        with warnings.catch_warnings():
            # PoCL's notes on a kernel it compiled without trouble.
            warnings.simplefilter("ignore", cl.CompilerWarning)
            program = cl.Program(self.context, lowered.source).build()
        self.kernels = {name: getattr(program, name) for name in program.kernel_names.split(";")}

    def upload(self, arrays):
        """Device buffers by name: one for each array, and the temporaries."""
        import pyopencl as cl

        flags = cl.mem_flags.READ_WRITE
        buffers = {
            p.name: cl.Buffer(self.context, flags | cl.mem_flags.COPY_HOST_PTR, hostbuf=array)
            for p, array in zip(self.lowered.params, arrays, strict=True)
        }
        for t in self.lowered.temporaries:
            size = int(np.prod(t.shape)) * np.dtype(t.dtype).itemsize
            buffers[t.name] = cl.Buffer(self.context, flags, size)
        return buffers

    def launch(self, buffers):
        """Run every launch of the program once, and wait for the last."""
        for launch in self.lowered.launches:
            threads = tuple(g * b for g, b in zip(launch.grid, launch.block, strict=True))
            kernel = self.kernels[launch.name]
            kernel(self.queue, threads, launch.block, *[buffers[name] for name in launch.args])
        self.queue.finish()

    def download(self, buffers, arrays):
        """Copy what the kernels wrote back into the arrays."""
        import pyopencl as cl

        for p, array in zip(self.lowered.params, arrays, strict=True):
            if p.output:
                cl.enqueue_copy(self.queue, array, buffers[p.name])
        self.queue.finish()
