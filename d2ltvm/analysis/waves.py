"""How tiles are dealt out to multiprocessors, and what stands idle at the end.

Time is counted in rounds: steps of a tile's loop along the sum, all of which take equally long.
"""

import heapq
import itertools
from dataclasses import dataclass
from typing import NamedTuple

from d2ltvm.errors import is_integer

WAYS = ("in turns", "on demand", "stream-K")


class Piece(NamedTuple):
    """A tile, or rounds of one, that a block computes.

    Attributes:
        tile: its number.
        first, last: its rounds, from `first` to the one before `last`.
        start, stop: when, in rounds.
    """

    tile: int
    first: int
    last: int
    start: float
    stop: float


@dataclass(frozen=True)
class Waves:
    """Tiles, dealt out. A place is room for a block on a multiprocessor.

    Attributes:
        places: for each place its pieces, one after the other.
        rounds: of all tiles together.
    """

    places: tuple[tuple[Piece, ...], ...]
    rounds: int

    @property
    def waves(self) -> float:
        """How many times all places are filled by the pieces; below 1, some have nothing to do."""
        return sum(map(len, self.places)) / len(self.places)

    @property
    def time(self) -> float:
        """Rounds until the last piece is done."""
        return max(pieces[-1].stop for pieces in self.places if pieces)

    @property
    def busy(self) -> float:
        """Share of all places' time in which a piece is computed, its ends included."""
        worked = sum(piece.stop - piece.start for pieces in self.places for piece in pieces)
        return worked / (self.time * len(self.places))

    @property
    def sums(self) -> int:
        """Pieces of tiles whose sums have to be added to another piece's."""
        pieces = [piece.tile for each in self.places for piece in each]
        return len(pieces) - len(set(pieces))


def deal(
    tiles: int,
    sms: int,
    an_sm: int = 1,
    rounds: int = 1,
    split: int = 1,
    ends: int = 0,
    way: str = "in turns",
    faster: int = 0,
) -> Waves:
    """Deal tiles out to the multiprocessors of a GPU.

    >>> dealt = deal(tiles=160, sms=132, rounds=32)
    >>> round(dealt.waves, 2), dealt.time, round(dealt.busy, 2)
    (1.21, 64.0, 0.61)
    >>> deal(tiles=160, sms=132, rounds=32, way="stream-K").time
    39.0

    'In turns', place p has pieces p, p + places and so on, as a persistent kernel with a static
    scheduler has them. 'On demand', a place that is free has the next piece: so does a grid of a
    block each, and a persistent kernel with a counter. With 'stream-K' the rounds of all tiles lie
    in one row, which is cut into as many parts as there are places.

    Args:
        tiles: of the result.
        sms: multiprocessors, as in `d2ltvm.chip`.
        an_sm: blocks that one holds at a time, as `d2ltvm.occupancy` tells.
        rounds: of a tile.
        split: pieces of a tile, whose sums are added up; not with 'stream-K'.
        ends: rounds that the beginning and the end of a piece take: to fill a pipeline, to store.
        way: 'in turns', 'on demand' or 'stream-K'.
        faster: by how many per cent every fifth multiprocessor is faster than the others.

    Returns:
        `Waves`.

    Raises:
        ValueError: a number or a way is none of these, or a tile has fewer rounds than pieces.

    Source: Osama, Merrill, Cecka, Garland and Owens, "Stream-K: work-centric parallel
    decomposition for dense matrix-matrix multiplication on the GPU", 2023.
    """
    _check(tiles=(tiles, 1), sms=(sms, 1), an_sm=(an_sm, 1), rounds=(rounds, 1), split=(split, 1))
    _check(ends=(ends, 0), faster=(faster, 0))
    if way not in WAYS:
        raise ValueError(f"way is {way!r}; expected {', '.join(map(repr, WAYS))}")
    if split > rounds:
        raise ValueError(f"split is {split}; expected at most the {rounds} rounds of a tile")
    places = sms * an_sm
    slow = [place // an_sm % 5 != 0 for place in range(places)]
    # Hundredths of a slow place's time make every sum one of integers.
    each = [100 + faster * is_slow for is_slow in slow]
    if way == "stream-K":
        taken = _stream(tiles, places, rounds)
    else:
        cuts = [rounds * part // split for part in range(split + 1)]
        pairs = list(itertools.pairwise(cuts))
        queue = [(tile, first, last) for tile in range(tiles) for first, last in pairs]
        turns = way == "in turns"
        taken = _turns(queue, places) if turns else _demand(queue, each, ends)
    whole = 100 + faster
    return Waves(
        tuple(_timed(own, each[place], ends, whole) for place, own in enumerate(taken)),
        tiles * rounds,
    )


TilePart = tuple[int, int, int]  # a tile, its first round and the one behind its last


def _turns(queue: list[TilePart], places: int) -> list[list[TilePart]]:
    return [queue[place::places] for place in range(places)]


def _demand(queue: list[TilePart], each: list[int], ends: int) -> list[list[TilePart]]:
    """The next piece goes to the place that is free first, the lowest of equals."""
    free = [(0, place) for place in range(len(each))]
    taken: list[list[TilePart]] = [[] for _ in each]
    for part in queue:
        time, place = heapq.heappop(free)
        taken[place].append(part)
        heapq.heappush(free, (time + (part[2] - part[1] + ends) * each[place], place))
    return taken


def _stream(tiles: int, places: int, rounds: int) -> list[list[TilePart]]:
    """All rounds in a row, cut into equal parts; a part ends and begins within a tile."""
    total, taken = tiles * rounds, []
    for place in range(places):
        at, end = total * place // places, total * (place + 1) // places
        own: list[TilePart] = []
        while at < end:
            tile, first = divmod(at, rounds)
            last = min(rounds, first + end - at)
            own.append((tile, first, last))
            at += last - first
        taken.append(own)
    return taken


def _timed(own: list[TilePart], each: int, ends: int, whole: int) -> tuple[Piece, ...]:
    pieces, now = [], 0
    for tile, first, last in own:
        start, now = now, now + (last - first + ends) * each
        pieces.append(Piece(tile, first, last, start / whole, now / whole))
    return tuple(pieces)


def _check(**values: tuple[int, int]) -> None:
    for name, (value, least) in values.items():
        if not is_integer(value) or value < least:
            raise ValueError(f"{name} is {value!r}; expected an integer of at least {least}")
