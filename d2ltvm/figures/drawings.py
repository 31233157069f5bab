"""Pictures of who touches what: threads, requests of a warp, elements."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch, Rectangle

from d2ltvm.figures import style

Array = npt.NDArray[Any]
Grid = list[list[Any]]  # row by row the owner of each square; None for nobody


class RequestLike(Protocol):
    """What `draw_requests` draws: a `d2ltvm.analysis.requests.Request`."""

    @property
    def scope(self) -> str: ...
    @property
    def first(self) -> Mapping[int, int]: ...
    @property
    def width(self) -> int: ...
    @property
    def cost(self) -> int: ...
    @property
    def served(self) -> Mapping[int, int]: ...


def draw_threads(
    panels: Mapping[str, Any],
    columns: int | None = None,
    what: str = "thread",
    note: str | None = None,
    together: Callable[[Any], Any] | None = None,
    label: Callable[[Any], Any] | None = None,
) -> None:
    """Draw who touches which element: a row of small squares, numbered and shaded by owner.

    >>> d2ltvm.figures.draw_threads({"continuous": [0, 0, 1, 1], "alternate": [0, 1, 0, 1]})

    Args:
        panels: for each picture the owner of every element, in the order of memory: a number, or
            a tuple such as (block, thread), of which the first decides the shade. A sequence, or
            a 2-D array for a matrix.
        columns: elements in a row of a picture; by default all of them, or the matrix's own.
        what: who owns an element; stands in the legend line.
        note: a line below the figure.
        together: function of an owner: those for which it is the same have one shade. By default
            that of a number is the number, of a tuple its first part.
        label: function of an owner: what stands in its squares. By default the owner.

    Raises:
        ValueError: a picture is empty.
    """
    together = together or _first
    grids = {title: _grid(title, owner, columns) for title, owner in panels.items()}
    rows = sum(len(g) for g in grids.values())
    wide = max(len(g[0]) for g in grids.values())
    cell = min(0.42, 7 / wide)
    height = cell * rows + 0.42 * len(grids) + 0.3
    owners = {o for g in grids.values() for row in g for o in row if o is not None}
    shade = {first: k for k, first in enumerate(sorted({*map(together, owners)}))}
    heights = [len(g) for g in grids.values()]
    with style.page((7, height), len(grids), note=note, height_ratios=heights) as (_, all_axes):
        for axes, (title, grid) in zip(all_axes, grids.items(), strict=True):
            _squares(axes, grid, lambda _y, _x, owner: shade[together(owner)], wide, label=label)
            axes.set_title(f"{title} (number: {what})", loc="left", fontsize=11)


def draw_requests(
    requests: Mapping[str, RequestLike],
    rows: int = 32,
    note: str | None = None,
    banks: bool = False,
    alike: bool = False,
    words: int = 32,
) -> None:
    """Draw where in memory the lanes of a warp find what they ask for: a square for each word.

    A row is 128 bytes, which is four sectors of global memory, or one word of each of the 32 banks
    of shared memory. The number is a lane's; words that nobody asks for are white, or grey where
    they move with the rest of their sector, and rows without any are left out. Words one above the
    other are in the same bank. In shared memory the words of one colour come with one wavefront;
    those of the seventh wavefront and later ones are grey. In global memory eight lanes have a
    colour, or all of them.

    >>> sch = d2ltvm.schedules.vectorized(1024)
    >>> d2ltvm.figures.draw_requests({"four floats each": d2ltvm.warp_request(sch, "A")})

    Args:
        requests: a `d2ltvm.analysis.requests.Request` by title.
        rows: how many rows to draw at most of each.
        note: a line below the figure.
        banks: whether every fourth bank of shared memory has its number below it; and how many
            lanes ask stands beside a word that all of them ask for.
        alike: whether all lanes have one colour in global memory.
        words: how many of a row's 32 words to draw, where the others are not asked for.

    Raises:
        ValueError: no lane asks for anything, or one for a word that is not drawn.
    """
    whole = {title: _words(title, request) for title, request in requests.items()}
    grids = {title: grid[:rows] for title, grid in whole.items()}
    numbered = {title for title, request in requests.items() if banks and request.scope == "shared"}
    lanes = [(x, w) for g in grids.values() for row in g for x, w in enumerate(row)]
    if (last := max(x for x, lane in lanes if lane is not None)) >= words:
        raise ValueError(f"words is {words}; expected more than {last}, a word that is asked for")
    wide = 7 if words == 32 else 5.4
    high = wide / words * (sum(map(len, grids.values())) + len(numbered)) + 0.45 * len(grids)
    heights = [len(grid) + (title in numbered) for title, grid in grids.items()]
    with style.page((wide, high), len(grids), note=note, height_ratios=heights) as (_, all_axes):
        for axes, (title, grid) in zip(all_axes, grids.items(), strict=True):
            shared = requests[title].scope == "shared"
            _squares(
                axes,
                grid,
                _shades(requests[title], shared, alike),
                words,
                size=8.5,
            )
            if title in numbered:
                _bank_numbers(axes, len(grid), requests[title])
            if not shared:
                _moves_too(axes, grid)
            thin = {"color": "#cccccc", "linewidth": 0.6, "zorder": 0}
            axes.vlines(np.arange(words + 1) - 0.03, 0, len(grid), **thin)
            for x in range(0, words + 1, 32 if shared else 8):
                axes.vlines(x - 0.03, 0, len(grid), color="black", linewidth=1.4)
            cost = _counted(requests[title].cost, "wavefront" if shared else "sector")
            many = len(whole[title])
            cut = f"; first {rows} of {many} rows" if many > rows else ""
            axes.set_title(f"{title}: {cost}{cut}", loc="left", fontsize=11)


def _bank_numbers(axes: Axes, y: int, request: RequestLike) -> None:
    """Below the squares the number of every fourth bank; who asks for a single word."""
    grey: dict[str, Any] = {"va": "top", "fontsize": 8, "color": "#555555"}
    axes.text(0, y + 0.15, "bank 0", ha="left", **grey)
    for bank in range(4, 32, 4):
        axes.text(bank + 0.47, y + 0.15, str(bank), ha="center", **grey)
    axes.set(ylim=(y + 1.05, -0.1))
    if len({*request.first.values()}) == 1 and request.width == 4:
        x = request.first[min(request.first)] // 4 % 32
        lanes = f"asked for by {len(request.first)} lanes"
        axes.text(x + 1.2, 0.5, lanes, va="center", fontsize=8, color="#555555")


def _shades(
    request: RequestLike, shared: bool, alike: bool
) -> Callable[[int, int, int], int | None]:
    """The shade of a word: its wavefront's in shared memory, else that of eight lanes."""
    if not shared:
        return lambda _y, _x, lane: 0 if alike else lane // 8
    served = request.served
    rows = sorted({word // 32 for word in served})
    shades = {word: wave if wave < 6 else None for word, wave in served.items()}
    return lambda y, x, _lane: shades[32 * rows[y] + x]


def draw_chain(
    following: Sequence[int], every: int = 1, start: int = 0, note: str | None = None
) -> None:
    """Draw an array whose elements say which one comes next, and the way that they lead.

    >>> d2ltvm.figures.draw_chain([2, 3, 1, 0])

    Args:
        following: for each place that is visited the number of the next one.
        every: how many elements of memory there are from one place to the next.
        start: the place to begin at.
        note: a line below the figure.

    Raises:
        ValueError: the way leads out of the array.
    """
    count = len(following)
    if not all(0 <= place < count for place in following):
        raise ValueError(f"following is {list(following)}; expected numbers below {count}")
    white = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    high = 0.9 + 0.2 * count
    scale = (7 / (count + 0.2)) / (3.4 / (2 * high))  # inches of a unit along x and along y
    with style.page((7, 3.4), note=note) as (_, (axes,)):
        for x in range(count):
            place = Rectangle((x + 0.04, -0.5), 0.92, 1, fc="#E3F1FA", ec="black", lw=0.8)
            axes.add_patch(place)
            text = {"ha": "center", "va": "center"}
            axes.text(x + 0.5, 0.22, f"A[{every * x}]", fontsize=9, color="#555555", **text)
            axes.text(x + 0.5, -0.16, str(every * following[x]), fontsize=12, **text)
        at = start
        for step in range(1, count + 1):
            here, there = at + 0.5, following[at] + 0.5
            side = 1 if there > here else -1  # onward above, back below
            bend = {"arrowstyle": "-|>", "connectionstyle": "arc3,rad=-0.4", "color": "#0072B2"}
            axes.annotate("", (there, 0.55 * side), (here, 0.55 * side), arrowprops=bend)
            top = side * (0.55 + 0.2 * scale * abs(there - here))  # the arc's highest point
            middle = {"ha": "center", "va": "center", "color": "#0072B2", "bbox": white}
            axes.text((here + there) / 2, top, str(step), fontsize=11, **middle)
            at = following[at]
        axes.set(xlim=(-0.1, count + 0.1), ylim=(-high, high))
        axes.axis("off")


def _moves_too(axes: Axes, grid: Grid, sector: int = 8) -> None:
    """Grey where nobody asks for a word of a sector that somebody asks for."""
    for y, row in enumerate(grid):
        for x, owner in enumerate(row):
            start = x // sector * sector
            if owner is None and any(w is not None for w in row[start : start + sector]):
                axes.add_patch(Rectangle((x, y), 0.94, 0.94, fc="#d9d9d9", ec="none"))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def draw_touched(panels: Mapping[str, Any], note: str | None = None, often: bool = True) -> None:
    """Draw which elements of tensors are touched, side by side: the darker, the more often.

    >>> sch = d2ltvm.schedules.vectorized(1024)
    >>> d2ltvm.figures.draw_touched({"A": d2ltvm.touched(sch, "A"), "B": d2ltvm.touched(sch, "B")})

    Args:
        panels: for each picture how often every element is touched: an array of one or two
            dimensions, such as `d2ltvm.touched` returns it.
        note: a line below the figure.
        often: whether the titles say how often, beside how many elements.

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
            size = f"{counts.size:,} elements"
            text = f"{title}: {size},\neach {_times(counts)}" if often else f"{title}:\n{size}"
            axes.set_title(text, fontsize=10)
            axes.set(xlabel="column", ylabel="row")
            axes.spines[["top", "right"]].set_visible(True)


def draw_kinds(
    panels: Mapping[str, Any], kinds: Sequence[str], columns: int = 1, note: str | None = None
) -> None:
    """Draw matrices whose elements are of a few kinds: a square for each, a colour for each kind.

    >>> new = [[1, 1, 1], [2, 2, 2]]
    >>> d2ltvm.figures.draw_kinds({"second round": new}, ["not fetched", "fetched again", "new"])

    Args:
        panels: for each picture a matrix of integers, each the number of a kind.
        kinds: their names, of the first one, which is left white, to the last.
        columns: pictures side by side.
        note: a line below the figure.

    Raises:
        ValueError: an element is of no kind.
    """
    grids = {title: np.atleast_2d(grid) for title, grid in panels.items()}
    for title, grid in grids.items():
        if grid.min() < 0 or grid.max() >= len(kinds):
            raise ValueError(
                f"{title!r} has kinds from {grid.min()} to {grid.max()}; expected 0 to "
                f"{len(kinds) - 1}"
            )
    rows = -(-len(grids) // columns)
    shape = next(iter(grids.values())).shape
    high = max(0.3, 7 / columns / shape[1] * shape[0])
    colours: list[Any] = ["white", *(style.tint(k) for k in range(len(kinds) - 1))]
    with style.page((7, (high + 0.45) * rows + 0.4), rows, columns, note=note) as (figure, drawn):
        for axes in drawn:
            axes.axis("off")
        for axes, (title, grid) in zip(drawn, grids.items(), strict=False):
            mesh: dict[str, Any] = {
                "cmap": ListedColormap(colours),
                "vmin": -0.5,
                "vmax": len(kinds) - 0.5,
            }
            axes.pcolormesh(grid, **mesh, edgecolors="#bbbbbb", linewidth=0.3)
            axes.set(xlim=(-0.1, shape[1] + 0.1), ylim=(len(grid) + 0.1, -0.1))
            axes.set(aspect="equal", anchor="W")
            axes.set_title(title, loc="left", fontsize=11.5)
        keys = [Patch(fc=colour, ec="black", lw=0.5) for colour in colours]
        figure.legend(keys, kinds, ncols=len(kinds), fontsize=11, loc="outside upper left")


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


def _words(title: str, request: RequestLike) -> Grid:
    """Lanes by row of 32 words and word in it; None where nobody asks."""
    if not request.first:
        raise ValueError(f"requests[{title!r}] has no lane that asks; expected one or more")
    found: dict[int, dict[int, int]] = {}
    for lane, first in request.first.items():
        for word in range(first // 4, (first + request.width - 1) // 4 + 1):
            found.setdefault(word // 32, {}).setdefault(word % 32, lane)
    return [[row.get(word) for word in range(32)] for _, row in sorted(found.items())]


def _squares(
    axes: Axes,
    grid: Grid,
    shade: Callable[[int, int, Any], int | None],
    wide: int,
    size: float = 9,
    label: Callable[[Any], Any] | None = None,
) -> None:
    for y, row in enumerate(grid):
        for x, owner in enumerate(row):
            if owner is None:
                continue
            number, text = shade(y, x, owner), str(label(owner) if label else owner)
            tint: Any = "#e8e8e8" if number is None else style.tint(number)
            axes.add_patch(Rectangle((x, y), 0.94, 0.94, fc=tint, ec="black", lw=0.6))
            plain = text.strip("()").replace(" ", "")
            axes.text(x + 0.47, y + 0.5, plain, ha="center", va="center", fontsize=size)
    axes.set(xlim=(-0.1, wide + 0.1), ylim=(len(grid) + 0.05, -0.1), aspect="equal")
    axes.axis("off")
