"""A convolution of few channels, such as a network's first layer, with no copy before it.

TMA reads rows that begin at multiples of 16 bytes, so that `conv_any` wants images of few channels
copied: to more channels, or with the pixels under a row of the kernel side by side. That moves more
bytes than the layer has. Here a block keeps rows of the image in shared memory as they are, and
each thread loads from there what it has to have of wgmma's first matrix, in registers: the numbers
under a row of the kernel are one piece of such a row.

Where they begin within a word of four bytes, two words are shifted into one.

A block goes down a strip of an image. While it computes some rows of the result, the rows of the
image that the next ones need are on their way.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm.backend.cuda.lang.pipeline import TMABar
from tvm.script import tirx as T

from d2ltvm.compute.operators import check_activation
from d2ltvm.errors import shown
from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_costs import costs
from d2ltvm.hopper.planning import LARGE, REGISTERS_PER_SM, check_sms, extents
from d2ltvm.hopper.tiles import (
    ALONG_ROWS,
    AS_IT_IS,
    dependent_launch,
    encode_descriptor,
    shared_tile,
    tma_load,
    wait_for_kernel_before,
)
from d2ltvm.layouts.arrays import rounded_up

THREADS = 256
WARPS = THREADS // 32
MOST_CHANNELS, MOST_FILTERS, MOST_WEIGHTS = 4, 128, 256  # of an image, of the result, of a filter
ROWS_TRIED, PER_SM_TRIED = (1, 2, 3, 4, 5, 6, 7, 8), (1, 2, 3, 4)  # what plans are made of
MOST_LATER = 6  # times 16 bytes that a thread has on their way at once
SHARED_PER_SM = 224 * 1024  # bytes of shared memory that the blocks of an SM have
OTHERS = 24  # registers of a thread that hold neither sums nor pixels, about

# Nanoseconds, for `RowsPlan.seconds`. Source: 105 plans of 13 layers on an H200, fitted to the mean
# square of the logarithm: `first_layers_tried.jsonl` there. The mean error is 10%.
ROUND, GROUP, GROUP_CHUNK, GROUP_FILTER = 354, 174, 15.5, 9.8  # waits, one after the other
TILE_CHUNK, TILE_FILTER = 2.52, 0.85  # what 16 pixels keep an SM busy
ITEM, ITEM_ROW, START = 110, 12.6, 1590

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class RowsPlan:
    """How the work is cut.

    >>> plan = plan_rows(Conv(256, (224, 224), 3, 32, (3, 3), (1, 1), (2, 2)), sms=132)
    >>> plan.rows, plan.strip, plan.per_sm, plan.depth, plan.steps, plan.blocks
    (4, 56, 4, 16, 3, 512)

    Attributes:
        conv: the sizes: see `takes_rows`.
        sms: of the GPU.
        rows: of the result that a block computes at once.
        strip: of the result that it computes below each other.
        per_sm: blocks for which an SM shall have room.
        bias: whether a number is added to each channel.
        activation: what follows, one of `compute.operators.ACTIVATIONS`.
    """

    conv: Conv
    sms: int
    rows: int
    strip: int
    per_sm: int = 2
    bias: bool = False
    activation: str = ""

    line = property(lambda self: self.conv.size[1] * self.conv.ic)  # numbers of a row of an image
    step = property(lambda self: self.conv.stride[1] * self.conv.ic)  # from pixel to pixel
    odd = property(lambda self: self.step % 2 == 1)  # whether some begin within a word
    lead = property(lambda self: rounded_up(self.conv.pad[1] * self.conv.ic + 1, 8))  # zeros
    start = property(lambda self: self.lead - self.conv.pad[1] * self.conv.ic)  # of pixel 0
    early = property(lambda self: 0 if self.odd else self.start % 2)  # numbers too many in front
    depth = property(lambda self: rounded_up(self.early + self.conv.kernel[1] * self.conv.ic, 8))
    chunks = property(lambda self: self.conv.kernel[0] * self.depth // 8)  # of 8 numbers
    steps = property(lambda self: math.ceil(self.chunks / 2))  # of wgmma
    filters = property(lambda self: rounded_up(self.conv.oc, 16))
    groups = property(lambda self: math.ceil(self.conv.out[1] / 16))  # of 16 pixels of a row
    span = property(lambda self: max(self.conv.kernel[0], self.conv.stride[0]))
    fresh = property(lambda self: self.rows * self.conv.stride[0])  # rows that come at once
    ring = property(lambda self: self.fresh - self.conv.stride[0] + self.span)
    vectors = property(lambda self: self.line // 8)  # of 16 bytes, of a row
    later = property(lambda self: math.ceil(self.fresh * self.vectors / THREADS))
    items = property(lambda self: self.conv.batch * math.ceil(self.conv.out[0] / self.strip))
    blocks = property(lambda self: min(self.per_sm * self.sms, self.items))

    @property
    def words(self) -> int:
        """Of a row in shared memory: its numbers, and zeros up to where the last group reads."""
        last = self.start + (self.groups * 16 - 1) * self.step + self.depth + 2
        return rounded_up(max(last, self.lead + self.line), 8) // 2

    @property
    def weights(self) -> tuple[int, int]:
        """The shape in which the kernel takes its weights."""
        return math.ceil(self.steps / 4) * self.filters, 64

    @property
    def nbytes(self) -> int:
        """Of shared memory; 1,024 are for the biases and what alignment takes."""
        tile = WARPS * 16 * (self.filters + 8) * 2
        return self.weights[0] * 128 + self.ring * self.words * 4 + tile + 1024

    @property
    def fits(self) -> bool:
        """Whether an SM has room for so many of its blocks, and 32 bits for a strip's number."""
        held = self.filters // 2 + 4 * self.steps + 4 * self.later + OTHERS
        return (
            self.later <= MOST_LATER
            and self.items + self.blocks < LARGE  # a strip's number has 32 bits
            and self.nbytes <= SHARED_PER_SM // self.per_sm
            and held <= REGISTERS_PER_SM // (THREADS * self.per_sm)
        )

    @property
    def seconds(self) -> float:
        """That it takes: one round after the other, or what is read and written, once each.

        In a round a block computes `rows` of the result. It takes as long as the groups of 16
        pixels of a warp, which wait for each other; or as all groups of an SM's blocks keep the SM
        busy. The larger of both counts, and a quarter of the other.
        """
        c, of = self.conv, costs()
        tiles = self.rows * self.groups
        each = GROUP + GROUP_CHUNK * self.chunks + GROUP_FILTER * self.filters
        alone = ROUND + math.ceil(tiles / WARPS) * each
        blocks = min(self.per_sm, math.ceil(self.blocks / self.sms))
        busy = blocks * tiles * (TILE_CHUNK * self.chunks + TILE_FILTER * self.filters)
        a_round = max(alone, busy) + min(alone, busy) / 4
        rounds = math.ceil(min(self.strip, c.out[0]) / self.rows)
        item = rounds * a_round + ITEM + ITEM_ROW * self.ring * self.vectors / THREADS
        moved = 2 * (c.batch * math.prod(c.size) * c.ic + c.pixels * c.oc)
        ns = math.ceil(self.items / self.blocks) * item
        return START * 1e-9 + max(ns * 1e-9, moved / of.memory)

    def __str__(self) -> str:
        return f"{self.rows} of {self.strip} rows at once, {self.per_sm} blocks an SM"


def takes_rows(conv: Conv) -> bool:
    """Whether there is such a kernel for the sizes.

    There are at most four channels and 128 filters, and no dilation. The numbers of a row of the
    image are a multiple of 8, and so are the filters. A filter has at most 256 weights.

    >>> takes_rows(Conv(8, (224, 224), 3, 64, (7, 7), (3, 3), (2, 2)))
    True
    >>> takes_rows(Conv(8, (223, 223), 3, 64, (7, 7), (3, 3), (2, 2)))
    False
    """
    few = (
        conv.ic <= MOST_CHANNELS and conv.oc <= MOST_FILTERS and conv.taps * conv.ic <= MOST_WEIGHTS
    )
    whole = conv.size[1] * conv.ic % 8 == 0 and conv.oc % 8 == 0
    return few and whole and conv.dilation == (1, 1) and conv.taps > 1 and conv.groups == 1


def rows_plans(
    conv: Conv, sms: int | None = None, many: int = 1, bias: bool = False, activation: str = ""
) -> list[RowsPlan]:
    """Plans for a convolution of few channels, the fastest by the model first.

    >>> conv = Conv(8, (224, 224), 3, 64, (7, 7), (3, 3), (2, 2))
    >>> best, *others = rows_plans(conv, sms=132, many=3)
    >>> all(best.seconds <= other.seconds for other in others)
    True

    Args:
        conv: the sizes; where `takes_rows` says no, there is no plan.
        sms: of the GPU; None for those of this machine's (132 without a GPU).
        many: at most so many.
        bias, activation: as for `RowsPlan`.
    """
    sms = check_sms(sms)
    check_activation(activation)
    if not takes_rows(conv):
        return []
    found = []
    for rows in (rows for rows in ROWS_TRIED if rows <= conv.out[0]):
        for per_sm in PER_SM_TRIED:
            strip = _strip(conv, rows, per_sm * sms)
            plan = RowsPlan(conv, sms, rows, strip, per_sm, bias, activation)
            if plan.fits:
                found.append(plan)
    return sorted(found, key=lambda plan: plan.seconds)[:many]


def _strip(conv: Conv, rows: int, most: int) -> int:
    """The height of strips that end soonest; a strip begins with half a round's loads."""

    def ends(strip: int) -> float:
        items = conv.batch * math.ceil(conv.out[0] / strip)
        return math.ceil(items / min(most, items)) * (strip / rows + 0.5)

    return min(range(rows, rounded_up(conv.out[0], rows) + 1, rows), key=ends)


def plan_rows(
    conv: Conv, sms: int | None = None, bias: bool = False, activation: str = ""
) -> RowsPlan:
    """The plan that should be the fastest: see `rows_plans`.

    Raises:
        ValueError: there is no such kernel for the sizes.
    """
    found = rows_plans(conv, sms, 1, bias, activation)
    if not found:
        raise ValueError(
            f"conv is {shown(conv)}; expected at most {MOST_CHANNELS} channels, those of a row and "
            f"the filters a multiple of 8, at most {MOST_FILTERS} filters of at most "
            f"{MOST_WEIGHTS} weights, no dilation, and rows for which shared memory has room"
        )
    return found[0]


def rows_weights(plan: RowsPlan, w: Array) -> Array:
    """Weights of (taps, oc, ic) as the kernel takes them: pieces of filters by 64 in depth.

    >>> plan = plan_rows(Conv(8, (224, 224), 3, 64, (7, 7), (3, 3), (2, 2)))
    >>> rows_weights(plan, np.ones((49, 64, 3), "float16")).sum() == 49 * 64 * 3
    True
    """
    c = plan.conv
    rows = np.zeros((plan.filters, c.kernel[0], plan.depth), w.dtype)
    row = w.reshape(*c.kernel, c.oc, c.ic).transpose(2, 0, 1, 3).reshape(c.oc, c.kernel[0], -1)
    rows[: c.oc, :, plan.early : plan.early + row.shape[2]] = row
    deep = np.zeros((plan.filters, plan.weights[0] // plan.filters * 64), w.dtype)
    deep[:, : plan.chunks * 8] = rows.reshape(plan.filters, -1)
    pieces = deep.reshape(plan.filters, -1, 64).transpose(1, 0, 2)
    return np.ascontiguousarray(pieces.reshape(plan.weights))


@T.inline
def bring(number, words, image, y, place, plan):
    """Load 16 bytes of a row of an image; zeros for a row that it does not have."""
    for v in T.unroll(4):
        number[v] = T.uint32(0)
    if tvm.tirx.all(y >= 0, y < plan.conv.size[0]):
        for v in T.vectorized(4):
            number[v] = words[image, y, place * 4 + v]


@T.inline
def keep(rows, number, y, place, plan):
    """Put them into the ring."""
    for v in T.vectorized(4):
        rows[(y + plan.ring * 64) % plan.ring, plan.lead // 2 + place * 4 + v] = number[v]


@T.inline
def load_pixels(left, rows, row, group, lane, plan):
    """What a thread has of 16 pixels of a row of the result, by all numbers under each."""
    for c in T.unroll(plan.chunks):
        y: T.let[T.int32] = (
            row * plan.conv.stride[0] - plan.conv.pad[0] + c // (plan.depth // 8) + plan.ring * 64
        ) % plan.ring
        for h in T.unroll(2):
            first: T.let[T.int32] = plan.start + (group * 16 + lane // 4 + h * 8) * plan.step
            word: T.let[T.int32] = first // 2 + c % (plan.depth // 8) * 4 + lane % 4
            if plan.odd:
                left[c * 2 + h] = T.if_then_else(
                    first % 2 == 1,
                    T.bitwise_or(
                        T.shift_right(rows[y, word], T.uint32(16)),
                        T.shift_left(rows[y, word + 1], T.uint32(16)),
                    ),
                    rows[y, word],
                )
            else:
                left[c * 2 + h] = rows[y, word]


@T.inline
def multiply_pixels(acc, left, matrix, steps, filters):
    """Begin all products of 64 pixels by so many filters, in so many steps of 16 numbers."""
    T.ptx.wgmma.fence.sync.aligned()
    for s in T.unroll(steps):
        T.ptx[f"wgmma.mma_async.sync.aligned.m64n{filters}k16.f32.f16.f16"](
            *[acc[j] for j in range(filters // 2)],
            left[s * 4], left[s * 4 + 1], left[s * 4 + 2], left[s * 4 + 3],
            matrix[0] + T.Cast("uint64", s // 4 * (filters * 8) + s % 4 * 2),
            T.ptx.pred(s > 0), AS_IT_IS, AS_IT_IS, ALONG_ROWS,
        )  # fmt: skip
    T.ptx.wgmma.commit_group.sync.aligned()


@T.inline
def finish(acc, pair, bias, tile, warp, lane, plan):
    """Add the bias, apply the activation, and put 16 pixels, rounded, into a warp's own tile."""
    for j in T.unroll(plan.filters // 8):
        for i in T.unroll(4):
            n: T.let[T.int32] = j * 4 + i
            if plan.bias:
                acc[n] = acc[n] + bias[j * 8 + lane % 4 * 2 + i % 2]
            if plan.activation != "":
                acc[n] = T.max(acc[n], T.float32(0))
            if plan.activation == "relu6":
                acc[n] = T.min(acc[n], T.float32(6))
    for j in T.unroll(plan.filters // 16):
        for q in T.unroll(4):
            i: T.let[T.int32] = j * 8 + q * 2
            T.ptx["cvt.rn.f16x2.f32"](pair[q], acc[i + 1], acc[i])
        T.ptx["stmatrix.sync.aligned.m8n8.x4.shared.b16"](
            tile.ptr_to([warp, lane % 16, j * 16 + lane // 16 * 8]),
            pair[0], pair[1], pair[2], pair[3],
        )  # fmt: skip


@T.inline
def store(Y, pairs, own, image, row, group, warp, lane, plan):
    """Store a warp's pixels, 16 bytes a thread, neighbours beside each other."""
    units: T.let[T.int32] = plan.conv.oc // 8
    for i in T.unroll((16 * (plan.conv.oc // 8) + 31) // 32):
        place: T.let[T.int32] = i * 32 + lane
        x: T.let[T.int32] = group * 16 + place // units
        if tvm.tirx.all(place < 16 * units, x < plan.conv.out[1]):
            for v in T.vectorized(4):
                own[v] = pairs[warp, place // units, place % units * 4 + v]
            for v in T.vectorized(4):
                Y[image, row, x, place % units * 4 + v] = own[v]


# Used in hopper/which_plan.
def conv_rows(plan: RowsPlan) -> Any:
    """A kernel for a convolution of few channels, with a bias and an activation where asked for.

    >>> conv = Conv(8, (224, 224), 3, 64, (7, 7), (3, 3), (2, 2))
    >>> kernel = conv_rows(plan_rows(conv, bias=True, activation="relu"))
    >>> [param.shape for param in kernel.params]
    [(8, 224, 224, 3), (192, 64), (64,), (8, 112, 112, 64)]

    Args:
        plan: the sizes, and how the work is cut.

    Returns:
        A PrimFunc of X, (batch, height, width, ic), W (see `rows_weights`), if there is a bias, B,
        float32, and Y.
    """
    c = plan.conv
    (h, w), (high, wide) = c.size, c.out
    strips, tile_words = math.ceil(high / plan.strip), plan.filters // 2 + 4

    @T.inline
    def body(X, W, B, Y):
        numbers = T.decl_buffer(
            extents(c.batch, h, plan.line // 2), "uint32", data=X.data, align=16
        )
        results = T.decl_buffer(
            extents(c.batch, high, wide, c.oc // 2), "uint32", data=Y.data, align=16
        )
        T.device_entry()
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": plan.per_sm})
        block = T.cta_id([plan.blocks])
        T.warpgroup_id([THREADS // 128])
        thread = T.thread_id([THREADS])

        pool = T.SMEMPool()
        sW = shared_tile(pool, (plan.weights[0] // plan.filters, plan.filters, 64))
        rows = pool.alloc((plan.ring, plan.words), "uint32", align=128)
        tile = pool.alloc((WARPS, 16, plan.filters + 8), "float16", align=128)
        pool.move_base_to(pool.offset - WARPS * 16 * (plan.filters + 8) * 2)
        pairs = pool.alloc((WARPS, 16, tile_words), "uint32", align=128)
        bias = pool.alloc((plan.filters,), "float32", align=128)
        arrived = TMABar(pool, 1)
        arrived.init(1)
        pool.commit()
        T.ptx.fence.proxy.async_.shared__cta()
        matrix = T.alloc_local((1,), "uint64")
        acc = T.alloc_local((plan.filters // 2,), "float32")
        left = T.alloc_local((plan.steps * 4,), "uint32")
        pair = T.alloc_local((4,), "uint32")
        own = T.alloc_local((4,), "uint32")
        later = T.alloc_local((plan.later * 4,), "uint32")
        encode_descriptor(matrix[0], sW.ptr_to([0, 0, 0]))
        lane: T.let[T.int32] = thread % 32
        warp: T.let[T.int32] = thread // 32
        for i in T.serial((plan.ring * plan.words + THREADS - 1) // THREADS):
            place: T.let[T.int32] = i * THREADS + thread
            if place < plan.ring * plan.words:
                rows[place // plan.words, place % plan.words] = T.uint32(0)
        T.cuda.cta_sync()
        wait_for_kernel_before()

        if thread == 0:
            arrived.arrive(0, plan.weights[0] * 128)
            for j in T.unroll(plan.weights[0] // plan.filters):
                tma_load(
                    sW[j, :, :], W[j * plan.filters : (j + 1) * plan.filters, 0:64],
                    arrived.ptr_to([0]),
                )  # fmt: skip
        if plan.bias:  # noqa: SIM102 decided when the kernel is made
            if thread < plan.filters:
                bias[thread] = T.if_then_else(
                    thread < c.oc, B[T.min(thread, c.oc - 1)], T.float32(0)
                )
        for j in T.unroll(plan.steps * 4 - plan.chunks * 2):
            left[plan.chunks * 2 + j] = T.uint32(0)
        arrived.wait(0, 0)

        item: T.int32 = block
        while item < plan.items:
            image: T.let[T.int32] = item // strips
            begin: T.let[T.int32] = item % strips * plan.strip
            many: T.let[T.int32] = T.min(plan.strip, high - begin)
            above: T.let[T.int32] = begin * c.stride[0] - c.pad[0]
            for i in T.serial((plan.ring * plan.vectors + THREADS - 1) // THREADS):
                place: T.let[T.int32] = i * THREADS + thread
                if place < plan.ring * plan.vectors:
                    y: T.let[T.int32] = above + place // plan.vectors
                    bring(own, numbers, image, y, place % plan.vectors, plan)
                    keep(rows, own, y, place % plan.vectors, plan)
            T.cuda.cta_sync()
            for r in T.serial((many + plan.rows - 1) // plan.rows):
                top: T.let[T.int32] = begin + r * plan.rows
                # The rows of the image that come next are on their way meanwhile.
                below: T.let[T.int32] = above + r * plan.fresh + plan.ring
                for i in T.unroll(plan.later):
                    place: T.let[T.int32] = i * THREADS + thread
                    if place < plan.fresh * plan.vectors:
                        bring(
                            own, numbers, image, below + place // plan.vectors,
                            place % plan.vectors, plan,
                        )  # fmt: skip
                        for v in T.unroll(4):
                            later[i * 4 + v] = own[v]
                for i in T.serial((plan.rows * plan.groups + WARPS - 1) // WARPS):
                    # A warp that has no pixels left takes the last ones once more.
                    g: T.let[T.int32] = T.min(i * WARPS + warp, plan.rows * plan.groups - 1)
                    row: T.let[T.int32] = top + g // plan.groups
                    load_pixels(left, rows, row, g % plan.groups, lane, plan)
                    multiply_pixels(acc, left, matrix, plan.steps, plan.filters)
                    T.ptx.wgmma.wait_group.sync.aligned(0)
                    finish(acc, pair, bias, tile, warp, lane, plan)
                    T.cuda.warp_sync()
                    if i * WARPS + warp < plan.rows * plan.groups and row < begin + many:
                        store(results, pairs, own, image, row, g % plan.groups, warp, lane, plan)
                    T.cuda.warp_sync()
                T.cuda.cta_sync()
                for i in T.unroll(plan.later):
                    place: T.let[T.int32] = i * THREADS + thread
                    if place < plan.fresh * plan.vectors:
                        for v in T.unroll(4):
                            own[v] = later[i * 4 + v]
                        keep(rows, own, below + place // plan.vectors, place % plan.vectors, plan)
                T.cuda.cta_sync()
            item = item + plan.blocks

    x_type, y_type = extents(c.batch, h, w, c.ic), extents(c.batch, high, wide, c.oc)

    # TVM's parser wants a kernel for each list of parameters.
    def plain() -> Any:
        @T.prim_func
        def main(x_ptr: T.handle, w_ptr: T.handle, y_ptr: T.handle):
            X = T.match_buffer(x_ptr, x_type, "float16", align=16)
            W = T.match_buffer(w_ptr, plan.weights, "float16", align=16)
            Y = T.match_buffer(y_ptr, y_type, "float16", align=16)
            body(X, W, Y, Y)

        return main

    def with_bias() -> Any:
        @T.prim_func
        def main(x_ptr: T.handle, w_ptr: T.handle, b_ptr: T.handle, y_ptr: T.handle):
            X = T.match_buffer(x_ptr, x_type, "float16", align=16)
            W = T.match_buffer(w_ptr, plan.weights, "float16", align=16)
            B = T.match_buffer(b_ptr, (c.oc,), "float32", align=16)
            Y = T.match_buffer(y_ptr, y_type, "float16", align=16)
            body(X, W, B, Y)

        return main

    return dependent_launch(with_bias() if plan.bias else plain())
