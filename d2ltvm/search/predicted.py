"""How long a candidate takes on a GPU, predicted without one: the book's analyser as cost model.

Nothing is compiled by NVRTC and nothing runs, so that a prediction takes some hundredths of a
second. `counted` takes the kernel apart: multiply-adds, requests, wavefronts, sectors, rounds with
barriers, registers. `seconds` makes a time of these by a few constants.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import tvm
import tvm_ffi

from d2ltvm.analysis import coalescing, traffic
from d2ltvm.analysis.accesses import Site, Walk
from d2ltvm.analysis.coalescing import WARP, Launched
from d2ltvm.analysis.index_exprs import Sum
from d2ltvm.analysis.occupancy import occupancy
from d2ltvm.compiler import lowering
from d2ltvm.compiler.ir import find
from d2ltvm.compute.ops import whole
from d2ltvm.search.workloads import Workload
from d2ltvm.system import chips, devices

UNROLLED = ("pragma_auto_unroll_max_step", "pragma_unroll_explicit")
REGISTERS = 255  # that a thread can have


@dataclass(frozen=True)
class Counted:
    """What a kernel does, counted in its lowered form. Counts are of the whole launch.

    Attributes:
        blocks, threads: of the grid, and of a block.
        products: multiply-adds of all threads.
        shared: bytes of shared memory of a block.
        sums: floats that a thread keeps in arrays of its own, its sums among them.
        requests: loads and stores of warps, to shared and to global memory.
        wavefronts: passes over the banks of shared memory that they take.
        lines, sectors: of 128 and of 32 bytes that they touch in global memory.
        rounds: how often a block waits for all its threads to have fetched.
        stages: rounds that are fetched ahead, and one.
        unroll: the most statements that a loop may be unrolled to; 0 leaves it to the compiler.
        body: statements of all loops inside a round, unrolled.

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
    unroll: int
    body: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            whole(name, value, 1 if name in ("blocks", "threads", "stages") else 0)


def counted(sch: Any, products: int) -> Counted:
    """Take a kernel apart.

    Args:
        sch: a finished schedule for CUDA.
        products: multiply-adds that it does.

    Raises:
        TypeError, ValueError: `sch` is no schedule for CUDA of one kernel, or `products` no count.
    """
    products = whole("products", products, 0)
    mod, unroll, launch, body = taken_apart(sch)
    walk = Walk(body, scattered=True)
    launched = Launched(walk, launch)
    found = dict.fromkeys(("shared_requests", "requests", "wavefronts", "lines", "sectors"), 0)
    for site in traffic.executed(walk):
        for access in accesses_of(site, launched):
            count(found, launched, access)
    bytes_ = array_bytes(body)
    threads = math.prod(launch.block)
    return Counted(
        blocks=math.prod(launch.grid),
        threads=threads,
        products=products,
        shared=bytes_.get("shared", 0) + launch.shared,
        sums=bytes_.get("local", 0) // 4,
        rounds=(rounds := rounds_of(walk)),
        stages=stages_of(mod),
        unroll=unroll,
        body=products // (math.prod(launch.grid) * threads * max(rounds, 1)),
        **found,
    )


def taken_apart(sch: Any) -> tuple[Any, int, Any, Any]:
    """A schedule's module, how far loops are to be unrolled, its launch, and what its kernel does.

    Raises:
        TypeError, ValueError: it is no schedule for CUDA of one kernel.
    """
    mod, unroll = _without_unrolling(lowering.as_module(sch))
    launches, _, kernels = lowering.kernels_of(mod, devices.as_target("sm_80"))
    if len(launches) != 1:
        raise ValueError(f"sch has {len(launches)} kernels for CUDA; expected one")
    return mod, unroll, launches[0], kernels[launches[0].name].body


def array_bytes(body: Any) -> dict[str, int]:
    """Bytes of a kernel's arrays by their scope; what is in shared.dyn the launch says."""
    found: dict[str, int] = {}
    for array in (a.buffer for a in find(body, "AllocBuffer")):
        size = math.prod(int(n) for n in array.shape) * int(tvm.DataType(str(array.dtype)).itemsize)
        found[array.scope()] = found.get(array.scope(), 0) + size
    return found


def _without_unrolling(mod: Any) -> tuple[Any, int]:
    """The module with no loop to be unrolled, which moves the same; and what was asked for."""
    asked: list[int] = []

    def plain(loop: Any) -> Any:
        if UNROLLED[0] not in loop.annotations:
            return loop
        asked.append(int(loop.annotations[UNROLLED[0]]))
        rest = {k: v for k, v in loop.annotations.items() if k not in UNROLLED}
        parts = (loop.loop_var, loop.min, loop.extent, loop.kind, loop.body, loop.thread_binding)
        return tvm.tirx.For(*parts, rest)

    main = tvm_ffi.structural_map(mod["main"], (tvm.tirx.For, plain))
    return tvm.IRModule({"main": main}), max(asked, default=0)


def stages_of(mod: Any) -> int:
    """How many rounds a pipeline has in shared memory; 1 without one."""
    key = "software_pipeline_stage"
    loops = [f for f in find(mod["main"].body, "For") if key in f.annotations]
    return 1 + max((int(max(loop.annotations[key])) for loop in loops), default=0)


def rounds_of(walk: Walk) -> int:
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
    if site.width & (site.width - 1) or site.width > coalescing.MOST:  # three floats, say
        offsets = [replace(site.index, const=site.index.const + k) for k in range(site.lanes)]
        return [replace(site, lanes=1, index=index) for index in offsets]
    return [joined(site, launched)]


def joined(site: Site, launched: Launched) -> Site:
    """A load of neighbours by a loop as the wide load that the compiler makes of it.

    The compiler joins four floats, or two, where the innermost loop's variable is the only part of
    the index that is no multiple of so many.
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


@dataclass(frozen=True)
class Constants:
    """What the model's cycles are worked out by; fitted to the book's own kernels on one H200.

    Attributes:
        clock: cycles a second.
        registers: of a thread, besides its arrays.
        issue: what an instruction takes of its turn to be issued, beside 1.
        address: instructions that a global load or store costs besides itself.
        line: of the data path, for a line of global memory; a wavefront of shared memory is 1.
        l2: of a sector, as a share of a cycle, for an SM.
        round: cycles in which a block waits at the barriers of a round.
        global_wait, shared_wait: cycles that a warp waits for a load, when others have nothing to
            do either.
        launch: seconds of an empty kernel.
        mix: how much of the shorter one of working and waiting is added to the longer one, as the
            exponent of a norm: 1 adds them.
    """

    clock: float = 1.755e9
    registers: int = 26
    issue: float = 1.25
    address: float = 1.75
    line: float = 0.5
    l2: float = 0.2
    round: float = 250.0
    global_wait: float = 15.6
    shared_wait: float = 3.0
    launch: float = 1.5e-6
    mix: float = 1.1


HOPPER = Constants()


def spilled(c: Counted, constants: Constants = HOPPER) -> float:
    """The share of a thread's arrays that does not fit into registers, and is in memory."""
    room = REGISTERS - constants.registers
    return max(0.0, 1 - room / c.sums) if c.sums else 0.0


def seconds(c: Counted, gpu: str = "H200", constants: Constants = HOPPER) -> float:
    """How long a kernel takes by the model; infinite where a block does not fit on an SM.

    An SM works through its blocks; the one with most blocks decides. It is busy as long as its
    longest pipe: multiply-adds, issuing, the data path of L1 and shared memory, or sectors from
    the L2 cache. Beside that a block waits: at barriers, and for what its warps load.

    Args:
        c: what the kernel does.
        gpu: its name, as for `d2ltvm.chip`. The constants are an H200's.
        constants: see there.
    """
    chip, k = chips.chip(gpu), constants
    warps = math.ceil(c.threads / WARP)
    registers = int(min(REGISTERS, c.sums + k.registers))
    if c.threads > 1024 or c.shared > chip.shared_block_kib * 1024:
        return math.inf
    fit = occupancy(gpu, c.threads, registers, c.shared).blocks
    if not fit:
        return math.inf
    products = c.products / (c.blocks * c.threads) * warps  # instructions of a block's warps
    kept = 2 * products * spilled(c, k)  # loads and stores of what is in local memory
    shared, loads = c.shared_requests / c.blocks, c.requests / c.blocks
    issued = products + shared + kept + loads * (1 + k.address)
    path = (c.wavefronts + k.line * c.lines) / c.blocks + kept
    busy = max(products / 4, k.issue * issued / 4, path, k.l2 * c.sectors / c.blocks)
    waits = c.rounds * k.round / c.stages
    waits += (loads * k.global_wait + shared * k.shared_wait + 0.5 * issued) / warps
    most = math.ceil(c.blocks / chip.sms)
    work, wait = most * busy, math.ceil(most / fit) * waits
    return float((work**k.mix + wait**k.mix) ** (1 / k.mix) / k.clock + k.launch)


def predict(sch: Any, work: Workload, gpu: str = "H200") -> float:
    """Seconds that a schedule of a workload takes on a GPU, by the model.

    >>> work = d2ltvm.search.workload("matmul", 2048)
    >>> slow, fast = (predict(work.by_hand("cuda")[name](), work) for name in
    ...               ("shared tiles", "register tiles"))
    >>> slow > 2 * fast
    True

    Args:
        sch: its schedule, for CUDA.
        work: the workload.
        gpu: as for `d2ltvm.chip`.

    Returns:
        Seconds; infinite where an SM has no room for a block, or the analyser cannot follow it.
    """
    try:
        return seconds(counted(sch, work.flop // 2), gpu)
    except NotImplementedError:
        return math.inf
