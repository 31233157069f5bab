"""How long a candidate takes on a GPU, predicted without one: the book's analyser as cost model.

Nothing is compiled by NVRTC and nothing runs, so that a prediction takes some hundredths of a
second. `counted` takes the kernel apart: multiply-adds, requests, wavefronts, sectors, rounds with
barriers, registers. `seconds` makes a time of these by a few constants.
"""

import math
from dataclasses import dataclass
from typing import Any

from d2ltvm.analysis import traffic
from d2ltvm.analysis.accesses import SiteVisitor
from d2ltvm.analysis.coalescing import Launched
from d2ltvm.search import counting
from d2ltvm.search.counting import Counts
from d2ltvm.system import chips

MAX_REGISTERS_PER_THREAD = 255  # that a thread can have


@dataclass(frozen=True)
class Counted(Counts):
    """What a kernel does, if every loop is unrolled.

    Attributes:
        unroll: the most statements that a loop may be unrolled to; 0 leaves it to the compiler.
        body: statements of all loops inside a round, unrolled.
    """

    unroll: int
    body: int


def counted(sch: Any, products: int) -> Counted:
    """Take a kernel apart.

    Args:
        sch: a finished schedule for CUDA.
        products: multiply-adds that it does.

    Raises:
        TypeError, ValueError: `sch` is no schedule for CUDA of one kernel, or `products` no count.
    """
    mod, unroll, launch, body = counting.taken_apart(sch)
    walk = SiteVisitor(body, scattered=True)
    known = counting.launched(mod, launch, body, walk, products)
    launched, found = Launched(walk, launch), dict.fromkeys(counting.MEMORY, 0)
    for site in traffic.executed(walk):
        for access in counting.accesses_of(site, launched):
            counting.count(found, launched, access)
    return Counted(
        **known,
        **found,
        sums=counting.array_bytes(body).get("local", 0) // 4,
        unroll=unroll,
        body=known["products"] // (known["blocks"] * known["threads"] * max(known["rounds"], 1)),
    )


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
    room = MAX_REGISTERS_PER_THREAD - constants.registers
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
    k = constants
    registers = int(min(MAX_REGISTERS_PER_THREAD, c.sums + k.registers))
    fit = c.room(gpu, registers)
    if not fit:
        return math.inf
    warps, products = c.warps, c.block_products
    kept = 2 * products * spilled(c, k)  # loads and stores of what is in local memory
    shared, loads = c.shared_requests / c.blocks, c.requests / c.blocks
    issued = products + shared + kept + loads * (1 + k.address)
    path = (c.wavefronts + k.line * c.lines) / c.blocks + kept
    busy = max(products / 4, k.issue * issued / 4, path, k.l2 * c.sectors / c.blocks)
    waits = c.rounds * k.round / c.stages
    waits += (loads * k.global_wait + shared * k.shared_wait + 0.5 * issued) / warps
    most = math.ceil(c.blocks / chips.chip(gpu).sms)
    work, wait = most * busy, math.ceil(most / fit) * waits
    return float((work**k.mix + wait**k.mix) ** (1 / k.mix) / k.clock + k.launch)
