"""Convolution for Hopper: a matrix product whose rows TMA finds in the image."""

from tvm.backend.cuda.lang.pipeline import Pipeline, PipelineState
from tvm.script import tirx as T

from d2ltvm.compute.convolution import conv_out_size
from d2ltvm.hopper.planning import (
    DEPTH,
    ROWS,
    plan_conv,
)
from d2ltvm.hopper.tile_scheduler import Job
from d2ltvm.hopper.tiles import (
    dependent_launch,
    encode,
    finish,
    hand_back,
    load,
    multiply,
    shared_tile,
    store,
    to_shared,
    wait_for_kernel_before,
)


# From hopper/implicit.
@T.inline
def locate(at, job, plan):
    """Where a tile lies: row, column, image, channel; its first tap and taps, twice.

    Tiles inside of the image come first, then those at its borders, which have fewer
    taps: long ones start early, and short ones fill the gaps at the end.
    """
    q: T.let[T.int32] = job // plan.each
    if q < plan.whole_y * plan.whole_x:
        at[0] = plan.first_y + q // max(1, plan.whole_x)
        at[1] = plan.first_x + q % max(1, plan.whole_x)
    elif q < plan.whole_y * plan.wide:
        beyond: T.let[T.int32] = q - plan.whole_y * plan.whole_x
        at[0] = plan.first_y + beyond // max(1, plan.wide - plan.whole_x)
        x: T.let[T.int32] = beyond % max(1, plan.wide - plan.whole_x)
        at[1] = (x + plan.first_x + plan.whole_x) % plan.wide
    else:
        at[0] = ((q // plan.wide) + plan.first_y) % plan.high
        at[1] = q % plan.wide
    at[0] = at[0] * plan.tile[1]
    at[1] = at[1] * plan.tile[2]
    r: T.let[T.int32] = job % plan.each
    at[2] = (r // (plan.group * plan.across) * plan.group + r % plan.group) * plan.tile[0]
    at[3] = r % (plan.group * plan.across) // plan.group * plan.columns
    if plan.skip:
        at[4] = T.max(0, plan.p - (at[0] + plan.tile[1] - 1) * plan.s)
        at[5] = T.min(plan.k, plan.n + plan.p - at[0] * plan.s) - at[4]
        at[6] = T.max(0, plan.p - (at[1] + plan.tile[2] - 1) * plan.s)
        at[7] = T.min(plan.k, plan.n + plan.p - at[1] * plan.s) - at[6]
    else:
        at[4] = 0
        at[5] = plan.k
        at[6] = 0
        at[7] = plan.k


# From hopper/implicit.
def conv(batch, oc, ic, n, k, p=0, s=1, sms=132, **options):
    """A convolution kernel in NHWC, float16 with float32 sums.

    >>> kernel = d2ltvm.build(hopper.conv(256, 512, 256, 14, 3, 1))

    X is (batch, n, n, ic), W (k * k, oc, ic), Y (batch, o, o, oc). A tile of Y is a
    box of 128 pixels by some channels. For each tap and each 64 input channels TMA
    fetches the box of X under the tap, zeros where that is outside, and a tile of W.
    With tiles on demand the kernel counts them in a variable of its own, so that
    it must not run in two streams at once.

    Args:
        batch, oc, ic, n, k, p, s: as for `conv_nhwcnc`; oc and ic are multiples of 8,
            and p < k.
        sms: blocks that run at once, which are the SMs of the chip.
        options: of `planning.plan_conv`.

    Returns:
        A PrimFunc, for `d2ltvm.build`.

    Raises:
        ValueError: a size is not as above, or shared memory is too small.
    """
    plan = plan_conv(batch, oc, ic, n, k, p, s, sms, **options)
    (tn, th, tw), (hn, hh) = plan.tile, plan.half
    columns, stages, parts, width = plan.columns, plan.stages, plan.parts, plan.width
    tiles, chunks, o = plan.tiles, plan.chunks, conv_out_size(n, k, p, s)
    blocks, nbytes = min(sms, tiles), (ROWS + columns) * DEPTH * 2

    @T.prim_func
    def main(x_ptr: T.handle, w_ptr: T.handle, y_ptr: T.handle):
        X = T.match_buffer(x_ptr, (batch, n, n, ic), "float16", align=16)
        W = T.match_buffer(w_ptr, (k * k, oc, ic), "float16", align=16)
        Y = T.match_buffer(y_ptr, (batch, o, o, oc), "float16", align=16)
        inputs = T.decl_buffer((plan.batch, plan.n, plan.n, ic), "float16", data=X.data, align=16)
        results = T.decl_buffer((plan.batch, plan.o, plan.o, oc), "float16", data=Y.data, align=16)
        T.device_entry()
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1})
        block = T.cta_id([blocks])
        group_of = T.warpgroup_id([3])
        thread = T.thread_id([384])

        pool = T.SMEMPool()
        sX = shared_tile(pool, (stages, tn, th, tw, DEPTH))
        sW = shared_tile(pool, (stages, columns, DEPTH))
        sY = shared_tile(pool, (2, width // 64, hn, hh, tw, 64))
        ring = Pipeline(pool, stages, full="tma", empty="mbar", init_full=1, init_empty=2)
        job = Job(pool, tiles, blocks, plan.on_demand)
        pool.commit()
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        wait_for_kernel_before(plan.early)

        at = T.alloc_local((8,), "int32")
        slot = PipelineState(stages, 0)
        job.begin(block)
        if group_of == 0:
            if thread == 0:
                while job.tile < tiles:
                    job.ask()
                    locate(at, job.tile, plan)
                    b: T.let[T.int32] = at[2]
                    c: T.let[T.int32] = at[3]
                    for rkh in T.serial(at[5]):
                        for rkw in T.serial(at[7]):
                            for i in T.serial(chunks):
                                kh: T.let[T.int32] = at[4] + rkh
                                kw: T.let[T.int32] = at[6] + rkw
                                y: T.let[T.int32] = at[0] * s - p + kh
                                x: T.let[T.int32] = at[1] * s - p + kw
                                tap: T.let[T.int32] = kh * k + kw
                                ring.empty.wait(slot.stage, slot.phase ^ 1)
                                ring.full.arrive(slot.stage, nbytes)
                                z: T.let[T.int32] = i * DEPTH
                                load(
                                    sX[slot.stage, :, :, :, :],
                                    inputs[b : b + tn, y : y + th, x : x + tw, z : z + DEPTH],
                                    ring.full.ptr_to([slot.stage]),
                                )
                                load(
                                    sW[slot.stage, :, :],
                                    W[tap : tap + 1, c : c + columns, z : z + DEPTH],
                                    ring.full.ptr_to([slot.stage]),
                                )
                                slot.advance()
                    job.pass_on()
        else:
            part: T.let[T.int32] = group_of - 1
            acc = T.alloc_local((columns // 2,), "float32")
            pair = T.alloc_local((4,), "uint32")
            matrices = T.alloc_local((2,), "uint64")
            encode(matrices[0], sX.ptr_to([0, part * hn % tn, part * hh % th, 0, 0]))
            encode(matrices[1], sW.ptr_to([0, 0, 0]))
            last: T.int32 = 0
            while job.tile < tiles:
                locate(at, job.tile, plan)
                for i in T.serial(at[5] * at[7] * chunks):
                    ring.full.wait(slot.stage, slot.phase)
                    multiply(acc, matrices, slot.stage, columns, i)
                    hand_back(ring, thread, last, i)
                    last = slot.stage
                    slot.advance()
                finish(ring, thread, last)
                for h in T.unroll(parts):
                    to_shared(acc, pair, sY, part, thread, h, width, (hn, hh, tw))
                    if thread % 128 == 0:
                        for j in T.unroll(width // 64):
                            b: T.let[T.int32] = at[2] + part * hn % tn
                            y: T.let[T.int32] = at[0] + part * hh % th
                            x: T.let[T.int32] = at[1]
                            c: T.let[T.int32] = at[3] + h * width + j * 64
                            store(
                                results[b : b + hn, y : y + hh, x : x + tw, c : c + 64],
                                sY[part, j, :, :, :, :],
                            )
                        T.ptx.cp.async_.bulk.commit_group()
                job.take()
            if thread % 128 == 0:
                T.ptx.cp.async_.bulk.wait_group(0)

    return dependent_launch(main)
