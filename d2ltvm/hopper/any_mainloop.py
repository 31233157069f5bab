"""Parts of `any_shape`: what its producer brings, and what its consumers multiply."""

from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.layout import ComposeLayout, S, TileLayout

from d2ltvm.hopper.tiles import (
    ALONG_ROWS,
    AS_IT_IS,
    DOWN_COLUMNS,
    EIGHT_ROWS,
    NEXT_COLUMNS,
    SWIZZLE_128B,
    SWIZZLES,
    UNIT,
    UNUSED,
)


def tile_of(pool: Any, shape: tuple[int, ...], dtype: str = "float16") -> Any:
    """A tile in shared memory in rows of 32, 64 or 128 bytes, swizzled as TMA does."""
    layout = ComposeLayout(3, SWIZZLES[shape[-1]], 3, TileLayout(S[tuple(shape)]))
    return pool.alloc(shape, dtype, align=1024, layout=layout)


@T.inline
def bring(tile, box, barrier, plan):
    """Have TMA copy a box, as `tma_load`; L2 may fetch more bytes from memory than it asks for."""
    Tx.copy_async(
        tile, box, dispatch="tma_explicit", mbar=barrier, oob="zero",
        tensormap_l2_promotion=plan.promotion,
    )  # fmt: skip


@T.inline
def share(tile, box, barrier, mask, many, plan):
    """The same for `many` blocks of a cluster, those in the mask, whose barriers are told."""
    if many > 1:
        Tx.copy_async(
            tile, box, dispatch="tma_explicit", mbar=barrier, oob="zero",
            tensormap_l2_promotion=plan.promotion, cta_mask=mask,
        )  # fmt: skip
    else:
        bring(tile, box, barrier, plan)


@T.inline
def descriptor_of(descriptor, pointer, depth):
    """Write the descriptor of a matrix in swizzled rows of `depth` float16."""
    eight_rows = T.meta_var(8 * depth * 2 // UNIT)
    T.cuda.wgmma.encode_matrix_descriptor(
        T.address_of(descriptor), pointer, UNUSED, eight_rows, SWIZZLES[depth]
    )


@T.inline
def descriptor_down(descriptor, pointer):
    """Write the descriptor of a matrix down whose columns the sum runs, 64 of them side by side."""
    T.cuda.wgmma.encode_matrix_descriptor(
        T.address_of(descriptor), pointer, NEXT_COLUMNS, EIGHT_ROWS, SWIZZLE_128B
    )


@T.inline
def descriptors_of(matrices, sA, sB, consumer, plan):
    """Write the descriptors of both matrices of a warpgroup, in the first slot."""
    if plan.transposed:
        descriptor_of(matrices[0], sA.ptr_to([0, consumer * plan.own, 0]), plan.depth)
        descriptor_of(matrices[1], sB.ptr_to([0, 0, 0]), plan.depth)
    elif plan.swapped:
        descriptor_down(matrices[0], sA.ptr_to([0, consumer * plan.own // 64, 0, 0]))
        descriptor_of(matrices[1], sB.ptr_to([0, 0, 0]), plan.depth)
    else:
        descriptor_of(matrices[0], sA.ptr_to([0, consumer * plan.own, 0]), plan.depth)
        descriptor_down(matrices[1], sB.ptr_to([0, 0, 0, 0]))


@T.meta_class
class Work:
    """What a block computes next: where a tile begins, which part of its sums, in registers."""

    def __init__(self) -> None:
        self.pixel = T.local_scalar("int32")
        self.channel = T.local_scalar("int32")
        self.image = T.local_scalar("int32")
        self.row = T.local_scalar("int32")
        self.column = T.local_scalar("int32")
        self.part = T.local_scalar("int32")
        self.first = T.local_scalar("int32")
        self.end = T.local_scalar("int32")
        self.cut = T.local_scalar("int32")


@T.inline
def locate(work, item, rank, plan):
    """Write down what an item is. Tiles below each other, in groups, share channels in L2.

    The blocks of a cluster have a tile each: `cluster` of them below each other, `abreast` times.
    """
    over: T.let[T.int32] = T.max(item - plan.full, 0)
    cut: T.let[T.int32] = over // plan.splits
    work.part = over % plan.splits
    work.cut = cut * plan.team + rank
    index: T.let[T.int32] = T.min(item, plan.full) + cut
    if plan.splits > 1:
        if item < plan.full:
            work.first = 0
            work.end = plan.rounds
        else:
            work.first = work.part * plan.rounds // plan.splits
            work.end = (work.part + 1) * plan.rounds // plan.splits
    else:
        work.first = 0
        work.end = plan.rounds
    start: T.let[T.int32] = index // (plan.group * plan.across) * plan.group
    # Divided by a constant, if all groups are alike: a division by another number takes so long
    # that kernels of one round took 1.14 times as long on an H100.
    alike = T.meta_var(plan.down % plan.group == 0)
    many = T.meta_var(plan.group if alike else T.min(plan.group, plan.down - start))
    rest: T.let[T.int32] = index % (plan.group * plan.across)
    place: T.let[T.int32] = (start + rest % many) * plan.cluster + rank % plan.cluster
    work.pixel = place * plan.pixels
    if plan.bricks is not None:
        work.image = place // (plan.places[1] * plan.places[2]) * plan.bricks[0]
        work.row = place // plan.places[2] % plan.places[1] * plan.bricks[1]
        work.column = place % plan.places[2] * plan.bricks[2]
    else:
        work.image = work.pixel // (plan.conv.out[0] * plan.conv.out[1])
        work.row = work.pixel // plan.conv.out[1] % plan.conv.out[0]
        work.column = work.pixel % plan.conv.out[1]
    work.channel = (rest // many * plan.abreast + rank // plan.cluster) * plan.channels


@T.inline
def consumer_release(ring, thread, stage, rank, plan):
    """Tell the producers that write there, of blocks below or beside this one: a slot is free."""
    if plan.team > 1:
        if thread % 128 < plan.cluster + plan.abreast - 1:
            t: T.let[T.int32] = thread % 128
            other: T.let[T.int32] = t - plan.cluster  # beside, the block itself left out
            ring.empty.arrive(
                stage,
                remote=T.if_then_else(
                    t < plan.cluster,
                    rank // plan.cluster * plan.cluster + t,
                    rank % plan.cluster
                    + (other + T.Cast("int32", other >= rank // plan.cluster)) * plan.cluster,
                ),
            )
    else:
        if thread % 128 == 0:
            ring.empty.arrive(stage)


@T.inline
def release_slot(ring, thread, last, r, rank, plan):
    """Wait for all products but those just begun; release the slot before."""
    T.ptx.wgmma.wait_group.sync.aligned(1)
    if r > 0:
        consumer_release(ring, thread, last, rank, plan)


@T.inline
def release_last_slot(ring, thread, last, rank, plan):
    """Wait for the last products, and release their slot."""
    T.ptx.wgmma.wait_group.sync.aligned(0)
    consumer_release(ring, thread, last, rank, plan)


@T.inline
def skip(slot, rounds):
    """Go on by the slots of a tile of the other consumer."""
    slot.phase = slot.phase ^ (rounds // slot.depth % 2)
    slot.stage = slot.stage + rounds % slot.depth
    if slot.stage >= slot.depth:
        slot.stage = slot.stage - slot.depth
        slot.phase = slot.phase ^ 1


@T.inline
def multiply_any(acc, matrices, stage, r, plan):
    """Begin to multiply what is in a slot; the first time, sums start at zero.

    16 channels in further are 32 bytes further in a row of them, and 16 rows of 128 bytes where a
    row has channels out.
    """
    turned = T.meta_var(
        []
        if plan.numbers != "float16"
        else [ALONG_ROWS, ALONG_ROWS]
        if plan.transposed
        else [DOWN_COLUMNS, ALONG_ROWS]
        if plan.swapped
        else [ALONG_ROWS, DOWN_COLUMNS]
    )
    kind = T.meta_var("k16.f32.f16.f16" if plan.numbers == "float16" else "k8.f32.tf32.tf32")
    T.ptx.wgmma.fence.sync.aligned()
    for i in T.unroll(plan.depth // 16):
        for m in T.unroll(plan.per):
            T.ptx[f"wgmma.mma_async.sync.aligned.m64n{plan.columns}{kind}"](
                *[acc[m * (plan.columns // 2) + j] for j in range(plan.columns // 2)],
                matrices[0]
                + T.Cast(
                    "uint64",
                    stage * (plan.rows * plan.depth // 8) + m * (8 * plan.depth)
                    + i * (128 if plan.swapped and not plan.transposed else 2),
                ),
                matrices[1] + T.Cast(
                    "uint64",
                    stage * (plan.columns * plan.depth // 8)
                    + i * (2 if plan.swapped or plan.transposed else 128),
                ),
                T.ptx.pred(r + i > 0), AS_IT_IS, AS_IT_IS, *turned,
            )  # fmt: skip
    T.ptx.wgmma.commit_group.sync.aligned()
