"""How long a candidate takes on a GPU, by what the compiler leaves of its loops: the second judge.

It was made after candidates had been measured, and its terms are what was learned from the first
judge's mistakes (`predicted`). Its constants are fitted to these times. So what it says of them is
no prediction; the fits to one workload alone are for a test on the other. What it said of other
candidates before they ran is in `measured`, beside their times. Kernels unlike candidates are
further off: a naive product takes a third of what is said here.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from d2ltvm.analysis.coalescing import WARP
from d2ltvm.analysis.traffic import one_of
from d2ltvm.search import predicted
from d2ltvm.search.predicted import MAX_REGISTERS_PER_THREAD
from d2ltvm.search.unrolled import Unrolled, unrolled
from d2ltvm.search.workloads import Workload
from d2ltvm.system import chips

REGISTER_FILE = 65536  # registers of an SM. Source: CUDA C++ Programming Guide, "Compute
# Capabilities", of 8.x and 9.0
REGISTER_UNIT = 8  # registers of a thread are given out in eights; likewise
BESIDE = 30  # registers besides sums and what is hoisted, as in the candidates' machine code
SPILLED = 3.0  # loads and stores a multiply-add once what is hoisted does not fit; likewise
LOOP = 3.0  # instructions of a round of a loop: add, compare, branch
DIVISION = 3.0  # instructions of a division by a constant
L2 = 0.2  # of a sector from L2, as a share of a cycle, for an SM; as in `predicted`
CLOCK = 1.755e9  # cycles a second of an H200
LAUNCH = 1.5e-6  # seconds of an empty kernel; as in `predicted`


@dataclass(frozen=True)
class Fitted:
    """What is fitted: cycles, but where it says something else.

    Attributes:
        issue: what an instruction takes of its turn to be issued.
        address: instructions that a global load or store costs besides itself.
        line: of the data path, for a line of global memory; a wavefront of shared memory is 1.
        round: from the first load of a round to the barrier behind it, if nothing is fetched ahead.
        sync: in which a block that is alone on an SM does nothing in a round, since its warps wait
            for each other.
        global_wait, shared_wait, local_wait: that a warp waits for a load, from global or shared
            memory or its own arrays.
        loop_wait: that a warp waits in a round of a loop that is left.
        own: from one instruction of a warp to its next.
    """

    issue: float
    address: float
    line: float
    round: float
    sync: float
    global_wait: float
    shared_wait: float
    loop_wait: float
    own: float
    local_wait: float


# By experiments/search/fit.txt: to candidates of one workload on an H200, and of both. In the order
# of the attributes: issue, address, line, round, sync, waits (global, shared, loop), own, local.
FITTED = {
    "matmul": Fitted(1.42, 1.0, 0.899, 715.0, 245.0, 1.0, 3.11, 1.0, 1.64, 7.43),
    "conv": Fitted(1.43, 1.0, 1.06, 300.0, 107.0, 16.6, 2.61, 46.5, 1.38, 1.0),
    "both": Fitted(1.46, 1.0, 1.05, 347.0, 197.0, 9.39, 2.7, 43.6, 1.4, 5.87),
}


def registers(c: Unrolled) -> tuple[int, int]:
    """Registers that a thread wants, and the most that it can have with so many in its block."""
    most = REGISTER_FILE // (c.warps * WARP) // REGISTER_UNIT * REGISTER_UNIT
    return c.sums + c.hoisted + BESIDE, min(MAX_REGISTERS_PER_THREAD, most)


def local_requests(c: Unrolled) -> float:
    """Loads and stores of a block's warps to arrays and registers that are in memory."""
    wanted, most = registers(c)
    if wanted <= most:
        return float(c.local * c.warps)
    each = SPILLED if c.hoisted else 2 * (wanted - most) / wanted
    return c.local * c.warps + c.block_products * each


def seconds(
    c: Unrolled, gpu: str = "H200", constants: Fitted | str = "both", pipe: float = 0.0
) -> float:
    """How long a kernel takes by the second judge; infinite where a block does not fit on an SM.

    The SM with most blocks decides. It takes as long as its longest pipe, or as long as its blocks
    take one after the other, as many at once as there is room for. To the first come the cycles in
    which blocks have nothing to do at their barriers; more blocks on an SM fill them for each
    other. Of a block alone, either a pipe decides or the longest warp, which waits for its own
    loads; and at each round it waits for what is fetched, less what it computes meanwhile.

    Args:
        c: what the kernel does.
        gpu: its name, as for `d2ltvm.chip`. The constants are an H200's.
        constants: fitted to 'matmul', to 'conv' or to 'both', or others.
        pipe: cycles that a block takes in a pipe that is none of those counted here, at least.
    """
    k = FITTED[constants] if isinstance(constants, str) else constants
    fit = c.room(gpu, min(registers(c)))
    if not fit:
        return math.inf
    warps, most = c.warps, math.ceil(c.blocks / chips.chip(gpu).sms)
    products = c.block_products
    local, loops = local_requests(c), c.iterations * warps
    shared, loads = c.shared_requests / c.blocks, c.requests / c.blocks
    issued = products + shared + local + loads * (1 + k.address) + LOOP * loops
    issued += DIVISION * c.divisions / c.blocks
    path = (c.wavefronts + k.line * c.lines) / c.blocks + local
    busy = max(products / 4, k.issue * issued / 4, path, L2 * c.sectors / c.blocks, pipe)
    warp = k.own * issued + loads * k.global_wait / c.stages + shared * k.shared_wait
    warp = (warp + loops * k.loop_wait + local * k.local_wait) / warps
    alone, together = max(warp, busy), min(fit, most)
    ahead = (c.stages - 1) * alone * together / max(c.rounds, 1)
    block = alone + c.rounds * max(0.0, k.round - ahead)
    work = most * busy + math.ceil(most / together) * c.rounds * k.sync
    return float(max(work, math.ceil(most / fit) * block) / CLOCK + LAUNCH)


JUDGES: dict[str, tuple[Callable[[Any, int], Any], Callable[[Any, str], float]]] = {
    "first": (predicted.counted, predicted.seconds),
    "second": (unrolled, seconds),
}


def predict(sch: Any, work: Workload, gpu: str = "H200", judge: str = "first") -> float:
    """Seconds that a schedule of a workload takes on a GPU, by one of the judges.

    >>> work = d2ltvm.search.workload("matmul", 2048)
    >>> slow, fast = (predict(work.by_hand("cuda")[name](), work) for name in
    ...               ("shared tiles", "register tiles"))
    >>> slow > 2 * fast
    True

    Args:
        sch: its schedule, for CUDA.
        work: the workload.
        gpu: as for `d2ltvm.chip`.
        judge: 'first' or 'second', or 'third' (`pipes`) or 'fourth' (`waits`, which compiles it),
            which also know other workloads.

    Returns:
        Seconds; infinite where an SM has no room for a block, or the analyser cannot follow it.

    Raises:
        ValueError: `judge` is another.
    """
    one_of("judge", judge, (*JUDGES, "third", "fourth"))
    try:
        if judge not in JUDGES:
            from d2ltvm.search import pipes, waits  # which are made of this module

            if judge == "fourth":
                return waits.seconds(waits.looked_at(sch), gpu)
            return pipes.seconds(pipes.piped(sch), gpu)
        look, seconds_of = JUDGES[judge]
        return seconds_of(look(sch, work.flop // 2), gpu)
    except NotImplementedError:
        return math.inf
