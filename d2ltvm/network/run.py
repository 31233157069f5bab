"""`python -m d2ltvm run`: a network on images, with its classes and the time of each layer."""

import argparse
import json
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from d2ltvm.bench.progress import progress
from d2ltvm.bench.timing import Timing, time_together
from d2ltvm.compute.convolution import Array
from d2ltvm.errors import MissingError, shown
from d2ltvm.network import models
from d2ltvm.network.graph import Network
from d2ltvm.network.memory import memory_plan
from d2ltvm.network.model import compile_network
from d2ltvm.network.packed import lanes_here, pack_weights, packed_kernels
from d2ltvm.network.passes import prepare
from d2ltvm.network.weights import random_images, random_weights
from d2ltvm.system import devices

TOP = 5
SMALLEST = 32  # below, an image has no pixel left when a network is through
# Means and deviations of ImageNet's images by channel, by which these networks expect them.
MEANS = (0.485, 0.456, 0.406)
DEVIATIONS = (0.229, 0.224, 0.225)
STEPS = ("graph", "weights", "kernels", "compiling", "running", "layers")


@dataclass(frozen=True)
class Run:
    """What came of running a network.

    Attributes:
        network: as it was run.
        device: what it was run on.
        classes: for each image the numbers of its classes, the likeliest first.
        values: what the last layer gives for them.
        timing: seconds for all images.
        layers: seconds by layer, in the order of the network.
        memory: bytes that are allocated, by what for: 'images', 'weights', and 'results', which
            share memory by TVM's plan; and 'unshared', what results would take if they did not.
    """

    network: Network
    device: str
    classes: list[list[int]]
    values: list[list[float]]
    timing: Timing
    layers: dict[str, float]
    memory: dict[str, int]

    @property
    def peak(self) -> int:
        """Bytes that are allocated while the network runs, by the plan."""
        return sum(self.memory[name] for name in ("images", "weights", "results"))


def main(options: argparse.Namespace) -> int:
    """Run the command; its exit code, 1 where it cannot be done."""
    try:
        found = run(options.network, options.batch, options.size, options.image)
    except (ValueError, MissingError, OSError) as error:
        progress(len(STEPS), len(STEPS), "")
        print(f"python -m d2ltvm run: {error}", file=sys.stderr)
        return 1
    print(json.dumps(as_dict(found), indent=2) if options.json else table(found))
    return 0


def run(name: str, batch: int = 1, size: int = models.SIZE, image: str | None = None) -> Run:
    """Run a network on the processor.

    Args:
        name: one of `models.MODELS`.
        batch: how many images.
        size: their rows and columns.
        image: a file with a picture, which all images show then; random ones without it.

    Raises:
        ValueError: one of them is not as above, or the file is no picture.
        OSError: the file cannot be read.
    """
    progress(0, len(STEPS), STEPS[0])
    if size < SMALLEST:
        raise ValueError(f"size is {size}; expected at least {SMALLEST}")
    network = models.load(name, batch, size)
    images = random_images(batch, size) if image is None else picture(image, batch, size)
    progress(1, len(STEPS), STEPS[1])
    fused, weights = prepare(network, random_weights(network))
    progress(2, len(STEPS), STEPS[2])
    lanes = lanes_here()
    kernels, weights = packed_kernels(fused, lanes), pack_weights(fused, weights, lanes)
    progress(3, len(STEPS), STEPS[3])
    model = compile_network(fused, weights, kernels)
    progress(4, len(STEPS), STEPS[4])
    result = model(images)
    timing = time_together({"run": model.bind(images)}, "host")["run"]
    progress(5, len(STEPS), STEPS[5])
    seconds = model.seconds_by_layer(images)
    progress(6, len(STEPS), "")
    order = np.argsort(-result, axis=1)[:, :TOP]
    values = np.take_along_axis(result, order, axis=1)
    layers = {node.name: seconds[node.name] for node in fused if node.name in seconds}
    device = devices.describe_processor()["name"]
    plan = memory_plan(model.module)
    memory = {
        "images": images.nbytes,
        "weights": sum(array.nbytes for array in weights.values()),
        "results": plan.after + result.nbytes,
        "unshared": plan.before + result.nbytes,
    }
    return Run(fused, device, order.tolist(), values.astype(float).tolist(), timing, layers, memory)


def picture(path: str, batch: int, size: int) -> Array:
    """A picture from a file as a network gets it: its middle square, of `size` rows and columns.

    Raises:
        ValueError: the file is no picture.
        OSError: it cannot be read.
    """
    import matplotlib.image

    try:
        pixels = matplotlib.image.imread(path)
    except (ValueError, SyntaxError, OSError) as error:
        if getattr(error, "errno", None) is not None:  # of the system: no such file, say
            raise
        raise ValueError(f"image is {shown(path)}; expected a file with a picture") from error
    grey = pixels.ndim == 2
    colours = np.repeat(pixels[:, :, None], 3, axis=2) if grey else pixels[:, :, :3]
    if colours.dtype == np.uint8:
        colours = colours / 255
    side = min(colours.shape[:2])
    top, left = ((n - side) // 2 for n in colours.shape[:2])
    where = np.arange(size) * side // size
    square = colours[top + where][:, left + where]
    normal = ((square - MEANS) / DEVIATIONS).astype("float32").transpose(2, 0, 1)
    return np.ascontiguousarray(np.broadcast_to(normal, (batch, *normal.shape)))


def table(found: Run) -> str:
    """The run as text."""
    network, timing = found.network, found.timing
    batch, _, height, width = network.input.size
    total = sum(found.layers.values())
    mib = {name: n / 2**20 for name, n in found.memory.items()}
    counts = network.multiply_adds()
    each = f"; {1e3 * timing.median / batch:.2f} ms an image" if batch > 1 else ""
    lines = [
        f"{network.name}, {batch} x {height} x {width}, float32, on {found.device}",
        "Weights are random: the classes mean nothing, the times do.",
        "",
        *(
            f"image {n}: classes " + ", ".join(f"{c} ({v:.3f})" for c, v in zip(*both, strict=True))
            for n, both in enumerate(zip(found.classes, found.values, strict=True))
        ),
        "",
        f"{1e3 * timing.median:.2f} ms, from {1e3 * timing.low:.2f} to "
        f"{1e3 * timing.high:.2f}{each}",
        f"memory by TVM's plan: {found.peak / 2**20:.1f} MiB; images {mib['images']:.1f}, weights "
        f"{mib['weights']:.1f}, results {mib['results']:.1f} ({mib['unshared']:.1f} if each had "
        "its own)",
        "",
        f"{'layer':40}{'result':>20}{'ms':>9}{'share':>7}{'GFLOPS':>8}",
    ]
    for name, seconds in found.layers.items():
        shape = " x ".join(map(str, network.shapes[name]))
        speed = f"{2e-9 * counts[name] / seconds:8.1f}" if name in counts else ""
        lines.append(f"{name:40}{shape:>20}{1e3 * seconds:9.3f}{seconds / total:7.1%}{speed}")
    overall = 2e-9 * sum(counts.values()) / total
    return "\n".join([*lines, f"{'all layers':60}{1e3 * total:9.3f}{1:7.1%}{overall:8.1f}"])


def as_dict(found: Run) -> dict[str, Any]:
    """The run as what JSON can hold; times in seconds."""
    return {
        "network": found.network.name,
        "images": list(found.network.input.size),
        "device": found.device,
        "classes": found.classes,
        "values": found.values,
        "seconds": vars(found.timing),
        "layers": found.layers,
        "bytes": {**found.memory, "peak": found.peak},
    }
