"""Draw how a number gets from a GPU into a sentence: book/_static/way_of_a_number.svg."""

import io
from typing import Any

import matplotlib
import prose_numbers

import book
from d2ltvm.figures import COLOURS
from d2ltvm.system import files

PICTURE = book.ROOT / "book" / "_static" / "way_of_a_number.svg"
NUMBER = 'rec("vector_add/bandwidth").at("twice four", 2**26)', ".2f"
BLUE, ORANGE, GREY = *COLOURS[:2], "#555555"


def steps() -> list[tuple[str, str]]:
    """What the boxes say, from the top: a name, and the thing itself."""
    expression, form = NUMBER
    return [
        ("A cell of a chapter", 'd2ltvm.measure("vector_add/bandwidth", bandwidth)'),
        ("The record, with device and date", "book/measurements/nvidia-h200/vector_add.json"),
        ("An expression behind the number", f"<!--= {expression}:{form} -->"),
        ("The sentence", f"… {prose_numbers.value(expression, form)} TB/s at 2²⁶ elements."),
    ]


ARROWS = ("make record, on a machine with the GPU", "d2ltvm.load_record", "make numbers")


def content() -> str:
    """What the picture shows, as text that is kept inside of it."""
    return "; ".join(f"{name}: {thing}" for name, thing in steps())


def main() -> None:
    """Write the picture."""
    matplotlib.use("Agg")
    # The same picture has the same bytes: no date, and no names drawn by lot.
    with matplotlib.rc_context({"svg.hashsalt": PICTURE.name}):
        picture = io.BytesIO()
        figure = drawn()
        figure.savefig(picture, format="svg", metadata={"Date": None, "Description": content()})
    files.write(PICTURE, picture.getvalue())


def drawn() -> Any:
    """The figure: boxes below each other, arrows between, and the test's way back."""
    from matplotlib import patches
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
    axes.set(xlim=(0, 8), ylim=(0.2, 4.6))
    axes.axis("off")
    for k, (name, thing) in enumerate(steps()):
        y = 3.9 - 1.2 * k
        colour = ORANGE if k == len(ARROWS) else BLUE
        axes.add_patch(
            patches.Rectangle(
                (0.1, y), 6.3, 0.62, facecolor="white", edgecolor=colour, linewidth=1.5
            )
        )
        axes.text(0.25, y + 0.43, name, fontsize=10, weight="bold", color=colour, va="center")
        axes.text(0.25, y + 0.17, thing, fontsize=9, family="monospace", va="center")
    for k, label in enumerate(ARROWS):
        y = 3.9 - 1.2 * k
        _arrow(axes, (1, y), (1, y - 0.56), GREY)
        axes.text(1.2, y - 0.29, label, fontsize=9, color=GREY, va="center")
    _arrow(axes, (6.42, 0.6), (6.42, 3.0), ORANGE, curve="arc3,rad=0.45")
    axes.text(7.15, 1.8, "a test\ncompares", fontsize=9, color=ORANGE, va="center")
    return figure


def _arrow(axes: Any, start: Any, end: Any, colour: str, curve: str = "arc3") -> None:
    style = {"arrowstyle": "-|>", "color": colour, "connectionstyle": curve, "linewidth": 1.3}
    axes.annotate("", xy=end, xytext=start, arrowprops=style)


if __name__ == "__main__":
    book.no_arguments(__doc__)
    main()
