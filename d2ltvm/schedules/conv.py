"""Schedules of convolution that chapters teach, as in `d2ltvm.schedules`.

Each takes oc, ic, n, k, p and s, as `conv_gflop` does, and then its own choices.
"""

import math
from collections.abc import Sequence

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from d2ltvm.compute.convolution import conv, conv_in_tiles, conv_pack
from d2ltvm.compute.ops import schedule
from d2ltvm.schedules.arguments import Factors, checked
from d2ltvm.schedules.loops import bind_thread, pipeline, split_axis


# From convolution/convolution.
@checked
def cpu_direct(
    oc: int, ic: int, n: int, k: int, p: int, s: int, channels: int = 16, lanes: int = 16
) -> Schedule:
    """Convolution on the CPU as it lies in memory: `channels` by `lanes` sums at a time."""
    X, K, Y, _ = conv(oc, ic, n, n, k, k, p, p, s, s)
    sch = schedule([X, K, Y])
    sums = sch.get_sblock("Y")
    c, i, j, ric, rkh, rkw = sch.get_loops(sums)
    (co, ci), (jo, v) = (
        split_axis([largest_divisor(sch, axis, most)], sch, axis)
        for axis, most in ((c, channels), (j, lanes))
    )
    sch.reorder(co, i, jo, ric, rkh, rkw, ci, v)
    result = sch.cache_write(sums, 0, "local")
    sch.reverse_compute_at(result, jo)
    if p:
        sch.parallel(sch.get_loops(sch.get_sblock("PaddedX"))[0])
    sch.parallel(sch.fuse(co, i))
    sch.unroll(ci)
    sch.vectorize(v)
    sch.vectorize(sch.get_loops(result)[-1])
    sch.decompose_reduction(sums, ric)
    return sch


# From convolution/convolution.
@checked
def cpu_conv(
    oc: int,
    ic: int,
    n: int,
    k: int,
    p: int,
    s: int,
    toc: int = 32,
    tic: int = 16,
    rows: int = 8,
    width: int = 8,
) -> Schedule:
    """Convolution on the CPU, packed: `width` pixels by `toc` channels."""
    toc, tic = math.gcd(oc, toc), math.gcd(ic, tic)
    X, K, Y, *_ = conv_pack(oc, ic, n, n, k, k, p, p, toc, tic, s, s)
    sch = schedule([X, K, Y])
    if p:
        sch.compute_inline("PaddedX")
    sums = sch.get_sblock("PackedY")
    pack(sch)
    co, i, j, ci, rio, rkh, rkw, rii = sch.get_loops(sums)
    (io, im), (jo, jj) = (
        split_axis([largest_divisor(sch, axis, most)], sch, axis)
        for axis, most in ((i, rows), (j, width))
    )
    fours, some = split_axis([math.gcd(tic, 4)], sch, rii)
    vectors, v = split_axis([math.gcd(toc, 16)], sch, ci)
    sch.reorder(co, io, rio, im, jo, rkh, rkw, fours, some, jj, vectors, v)
    band = sch.fuse(co, io)
    sch.parallel(band)
    sch.reverse_compute_at(sch.get_sblock("Y"), band)
    sch.vectorize(v)
    for loop in (some, jj, vectors):
        sch.unroll(loop)
    sch.decompose_reduction(sums, rio)
    return sch


# From convolution/convolution.
def pack(sch: Schedule) -> None:
    """Pack image and kernels in parallel, reading along their rows."""
    for name in ("PackedX", "PackedK"):
        sch.parallel(sch.fuse(*sch.get_loops(sch.get_sblock(name))[:2]))
    *_, x, channel = sch.get_loops(sch.get_sblock("PackedX"))
    sch.reorder(channel, x)
    *_, y, x, ic, oc = sch.get_loops(sch.get_sblock("PackedK"))
    sch.reorder(oc, ic, y, x)


# From convolution/convolution.
def largest_divisor(sch: Schedule, loop: LoopRV, most: int) -> int:
    """The largest number up to `most` that divides a loop's length."""
    length = int(sch.get(loop).extent)
    return max(size for size in range(1, most + 1) if length % size == 0)


# From convolution/on_the_gpu.
@checked
def default_sch(oc: int, ic: int, n: int, k: int, p: int, s: int) -> Schedule:
    """Convolution: a row a block, a column a thread, channels in turn."""
    X, K, Y, _ = conv(oc, ic, n, n, k, k, p, p, s, s)
    sch = schedule([X, K, Y])
    if p:
        sch.compute_inline("PaddedX")
    c, y, x, *_ = sch.get_loops(sch.get_sblock("Y"))
    sch.reorder(y, x, c)
    bind_thread(sch, (y, x), ("blockIdx.x", "threadIdx.x"))
    return sch


# From convolution/on_the_gpu.
@checked
def spread_sch(oc: int, ic: int, n: int, k: int, p: int, s: int, groups: int = 64) -> Schedule:
    """Convolution: as `default_sch`, with a block for each row and each group of channels."""
    X, K, Y, _ = conv(oc, ic, n, n, k, k, p, p, s, s)
    sch = schedule([X, K, Y])
    if p:
        sch.compute_inline("PaddedX")
    c, y, x, *_ = sch.get_loops(sch.get_sblock("Y"))
    group, c = sch.split(c, [min(groups, oc), None])
    sch.reorder(group, y, x, c)
    bind_thread(sch, (group, y, x), ("blockIdx.y", "blockIdx.x", "threadIdx.x"))
    return sch


# From convolution/on_the_gpu.
@checked
def register_sch(
    oc: int, ic: int, n: int, k: int, p: int, s: int, channels: int = 8, rows: int = 4
) -> Schedule:
    """Convolution: `channels` by `rows` sums a thread, and nothing in shared memory."""
    X, K, Y, _ = conv(oc, ic, n, n, k, k, p, p, s, s)
    sch = schedule([X, K, Y])
    sums = sch.get_sblock("Y")
    pixels = sch.cache_read(sums, 0, "local")
    if p:
        sch.compute_inline("PaddedX")
    c, y, x, ric, rkh, rkw = sch.get_loops(sums)
    (group, c), (band, y) = split_axis([channels], sch, c), split_axis([rows], sch, y)
    sch.reorder(group, band, x, ric, rkh, rkw, c, y)
    bind_thread(sch, (group, band, x), ("blockIdx.y", "blockIdx.x", "threadIdx.x"))
    sch.compute_at(pixels, rkw)
    sch.reverse_compute_at(sch.cache_write(sums, 0, "local"), x)
    sch.decompose_reduction(sums, ric)
    return sch


# From convolution/tiling.
def with_conv_caches(sch: Schedule, block: SBlockRV, scope: str = "shared") -> tuple[SBlockRV, ...]:
    """Copies of image and weights in shared memory, and of these in registers."""
    XX, KK = (sch.cache_read(block, k, scope) for k in (0, 1))
    for name in ("PaddedX", "PaddedK"):
        sch.compute_inline(name)
    XL, KL = (sch.cache_read(block, k, "local") for k in (0, 1))
    return XX, KK, XL, KL


THREADS = ("threadIdx.z", "threadIdx.y", "threadIdx.x")
BLOCKS = ("blockIdx.z", "blockIdx.y", "blockIdx.x")
VTHREADS = ("vthread.z", "vthread.y", "vthread.x")


# From convolution/tiling.
def conv_fetch(
    sch: Schedule, copy: SBlockRV, rank: int, threads: Factors, runs: bool = False
) -> None:
    """Share out a copy's last `rank` loops, neighbour by neighbour or in runs."""
    fused = sch.fuse(*sch.get_loops(copy)[-rank:])
    if runs:
        *axes, _ = sch.split(fused, [*threads, None])
    else:
        _, *axes = sch.split(fused, [None, *threads])
    bind_thread(sch, axes, THREADS)


# From convolution/tiling.
def conv_loops(
    sch: Schedule,
    sums: SBlockRV,
    output: Sequence[Factors],
    reduction: Sequence[Factors],
) -> tuple[LoopRV, Sequence[LoopRV], LoopRV]:
    """Tile a convolution; returns the loops at which its stages are computed."""
    axes = sch.get_loops(sums)
    blocks, virtual, threads, each = zip(
        *(split_axis(tile, sch, axis) for tile, axis in zip(output, axes[:3], strict=True)),
        strict=True,
    )
    outer, middle, inner = zip(
        *(split_axis(tile, sch, axis) for tile, axis in zip(reduction, axes[3:], strict=True)),
        strict=True,
    )
    sch.reorder(*blocks, *virtual, *threads, *outer, *middle, *inner, *each)
    bind_thread(sch, (*blocks, *virtual, *threads), (*BLOCKS, *VTHREADS, *THREADS))
    return threads[-1], outer, middle[-1]


# From convolution/tiling.
@checked
def conv_tiled(
    oc: int, ic: int, n: int, k: int, p: int, s: int,
    tile_c: Factors, tile_h: Factors, tile_w: Factors,
    tile_rc: Factors = (1, 1), tile_rh: Factors = (1, 1), tile_rw: Factors = (1, 1),
    runs: bool = True,
) -> Schedule:  # fmt: skip
    """Convolution. A tile is (virtual threads, threads, elements), of a round (steps, terms)."""
    for name, tile in (("tile_rh", tile_rh), ("tile_rw", tile_rw)):
        if k % math.prod(tile):
            raise ValueError(f"{name} is {tile}; expected a product that divides k = {k}")
    output, reduction = (tile_c, tile_h, tile_w), (tile_rc, tile_rh, tile_rw)
    tile = [math.prod(sizes) for sizes in (tile_c, tile_rc, tile_h, tile_w)]
    sch = schedule(conv_in_tiles(oc, ic, n, n, k, k, p, p, s, s, tile))
    sums = sch.get_sblock("Sums")
    XX, KK, XL, KL = with_conv_caches(sch, sums)
    sch.set_scope(sums, 0, "local")
    thread, outer, middle = conv_loops(sch, sums, output, reduction)
    sch.reverse_compute_at(sch.get_sblock("Y"), thread)
    for values, copy, rank in ((XL, XX, 3), (KL, KK, 4)):
        sch.compute_at(values, middle)
        sch.compute_at(copy, outer[-1], preserve_unit_loops=True)
        conv_fetch(sch, copy, rank, [tile[1] for tile in output], runs)
    sch.decompose_reduction(sums, outer[0])
    return sch


# From convolution/tiling.
@checked
def tiling(oc: int, ic: int, n: int, k: int, p: int, s: int) -> Schedule:
    """Convolution: 8 channels, 2 rows, 4 columns a thread; along rows of the weights."""
    return conv_tiled(oc, ic, n, k, p, s, (1, 4, 8), (1, 2, 2), (1, 16, 4), tile_rw=(1, k))


# From convolution/virtual_threads.
@checked
def vthread(oc: int, ic: int, n: int, k: int, p: int, s: int) -> Schedule:
    """Convolution: along kernel columns, with two virtual threads across."""
    return conv_tiled(oc, ic, n, k, p, s, (1, 4, 8), (1, 2, 2), (2, 16, 2), tile_rh=(1, k))


# From convolution/split_sum.
@checked
def conv_split(
    oc: int, ic: int, n: int, k: int, p: int, s: int,
    channels: int = 8, rows: int = 4, warps: int = 2, parts: int = 8, depth: int = 2,
    lanes: int = 32, stages: int = 2, scope: str = "shared.dyn",
) -> Schedule:  # fmt: skip
    """Convolution: `parts` groups of threads share the input channels of one tile.

    A thread has `channels` by `rows` sums, a warp `lanes` columns. Along the output
    channels there are `warps`. A round takes `depth` input channels for each group,
    and what `stages` rounds take is in shared memory at once.
    """
    if parts < 2:
        raise ValueError(f"parts is {parts}; expected two or more")
    threads = (parts, warps, lanes)
    tile = (channels * warps, parts * depth, rows, lanes)
    sch = schedule(conv_in_tiles(oc, ic, n, n, k, k, p, p, s, s, tile))
    sums = sch.get_sblock("Sums")
    _, part, _ = sch.split(sch.get_loops(sums)[3], [None, parts, depth])
    partial = sch.rfactor(part, 0)
    XX, KK, XL, KL = with_conv_caches(sch, partial, scope)
    shared = sch.cache_write(partial, 0, "local")
    sch.set_scope(shared, 0, scope)
    tile_loop, thread, rounds, inner = split_loops(sch, partial, (channels, rows, warps, lanes))
    sch.reverse_compute_at(shared, thread)
    add_up(sch, sums, tile_loop, threads)
    for values, copy, rank in ((XL, XX, 3), (KL, KK, 4)):
        sch.compute_at(values, inner, preserve_unit_loops=True)
        sch.compute_at(copy, rounds, preserve_unit_loops=True)
        conv_fetch(sch, copy, rank, threads)
    channels_last(sch, KK, KL)
    sch.decompose_reduction(partial, rounds)
    pipeline(sch, rounds, stages)
    return sch


# From convolution/split_sum.
def split_loops(sch: Schedule, partial: SBlockRV, sizes: Factors) -> tuple[LoopRV, ...]:
    """Tile partial sums; returns loops of tiles, threads, rounds, kernel columns."""
    channels, rows, warps, lanes = sizes
    c, y, x, rounds, part, ric, rkh, rkw = sch.get_loops(partial)
    bc, warp, c = split_axis([warps, channels], sch, c)
    by, y = split_axis([rows], sch, y)
    bx, lane = split_axis([lanes], sch, x)
    sch.reorder(bc, by, bx, part, warp, lane, rounds, ric, rkw, rkh, c, y)
    bind_thread(sch, (bc, by, bx, part, warp, lane), (*BLOCKS, *THREADS))
    sch.unroll(ric)
    sch.unroll(rkw)
    return bx, lane, rounds, rkw


# From convolution/split_sum.
def add_up(sch: Schedule, sums: SBlockRV, tile_loop: LoopRV, threads: Factors) -> None:
    """Add the parts of a tile, by all threads, and write the result."""
    sch.set_scope(sums, 0, "local")
    sch.reverse_compute_at(sums, tile_loop)
    part, *axes = sch.get_loops(sums)[3:]
    sch.reorder(*axes, part)
    every = sch.fuse(*axes)
    # Before the split: both have its condition then.
    sch.reverse_compute_at(sch.get_sblock("Y"), every)
    _, *axes = sch.split(every, [None, *threads])
    bind_thread(sch, axes, THREADS)
    sch.unroll(part)


# From convolution/split_sum.
def channels_last(sch: Schedule, KK: SBlockRV, KL: SBlockRV) -> None:
    """Keep kernels with neighbouring channels side by side, and read four at once."""
    for copy in (KK, KL):
        sch.transform_layout(copy, ("write", 0), lambda o, c, i, j: (c, j, i, o))
    # The distance between channels' rows is then a multiple of 8, and 4 more.
    sch.storage_align(KK, 0, 2, 8, 4)
    o, c, i, j = sch.get_loops(KL)[-4:]
    sch.reorder(c, j, i, o)
    _, four = split_axis([math.gcd(int(sch.get(o).extent), 4)], sch, o)
    sch.vectorize(four)
