"""What a kernel does to memory, worked out from its lowered form without running it.

The unit of global memory is a sector of 32 bytes, that of shared memory a pass over its 32 banks. A
warp's 32 lanes make one request for each load or store. What each request costs follows from the
lanes' addresses, and these from the index expressions of the kernel in hand.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from d2ltvm.analysis import accesses, coalescing, sass, sass_interpreter
from d2ltvm.analysis.accesses import Site, Walk
from d2ltvm.analysis.coalescing import Array, Launched
from d2ltvm.compiler import cache, cubin, lowering
from d2ltvm.compiler.launches import Lowered
from d2ltvm.errors import is_integer, shown
from d2ltvm.system import devices

Config = dict[str, Any] | None

MOST_LANES = 2**15  # threads whose machine code is executed together


@dataclass(frozen=True)
class Traffic:
    """What a launch moves between one tensor and its threads.

    Attributes:
        tensor: its name.
        scope: 'global' or 'shared'.
        kind: 'read' or 'write'.
        width: bytes that one thread moves in one access.
        requests: instructions, counted once a warp.
        sectors: 32-byte sectors that the requests touch; 0 in shared memory.
        lines: 128-byte lines of the L1 cache that they touch; likewise.
        wavefronts: passes over the banks that the requests take; 0 in global memory.
        conflicts: passes that different words in one bank add; likewise.
    """

    tensor: str
    scope: str
    kind: str
    width: int
    requests: int
    sectors: int
    lines: int
    wavefronts: int
    conflicts: int


class Table(tuple[Traffic, ...]):
    """`Traffic` of every tensor, which prints as a table."""

    def total(self, kind: str, scope: str = "global") -> tuple[int, ...]:
        """Requests of all tensors, for 'read' or 'write', and what they cost.

        Returns:
            Requests and sectors; in shared memory requests, wavefronts and conflicts.

        Raises:
            ValueError: `kind` or `scope` is something else.
        """
        _one_of("kind", kind, ("read", "write"))
        _one_of("scope", scope, tuple(_COLUMNS))
        rows = [t for t in self if (t.kind, t.scope) == (kind, scope)]
        fields = ("requests", *(("sectors",) if scope == "global" else ("wavefronts", "conflicts")))
        return tuple(sum(getattr(t, field) for t in rows) for field in fields)

    def __str__(self) -> str:
        parts = (
            _lines([t for t in self if t.scope == scope], _COLUMNS[scope]) for scope in _COLUMNS
        )
        return "\n\n".join(filter(None, parts))


Column = tuple[str, int, Callable[[Traffic], str]]
Key = tuple[str, str, str, int]  # tensor, scope, kind, width
Counts = dict[Key, list[int]]  # the other fields of a `Traffic`
# Of each table: a column's title, its width, and what of a `Traffic` stands in it.
_COLUMNS: dict[str, tuple[Column, ...]] = {
    "global": (
        ("requests", 12, lambda t: f"{t.requests:,}"),
        ("sectors", 12, lambda t: f"{t.sectors:,}"),
        ("sectors/request", 17, lambda t: f"{t.sectors / max(t.requests, 1):.2f}"),
    ),
    "shared": (
        ("requests", 12, lambda t: f"{t.requests:,}"),
        ("wavefronts", 15, lambda t: f"{t.wavefronts:,}"),
        ("conflicts", 15, lambda t: f"{t.conflicts:,}"),
        ("wavefronts/request", 20, lambda t: f"{t.wavefronts / max(t.requests, 1):.2f}"),
    ),
}


def _lines(rows: Sequence[Traffic], columns: tuple[Column, ...]) -> str:
    """Rows as a table; '' where there are none."""
    if not rows:
        return ""
    wide = max([10, *(len(f"{t.kind} {t.tensor}") + 1 for t in rows)])
    titles = "".join(f" {title:>{width - 1}}" for title, width, _ in columns)
    lines = [f"{'':{wide}}{'bytes':>6}{titles}"]
    for t in rows:
        cells = "".join(f" {cell(t):>{width - 1}}" for _, width, cell in columns)
        lines.append(f"{f'{t.kind} {t.tensor}':{wide}}{t.width:>6}{cells}")
    return "\n".join(lines)


def traffic(sch: Any, arch: str | None = None, config: Config = None) -> Table:
    """What a schedule's kernel asks of global and of shared memory.

    >>> print(d2ltvm.traffic(d2ltvm.schedules.one_thread_each(2**21)))
                   bytes    requests     sectors  sectors/request
    read A             4      65,536     262,144             4.00
    ...

    Without `arch` it is what TVM's code says. A load is counted once where the compiler could keep
    its value in a register: in a loop that neither changes its address or guard nor writes to its
    tensor, and where the same load has just been made. With `arch` it is what the machine code
    does: the kernel is compiled, and the integer instructions that make up its addresses are
    executed. There the compiler has joined accesses to neighbouring elements, kept values in
    registers and left out what nobody needs. Tensors in shared memory cannot be told apart then.

    Tensors are taken to start at a multiple of 256 bytes. Caches are not modelled: a sector that
    two requests touch counts twice.

    Args:
        sch: a schedule whose loops are bound to blocks and threads, or as for `d2ltvm.build`.
        arch: None, or an architecture such as 'sm_80' or 'sm_90', to look at its machine code.
        config: options of TVM's PassContext.

    Returns:
        A `Table` of `Traffic`, by scope, kind and tensor.

    Raises:
        NotImplementedError: the kernel holds something that is not understood here, such as an
            index that depends on data, or spills to local memory; or its machine code goes through
            too many instructions to follow.
        ValueError: NVRTC does not know `arch`.
    """
    if arch is None:
        return of_lowered(_as_written(sch, config))
    lowered = lowering.lower(lowering.as_module(sch), devices.as_target(arch), config)
    return compiled(lowered, arch)


def _as_written(sch: Any, config: Config = None) -> Lowered:
    """A lowered kernel whose accesses are all loads and stores: none is a call of cp.async."""
    target = devices.as_target("sm_80")
    lowered: Lowered = lowering.lower(lowering.as_module(sch), target, config, asynchronous=False)
    return lowered


def compiled(lowered: Lowered, arch: str, code: bytes | None = None) -> Table:
    """`traffic` of a `launches.Lowered`, from its machine code: a cubin, or compiled here."""
    if len(lowered.launches) != 1:
        names = ", ".join(launch.name for launch in lowered.launches)
        raise NotImplementedError(f"machine code of several kernels: {names}")
    code = code or cubin.compile_cubin(lowered.source, arch)
    ours = cache.text_of(Path(__file__).parents[1], "analysis/*.py", "compiler/*.py")
    key = ("traffic", ours, cache.package_versions("numpy"))
    rows = cache.remember(
        lambda: json.dumps(_interpreted(lowered, arch, code)).encode(),
        *(*key, arch, lowered.launches, lowered.source, code),
    )
    return _table({tuple(site): counts for site, counts in json.loads(rows)}, lowered)


def _interpreted(lowered: Lowered, arch: str, code: bytes) -> list[tuple[Key, list[int]]]:
    """What the machine code of a cubin does, by tensor, scope, kind and width."""
    (launch,), (launched,) = lowered.launches, _launched(lowered)
    _refuse_what_takes_too_long(launched)
    blocks, often = launched.block_classes()
    needed = sass.needed(sass.parse(cubin.disassemble(code)))
    found: Counts = {}
    step, left = max(1, MOST_LANES // math.prod(launch.block)), sass_interpreter.MOST_WORK
    for k in range(0, len(blocks), step):
        some = sass_interpreter.Machine(needed, launch, blocks[k : k + step], arch)
        for scope, kind, tensor, width, first, active, more, count in some.run(left):
            name = launch.args[tensor] if scope == "global" else "shared"
            site = (name, scope, kind, width)
            times = count * np.repeat(often[k : k + step], len(first) // len(blocks[k : k + step]))
            _count(found, site, first, active, times, more)
        left -= some.work
    return [(key, [int(count) for count in counts]) for key, counts in found.items()]


def _refuse_what_takes_too_long(launched: Launched) -> None:
    """Even if the compiler joins 16 accesses of a loop into one instruction."""
    most = 16 * sass_interpreter.MOST_WORK // sass_interpreter.STEP
    for site in launched.walk.sites:
        many = math.prod(launched.walk.extents[loop][1] for loop in rounds(site, launched.walk))
        if many > most:
            raise NotImplementedError(
                f"{launched.launch.name} {site.kind}s {site.tensor} in {many:,} rounds of its "
                f"loops; machine code of up to {most:,} is followed"
            )


def of_lowered(lowered: Lowered) -> Table:
    """`traffic` of a `launches.Lowered`, for a target of kind cuda or opencl."""
    found: Counts = {}
    for launched in _launched(lowered):
        for site in executed(launched.walk):
            key = (site.tensor, site.scope, site.kind, site.width)
            for requests in launched.requests(site, rounds(site, launched.walk)):
                _count(found, key, *requests)
    return _table(found, lowered)


def _launched(lowered: Lowered) -> list[Launched]:
    return [
        Launched(accesses.Walk(lowered.device_functions[launch.name].body), launch)
        for launch in lowered.launches
    ]


def _table(found: Counts, lowered: Lowered) -> Table:
    order = {p.name: k for k, p in enumerate(lowered.params)}
    rows = [Traffic(*key, *map(int, counts)) for key, counts in found.items()]
    rows.sort(key=lambda t: (t.scope, t.kind, order.get(t.tensor, len(order)), t.tensor, t.width))
    return Table(rows)


def sectors(sch: Any, config: Config = None) -> Table:
    """Requests and sectors of every global tensor a schedule's kernel touches.

    >>> print(d2ltvm.sectors(alternate_parallel(2048)))
               bytes    requests     sectors  sectors/request
    read A         4     131,072     131,072             1.00
    ...

    The part of `traffic` that belongs to global memory; see there for arguments and errors.
    """
    return Table(t for t in traffic(sch, config=config) if t.scope == "global")


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
        sch: as for `traffic`.
        tensor: name of the buffer, as `traffic` prints it.
        kind: 'read' or 'write'.
        number: which of the loads or stores of that tensor, in the order of the code.

    Returns:
        A `Request`: one of those that cost most there, with the most lanes. Addresses are right up
        to a whole number of lines of 128 bytes, in shared memory of words.

    Raises:
        ValueError: the kernel has no such load or store.
        NotImplementedError: as for `traffic`.
    """
    lowered = _as_written(sch)
    places = [(launched, site) for launched in _launched(lowered) for site in launched.walk.sites]
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
        sch: as for `traffic`.
        scope: 'global' or 'shared'.

    Returns:
        What `warp_request` returns, of each.

    Raises:
        ValueError: `scope` is something else.
        NotImplementedError: as for `traffic`.
    """
    _one_of("scope", scope, tuple(_COLUMNS))
    every = ((m, site) for m in _launched(_as_written(sch)) for site in m.walk.sites)
    return [_dearest(m, site) for m, site in every if site.scope == scope]


def instructions(request: Request) -> list[Request]:
    """The requests of at most 16 bytes a lane that a GPU makes of one that TVM writes as wider.

    >>> wide = d2ltvm.warp_request(d2ltvm.schedules.vectorized(1024, width=8), "A")
    >>> wide.width, [part.width for part in d2ltvm.analysis.traffic.instructions(wide)]
    (32, [16, 16])

    Args:
        request: as `warp_request` returns it.

    Returns:
        A `Request` for each instruction, with its own cost; the request itself where it is one.
    """
    if request.width <= coalescing.MOST:
        return [request]
    active = np.isin(np.arange(coalescing.WARP), list(request.first))[None]
    parts = []
    for start in range(0, request.width, coalescing.MOST):
        width = min(coalescing.MOST, request.width - start)
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
        sch: as for `traffic`.
        tensor: name of a tensor that the kernel takes.
        kind: 'read' or 'write'.
        block: blockIdx.x, .y and .z.

    Returns:
        An array of int64, of the tensor's shape.

    Raises:
        ValueError: the kernel takes no such tensor, has no such access to it, or no such block.
        NotImplementedError: as for `traffic`, or the block makes too many accesses to list.
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
    _one_of("kind", kind, ("read", "write"))
    lowered = _as_written(sch)
    params = {p.name: p for p in lowered.params}
    if not isinstance(tensor, str) or tensor not in params:
        raise ValueError(f"tensor is {shown(tensor)}; expected one of {', '.join(params)}")
    found: list[tuple[Array, Array]] = []
    for launched in _launched(lowered):
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


def _one_of(name: str, value: str, expected: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in expected:
        raise ValueError(f"{name} is {shown(value)}; expected {' or '.join(map(repr, expected))}")


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


def rounds(site: Site, walk: Walk) -> tuple[str, ...]:
    """Names of the loops around a load or store in whose every round it has to happen.

    A store always does. A load need not where its value can stay in a register.
    """
    if site.kind == "write":
        return site.loops
    shared = walk.barriers if site.scope == "shared" else ()
    return tuple(
        loop
        for loop in site.loops
        if loop in site.variables or site.memory in walk.written[loop] or loop in shared
    )


def executed(walk: Walk) -> Iterator[Site]:
    """The sites, without loads of what a thread has loaded just before."""
    held = set()
    for site in walk.sites:
        load = (site.memory, site.index, site.guards, site.lanes, site.loops, site.epoch)
        if site.kind == "write" or load not in held:
            held.add(load)
            yield site


def _count(
    found: Counts, key: Key, first: Array, active: Array, counts: Array, more: Array | int = 0
) -> None:
    """Add what requests cost to the totals of a tensor; `more` wavefronts than the banks need."""
    _, scope, kind, width = key
    total = found.setdefault(key, [0, 0, 0, 0, 0])
    total[0] += (active.any(axis=1) * counts).sum()
    if scope == "global":
        total[1] += (coalescing.sectors(first, active, width) * counts).sum()
        total[2] += (coalescing.sectors(first, active, width, coalescing.LINE) * counts).sum()
    else:
        passes, conflicts = coalescing.wavefronts(first, active, width, kind)
        total[3] += ((passes + more) * counts).sum()
        total[4] += ((conflicts + more) * counts).sum()
