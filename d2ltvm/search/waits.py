"""How long a candidate takes on a GPU, by its machine code: the fourth judge.

It was made after the third judge's candidates had been timed. On TensorCores that one had the order
wrong for two reasons, both decided by the compiler: which loads wait for each other, and what a
thread has no registers for. `followed` reads both in the machine code. The rest is counted as
before, by `pipes.piped`.

Here is no constant that is fitted to times of candidates. But what is a term, and that work and
waiting are added, was chosen when times were known: of tensorcores-128, depthwise-32 and conv-128.
What it says of candidates that had not run is in `measured.FOURTH`. Other workloads were not put to
such a test.
"""

import math
from collections.abc import Sequence
from typing import Any

from d2ltvm.analysis.coalescing import SECTOR, WARP
from d2ltvm.search import judged, pipes
from d2ltvm.search.followed import Followed, followed
from d2ltvm.search.pipes import Piped, piped
from d2ltvm.search.predicted import MAX_REGISTERS_PER_THREAD
from d2ltvm.system import chips

PRODUCTS = 16 * 8 * 16  # multiply-adds of one instruction of a warp on TensorCores
COPIED = 2 * 4 * 2**22  # bytes of the copy that `pipes.CACHE` is from; its time has a start in it
CACHE = COPIED / (COPIED / pipes.CACHE - judged.LAUNCH)
# KiB that an SM can set aside for shared memory, of those that L1 and shared memory have together,
# and what the system takes of a block. Source: CUDA C++ Programming Guide, "Compute Capabilities",
# 9.0
SET_ASIDE = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)
OF_SYSTEM = 1024  # bytes


def looked_at(sch: Any) -> tuple[tuple[Piped, Followed], ...]:
    """What is counted in each kernel of a schedule, and in its machine code.

    >>> ((counts, code),) = looked_at(d2ltvm.search.workload("softmax").by_hand("cuda")["held"]())
    >>> counts.special > 0, code.spilled
    (True, 0)

    Raises:
        TypeError, ValueError: it is none for CUDA.
        NotImplementedError: the analyser cannot follow it.
    """
    return tuple(zip(piped(sch), followed(sch), strict=True))


def seconds(kernels: Sequence[tuple[Piped, Followed]], gpu: str = "H200") -> float:
    """How long a schedule takes by the fourth judge: its kernels, one after the other.

    An SM takes as long as its longest pipe, and as a warp of each wave of its blocks waits.

    >>> softmax = d2ltvm.search.workload("softmax").by_hand("cuda")["held"]()
    >>> 1e-5 < seconds(looked_at(softmax)) < 5e-5
    True

    Args:
        kernels: what `looked_at` says of it.
        gpu: as for `d2ltvm.chip`. Machine code and constants are an H200's.
    """
    return sum(_kernel(*kernel, gpu) for kernel in kernels)


def _kernel(c: Piped, f: Followed, gpu: str) -> float:
    """Of one kernel; infinite where a block does not fit on an SM."""
    fit = c.room(gpu, min(MAX_REGISTERS_PER_THREAD, f.registers))
    if not fit:
        return math.inf
    chip = chips.chip(gpu)
    most = math.ceil(c.blocks / chip.sms)
    far = far_share(c, f, gpu, min(fit, most))
    busy = max(of_block(c, f, gpu, far).values())
    alone = f.cycles + far * (f.far - f.cycles)
    time = (most * busy + math.ceil(most / fit) * alone) / judged.CLOCK
    return max(time, c.nbytes / pipes.MEMORY_RATE) + judged.LAUNCH


def far_share(c: Piped, f: Followed, gpu: str, together: int) -> float:
    """The share of what threads have no registers for that L1 has no room for, with these blocks.

    L1 has what is not set aside for shared memory.

    >>> ((counts, code),) = looked_at(d2ltvm.search.workload("softmax").by_hand("cuda")["held"]())
    >>> far_share(counts, code, "H200", 1)  # no word of a thread is in memory
    0.0
    """
    if not f.local:
        return 0.0
    shared = together * (c.shared + OF_SYSTEM) / 1024
    aside = next((size for size in SET_ASIDE if size >= shared), SET_ASIDE[-1])
    room = (chips.chip(gpu).l1_kib - aside) * 1024
    return max(0.0, 1 - room / (f.local * c.threads * together))


def of_block(c: Piped, f: Followed, gpu: str, far: float) -> dict[str, float]:
    """Cycles that a block takes in each pipe of an SM.

    >>> ((counts, code),) = looked_at(d2ltvm.search.workload("softmax").by_hand("cuda")["held"]())
    >>> busy = of_block(counts, code, "H200", 0.0)
    >>> busy["TensorCores"], max(busy, key=busy.get)
    (0.0, 'L2')
    """
    chip, warps = chips.chip(gpu), c.warps
    sectors = (c.sectors - c.reused) / c.blocks + far * f.spilled * warps * (WARP * 4 // SECTOR)
    return {
        "issuing": f.issued * warps / 4,
        "special functions": c.special * warps * WARP / pipes.SPECIAL_LANES,
        "TensorCores": f.fragments * warps * PRODUCTS / pipes.tensor_rate(chip),
        "data path": (c.wavefronts + c.lines) / c.blocks + f.spilled * warps,
        "L2": sectors * SECTOR * chip.sms * judged.CLOCK / CACHE,
    }
