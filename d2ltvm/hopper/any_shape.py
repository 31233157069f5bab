"""A convolution of any shape, and a product of any sizes, for Hopper.

Everything here is right under emulation, and was on an H200: pixels in TMA's im2col mode, windows,
swapped operands, matrices that are not transposed, sums that are cut, clusters that share weights
or images or in which parts of a sum meet, consumers that take tiles in turns, scale, bias,
residual, ReLU and float32 results, and results that are stored from registers. So are float32
numbers, split or read as TF32, which ran on H100s.
"""

from typing import Any

from tvm.backend.cuda.lang.pipeline import MBarrier, Pipeline, PipelineState, TMABar
from tvm.script import tirx as T

from d2ltvm.compiler.im2col import ENCODE
from d2ltvm.errors import shown
from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_epilogue import (
    exchange_in_cluster,
    exchange_parts,
    fetch_residual,
    keep_values,
    store_registers,
    store_tile,
)
from d2ltvm.hopper.any_float32 import (
    GIVEN_UP,
    TAKEN,
    split_rounds,
    views_of,
)
from d2ltvm.hopper.any_mainloop import (
    Work,
    descriptors_of,
    locate,
    multiply_any,
    release_last_slot,
    release_slot,
    share,
    skip,
    tile_of,
)
from d2ltvm.hopper.any_plan import Plan
from d2ltvm.hopper.planner import plan_any
from d2ltvm.hopper.planning import extents
from d2ltvm.hopper.tiles import dependent_launch, wait_for_kernel_before

TILED = "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
ENCODE_TILED = "runtime.cuTensorMapEncodeTiled"
IM2COL = "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"


# Used in hopper/any_shape.
def conv_any(conv: Conv, sms: int | None = None, plan: Plan | None = None, **options: Any) -> Any:
    """A kernel for any convolution in NHWC, of float16, or of `plan.numbers`, with float32 sums.

    >>> kernel = d2ltvm.build(conv_any(Conv(8, (7, 7), 64, 64, (3, 3), (1, 1))), "sm_90a")

    X is (batch, h, w, ic), W (taps, oc, ic), Y (batch, oh, ow, oc). Pixels of all images are one
    dimension, of which TMA finds the rows in its im2col mode.

    Args:
        conv: sizes; ic is a multiple of 8.
        sms: blocks that run at once; None for one on each SM (132 without a GPU).
        plan: how it is cut; by default `plan_any` of the conv and the options.
        options: of `any_plan.Plan`.

    Returns:
        A PrimFunc of X, W (of float32 numbers: as `any_layer.Layer.weights` makes it), then what
        there is of these: B (oc), float32, if there is a bias, or (2, oc), scales and biases, if
        there is a scale, too; R as Y if there is a residual; P, room for `Plan.partials`, where
        sums are cut; and Y. Where sums are cut, it counts in variables of its own, so that it must
        not run in two streams at once.

    Raises:
        ValueError: a plan is not possible, or has a residual or a scale and no bias.
        TypeError: `conv` is no `Conv`.

    Of float32 numbers that are split, a scale is what weights were divided by: see
    `Layer.factors`. A row of 64 numbers with an infinity or NaN gives NaN for all results that it
    goes into.
    """
    if not isinstance(conv, Conv):
        raise TypeError(f"conv is {shown(conv)}; expected a d2ltvm.hopper.any_conv.Conv")
    if conv.ic % 8:
        raise ValueError(f"ic is {conv.ic}; expected a multiple of 8, as any_layer makes it")
    plan = plan or plan_any(conv, sms, **options)
    if (plan.residual or plan.scale) and not plan.bias:
        other = "residual" if plan.residual else "scale"
        raise ValueError(f"bias is False; expected True with a {other}: zeros, if there is none")
    ic, oc, (oh, ow), (_, kw) = conv.ic, conv.oc, conv.out, conv.kernel
    (ph, pw), (sh, sw), (dh, dw) = conv.pad, conv.stride, conv.dilation
    stages, depth, chunks = plan.stages, plan.depth, plan.chunks
    # Of a tile, what a block fetches itself; and which blocks of its cluster that is for.
    own_pixels, own_channels = plan.pixels // plan.abreast, plan.channels // plan.cluster
    below = 2**plan.cluster - 1
    beside = sum(1 << plan.cluster * k for k in range(plan.abreast))
    walk = plan.walk
    threads = 128 * (plan.consumers + 1)
    pieces = plan.pieces
    sA_shape: tuple[int, ...] = (stages * pieces, plan.rows, depth)
    sB_shape: tuple[int, ...] = (stages * pieces, plan.columns, depth)
    if not plan.transposed:
        if plan.swapped:
            sA_shape = (stages, plan.rows // 64, depth, 64)
        else:
            sB_shape = (stages, plan.columns // 64, depth, 64)
    staged: tuple[int, ...]
    if plan.swapped:
        staged = (plan.consumers * plan.boxes, 1, plan.columns // plan.parts, 64)
    else:
        staged = (plan.consumers * plan.boxes, plan.columns // plan.box // plan.parts, 64, plan.box)
    waits = plan.residual and plan.staged > 0  # for a residual, which TMA brings

    @T.inline
    def body(X, W, B, R, P, Y):
        x_map: T.let[T.handle("tensormap")] = T.tvm_stack_alloca("tensormap", 1)
        y_map: T.let[T.handle("tensormap")] = T.tvm_stack_alloca("tensormap", 1)
        if plan.bricks is not None:
            T.call_packed(ENCODE_TILED, x_map, "float16", 4, X.data, *plan.brick_map)
            T.call_packed(ENCODE_TILED, y_map, "float16", 4, Y.data, *plan.result_map)
        elif not conv.is_product:
            T.call_packed(ENCODE, x_map, X.data, *walk.arguments)
        # Only a product reads images by this.
        rows = T.decl_buffer(
            extents(conv.pixels, plan.image_channels), "float16", data=X.data, align=16
        )
        # Behind the channels of a tap are those of the next: what they make is not stored.
        lines = T.decl_buffer(
            extents(*((pieces * conv.taps * oc, ic) if plan.transposed else plan.weights[1:])),
            "float16",
            data=W.data,
            align=16,
        )
        results = T.decl_buffer(extents(conv.pixels, oc), plan.dtype, data=Y.data, align=16)
        by_channel = T.decl_buffer((1 + plan.scale, oc), "float32", data=B.data, align=16)
        residual = T.decl_buffer(extents(conv.pixels, oc), "float16", data=R.data, align=16)
        words = T.decl_buffer(
            extents(conv.pixels, max(1, oc // 2)), "uint32", data=Y.data, align=16
        )
        T.device_entry()
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": plan.blocks_per_sm})
        block = T.cta_id([plan.blocks])
        inside = T.meta_var(0 if plan.launched == 1 else T.cta_id_in_cluster([plan.launched]))
        rank = T.meta_var(0 if plan.team == 1 else inside)
        to_below = T.meta_var(T.Cast("uint16", below << (rank // plan.cluster * plan.cluster)))
        to_beside = T.meta_var(T.Cast("uint16", beside << (rank % plan.cluster)))
        warpgroup = T.warpgroup_id([plan.consumers + 1])  # 0 is the producer
        thread = T.thread_id([threads])

        pool = T.SMEMPool()
        sA = tile_of(pool, sA_shape)
        views = T.meta_var(views_of(pool, sA) if pieces > 1 else (sA, sA))
        sB = tile_of(pool, sB_shape)
        sY = sA if plan.staged == 0 else tile_of(pool, staged)
        ring = Pipeline(
            pool,
            stages,
            full="tma",
            empty="mbar",
            init_full=1,
            init_empty=plan.together * (plan.cluster + plan.abreast - 1),
        )
        arrived = TMABar(pool, plan.consumers)
        if waits:
            arrived.init(1)
        multiplied = MBarrier(pool, 2)  # the last slot of a tile of each consumer, in turns
        if plan.pingpong:
            multiplied.init(1)
        sums = pool.alloc(plan.meeting, "float32", align=16)  # of parts that meet in a cluster
        values = pool.alloc(plan.values, "float32", align=16)  # of the channels of a tile
        scales = pool.alloc(plan.scales, "float32", align=16)  # of the rows of a slot
        pool.commit()
        T.ptx.fence.proxy.async_.shared__cta()
        if plan.launched > 1:
            T.cuda.cluster_sync()
        else:
            T.cuda.cta_sync()
        wait_for_kernel_before()

        work = Work()
        slot = PipelineState(stages, 0)
        item: T.int32 = block // plan.team
        if warpgroup == 0:
            if plan.moves_registers:
                T.ptx["setmaxnreg.dec.sync.aligned.u32"](GIVEN_UP)
            if thread == 0:
                while item < plan.items:
                    locate(work, item, rank, plan)
                    y: T.let[T.int32] = work.row * sh - ph
                    x: T.let[T.int32] = work.column * sw - pw
                    for r in T.serial(work.end - work.first):
                        k: T.let[T.int32] = work.first + r
                        tap: T.let[T.int32] = k // chunks
                        z: T.let[T.int32] = k % chunks * depth
                        line: T.let[T.int32] = tap * oc + work.channel
                        ring.empty.wait(slot.stage, slot.phase ^ 1)
                        ring.full.arrive(slot.stage, plan.slot)
                        target = T.meta_var(sB if plan.swapped else sA)
                        if conv.is_product:
                            p: T.let[T.int32] = rank // plan.cluster * own_pixels
                            for j in T.unroll(pieces):
                                e: T.let[T.int32] = z * pieces + j * depth
                                share(
                                    target[slot.stage * pieces + j, p : p + own_pixels, :],
                                    rows[
                                        work.pixel + p : work.pixel + p + own_pixels, e : e + depth
                                    ],
                                    ring.full.ptr_to([slot.stage]),
                                    to_beside,
                                    plan.abreast,
                                    plan,
                                )
                        elif plan.bricks is not None:
                            T.ptx[TILED](
                                target.ptr_to([slot.stage, 0, 0]), T.address_of(x_map), z,
                                x + tap % kw * dw, y + tap // kw * dh, work.image,
                                ring.full.ptr_to([slot.stage]),
                            )  # fmt: skip
                        else:
                            for j in T.unroll(pieces):
                                T.ptx[IM2COL](
                                    target.ptr_to([slot.stage * pieces + j, 0, 0]),
                                    T.address_of(x_map), z * pieces + j * depth, x, y, work.image,
                                    ring.full.ptr_to([slot.stage]),
                                    T.Cast("uint16", tap % kw * dw),
                                    T.Cast("uint16", tap // kw * dh),
                                )  # fmt: skip
                        weights = T.meta_var(sA if plan.swapped else sB)
                        if plan.transposed:
                            first: T.let[T.int32] = rank % plan.cluster * own_channels
                            for j in T.unroll(pieces):
                                own: T.let[T.int32] = line + first + j * (conv.taps * oc)
                                share(
                                    weights[
                                        slot.stage * pieces + j, first : first + own_channels, :
                                    ],
                                    lines[own : own + own_channels, z : z + depth],
                                    ring.full.ptr_to([slot.stage]),
                                    to_below,
                                    plan.cluster,
                                    plan,
                                )
                        else:
                            for i in T.unroll(own_channels // 64):
                                j: T.let[T.int32] = rank % plan.cluster * (own_channels // 64) + i
                                c: T.let[T.int32] = work.channel + j * 64
                                share(
                                    weights[slot.stage, j, :, :],
                                    lines[z : z + depth, c : c + 64],
                                    ring.full.ptr_to([slot.stage]),
                                    to_below,
                                    plan.cluster,
                                    plan,
                                )
                        slot.advance()
                    item = item + plan.blocks // plan.team
        else:
            if plan.moves_registers:
                T.ptx["setmaxnreg.inc.sync.aligned.u32"](TAKEN)
            consumer: T.let[T.int32] = warpgroup - 1
            acc = T.alloc_local((plan.per * plan.columns // 2,), "float32")
            total = T.meta_var(
                T.alloc_local((plan.columns // 2,), "float32") if pieces > 1 else acc
            )
            kept = T.alloc_local((32,), "float32")
            back = T.alloc_local((2,), "float32")
            pair = T.alloc_local((4,), "uint32")
            halves = T.decl_buffer((8,), "float16", data=pair.data, scope="local")
            four = T.alloc_local((4,), "float32")
            matrices = T.alloc_local((2,), "uint64")
            descriptors_of(matrices, sA, sB, consumer, plan)
            last: T.int32 = 0
            turn: T.int32 = 0
            now: T.int32 = 0
            if plan.pingpong:
                item = (block + consumer * plan.blocks) // plan.team
                if consumer == 1:
                    skip(slot, plan.rounds)
            while item < plan.items:
                locate(work, item, rank, plan)
                if plan.bias:
                    keep_values(values, by_channel, work, consumer, thread, plan)
                if waits:  # noqa: SIM102 decided when the kernel is made
                    if thread % 128 == 0 and (plan.cut == 0 or item < plan.full):
                        fetch_residual(residual, sY, arrived, work, consumer, plan)
                if plan.pingpong:
                    multiplied.wait(1 - consumer, now ^ (1 - consumer))
                    now = now ^ 1
                if pieces > 1:
                    split_rounds(
                        acc, total, back, kept, pair, *views, scales, matrices, ring, slot, work,
                        thread, consumer, rank, plan,
                    )  # fmt: skip
                else:
                    for r in T.serial(work.end - work.first):
                        ring.full.wait(slot.stage, slot.phase)
                        multiply_any(acc, matrices, slot.stage, r, plan)
                        release_slot(ring, thread, last, r, rank, plan)
                        last = slot.stage
                        slot.advance()
                    if plan.pingpong:  # noqa: SIM102
                        if thread % 128 == 0:
                            multiplied.arrive(consumer)
                    release_last_slot(ring, thread, last, rank, plan)
                if plan.cut > 0:  # noqa: SIM102
                    if item >= plan.full:
                        if plan.distributed:
                            exchange_in_cluster(total, four, sums, work, consumer, thread, plan)
                        else:
                            exchange_parts(total, four, P, work, consumer, thread, plan)
                        store_registers(
                            total, pair, four, values, residual, results, words, work, work.part,
                            plan.span, consumer, thread, plan,
                        )  # fmt: skip
                if not plan.all_cut:  # noqa: SIM102
                    if plan.cut == 0 or item < plan.full:
                        if waits:
                            arrived.wait(consumer, turn)
                            turn = turn ^ 1
                        if plan.direct:
                            store_registers(
                                total, pair, four, values, residual, results, words, work, 0,
                                plan.groups, consumer, thread, plan,
                            )  # fmt: skip
                        else:
                            store_tile(
                                total, pair, halves, values, sY, results, y_map, work, consumer,
                                thread, plan,
                            )  # fmt: skip
                if plan.pingpong:
                    skip(slot, plan.rounds)
                    item = item + 2 * plan.blocks // plan.team
                else:
                    item = item + plan.blocks // plan.team
            if thread % 128 == 0:
                T.ptx.cp.async_.bulk.wait_group(0)
        if plan.launched > 1:  # a block must not end while another one uses its memory
            T.cuda.cluster_sync()

    given = "float16" if plan.numbers == "float16" else "float32"
    x_type, w_type, b_type, r_type, p_type, y_type = (
        (extents(*plan.images), given),
        (extents(*plan.weights), "float32" if plan.numbers == "tf32" else "float16"),
        ((2, oc) if plan.scale else (oc,), "float32"),
        (extents(conv.batch, oh, ow, oc), "float16"),
        (extents(*plan.partials), "float32"),
        (extents(conv.batch, oh, ow, oc), plan.dtype),
    )

    # TVM's parser wants a kernel for each list of parameters.
    def plain() -> Any:
        @T.prim_func
        def main(x_ptr: T.handle, w_ptr: T.handle, y_ptr: T.handle):
            X = T.match_buffer(x_ptr, *x_type, align=16)
            W = T.match_buffer(w_ptr, *w_type, align=16)
            Y = T.match_buffer(y_ptr, *y_type, align=16)
            body(X, W, Y, Y, Y, Y)

        return main

    def cut() -> Any:
        @T.prim_func
        def main(x_ptr: T.handle, w_ptr: T.handle, p_ptr: T.handle, y_ptr: T.handle):
            X = T.match_buffer(x_ptr, *x_type, align=16)
            W = T.match_buffer(w_ptr, *w_type, align=16)
            P = T.match_buffer(p_ptr, *p_type, align=16)
            Y = T.match_buffer(y_ptr, *y_type, align=16)
            body(X, W, Y, Y, P, Y)

        return main

    def with_bias() -> Any:
        @T.prim_func
        def main(x_ptr: T.handle, w_ptr: T.handle, b_ptr: T.handle, y_ptr: T.handle):
            X = T.match_buffer(x_ptr, *x_type, align=16)
            W = T.match_buffer(w_ptr, *w_type, align=16)
            B = T.match_buffer(b_ptr, *b_type, align=16)
            Y = T.match_buffer(y_ptr, *y_type, align=16)
            body(X, W, B, Y, Y, Y)

        return main

    def with_bias_cut() -> Any:
        @T.prim_func
        def main(
            x_ptr: T.handle, w_ptr: T.handle, b_ptr: T.handle, p_ptr: T.handle, y_ptr: T.handle
        ):
            X = T.match_buffer(x_ptr, *x_type, align=16)
            W = T.match_buffer(w_ptr, *w_type, align=16)
            B = T.match_buffer(b_ptr, *b_type, align=16)
            P = T.match_buffer(p_ptr, *p_type, align=16)
            Y = T.match_buffer(y_ptr, *y_type, align=16)
            body(X, W, B, Y, P, Y)

        return main

    def with_residual() -> Any:
        @T.prim_func
        def main(
            x_ptr: T.handle, w_ptr: T.handle, b_ptr: T.handle, r_ptr: T.handle, y_ptr: T.handle
        ):
            X = T.match_buffer(x_ptr, *x_type, align=16)
            W = T.match_buffer(w_ptr, *w_type, align=16)
            B = T.match_buffer(b_ptr, *b_type, align=16)
            R = T.match_buffer(r_ptr, *r_type, align=16)
            Y = T.match_buffer(y_ptr, *y_type, align=16)
            body(X, W, B, R, Y, Y)

        return main

    def with_residual_cut() -> Any:
        @T.prim_func
        def main(
            x_ptr: T.handle,
            w_ptr: T.handle,
            b_ptr: T.handle,
            r_ptr: T.handle,
            p_ptr: T.handle,
            y_ptr: T.handle,
        ):
            X = T.match_buffer(x_ptr, *x_type, align=16)
            W = T.match_buffer(w_ptr, *w_type, align=16)
            B = T.match_buffer(b_ptr, *b_type, align=16)
            R = T.match_buffer(r_ptr, *r_type, align=16)
            P = T.match_buffer(p_ptr, *p_type, align=16)
            Y = T.match_buffer(y_ptr, *y_type, align=16)
            body(X, W, B, R, P, Y)

        return main

    kinds = {
        (False, False): (plain, cut),
        (True, False): (with_bias, with_bias_cut),
        (True, True): (with_residual, with_residual_cut),
    }
    return dependent_launch(kinds[plan.bias, plan.residual][plan.meet]())
