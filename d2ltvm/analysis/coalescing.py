"""What the warps of a launch ask for at one place in a kernel, address by address."""

import math
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from d2ltvm.analysis import index_exprs
from d2ltvm.analysis.accesses import Site, SiteVisitor
from d2ltvm.analysis.index_exprs import Sum
from d2ltvm.compiler.launches import Launch
from d2ltvm.layouts.arrays import rounded_up

WARP = 32
LINE = 128  # bytes of a line of the L1 cache. Source: as for the sector
SECTOR = 32  # bytes. Source: CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory"
BANKS = 32  # of 4 bytes. Source: CUDA C++ Programming Guide, "Shared Memory" of 5.x and newer
WORD = 4
# Bytes that a lane asks for in one instruction, at most. Source: CUDA C++ Programming Guide,
# "Device Memory Accesses"
LARGEST_ACCESS = 16
MOST_ADDRESSES = 2**22  # addresses looked at together, which bounds the memory
MOST_BLOCKS = 2**24  # looked at together; likewise

Array = npt.NDArray[Any]
Point = dict[str | int, Any]  # numbers or arrays by a variable's name, or a shift's number


class Launched:
    """A kernel with its launch: what each load and store makes its warps ask for.

    Args:
        walk: a `accesses.SiteVisitor` over the kernel.
        launch: its `launches.Launch`.
    """

    def __init__(self, walk: SiteVisitor, launch: Launch) -> None:
        self.walk, self.launch = walk, launch
        threads = math.prod(launch.block)
        lanes = rounded_up(threads, WARP)  # the last warp is filled up
        thread = np.arange(lanes)
        self.valid = thread < threads
        self._inner: dict[str, Array] = {}
        for axis, size in zip("xyz", launch.block, strict=True):
            self._inner[f"threadIdx.{axis}"], thread = thread % size, thread // size
        blocks = {f"blockIdx.{a}": (0, g) for a, g in zip("xyz", launch.grid, strict=True)}
        self.extents = {**walk.extents, **blocks}
        self._known: dict[Any, Any] = {}

    def requests(self, site: Site, rounds: Collection[str]) -> Iterator[tuple[Array, Array, Array]]:
        """The addresses that warps ask for at a site, each pattern once, and how often.

        Two patterns that differ by a whole number of lines (in shared memory: of words) cost the
        same and count as one, so addresses are right up to that.

        Args:
            site: a `accesses.Site`.
            rounds: names of the loops around it in whose every round it happens.

        Raises:
            ValueError: an access of several elements is not aligned, which no GPU makes.

        Yields:
            addresses: first byte that each lane asks for; an array of shape (requests, 32).
            active: whether it asks at all; likewise.
            counts: how often each request is made; of shape (requests,).
        """
        values, counts, index, guards, met = self._patterns(site.index, site.guards, _unit(site))
        blocks = {name for name in self.extents if name.startswith("blockIdx.")}
        often = math.prod(self.extents[name][1] for name in (blocks | set(rounds)) - met)
        step = max(1, MOST_ADDRESSES // len(self.valid))
        for k in range(0, len(values), step):
            point: Point = {j: column[:, None] for j, column in enumerate(values[k : k + step].T)}
            point.update(self._inner)
            first, active = self._evaluated(index, guards, point, len(counts[k : k + step]))
            first = first * site.itemsize
            refuse_misaligned(site.kind, site.tensor, first[active], site.width, _alignment(site))
            first = first - min(0, int(first.min()) // (WORD * BANKS)) * (WORD * BANKS)  # from 0 on
            many = np.repeat(counts[k : k + step], len(self.valid) // WARP) * often
            yield first.reshape(-1, WARP), active.reshape(-1, WARP), many

    def addresses(self, site: Site, block: tuple[int, ...]) -> Iterator[tuple[Array, Array]]:
        """The elements that a block accesses at a site, one by one, and who does.

        Args:
            site: a `accesses.Site`.
            block: blockIdx.x, .y and .z.

        Yields:
            places: an array of places in the tensor, in elements, for each lane of a vector.
            threads: the number of the thread that accesses each; likewise.
        """
        extents = [self.walk.extents[loop] for loop in site.loops]
        rounds = math.prod(count for _, count in extents)
        if rounds * len(self.valid) > MOST_ADDRESSES:
            raise NotImplementedError(f"a block reaches {site.tensor} in {rounds} rounds")
        numbers = np.indices([count for _, count in extents]).reshape(len(extents), rounds)
        point: Point = {
            loop: first + column[:, None]
            for loop, (first, _), column in zip(site.loops, extents, numbers, strict=True)
        }
        point.update(self._inner)
        point.update({f"blockIdx.{axis}": b for axis, b in zip("xyz", block, strict=True)})
        first, active = self._evaluated(site.index, site.guards, point, rounds)
        threads = np.nonzero(active)[1]
        for lane in range(site.lanes):
            yield first[active] + lane, threads

    def _evaluated(
        self, index: Sum, guards: Collection[Sum], point: Point, rows: int
    ) -> tuple[Array, Array]:
        """An index and whether all guards hold, for each row of a point and each thread."""
        shape = (rows, len(self.valid))
        active = np.broadcast_to(self.valid, shape)
        for guard in guards:
            active = active & np.asarray(index_exprs.evaluate(guard, point), bool)
        return np.broadcast_to(index_exprs.evaluate(index, point), shape), active

    def block_classes(self) -> tuple[Array, Array]:
        """One block of each kind, and how many there are.

        Two blocks are of one kind where every guard has the same outcome in every round, and every
        address differs by a whole number of lines, in shared memory of words.

        Returns:
            blocks: blockIdx.x, .y and .z of one of each kind; of shape (kinds, 3).
            counts: of shape (kinds,).
        """
        if math.prod(self.launch.grid) > MOST_BLOCKS:
            raise NotImplementedError(
                f"{self.launch.name} has a grid of {self.launch.grid}; machine code of up to "
                f"{MOST_BLOCKS:,} blocks is followed"
            )
        grid = np.indices(self.launch.grid).reshape(3, -1)
        point = {f"blockIdx.{axis}": numbers for axis, numbers in zip("xyz", grid, strict=True)}
        shifts: list[index_exprs.Shift] = []
        for site in self.walk.sites:
            index_exprs.take_apart(site.index, self._inner, shifts, _unit(site))
            for guard in site.guards:
                index_exprs.take_apart(guard, self._inner, shifts)
        parts = {p: None for s in shifts for p in index_exprs.in_blocks(s, point, self.extents)}
        if not parts:
            return grid[:, :1].T, np.array([grid.shape[1]])
        rows = np.array([np.broadcast_to(part.value(point), grid[0].shape) for part in parts])
        _, first, counts = np.unique(rows, axis=1, return_index=True, return_counts=True)
        return grid[:, first].T, counts

    def _patterns(self, *key: Any) -> Any:
        """Index and guards with outer parts replaced, those parts' values, and their counts."""
        if key not in self._known:
            self._known[key] = self._taken_apart(*key)
        return self._known[key]

    def _taken_apart(self, index: Sum, guards: tuple[Sum, ...], modulus: int) -> Any:
        shifts: list[index_exprs.Shift] = []
        index = index_exprs.take_apart(index, self._inner, shifts, modulus)
        guards = tuple(index_exprs.take_apart(guard, self._inner, shifts) for guard in guards)
        met = frozenset().union(*(shift.outer.variables for shift in shifts))
        values, counts = index_exprs.combinations(shifts, self.extents)
        return values, counts, index, guards, met


def _unit(site: Site) -> int:
    """Elements by which a shift of all addresses changes nothing: a line, or a word of a bank."""
    size = LINE if site.scope == "global" else max(WORD, _alignment(site))
    return max(1, size // site.itemsize)


def refuse_misaligned(kind: str, tensor: str, first: Array, width: int, alignment: int) -> None:
    """Refuse an access that a GPU does not make: it ends the kernel with an error.

    Args:
        kind, tensor: 'read' or 'write', and of what; for the message.
        first: byte at which each access begins.
        width: bytes of an access.
        alignment: bytes of which `first` has to be a multiple.

    Raises:
        ValueError: one is not.

    Source: CUDA C++ Programming Guide, "Device Memory Accesses".
    """
    if (first % alignment).any():
        raise ValueError(
            f"{kind} of {tensor}: {width} bytes at once, not aligned; "
            f"expected addresses at multiples of {alignment} bytes"
        )


def _alignment(site: Site) -> int:
    """Bytes of which an access of several elements needs a multiple as its address."""
    return site.width & -site.width if site.lanes > 1 else site.itemsize


def sectors(first: Array, active: Array, width: int, size: int = SECTOR) -> Array:
    """Sectors of global memory that each request touches.

    Args:
        first: first byte of each lane, as `Launched.requests` yields them.
        active: whether the lane asks.
        width: bytes that it asks for.
        size: bytes of a sector, or `LINE` to count the cache's lines instead.

    Returns:
        An array with a number for each request.
    """
    ends = [np.where(active, byte // size, -1) for byte in (first, first + width - 1)]
    _, new = _distinct(np.concatenate(ends, axis=1))
    return np.asarray(new.sum(axis=1))


def bytes_used(first: Array, active: Array, width: int) -> Array:
    """Bytes that each request asks for; those that several lanes ask for count once.

    >>> bytes_used(np.array([[0, 2, 8]]), np.ones((1, 3), bool), 4)
    array([10])

    Args:
        first: first byte of each lane, as `Launched.requests` yields them.
        active: whether the lane asks.
        width: bytes that it asks for.

    Returns:
        An array with a number for each request.
    """
    starts = np.sort(np.where(active, first, -width), axis=1)  # who does not ask ends before 0
    fresh = np.minimum(np.diff(starts, axis=1, prepend=-2 * width), width)
    return np.asarray(np.where(starts >= 0, fresh, 0).sum(axis=1))


def wavefronts(first: Array, active: Array, width: int, kind: str = "read") -> tuple[Array, Array]:
    """Passes over the 32 banks of shared memory that each request takes.

    The lanes of a request are served in groups of 128 bytes: all 32 with up to 4 bytes each, 16
    with 8 bytes, 8 with 16 bytes. A group takes as many passes as the busiest of the banks has
    different words to give; equal words are given to all at once. A load whose lanes agree in
    pairs, lane n with n ^ 1 or with n ^ 2, is served in groups twice as large.

    Source: CUDA C++ Programming Guide, "Shared Memory" of 5.x; for pairs, G. Smith of NVIDIA in
    "Unexpected shared memory bank conflict", NVIDIA developer forums, thread 77228.

    Args:
        first: first byte of each lane, as `Launched.requests` yields them.
        active: whether the lane asks.
        width: bytes that it asks for, 1 to 16.
        kind: 'read' or 'write'.

    Returns:
        passes: an array with the number of passes of each request.
        conflicts: how many of them are more than one for a group.
    """
    passes = np.zeros((2, len(first)), np.int64)
    lanes = min(WARP, 4 * BANKS // max(width, WORD))
    paired = np.zeros(len(first), bool)
    if kind == "read" and width > WORD:
        paired = _pairs(first, active, 1) | _pairs(first, active, 2)
    for rows, size in ((~paired, lanes), (paired, 2 * lanes)):
        if rows.any():
            shape = (-1, WARP // size, size)
            groups = _passes(first[rows].reshape(-1, size), active[rows].reshape(-1, size), width)
            groups = groups.reshape(shape[:2])
            passes[0, rows] = groups.sum(axis=1)
            passes[1, rows] = np.maximum(groups - 1, 0).sum(axis=1)
    return passes[0], passes[1]


def served(first: Array, active: Array, width: int, kind: str = "read") -> dict[int, int]:
    """The wavefront, counted from 0, that gives each word that one request asks for.

    >>> by_word = served(np.arange(32) * 64, np.ones(32, bool), 4)    # a stride of 16 words
    >>> by_word[0], by_word[16], by_word[32]
    (0, 0, 1)

    Args:
        first, active: of the 32 lanes, as `Launched.requests` yields them for many requests.
        width, kind: as for `wavefronts`.

    Returns:
        The wavefront by word: the first one, if groups of lanes that are served apart ask for it.
    """
    lanes = min(WARP, 4 * BANKS // max(width, WORD))
    rows = first[None], active[None]
    if kind == "read" and width > WORD and (_pairs(*rows, 1) | _pairs(*rows, 2))[0]:
        lanes *= 2
    found: dict[int, int] = {}
    done = 0
    for start in range(0, WARP, lanes):
        group = slice(start, start + lanes)
        begins = np.unique(first[group][active[group]]) // WORD
        words = np.unique(begins[:, None] + np.arange(max(1, width // WORD)))
        turns = [int((words[:k] % BANKS == word % BANKS).sum()) for k, word in enumerate(words)]
        for word, turn in zip(words, turns, strict=True):
            found.setdefault(int(word), done + turn)
        done += max(turns, default=-1) + 1
    return found


def _passes(first: Array, active: Array, width: int) -> Array:
    """Passes that groups of lanes take which are served together."""
    start = np.where(active, first // WORD, -1)
    parts = [np.where(active, start + k, -1) for k in range(max(1, width // WORD))]
    words, new = _distinct(np.concatenate(parts, axis=1))
    row, _ = np.nonzero(new)
    bank = words[new] % BANKS
    counts = np.bincount(row * BANKS + bank, minlength=len(words) * BANKS)
    return np.asarray(counts.reshape(-1, BANKS).max(axis=1))


def _pairs(first: Array, active: Array, distance: int) -> Array:
    """Whether each active lane asks for the same as the active lane `distance` away."""
    other = np.arange(WARP) ^ distance
    both = active & active[:, other]
    return np.asarray(((first == first[:, other]) | ~both).all(axis=1))


def _distinct(values: Array) -> tuple[Array, Array]:
    """Each row sorted, and marks at the first of equal values; -1 is no value."""
    values = np.sort(values, axis=1)
    return values, (np.diff(values, axis=1, prepend=-1) != 0) & (values >= 0)
