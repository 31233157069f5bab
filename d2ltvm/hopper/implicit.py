"""Convolution for Hopper: an implicit matrix product, whose rows TMA finds in the image."""

from typing import Any

from tvm.backend.cuda.lang.pipeline import Pipeline, PipelineState
from tvm.script import tirx as T

from d2ltvm.compute.convolution import conv_out_size
from d2ltvm.hopper.planning import (
    DEPTH,
    ROWS,
    ConvPlan,
    plan_conv,
    with_plain_arguments,
)
from d2ltvm.hopper.tile_scheduler import tile_scheduler
from d2ltvm.hopper.tiles import (
    dependent_launch,
    encode_descriptor,
    multiply,
    registers_to_shared,
    release,
    release_last,
    shared_tile,
    tma_load,
    tma_store,
    wait_for_kernel_before,
)


# From hopper/implicit.
@T.meta_class
class ConvTile:
    """Where a tile of the result begins, and the taps that it needs, in registers."""

    def __init__(self) -> None:
        self.row = T.local_scalar("int32")
        self.column = T.local_scalar("int32")
        self.image = T.local_scalar("int32")
        self.channel = T.local_scalar("int32")
        self.first_kh = T.local_scalar("int32")
        self.taps_h = T.local_scalar("int32")
        self.first_kw = T.local_scalar("int32")
        self.taps_w = T.local_scalar("int32")


# From hopper/implicit.
def first_tap(plan: ConvPlan, first: Any, size: int) -> Any:
    """The first tap, along an axis, that some of `size` pixels need."""
    *_, p, s = plan.shape
    return T.max(0, p - (first + size - 1) * s) if plan.skip else 0


# From hopper/implicit.
def end_of_taps(plan: ConvPlan, first: Any) -> Any:
    """The tap behind the last one, along an axis, that pixels from `first` on need."""
    *_, n, k, p, s = plan.shape
    return T.min(k, n + p - first * s) if plan.skip else k


# From hopper/implicit.
@T.inline
def find_taps(tile, plan):
    """Write down the taps that a tile needs: the first and how many, both ways."""
    tile.first_kh = first_tap(plan, tile.row, plan.tile[1])
    tile.taps_h = end_of_taps(plan, tile.row) - tile.first_kh
    tile.first_kw = first_tap(plan, tile.column, plan.tile[2])
    tile.taps_w = end_of_taps(plan, tile.column) - tile.first_kw


# From hopper/implicit.
@T.inline
def locate(tile, index, plan):
    """Write down where the tile of a number lies, and its taps.

    Tiles inside of the image come first, then those at its borders, which have fewer
    taps: long ones start early, and short ones fill the gaps at the end.
    """
    q: T.let[T.int32] = index // plan.each
    if q < plan.whole_y * plan.whole_x:
        tile.row = plan.first_y + q // max(1, plan.whole_x)
        tile.column = plan.first_x + q % max(1, plan.whole_x)
    elif q < plan.whole_y * plan.wide:
        beyond: T.let[T.int32] = q - plan.whole_y * plan.whole_x
        tile.row = plan.first_y + beyond // max(1, plan.wide - plan.whole_x)
        x: T.let[T.int32] = beyond % max(1, plan.wide - plan.whole_x)
        tile.column = (x + plan.first_x + plan.whole_x) % plan.wide
    else:
        tile.row = ((q // plan.wide) + plan.first_y) % plan.high
        tile.column = q % plan.wide
    tile.row = tile.row * plan.tile[1]
    tile.column = tile.column * plan.tile[2]
    r: T.let[T.int32] = index % plan.each
    tile.image = (r // (plan.group * plan.across) * plan.group + r % plan.group) * plan.tile[0]
    tile.channel = r % (plan.group * plan.across) // plan.group * plan.columns
    find_taps(tile, plan)


# From hopper/implicit.
@with_plain_arguments
def conv_nhwc(
    batch: int,
    oc: int,
    ic: int,
    n: int,
    k: int,
    p: int = 0,
    s: int = 1,
    sms: int | None = None,
    **options: Any,
) -> Any:
    """A convolution in NHWC, float16 with float32 sums.

    >>> kernel = d2ltvm.build(hopper.conv_nhwc(256, 512, 256, 14, 3, 1), "sm_90a")

    X is (batch, n, n, ic), W (k * k, oc, ic), Y (batch, o, o, oc). A tile of Y is a
    box of 128 pixels by some channels. For each tap and each 64 input channels the
    producer has TMA fetch the box of X under the tap, zeros where that is outside, and
    a tile of W. The kernel is persistent and warp-specialised, as `matmul_nt` is. With
    tiles on demand it counts them in a variable of its own, so that it must not run in
    two streams at once.

    Args:
        batch, oc, ic, n, k, p, s: as for `conv_nhwcnc`; oc and ic are multiples of 8,
            and p < k.
        sms: blocks that run at once; None for one on each SM (132 without a GPU).
        options: of `planning.plan_conv`.

    Returns:
        A PrimFunc, for `d2ltvm.build`.

    Raises:
        ValueError: a size is not as above, or shared memory is too small.
    """
    plan = plan_conv((batch, oc, ic, n, k, p, s), sms, **options)
    (tn, th, tw), (hn, hh), view = plan.tile, plan.half, plan.shape
    columns, stages, width = plan.columns, plan.stages, plan.width
    tiles, chunks, o = plan.tiles, plan.chunks, conv_out_size(n, k, p, s)
    blocks, nbytes = plan.blocks, (ROWS + columns) * DEPTH * 2

    @T.prim_func
    def main(x_ptr: T.handle, w_ptr: T.handle, y_ptr: T.handle):
        X = T.match_buffer(x_ptr, (batch, n, n, ic), "float16", align=16)
        W = T.match_buffer(w_ptr, (k * k, oc, ic), "float16", align=16)
        Y = T.match_buffer(y_ptr, (batch, o, o, oc), "float16", align=16)
        inputs = T.decl_buffer((view.batch, view.n, view.n, ic), "float16", data=X.data, align=16)
        results = T.decl_buffer((view.batch, view.o, view.o, oc), "float16", data=Y.data, align=16)
        T.device_entry()
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1})
        block = T.cta_id([blocks])
        warpgroup = T.warpgroup_id([3])  # 0 is the producer, 1 and 2 are consumers
        thread = T.thread_id([384])

        pool = T.SMEMPool()
        sX = shared_tile(pool, (stages, tn, th, tw, DEPTH))
        sW = shared_tile(pool, (stages, columns, DEPTH))
        sY = shared_tile(pool, (2, width // 64, hn, hh, tw, 64))
        ring = Pipeline(pool, stages, full="tma", empty="mbar", init_full=1, init_empty=2)
        scheduler = tile_scheduler(pool, tiles, blocks, plan.on_demand)
        pool.commit()
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        wait_for_kernel_before(plan.early)

        tile = ConvTile()
        slot = PipelineState(stages, 0)
        scheduler.init(block)
        if warpgroup == 0:
            if thread == 0:
                while scheduler.is_valid():
                    scheduler.prefetch_next_work()
                    locate(tile, scheduler.work_idx, plan)
                    b: T.let[T.int32] = tile.image
                    c: T.let[T.int32] = tile.channel
                    for rkh in T.serial(tile.taps_h):
                        for rkw in T.serial(tile.taps_w):
                            for i in T.serial(chunks):
                                kh: T.let[T.int32] = tile.first_kh + rkh
                                kw: T.let[T.int32] = tile.first_kw + rkw
                                y: T.let[T.int32] = tile.row * s - p + kh
                                x: T.let[T.int32] = tile.column * s - p + kw
                                tap: T.let[T.int32] = kh * k + kw
                                ring.empty.wait(slot.stage, slot.phase ^ 1)
                                ring.full.arrive(slot.stage, nbytes)
                                z: T.let[T.int32] = i * DEPTH
                                tma_load(
                                    sX[slot.stage, :, :, :, :],
                                    inputs[b : b + tn, y : y + th, x : x + tw, z : z + DEPTH],
                                    ring.full.ptr_to([slot.stage]),
                                )
                                tma_load(
                                    sW[slot.stage, :, :],
                                    W[tap : tap + 1, c : c + columns, z : z + DEPTH],
                                    ring.full.ptr_to([slot.stage]),
                                )
                                slot.advance()
                    scheduler.advance_to_next_work()
        else:
            consumer: T.let[T.int32] = warpgroup - 1
            acc = T.alloc_local((columns // 2,), "float32")
            pair = T.alloc_local((4,), "uint32")
            matrices = T.alloc_local((2,), "uint64")
            encode_descriptor(
                matrices[0], sX.ptr_to([0, consumer * hn % tn, consumer * hh % th, 0, 0])
            )
            encode_descriptor(matrices[1], sW.ptr_to([0, 0, 0]))
            last: T.int32 = 0
            while scheduler.is_valid():
                locate(tile, scheduler.work_idx, plan)
                for i in T.serial(tile.taps_h * tile.taps_w * chunks):
                    ring.full.wait(slot.stage, slot.phase)
                    multiply(acc, matrices, slot.stage, columns, i)
                    release(ring, thread, last, i)
                    last = slot.stage
                    slot.advance()
                release_last(ring, thread, last)
                # The epilogue: results go to shared memory, and from there TMA stores them.
                for h in T.unroll(plan.parts):
                    registers_to_shared(acc, pair, sY, consumer, thread, h, width, (hn, hh, tw))
                    if thread % 128 == 0:
                        for j in T.unroll(width // 64):
                            b: T.let[T.int32] = tile.image + consumer * hn % tn
                            y: T.let[T.int32] = tile.row + consumer * hh % th
                            x: T.let[T.int32] = tile.column
                            c: T.let[T.int32] = tile.channel + h * width + j * 64
                            tma_store(
                                results[b : b + hn, y : y + hh, x : x + tw, c : c + 64],
                                sY[consumer, j, :, :, :, :],
                            )
                        T.ptx.cp.async_.bulk.commit_group()
                scheduler.fetch_next_work()
            if thread % 128 == 0:
                T.ptx.cp.async_.bulk.wait_group(0)

    return dependent_launch(main)
