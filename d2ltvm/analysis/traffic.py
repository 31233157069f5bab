"""What a kernel does to memory, worked out from its lowered form without running it.

The unit of global memory is a sector of 32 bytes, that of shared memory a pass over its 32 banks. A
warp's 32 lanes make one request for each load or store. What each request costs follows from the
lanes' addresses, and these from the index expressions of the kernel in hand.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from d2ltvm.analysis import accesses, coalescing, sass, sass_interpreter
from d2ltvm.analysis.accesses import Site, SiteVisitor
from d2ltvm.analysis.coalescing import Array, Launched
from d2ltvm.compiler import cache, cubin, lowering
from d2ltvm.compiler.launches import Lowered
from d2ltvm.errors import shown
from d2ltvm.system import devices

Config = dict[str, Any] | None

SCOPES = ("global", "shared")  # of memory
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
        one_of("kind", kind, ("read", "write"))
        one_of("scope", scope, SCOPES)
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
CountsByKey = dict[Key, list[int]]  # the other fields of a `Traffic`
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
        ValueError: NVRTC does not know `arch`; or an access of several elements is not aligned,
            with which a kernel ends in an error.
    """
    if arch is None:
        return of_lowered(as_written(sch, config))
    mod = lowering.as_module(sch)
    target = devices.to_read(arch)
    return compiled(mod, lowering.lower(mod, target, config), arch)


def as_written(sch: Any, config: Config = None) -> Lowered:
    """A lowered kernel whose accesses are all loads and stores: none is a call of cp.async."""
    target = devices.to_read("sm_80")
    lowered: Lowered = lowering.lower(lowering.as_module(sch), target, config, asynchronous=False)
    return lowered


def compiled(mod: Any, lowered: Lowered, arch: str, code: bytes | None = None) -> Table:
    """`traffic` of a module and its `launches.Lowered`, from machine code, which may be given."""
    if len(lowered.launches) != 1:
        names = ", ".join(launch.name for launch in lowered.launches)
        raise NotImplementedError(f"machine code of several kernels: {names}")
    code = code or cubin.compile_cubin(lowered.source, arch)
    ours = cache.hash_of_text(Path(__file__).parents[1], "analysis/*.py", "compiler/*.py")
    key = ("traffic", ours, cache.package_versions("numpy"))
    rows = cache.remember(
        lambda: json.dumps(_interpreted(mod, lowered, arch, code)).encode(),
        *(*key, arch, lowered.launches, lowered.source, code),
    )
    return _table({tuple(site): counts for site, counts in json.loads(rows)}, lowered)


def _interpreted(mod: Any, lowered: Lowered, arch: str, code: bytes) -> list[tuple[Key, list[int]]]:
    """What the machine code of a cubin does, by tensor, scope, kind and width."""
    (launch,), launched = lowered.launches, _in_loads_and_stores(mod, lowered, arch)
    _refuse_what_takes_too_long(launched)
    blocks, often = launched.block_classes()
    needed = sass.needed(sass.parse(cubin.disassemble(code)))
    found: CountsByKey = {}
    step, left = max(1, MOST_LANES // math.prod(launch.block)), sass_interpreter.MOST_WORK
    for k in range(0, len(blocks), step):
        some = sass_interpreter.Machine(needed, launch, blocks[k : k + step], arch)
        for scope, kind, tensor, width, first, active, more, count in some.run(left):
            name = launch.args[tensor] if scope == "global" else "shared"
            coalescing.refuse_misaligned(kind, name, first[active], width, width)
            site = (name, scope, kind, width)
            times = count * np.repeat(often[k : k + step], len(first) // len(blocks[k : k + step]))
            _count(found, site, first, active, times, more)
        left -= some.work
    return [(key, [int(count) for count in counts]) for key, counts in found.items()]


def _in_loads_and_stores(mod: Any, lowered: Lowered, arch: str) -> Launched:
    """The kernel as loads and stores, which tell blocks apart. A call of cp.async is neither."""
    if not lowering.asks_for_asynchronous_copies(mod):
        return launched_of(lowered)[0]
    (launch,), _, kernels = lowering.kernels_of(mod, devices.as_target(arch))
    return Launched(accesses.SiteVisitor(kernels[launch.name].body), launch)


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
    found: CountsByKey = {}
    for launched in launched_of(lowered):
        for site in executed(launched.walk):
            key = (site.tensor, site.scope, site.kind, site.width)
            for requests in launched.requests(site, rounds(site, launched.walk)):
                _count(found, key, *requests)
    return _table(found, lowered)


def launched_of(lowered: Lowered) -> list[Launched]:
    return [
        Launched(accesses.SiteVisitor(lowered.device_functions[launch.name].body), launch)
        for launch in lowered.launches
    ]


def _table(found: CountsByKey, lowered: Lowered) -> Table:
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


def one_of(name: str, value: str, expected: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in expected:
        raise ValueError(f"{name} is {shown(value)}; expected {' or '.join(map(repr, expected))}")


def rounds(site: Site, walk: SiteVisitor) -> tuple[str, ...]:
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


def executed(walk: SiteVisitor) -> Iterator[Site]:
    """The sites, without loads of what a thread has loaded just before."""
    held = set()
    for site in walk.sites:
        load = (site.memory, site.index, site.guards, site.lanes, site.loops, site.epoch)
        if site.kind == "write" or load not in held:
            held.add(load)
            yield site


def _count(
    found: CountsByKey, key: Key, first: Array, active: Array, counts: Array, more: Array | int = 0
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
