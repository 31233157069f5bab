"""The requests of one warp, and what one block's threads touch, to be drawn."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from d2ltvm.analysis import coalescing
from d2ltvm.analysis.accesses import Site
from d2ltvm.analysis.coalescing import Array, Launched
from d2ltvm.analysis.traffic import SCOPES, as_written, launched_of, one_of
from d2ltvm.errors import is_integer, shown


@dataclass(frozen=True)
class Request:
    """What the lanes of one warp ask for together.

    Attributes:
        tensor: name of the buffer.
        scope: 'global' or 'shared'.
        kind: 'read' or 'write'.
        width: bytes that a lane asks for.
        first: first byte of each lane that asks, by lane.
        cost: sectors in global memory, wavefronts in shared memory.
    """

    tensor: str
    scope: str
    kind: str
    width: int
    first: dict[int, int]
    cost: int

    @property
    def served(self) -> dict[int, int]:
        """The wavefront, from 0, that gives each word of shared memory; by word."""
        active = np.isin(np.arange(coalescing.WARP), list(self.first))
        first = np.array([self.first.get(lane, 0) for lane in range(coalescing.WARP)])
        return coalescing.served(first, active, self.width, self.kind)


def warp_request(sch: Any, tensor: str, kind: str = "read", number: int = 0) -> Request:
    """A request that a warp makes for a tensor, to be drawn with `d2ltvm.figures.draw_requests`.

    >>> d2ltvm.warp_request(d2ltvm.schedules.one_thread_each(64), "A").cost
    4

    Args:
        sch: as for `d2ltvm.traffic`.
        tensor: name of the buffer, as `traffic` prints it.
        kind: 'read' or 'write'.
        number: which of the loads or stores of that tensor, in the order of the code.

    Returns:
        A `Request`: one of those that cost most there, with the most lanes. Addresses are right up
        to a whole number of lines of 128 bytes, in shared memory of words.

    Raises:
        ValueError: the kernel has no such load or store.
        NotImplementedError: as for `d2ltvm.traffic`.
    """
    lowered = as_written(sch)
    places = [(launched, site) for launched in launched_of(lowered) for site in launched.walk.sites]
    wanted = (tensor, kind) if isinstance(tensor, str) and isinstance(kind, str) else None
    found = [(m, site) for m, site in places if (site.tensor, site.kind) == wanted]
    if not (is_integer(number) and 0 <= number < len(found)):
        names = ", ".join(sorted({f"{site.kind} {site.tensor}" for _, site in places}))
        raise ValueError(
            f"tensor is {shown(tensor)}, kind {shown(kind)}, number {shown(number)}; expected one "
            f"that is there: {names}"
        )
    return _dearest(*found[number])


def warp_requests(sch: Any, scope: str) -> list[Request]:
    """A request for each load and store of a scope, in the order of the code.

    >>> [f"{r.kind} {r.tensor}" for r in warp_requests(matmul_shared(64, 64, 64), "shared")]
    ['write A_shared', 'write B_shared', 'read A_shared', 'read B_shared']

    Args:
        sch: as for `d2ltvm.traffic`.
        scope: 'global' or 'shared'.

    Returns:
        What `warp_request` returns, of each.

    Raises:
        ValueError: `scope` is something else.
        NotImplementedError: as for `d2ltvm.traffic`.
    """
    one_of("scope", scope, SCOPES)
    every = ((m, site) for m in launched_of(as_written(sch)) for site in m.walk.sites)
    return [_dearest(m, site) for m, site in every if site.scope == scope]


def instructions(request: Request) -> list[Request]:
    """The requests of at most 16 bytes a lane that a GPU makes of one that TVM writes as wider.

    >>> wide = d2ltvm.warp_request(d2ltvm.schedules.vectorized(1024, width=8), "A")
    >>> wide.width, [part.width for part in d2ltvm.analysis.requests.instructions(wide)]
    (32, [16, 16])

    Args:
        request: as `warp_request` returns it.

    Returns:
        A `Request` for each instruction, with its own cost; the request itself where it is one.
    """
    if request.width <= coalescing.LARGEST_ACCESS:
        return [request]
    active = np.isin(np.arange(coalescing.WARP), list(request.first))[None]
    parts = []
    for start in range(0, request.width, coalescing.LARGEST_ACCESS):
        width = min(coalescing.LARGEST_ACCESS, request.width - start)
        first = {lane: byte + start for lane, byte in request.first.items()}
        every = np.array([[first.get(lane, 0) for lane in range(coalescing.WARP)]])
        cost = _costs(every, active, width, request.scope, request.kind)
        parts.append(replace(request, width=width, first=first, cost=int(cost[0])))
    return parts


def _costs(first: Array, active: Array, width: int, scope: str, kind: str) -> Array:
    """Sectors of requests in global memory, wavefronts in shared memory."""
    if scope == "global":
        return coalescing.sectors(first, active, width)
    return coalescing.wavefronts(first, active, width, kind)[0]


def _dearest(launched: Launched, site: Site) -> Request:
    """One of the requests at a site that cost most, and of those one with the most lanes."""
    return max(_requests(launched, site), key=lambda r: (r.cost, len(r.first)))


def touched(sch: Any, tensor: str, kind: str = "read", block: tuple[int, ...] = (0, 0, 0)) -> Array:
    """How often a block of threads reads or writes each element of a tensor in global memory.

    >>> int(d2ltvm.touched(matmul_shared(64, 64, 64), "C", "write").sum())
    1024

    `d2ltvm.figures.draw_touched` draws it: the tile in its tensor. It is what TVM's code says.

    Args:
        sch: as for `d2ltvm.traffic`.
        tensor: name of a tensor that the kernel takes.
        kind: 'read' or 'write'.
        block: blockIdx.x, .y and .z.

    Returns:
        An array of int64, of the tensor's shape.

    Raises:
        ValueError: the kernel takes no such tensor, has no such access to it, or no such block.
        NotImplementedError: as for `d2ltvm.traffic`, or the block makes too many accesses to list.
    """
    shape, found = _of_block(sch, tensor, kind, block)
    counts = np.zeros(math.prod(shape), np.int64)
    for places, _ in found:
        counts += np.bincount(places, minlength=len(counts))
    return counts.reshape(shape)


def owners(sch: Any, tensor: str, kind: str = "write", block: tuple[int, ...] = (0, 0, 0)) -> Array:
    """Which thread of a block writes or reads each element of a tensor in global memory.

    >>> d2ltvm.owners(d2ltvm.schedules.vectorized(8, nt=2, width=2), "C").tolist()
    [0, 0, 1, 1, -1, -1, -1, -1]

    `d2ltvm.figures.draw_tiles` draws it: the tiles of a block, of its warps, of its threads. A
    thread's number counts along threadIdx.x first, then .y, then .z; 32 in a row are a warp.

    Args:
        sch, tensor, kind, block: as for `touched`.

    Returns:
        An array of int64, of the tensor's shape; -1 where the block makes no access, and the lowest
        number where several threads make one.

    Raises:
        ValueError, NotImplementedError: as for `touched`.
    """
    shape, found = _of_block(sch, tensor, kind, block)
    nobody = np.iinfo(np.int64).max
    lowest = np.full(math.prod(shape), nobody)
    for places, threads in found:
        np.minimum.at(lowest, places, threads)
    return np.where(lowest == nobody, -1, lowest).reshape(shape)


def _of_block(
    sch: Any, tensor: str, kind: str, block: tuple[int, ...]
) -> tuple[tuple[int, ...], list[tuple[Array, Array]]]:
    """A tensor's shape, and which places of it the threads of a block access."""
    one_of("kind", kind, ("read", "write"))
    lowered = as_written(sch)
    params = {p.name: p for p in lowered.params}
    if not isinstance(tensor, str) or tensor not in params:
        raise ValueError(f"tensor is {shown(tensor)}; expected one of {', '.join(params)}")
    found: list[tuple[Array, Array]] = []
    for launched in launched_of(lowered):
        grid = launched.launch.grid
        if not _is_block(block, grid):
            raise ValueError(
                f"block is {shown(block)}; expected three integers below those of {grid}"
            )
        for site in launched.walk.sites:
            if (site.tensor, site.kind) == (tensor, kind):
                found += launched.addresses(site, block)
    if not any(len(places) for places, _ in found):
        raise ValueError(f"kind is {kind!r}; block {block} makes no such access to {tensor}")
    return tuple(params[tensor].shape), found


def _is_block(block: Any, grid: tuple[int, ...]) -> bool:
    """Whether three numbers are those of a block in a grid."""
    if not isinstance(block, (tuple, list, np.ndarray)) or np.ndim(np.array(block, object)) != 1:
        return False
    few = len(block) == len(grid) and all(map(is_integer, block))
    return few and all(0 <= b < g for b, g in zip(block, grid, strict=True))


def _requests(launched: Launched, site: Site) -> Iterator[Request]:
    for first, active, _ in launched.requests(site, site.loops):
        costs = _costs(first, active, site.width, site.scope, site.kind)
        best = np.argmax(costs * (coalescing.WARP + 1) + active.sum(axis=1))
        lanes = {int(k): int(first[best, k]) for k in np.flatnonzero(active[best])}
        yield Request(site.tensor, site.scope, site.kind, site.width, lanes, int(costs[best]))
