"""A convolution as one draws it on a board: a pixel's window, what a tile reads, who owns what."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from d2ltvm.errors import shown
from d2ltvm.figures import style

Array = npt.NDArray[Any]
WARP = 32
# Of the image, of the kernel, and of the result.
IMAGE, KERNEL, RESULT = style.COLOURS[0], style.COLOURS[2], style.LEVELS["thread"]


def draw_window(
    x: Any, w: Any, p: int = 0, s: int = 1, at: Sequence[int] = (0, 0), note: str | None = None
) -> None:
    """Draw a convolution of one channel with its numbers, and the window of one pixel.

    >>> d2ltvm.figures.draw_window(np.arange(9).reshape(3, 3), np.eye(2, dtype=int), at=(0, 1))

    Args:
        x: an image, a square matrix of small integers.
        w: a kernel, likewise.
        p: zeros on each side of the image.
        s: stride.
        at: row and column of the pixel in the result.
        note: a line below the figure.

    Raises:
        ValueError: `x` or `w` is no square matrix, the kernel does not fit, or there is no such
            pixel.
    """
    image, kernel = _square("x", x), _square("w", w)
    n, k = len(image), len(kernel)
    o = _outputs(n, k, p, s)
    row, column = _inside("at", at, o)
    padded = np.pad(image, p)
    result = np.array(
        [[(padded[i : i + k, j : j + k] * kernel).sum() for j in range(0, o * s, s)]
         for i in range(0, o * s, s)]
    )  # fmt: skip
    wide, high = len(padded) + k + o + 3, len(padded) + 1.5
    with style.page((5.4, 5.4 / wide * high + 0.3), note=note) as (_, (axes,)):
        _numbers(axes, padded, (0, 0), IMAGE, (row * s, column * s, k), p)
        _numbers(axes, kernel, (len(padded) + 1.5, row * s), KERNEL, (0, 0, k))
        left = len(padded) + k + 3
        _numbers(axes, result, (left, p if o < len(padded) else 0), RESULT, (row, column, 1))
        middle = row * s + k / 2
        for place, sign in ((len(padded) + 0.75, "∗"), (left - 0.75, "=")):
            axes.text(place, middle, sign, ha="center", va="center", fontsize=15)
        for place, name, colour in (
            (p, "image X", IMAGE),
            (len(padded) + 1.5, "kernel K", KERNEL),
            (left, "result Y", RESULT),
        ):
            axes.text(place, -0.35, name, color=colour, fontsize=11, va="bottom", weight="bold")
        axes.set(xlim=(-0.15, wide + 0.15), ylim=(len(padded) + 0.15, -1.2), aspect="equal")
        axes.axis("off")


def draw_inputs(
    tiles: Mapping[str, Sequence[int]],
    n: int,
    k: int,
    p: int = 0,
    s: int = 1,
    level: str = "thread",
    note: str | None = None,
) -> None:
    """Draw what tiles of a convolution's result read of one channel of the image, and how often.

    Where the result is as large as the image, a frame in the image marks the tile's own pixels.

    >>> d2ltvm.figures.draw_inputs({"a pixel": (2, 2, 1, 1), "a tile": (2, 2, 2, 4)}, n=8, k=3, p=1)

    Args:
        tiles: for each picture the first row, the first column, rows and columns of a tile.
        n: height and width of the image.
        k: height and width of the kernel.
        p: zeros on each side of the image.
        s: stride.
        level: of the hierarchy whose colour the tile has, as in `draw_tiles`.
        note: a line below the figure.

    Raises:
        ValueError: the kernel does not fit, a tile is not in the result, or there is no such level.
    """
    if level not in style.LEVELS:
        raise ValueError(f"level is {shown(level)}; expected one of {', '.join(style.LEVELS)}")
    if not tiles:
        raise ValueError("tiles is {}; expected one or more")
    o = _outputs(n, k, p, s)
    found = {title: _inside(title, tile, o) for title, tile in tiles.items()}
    whole = n + 2 * p
    high = (5.4 / (whole + o + 2) * (whole + 1) + 0.45) * len(found)
    with style.page((5.4, high), len(found), note=note) as (_, all_axes):
        for axes, (title, tile) in zip(all_axes, found.items(), strict=True):
            _tile(axes, title, tile, (n, k, p, s, o), style.LEVELS[level])


def draw_conv_tiles(
    owner: Any, n: int, k: int, p: int = 0, s: int = 1, thread: int = 0, note: str | None = None
) -> None:
    """Draw what a block, a warp and a thread of a convolution write, and what they read for it.

    There are four pictures: a channel of the result, a row of the result over its channels, a
    channel of the image, and the kernels for one input channel. Their titles say how many elements
    each level has in them.

    >>> sch = d2ltvm.schedules.tiling(64, 2, 64, 3, 1, 1)
    >>> d2ltvm.figures.draw_conv_tiles(d2ltvm.owners(sch, "Y"), n=64, k=3, p=1)

    Args:
        owner: the thread that writes each element of the result, -1 for none, by channel, row and
            column, as `d2ltvm.owners` returns it.
        n: height and width of the image.
        k: height and width of the kernels.
        p: zeros on each side of the image.
        s: stride.
        thread: whose elements are shown, and whose warp.
        note: a line below the figure.

    Raises:
        ValueError: `owner` does not have the size of the result, or `thread` owns nothing in it.
    """
    owners, o = np.asarray(owner), _outputs(n, k, p, s)
    if owners.ndim != 3 or owners.shape[1:] != (o, o):
        raise ValueError(f"owner has shape {owners.shape}; expected channels by {o} by {o}")
    if isinstance(thread, bool) or not (owners == thread).any():
        raise ValueError(f"thread is {shown(thread)}; expected one that owns elements")
    levels = _level(owners, thread)
    channel, row, _ = np.argwhere(owners == thread)[0]
    taps = np.repeat(levels.max((1, 2))[:, None], k * k, 1)
    panels = (
        (f"Y, channel {channel}", levels[channel], "column", "row", levels[channel]),
        (f"Y, row {row}", levels[:, row], "column", "channel", levels[:, row]),
        ("X, each channel", _read(levels[channel], n, k, p, s), "column", "row", None),
        ("K, of one input channel", taps, "tap", "output channel", None),
    )
    with style.page((5.4, 6.3), 2, 2, note=note) as (figure, all_axes):
        for axes, (title, found, xlabel, ylabel, blocks) in zip(all_axes, panels, strict=True):
            colours = ListedColormap(list(style.LEVELS.values()))
            axes.imshow(found, cmap=colours, vmin=0, vmax=3, interpolation="nearest", aspect="auto")
            block, warp, own = (f"{int((found >= least).sum()):,}" for least in (1, 2, 3))
            counts = f"block {block}, warp {warp}, thread {own}"
            axes.set_title(f"{title}; elements:\n{counts}", fontsize=8.5, loc="left")
            axes.set(xlabel=xlabel, ylabel=ylabel)
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.spines[["top", "right"]].set_visible(True)
            if blocks is not None:
                _between_blocks(axes, blocks >= 1)
        patches = [Patch(fc=colour, ec="black", lw=0.5) for colour in style.LEVELS.values()]
        names = ["tensor", "block", f"warp {thread // WARP}", f"thread {thread}"]
        figure.legend(patches, names, ncols=4, fontsize=9, loc="outside upper left", frameon=False)


def _level(owners: Array, thread: int) -> Array:
    """0 outside of the block, 1 in it, 2 in the thread's warp, 3 in the thread."""
    mine = owners >= 0
    found: Array = mine.astype(int) + (mine & (owners // WARP == thread // WARP))
    return found + (owners == thread)


def _read(levels: Array, n: int, k: int, p: int, s: int) -> Array:
    """Of each pixel of a channel of the image, the innermost level that reads it."""
    most, o = np.zeros((n + 2 * p, n + 2 * p), int), len(levels)
    for i, j in np.ndindex(k, k):
        part = most[i : i + (o - 1) * s + 1 : s, j : j + (o - 1) * s + 1 : s]
        np.maximum(part, levels, out=part)
    return most[p : p + n, p : p + n]


def _between_blocks(axes: Axes, mine: Array) -> None:
    """Lines between the blocks of a grid of rectangles, from where one of them lies."""
    lines: dict[str, Any] = {"color": "#b0b0b0", "linewidth": 0.7}
    for axis, draw in ((1, axes.axhline), (0, axes.axvline)):
        (found,) = np.nonzero(mine.any(axis))
        size = int(found.max() - found.min()) + 1
        for edge in range(int(found.min()) % size, mine.shape[1 - axis], size):
            draw(edge - 0.5, **lines)


def _tile(
    axes: Axes, title: str, tile: tuple[int, ...], sizes: tuple[int, ...], colour: str
) -> None:
    """What one tile reads at the left, and the tile in the result at the right."""
    (row, column, rows, columns), (n, k, p, s, o) = tile, sizes
    whole = n + 2 * p
    uses = np.zeros((whole, whole), int)
    for i in range(row, row + rows):
        for j in range(column, column + columns):
            uses[i * s : i * s + k, j * s : j * s + k] += 1
    for (i, j), many in np.ndenumerate(uses):
        border = not (p <= i < n + p and p <= j < n + p)
        _cell(axes, j, i, _tint(colour, 0.55) if many else "#E4E4E4" if border else "white")
        if many:
            axes.text(j + 0.5, i + 0.52, str(many), ha="center", va="center", fontsize=8)
    left, top = whole + 2, p
    for i, j in np.ndindex(o, o):
        mine = row <= i < row + rows and column <= j < column + columns
        _cell(axes, left + j, top + i, colour if mine else "white")
    if s == 1 and o == n:
        own: dict[str, Any] = {"fill": False, "ec": "black", "lw": 2.4, "zorder": 3}
        axes.add_patch(Rectangle((column + p, row + p), columns, rows, **own))
    for x, y, name in ((0, 0, "X and its padding" if p else "X"), (left, top, "Y")):
        axes.text(x, y - 0.25, name, fontsize=9)
    reads = int((uses > 0).sum())
    pixels, each = rows * columns, uses.sum() / reads
    who = "1 pixel of Y reads" if pixels == 1 else f"{pixels} pixels of Y read"
    often = "once each" if each == 1 else f"{each:.2g} times each on average"
    axes.set_title(f"{title}: {who} {reads} numbers of X,\n{often}", fontsize=9.5, loc="left")
    axes.set(xlim=(-0.15, left + o + 0.15), ylim=(whole + 0.15, -1), aspect="equal")
    axes.axis("off")


def _numbers(
    axes: Axes, values: Array, corner: tuple[float, float], colour: str,
    window: tuple[int, int, int], border: int = 0,
) -> None:  # fmt: skip
    """A matrix with its numbers: its window in a tint, its border in grey."""
    left, top = corner
    row, column, size = window
    for (i, j), value in np.ndenumerate(values):
        inside = row <= i < row + size and column <= j < column + size
        edge = min(i, j, len(values) - 1 - i, len(values) - 1 - j) < border
        fill = _tint(colour, 0.4) if inside else "#E4E4E4" if edge else "white"
        _cell(axes, left + j, top + i, fill)
        grey = "#6A6A6A" if edge and not inside else "black"
        axes.text(left + j + 0.5, top + i + 0.52, str(value), color=grey, ha="center", va="center")
    frame: dict[str, Any] = {"fill": False, "ec": colour, "lw": 2.4, "zorder": 3}
    axes.add_patch(Rectangle((left + column, top + row), size, size, **frame))


def _cell(axes: Axes, x: float, y: float, colour: Any) -> None:
    axes.add_patch(Rectangle((x, y), 1, 1, fc=colour, ec="#909090", lw=0.6))


def _tint(colour: str, mix: float) -> tuple[float, ...]:
    return tuple(1 - (1 - np.array(to_rgb(colour))) * mix)


def _square(name: str, value: Any) -> Array:
    found = np.asarray(value)
    if found.ndim != 2 or found.shape[0] != found.shape[1] or not found.size:
        raise ValueError(f"{name} has shape {found.shape}; expected a square matrix")
    return found


def _outputs(n: int, k: int, p: int, s: int) -> int:
    """Height and width of the result."""
    for name, value, least in (("n", n, 1), ("k", k, 1), ("p", p, 0), ("s", s, 1)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} is {shown(value)}; expected an integer from {least}")
    if k > n + 2 * p:
        raise ValueError(f"k is {k}; expected at most n + 2 p = {n + 2 * p}")
    return (n + 2 * p - k) // s + 1


def _inside(name: str, tile: Sequence[int], o: int) -> tuple[int, ...]:
    """A pixel, or a tile by its corner and its size, that lies in the result."""
    found = tuple(tile) if isinstance(tile, list | tuple) else (tile,)
    corner, size = found[:2], found[2:] or (1, 1)
    whole = all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in found)
    if (
        len(found) not in (2, 4)
        or not whole
        or any(c < 0 or e < 1 or c + e > o for c, e in zip(corner, size, strict=True))
    ):
        raise ValueError(f"{name} is {shown(tile)}; expected a place in a result of {o} x {o}")
    return (*corner, *size) if len(found) == 4 else found
