"""The hierarchy over a matrix: what a block owns, what a warp of it, what a thread of that."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from d2ltvm.figures import style

Array = npt.NDArray[Any]
WARP = 32


def draw_tiles(
    panels: Mapping[str, Any], thread: int = 0, zoom: bool = False, note: str | None = None
) -> None:
    """Draw a tensor with a block's elements in it, a warp's in these, and a thread's in these.

    The title of a picture says how many elements each of them owns.

    >>> sch = matmul_tiled(256, 256, 256)
    >>> d2ltvm.figures.draw_tiles({"matmul_tiled": d2ltvm.owners(sch, "C")})

    Args:
        panels: for each picture the thread that owns an element, -1 for none: a matrix, such as
            `d2ltvm.owners` returns it; a vector is drawn as one row.
        thread: whose elements are shown, and whose warp.
        zoom: whether only the block's part of the tensor is drawn.
        note: a line below the figure.

    Raises:
        ValueError: a picture has more than two dimensions, or `thread` owns nothing in it.
    """
    grids = {title: np.atleast_2d(owner) for title, owner in panels.items()}
    for title, grid in grids.items():
        if grid.ndim != 2 or not (grid == thread).any():
            raise ValueError(
                f"{title!r} has shape {grid.shape}; expected a matrix in which thread {thread} "
                "owns elements"
            )
    shown = {title: _cut(grid) if zoom else grid for title, grid in grids.items()}
    tall = max(grid.shape[0] / grid.shape[1] for grid in shown.values())
    high = min(5.4, max(0.8, 5.4 / len(shown) * tall)) + 1.1
    with style.page((5.4, high), 1, len(shown), note=note) as (figure, all_axes):
        for axes, (title, grid) in zip(all_axes, shown.items(), strict=True):
            _draw(axes, grid, thread)
            caption = _caption(title, grids[title], thread, "\n" if len(grids) > 1 else " ")
            axes.set_title(caption, fontsize=8.5, loc="left")
        patches = [Patch(fc=colour, ec="black", lw=0.5) for colour in style.LEVELS.values()]
        names = ["tensor", "block", f"warp {thread // WARP}", f"thread {thread}"]
        figure.legend(patches, names, ncols=4, fontsize=9, loc="outside upper left", frameon=False)


def draw_block(owner: Array, thread: int = 0) -> None:
    """Draw the grid of tiles over a matrix, and one block's tile with the number of each thread.

    >>> owner = np.full((12, 64), -1)
    >>> owner[:4, :16] = np.arange(64).reshape(4, 16)
    >>> d2ltvm.figures.draw_block(owner)

    Args:
        owner: for each element of a matrix the thread of the block that owns it, -1 for none, such
            as `d2ltvm.owners` returns it.
        thread: whose element and warp are coloured.

    Raises:
        ValueError: `owner` is no matrix, or `thread` owns nothing in it.
    """
    if owner.ndim != 2 or not (owner == thread).any():
        raise ValueError(
            f"owner has shape {owner.shape}; expected a matrix in which thread {thread} "
            "owns elements"
        )
    tile = _cut(owner)
    high = 4.7 * tile.shape[0] / tile.shape[1]  # inches: the tile fills the width
    sizes: dict[str, Any] = {"height_ratios": (1.4, high)}
    with style.page((5.4, high + 3), 2, **sizes) as (figure, both):
        whole, part = both
        _draw(whole, np.where(owner >= 0, WARP * (thread // WARP + 1), -1), -2)
        whole.set_title("the grid: all tiles of the matrix", loc="left", fontsize=10)
        _draw(part, tile, thread)
        part.set_title(
            "one block: its tile, with the numbers of its threads", loc="left", fontsize=10
        )
        for axes, grid, step in ((whole, owner, tile.shape), (part, tile, (1, 1))):
            rows, columns = (np.arange(0, n, s) for n, s in zip(grid.shape, step, strict=True))
            axes.set_yticks(rows, rows, fontsize=8)
            axes.set_xticks(columns, columns, fontsize=8)
        levels = list(style.LEVELS.values())
        for (row, column), number in np.ndenumerate(tile):
            ink = "white" if style.dark(levels[_levels(tile, thread)[row, column]]) else "black"
            at: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7.5, "color": ink}
            part.text(column, row, f"{number}", **at)
        names = ["grid", "block", f"warp {thread // WARP}", f"thread {thread}"]
        patches = [Patch(fc=colour, ec="black", lw=0.5) for colour in levels]
        figure.legend(patches, names, ncols=4, fontsize=9, loc="outside upper left", frameon=False)


def _levels(grid: Array, thread: int) -> Array:
    """0 outside of the block, 1 in it, 2 in the thread's warp, 3 in the thread."""
    block, warp = grid >= 0, (grid >= 0) & (grid // WARP == thread // WARP)
    return block.astype(int) + warp + (grid == thread)


def _draw(axes: Axes, grid: Array, thread: int) -> None:
    colours = ListedColormap(list(style.LEVELS.values()))
    axes.imshow(_levels(grid, thread), cmap=colours, vmin=0, vmax=3, interpolation="nearest")
    axes.set(xlabel="column", ylabel="row" if len(grid) > 1 else "")
    if len(grid) == 1:
        axes.set_yticks([])
    axes.spines[["top", "right"]].set_visible(True)
    _draw_blocks(axes, grid)
    if max(grid.shape) <= 40:  # single elements can be seen
        axes.set_xticks(np.arange(-0.5, grid.shape[1]), minor=True)
        axes.set_yticks(np.arange(-0.5, grid.shape[0]), minor=True)
        axes.grid(which="minor", color="white", linewidth=0.8)
        axes.tick_params(which="minor", length=0)


def _draw_blocks(axes: Axes, grid: Array) -> None:
    """Lines between blocks, where the block's elements are a rectangle without gaps."""
    tile = _cut(grid)
    if (tile < 0).any():
        return
    rows, columns = np.nonzero(grid >= 0)
    lines: dict[str, Any] = {"color": "#b0b0b0", "linewidth": 0.7}
    for start, size, end, draw in (
        (rows.min(), tile.shape[0], grid.shape[0], axes.axhline),
        (columns.min(), tile.shape[1], grid.shape[1], axes.axvline),
    ):
        for edge in range(int(start) % size, end, size):
            draw(edge - 0.5, **lines)


def _cut(grid: Array) -> Array:
    """The part of a matrix between the first and the last element that the block owns."""
    rows, columns = np.nonzero(grid >= 0)
    return grid[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]


def _caption(title: str, grid: Array, thread: int, between: str) -> str:
    levels = _levels(grid, thread)
    block, warp, own = (f"{int((levels >= k).sum()):,}" for k in (1, 2, 3))
    return f"{title}; elements:\nblock {block}, warp {warp},{between}thread {own}"
