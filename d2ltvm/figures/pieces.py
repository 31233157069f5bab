"""Pictures of `hopper.any_float32`: a row of a slot that is split where it is, and who reads it."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from d2ltvm.figures import style

SquareAt = tuple[int, int]  # row and column of a square


def draw_split_row(numbers: int = 64) -> None:
    """Draw a row of float32 in two boxes, the two threads that split it, and what they write there.

    >>> d2ltvm.figures.draw_split_row()

    Args:
        numbers: of the row, a multiple of 2.
    """
    half, box = numbers // 2, numbers * 2
    names = [f"{k * half} to {(k + 1) * half - 1}" for k in (0, 1)]
    with style.page((5.4, 3.5)) as (_, (axes,)):
        for k in (0, 1):
            at = 4.6 * k  # left end of a box
            fill = style.tint(k)
            _box(axes, (at, 0), 4, f"float32 {names[k]}", fill)
            axes.text(at + 2, -0.12, f"box {k}: {box} bytes", ha="center", fontsize=8)
            _box(axes, (at + 0.5, 2), 3, f"thread {k}", fill)
            for piece, name in enumerate(("high", "low")):
                x = 4.6 * piece + 2 * k
                _box(axes, (x, 4.3), 2, f"{name}\n{names[k]}", fill)
                _arrow(axes, (at + 1.2 + 1.6 * piece, 2.8), (x + 1, 4.25), "")
            _arrow(axes, (at + 2, 0.85), (at + 2, 1.95), f"reads {box}")
            axes.text(at + 2, 5.45, f"box {k}: {box} bytes", ha="center", fontsize=8)
        look = {"arrowstyle": "<|-|>", "lw": 1, "color": "black", "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (5.05, 2.4), (3.55, 2.4), arrowprops=look)
        axes.text(4.3, 2.22, "larger of\nboth maxima", ha="center", va="bottom", fontsize=7.5)
        axes.text(0.9, 3.5, f"four writes\nof {numbers} bytes", ha="right", va="center", fontsize=8)
        for y, words in ((0.4, "TMA\nbrings"), (4.7, "wgmma\nreads")):
            axes.text(-0.2, y, words, ha="right", va="center", fontsize=8.5)
        axes.set(xlim=(-1.3, 8.7), ylim=(5.6, -0.5))
        axes.axis("off")


def draw_places(
    panels: Mapping[str, Mapping[SquareAt, Any]], rows: Sequence[str], columns: int = 8
) -> None:
    """Draw side by side which place of which row each thread asks for.

    Places of a column share banks.

    >>> d2ltvm.figures.draw_places({"one thread": {(0, 3): 0}}, ["row 0"])

    Args:
        panels: for each picture the thread by (row, place).
        rows: names of the rows.
        columns: places of a row.
    """
    with style.page((5.4, 0.26 * len(rows) + 0.75), 1, len(panels), sharey=True) as (_, every):
        for axes, (title, places) in zip(every, panels.items(), strict=True):
            for y in range(len(rows)):
                for x in range(columns):
                    thread = places.get((y, x))
                    fill = "white" if thread is None else style.tint(thread % 2)
                    axes.add_patch(Rectangle((x, y), 1, 1, fc=fill, ec="#999999", lw=0.5))
                    words = "" if thread is None else thread
                    axes.text(x + 0.5, y + 0.5, words, ha="center", va="center", fontsize=8.5)
            axes.set(xlim=(-0.1, columns + 0.1), ylim=(len(rows) + 0.1, -0.1))
            axes.set_xlabel("place in a row", fontsize=9)
            axes.set_xticks([x + 0.5 for x in range(columns)], [str(x) for x in range(columns)])
            axes.set_yticks([y + 0.5 for y in range(len(rows))], rows)
            axes.tick_params(length=0, labelsize=8.5)
            axes.set_title(title, fontsize=9, loc="left")
            axes.spines[:].set_visible(False)


def _box(axes: Axes, at: tuple[float, float], wide: float, words: str, fill: Any) -> None:
    axes.add_patch(Rectangle(at, wide, 0.8, fc=fill, ec="black", lw=0.6))
    axes.text(at[0] + wide / 2, at[1] + 0.4, words, ha="center", va="center", fontsize=8.5)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], words: str) -> None:
    look = {"arrowstyle": "-|>", "lw": 1, "color": "black", "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=look)
    middle = (start[0] + end[0]) / 2 + 0.12, (start[1] + end[1]) / 2
    axes.text(*middle, words, va="center", fontsize=8)
