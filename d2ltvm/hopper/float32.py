"""A float32 convolution on Hopper's TensorCores, as three products of float16.

A float32 has 24 bits; the nearest float16 keeps 11 of them, and the float16 nearest to the rest 11
more: x = high + low. Of the product of two such sums, low times low is below what float32 could
tell, and the other three products are what TensorCores compute exactly. They cut their sums off,
though, so that these are collected, in float32 registers, after every 64 channels.
"""

import math
from typing import Any

import numpy as np
import tvm
from tvm import te
from tvm.backend.cuda.lang.pipeline import Pipeline, PipelineState
from tvm.script import tirx as T

from d2ltvm.compute.convolution import conv_out_size
from d2ltvm.compute.ops import schedule
from d2ltvm.errors import shown
from d2ltvm.hopper.implicit import ConvTile, locate
from d2ltvm.hopper.planning import (
    DEPTH,
    ROWS,
    ConvPlan,
    TileSizes,
    check_columns,
    plan_conv,
    with_plain_arguments,
)
from d2ltvm.hopper.tiles import (
    ALONG_ROWS,
    AS_IT_IS,
    encode_descriptor,
    shared_tile,
    tma_load,
    tma_store,
)

LARGEST = 2.0**15  # float16 ends at 65504


def power_of_two(values: Any) -> float:
    """The power of two by which float32 values are multiplied before they become float16.

    >>> power_of_two(np.array([0.75, -3.0], "float32"))
    8192.0

    The largest is then from 2**14 to 2**15, unless that took more than 2**127, where float32
    ends. What is 2**16 times smaller than it loses a bit of its low part, and what is 2**28 times
    smaller all of them: float16 has no bit below 2**-24.

    Raises:
        ValueError: a value is infinite or NaN, or there is no array of them.
    """
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu":
        raise ValueError(f"values is {shown(values)}; expected a NumPy array of numbers")
    most = float(np.max(np.abs(values), initial=0))
    if not np.isfinite(most):
        raise ValueError(f"the largest of values is {most}; expected a finite one")
    scale = LARGEST / 2.0 ** (np.frexp(most)[1]) if most else 1.0
    return float(min(scale, 2.0**127))


# From hopper/float32.
@with_plain_arguments
def split(shape: tuple[int, ...], scale: float) -> Any:
    """A schedule that splits float32 into two float16: out[0] + out[1] = scale * x.

    >>> kernel = d2ltvm.build(split((2, 14, 14, 64), 2.0**14), "sm_90a")
    >>> [param.shape for param in kernel.params]
    [(2, 14, 14, 64), (2, 2, 14, 14, 64)]

    Args:
        shape: of x; its size is a multiple of 4.
        scale: a power of two, such as `power_of_two` gives.

    Returns:
        A `tvm.s_tir.Schedule`.

    Raises:
        ValueError: the size is not a multiple of 4, or the scale no power of two.
    """
    if min(shape) < 1 or math.prod(shape) % 4:
        raise ValueError(f"shape is {shape}; expected a multiple of 4 elements")
    if not (0 < scale < math.inf and math.frexp(scale)[0] == 0.5):
        raise ValueError(f"scale is {scale}; expected a power of two")
    x = te.placeholder(shape, name="x")

    def piece(p: Any, *index: Any) -> Any:
        value = x(*index) * tvm.tirx.const(scale, "float32")
        high = value.astype("float16")
        return tvm.tirx.if_then_else(
            p == 0, high, (value - high.astype("float32")).astype("float16")
        )

    sch = schedule([x, te.compute((2, *shape), piece, name="pieces")])
    p, *axes = sch.get_loops(sch.get_sblock("pieces"))
    bx, tx, v = sch.split(sch.fuse(*axes), [None, 256, 4])
    sch.reorder(bx, tx, p, v)
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    sch.unroll(p)  # one thread makes both pieces of what it has read
    sch.vectorize(v)
    return sch


# From hopper/float32.
@with_plain_arguments
def conv_float32(
    batch: int,
    oc: int,
    ic: int,
    n: int,
    k: int,
    p: int = 0,
    s: int = 1,
    scale: float = 1.0,
    sms: int | None = None,
    **options: Any,
) -> Any:
    """A convolution kernel in NHWC of float32, given as pairs of float16.

    >>> kernel = d2ltvm.build(conv_float32(256, 512, 256, 14, 3, 1), "sm_90a")

    X is (2, batch, n, n, ic), W (2, k * k, oc, ic), both from `split`, Y (batch, o, o, oc) in
    float32. As `hopper.conv_nhwc`, but a slot of the ring holds both pieces of both tiles.

    Args:
        batch, oc, ic, n, k, p, s, sms: as for `hopper.conv_nhwc`.
        scale: what results are multiplied by: one over the scales of X and of W.
        options: of `planning.plan_conv`; columns are 64 or 128.

    Returns:
        A PrimFunc, for `d2ltvm.build`.

    Raises:
        ValueError: as for `hopper.conv_nhwc`, or `scale` is no normal number of float32.
    """
    if not np.finfo("float32").tiny <= scale <= np.finfo("float32").max:
        raise ValueError(f"scale is {scale}; expected a normal number of float32")
    plan = plan_float32((batch, oc, ic, n, k, p, s), sms, **options)
    (tn, th, tw), (hn, hh), view = plan.tile, plan.half, plan.shape
    columns, stages, width = plan.columns, plan.stages, plan.width
    tiles, chunks, o = plan.tiles, plan.chunks, conv_out_size(n, k, p, s)
    blocks, nbytes = plan.blocks, 2 * (ROWS + columns) * DEPTH * 2

    @T.prim_func
    def main(x_ptr: T.handle, w_ptr: T.handle, y_ptr: T.handle):
        X = T.match_buffer(x_ptr, (2, batch, n, n, ic), "float16", align=16)
        W = T.match_buffer(w_ptr, (2, k * k, oc, ic), "float16", align=16)
        Y = T.match_buffer(y_ptr, (batch, o, o, oc), "float32", align=16)
        inputs = T.decl_buffer(
            (2 * view.batch, view.n, view.n, ic), "float16", data=X.data, align=16
        )
        weights = T.decl_buffer((2 * k * k, oc, ic), "float16", data=W.data, align=16)
        results = T.decl_buffer((view.batch, view.o, view.o, oc), "float32", data=Y.data, align=16)
        T.device_entry()
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1})
        block = T.cta_id([blocks])
        warpgroup = T.warpgroup_id([3])  # 0 is the producer, 1 and 2 are consumers
        thread = T.thread_id([384])

        pool = T.SMEMPool()
        sX = shared_tile(pool, (stages, 2, tn, th, tw, DEPTH))
        sW = shared_tile(pool, (stages, 2, columns, DEPTH))
        sY = shared_tile(pool, (2, width // 32, hn, hh, tw, 32), "float32")
        ring = Pipeline(pool, stages, full="tma", empty="mbar", init_full=1, init_empty=2)
        pool.commit()
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()

        tile = ConvTile()
        slot = PipelineState(stages, 0)
        index: T.int32 = block
        if warpgroup == 0:
            if thread == 0:
                while index < tiles:
                    locate(tile, index, plan)
                    c: T.let[T.int32] = tile.channel
                    for rkh in T.serial(tile.taps_h):
                        for rkw in T.serial(tile.taps_w):
                            for i in T.serial(chunks):
                                kh: T.let[T.int32] = tile.first_kh + rkh
                                kw: T.let[T.int32] = tile.first_kw + rkw
                                y: T.let[T.int32] = tile.row * s - p + kh
                                x: T.let[T.int32] = tile.column * s - p + kw
                                z: T.let[T.int32] = i * DEPTH
                                ring.empty.wait(slot.stage, slot.phase ^ 1)
                                ring.full.arrive(slot.stage, nbytes)
                                for low in T.unroll(2):
                                    b: T.let[T.int32] = tile.image + low * view.batch
                                    tap: T.let[T.int32] = kh * k + kw + low * k * k
                                    tma_load(
                                        sX[slot.stage, low, :, :, :, :],
                                        inputs[b : b + tn, y : y + th, x : x + tw, z : z + DEPTH],
                                        ring.full.ptr_to([slot.stage]),
                                    )
                                    tma_load(
                                        sW[slot.stage, low, :, :],
                                        weights[tap : tap + 1, c : c + columns, z : z + DEPTH],
                                        ring.full.ptr_to([slot.stage]),
                                    )
                                slot.advance()
                    index = index + blocks
        else:
            consumer: T.let[T.int32] = warpgroup - 1
            acc = T.alloc_local((columns // 2,), "float32")
            total = T.alloc_local((columns // 2,), "float32")
            matrices = T.alloc_local((2,), "uint64")
            encode_descriptor(
                matrices[0], sX.ptr_to([0, 0, consumer * hn % tn, consumer * hh % th, 0, 0])
            )
            encode_descriptor(matrices[1], sW.ptr_to([0, 0, 0, 0]))
            while index < tiles:
                locate(tile, index, plan)
                for i in T.unroll(columns // 2):
                    total[i] = T.float32(0)
                for _ in T.serial(tile.taps_h * tile.taps_w * chunks):
                    ring.full.wait(slot.stage, slot.phase)
                    multiply_pieces(acc, matrices, slot.stage, columns, 0)
                    multiply_pieces(acc, matrices, slot.stage, columns, 1)
                    # One half is collected while the other one is multiplied.
                    T.ptx.wgmma.wait_group.sync.aligned(1)
                    collect(total, acc, columns, 0)
                    T.ptx.wgmma.wait_group.sync.aligned(0)
                    if thread % 128 == 0:
                        ring.empty.arrive(slot.stage)
                    collect(total, acc, columns, 1)
                    slot.advance()
                for h in T.unroll(plan.parts):
                    float32_registers_to_shared(
                        total, scale, sY, consumer, thread, h, width, (hn, hh, tw)
                    )
                    if thread % 128 == 0:
                        for j in T.unroll(width // 32):
                            b: T.let[T.int32] = tile.image + consumer * hn % tn
                            y: T.let[T.int32] = tile.row + consumer * hh % th
                            x: T.let[T.int32] = tile.column
                            c: T.let[T.int32] = tile.channel + h * width + j * 32
                            tma_store(
                                results[b : b + hn, y : y + hh, x : x + tw, c : c + 32],
                                sY[consumer, j, :, :, :, :],
                            )
                        T.ptx.cp.async_.bulk.commit_group()
                index = index + blocks
            if thread % 128 == 0:
                T.ptx.cp.async_.bulk.wait_group(0)

    return main


def plan_float32(
    shape: tuple[int, ...],
    sms: int | None = None,
    columns: int | None = None,
    parts: int = 2,
    tile: TileSizes | None = None,
    **options: Any,
) -> ConvPlan:
    """`plan_conv` for pairs of tiles, and sums kept twice: of 128 columns at most."""
    if columns is None:
        columns = min(128, plan_conv(shape, sms, tile).columns)
    check_columns(columns, (64, 128))
    options = {"on_demand": False, "pieces": 2, "itemsize": 4, **options}
    return plan_conv(shape, sms, tile, columns, parts=parts, **options)


# From hopper/float32.
@T.inline
def multiply_pieces(acc, matrices, stage, columns, h, since=0):
    """Begin three products of half of the columns: high by low, low by high, high by high.

    The small ones come first: what is added to a large sum loses more of its bits. Sums
    start at zero when no rounds have gone by `since` they were collected.
    """
    T.ptx.wgmma.fence.sync.aligned()
    for i in T.unroll(3 * DEPTH // 16):
        x: T.let[T.int32] = stage * 2 + T.if_then_else(i // 4 == 1, 1, 0)
        w: T.let[T.int32] = stage * 2 + T.if_then_else(i // 4 == 0, 1, 0)
        T.ptx[f"wgmma.mma_async.sync.aligned.m64n{columns // 2}k16.f32.f16.f16"](
            *[acc[h * (columns // 4) + j] for j in range(columns // 4)],
            matrices[0] + T.Cast("uint64", x * (ROWS * 8) + i % 4 * 2),
            matrices[1] + T.Cast("uint64", (w * 2 + h) * (columns * 4) + i % 4 * 2),
            T.ptx.pred(since + i > 0), AS_IT_IS, AS_IT_IS, ALONG_ROWS, ALONG_ROWS,
        )  # fmt: skip
    T.ptx.wgmma.commit_group.sync.aligned()


# From hopper/float32.
@T.inline
def collect(total, acc, columns, h):
    """Add sums of half of the columns to those that are kept.

    By an instruction that stays where it is: what is written as a plain sum the compiler may
    compute before the wait for the products above it.
    """
    for i in T.unroll(columns // 4):
        j: T.let[T.int32] = h * (columns // 4) + i
        T.ptx["add.rn.f32"](total[j], total[j], acc[j])


@T.inline
def float32_registers_to_shared(sums, scale, tile, consumer, thread, h, width, box):
    """Put scaled sums of a consumer into its tile: `registers_to_shared` without rounding."""
    if thread % 128 == 0:
        T.ptx.cp.async_.bulk.wait_group.read(0)
    T.cuda.warpgroup_sync(consumer + 1)
    row: T.let[T.int32] = thread % 128 // 32 * 16 + thread % 32 // 4
    for j in T.unroll(width // 8):
        for i in T.unroll(4):
            r: T.let[T.int32] = row + i // 2 * 8
            column: T.let[T.int32] = j % 4 * 8 + thread % 4 * 2 + i % 2
            tile[
                consumer, j // 4, r // (box[1] * box[2]), r // box[2] % box[1], r % box[2], column
            ] = sums[h * (width // 2) + j * 4 + i] * T.float32(scale)  # fmt: skip
    T.ptx.fence.proxy.async_.shared__cta()
    T.cuda.warpgroup_sync(consumer + 1)
