"""`python -m d2ltvm run`: a network on images, with its classes and the time of each layer."""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from d2ltvm.bench.progress import progress
from d2ltvm.bench.timing import time_together
from d2ltvm.compute.convolution import Array
from d2ltvm.errors import MissingError, shown
from d2ltvm.network import models
from d2ltvm.network.graph import Network
from d2ltvm.network.memory import memory_plan
from d2ltvm.network.model import compile_network
from d2ltvm.network.packed import lanes_here, pack_weights, packed_kernels
from d2ltvm.network.passes import prepare
from d2ltvm.network.report import FORMS, NetworkRun, as_dict, drawn, likeliest, table
from d2ltvm.network.weights import random_images, random_weights
from d2ltvm.system import devices, files

SMALLEST = 32  # below, an image has no pixel left when a network is through
# Means and deviations of ImageNet's images by channel, by which these networks expect them.
MEANS = (0.485, 0.456, 0.406)
DEVIATIONS = (0.229, 0.224, 0.225)
STEPS = ("graph", "weights", "kernels", "compiling", "running", "layers")
# What is said where nobody chose a target.
CHOSEN = {
    "cuda": "This ran on the GPU; --target llvm chooses the processor.",
    "llvm": "This ran on the processor: no H100 or H200 is found. --target cuda chooses one.",
}


def main(options: argparse.Namespace) -> int:
    """Run the command; its exit code, 1 where it cannot be done."""
    target = options.target
    try:
        if options.picture:  # before anything takes long
            _check_picture(options.picture)
        target = target or ("cuda" if devices.has_hopper() else "llvm")
        told = (options.network, options.batch, options.size, options.image)
        if target == "cuda":  # its kernels take a while to import
            from d2ltvm.network import run_on_hopper

            found = run_on_hopper.run(*told, by=options.by)
        else:
            found = run(*told)
    except (ValueError, MissingError, OSError) as error:
        lacking = isinstance(error, MissingError) and not options.target
        return _failed(f"{error}; --target llvm chooses the processor" if lacking else str(error))
    problem = None
    try:
        if options.picture:
            files.write(options.picture, drawn(found, Path(options.picture).suffix))
    except OSError as error:  # what was measured is shown all the same
        problem = str(error)
    if options.json:
        print(json.dumps({"target": target, **as_dict(found)}, indent=2))
    else:
        print(table(found) if options.target else f"{CHOSEN[target]}\n{table(found)}")
    return _failed(problem) if problem else 0


def _check_picture(path: str) -> None:
    """Refuse a file that no picture can be written into.

    Raises:
        ValueError: its suffix is none of a picture's.
        OSError: its folder is not there.
    """
    if Path(path).suffix.lower() not in FORMS:
        raise ValueError(f"picture is {shown(path)}; expected a name with {' or '.join(FORMS)}")
    Path(path).resolve().parent.stat()


def _failed(reason: str) -> int:
    progress(1, 1, "")
    print(f"python -m d2ltvm run: {reason}", file=sys.stderr)
    return 1


def run(name: str, batch: int = 1, size: int = models.SIZE, image: str | None = None) -> NetworkRun:
    """Run a network on the processor. What was compiled once is kept on disk.

    Args:
        name: one of `models.MODELS`.
        batch: how many images.
        size: their rows and columns.
        image: a file with a picture, which all images show then; random ones without it.

    Raises:
        ValueError: one of them is not as above, or the file is no picture.
        OSError: the file cannot be read.
    """
    fused, weights, images = prepared(name, batch, size, image)
    lanes = lanes_here()
    kernels, weights = packed_kernels(fused, lanes), pack_weights(fused, weights, lanes)
    progress(3, len(STEPS), STEPS[3])
    model = compile_network(fused, weights, kernels, keep=True)
    progress(4, len(STEPS), STEPS[4])
    result = model(images)
    timing = time_together({"run": model.bind(images)}, "host")["run"]
    progress(5, len(STEPS), STEPS[5])
    seconds = model.seconds_by_layer(images)
    progress(6, len(STEPS), "")
    layers = {node.name: seconds[node.name] for node in fused if node.name in seconds}
    device = devices.describe_processor()["name"]
    plan = memory_plan(model.module)
    memory = {
        "images": images.nbytes,
        "weights": sum(array.nbytes for array in weights.values()),
        "results": plan.after + result.nbytes,
        "unshared": plan.before + result.nbytes,
    }
    return NetworkRun(fused, device, "float32", *likeliest(result), timing, layers, memory)


def prepared(
    name: str, batch: int, size: int, image: str | None
) -> tuple[Network, dict[str, Array], Array]:
    """What every target runs: a network after the passes, its weights, and images, float32."""
    progress(0, len(STEPS), STEPS[0])
    network, images = given(name, batch, size, image)
    progress(1, len(STEPS), STEPS[1])
    fused, weights = prepare(network, random_weights(network))
    progress(2, len(STEPS), STEPS[2])
    return fused, weights, images


def given(name: str, batch: int, size: int, image: str | None) -> tuple[Network, Array]:
    """The network and its images, float32, of what the command is told: see `run`."""
    if size < SMALLEST:
        raise ValueError(f"size is {size}; expected at least {SMALLEST}")
    network = models.load(name, batch, size)
    return network, random_images(batch, size) if image is None else picture(image, batch, size)


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
