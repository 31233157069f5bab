"""Pictures of a network: its nodes with what flows between them, and who lies in which memory."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle

from d2ltvm.errors import shown
from d2ltvm.figures import style

# A node: its name, what is written in its box, its colour, and the names of the nodes it reads,
# each with what is written beside the arrow.
Box = tuple[str, str, str, Mapping[str, str]]
KINDS = {"conv": "#BFE0F5", "light": "#FBE3A6", "given": "white"}


def draw_graph(
    panels: Mapping[str, Sequence[Box]],
    note: str | None = None,
    figsize: tuple[float, float] | None = None,
) -> None:
    """Draw nodes below each other, in panels side by side, with arrows from what each reads.

    >>> small = [("x", "x", "given", {}), ("r", "relu", "light", {"x": "3 MB"})]
    >>> d2ltvm.figures.draw_graph({"imported": small})

    Args:
        panels: by title the nodes from above to below. Each is (name, text, kind, inputs): the kind
            is 'conv', 'light' or 'given', and inputs has by the name of a node above it what stands
            beside the arrow.
        note: a line below the figure.
        figsize: width and height in inches.

    Raises:
        ValueError: there are no nodes, a kind is none of these, or a node reads one that is not
            above it.
    """
    if not panels or not all(panels.values()):
        raise ValueError(f"panels is {shown(panels)}; expected nodes by title")
    longest = max(map(len, panels.values()))
    size = figsize or (2.8 * len(panels), 0.62 * longest + 0.4)
    with style.page(size, 1, len(panels), note=note) as (_, all_axes):
        for axes, (title, boxes) in zip(all_axes, panels.items(), strict=True):
            _draw(axes, boxes)
            axes.set_title(title, fontsize=10)
            axes.set(xlim=(-1.25, 1.75), ylim=(longest - 0.5, -0.6))
            axes.axis("off")


def _draw(axes: Axes, boxes: Sequence[Box]) -> None:
    """One graph; an arrow that passes a node goes around it, on the right."""
    rows: dict[str, int] = {}
    for y, (name, text, kind, inputs) in enumerate(boxes):
        if kind not in KINDS:
            raise ValueError(f"{name} is {shown(kind)}; expected one of {', '.join(KINDS)}")
        for source, words in inputs.items():
            if source not in rows:
                raise ValueError(f"{name} reads {shown(source)}; expected a node above it")
            _arrow(axes, rows[source], y, words)
        rows[name] = y
        box = Rectangle((-1.15, y - 0.27), 1.9, 0.54, fc=KINDS[kind], ec="black", lw=0.7)
        axes.add_patch(box)
        axes.text(-0.2, y, text, ha="center", va="center", fontsize=8.5)


def _arrow(axes: Axes, above: int, below: int, words: str) -> None:
    look: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 9, "color": "#444444", "lw": 1}
    ends = ((-0.2, above + 0.27), (-0.2, below - 0.27))
    if below == above + 1:
        axes.add_patch(FancyArrowPatch(*ends, shrinkA=0, shrinkB=0, **look))
        axes.text(-0.12, above + 0.5, words, ha="left", va="center", fontsize=7.5)
        return
    far = 1.0
    axes.plot([0.75, far, far], [above, above, below - 0.08], color=look["color"], lw=1)
    ends = ((far, below - 0.08), (0.75, below - 0.08))
    axes.add_patch(FancyArrowPatch(*ends, shrinkA=0, shrinkB=0, **look))
    middle = (above + below) / 2
    axes.text(far + 0.06, middle, words, ha="left", va="center", fontsize=7.5)


def draw_storages(
    results: Sequence[tuple[int, int, int]], storages: Sequence[int], note: str | None = None
) -> None:
    """Draw which result lies in which storage, from the step that writes it to the last that reads.

    >>> d2ltvm.figures.draw_storages([(4096, 0, 1), (2048, 1, 2), (4096, 0, 3)], [4096, 2048])

    Args:
        results: for each result in the order of computation, its bytes, its storage's number, and
            the number of the last result that is computed from it.
        storages: bytes of each.
        note: a line below the figure.

    Raises:
        ValueError: there are no results, or one lies in a storage that is too small or not there,
            is read before it is written, or lies where another one is still kept.
    """
    if not results:
        raise ValueError("results is empty; expected bytes, a storage and a last reader for each")
    free = [0] * len(storages)
    for step, (nbytes, number, last) in enumerate(results):
        if not 0 <= number < len(storages) or nbytes > storages[number]:
            raise ValueError(f"a result has {nbytes} bytes in storage {number}; expected to fit")
        if not free[number] <= step < last:
            raise ValueError(
                f"result {step} is in storage {number} up to result {last}; expected after "
                f"{step}, and the storage to be free: it is kept up to {free[number] - 1}"
            )
        free[number] = last + 1
    with style.page((7, 0.42 * len(storages) + 1), note=note) as (_, (axes,)):
        for step, (nbytes, number, last) in enumerate(results):
            high = 0.8 * nbytes / storages[number]
            colour = style.COLOURS[number % len(style.COLOURS)]
            corner = (step + 0.06, number + 0.4 - high)
            axes.add_patch(
                Rectangle(corner, last - step + 0.88, high, fc=colour, ec="black", lw=0.4)
            )
        for number, size in enumerate(storages):
            frame = Rectangle((0, number - 0.4), max(free), 0.8, fc="none", ec="#888888", lw=0.6)
            axes.add_patch(frame)
            text = f"{number}: {size / 2**10:,.0f} KiB"
            axes.text(-0.3, number, text, ha="right", va="center", fontsize=8.5)
        axes.set(xlim=(-0.1, max(free)), ylim=(len(storages) - 0.5, -0.5), yticks=[])
        axes.set_xlabel("result, in the order of computation")
        for side in ("left", "right", "top"):
            axes.spines[side].set_visible(False)
