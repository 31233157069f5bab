"""Pictures of who touches what: threads, requests of a warp, elements."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from d2ltvm.figures import style

Array = np.ndarray[Any, Any]
Grid = list[list[Any]]  # row by row the owner of each square; None for nobody


class Request(Protocol):
    """What `draw_requests` draws: a `d2ltvm.analysis.traffic.Request`."""

    @property
    def scope(self) -> str: ...
    @property
    def first(self) -> Mapping[int, int]: ...
    @property
    def width(self) -> int: ...
    @property
    def cost(self) -> int: ...


def draw_threads(
    panels: Mapping[str, Any],
    columns: int | None = None,
    what: str = "thread",
    note: str | None = None,
) -> None:
    """Draw who touches which element: a row of small squares, numbered and shaded by owner.

    >>> d2ltvm.draw_threads({"continuous": [0, 0, 1, 1], "alternate": [0, 1, 0, 1]})

    Args:
        panels: for each picture the owner of every element, in the order of memory: a number, or
            a tuple such as (block, thread), of which the first decides the shade. A sequence, or
            a 2-D array for a matrix.
        columns: elements in a row of a picture; by default all of them, or the matrix's own.
        what: who owns an element; stands in the legend line.
        note: a line below the figure.

    Raises:
        ValueError: a picture is empty.
    """
    grids = {title: _grid(title, owner, columns) for title, owner in panels.items()}
    rows = sum(len(g) for g in grids.values())
    wide = max(len(g[0]) for g in grids.values())
    cell = min(0.42, 7 / wide)
    height = cell * rows + 0.42 * len(grids) + 0.3
    owners = {o for g in grids.values() for row in g for o in row if o is not None}
    shade = {first: k for k, first in enumerate(sorted({*map(_first, owners)}))}
    heights = [len(g) for g in grids.values()]
    with style.page((7, height), len(grids), note=note, height_ratios=heights) as (_, all_axes):
        for axes, (title, grid) in zip(all_axes, grids.items(), strict=True):
            _squares(axes, grid, shade, wide)
            axes.set_title(f"{title} (number: {what})", loc="left", fontsize=11)


def draw_requests(requests: Mapping[str, Request], rows: int = 32, note: str | None = None) -> None:
    """Draw where in memory the lanes of a warp find what they ask for: a square for each word.

    A row is 128 bytes, which is four sectors of global memory, or one word of each of the 32 banks
    of shared memory. The number is a lane's; words that nobody asks for are left white, and rows
    without any are left out. Words one above the other are in the same bank.

    >>> sch = d2ltvm.schedules.vectorized(1024)
    >>> d2ltvm.draw_requests({"four floats each": d2ltvm.warp_request(sch, "A")})

    Args:
        requests: a `d2ltvm.analysis.traffic.Request` by title.
        rows: how many rows to draw at most of each.
        note: a line below the figure.

    Raises:
        ValueError: no lane asks for anything.
    """
    whole = {title: _words(title, request) for title, request in requests.items()}
    grids = {title: grid[:rows] for title, grid in whole.items()}
    high = 7 / 32 * sum(len(grid) for grid in grids.values()) + 0.75 * len(grids)
    heights = [len(grid) + 1 for grid in grids.values()]
    with style.page((7, high), len(grids), note=note, height_ratios=heights) as (_, all_axes):
        for axes, (title, grid) in zip(all_axes, grids.items(), strict=True):
            _squares(axes, grid, {lane: lane // 8 for lane in range(32)}, 32, size=6.5)
            shared = requests[title].scope == "shared"
            thin = {"color": "#cccccc", "linewidth": 0.6, "zorder": 0}
            axes.vlines(np.arange(33) - 0.03, 0, len(grid), **thin)
            for x in range(0, 33, 32 if shared else 8):
                axes.axvline(x - 0.03, color="black", linewidth=1.4)
            cost = _counted(requests[title].cost, "wavefront" if shared else "sector")
            many = len(whole[title])
            cut = f"; first {rows} of {many} rows" if many > rows else ""
            axes.set_title(f"{title}: {cost}{cut}", loc="left", fontsize=11)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def draw_touched(panels: Mapping[str, Any], note: str | None = None) -> None:
    """Draw which elements of tensors are touched, side by side: the darker, the more often.

    >>> sch = d2ltvm.schedules.vectorized(1024)
    >>> d2ltvm.draw_touched({"A": d2ltvm.touched(sch, "A"), "B": d2ltvm.touched(sch, "B")})

    Args:
        panels: for each picture how often every element is touched: an array of one or two
            dimensions, such as `d2ltvm.touched` returns it.
        note: a line below the figure.

    Raises:
        ValueError: a picture has more dimensions, or none of its elements is touched.
    """
    grids = {title: np.atleast_2d(counts) for title, counts in panels.items()}
    for title, grid in grids.items():
        if grid.ndim != 2 or not grid.any():
            raise ValueError(
                f"{title!r} has shape {grid.shape}; expected a matrix, some of it touched"
            )
    with style.page((7, 7 / len(grids) + 0.6), 1, len(grids), note=note) as (_, all_axes):
        for axes, (title, grid) in zip(all_axes, grids.items(), strict=True):
            counts = grid[grid > 0]
            most = 1.4 * int(counts.max())  # so that the darkest is not too dark
            axes.imshow(grid, cmap="Blues", vmin=0, vmax=most, interpolation="nearest")
            axes.set_title(
                f"{title}: {counts.size:,} elements,\neach {_times(counts)}", fontsize=10
            )
            axes.set(xlabel="column", ylabel="row")
            axes.spines[["top", "right"]].set_visible(True)


def _times(counts: Array) -> str:
    """How often, in words: 'once', '3 times', '1 to 4 times'."""
    fewest, most = int(counts.min()), int(counts.max())
    if most == 1:
        return "once"
    return f"{most} times" if fewest == most else f"{fewest} to {most} times"


def _grid(title: str, owner: Any, columns: int | None) -> Grid:
    if isinstance(owner, np.ndarray) and owner.ndim == 2:
        return [list(row) for row in owner]
    owner = list(owner)
    if not owner:
        raise ValueError(f"panels[{title!r}] is empty; expected one owner for each element")
    columns = columns or len(owner)
    rows = [owner[k : k + columns] for k in range(0, len(owner), columns)]
    rows[-1] += [None] * (columns - len(rows[-1]))
    return rows


def _first(owner: Any) -> Any:
    return owner[0] if isinstance(owner, tuple) else owner


def _words(title: str, request: Request) -> Grid:
    """Lanes by row of 32 words and word in it; None where nobody asks."""
    if not request.first:
        raise ValueError(f"requests[{title!r}] has no lane that asks; expected one or more")
    found: dict[int, dict[int, int]] = {}
    for lane, first in request.first.items():
        for word in range(first // 4, (first + request.width - 1) // 4 + 1):
            found.setdefault(word // 32, {}).setdefault(word % 32, lane)
    return [[row.get(word) for word in range(32)] for _, row in sorted(found.items())]


def _squares(axes: Axes, grid: Grid, shade: Mapping[Any, int], wide: int, size: float = 9) -> None:
    for y, row in enumerate(grid):
        for x, owner in enumerate(row):
            if owner is None:
                continue
            tint, text = style.tint(shade[_first(owner)]), str(owner).strip("()").replace(" ", "")
            axes.add_patch(Rectangle((x, y), 0.94, 0.94, fc=tint, ec="black", lw=0.6))
            axes.text(x + 0.47, y + 0.5, text, ha="center", va="center", fontsize=size)
    axes.set(xlim=(-0.1, wide + 0.1), ylim=(len(grid) + 0.05, -0.1), aspect="equal")
    axes.axis("off")
