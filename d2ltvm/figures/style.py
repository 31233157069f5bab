"""One style for every picture.

Colours are the Okabe-Ito palette, which colour-blind readers can tell apart, and each series has a
marker and a dash of its own, so that a print in grey can be read too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

# Okabe and Ito, "Color Universal Design", 2008; black last, yellow left out: too pale on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# One colour a level of the hierarchy, in every picture of the book: light to dark, so that a print
# in grey shows which is inside which.
LEVELS = {"grid": "#F2F2F2", "block": "#BFE0F5", "warp": "#56B4E9", "thread": "#D55E00"}
MARKERS = "osD^vPX"
DASHES = ("-", "--", "-.", (0, (5, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)), "-")
SHEET = Path(__file__).with_name("book.mplstyle")
# What the style sheet sets, by name: for `plt.rc_context`, where something is to differ.
STYLE: Any = matplotlib.rc_params_from_file(SHEET, use_default_template=False)


@contextmanager
def page(
    figsize: tuple[float, float],
    rows: int = 1,
    columns: int = 1,
    note: str | None = None,
    grid: bool = False,
    **options: Any,
) -> Iterator[tuple[Figure, Any]]:
    """A figure of the book, shown when what is drawn on it is done.

    >>> with page((7, 4)) as (figure, axes):
    ...     _ = axes[0].plot([1, 2], [3, 4])

    Args:
        figsize: width and height in inches.
        rows, columns: of axes.
        note: a line of provenance, below the figure.
        grid: whether lines are drawn behind everything.
        options: anything else that `plt.subplots` takes.

    Yields:
        The figure, and its axes row by row, in one NumPy array.
    """
    _use_retina()
    with plt.rc_context({**STYLE, "axes.grid": grid}):
        figure, axes = plt.subplots(
            rows, columns, figsize=figsize, layout="constrained", squeeze=False, **options
        )
        yield figure, axes.ravel()
        if note:
            figure.supxlabel(note, fontsize=9, color="#555555", x=0.01, ha="left")
        plt.show()


def _use_retina() -> None:
    """Twice the pixels, where a notebook shows the figure."""
    try:
        from IPython import get_ipython
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:
        return
    if get_ipython() is not None:
        set_matplotlib_formats("retina")  # type: ignore[no-untyped-call]


def line(k: int) -> dict[str, Any]:
    """How curve k is drawn: a colour, a marker and a dash of its own."""
    return {
        "color": COLOURS[k % len(COLOURS)],
        "marker": MARKERS[k % len(MARKERS)],
        "linestyle": DASHES[k % len(DASHES)],
        "markersize": 5,
        "linewidth": 1.8,
    }


def behind(k: int) -> dict[str, Any]:
    """How curve k of another device is drawn: thin and broken, in the colour of its own curve k."""
    return {
        "color": COLOURS[k % len(COLOURS)],
        "linestyle": (0, (4, 3)),
        "linewidth": 1,
        "zorder": 1,
    }


def tint(k: int) -> tuple[float, ...]:
    """A pale shade: its lightness alternates, so that neighbours differ in grey too."""
    mix = (0.35, 0.62, 0.2)[k % 3]
    return tuple(1 - (1 - np.array(to_rgb(COLOURS[k % 6]))) * mix)


def dark(colour: str) -> bool:
    """Whether white text can be read on a colour better than black.

    >>> dark("#0072B2"), dark("#E69F00")
    (True, False)
    """
    return float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114))) < 0.45
