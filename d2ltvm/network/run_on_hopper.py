"""`python -m d2ltvm run --target cuda`: a network on an H100 or H200, in float16."""

import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import as_completed

import numpy as np
import tvm

from d2ltvm.analysis.traffic import one_of
from d2ltvm.bench.libraries import torch_cuda
from d2ltvm.bench.progress import progress
from d2ltvm.bench.timing import time_together
from d2ltvm.compute.convolution import Array
from d2ltvm.network import launching, models, on_hopper
from d2ltvm.network.hopper_kernels import HopperKernel
from d2ltvm.network.memory import memory_plan
from d2ltvm.network.relax_program import RelaxProgram
from d2ltvm.network.report import NetworkRun, likeliest
from d2ltvm.network.run import prepared
from d2ltvm.system import devices

BY = ("launches", "relax")
REMARK = "Each layer is timed alone; in the network one begins while the one before it ends."


def run(
    name: str,
    batch: int = 1,
    size: int = models.SIZE,
    image: str | None = None,
    by: str = "launches",
) -> NetworkRun:
    """Run a network on the GPU, in one CUDA graph: see `on_hopper`.

    Kernels that are not kept on disk are compiled first, in several processes.

    Args:
        name: one of `models.MODELS`.
        batch: as for `d2ltvm.network.run.run`, and so are the next two.
        size: see there.
        image: see there.
        by: 'launches', whose results lie where `Program.places` says; or 'relax', TVM's virtual
            machine, which calls the same kernels and has TVM's plan of memory.

    Raises:
        ValueError: as there, and so is OSError.
        MissingError: there is no H100 or H200, no driver for it, no PyTorch, or no C++ compiler.
    """
    one_of("by", by, BY)
    devices.need_cuda("--target llvm")
    devices.need_hopper()
    torch_cuda()
    fused, weights, images = prepared(name, batch, size, image)
    program = on_hopper.program(fused, weights)
    many = len(program.kernels)
    functions = compiled(program.kernels)
    progress(many + 3, many + 6, "copying")
    on_gpu = launching.OnGpu(program, functions)
    progress(many + 4, many + 6, "running")
    nhwc = np.ascontiguousarray(images.transpose(0, 2, 3, 1), "float16")
    if by == "relax":
        result, launch, used = by_relax(program, functions, nhwc)
    else:
        result, launch, used = on_gpu(nhwc), on_gpu.launch, memory(program)
    timing = time_together({"run": launch}, "burst")["run"]
    progress(many + 5, many + 6, "layers")
    layers = seconds_by_layer(on_gpu)
    progress(many + 6, many + 6, "")
    device = devices.describe_device()["name"]
    top = likeliest(result.reshape(batch, -1))
    return NetworkRun(fused, device, "float16", *top, timing, layers, used, REMARK)


def by_relax(
    program: on_hopper.Program, functions: Mapping[HopperKernel, launching.Function], images: Array
) -> tuple[Array, Callable[[], object], dict[str, int]]:
    """What TVM's virtual machine computes, a function that has it compute, and its memory."""
    device = tvm.cuda()
    machine = RelaxProgram(program, functions, device)
    given = tvm.runtime.tensor(images, device)
    result: Array = machine(given).numpy().astype("float32")
    plan = memory_plan(machine.module)
    last = program.sizes[program.result]
    used = memory(program) | {"results": plan.after + last, "unshared": plan.before + last}
    return result, lambda: machine(given), used


def compiled(kernels: list[HopperKernel]) -> dict[HopperKernel, launching.Function]:
    """The functions of kernels, compiled where they are not kept; draws the progress."""
    many = len(kernels)
    with tempfile.TemporaryDirectory() as folder, launching.processes() as pool:
        libraries = launching.compile_all(kernels, pool, folder)
        try:
            for done, library in enumerate(as_completed(libraries.values())):
                progress(2 + done, many + 6, f"compiling, {done} of {many} kernels")
                library.result()
        except BaseException:  # the others are not waited for
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return {kernel: launching.load_library(path.result()) for kernel, path in libraries.items()}


def seconds_by_layer(on_gpu: launching.OnGpu) -> dict[str, float]:
    """Seconds of each node's launches, one launch after the other, by the name of the node."""
    found: dict[str, float] = {}
    for step, launch in zip(on_gpu.steps, on_gpu.launches, strict=True):
        timing = time_together({"launch": launch}, "graph", 3)["launch"]
        found[step.node] = found.get(step.node, 0.0) + timing.median
    return found


def memory(program: on_hopper.Program) -> dict[str, int]:
    """Bytes that a program takes, as `NetworkRun` has them."""
    sizes, (_, together) = program.sizes, program.places()
    images = sizes[program.given]
    return {
        "images": images,
        "weights": sum(array.nbytes for array in program.constants.values()),
        "results": together - images,
        "unshared": sum(sizes.values()) - images,
    }
