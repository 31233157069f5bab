"""The beginning of a ResNet in one kernel: convolution 7 x 7, bias, ReLU, max pool 3 x 3.

Images have three channels, too few for TMA's rows of 16 bytes. But the pixels under a row of the
7 x 7 kernel are 21 numbers in a row of memory. So a block keeps rows of the image in shared memory
as they are, and each thread loads from there what it has to have of wgmma's first matrix, which may
be in registers: 22 numbers, from an even place on, and two more, of which the weights are zero.

A block goes down an image. Of two rows of the convolution and the one before, it computes a row of
the pool. What the convolution makes is never in global memory: that saves writing and reading four
times as many numbers as the pool leaves.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm.backend.cuda.lang.pipeline import TMABar
from tvm.script import tirx as T

from d2ltvm.compute.ops import wholes
from d2ltvm.errors import shown
from d2ltvm.hopper.any_costs import CLOCK, costs
from d2ltvm.hopper.padding import is_inside
from d2ltvm.hopper.planning import check_integers, check_sms, extents
from d2ltvm.hopper.rows import multiply_pixels
from d2ltvm.hopper.strips import check_strips
from d2ltvm.hopper.tiles import (
    dependent_launch,
    encode_descriptor,
    shared_tile,
    tma_load,
    wait_for_kernel_before,
)

KERNEL, STRIDE, PAD = 7, 2, 3
CHANNELS, FILTERS = 3, 64
LEAD = 16  # numbers in front of a row of the image in shared memory, zeros
DEPTH = 24  # numbers of a row of the kernel: one too early, 21, two too late
STEPS = math.ceil(KERNEL * DEPTH / 16)  # of wgmma
RING = 16  # rows of the image in shared memory; nine are in use
KEPT = 4  # rows of the convolution there; three are in use
THREADS = 256

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class StemPlan:
    """How the work is cut.

    >>> plan = plan_stem((256, 224, 224), 132)
    >>> plan.out, plan.pooled, plan.rows, plan.blocks
    ((112, 112), (56, 56), 56, 256)

    Attributes:
        images: how many, and their rows and columns.
        sms: of the GPU; each has room for two blocks.
        rows: of the pool that a block computes below each other.
    """

    images: tuple[int, int, int]
    sms: int
    rows: int

    @property
    def out(self) -> tuple[int, int]:
        """Rows and columns of the convolution."""
        _, h, w = self.images
        return (h + 2 * PAD - KERNEL) // STRIDE + 1, (w + 2 * PAD - KERNEL) // STRIDE + 1

    @property
    def pooled(self) -> tuple[int, int]:
        """Rows and columns of the pool."""
        high, wide = self.out
        return (high - 1) // 2 + 1, (wide - 1) // 2 + 1

    items = property(lambda self: self.images[0] * math.ceil(self.pooled[0] / self.rows))
    blocks = property(lambda self: min(2 * self.sms, self.items))
    groups = property(lambda self: math.ceil(self.out[1] / 16))  # of 16 pixels of a row
    line = property(lambda self: self.images[2] * CHANNELS // 2)  # words of a row of an image
    words = property(lambda self: math.ceil((96 * self.groups + DEPTH) / 8) * 4)  # of one kept

    @property
    def seconds(self) -> float:
        """That it takes: what TensorCores multiply and shared memory gives, or what is moved.

        Of a row of the pool, an SM's TensorCores have four times 64 x 64 x 176 to multiply for each
        eight groups of pixels. Shared memory gives and takes the weights with that, 128 bytes a
        cycle, and what threads load and store. Two blocks do one and the other in turns; the larger
        of both counts, and a quarter of the other.
        """
        passes = math.ceil(2 * self.groups / (THREADS // 32)) * THREADS // 128
        products = passes * STEPS * 32
        pixels = 2 * self.groups * 16
        loads = passes * 4 * KERNEL * DEPTH // 4 + pixels * 2 + self.pooled[1] * 9
        rounds = (
            math.ceil(self.items / self.blocks)
            * (self.rows + 1)
            * min(2, math.ceil(self.blocks / self.sms))
        )
        cycles = rounds * (max(products, loads) + min(products, loads) / 4 + 200)
        batch, h, w = self.images
        moved = 2 * batch * (h * w * CHANNELS + math.prod(self.pooled) * FILTERS)
        of = costs()
        return of.launch_seconds + max(cycles / CLOCK, moved / of.memory)


def plan_stem(images: tuple[int, int, int], sms: int | None = None) -> StemPlan:
    """The plan with the fewest rows one after the other; each item begins with a row more.

    Raises:
        ValueError: `images` is not batch, height and width, or `sms` no positive integer.
    """
    images = wholes("images", images, 3)  # type: ignore[assignment]
    sms = check_sms(sms)
    plans = [
        StemPlan(images, sms, rows) for rows in range(1, StemPlan(images, sms, 1).pooled[0] + 1)
    ]
    return min(plans, key=lambda plan: math.ceil(plan.items / plan.blocks) * (plan.rows + 1))


def stem_weights(weight: Array) -> Array:
    """Weights of (7, 7, 64, 3) as the kernel takes them: three times 64 filters by 64 in depth.

    >>> stem_weights(np.ones((7, 7, 64, 3), "float16")).sum() == 7 * 7 * 64 * 3
    True
    """
    rows = np.zeros((FILTERS, KERNEL, DEPTH), weight.dtype)
    rows[:, :, 1 : 1 + KERNEL * CHANNELS] = weight.transpose(2, 0, 1, 3).reshape(
        FILTERS, KERNEL, -1
    )
    deep = np.zeros((FILTERS, 192), weight.dtype)
    deep[:, : KERNEL * DEPTH] = rows.reshape(FILTERS, -1)
    return np.ascontiguousarray(deep.reshape(FILTERS, 3, 64).transpose(1, 0, 2).reshape(192, 64))


@T.inline
def fetch_rows(rows, words, image, first, number, thread, many, plan):
    """Load `many` rows of an image from row `first` on, those outside as zeros, into the ring."""
    each: T.let[T.int32] = plan.line // 4
    for i in T.serial((many * each + THREADS - 1) // THREADS):
        place: T.let[T.int32] = i * THREADS + thread
        y: T.let[T.int32] = first + place // each
        if place < many * each:
            for v in T.unroll(4):
                number[v] = T.uint32(0)
            if y >= 0 and y < plan.images[1]:
                for v in T.vectorized(4):
                    number[v] = words[image, y, place % each * 4 + v]
            for v in T.vectorized(4):
                rows[(y + RING) % RING, LEAD // 2 + place % each * 4 + v] = number[v]


@T.inline
def load_pixels(left, rows, row, group, lane):
    """What a thread has of 16 pixels of a row of the convolution, by all numbers under each."""
    for c in T.unroll(KERNEL * DEPTH // 8):
        y: T.let[T.int32] = (row * STRIDE - PAD + c // 3 + RING) % RING
        for h in T.unroll(2):
            pixel: T.let[T.int32] = group * 16 + lane // 4 + h * 8
            left[c * 2 + h] = rows[y, 3 + pixel * 3 + c % 3 * 4 + lane % 4]


def is_pixel(row: Any, pixel: Any, plan: StemPlan) -> Any:
    """Whether the convolution has such a pixel; columns are counted from 0."""
    high, wide = plan.out
    return tvm.tirx.all(is_inside(row, high), pixel < wide)


@T.inline
def store_pixels(acc, pair, bias, kept, row, group, lane, plan):
    """Add the bias, let negative sums be zero, and those outside; put all into shared memory.

    The 16 bytes of eight filters stand at another place for each of eight pixels, so that neither
    these stores nor the pool's loads meet in a bank.
    """
    for j in T.unroll(8):
        for h in T.unroll(2):
            pixel: T.let[T.int32] = group * 16 + lane // 4 + h * 8
            inside = T.meta_var(is_pixel(row, pixel, plan))
            for v in T.unroll(2):
                i: T.let[T.int32] = j * 4 + h * 2 + v
                acc[i] = T.if_then_else(
                    inside, T.max(acc[i] + bias[j * 2 + v], T.float32(0)), T.float32(0)
                )
    place: T.let[T.int32] = group * 16 + lane % 16
    for j in T.unroll(4):
        for q in T.unroll(4):
            i: T.let[T.int32] = j * 8 + q * 2
            T.ptx["cvt.rn.f16x2.f32"](pair[q], acc[i + 1], acc[i])
        chunk: T.let[T.int32] = T.bitwise_xor(j * 2 + lane // 16, place % 8)
        T.ptx["stmatrix.sync.aligned.m8n8.x4.shared.b16"](
            kept.ptr_to([(row + KEPT) % KEPT, place, chunk * 8]),
            pair[0], pair[1], pair[2], pair[3],
        )  # fmt: skip


@T.inline
def pool_row(results, pairs, largest, own, image, p, thread, plan):
    """The largest of three by three pixels: a row of the pool. Outside there are zeros, or again
    the pixel at the edge, neither of which is larger."""
    for i in T.serial((plan.pooled[1] * 8 + THREADS - 1) // THREADS):
        place: T.let[T.int32] = i * THREADS + thread
        x: T.let[T.int32] = place // 8
        if place < plan.pooled[1] * 8:
            for v in T.unroll(4):
                largest[v] = T.uint32(0)
            for dy in T.unroll(3):
                for dx in T.unroll(3):
                    pixel: T.let[T.int32] = T.min(T.max(x * 2 + dx - 1, 0), plan.out[1] - 1)
                    chunk: T.let[T.int32] = T.bitwise_xor(place % 8, pixel % 8)
                    for v in T.vectorized(4):
                        own[v] = pairs[(p * 2 + dy - 1 + KEPT) % KEPT, pixel, chunk * 4 + v]
                    for v in T.unroll(4):
                        T.ptx["max.f16x2"](largest[v], largest[v], own[v])
            for v in T.vectorized(4):
                results[image, p, x, place % 8 * 4 + v] = largest[v]


# Used in network/on_hopper.
def stem(images: tuple[int, int, int], sms: int | None = None, plan: StemPlan | None = None) -> Any:
    """A kernel for the first convolution of a ResNet and the max pool behind it.

    >>> kernel = stem((8, 224, 224))
    >>> [param.shape for param in kernel.params]
    [(8, 224, 224, 3), (192, 64), (64,), (8, 56, 56, 64)]

    The convolution is 7 x 7 with stride 2 and pad 3, from 3 channels to 64, with bias and ReLU;
    the pool is 3 x 3 with stride 2 and pad 1. Images have channels last.

    Args:
        images: how many, and their rows and columns; columns are a multiple of 8.
        sms: of the GPU; None for those of this machine's (132 without a GPU).
        plan: how it is cut; by default `plan_stem`.

    Returns:
        A PrimFunc of X, W (see `stem_weights`), B, float32, and Y.

    Raises:
        ValueError: a size is not as above; there are more pixels than 32 bits number.
    """
    batch, h, w = images
    check_integers(batch=batch, h=h, w=w)
    if w % 8:
        raise ValueError(f"images is {shown(images)}; expected columns that are a multiple of 8")
    plan = plan or plan_stem(images, sms)
    down, across = plan.pooled
    groups, blocks, items, strip = plan.groups, plan.blocks, plan.items, plan.rows
    strips, words = math.ceil(down / strip), plan.line
    check_strips((*images, CHANNELS), (batch, down, across, FILTERS), items)

    @T.prim_func
    def main(x_ptr: T.handle, w_ptr: T.handle, b_ptr: T.handle, y_ptr: T.handle):
        X = T.match_buffer(x_ptr, extents(batch, h, w, CHANNELS), "float16", align=16)
        W = T.match_buffer(w_ptr, (192, 64), "float16", align=16)
        B = T.match_buffer(b_ptr, (FILTERS,), "float32", align=16)
        Y = T.match_buffer(y_ptr, extents(batch, down, across, FILTERS), "float16", align=16)
        numbers = T.decl_buffer(extents(batch, h, words), "uint32", data=X.data, align=16)
        results = T.decl_buffer(
            extents(batch, down, across, FILTERS // 2), "uint32", data=Y.data, align=16
        )
        T.device_entry()
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": 2})
        block = T.cta_id([blocks])
        T.warpgroup_id([THREADS // 128])
        thread = T.thread_id([THREADS])

        pool = T.SMEMPool()
        sW = shared_tile(pool, (3, FILTERS, 64))
        rows = pool.alloc((RING, plan.words), "uint32", align=128)
        kept = pool.alloc((KEPT, groups * 16, FILTERS), "float16", align=128)
        pool.move_base_to(pool.offset - KEPT * groups * 16 * FILTERS * 2)
        pairs = pool.alloc((KEPT, groups * 16, FILTERS // 2), "uint32", align=128)
        arrived = TMABar(pool, 1)
        arrived.init(1)
        pool.commit()
        T.ptx.fence.proxy.async_.shared__cta()
        matrix = T.alloc_local((1,), "uint64")
        acc = T.alloc_local((32,), "float32")
        left = T.alloc_local((STEPS * 4,), "uint32")
        bias = T.alloc_local((16,), "float32")
        pair = T.alloc_local((4,), "uint32")
        own = T.alloc_local((4,), "uint32")
        largest = T.alloc_local((4,), "uint32")
        later = T.alloc_local((8,), "uint32")
        encode_descriptor(matrix[0], sW.ptr_to([0, 0, 0]))
        lane: T.let[T.int32] = thread % 32
        warp: T.let[T.int32] = thread // 32
        for i in T.serial((RING * plan.words + THREADS - 1) // THREADS):
            place: T.let[T.int32] = i * THREADS + thread
            if place < RING * plan.words:
                rows[place // plan.words, place % plan.words] = T.uint32(0)
        T.cuda.cta_sync()
        wait_for_kernel_before()

        if thread == 0:
            arrived.arrive(0, 192 * 64 * 2)
            for j in T.unroll(3):
                tma_load(sW[j, :, :], W[j * 64 : j * 64 + 64, 0:64], arrived.ptr_to([0]))
        for j in T.unroll(8):
            for v in T.unroll(2):
                bias[j * 2 + v] = B[j * 8 + lane % 4 * 2 + v]
        for j in T.unroll(STEPS * 4 - KERNEL * DEPTH // 4):
            left[KERNEL * DEPTH // 4 + j] = T.uint32(0)
        arrived.wait(0, 0)

        item: T.int32 = block
        while item < items:
            image: T.let[T.int32] = item // strips
            begin: T.let[T.int32] = item % strips * strip
            many: T.let[T.int32] = T.min(strip, down - begin)
            # Before the first row of the pool comes one that is not stored: it leaves the row of
            # the convolution above.
            fetch_rows(rows, numbers, image, (begin - 1) * 4 - PAD, own, thread, 9, plan)
            T.cuda.cta_sync()
            for r in T.serial(many + 1):
                p: T.let[T.int32] = begin - 1 + r
                # The four rows of the image that the next row needs are on their way meanwhile.
                for i in T.unroll(2):
                    place: T.let[T.int32] = i * THREADS + thread
                    y: T.let[T.int32] = p * 4 + 6 + place // (words // 4)
                    for v in T.unroll(4):
                        later[i * 4 + v] = T.uint32(0)
                    if place < words and y >= 0 and y < h:
                        for v in T.vectorized(4):
                            later[i * 4 + v] = numbers[image, y, place % (words // 4) * 4 + v]
                for i in T.serial((2 * groups + THREADS // 32 - 1) // (THREADS // 32)):
                    # A warp that has no pixels left takes the last ones once more.
                    place: T.let[T.int32] = T.min(i * (THREADS // 32) + warp, 2 * groups - 1)
                    row: T.let[T.int32] = p * 2 + place // groups
                    load_pixels(left, rows, row, place % groups, lane)
                    multiply_pixels(acc, left, matrix, STEPS, FILTERS)
                    T.ptx.wgmma.wait_group.sync.aligned(0)
                    if i * (THREADS // 32) + warp < 2 * groups:
                        store_pixels(acc, pair, bias, kept, row, place % groups, lane, plan)
                T.cuda.cta_sync()
                if r > 0:
                    pool_row(results, pairs, largest, own, image, p, thread, plan)
                for i in T.unroll(2):
                    place: T.let[T.int32] = i * THREADS + thread
                    y: T.let[T.int32] = p * 4 + 6 + place // (words // 4)
                    if place < words:
                        for v in T.vectorized(4):
                            rows[(y + RING) % RING, LEAD // 2 + place % (words // 4) * 4 + v] = (
                                later[i * 4 + v]
                            )
                T.cuda.cta_sync()
            item = item + blocks

    return dependent_launch(main)
