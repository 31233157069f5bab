"""From PyTorch's eager ResNet-50 to the book's launches, one change after the other, on a Hopper.

    python experiments/waterfall.py FOLDER [SECONDS] [BATCH,...] [searched]

writes waterfall.jsonl into a folder: a header, and a line for each number of images, with the
milliseconds of each step. All steps of a line are timed in turns, in one run; each has one change
more than the step before it. Beside them stand torch.compile and torch.compile with
mode="max-autotune-no-cudagraphs", in CUDA graphs as the steps from the fourth on. This one searches
for minutes; with `searched`, only the line that has it is made. The scores of each are compared
with those of float32.
"""

import dataclasses
import json
import os
import sys
import time
import traceback
from pathlib import Path

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "14")
sys.path.insert(0, str(Path(__file__).parent))
from networks import (
    REST,
    compiled_by_torch,
    our_graph,
    seconds,
    torch_graph,
    torch_module,
    without_weights,
)

from d2ltvm import network
from d2ltvm.hopper import tiles
from d2ltvm.network import launching, on_hopper, passes
from d2ltvm.network.graph import Activation, Conv2d, Dense, Flatten, Network

NAME = "resnet50"
BATCHES = (256, 1)


@dataclasses.dataclass(frozen=True)
class Late:
    """A kernel that begins when the one before has ended, whose blocks all wait for that anyway."""

    kernel: object

    takes = property(lambda self: self.kernel.takes)
    seconds = property(lambda self: self.kernel.seconds)

    def make(self):
        made = self.kernel.make()
        tags = [str(tag) for tag in made.attrs["tirx.kernel_launch_params"]]
        return made.with_attr(
            "tirx.kernel_launch_params", [tag for tag in tags if tag != tiles.DEPENDENT]
        )


def late(program):
    return program.with_kernels({kernel: Late(kernel) for kernel in program.kernels})


def with_relu(net):
    """A folded network whose convolutions apply the ReLU that follows them; additions stay."""
    nodes, stands = {}, {}
    for old in net:
        node = dataclasses.replace(old, inputs=tuple(stands[name] for name in old.inputs))
        before = nodes.get(node.inputs[0]) if node.inputs else None
        alone = before is not None and len(net.readers(old.inputs[0])) == 1
        if isinstance(old, Activation) and isinstance(before, Conv2d | Dense) and alone:
            node = dataclasses.replace(before, activation=old.activation)
        nodes[node.name] = node
        stands[old.name] = node.name
    return Network(net.name, tuple(nodes.values()))


class Pieces:
    """Convolutions and products by the book's kernels; what stands between them is a list of nodes.

    Attributes:
        steps: what is done, in order: launches, and nodes that PyTorch computes.
        constants: of the launches.
    """

    def __init__(self, net, weights):
        self.net, self.steps = net, []
        made = on_hopper._Steps(net, weights, on_hopper.check_sms(None), 1, False, False)
        for node in net.nodes[1:]:
            if isinstance(node, Conv2d | Dense | Flatten):
                many = len(made.steps)
                made.add(node)
                new = made.steps[many:]
                made.steps[many:] = [
                    dataclasses.replace(step, kernel=Late(step.kernel)) for step in new
                ]
                self.steps += made.steps[many:]
            else:
                made.names[node.name] = node.name
                self.steps.append(node)
        self.constants, self.names = made.constants, made.names

    kernels = property(lambda self: [s.kernel for s in self.steps if isinstance(s, on_hopper.Step)])

    def graph(self, functions, images):
        """All of it in a CUDA graph, and a function for the scores."""
        import torch
        import tvm_ffi
        from torch.nn import functional

        held = launching.upload(self.constants)
        values = {self.net.input.name: images.permute(0, 2, 3, 1).contiguous()}
        dtypes = {"float16": torch.float16, "float32": torch.float32}

        def value(name, shape, dtype):
            if name in held:
                return held[name]
            if name not in values or values[name].numel() != torch.Size(shape).numel():
                values[name] = torch.empty(shape, dtype=dtypes[dtype], device="cuda")
            return values[name].view(shape)

        def by_torch(node):
            """PyTorch's call for a node, in place where it can be, channels last."""
            x = values[self.names[node.inputs[0]]]
            match node.kind:
                case "Activation":
                    values[node.name] = x
                    return lambda: torch.relu_(x)
                case "Add":
                    other = values[self.names[node.inputs[1]]].view(x.shape)
                    values[node.name] = x
                    return lambda: x.add_(other)
                case "MaxPool2d":
                    given = (node.kernel, node.stride, node.padding)
                    y = functional.max_pool2d(x.permute(0, 3, 1, 2), *given).permute(0, 2, 3, 1)
                    values[node.name] = y = y.contiguous()
                    return lambda: y.copy_(
                        functional.max_pool2d(x.permute(0, 3, 1, 2), *given).permute(0, 2, 3, 1)
                    )
                case "GlobalAvgPool":
                    values[node.name] = y = x.mean((1, 2))
                    return lambda: torch.mean(x, (1, 2), out=y)
            raise ValueError(node.kind)

        calls, result = [], None
        for step in self.steps:
            if isinstance(step, on_hopper.Step):
                names = (*step.reads, step.writes)
                arrays = [value(n, *t) for n, t in zip(names, step.kernel.takes, strict=True)]
                calls.append(launching.bound_to(functions[step.kernel], arrays))
                result = arrays[-1]
            else:
                calls.append(by_torch(step))

        def call():
            for one in calls:
                one()

        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), torch.no_grad(), tvm_ffi.use_torch_stream():
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph), tvm_ffi.use_torch_stream():
            call()
        return graph.replay, lambda _used=(calls, values): result


def torch_unfused(net, weights, last):
    """The network as imported, as a module of PyTorch's in float16."""
    import torch
    from torch.nn import functional

    layout = torch.channels_last if last else torch.contiguous_format
    held = {}
    for name, array in weights.items():
        tensor = torch.from_numpy(array).to("cuda", torch.float16)
        held[name] = tensor.contiguous(memory_format=layout) if tensor.ndim == 4 else tensor

    def computed(node, x, *more):
        match node.kind:
            case "Conv2d":
                own = held[node.weight], held.get(node.bias)
                return functional.conv2d(x, *own, node.stride, node.padding, 1, node.groups)
            case "BatchNorm":
                told = [held[n] for n in (node.mean, node.variance, node.gamma, node.beta)]
                return functional.batch_norm(x, *told, eps=node.epsilon)
            case "Activation":
                return torch.relu_(x)
            case "Add":
                return x.add_(more[0])
            case "Dropout":
                return x
            case "Dense":
                return functional.linear(x, held[node.weight], held.get(node.bias))
        return without_weights(node, x)

    def module(x):
        values, left = {net.input.name: x}, {n.name: len(net.readers(n.name)) for n in net}
        for node in net.nodes[1:]:
            values[node.name] = computed(node, *[values[name] for name in node.inputs])
            for name in node.inputs:  # PyTorch's own modules forget what nothing reads any more
                left[name] -= 1
                if not left[name]:
                    del values[name]
        return values[net.output.name]

    return module


def called(module, images):
    """A module without a graph."""
    import torch

    def run():
        with torch.no_grad():
            result[:] = [module(images)]

    result = []
    run()
    return run, lambda: result[0]


class Steps:
    """All steps for so many images.

    Attributes:
        fused, weights: the network at the end, and its weights.
        pieces: by the step's name the networks of which PyTorch computes a part.
        programs: by the step's name those of which all is ours.
    """

    def __init__(self, batch):
        self.imported = network.load(NAME, batch)
        self.given = network.random_weights(self.imported)
        self.fused, self.weights = network.prepare(self.imported, self.given)
        self.folded = passes.fold_batch_norms(self.imported)
        relu = with_relu(self.folded)
        plain = on_hopper.program(self.fused, self.weights, measured=False)
        self.pieces = {
            "our convolutions": Pieces(self.folded, self.weights),
            "ReLUs in them": Pieces(relu, self.weights),
            "additions in them": Pieces(self.fused, self.weights),
        }
        self.programs = {
            "first layer with its pool, mean": late(plain),
            "early launches": plain,
            "measured plans": on_hopper.program(self.fused, self.weights),
        }

    @property
    def kernels(self):
        both = (*self.pieces.values(), *self.programs.values())
        return list(dict.fromkeys(kernel for one in both for kernel in one.kernels))

    def ways(self, functions, images):
        """By the step's name a function that makes its run and its result."""
        import torch

        last = images.contiguous(memory_format=torch.channels_last)
        first = images.contiguous(memory_format=torch.contiguous_format)
        norms = torch_unfused(self.imported, self.given, True)
        folded = torch_unfused(self.folded, self.weights, True)
        found = {
            "eager": lambda: called(torch_unfused(self.imported, self.given, False), first),
            "channels last": lambda: called(norms, last),
            "batch norms folded": lambda: called(folded, last),
            "one CUDA graph": lambda: torch_graph(folded, last),
        }
        for name, pieces in self.pieces.items():
            found[name] = lambda pieces=pieces: pieces.graph(functions, last)
        for name, program in self.programs.items():
            found[name] = lambda program=program: our_graph(program, functions, last)
        return found


def searched(net, weights, mode):
    """torch.compile in a mode, and a line on how long it took."""
    begin = time.time()
    compiled = compiled_by_torch((net, weights, None), mode)
    print(mode, f"{time.time() - begin:.0f} s", flush=True)
    return compiled


def measure(steps, functions, folder, modes):
    """Time the steps, and torch.compile in some modes, and write a line."""
    import torch

    torch._dynamo.reset()
    torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit = True, 0
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    net = steps.fused
    images = torch.randn(net.input.size, generator=torch.Generator().manual_seed(0)).half().cuda()
    with torch.no_grad():
        exact = torch_module(net, steps.weights, torch.float32)(images.float()).flatten(1)
    ways = steps.ways(functions, images)
    last = images.contiguous(memory_format=torch.channels_last)
    for name, mode in modes.items():
        ways[name] = lambda mode=mode: torch_graph(searched(net, steps.weights, mode), last)
    runs, errors, kept = {}, {}, []
    for name, make in ways.items():
        try:
            runs[name], result = make()
            kept.append(result)  # with what its graph uses
        except Exception:
            print(name, traceback.format_exc()[-1500:], flush=True)
            continue
        runs[name]()
        torch.cuda.synchronize()
        scores = result().float().reshape(exact.shape)
        size = exact.square().mean().sqrt()
        errors[name] = round(float(((scores - exact).abs().max() / size).item()), 5)
    line = {"network": NAME, "batch": net.input.size[0], "modes": list(modes)}
    line |= {"ms": seconds(runs, REST), "sustained": seconds(runs, 0) if modes else {}}
    line |= {"errors": errors}
    print(json.dumps(line), flush=True)
    with open(Path(folder, "waterfall.jsonl"), "a") as file:
        file.write(json.dumps(line) + "\n")


def main():
    import torch

    from d2ltvm.system import devices

    folder, end = sys.argv[1], time.time() + float((sys.argv[2:] or [600])[0])
    batches = [int(b) for b in sys.argv[3].split(",")] if sys.argv[3:] else BATCHES
    device = devices.describe_device()
    Path(folder, "waterfall.jsonl").write_text(json.dumps({"device": device}, default=str) + "\n")
    all_steps = {batch: Steps(batch) for batch in batches}
    kernels = dict.fromkeys(k for steps in all_steps.values() for k in steps.kernels)
    with launching.processes() as pool:
        libraries = {k: p.result() for k, p in launching.compile_all(kernels, pool).items()}
    functions = {kernel: launching.load_library(path) for kernel, path in libraries.items()}
    print(len(kernels), "kernels", round(end - time.time()), "s left", flush=True)
    modes = {"torch.compile": "default", "torch.compile, searched": "max-autotune-no-cudagraphs"}
    for steps in all_steps.values() if sys.argv[4:] != ["searched"] else ():
        if time.time() < end:
            measure(steps, functions, folder, {})
            torch.cuda.empty_cache()
    for steps in all_steps.values():
        if time.time() < end:
            measure(steps, functions, folder, modes)


if __name__ == "__main__":
    main()
