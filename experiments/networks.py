"""The networks of the zoo on a Hopper GPU, beside PyTorch: times, memory, errors.

    python experiments/networks.py FOLDER [SECONDS] [NETWORK,...] [BATCH,...]

writes networks.jsonl into a folder: a header, and a line for each network and number of images.
Each has the milliseconds of four programs, all captured into CUDA graphs and replayed in turns:
ours as launches, ours as called by TVM's virtual machine (Relax), PyTorch eager, and torch.compile
with frozen weights. Beside them: bytes of GPU memory that each took at most, with its weights once,
as PyTorch's allocator counts them (`vm` has memory of TVM's, which it does not count); and the
errors of the scores against PyTorch in float32. Five minutes on an H100 with 16 cores.

All networks are compiled at once, in processes of their own. Then one process at a time has the
GPU.
"""

import contextlib
import fcntl
import json
import multiprocessing as mp
import os
import statistics
import sys
import threading
import time
import traceback
from pathlib import Path

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")
BATCHES = (1, 32, 256)
# Programs to time: all of them, or some, with commas.
WAYS = os.environ.get("WAYS", "TVM,eager,compile,vm").split(",")
ROUNDS, REST = 7, 0.1  # seconds that the GPU rests before each round of a burst


def planned(name, batch):
    """The fused network for so many images, its weights, and our program."""
    from d2ltvm import network
    from d2ltvm.network import on_hopper

    imported = network.load(name)
    fused, weights = network.prepare(imported, network.random_weights(imported))
    at = fused.at(batch=batch)
    return at, weights, on_hopper.program(at, weights, measured=False)


def torch_module(net, weights, dtype):
    """The fused network as a module of PyTorch's, channels last."""
    import torch
    from torch.nn import functional

    last = torch.channels_last
    activations = {"": lambda y: y, "relu": torch.relu, "relu6": functional.relu6}

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, array in weights.items():
                tensor = torch.from_numpy(array).to("cuda", dtype)
                tensor = tensor.contiguous(memory_format=last) if tensor.ndim == 4 else tensor
                self.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))

        def forward(self, x):
            values = {net.input.name: x}
            for node in net.nodes[1:]:
                values[node.name] = self.computed(node, [values[name] for name in node.inputs])
            return values[net.output.name]

        def computed(self, node, given):
            x = given[0]
            match node.kind:
                case "Conv2d":
                    own = (getattr(self, node.weight), getattr(self, node.bias, None))
                    rest = (node.stride, node.padding, 1, node.groups)
                    y = functional.conv2d(x, *own, *rest)
                    return activations[node.activation](y + given[1] if given[1:] else y)
                case "Dense":
                    own = (getattr(self, node.weight), getattr(self, node.bias, None))
                    return activations[node.activation](functional.linear(x, *own))
            return without_weights(node, x)

    return Module().eval()


def without_weights(node, x):
    """PyTorch's result for a node that has no weights."""
    import torch
    from torch.nn import functional

    match node.kind:
        case "MaxPool2d":
            return functional.max_pool2d(x, node.kernel, node.stride, node.padding)
        case "GlobalAvgPool":
            return functional.adaptive_avg_pool2d(x, 1)
        case "Flatten":
            return torch.flatten(x, 1)
    raise ValueError(node.kind)


def peak_of(make):
    """What `make` returns, a function that replays and its result, and the most bytes it took."""
    import torch

    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    replay, result = make()
    replay()
    torch.cuda.synchronize()
    return replay, result, torch.cuda.max_memory_allocated() - before


def torch_graph(module, images):
    """A module's call in a CUDA graph of PyTorch's; libraries and compilers search before."""
    import torch

    x = images.clone(memory_format=torch.preserve_format)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(3):
            module(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        y = module(x)
    return graph.replay, lambda _used=(module, x): y  # what the graph reads is kept


def our_graph(program, functions, images):
    """Our launches in a CUDA graph."""
    from d2ltvm.network import launching

    on_gpu = launching.OnGpu(program, functions)
    on_gpu.images.copy_(images.permute(0, 2, 3, 1))
    return launching.captured(on_gpu.launch), lambda: on_gpu.result


def machine_graph(program, functions, images):
    """The same kernels, called by TVM's virtual machine, in a CUDA graph."""
    import torch
    import tvm
    import tvm_ffi

    from d2ltvm.network import launching
    from d2ltvm.network.relax_program import RelaxProgram

    machine = RelaxProgram(program, functions, tvm.cuda())
    x = tvm_ffi.from_dlpack(images.permute(0, 2, 3, 1).contiguous())
    kept = []

    def call():
        kept[:] = [machine(x)]  # the result of the last call stays where the graph writes it

    with tvm_ffi.use_torch_stream():
        call()
    torch.cuda.synchronize()
    replay = launching.captured(call)
    return replay, lambda _used=(machine, x): torch.from_dlpack(kept[0])


def seconds(runs, rest):
    """Medians of rounds in turns, in ms; with no rest, means over a second each."""
    import torch

    def timed(run, least):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        run()
        begin.record()
        run()
        end.record()
        end.synchronize()
        many = max(2, round(least / max(begin.elapsed_time(end) * 1e-3, 1e-6)))
        begin.record()
        for _ in range(many):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / many

    found = {name: [] for name in runs}
    for _ in range(ROUNDS if rest else 1):
        for name, run in runs.items():
            time.sleep(rest)
            if not rest:
                timed(run, 0.25)
            found[name].append(timed(run, 5e-3 if rest else 1.0))
    return {
        name: [round(f(ms), 5) for f in (statistics.median, min, max)] for name, ms in found.items()
    }


class Gpu:
    """A lock: one process at a time builds its graphs and times them."""

    def __init__(self, folder):
        self.file = open(Path(folder, ".gpu"), "w")  # noqa: SIM115 closed with the process

    def __enter__(self):
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_):
        fcntl.flock(self.file, fcntl.LOCK_UN)


def measure(name, batch, functions, compiled, fixed, folder):
    """Time a network; `compiled` is by torch.compile, and searched before."""
    import torch

    net, weights, program = fixed
    torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit = True, 0
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    images = torch.randn(net.input.size, generator=torch.Generator().manual_seed(0))
    images = images.half().cuda().contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        exact = torch_module(net, weights, torch.float32)(images.float()).flatten(1).cpu()
    ways = {
        "TVM": lambda: our_graph(program, functions, images),
        "eager": lambda: torch_graph(torch_module(net, weights, torch.float16), images),
        "compile": lambda: torch_graph(compiled, images),
        "vm": lambda: machine_graph(program, functions, images),
    }
    runs, memory, errors, same, kept = {}, {}, {}, {}, []
    for way, make in ((way, ways[way]) for way in WAYS):
        try:
            runs[way], result, memory[way] = peak_of(make)
            kept.append(result)  # with what its graph uses
        except Exception as error:
            print(name, batch, way, repr(error)[:300], flush=True)
            continue
        scores = result().float().flatten(1).cpu()
        size = exact.square().mean().sqrt()
        errors[way] = float(((scores - exact).abs().max() / size).item())
        same[way] = int((scores.argmax(1) == exact.argmax(1)).sum())
    line = {"network": name, "batch": batch, "launches": len(program.steps)}
    line["predicted"] = 1e3 * sum(step.kernel.seconds for step in program.steps)
    line |= {"ms": seconds(runs, REST), "sustained": seconds(runs, 0) if batch == 256 else {}}
    if "compile" in memory:
        memory["compile"] += sum(p.numel() * p.element_size() for p in compiled.parameters())
    line |= {"bytes": memory, "errors": errors, "same class": same}
    line["weights"] = sum(array.nbytes for array in program.constants.values())
    with open(Path(folder, "networks.jsonl"), "a") as file:
        file.write(json.dumps(line) + "\n")


def compiled_by_torch(fixed, mode="default"):
    """A network by torch.compile in one of its modes, which has searched."""
    import torch
    import torch._inductor.config

    torch._inductor.config.freezing = True
    net, weights, _ = fixed
    module = torch_module(net, weights, torch.float16)
    compiled = torch.compile(module, dynamic=False, mode=mode)
    x = torch.zeros(net.input.size, dtype=torch.float16, device="cuda")
    with torch.no_grad():
        compiled(x.contiguous(memory_format=torch.channels_last))
    torch.cuda.synchronize()
    return compiled


def worker(name, batches, folder, end, all_there):
    """Compile a network for all numbers of images; when all networks are there, time it."""
    from d2ltvm.network import launching

    ready = []
    try:
        for batch in batches:
            fixed = planned(name, batch)
            libraries = launching.compile_all(fixed[2].kernels, None)
            functions = {k: launching.load_library(path.result()) for k, path in libraries.items()}
            ready.append((batch, functions, compiled_by_torch(fixed), fixed))
            print(name, batch, "compiled", flush=True)
    except Exception:
        traceback.print_exc()
    with contextlib.suppress(threading.BrokenBarrierError):  # one of them has ended
        all_there.wait(max(1.0, end - time.time()))
    for given in ready:
        with Gpu(folder):
            if time.time() < end:
                try:
                    measure(name, *given, folder)
                except Exception:
                    traceback.print_exc()


def kernels_of(names, batches):
    """All kernels of all programs, each once."""
    return dict.fromkeys(k for n in names for b in batches for k in planned(n, b)[2].kernels)


def main():
    from d2ltvm.network import launching, models
    from d2ltvm.system import devices

    folder, end = sys.argv[1], time.time() + float((sys.argv[2:] or [600])[0])
    names = sys.argv[3].split(",") if sys.argv[3:] else list(models.MODELS)
    batches = [int(b) for b in sys.argv[4].split(",")] if sys.argv[4:] else BATCHES
    device = devices.describe_device()
    Path(folder, "networks.jsonl").write_text(json.dumps({"device": device}, default=str) + "\n")
    kernels = kernels_of(names, batches)
    with launching.processes() as pool:
        for path in launching.compile_all(kernels, pool).values():
            path.result()
    print(len(kernels), "kernels", flush=True)
    context = mp.get_context("spawn")
    barrier = context.Barrier(len(names))
    told = (batches, folder, end, barrier)
    workers = [context.Process(target=worker, args=(name, *told)) for name in names]
    for process in workers:
        process.start()
    for process in workers:
        process.join()


if __name__ == "__main__":
    main()
