"""What all judges count in a kernel's lowered form; nothing is compiled for it."""

import math
from dataclasses import dataclass, replace
from typing import Any

import tvm
import tvm_ffi

from d2ltvm.analysis import coalescing, traffic
from d2ltvm.analysis.accesses import Site, SiteVisitor
from d2ltvm.analysis.coalescing import WARP, Launched
from d2ltvm.analysis.index_exprs import Sum
from d2ltvm.analysis.occupancy import occupancy
from d2ltvm.compiler import lowering
from d2ltvm.compiler.ir import find
from d2ltvm.errors import whole
from d2ltvm.system import chips, devices

UNROLLED = ("pragma_auto_unroll_max_step", "pragma_unroll_explicit")
BY_SCHEDULE = "unrolled_by_schedule"  # marks a loop that `sch.unroll` was called for
MEMORY = ("shared_requests", "requests", "wavefronts", "lines", "sectors")


@dataclass(frozen=True)
class Counts:
    """What a kernel does, of the whole launch.

    Attributes:
        blocks, threads: of the grid, and of a block.
        products: multiply-adds of all threads.
        shared: bytes of shared memory of a block.
        sums: floats that a thread keeps in arrays of its own.
        requests: loads and stores of warps, to shared and to global memory.
        wavefronts: passes over the banks of shared memory that they take.
        lines, sectors: of 128 and of 32 bytes that they touch in global memory.
        rounds: how often a block waits for all its threads to have fetched.
        stages: rounds that are fetched ahead, and one.

    Raises:
        ValueError: one is no count; blocks, threads and stages are one at least.
    """

    blocks: int
    threads: int
    products: int
    shared: int
    sums: int
    shared_requests: int
    requests: int
    wavefronts: int
    lines: int
    sectors: int
    rounds: int
    stages: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            whole(name, value, 1 if name in ("blocks", "threads", "stages") else 0)

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return math.ceil(self.threads / WARP)

    @property
    def block_products(self) -> float:
        """Instructions of a block's warps that multiply and add."""
        return self.products / (self.blocks * self.threads) * self.warps

    def room(self, gpu: str, registers: int) -> int:
        """Blocks that an SM has room for at once, with so many registers a thread; 0 for none."""
        if self.threads > 1024 or self.shared > chips.chip(gpu).shared_block_kib * 1024:
            return 0
        return occupancy(gpu, self.threads, registers, self.shared).blocks


def launched(mod: Any, launch: Any, body: Any, walk: SiteVisitor, products: int) -> dict[str, int]:
    """What can be said of a launch before its loads and stores are looked at."""
    return {
        "blocks": math.prod(launch.grid),
        "threads": math.prod(launch.block),
        "products": whole("products", products, 0),
        "shared": array_bytes(body).get("shared", 0) + launch.shared,
        "rounds": rounds_of(walk),
        "stages": stages_of(mod),
    }


def taken_apart(sch: Any) -> tuple[Any, int, Any, Any]:
    """A schedule's module, how far loops are to be unrolled, its launch, and what its kernel does.

    Raises:
        TypeError, ValueError: it is no schedule for CUDA of one kernel.
    """
    mod, unroll, kernels = every_kernel(sch)
    if len(kernels) != 1:
        raise ValueError(f"sch has {len(kernels)} kernels for CUDA; expected one")
    return mod, unroll, *kernels[0]


def every_kernel(sch: Any) -> tuple[Any, int, list[tuple[Any, Any]]]:
    """As `taken_apart`, with a launch and a body for each kernel, in the order of the launches."""
    mod, unroll = _without_unrolling(lowering.as_module(sch))
    launches, _, kernels = lowering.kernels_of(mod, devices.as_target("sm_80"))
    return mod, unroll, [(launch, kernels[launch.name].body) for launch in launches]


def array_bytes(body: Any) -> dict[str, int]:
    """Bytes of a kernel's arrays by their scope; what is in shared.dyn the launch says."""
    found: dict[str, int] = {}
    for array in (a.buffer for a in find(body, "AllocBuffer")):
        size = math.prod(int(n) for n in array.shape) * int(tvm.DataType(str(array.dtype)).itemsize)
        found[array.scope()] = found.get(array.scope(), 0) + size
    return found


def _without_unrolling(mod: Any) -> tuple[Any, int]:
    """The module with no loop to be unrolled, which moves the same; and what was asked for.

    A loop that the schedule unrolls stays a loop with a mark, as those of a sketch stay loops. Then
    loads of neighbours in its rounds are seen to be one loop's, and are joined.
    """
    asked: list[int] = []

    def plain(loop: Any) -> Any:
        kind, notes = loop.kind, {k: v for k, v in loop.annotations.items() if k not in UNROLLED}
        if UNROLLED[0] in loop.annotations:
            asked.append(int(loop.annotations[UNROLLED[0]]))
        if kind == tvm.tirx.ForKind.UNROLLED:
            kind, notes[BY_SCHEDULE] = tvm.tirx.ForKind.SERIAL, 1
        if kind == loop.kind and len(notes) == len(loop.annotations):
            return loop
        parts = (loop.loop_var, loop.min, loop.extent, kind, loop.body, loop.thread_binding)
        return tvm.tirx.For(*parts, notes, loop.step)

    main = tvm_ffi.structural_map(mod["main"], (tvm.tirx.For, plain))
    return tvm.IRModule({"main": main}), max(asked, default=0)


def stages_of(mod: Any) -> int:
    """How many rounds a pipeline has in shared memory; 1 without one."""
    key = "software_pipeline_stage"
    loops = [f for f in find(mod["main"].body, "For") if key in f.annotations]
    return 1 + max((int(max(loop.annotations[key])) for loop in loops), default=0)


def rounds_of(walk: SiteVisitor) -> int:
    """How often a block passes the barriers in its loops."""
    chains = [[loop for loop in site.loops if loop in walk.barriers] for site in walk.sites]
    return max((math.prod(walk.extents[loop][1] for loop in chain) for chain in chains), default=1)


def count(found: dict[str, int], launched: Launched, site: Site) -> None:
    """Add what a load or store costs."""
    for first, active, counts in launched.requests(site, traffic.rounds(site, launched.walk)):
        many = int((active.any(axis=1) * counts).sum())
        if site.scope == "shared":
            passes, _ = coalescing.wavefronts(first, active, site.width, site.kind)
            found["shared_requests"] += many
            found["wavefronts"] += int((passes * counts).sum())
        else:
            found["requests"] += many
            lines = coalescing.sectors(first, active, site.width, coalescing.LINE)
            found["lines"] += int((lines * counts).sum())
            found["sectors"] += int((coalescing.sectors(first, active, site.width) * counts).sum())


def accesses_of(site: Site, launched: Launched) -> list[Site]:
    """What the compiler makes of a load or store: a wide one of several, or several of one."""
    if site.width & (site.width - 1) or site.width > coalescing.LARGEST_ACCESS:  # three floats, say
        offsets = [replace(site.index, const=site.index.const + k) for k in range(site.lanes)]
        return [replace(site, lanes=1, index=index) for index in offsets]
    return [joined(site, launched)]


def joined(site: Site, launched: Launched) -> Site:
    """A load of neighbours by a loop as the wide load that the compiler makes of it.

    The compiler joins four floats, or two, where the innermost loop's variable is the only part of
    the index that is no multiple of so many.

    That takes every loop as unrolled, as the first judge did when it made its predictions, and only
    one loop at a time. So where the compiler leaves a loop, the machine code has more loads, and
    where it joins along several, fewer. `unrolled` counts these loads anew: of 170 candidates, 123
    then have as many as their machine code within a tenth, and 59 as they are joined here. Source:
    experiments/search/loads.txt
    """
    if site.kind != "read" or site.lanes != 1 or site.scope != "shared":
        return site
    for loop in reversed(site.loops):
        if (loop, 1) not in site.index.terms:
            continue
        rest = [c for atom, c in site.index.terms if atom != loop]
        first, many = launched.walk.extents[loop]
        for lanes in (4, 2):
            if first == 0 and not any(n % lanes for n in (*rest, site.index.const, many)):
                name = f"{loop} by {lanes}"
                launched.walk.extents[name] = launched.extents[name] = (0, many // lanes)
                launched.walk.written[name] = launched.walk.written[loop]
                loops = tuple(name if k == loop else k for k in site.loops)
                terms = {*site.index.terms} - {(loop, 1)} | {(name, lanes)}
                index = Sum(frozenset(terms), site.index.const)
                return replace(site, lanes=lanes, index=index, loops=loops)
    return site
