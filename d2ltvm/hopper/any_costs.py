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
        turned: of these, for rows of a matrix whose channels do not lie one behind the other.
        written: of a line of 128 bytes that shared memory takes, when it gives no operands.
        crossbar: bytes a cycle that all SMs together get from L2.
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
    turned: float
    written: float
    crossbar: float
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
        memory=4.39e12,
        memory_of_sm=36e9,
        kept=32.4e6,
        from_l2=9.38e12,
        mix=0.654,
        mix_of_four=0.687,
        launch=3110.0,
        product=1.17,
        operands=1.04,
        turned=1.16,
        written=0.529,
        crossbar=14700.0,
        solo=1.17,
        line=0.405,
        pixel=2.6,
        window=4.69,
        half=0.699,
        odd=8.65,
        turn=4.1,
        turn_in_pair=51.4,
        turn_alone=29.1,
        epilogue=1.58,
        epilogue_fixed=24.2,
        exchange=2380.0,
        partial=35.9,
        meeting=375.0,
        meeting_partial=17.7,
        beside=1.13,
    ),
    "H100": Costs(
        memory=2.5e12,
        memory_of_sm=20.5e9,
        kept=33.9e6,
        from_l2=6.79e12,
        mix=0.258,
        mix_of_four=1.27,
        launch=2470.0,
        product=1.16,
        operands=0.635,
        turned=1.76,
        written=1.01,
        crossbar=9540.0,
        solo=1.01,
        line=0.494,
        pixel=3.44,
        window=4.69,
        half=0.639,
        odd=9.29,
        turn=37.4,
        turn_in_pair=41.5,
        turn_alone=13.0,
        epilogue=5.72,
        epilogue_fixed=23.1,
        exchange=1980.0,
        partial=12.6,
        meeting=2610.0,
        meeting_partial=12.1,
        beside=1.15,
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
