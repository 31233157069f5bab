"""Schedules of convolution of batches, where a tile is a piece of a matrix product.

For one pixel the kernels are a matrix of reduction by output channels, the images one of reduction
by batch. In HWCN "rows" are output channels and "columns" images, in NHWCnc the other way round.
All take batch, oc, ic, n, k, p and s, and raise a ValueError where a tile does not divide its size.

>>> tiles = FragmentTiles((2, 4), (4, 4), depth=2, stages=3)
>>> tiles.warps
8
>>> tiles.check(batch=256, oc=500, ic=256, k=3)
Traceback (most recent call last):
    ...
ValueError: oc is 500; expected a multiple of the tile, 256
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from d2ltvm import layouts
from d2ltvm.compute.conv_batch import conv_hwcn, conv_nhwcnc
from d2ltvm.compute.ops import schedule
from d2ltvm.schedules import tensor_intrinsics, wmma_intrinsics
from d2ltvm.schedules.arguments import Factors, checked
from d2ltvm.schedules.conv import BLOCKS
from d2ltvm.schedules.loops import bind_thread, fetch, pipeline, split_axis

WMMA = wmma_intrinsics.NAMES


# From batched/hwcn.
@checked
def hwcn_blocks(
    batch: int,
    oc: int,
    ic: int,
    n: int,
    k: int,
    p: int = 0,
    s: int = 1,
    tile: int = 8,
    threads: int = 8,
    step: int = 8,
    vthreads: int = 2,
) -> Schedule:
    """Convolution in HWCN: shared tiles, and strided pieces for each thread.

    A block of `threads` squared takes `tile * threads` channels and images of one
    pixel, `step` input channels at a time.
    """
    tensors = conv_hwcn(batch, oc, ic, n, k, p, s)
    side = tile * threads
    check_tiles(("oc", oc, side), ("batch", batch, side), ("ic", ic, step))
    sch, (sums, XX, KK, XL, KL, result) = hwcn_caches(tensors, "shared")
    y, x, c, image, ric, rkh, rkw = sch.get_loops(sums)
    by, vy, ty, c = split_axis([vthreads, threads, tile // vthreads], sch, c)
    bx, vx, tx, image = split_axis([vthreads, threads, tile // vthreads], sch, image)
    rounds, inner = split_axis([step], sch, ric)
    sch.reorder(y, x, by, bx, vy, vx, ty, tx, rounds, rkh, rkw, inner, c, image)
    tags = ("vthread.y", "vthread.x", "threadIdx.y", "threadIdx.x")
    bind_thread(sch, (sch.fuse(y, x), by, bx, vy, vx, ty, tx), (*BLOCKS, *tags))
    sch.reverse_compute_at(result, tx)
    for values, copy in ((XL, XX), (KL, KK)):
        sch.compute_at(values, inner)
        sch.compute_at(copy, rkw)
        channel, element = sch.get_loops(copy)[-2:]
        ty, _ = sch.split(channel, [threads, None])
        tx, step, vector = sch.split(element, [threads, None, 4])
        sch.reorder(ty, tx, step)
        bind_thread(sch, (ty, tx), ("threadIdx.y", "threadIdx.x"))
        sch.vectorize(vector)
    sch.decompose_reduction(sums, rounds)
    return sch


# From batched/hwcn.
def hwcn_caches(tensors: Sequence[Any], scope: str) -> tuple[Schedule, tuple[SBlockRV, ...]]:
    """A schedule of a convolution in HWCN with its copies, and its blocks.

    Those of X and K in shared memory, of these in registers, and the sums' own.
    """
    sch = schedule(tensors[:3])
    sums = sch.get_sblock("Y")
    XX, KK = (sch.cache_read(sums, k, scope) for k in (0, 1))
    sch.compute_inline("PaddedX")
    XL, KL = (sch.cache_read(sums, k, "local") for k in (0, 1))
    return sch, (sums, XX, KK, XL, KL, sch.cache_write(sums, 0, "local"))


# From batched/hwcn.
def check_stages(stages: int, rounds: int) -> None:
    """Raise a ValueError unless there is a round for each stage."""
    if not 1 <= stages <= rounds:
        raise ValueError(f"stages is {stages}; expected 1 to {rounds}, the rounds there are")


# From batched/hwcn.
def check_tiles(*sizes: tuple[str, int, int]) -> None:
    """Raise a ValueError unless each size, of (name, size, tile), is a multiple of its tile."""
    for name, size, tile in sizes:
        if size % tile:
            raise ValueError(f"{name} is {size}; expected a multiple of the tile, {tile}")


# From batched/hwcn.
@checked
def hwcn_tiled(
    batch: int, oc: int, ic: int, n: int, k: int, p: int = 0, s: int = 1,
    rows: Factors = (2, 4, 4, 4), columns: Factors = (2, 2, 8, 4), depth: int = 32,
    stages: int = 2, interleave: bool = False, scope: str = "shared.dyn",
) -> Schedule:  # fmt: skip
    """Convolution in HWCN: `rows` and `columns` are pieces, warps, lanes, elements.

    Tiles in shared memory, `stages` at once, of `depth` input channels, and in
    registers, as in `schedules.matmul_tiled`. A block computes one pixel.
    """
    tensors = conv_hwcn(batch, oc, ic, n, k, p, s)
    check_tiles(
        ("oc", oc, math.prod(rows)), ("batch", batch, math.prod(columns)), ("ic", ic, depth)
    )
    check_stages(stages, k * k * ic // depth)
    sch, (sums, XX, KK, XL, KL, result) = hwcn_caches(tensors, scope)
    thread, rounds, inner = hwcn_loops(sch, sums, rows, columns, depth, interleave)
    sch.reverse_compute_at(result, thread)
    threads = math.prod((*rows[1:3], *columns[1:3]))
    for values, copy in ((XL, XX), (KL, KK)):
        sch.compute_at(values, inner)
        sch.compute_at(copy, rounds)
        fetch(sch, copy, threads, 4)
    for copy in (XL, KL, result):
        sch.vectorize(sch.get_loops(copy)[-1])
    sch.decompose_reduction(sums, rounds)
    sch.unroll(inner)
    if stages > 1:
        pipeline(sch, rounds, stages)
    return sch


# From batched/hwcn.
def hwcn_loops(
    sch: Schedule,
    sums: SBlockRV,
    rows: Factors,
    columns: Factors,
    depth: int,
    interleave: bool,
) -> tuple[LoopRV, LoopRV, LoopRV]:
    """Tile a convolution in HWCN; returns the loops of threads, rounds and reduction."""
    y, x, c, image, ric, rkh, rkw = sch.get_loops(sums)
    by, vy, wy, ly, c = split_axis(rows, sch, c)
    bx, vx, wx, lx, image = split_axis(columns, sch, image)
    ko, ki = split_axis([depth], sch, ric)
    lanes = [ly, lx]
    # Interleaved, the last two bits of a lane are one for its row, one for its column.
    if interleave:
        (ly, y0), (lx, x0) = split_axis([2], sch, ly), split_axis([2], sch, lx)
        lanes = [ly, lx, y0, x0]
    sch.reorder(y, x, by, bx, vy, vx, wy, wx, *lanes, rkh, rkw, ko, ki, c, image)
    pixel, thread = sch.fuse(y, x), sch.fuse(wy, wx, *lanes)
    tags = ("blockIdx.z", "blockIdx.y", "blockIdx.x", "vthread.y", "vthread.x", "threadIdx.x")
    bind_thread(sch, (pixel, by, bx, vy, vx, thread), tags)
    return thread, sch.fuse(rkh, rkw, ko), ki


# From batched/tensorcores.
@checked
def wmma_tiled(
    batch: int, oc: int, ic: int, n: int, k: int, p: int = 0, s: int = 1,
    rows: Factors = (2, 4), columns: Factors = (4, 4), depth: int = 2, stages: int = 1,
    pad: int = 0, row_of_taps: bool = False, tensorized: bool = True,
) -> Schedule:  # fmt: skip
    """Convolution in NHWCnc by wmma; `rows` and `columns` are warps, fragments.

    A round takes `depth` blocks of input channels at one place of the kernel, or with
    `row_of_taps` at all places of a row; `stages` of them are in shared memory, with
    `pad` elements free behind each row of 16. Not `tensorized`, all
    threads of a warp do the same in loops, in float32, as any device can.
    """
    tiles = FragmentTiles(tuple(rows), tuple(columns), depth, stages, row_of_taps)
    tiles.check(batch, oc, ic, k)
    dtype = "float16" if tensorized else "float32"
    sch = schedule(conv_nhwcnc(batch, oc, ic, n, k, p, s, dtype=dtype)[:3])
    sums = sch.get_sblock("Y")
    scopes = ("wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator")
    scopes = scopes if tensorized else ("local",) * 3
    warp, rounds, inner, each = nhwcnc_loops(sch, sums, tiles)
    result = sch.cache_write(sums, 0, scopes[2])
    copies, values = nhwcnc_caches(sch, sums, "shared.dyn", scopes[:2], rounds, inner)
    sch.reverse_compute_at(result, warp, preserve_unit_loops=True)
    for copy in copies:
        fetch_blocks(sch, copy, tiles.warps, 8 if tensorized else 4)  # 16 bytes
        if pad:
            sch.storage_align(copy, 0, -2, 16, pad)
    init = sch.decompose_reduction(sums, rounds)
    if tensorized:
        unroll_fragments(sch, (inner, *each), values, (result, init))
        tensorize_all(sch, (init, *values, sums, result), WMMA)
    if stages > 1:
        pipeline(sch, rounds, stages)
    return sch


# From batched/swizzling.
@checked
def mma_tiled(
    batch: int, oc: int, ic: int, n: int, k: int, p: int = 0, s: int = 1,
    rows: Factors = (2, 4), columns: Factors = (2, 4), depth: int = 2, stages: int = 4,
    ahead: bool = True,
) -> Schedule:  # fmt: skip
    """Convolution in NHWCnc by `mma.sync` and `ldmatrix`, from swizzled tiles.

    As `wmma_tiled`; with `ahead`, the next fragments are loaded while the last ones
    are multiplied.
    """
    if ahead and (depth < 2 or stages < 3):
        raise ValueError(f"depth is {depth}, stages {stages}; expected 2 and 3 or more with ahead")
    tiles = FragmentTiles(tuple(rows), tuple(columns), depth, stages)
    tiles.check(batch, oc, ic, k)
    sch = schedule(conv_nhwcnc(batch, oc, ic, n, k, p, s)[:3])
    sums = sch.get_sblock("Y")
    warp, rounds, inner, each = nhwcnc_loops(sch, sums, tiles)
    outer = sch.blockize(sch.get_loops(sums)[-3])
    copies, values = nhwcnc_caches(sch, outer, "shared.dyn", ("warp",) * 2, rounds, inner)
    result = sch.cache_write(outer, 0, "warp")
    sch.reverse_compute_at(result, warp, preserve_unit_loops=True)
    for copy in copies:
        fetch_blocks(sch, copy, tiles.warps)
    sch.decompose_reduction(outer, rounds)
    init = sch.get_sblock("Y_init")
    spread(sch, copies, values, result)
    unroll_fragments(sch, each, values, (result, init))
    tensorize_all(sch, (init, *values, sums, result), tensor_intrinsics.NAMES)
    sch.unroll(inner)
    if ahead:
        look_ahead(sch, rounds, inner, stages)
    elif stages > 1:
        pipeline(sch, rounds, stages)
    return sch


# From batched/tensorcores.
@dataclass(frozen=True)
class FragmentTiles:
    """How a block computes its sums, in NHWCnc: `rows` and `columns` are warps, fragments.

    A round takes `depth` blocks of input channels, at one place of the kernel or at all
    places of a row; `stages` of them are in shared memory.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    depth: int
    stages: int
    row_of_taps: bool = False
    warps = property(lambda self: self.rows[0] * self.columns[0])  # of a block

    def check(self, batch: int, oc: int, ic: int, k: int) -> None:
        """Raise a ValueError unless all sizes are multiples of these tiles."""
        check_tiles(
            ("batch", batch, 16 * math.prod(self.rows)),
            ("oc", oc, 16 * math.prod(self.columns)),
            ("ic", ic, 16 * self.depth),
        )
        places = k if self.row_of_taps else k * k  # of the kernel, a round each
        check_stages(self.stages, places * ic // (16 * self.depth))


# From batched/tensorcores.
def nhwcnc_loops(
    sch: Schedule, sums: SBlockRV, tiles: FragmentTiles
) -> tuple[LoopRV, LoopRV, LoopRV, tuple[LoopRV, LoopRV]]:
    """Tile a convolution in NHWCnc; returns loops of warps, rounds, reduction, and fragments."""
    b, y, x, c, image, oc, rib, rkh, rkw, ric = sch.get_loops(sums)
    by, wy, b = split_axis(tiles.rows, sch, b)
    bx, wx, c = split_axis(tiles.columns, sch, c)
    ko, ki = split_axis([tiles.depth], sch, rib)
    outer, inner = [rkh, rkw, ko], [ki]
    if tiles.row_of_taps:
        outer, inner = [ko, rkh], [ki, rkw]
    sch.reorder(y, x, by, bx, wy, wx, *outer, *inner, b, c, image, oc, ric)
    together = (y, x), (wy, wx), outer, inner
    pixel, warp, rounds, inner = (sch.fuse(*loops) for loops in together)
    bind_thread(sch, (pixel, by, bx, warp), (*BLOCKS, "threadIdx.y"))
    return warp, rounds, inner, (b, c)


# From batched/tensorcores.
def nhwcnc_caches(
    sch: Schedule,
    block: SBlockRV,
    scope: str,
    fragment_scopes: Sequence[str],
    rounds: LoopRV,
    inner: LoopRV,
) -> tuple[list[SBlockRV], list[SBlockRV]]:
    """Copies of X and K in shared memory, for a round, and of these in fragments."""
    copies = [sch.cache_read(block, k, scope) for k in (0, 1)]
    values = [sch.cache_read(block, k, kind) for k, kind in enumerate(fragment_scopes)]
    sch.compute_inline("PaddedX")
    for value, copy in zip(values, copies, strict=True):
        sch.compute_at(value, inner, preserve_unit_loops=True)
        sch.compute_at(copy, rounds)
    return copies, values


# From batched/tensorcores.
def fetch_blocks(sch: Schedule, copy: SBlockRV, warps: int, width: int = 8) -> None:
    """Share out the copy of a round's blocks, `width` elements a thread at a time."""
    outside = 5  # the loops of pixel, block (two), warp and round
    step, ty, tx, v = split_axis([warps, 32, width], sch, sch.fuse(*sch.get_loops(copy)[outside:]))
    bind_thread(sch, (ty, tx), ("threadIdx.y", "threadIdx.x"))
    sch.unroll(step)
    sch.vectorize(v)


# From batched/swizzling.
def spread(
    sch: Schedule, copies: Sequence[SBlockRV], values: Sequence[SBlockRV], result: SBlockRV
) -> None:
    """Swizzle the tiles in shared memory, and spread fragments over lanes and registers."""
    for copy in copies:
        sch.transform_layout(
            copy, ("write", 0), lambda *i: (*i[:-1], layouts.swizzle_32b(*i[-2:])),
            assume_injective_transform=True,
        )  # fmt: skip
    XF, KF = values
    for block, side, lanes in (
        (XF, "write", lambda i, j: layouts.lane_a(i, j)),
        # `mma.sync` takes eight columns: a fragment of sixteen has two halves.
        (KF, "write", lambda i, j: (j // 8, *layouts.lane_b(i, j))),
        (result, "read", lambda i, j: (j // 8, *layouts.lane_c(i, j))),
    ):
        sch.transform_layout(block, (side, 0), on_last_two(lanes))


# From batched/swizzling.
def on_last_two(lanes: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """A function of all indices that leaves them as they are, but for the last two."""
    return lambda *i: (*i[:-2], *lanes(*i[-2:]))


# From batched/tensorcores.
def tensorize_all(sch: Schedule, blocks: Sequence[SBlockRV], names: Sequence[str]) -> None:
    """Put intrinsics in the place of the innermost loops: three of the sums', two of others."""
    tensor_intrinsics.register(names)
    for block, rank, name in zip(blocks, (2, 2, 2, 3, 2), names, strict=True):
        sch.tensorize(sch.get_loops(block)[-rank], name)


def unroll_fragments(
    sch: Schedule, loops: Iterable[LoopRV], values: Sequence[SBlockRV], sums: Sequence[SBlockRV]
) -> None:
    """Unroll loops over a warp's fragments: registers cannot be indexed."""
    inside = [(block, 6) for block in values] + [(block, 4) for block in sums]
    for block, first in inside:  # behind the loops of pixel, block (two), warp, round, step
        loops = (*loops, *sch.get_loops(block)[first:-2])
    for loop in loops:
        if int(sch.get(loop).extent) > 1:
            sch.unroll(loop)


# From batched/swizzling.
def look_ahead(sch: Schedule, rounds: LoopRV, inner: LoopRV, stages: int) -> None:
    """Fetch tiles `stages` - 1 rounds ahead, and fragments one step."""
    sch.annotate(inner, "software_pipeline_stage", [0, 0, 1])
    sch.annotate(inner, "software_pipeline_order", [0, 1, 2])
    # The steps of a round are three statements then: its first loads, which are made with the
    # round before, all others, and the last product.
    stage = [0, 0, stages - 2, stages - 1, stages - 1]
    sch.annotate(rounds, "software_pipeline_stage", stage)
    sch.annotate(rounds, "software_pipeline_order", [0, 1, 3, 2, 4])
    sch.annotate(rounds, "software_pipeline_async_stages", [0])
