"""What comes of running a network: classes, times and bytes, as a table, JSON or a picture."""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from d2ltvm.bench.timing import Timing
from d2ltvm.compute.convolution import Array
from d2ltvm.network.graph import Conv2d, Network, Node

TOP = 5  # classes of an image
SHOWN = 8  # images whose classes are shown
# How a table says the time of a layer, and the multiplications and additions in it.
UNITS = {"float32": ("ms", 1e3, "GFLOPS", 1e-9), "float16": ("µs", 1e6, "TFLOPS", 1e-12)}
FORMS = (".png", ".svg")  # of pictures
# What nodes of a kind are called in a picture, and the number of their colour.
KINDS = {
    "Conv2d": ("convolution", 0),
    "depthwise": ("depthwise convolution", 5),
    "Dense": ("dense layer", 2),
    "MaxPool2d": ("max pooling", 3),
    "GlobalAvgPool": ("mean", 1),
}


@dataclass(frozen=True)
class NetworkRun:
    """What came of running a network.

    Attributes:
        network: as it was run.
        device: what it was run on.
        dtype: of images, weights and results: 'float32', or 'float16'.
        classes: for each image the numbers of its classes, the likeliest first.
        values: what the last layer gives for them.
        timing: seconds for all images.
        layers: seconds by layer, in the order of the network.
        memory: bytes that are allocated, by what for: 'images', 'weights', and 'results', which
            share memory by a plan; and 'unshared', what results would take if they did not.
        remark: what to know of the times of layers, or nothing.
    """

    network: Network
    device: str
    dtype: str
    classes: list[list[int]]
    values: list[list[float]]
    timing: Timing
    layers: dict[str, float]
    memory: dict[str, int]
    remark: str = ""

    @property
    def peak(self) -> int:
        """Bytes that are allocated while the network runs, by the plan."""
        return sum(self.memory[name] for name in ("images", "weights", "results"))


def likeliest(result: Array) -> tuple[list[list[int]], list[list[float]]]:
    """The numbers of the likeliest classes of each image, and what the last layer gives for them.

    >>> likeliest(np.array([[0.5, 2.0, 1.0]]))
    ([[1, 2, 0]], [[2.0, 1.0, 0.5]])
    """
    order = np.argsort(-result, axis=1)[:, :TOP]
    values = np.take_along_axis(result, order, axis=1)
    return order.tolist(), values.astype(float).tolist()


def table(found: NetworkRun) -> str:
    """The run as text."""
    network, timing = found.network, found.timing
    batch, _, height, width = network.input.size
    total = sum(found.layers.values())
    mib = {name: n / 2**20 for name, n in found.memory.items()}
    counts = network.multiply_adds()
    unit, per, speeds, flop = UNITS[found.dtype]
    each = f"; {1e3 * timing.median / batch:.3g} ms an image" if batch > 1 else ""
    classes = [
        f"image {n}: classes " + ", ".join(f"{c} ({v:.3f})" for c, v in zip(*both, strict=True))
        for n, both in enumerate(zip(found.classes, found.values, strict=True))
    ]
    if batch > SHOWN:
        classes[SHOWN:] = [f"and {batch - SHOWN} more"]
    lines = [
        f"{network.name}, {batch} x {height} x {width}, {found.dtype}, on {found.device}",
        "Weights are random: the classes mean nothing, the times do.",
        "",
        *classes,
        "",
        f"{1e3 * timing.median:.2f} ms, from {1e3 * timing.low:.2f} to "
        f"{1e3 * timing.high:.2f}{each}",
        f"memory, planned: {found.peak / 2**20:.1f} MiB; images {mib['images']:.1f}, weights "
        f"{mib['weights']:.1f}, results {mib['results']:.1f} ({mib['unshared']:.1f} if each had "
        "its own)",
        "",
        f"{'layer':40}{'result':>20}{unit:>9}{'share':>7}{speeds:>8}",
    ]
    for name, seconds in found.layers.items():
        shape = " x ".join(map(str, network.shapes[name]))
        speed = f"{2 * flop * counts[name] / seconds:8.1f}" if name in counts else ""
        lines.append(f"{name:40}{shape:>20}{per * seconds:9.3f}{seconds / total:7.1%}{speed}")
    overall = 2 * flop * sum(counts.values()) / total
    lines.append(f"{'all layers':60}{per * total:9.3f}{1:7.1%}{overall:8.1f}")
    return "\n".join([*lines, *([found.remark] if found.remark else [])])


def drawn(found: NetworkRun, form: str) -> bytes:
    """The time of each layer as a bar, in the order of the network: a picture as a file holds it.

    Args:
        found: the run.
        form: one of `FORMS`.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    from d2ltvm.figures import style

    network, names = found.network, list(found.layers)
    batch, _, height, width = network.input.size
    unit, per, *_ = UNITS[found.dtype]
    times = [per * seconds for seconds in found.layers.values()]
    looks = [_look(network[name]) for name in names]
    whole, together = 1e3 * found.timing.median, 1e3 * sum(found.layers.values())
    with rc_context({**style.STYLE, "axes.grid.axis": "x"}):
        # No window, on any machine: pyplot would ask for one.
        figure = Figure(figsize=(7.5, 1.7 + 0.2 * len(names)), layout="constrained")
        axes = figure.subplots()
        places = range(len(names))
        colours = [style.COLOURS[colour] for _, colour in looks]
        bars = axes.barh(places, times, color=colours, height=0.75)
        written = [f"{time:,.0f}" if time >= 100 else f"{time:.3g}" for time in times]
        axes.bar_label(bars, written, padding=3, fontsize=8)
        axes.set_yticks(places, names, fontsize=8)
        axes.tick_params(left=False)
        axes.set(ylim=(len(names) - 0.4, -0.6), xlim=(0, 1.12 * max(times)))
        axes.set_xlabel(f"time of a layer, {unit}; their sum is {together:,.2f} ms")
        entries = [Patch(color=style.COLOURS[k], label=text) for text, k in dict.fromkeys(looks)]
        corner: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderpad": 0.2}
        corner |= {"fontsize": 9, "handlelength": 1, "columnspacing": 1.2}
        axes.legend(handles=entries, ncols=len(entries), **corner)
        figure.suptitle(
            f"{network.name}, {batch} image{'s' if batch > 1 else ''} of {height} x {width}, "
            f"{found.dtype}: {whole:,.2f} ms as a whole\non {found.device}",
            fontsize=11,
        )
        if found.remark:
            figure.supxlabel(found.remark, fontsize=8, color="#555555", x=0.01, ha="left")
        held = io.BytesIO()
        figure.savefig(held, format=form.lower().removeprefix("."), dpi=150)
    return held.getvalue()


def _look(node: Node) -> tuple[str, int]:
    """How a picture calls what a node is, and the number of its colour."""
    depthwise = isinstance(node, Conv2d) and node.groups > 1
    return KINDS.get("depthwise" if depthwise else node.kind, ("other", 6))


def as_dict(found: NetworkRun) -> dict[str, Any]:
    """The run as what JSON can hold; times in seconds."""
    return {
        "network": found.network.name,
        "images": list(found.network.input.size),
        "device": found.device,
        "dtype": found.dtype,
        "classes": found.classes,
        "values": found.values,
        "seconds": vars(found.timing),
        "layers": found.layers,
        "bytes": {**found.memory, "peak": found.peak},
    }
