"""The constants of the model of `any_model`, of each chip that they were fitted to."""

import re
from dataclasses import dataclass

from d2ltvm.system import devices

CLOCK = 1.755e9  # cycles a second that constants are told in


@dataclass(frozen=True)
class Costs:
    """The constants of a chip, in cycles of an SM where nothing else is said.

    They were fitted, all together, to kernels of `any_shape` that were measured on such chips
    (`bench.timed_plans`; experiments/any_shape has the script). So none of them was measured
    alone.

    Attributes:
        memory: bytes a second that all SMs read and write.
        memory_of_sm: that one SM reads and writes.
        kept: bytes that L2 still has from the run before.
        from_l2: bytes a second of these.
        mix: of the shorter one of computing and moving.
        mix_of_four: of that, where four blocks share images.
        launch: before the first product of a kernel, and behind the last.
        product: of the cycles that TensorCores need for a product.
        operands: of those in which shared memory gives its operands.
        solo: the same again, of one warpgroup without another one beside it.
        line: of a line of 128 bytes that TMA brings.
        pixel: of images, in its im2col mode or as a box.
        window: of windows, which overlap.
        half: of a line of 64 bytes or less.
        odd: where lines do not begin at 128 bytes.
        turn: of a slot: barriers.
        turn_in_pair: the same again, where blocks wait for each other.
        turn_alone: the same again, of one consumer while the other one stores.
        epilogue: of 8 columns of 64 rows, behind a fixed part.
        epilogue_fixed: that part.
        exchange: between blocks that have parts of a tile.
        partial: bytes of sums a cycle, both ways.
        meeting: as `exchange`, where the blocks are a cluster.
        meeting_partial: as `partial`, there.
        beside: of two blocks on an SM.
    """

    memory: float
    memory_of_sm: float
    kept: float
    from_l2: float
    mix: float
    mix_of_four: float
    launch: float
    product: float
    operands: float
    solo: float
    line: float
    pixel: float
    window: float
    half: float
    odd: float
    turn: float
    turn_in_pair: float
    turn_alone: float
    epilogue: float
    epilogue_fixed: float
    exchange: float
    partial: float
    meeting: float
    meeting_partial: float
    beside: float

    @property
    def launch_seconds(self) -> float:
        return self.launch / CLOCK


COSTS = {
    "H200": Costs(
        memory=4.52e12,
        memory_of_sm=36.3e9,
        kept=32.5e6,
        from_l2=9.17e12,
        mix=0.673,
        mix_of_four=0.648,
        launch=2920.0,
        product=1.23,
        operands=1.59,
        solo=1.12,
        line=0.866,
        pixel=2.68,
        window=4.69,
        half=0.671,
        odd=4.18,
        turn=8.09,
        turn_in_pair=57.1,
        turn_alone=47.3,
        epilogue=3.28,
        epilogue_fixed=52.3,
        exchange=3080.0,
        partial=47.9,
        meeting=452.0,
        meeting_partial=18.7,
        beside=1.16,
    ),
    "H100": Costs(
        memory=2.72e12,
        memory_of_sm=25.0e9,
        kept=29.1e6,
        from_l2=6.54e12,
        mix=0.399,
        mix_of_four=0.946,
        launch=2840.0,
        product=1.15,
        operands=1.19,
        solo=1.11,
        line=1.32,
        pixel=3.03,
        window=4.69,
        half=0.65,
        odd=3.57,
        turn=68.9,
        turn_in_pair=69.0,
        turn_alone=32.0,
        epilogue=6.27,
        epilogue_fixed=81.9,
        exchange=2300.0,
        partial=16.3,
        meeting=1980.0,
        meeting_partial=23.6,
        beside=1.22,
    ),
}


def costs(chip: str | None = None) -> Costs:
    """The constants of a chip, by its name as for `fitted`.

    >>> costs("NVIDIA H100 80GB HBM3").memory < costs("H200").memory
    True
    """
    return COSTS[fitted(chip)]


def fitted(chip: str | None = None) -> str:
    """Of the chips that constants were fitted to, the one that a chip is; else the H200.

    >>> fitted("nvidia-h100-80gb-hbm3"), fitted("Tesla T4")
    ('H100', 'H200')

    Args:
        chip: its name, short, as its driver gives it or as that of a folder of records; None for
            the GPU of this machine.
    """
    if chip is None:
        found = devices.reported()
        chip = found.name if found else "H200"
    words = re.split(r"[^A-Z0-9]+", chip.upper())
    return next((known for known in COSTS if known in words), "H200")
