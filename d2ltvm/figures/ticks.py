"""What stands around curves: ticks, the ends of the axes, ceilings and the legend."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

Array = npt.NDArray[Any]
FloatPair = tuple[float, float]
Curve = tuple[Array, Array]  # x and y


def scales(axes: Axes, xscale: str, yscale: str, curves: list[Curve]) -> None:
    """Logarithmic axes with plain numbers; whole numbers on the x axis are powers of two here."""
    axes.set_xscale(xscale)
    axes.set_yscale(yscale)
    if xscale == "log" and all(np.issubdtype(x.dtype, np.integer) for x, _ in curves):
        axes.set_xscale("log", base=2)
        _powers_of_two(axes.xaxis, [x for x, _ in curves])
    elif xscale == "log":
        _plain(axes.xaxis, [x for x, _ in curves])
    if yscale == "log":
        _plain(axes.yaxis, [y for _, y in curves])


def _powers_of_two(axis: Axis, values: list[Array], most: int = 10) -> None:
    """At most ten ticks, the first of them at the smallest value; small ones are written out."""
    low, high = (round(math.log2(f(map(f, values)))) for f in (min, max))
    step = math.ceil((high - low + 1) / most)
    axis.set_major_locator(FixedLocator([2.0**p for p in range(low, high + 1, step)]))
    if low >= 0 and high < 10:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))


def _plain(axis: Axis, values: list[Array]) -> None:
    """Ticks at 1, 10, 100, written out, and at 2 and 5 too where there would be few of them."""
    smallest, largest = min(map(np.min, values)), max(map(np.max, values))
    steps = (1, 2, 5) if largest < 200 * smallest else (1,)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def limits(
    axes: Axes,
    xlim: FloatPair | None,
    ylim: FloatPair | None,
    yscale: str,
    ceilings: Sequence[tuple[float, str]],
) -> None:
    """The ends of both axes; a linear y axis begins at zero, and a ceiling has room above it."""
    if xlim:
        axes.set_xlim(xlim)
    if ylim:
        axes.set_ylim(ylim)
        return
    if yscale == "linear":
        axes.set_ylim(bottom=0)
    room = 1.1 if yscale == "linear" else 1.5
    axes.set_ylim(top=max([axes.get_ylim()[1], *(room * value for value, _ in ceilings)]))


def legend(axes: Axes, names: Sequence[str]) -> None:
    """Above the axes, where it covers no curve: few rows, as the longest name allows, and even."""
    fit = max(1, 66 // (max(map(len, names)) + 6))
    columns = math.ceil(len(names) / math.ceil(len(names) / fit))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.01), ncols=columns, borderaxespad=0)


def ceiling(axes: Axes, value: float, label: str) -> None:
    """A dotted line with its name above it, at the left."""
    axes.axhline(value, color="black", linestyle=":", linewidth=1.3)
    axes.annotate(
        label, (0, value), (4, 3), xycoords=("axes fraction", "data"),
        textcoords="offset points", ha="left", fontsize=10,
    )  # fmt: skip
