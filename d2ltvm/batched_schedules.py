"""Schedules of convolution of batches in HWCN, where a tile is a piece of a matrix product.

For one pixel the kernels are a matrix of reduction by output channels, the images one of reduction
by batch: "rows" are output channels here, "columns" images.
"""

import math

from d2ltvm.batched import conv_hwcn
from d2ltvm.ops import schedule
from d2ltvm.schedules import bind_thread, fetch, pipeline, split_axis


def hwcn_tiled(
    batch, oc, ic, n, k, p=0, s=1,
    rows=(4, 2, 4, 4), columns=(2, 4, 8, 4), depth=8, stages=2, interleave=True, scope="shared.dyn",
):  # fmt: skip
    """Convolution in HWCN: `rows` and `columns` are pieces, warps, lanes, elements.

    Tiles in shared memory, several rounds ahead, and in registers, as in `schedules.matmul_tiled`.
    A block computes one pixel, of some output channels and images.

    >>> d2ltvm.report(hwcn_tiled(256, 512, 256, 14, 3, 1, 1), "H200").occupancy.warps
    8

    Raises:
        ValueError: a tile does not divide its size, or as for `conv_hwcn`.
    """
    tensors = conv_hwcn(batch, oc, ic, n, k, p, s)
    for name, size, tile in (("oc", oc, rows), ("batch", batch, columns), ("ic", ic, (depth,))):
        if size % math.prod(tile):
            raise ValueError(
                f"{name} is {size}; a multiple of the tile, {math.prod(tile)}, is allowed"
            )
    sch = schedule(tensors[:3])
    sums = sch.get_sblock("Y")
    XX, KK = (sch.cache_read(sums, k, scope) for k in (0, 1))
    sch.compute_inline("PaddedX")
    XL, KL = (sch.cache_read(sums, k, "local") for k in (0, 1))
    result = sch.cache_write(sums, 0, "local")
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


def hwcn_loops(sch, sums, rows, columns, depth, interleave):
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
