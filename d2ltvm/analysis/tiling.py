"""What tiles cost and what they save, from their sizes alone: threads, registers, bytes.

The kernels are `schedules.matmul_tiled` and `schedules.conv_tiled`; `tiles_of` reads the sizes of
the first off a kernel in hand.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from d2ltvm.analysis import coalescing, requests
from d2ltvm.compiler import lowering
from d2ltvm.compiler.ir import find
from d2ltvm.compute.convolution import conv_out_size
from d2ltvm.errors import is_integer

FLOAT = 4  # bytes of a float32, of which all tensors here are


@dataclass(frozen=True)
class Tiling:
    """What a kernel with these tiles takes.

    Attributes:
        blocks: of the grid.
        threads: of a block.
        sums: registers of a thread for what it adds up.
        operands: registers of a thread for what it multiplies.
        shared: bytes of shared memory of a block, without padding.
        flop: floating-point operations of the launch.
        moved: bytes that all blocks read from global memory and write to it; what two blocks read
            counts twice.
        least: bytes of the tensors, what has to move if each byte moves once.
    """

    blocks: int
    threads: int
    sums: int
    operands: int
    shared: int
    flop: int
    moved: int
    least: int

    @property
    def reuse(self) -> float:
        """FLOP per byte that blocks read and write."""
        return self.flop / self.moved


def product_tiling(
    shape: Sequence[int],
    rows: Sequence[int],
    columns: Sequence[int],
    depth: int,
    stages: int = 1,
) -> Tiling:
    """What a product with tiles in shared memory and in registers takes.

    >>> tiles = product_tiling((2048, 2048, 2048), (1, 1, 16, 8), (1, 1, 16, 8), depth=16)
    >>> tiles.sums, tiles.operands, tiles.shared, round(tiles.reuse, 1)
    (64, 16, 16384, 31.0)

    Args:
        shape: n, m and l, as for `d2ltvm.matmul`.
        rows, columns: pieces, warps, lanes and elements, as for `schedules.matmul_tiled`.
        depth: terms of the sum in a tile.
        stages: tiles of each matrix that are in shared memory at a time.

    Raises:
        ValueError: a size is not positive, or one is missing.
    """
    (n, m, l), down, across = _sizes("shape", shape, 3), math.prod(rows), math.prod(columns)
    _sizes("rows", rows, 4), _sizes("columns", columns, 4), _sizes("depth", (depth, stages), 2)
    high, wide = math.ceil(n / down), math.ceil(m / across)
    mine = rows[0] * rows[3], columns[0] * columns[3]
    return Tiling(
        blocks=high * wide,
        threads=math.prod((*rows[1:3], *columns[1:3])),
        sums=math.prod(mine),
        operands=sum(mine),
        shared=FLOAT * stages * depth * (down + across),
        flop=2 * n * m * l,
        moved=FLOAT * (n * l * wide + m * l * high + n * m),
        least=FLOAT * (n * l + l * m + n * m),
    )


def conv_tiling(
    shape: Sequence[int],
    tile_c: Sequence[int],
    tile_h: Sequence[int],
    tile_w: Sequence[int],
    depth: int = 1,
) -> Tiling:
    """What a convolution with tiles takes that goes along the kernels' rows.

    >>> tiles = conv_tiling((64, 64, 64, 3, 1, 1), (1, 4, 8), (1, 2, 2), (1, 16, 4))
    >>> tiles.sums, tiles.operands, tiles.shared
    (64, 36, 1440)

    Args:
        shape: oc, ic, n, k, p and s, as for `d2ltvm.conv`, of square images and kernels.
        tile_c, tile_h, tile_w: virtual threads, threads and elements along output channels, rows
            and columns, as for `schedules.conv_tiled`.
        depth: input channels of a round, which takes one row of the kernels.

    Raises:
        ValueError: a size is not positive, or one is missing.
    """
    (oc, ic, n, k), (p, s), o = _sizes("shape", shape[:4], 4), shape[4:], 0
    tiles = [_sizes("tile", tile, 3) for tile in (tile_c, tile_h, tile_w)]
    _sizes("depth", (depth,), 1)
    o = conv_out_size(n, k, p, s)
    channels, high, wide = (math.prod(tile) for tile in tiles)
    down, across, deep = math.ceil(o / high), math.ceil(o / wide), math.ceil(oc / channels)
    (vc, _, c), (vh, _, h), (vw, _, w) = tiles
    each_row = sum(_inside(row * high * s - p + tap, high, s, 1, n) for row in range(down)
                   for tap in range(k))  # fmt: skip
    a_row = sum(_inside(column * wide * s - p, wide, s, k, n) for column in range(across))
    return Tiling(
        blocks=deep * down * across,
        threads=math.prod(tile[1] for tile in tiles),
        sums=math.prod((vc, c, vh, h, vw, w)),
        operands=vh * ((h - 1) * s + 1) * vw * ((w - 1) * s + k) + vc * c * k,
        shared=FLOAT * depth * (((high - 1) * s + 1) * ((wide - 1) * s + k) + channels * k),
        flop=2 * oc * o * o * ic * k * k,
        moved=FLOAT * (deep * ic * each_row * a_row + oc * ic * k * k * down * across + oc * o * o),
        least=FLOAT * (ic * n * n + oc * ic * k * k + oc * o * o),
    )


def _inside(first: int, outputs: int, stride: int, taps: int, n: int) -> int:
    """Of the pixels from `first` on that `outputs` neighbours need, those in an image of n."""
    end = first + (outputs - 1) * stride + taps
    return max(0, min(end, n) - max(first, 0))


def _sizes(name: str, values: Sequence[int], many: int) -> Sequence[int]:
    """Sizes, checked."""
    if len(values) != many or any(not is_integer(v) or v < 1 for v in values):
        raise ValueError(f"{name} is {tuple(values)}; expected {many} positive integers")
    return values


@dataclass(frozen=True)
class Tiles:
    """The tiles of a product, as `schedules.matmul_tiled` has them: `tiles_of` finds them.

    Attributes:
        shape: rows and columns of the result.
        rows, columns: pieces, warps, lanes and elements.
        stages: tiles of each matrix that are in shared memory at a time.
    """

    shape: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    stages: int


def tiles_of(sch: Any, tensor: str = "C") -> Tiles:
    """The tiles of a product in hand: what a block, a warp and a thread of it write.

    >>> tiles_of(d2ltvm.schedules.matmul_vthread(256, 256, 256)).rows
    (2, 8, 2, 4)

    Args:
        sch: as for `d2ltvm.traffic`.
        tensor: its result.

    Raises:
        ValueError: the result is not a matrix, or what a thread, a warp or a block writes of it is
            no set of whole rows and columns.
        NotImplementedError: as for `d2ltvm.owners`.
    """
    owner = requests.owners(sch, tensor)
    if owner.ndim != 2:
        raise ValueError(f"{tensor} has {owner.ndim} dimensions; expected a product's, 2")
    below = (1, coalescing.WARP, owner.max() + 1)  # of a thread, a warp and the block
    written = [(owner >= 0) & (owner < threads) for threads in below]
    if any(tile.sum() != tile.any(1).sum() * tile.any(0).sum() for tile in written):
        raise ValueError(f"the tiles of {tensor} are no rectangles; expected those of a product")
    rows, columns = ([tile.any(axis) for tile in written] for axis in (1, 0))
    return Tiles(owner.shape, _levels(rows), _levels(columns), _stages(sch))


def _levels(lines: list[Any]) -> tuple[int, ...]:
    """Pieces, warps, lanes and elements, from the lines of a thread, a warp and a block."""
    thread, warp, block = (int(line.sum()) for line in lines)
    pieces = int((np.diff(lines[0].astype(int), prepend=0) == 1).sum())
    return pieces, block // warp, warp // thread, thread // pieces


def _stages(sch: Any) -> int:
    """How many rounds TVM's software pipeline has under way; 1 without one."""
    key = "software_pipeline_stage"
    loops = find(lowering.as_module(sch)["main"].body, "For")
    found = [loop.annotations[key] for loop in loops if key in loop.annotations]
    return 1 + max((int(stage) for stages in found for stage in stages), default=0)
