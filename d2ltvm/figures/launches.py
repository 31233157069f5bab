"""Pictures for a first look at kernels: who takes which element, and what becomes of a schedule."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from d2ltvm.errors import shown
from d2ltvm.figures import style

Array = npt.NDArray[Any]


def draw_launch(
    blocks: Sequence[Any],
    threads: int,
    mark: tuple[int, int] | None = None,
    note: str | None = None,
) -> None:
    """Draw the blocks of a launch with their threads, and an arrow from each to its elements.

    >>> sch = d2ltvm.schedules.one_thread_each(14, nt=4)
    >>> blocks = [d2ltvm.owners(sch, "C", block=(b, 0, 0)) for b in range(4)]
    >>> d2ltvm.figures.draw_launch(blocks, threads=4, mark=(2, 1))

    Args:
        blocks: for each block the thread that owns each element of a vector, -1 for none, as
            `d2ltvm.owners` returns it.
        threads: in a block. Those without an element are drawn pale, with a word below them.
        mark: (block, thread) whose arrow is thick, with its element worked out below.
        note: a line below the figure.

    Raises:
        ValueError: there are no blocks, they are not vectors of one length, or `mark` owns nothing.
    """
    grids = [np.asarray(owner) for owner in blocks]
    if not grids or any(grid.ndim != 1 or grid.shape != grids[0].shape for grid in grids):
        raise ValueError(f"blocks is {shown(blocks)}; expected vectors of one length")
    places = {
        (b, t): np.flatnonzero(grid == t).tolist()
        for b, grid in enumerate(grids)
        for t in range(threads)
    }
    if mark is not None and not places.get(mark):
        raise ValueError(f"mark is {shown(mark)}; expected a block and a thread with an element")
    wide, count = len(grids) * threads, len(grids[0])
    shift = 0.5 * (wide - count) if count > wide else 0
    with style.page((5.4, 2.5), note=note) as (_, (axes,)):
        _cell(axes, -0.15, -2.75, wide + 0.3, 2.9, style.LEVELS["grid"])
        axes.text(0, -2.32, "grid: all blocks of the launch", va="center", fontsize=8.5)
        for b in range(len(grids)):
            _cell(axes, b * threads + 0.04, -1.95, threads - 0.08, 1.95, style.LEVELS["block"])
            axes.text(b * threads + 0.25, -1.5, f"block {b}", va="center", fontsize=8.5)
        for (b, t), elements in places.items():
            _thread(axes, b * threads + t, t, bool(elements))
            for e in elements:
                thick = (b, t) == mark
                ends = (e + shift + 0.5, 1.62), (b * threads + t + 0.5, -0.12)
                look = {"arrowstyle": "-|>", "lw": 2 if thick else 0.8, "shrinkA": 0, "shrinkB": 0}
                axes.annotate("", *ends, arrowprops={**look, "color": "black" if thick else "grey"})
        idle = [b * threads + t for (b, t), elements in places.items() if not elements]
        if idle:
            for x in idle:
                axes.plot([x + 0.5] * 2, [-0.12, 0.42], color="grey", ls=":", lw=1)
            at = (min(idle) + max(idle) + 1) / 2, 0.72
            axes.text(*at, "no element", ha="center", va="center", fontsize=8.5)
        for e in range(count):
            _cell(axes, e + shift + 0.06, 1.65, 0.88, 0.88, "white")
            axes.text(e + shift + 0.5, 2.09, str(e), ha="center", va="center", fontsize=8.5)
        axes.text(count + shift + 0.25, 2.09, "C[i]", va="center", fontsize=9, family="monospace")
        if mark is not None:
            (e, *_), (b, t) = places[mark], mark
            text = f"block {b}, thread {t}: i = {b} × {threads} + {t} = {e}"
            x = min(max(e + shift + 0.5, 4), wide - 4)
            axes.text(x, 3.1, text, ha="center", va="center", fontsize=9.5)
        axes.set(xlim=(-0.25, max(wide, count + 1.6) + 0.25), ylim=(3.45, -2.85))
        axes.axis("off")


def _thread(axes: Axes, x: float, number: int, busy: bool) -> None:
    """A thread with its number: pale and dashed where it has nothing to do."""
    colour = style.LEVELS["thread"] if busy else "white"
    _cell(axes, x + 0.16, -1.02, 0.68, 0.84, colour, "-" if busy else ":")
    ink = "white" if busy else "#555555"
    axes.text(x + 0.5, -0.6, str(number), ha="center", va="center", fontsize=8.5, color=ink)


def draw_first_step(panels: Mapping[str, Any], note: str | None = None) -> None:
    """Draw the element that each thread takes first, and the rows in which these elements lie.

    A matrix whose rows are what memory moves at once shows so how many pieces a step touches.

    >>> runs, turns = np.repeat(range(8), 8), np.tile(range(8), 8)
    >>> panels = {"runs": runs.reshape(8, 8), "turns": turns.reshape(8, 8)}
    >>> d2ltvm.figures.draw_first_step(panels)

    Args:
        panels: for each picture a matrix of the threads that own the elements.
        note: a line below the figure.

    Raises:
        ValueError: there is no picture, or one is not a matrix.
    """
    grids = {title: np.asarray(owner) for title, owner in panels.items()}
    if not grids or any(grid.ndim != 2 or not grid.size for grid in grids.values()):
        raise ValueError(f"panels is {shown(panels)}; expected matrices by title")
    with style.page((5.4, 3.1), 1, len(grids), note=note) as (figure, all_axes):
        owned: dict[str, Any] = {"facecolor": "white", "edgecolor": "black"}
        key = [
            Patch(color=style.LEVELS["thread"], label="asked for first"),
            Patch(color=_TOUCHED, label="moved with it"),
            Patch(label="not moved yet", **owned),
        ]
        figure.legend(handles=key, loc="outside lower left", ncols=3, fontsize=9)
        for axes, (title, grid) in zip(all_axes, grids.items(), strict=True):
            _, first = np.unique(grid, return_index=True)
            rows, columns = grid.shape
            touched = set((first // columns).tolist())
            for y, x in np.ndindex(grid.shape):
                now = y * columns + x in first
                fill = _TOUCHED if y in touched else "white"
                _cell(axes, x, y, 1, 1, style.LEVELS["thread"] if now else fill)
                ink = "white" if now else "black"
                axes.text(
                    x + 0.5, y + 0.52, str(grid[y, x]), ha="center", va="center", fontsize=8.5,
                    color=ink,
                )  # fmt: skip
            for y in range(rows):
                axes.add_patch(Rectangle((0, y), columns, 1, fill=False, ec="black", lw=1.6))
            axes.set_title(title, fontsize=9.5, loc="left")
            axes.set(xlim=(-0.1, columns + 0.1), ylim=(rows + 0.1, -0.1), aspect="equal")
            axes.axis("off")


_TOUCHED = "#FBE3A6"  # what is moved for the sake of some elements in it


def draw_flow(
    boxes: Mapping[str, tuple[float, float]],
    arrows: Sequence[tuple[str, str]],
    colours: Mapping[str, str] | None = None,
    figsize: tuple[float, float] = (5.4, 2.6),
    note: str | None = None,
    heads: Sequence[str] = (),
) -> None:
    """Draw boxes with text in them, and arrows from some to others.

    >>> d2ltvm.figures.draw_flow({"schedule": (0, 0), "CUDA": (1, 0)}, [("schedule", "CUDA")])

    Args:
        boxes: column and row of each text; rows count downwards.
        arrows: pairs of texts, (from, to).
        colours: of boxes that are not white.
        figsize: width and height in inches.
        note: a line below the figure.
        heads: what stands above the columns 0, 1, and so on.

    Raises:
        ValueError: there are no boxes, or an arrow leads from or to none.
    """
    if not boxes:
        raise ValueError("boxes is empty; expected a column and a row by text")
    with style.page(figsize, note=note) as (_, (axes,)):
        for text, (x, y) in boxes.items():
            _cell(axes, x - 0.38, y - 0.33, 0.76, 0.66, (colours or {}).get(text, "white"))
            axes.text(x, y, text, ha="center", va="center", fontsize=8.5)
        for ends in arrows:
            for name in ends:
                if name not in boxes:
                    raise ValueError(f"an arrow ends at {shown(name)}; expected one of the boxes")
            (x0, y0), (x1, y1) = (boxes[name] for name in ends)
            start = (x0 + 0.38, y0) if x0 != x1 else (x0, y0 + 0.33)
            stop = (x1 - 0.38, y1) if x0 != x1 else (x1, y1 - 0.33)
            axes.annotate("", stop, start, arrowprops={"arrowstyle": "-|>", "color": "#555555"})
        columns, rows = zip(*boxes.values(), strict=True)
        for x, head in enumerate(heads):
            axes.text(x, min(rows) - 0.55, head, ha="center", va="center", fontsize=8.5,
                      weight="bold")  # fmt: skip
        axes.set(
            xlim=(min(columns) - 0.42, max(columns) + 0.42),
            ylim=(max(rows) + 0.38, min(rows) - (0.75 if heads else 0.38)),
        )
        axes.axis("off")


def _cell(
    axes: Axes, x: float, y: float, wide: float, high: float, fill: str, edge: str = "-"
) -> None:
    axes.add_patch(Rectangle((x, y), wide, high, fc=fill, ec="black", lw=0.7, ls=edge))


def draw_reads(examples: Mapping[str, tuple[Any, tuple[int, ...], Any]], below: str = "") -> None:
    """Draw what elements of a result are computed from, for a few computations.

    >>> read = np.zeros((2, 3), bool)
    >>> read[1] = True
    >>> d2ltvm.figures.draw_reads({"the sum of a row": (read, (2,), (1,))})

    Args:
        examples: by the title of a picture: a matrix that says for each element of the input
            whether it is read, or how often, which is then written into it; the shape of the
            result, of one or two axes; and the index of the element that is marked in it, or a
            list of such.
        below: a line below each picture, such as what its axes are.

    Raises:
        ValueError: there is no example, an input is no matrix, or an index is not in its result.
    """
    if not examples:
        raise ValueError("examples is empty; expected one or more")
    rows = -(-len(examples) // 2)
    with style.page((5.4, 1.45 * rows + 0.3), rows, 2) as (figure, drawn):
        for axes in drawn:
            axes.axis("off")
        for axes, (title, example) in zip(drawn, examples.items(), strict=False):
            _draw_read(axes, title, *example)
            axes.text(0, -_height(example) - 0.25, below, va="top", fontsize=8.5)
        keys = [Patch(fc=colour, ec="black", lw=0.5) for colour in style.COLOURS[:2]]
        names = ["read, in the input", "computed, in the result"]
        figure.legend(keys, names, ncols=2, fontsize=9, loc="outside upper left")


def _height(example: tuple[Any, tuple[int, ...], Any]) -> int:
    return max(len(np.atleast_1d(example[0])), example[1][0])


def _draw_read(axes: Axes, title: str, read: Any, shape: tuple[int, ...], index: Any) -> None:
    """One picture of `draw_reads`: the input on the left, the result on the right."""
    given = np.asarray(read)
    result = np.zeros(shape, bool)
    indices = [index] if isinstance(index, tuple) else list(index)
    inside = all(
        len(one) == len(shape) and all(0 <= i < n for i, n in zip(one, shape, strict=True))
        for one in indices
    )
    if given.ndim != 2 or result.ndim not in (1, 2) or not inside:
        raise ValueError(
            f"{title!r} has an input of shape {given.shape}, a result of shape {shape} and the "
            f"index {index}; expected a matrix, one or two axes, and an index in them"
        )
    for one in indices:
        result[one] = True
    result = result.reshape(len(result), -1)
    right = given.shape[1] + 3
    for marked, left, colour in ((given, 0, style.COLOURS[0]), (result, right, style.COLOURS[1])):
        for (y, x), is_marked in np.ndenumerate(marked):
            _cell(axes, left + x, -y - 1, 1, 1, colour if is_marked else "white")
            if is_marked and marked.dtype != bool:
                middle: dict[str, Any] = {"ha": "center", "va": "center", "color": "white"}
                axes.text(left + x + 0.5, -y - 0.54, str(is_marked), fontsize=8.5, **middle)
    axes.annotate(
        "",
        (right - 0.3, -len(given) / 2),
        (given.shape[1] + 0.3, -len(given) / 2),
        arrowprops={"arrowstyle": "->", "lw": 1.2},
    )
    high, wide = max(len(given), len(result)), right + result.shape[1]
    axes.set_title(title, loc="left", fontsize=9)
    axes.set(xlim=(-0.2, max(15, wide) + 0.2), ylim=(-max(6, high) - 0.2, 0.2))
    axes.set(aspect="equal", anchor="NW")
