"""How many blocks of a kernel an SM can hold, and what limits their number."""

import math
from dataclasses import dataclass
from typing import Any

from d2ltvm.analysis.coalescing import WARP
from d2ltvm.compiler import cubin
from d2ltvm.compute.ops import several
from d2ltvm.errors import is_integer, shown
from d2ltvm.layouts.arrays import rounded_up
from d2ltvm.system import chips

# Registers are handed out to whole warps in pieces of 256, and warps to the four parts of an SM
# alike; shared memory is handed out in pieces of 128 bytes (256 on sm_75).
# Source: CUDA C++ Programming Guide, "Hardware Multithreading", and NVIDIA's occupancy calculator.
REGISTER_PIECE, WARP_PIECE = 256, 4


@dataclass(frozen=True)
class Occupancy:
    """What an SM can hold of a kernel.

    Attributes:
        blocks: blocks at a time.
        warps: warps of these.
        share: of the warps that the SM could hold at most.
        limit: what there is not enough of for one more block: 'threads', 'blocks', 'registers' or
            'shared memory'.
        waves: how many times all SMs are filled by the grid; below 1, some have nothing to do. None
            where no grid was given.
    """

    blocks: int
    warps: int
    share: float
    limit: str
    waves: float | None = None


def occupancy(
    gpu: str,
    threads: int,
    registers: int,
    shared: int = 0,
    grid: int | tuple[int, ...] | None = None,
) -> Occupancy:
    """How many blocks of a kernel an SM can hold.

    >>> d2ltvm.occupancy("H200", threads=256, registers=64)
    Occupancy(blocks=4, warps=32, share=0.5, limit='registers', waves=None)

    Args:
        gpu: its name, as for `d2ltvm.chip`.
        threads: in a block, 1 to 1024.
        registers: of a thread, 1 to 255; `d2ltvm.resources` tells them.
        shared: bytes of shared memory of a block.
        grid: blocks of the launch, a number or a tuple.

    Returns:
        An `Occupancy`. `blocks` is 0 where a single block does not fit.

    Raises:
        ValueError: the GPU is not known, or a number is out of its range.
    """
    chip = chips.chip(gpu)
    threads, registers, shared = (
        _integer(name, value, low, high, chip.name)
        for name, value, low, high in (
            ("threads", threads, 1, 1024),
            ("registers", registers, 1, 255),
            ("shared", shared, 0, chip.shared_block_kib * 1024),
        )
    )
    warps = math.ceil(threads / WARP)
    a_warp = rounded_up(registers * WARP, REGISTER_PIECE)
    fit = chip.registers_kib * 1024 // 4 // a_warp // WARP_PIECE * WARP_PIECE
    turing = chip.capability == "sm_75"
    a_block = rounded_up(shared + (0 if turing else cubin.RESERVED_SHARED), 256 if turing else 128)
    limits = {
        "threads": chip.max_threads // WARP // warps,
        "blocks": chip.max_blocks,
        "registers": fit // warps,
        "shared memory": chip.shared_kib * 1024 // a_block if a_block else chip.max_blocks,
    }
    limit = min(limits, key=lambda what: limits[what])
    blocks = limits[limit]
    waves = None
    if grid is not None:
        given: list[Any] = list(grid) if several(grid) else [grid]  # type: ignore[arg-type]
        if not given:
            raise ValueError(f"grid is {grid!r}; expected a number of blocks, or several")
        sizes = [_integer("grid", size, 1, None, chip.name) for size in given]
        waves = math.prod(sizes) / (blocks * chip.sms) if blocks else None
    return Occupancy(blocks, blocks * warps, blocks * warps * WARP / chip.max_threads, limit, waves)


def _integer(name: str, value: Any, low: int, high: int | None, gpu: str) -> int:
    """The value as an int of Python, which does not overflow."""
    if not is_integer(value) or value < low or (high and value > high):
        wanted = f"{low} to {high}" if high else f"{low} or more"
        raise ValueError(f"{name} is {shown(value)}; expected an integer, {wanted} on {gpu}")
    return int(value)
