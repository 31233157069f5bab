"""Parts of `any_shape`: float32 numbers that are split in shared memory, for three products.

A float32 is a high float16 and a low one, as in `float32`. There two kernels write both to memory
before the convolution; here TMA brings images as they are. The consumer whose rows they are splits
them in their own place: 64 numbers of a row take 256 bytes, and so do 64 high and 64 low float16.
On its way it multiplies them by a power of two that suits the largest of them, so that neither
piece leaves the range of float16, and divides the sums of the row by it. Sums of these products
are collected in float32 registers behind every slot, since TensorCores cut off what they add up.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from tvm.script import tirx as T

from d2ltvm.hopper.any_mainloop import consumer_release
from d2ltvm.hopper.float32 import power_of_two
from d2ltvm.hopper.tiles import ALONG_ROWS, AS_IT_IS
from d2ltvm.layouts.warpgroups import TF32

# Registers of a thread: the producer gives up what two consumers with sums kept twice need.
GIVEN_UP, TAKEN = 40, 232
# Exponents of float32 as its bits have them. The largest of some numbers, times its scale, is from
# 2^14 to 2^15, and one over the scale is a normal number: 268 - e and e - 14 are both 1 to 254.
LEAST, SCALED, BACK = 15, 268, 14


def views_of(pool: Any, tile: Any) -> tuple[Any, Any]:
    """The memory of a tile, the last one of a pool, as float32 and as pairs of float16.

    Both are (stages, 2, rows, 8, 4): rows of 128 bytes, in eight parts of 16 bytes. Where a part of
    a row lies, its swizzle says: part p of row r is at place p ^ r % 8.
    """
    slots, rows, _ = map(int, tile.shape)
    end, start = pool.offset, pool.offset - slots * rows * 128
    views = []
    for dtype in ("float32", "uint32"):
        pool.move_base_to(start)
        views.append(pool.alloc((slots // 2, 2, rows, 8, 4), dtype, align=1024))
    assert pool.offset == end
    return views[0], views[1]


def split_weights(w: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Float32 weights as two float16, and what results of each channel are multiplied by.

    >>> pieces, factors = split_weights(np.full((1, 2, 8), 0.1, "float32"))
    >>> pieces.shape, bool(abs(pieces.sum(0, "float64") * factors[:, None] - 0.1).max() < 1e-8)
    ((2, 2, 8), True)

    Args:
        w: (taps, oc, ic).

    Returns:
        float16 of (2 * taps, oc, ic), high ones first, and float32 of (oc,).
    """
    factors = factors_of(w)  # powers of two, so that a division by one is exact
    scaled = w.astype("float64") / factors[:, None]
    high = scaled.astype("float16")
    low = (scaled - high.astype("float64")).astype("float16")
    return np.concatenate([high, low]), factors


def factors_of(w: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What results of each channel are multiplied by, of weights as for `split_weights`."""
    scales = [power_of_two(w[:, c]) for c in range(w.shape[1])]
    return (1 / np.array(scales)).astype("float32")


def rounded_to_tf32(w: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Float32 rounded to the 11 bits that TensorCores read of them; a tie goes away from zero.

    They cut off what is behind. Of weights that loses nothing more once they are rounded.

    >>> float(rounded_to_tf32(np.float32([1 + 2**-11]))[0]) == 1 + 2**-10
    True
    """
    bits = np.ascontiguousarray(w, "float32").view("uint32")
    half = (~TF32 + np.uint32(1)) // np.uint32(2)  # of the last bit that is kept
    return np.where(np.isfinite(w), (bits + half) & TF32, bits).view("float32")


# From hopper/any_float32.
@T.inline
def split_slot(numbers, bits, scales, kept, pair, stage, turn, consumer, thread, plan):
    """Split what has come of a consumer's rows, where it is.

    Two threads have a row, and 32 of its channels each: those of one box. They begin at different
    ends of it, so that eight threads never ask for the same banks.
    """
    halves = T.decl_buffer((8,), "float16", data=pair.data, scope="local")
    row: T.let[T.int32] = consumer * 64 + thread % 128 // 2
    box: T.let[T.int32] = thread % 2
    most: T.float32 = 0
    for i in T.unroll(8):
        for v in T.vectorized(4):
            kept[i * 4 + v] = numbers[stage, box, row, i ^ box * 4 ^ row % 8, v]
    for i in T.unroll(32):
        most = T.max(most, T.abs(kept[i]))
    most = T.max(most, T.tvm_warp_shuffle_xor(T.uint32(0xFFFFFFFF), most, 1, 32, 32))
    exponent: T.let[T.uint32] = T.max(
        T.shift_right(T.reinterpret("uint32", most), T.uint32(23)), T.uint32(LEAST)
    )
    scale: T.let[T.float32] = T.reinterpret(
        "float32", T.shift_left(T.uint32(SCALED) - exponent, T.uint32(23))
    )
    T.cuda.warp_sync()  # both have read the row
    if box == 0:
        scales[consumer, turn, thread % 128 // 2] = T.reinterpret(
            "float32", T.shift_left(exponent - T.uint32(BACK), T.uint32(23))
        )
    for m in T.unroll(4):
        place: T.let[T.int32] = (box * 4 + (m ^ box * 2)) ^ row % 8
        for q in T.unroll(4):
            i: T.let[T.int32] = m * 8 + q * 2
            T.ptx["cvt.rn.f16x2.f32"](pair[q], kept[i + 1] * scale, kept[i] * scale)
        for j in T.unroll(8):
            kept[m * 8 + j] = kept[m * 8 + j] * scale - T.Cast("float32", halves[j])
        for v in T.vectorized(4):
            bits[stage, 0, row, place, v] = pair[v]
        for q in T.unroll(4):
            i: T.let[T.int32] = m * 8 + q * 2
            T.ptx["cvt.rn.f16x2.f32"](pair[q], kept[i + 1], kept[i])
        for v in T.vectorized(4):
            bits[stage, 1, row, place, v] = pair[v]
    T.ptx.fence.proxy.async_.shared__cta()
    T.cuda.warpgroup_sync(consumer + 1)


# From hopper/any_float32.
@T.inline
def multiply_split(acc, matrices, stage, plan):
    """Begin three products of a slot: high by low, low by high, high by high; sums start at zero.

    The small ones come first: what is added to a large sum loses more of its bits.
    """
    T.ptx.wgmma.fence.sync.aligned()
    for i in T.unroll(3 * plan.depth // 16):
        x: T.let[T.int32] = stage * 2 + T.if_then_else(i // (plan.depth // 16) == 1, 1, 0)
        w: T.let[T.int32] = stage * 2 + T.if_then_else(i // (plan.depth // 16) == 0, 1, 0)
        T.ptx[f"wgmma.mma_async.sync.aligned.m64n{plan.columns}k16.f32.f16.f16"](
            *[acc[j] for j in range(plan.columns // 2)],
            matrices[0] + T.Cast("uint64", x * (plan.rows * plan.depth // 8) + i % 4 * 2),
            matrices[1] + T.Cast("uint64", w * (plan.columns * plan.depth // 8) + i % 4 * 2),
            T.ptx.pred(i > 0), AS_IT_IS, AS_IT_IS, ALONG_ROWS, ALONG_ROWS,
        )  # fmt: skip
    T.ptx.wgmma.commit_group.sync.aligned()


# From hopper/any_float32.
@T.inline
def collect_split(total, acc, back, scales, turn, consumer, thread, plan):
    """Add the sums of a slot to those that are kept, over the scales of their rows.

    By an instruction that stays where it is: what is written as a plain sum the compiler may
    compute before the wait for the products above it.
    """
    for h in T.unroll(2):
        back[h] = scales[consumer, turn, thread % 128 // 32 * 16 + thread % 32 // 4 + h * 8]
    for j in T.unroll(plan.columns // 2):
        T.ptx["fma.rn.f32"](total[j], acc[j], back[j % 4 // 2], total[j])


# From hopper/any_float32.
@T.inline
def split_rounds(
    acc, total, back, kept, pair, numbers, bits, scales, matrices, ring, slot, work,
    thread, consumer, rank, plan,
):  # fmt: skip
    """The rounds of a tile. A slot is split while the products of the slot before it run."""
    for j in T.unroll(plan.columns // 2):
        total[j] = T.float32(0)
    ring.full.wait(slot.stage, slot.phase)
    split_slot(numbers, bits, scales, kept, pair, slot.stage, 0, consumer, thread, plan)
    for r in T.serial(work.end - work.first):
        multiply_split(acc, matrices, slot.stage, plan)
        last: T.let[T.int32] = slot.stage
        slot.advance()
        if r + 1 < work.end - work.first:
            ring.full.wait(slot.stage, slot.phase)
            turn: T.let[T.int32] = (r + 1) % 3
            split_slot(
                numbers, bits, scales, kept, pair, slot.stage, turn,
                consumer, thread, plan,
            )  # fmt: skip
        T.ptx.wgmma.wait_group.sync.aligned(0)
        consumer_release(ring, thread, last, rank, plan)
        collect_split(total, acc, back, scales, r % 3, consumer, thread, plan)
