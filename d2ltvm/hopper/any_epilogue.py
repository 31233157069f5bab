"""Parts of `any_shape`: what becomes of a tile's sums, from registers to the result."""

import math

from tvm.script import tirx as T

from d2ltvm.hopper.tiles import tma_load, tma_store

STORE = "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group"

# Parts of a tile are computed by several blocks, which run at the same time. All wait until all
# have written their sums. The counter goes to twice the parts, and is zero again behind that.
# One thread counts for its warpgroup, behind a sync: its fence publishes what all of it have
# written, since PTX's causality order goes on from the sync to the fence, and whoever acquires
# the counter has it. CUTLASS does so, too (`cutlass::Barrier::arrive_inc` and `wait_eq`).
PARTS = """
#ifndef PARTS_DONE
#define PARTS_DONE
__device__ unsigned int parts_done[MANY];
__device__ int await_parts(int tile, int parts) {
  unsigned int done;
  __threadfence();
  atomicInc(&parts_done[tile], 2 * parts - 1);
  do {
    asm volatile("ld.acquire.gpu.u32 %0, [%1];"
                 : "=r"(done) : "l"(&parts_done[tile]) : "memory");
  } while (done < parts);
  return 0;
}
__device__ int leave_parts(int tile, int parts) {
  return (int)atomicInc(&parts_done[tile], 2 * parts - 1);
}
#endif
"""


@T.inline
def keep_values(values, B, work, consumer, thread, plan):
    """Put the scales and biases of a consumer's channels of a tile into shared memory.

    From there they are quick to read, one when it is needed. From global memory the compiler would
    have all of them wait in registers, of which there are not enough. Where results go through
    shared memory, too, the syncs before and behind that are enough.
    """
    if plan.cut > 0 or plan.direct:  # all have read those of the tile before
        T.cuda.warpgroup_sync(consumer + 1)
    for k in T.unroll(math.ceil(plan.values[2] / 128)):
        own: T.let[T.int32] = k * 128 + thread % 128
        if own < plan.values[2]:
            c: T.let[T.int32] = work.channel + own + (consumer * plan.own if plan.swapped else 0)
            for row in T.unroll(plan.values[1]):
                values[consumer, row, own] = B[row, T.min(c, plan.conv.oc - 1)]
    if plan.cut > 0 or plan.direct:
        T.cuda.warpgroup_sync(consumer + 1)


@T.inline
def add_at(acc, j, p, c, own, values, consumer, R, brought, plan):
    """Scale a sum, and add what belongs to its pixel and channel: a bias, and a residual.

    The values of its channel are the consumer's own ones. The residual is what TMA has brought, or
    in global memory if that is None.
    """
    if plan.scale:
        acc[j] = acc[j] * values[consumer, 0, own] + values[consumer, 1, own]
    elif plan.bias:
        acc[j] = acc[j] + values[consumer, 0, own]
    if plan.residual:
        if brought is not None:
            acc[j] = acc[j] + T.Cast("float32", brought)
        else:
            if p < plan.conv.pixels and c < plan.conv.oc:
                acc[j] = acc[j] + T.Cast("float32", R[p, c])


@T.inline
def finish(acc, i, g, values, R, halves, work, consumer, thread, plan):
    """Scale sums i to i + 3, of group g of 8 columns, and add a bias and a residual; then ReLU.

    The residual is in `halves`, of two groups, or in global memory if that is None.
    """
    m: T.let[T.int32] = g // (plan.columns // 8)
    column: T.let[T.int32] = g % (plan.columns // 8) * 8 + thread % 4 * 2
    row: T.let[T.int32] = thread % 128 // 32 * 16 + thread % 32 // 4
    block: T.let[T.int32] = consumer * plan.own + m * 64
    for h in T.unroll(2):
        for v in T.unroll(2):
            j: T.let[T.int32] = i + h * 2 + v
            brought = T.meta_var(None if halves is None else halves[g % 2 * 4 + h * 2 + v])
            if plan.swapped:
                p: T.let[T.int32] = work.pixel + column + v
                own: T.let[T.int32] = m * 64 + row + h * 8
                c: T.let[T.int32] = work.channel + consumer * plan.own + own
                add_at(acc, j, p, c, own, values, consumer, R, brought, plan)
            else:
                p: T.let[T.int32] = work.pixel + block + row + h * 8
                c: T.let[T.int32] = work.channel + column + v
                add_at(acc, j, p, c, column + v, values, consumer, R, brought, plan)
            if plan.relu or plan.relu6:
                acc[j] = T.max(acc[j], T.float32(0))
            if plan.relu6:
                acc[j] = T.min(acc[j], T.float32(6))


@T.inline
def to_shared(acc, pair, halves, values, tile, place, work, consumer, thread, m, h, plan):
    """Finish a part of the sums of 64 rows, and put them, rounded, into a consumer's tile.

    That has boxes of channels. If rows are channels, they are transposed. A residual is where the
    results will be: `ldmatrix` gives threads what belongs to the sums that `stmatrix` takes from
    them.
    """
    if thread % 128 == 0:
        T.ptx.cp.async_.bulk.wait_group.read(0)
    T.cuda.warpgroup_sync(consumer + 1)
    kind = T.meta_var("m8n8.x4.trans.shared.b16" if plan.swapped else "m8n8.x4.shared.b16")
    lane: T.let[T.int32] = thread % 32
    row: T.let[T.int32] = thread % 128 // 32 * 16
    for j in T.unroll(plan.columns // plan.parts // 16):
        g: T.let[T.int32] = (m * plan.parts + h) * (plan.columns // plan.parts // 8) + j * 2
        at = T.meta_var(
            tile.ptr_to([place, 0, j * 16 + lane // 16 * 8 + lane % 8, row + lane // 8 % 2 * 8])
            if plan.swapped
            else tile.ptr_to(
                [place, j * 16 // plan.box, row + lane % 16, j * 16 % plan.box + lane // 16 * 8]
            )
        )
        if plan.residual:
            T.ptx["ldmatrix.sync.aligned." + kind](pair[0], pair[1], pair[2], pair[3], at)
            T.cuda.warp_sync()  # all have read where they will write
        finish(acc, g * 4, g, values, None, halves, work, consumer, thread, plan)
        finish(acc, g * 4 + 4, g + 1, values, None, halves, work, consumer, thread, plan)
        for q in T.unroll(4):
            i: T.let[T.int32] = g * 4 + q * 2
            T.ptx["cvt.rn.f16x2.f32"](pair[q], acc[i + 1], acc[i])
        T.ptx["stmatrix.sync.aligned." + kind](at, pair[0], pair[1], pair[2], pair[3])
    T.ptx.fence.proxy.async_.shared__cta()
    T.cuda.warpgroup_sync(consumer + 1)


@T.inline
def give_shares(acc, four, sums, slot, work, consumer, thread, plan):
    """Write a part's sums of the shares of columns that others add up, into a slot of `sums`.

    Its sums of its own share stay in registers, and move to where it adds that up.
    """
    for s in T.unroll(plan.splits):
        if s == work.part:
            for i in T.unroll(plan.span * 4):
                if s * plan.span * 4 + i < plan.groups * 4:
                    acc[i] = acc[s * plan.span * 4 + i]
        else:
            for i in T.unroll(plan.span):
                g: T.let[T.int32] = s * plan.span + i
                if g < plan.groups:
                    for v in T.unroll(4):
                        four[v] = acc[g * 4 + v]
                    for v in T.vectorized(4):
                        sums[slot, consumer, g, thread % 128, v] = four[v]


@T.inline
def exchange_parts(acc, four, P, work, consumer, thread, plan):
    """Write the sums of a part; wait for the others; add up all parts of a share of the columns.

    Each part adds up a share of its own. Its sums of that share stay in registers.
    """
    slot: T.let[T.int32] = work.cut * plan.splits
    give_shares(acc, four, P, slot + work.part, work, consumer, thread, plan)
    source = T.meta_var(PARTS.replace("MANY", str(plan.cut * plan.team * plan.consumers)))
    T.cuda.warpgroup_sync(consumer + 1)
    if thread % 128 == 0:
        T.evaluate(
            T.cuda.func_call(
                "await_parts", work.cut * plan.consumers + consumer, plan.splits,
                source_code=source, return_type="int32",
            )
        )  # fmt: skip
    T.cuda.warpgroup_sync(consumer + 1)
    for j in T.unroll(plan.splits - 1):
        other: T.let[T.int32] = slot + (work.part + 1 + j) % plan.splits
        for i in T.unroll(plan.span):
            g: T.let[T.int32] = work.part * plan.span + i
            if g < plan.groups:
                for v in T.vectorized(4):
                    four[v] = P[other, consumer, g, thread % 128, v]
                for v in T.unroll(4):
                    acc[i * 4 + v] = acc[i * 4 + v] + four[v]
    T.cuda.warpgroup_sync(consumer + 1)
    if thread % 128 == 0:
        T.evaluate(
            T.cuda.func_call(
                "leave_parts", work.cut * plan.consumers + consumer, plan.splits,
                source_code=source, return_type="int32",
            )
        )  # fmt: skip


@T.inline
def exchange_in_cluster(acc, four, sums, work, consumer, thread, plan):
    """The same where a tile's parts are a cluster: the sums wait in the blocks' shared memory.

    Behind a barrier of the cluster, which releases what was written before and acquires what is
    read behind it, each block begins to read at the next part's sums, so that not all of them read
    one block's memory at the same time. The producer comes to that barrier when it is done.
    """
    give_shares(acc, four, sums, 0, work, consumer, thread, plan)
    T.cuda.cluster_sync()
    place = T.alloc_local((1,), "uint32")
    for j in T.unroll(plan.splits - 1):
        T.ptx["mapa.shared::cluster.u32"](
            place[0], T.cuda.cvta_generic_to_shared(sums.ptr_to([0, consumer, 0, 0, 0])),
            T.Cast("uint32", (work.part + 1 + j) % plan.splits),
        )  # fmt: skip
        for i in T.unroll(plan.span):
            g: T.let[T.int32] = work.part * plan.span + i
            if g < plan.groups:
                T.ptx["ld.shared::cluster.v4.f32"](
                    four[0], four[1], four[2], four[3],
                    place[0] + T.Cast("uint32", (g * 128 + thread % 128) * 16),
                )  # fmt: skip
                for v in T.unroll(4):
                    acc[i * 4 + v] = acc[i * 4 + v] + four[v]


@T.inline
def store_registers(acc, pair, four, values, R, Y, words, work, part, span, consumer, thread, plan):
    """Finish `span` groups of 8 columns, and store them from registers, where they are in Y."""
    for i in T.unroll(span):
        g: T.let[T.int32] = part * span + i
        if g < plan.groups:
            finish(acc, i * 4, g, values, R, None, work, consumer, thread, plan)
            column: T.let[T.int32] = g % (plan.columns // 8) * 8 + thread % 4 * 2
            row: T.let[T.int32] = (
                consumer * plan.own + g // (plan.columns // 8) * 64
                + thread % 128 // 32 * 16 + thread % 32 // 4
            )  # fmt: skip
            for h in T.unroll(2):
                if plan.swapped:
                    c: T.let[T.int32] = work.channel + row + h * 8
                    for v in T.unroll(2):
                        if c < plan.conv.oc and work.pixel + column + v < plan.conv.pixels:
                            Y[work.pixel + column + v, c] = T.Cast(
                                plan.dtype, acc[i * 4 + h * 2 + v]
                            )
                else:
                    b: T.let[T.int32] = work.pixel + row + h * 8
                    c: T.let[T.int32] = work.channel + column
                    if plan.conv.oc % 2 == 0 and plan.wide:
                        if b < plan.conv.pixels and c < plan.conv.oc:
                            for v in T.unroll(2):
                                four[v] = acc[i * 4 + h * 2 + v]
                            for v in T.vectorized(2):
                                Y[b, c + v] = four[v]
                    elif plan.conv.oc % 2 == 0:
                        if b < plan.conv.pixels and c < plan.conv.oc:
                            T.ptx["cvt.rn.f16x2.f32"](
                                pair[0], acc[i * 4 + h * 2 + 1], acc[i * 4 + h * 2]
                            )
                            words[b, c // 2] = pair[0]
                    else:
                        for v in T.unroll(2):
                            if b < plan.conv.pixels and c + v < plan.conv.oc:
                                Y[b, c + v] = T.Cast(plan.dtype, acc[i * 4 + h * 2 + v])


@T.inline
def store_bricks(tile, y_map, work, place, consumer, m, plan):
    """Of one thread: have TMA store 64 rows whose pixels are a box."""
    first: T.let[T.int32] = consumer * plan.own + m * 64
    if plan.swapped:
        T.ptx[STORE](
            T.address_of(y_map), work.channel + first, work.column, work.row, work.image,
            tile.ptr_to([place, 0, 0, 0]),
        )  # fmt: skip
    else:
        for j in T.unroll(plan.columns // plan.box):
            T.ptx[STORE](
                T.address_of(y_map), work.channel + j * plan.box,
                work.column + first % plan.bricks[2],
                work.row + first // plan.bricks[2] % plan.bricks[1],
                work.image + first // (plan.bricks[1] * plan.bricks[2]),
                tile.ptr_to([place, j, 0, 0]),
            )  # fmt: skip


@T.inline
def store_tile(acc, pair, halves, values, tile, results, y_map, work, consumer, thread, plan):
    """Finish a tile and store it, part by part.

    Results go to shared memory, rounded, and from there to the tensor by TMA.
    """
    for m in T.unroll(plan.per):
        for h in T.unroll(plan.parts):
            place: T.let[T.int32] = consumer * plan.boxes + m % plan.boxes
            to_shared(
                acc, pair, halves, values, tile, place, work, consumer, thread, m, h, plan
            )  # fmt: skip
            if thread % 128 == 0:
                first: T.let[T.int32] = consumer * plan.own + m * 64
                width = T.meta_var(plan.columns // plan.parts)
                if plan.bricks is not None:
                    store_bricks(tile, y_map, work, place, consumer, m, plan)
                elif plan.swapped:
                    c: T.let[T.int32] = work.channel + first
                    b: T.let[T.int32] = work.pixel + h * width
                    tma_store(results[b : b + width, c : c + 64], tile[place, 0, :, :])
                else:
                    b: T.let[T.int32] = work.pixel + first
                    for j in T.unroll(width // plan.box):
                        c: T.let[T.int32] = work.channel + h * width + j * plan.box
                        tma_store(results[b : b + 64, c : c + plan.box], tile[place, j, :, :])
                T.ptx.cp.async_.bulk.commit_group()


@T.inline
def fetch_residual(residual, tile, arrived, work, consumer, plan):
    """Of one thread of a consumer: have TMA bring what is added to a tile, where that will be."""
    T.ptx.cp.async_.bulk.wait_group.read(0)
    arrived.arrive(consumer, plan.per * 64 * plan.columns * 2)
    for m in T.unroll(plan.per):
        if plan.swapped:
            c: T.let[T.int32] = work.channel + consumer * plan.own + m * 64
            tma_load(
                tile[consumer * plan.boxes + m, 0, :, :],
                residual[work.pixel : work.pixel + plan.columns, c : c + 64],
                arrived.ptr_to([consumer]),
            )
        else:
            b: T.let[T.int32] = work.pixel + consumer * plan.own + m * 64
            for j in T.unroll(plan.columns // plan.box):
                c: T.let[T.int32] = work.channel + j * plan.box
                tma_load(
                    tile[consumer * plan.boxes + m, j, :, :],
                    residual[b : b + 64, c : c + plan.box],
                    arrived.ptr_to([consumer]),
                )
