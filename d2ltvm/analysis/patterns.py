"""Requests of a warp by their pattern: with a stride, from a tile, from swizzled rows.

They are what `requests.warp_request` finds in a kernel, without the kernel.
`d2ltvm.figures.draw_requests` draws them.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from d2ltvm import layouts
from d2ltvm.analysis.coalescing import LARGEST_ACCESS, WARP, WORD, Array, sectors, wavefronts
from d2ltvm.analysis.requests import Request
from d2ltvm.errors import shown

UNIT = 16  # bytes, which a swizzle moves together and a row of ldmatrix has


def strided(stride: int, offset: int = 0, width: int = 1, itemsize: int = 4) -> Request:
    """A read of global memory in which each lane begins `stride` accesses behind the last one.

    >>> strided(3).cost
    12

    Args:
        stride: accesses from lane to lane; 1 for neighbours, 0 where all read the same.
        offset: elements in front of the first lane's.
        width: elements in one access.
        itemsize: bytes of an element.

    Returns:
        A `Request`, whose cost is in sectors.

    Raises:
        ValueError: a number is negative, or no GPU makes such an access.
    """
    for name, value, least in (
        ("stride", stride, 0),
        ("offset", offset, 0),
        ("width", width, 1),
        ("itemsize", itemsize, 1),
    ):
        if value < least:
            raise ValueError(f"{name} is {value}; expected at least {least}")
    first = (offset + np.arange(WARP) * stride * width) * itemsize
    return _request("A", "global", first, width * itemsize)


def from_tile(
    columns: int,
    padding: int = 0,
    across: int = 1,
    each: int = 1,
    vthreads: int = 1,
    width: int = 1,
    same_row: bool = False,
    swizzle: bool = False,
) -> Request:
    """The first read that a warp makes from a tile of float32 in shared memory.

    >>> from_tile(32).cost, from_tile(32, padding=1).cost
    (32, 1)

    Args:
        columns: of the tile.
        padding: elements that are left free behind each row.
        across: lanes side by side; the next ones are in the next row.
        each: columns that a thread owns, next to each other but for virtual threads.
        vthreads: pieces that they are cut into, as far apart as all lanes' pieces are wide.
        width: elements in one read.
        same_row: whether all lanes read the same row, whatever row they are in.
        swizzle: whether the tile has TMA's swizzle of 128 bytes.

    Returns:
        A `Request`, whose cost is in wavefronts.

    Raises:
        ValueError: the lanes do not divide the warp, what they own is not in a row, or a read is
            not in one piece or not aligned.
    """
    if across < 1 or WARP % across:
        raise ValueError(f"across is {across}; expected a divisor of {WARP}")
    if across * each > columns or each < 1:
        raise ValueError(f"each is {each}; expected 1 to {columns // across}, by {across} lanes")
    if vthreads < 1 or width < 1 or each % (vthreads * width):
        raise ValueError(f"each is {each}; expected a multiple of vthreads by width")
    rows = WARP // across
    tile = np.arange(rows * (columns + padding)).reshape(rows, -1)
    owned = tile[:, : across * each].reshape(rows, vthreads, across, each // vthreads)
    first = owned[:, 0, :, 0]
    first = np.broadcast_to(first[:1] if same_row else first, (rows, across)).ravel() * WORD
    return _request(
        "tile", "shared", layouts.swizzle(first, 128) if swizzle else first, width * WORD
    )


def wider(request: Request, width: int) -> Request:
    """The same lanes with more bytes each: what a compiler makes of reads of neighbours.

    >>> four = from_tile(128, across=16, each=4)
    >>> four.cost, wider(four, 16).cost
    (4, 4)

    Args:
        request: as `d2ltvm.warp_request` returns it.
        width: bytes that each lane asks for, up to 16.

    Returns:
        A `Request` with its own cost.

    Raises:
        ValueError: no GPU makes such an access.
    """
    first = np.array([request.first.get(lane, 0) for lane in range(WARP)])[None]
    active = np.isin(np.arange(WARP), list(request.first))[None]
    if width > LARGEST_ACCESS or (first[active] % width).any():
        raise ValueError(
            f"width is {width}; expected up to {LARGEST_ACCESS}, at multiples of itself"
        )
    if request.scope == "global":
        cost = sectors(first, active, width)
    else:
        cost = wavefronts(first, active, width, request.kind)[0]
    return dataclasses.replace(request, width=width, cost=int(cost[0]))


def of_words(words: Sequence[int]) -> Request:
    """A read of shared memory in which lane k asks for word `words[k]`, of four bytes.

    >>> of_words([33 * y for y in range(32)]).cost, of_words([32 * y for y in range(32)]).cost
    (1, 32)

    Args:
        words: one for each lane, from the first on; at most 32, none of them negative.

    Returns:
        A `Request`, whose cost is in wavefronts.

    Raises:
        ValueError: there are no words or too many, or one is negative.
    """
    first = np.asarray(words)
    fits = first.ndim == 1 and 0 < first.size <= WARP and first.dtype.kind in "iu"
    if not fits or first.min() < 0:
        raise ValueError(f"words is {shown(words)}; expected 1 to {WARP} words, none negative")
    return _request("tile", "shared", first.astype(np.int64) * WORD, WORD)


def of_rows(row: int, order: str = "none", which: int = 0, along: str = "column") -> Request:
    """Eight lanes read 16 bytes each of eight rows in shared memory, as for a TensorCore.

    >>> of_rows(128, which=2).cost, of_rows(128, "128", which=2).cost
    (8, 1)

    Args:
        row: bytes of a row: 32, 64 or 128.
        order: how rows lie in memory: 'none', one behind the other; 'padding', with 16 bytes free
            behind each; '32', '64', '128', with TMA's swizzle of so many bytes.
        which: of a row's 16 bytes, or, along rows, of the eight rows.
        along: 'column', as ldmatrix reads: the same place of each row; 'row', as a copy reads:
            128 bytes one after the other, from the beginning of a row.

    Returns:
        A `Request`, whose cost is in wavefronts.

    Raises:
        ValueError: one of them is something else.
    """
    if along not in ("column", "row"):
        raise ValueError(f"along is {along!r}; expected 'column' or 'row'")
    units = row // UNIT
    if which not in range(units if along == "column" else 8):
        raise ValueError(f"which is {which!r}; expected one of the {along}'s")
    places = row_places(row, order)
    if along == "column":
        return _request("tile", "shared", places[:, which], UNIT)
    return _request("tile", "shared", np.roll(places, -which, axis=0).ravel()[:8], UNIT)


def row_places(row: int, order: str = "none") -> Array:
    """Where in shared memory the 16 bytes of eight rows stand, as for `of_rows`.

    >>> row_places(32, "32")[:5].tolist()
    [[0, 16], [32, 48], [64, 80], [96, 112], [144, 128]]

    Returns:
        The first byte of each, of shape (8, row / 16).

    Raises:
        ValueError: there is no such row, or no such order.
    """
    if row not in (32, 64, 128):
        raise ValueError(f"row is {row!r}; expected 32, 64 or 128")
    if order not in ("none", "padding", "32", "64", "128"):
        raise ValueError(f"order is {order!r}; expected none, padding, 32, 64 or 128")
    between = row + UNIT * (order == "padding")
    first = np.arange(8)[:, None] * between + np.arange(0, row, UNIT)
    return np.asarray(layouts.swizzle(first, int(order)) if order.isdigit() else first)


def _request(tensor: str, scope: str, first: Array, width: int) -> Request:
    """A read of lanes 0, 1, 2 and so on, with its cost."""
    if width > LARGEST_ACCESS:
        raise ValueError(f"a lane reads {width} bytes at once; expected up to {LARGEST_ACCESS}")
    if (first % width).any():
        raise ValueError(f"a read of {width} bytes is not aligned; expected multiples of {width}")
    lanes = np.resize(first, (1, WARP))
    active = np.arange(WARP)[None] < len(first)
    costs = (
        sectors(lanes, active, width) if scope == "global" else wavefronts(lanes, active, width)[0]
    )
    asked = {lane: int(byte) for lane, byte in enumerate(first)}
    return Request(tensor, scope, "read", width, asked, int(costs[0]))
