"""Schedules of depthwise convolution, pooling and batch normalisation with the channels last.

A thread has `width` neighbouring channels, which in float16 are 16 bytes if there are eight, of a
strip of neighbouring pixels of the result. What it reads and what it adds up are in registers.
"""

import math

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from d2ltvm.compute.convolution import conv_out_size
from d2ltvm.compute.operators_nhwc import (
    batch_norm_nhwc,
    depthwise_nhwc,
    global_pool_nhwc,
    pool_nhwc,
)
from d2ltvm.compute.ops import schedule
from d2ltvm.errors import whole
from d2ltvm.schedules.arguments import Factors, checked
from d2ltvm.schedules.loops import bind_thread
from d2ltvm.schedules.operators import unroll_inside


# From convolution/depthwise.
@checked
def depthwise_strips(
    batch: int, c: int, n: int, k: int, p: int, s: int,
    strip: Factors = (4, 1), block: Factors = (1, 28, 8), width: int = 8, half: bool = True,
) -> Schedule:  # fmt: skip
    """Depthwise convolution, channels last: `width` channels of `strip` rows, columns a thread.

    A block has `block` strips of rows, of columns, and groups of channels.
    """
    sch = schedule(depthwise_nhwc(batch, c, n, k, p, s, "float16" if half else "float32"))
    thread = share_strips(sch, strip, block, width)
    weights = sch.cache_read("Sums", 1, "local")
    sch.compute_at(weights, thread, preserve_unit_loops=True)
    in_registers(sch, p, thread, [weights])
    return sch


# From convolution/pooling.
@checked
def pool_strips(
    batch: int, c: int, n: int, k: int, p: int, s: int,
    strip: Factors = (1, 1), block: Factors = (1, 28, 8), width: int = 8, half: bool = True,
    largest: bool = True,
) -> Schedule:  # fmt: skip
    """Pooling, channels last, in strips as `depthwise_strips`: the largest number, or the mean."""
    kind = "max" if largest else "avg"
    sch = schedule(pool_nhwc(kind, batch, c, n, k, p, s, "float16" if half else "float32"))
    in_registers(sch, p, share_strips(sch, strip, block, width), [])
    return sch


# From convolution/depthwise.
def share_strips(sch: Schedule, strip: Factors, block: Factors, width: int) -> LoopRV:
    """Share out a result of (batch, height, width, channels); returns the loop of the threads."""
    sums, rounded = sch.get_sblock("Sums"), sch.get_sblock("Y")
    result = sch.cache_write(rounded, 0, "local")
    b, i, j, c = sch.get_loops(result)
    by, ty, row = sch.split(i, [None, block[0], strip[0]])
    bx, tx, column = sch.split(j, [None, block[1], strip[1]])
    bc, tc, v = sch.split(c, [None, block[2], width])
    sch.reorder(b, by, bx, bc, ty, tx, tc, row, column, v)
    thread = sch.fuse(ty, tx, tc)
    sch.bind(sch.fuse(b, by, bx, bc), "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    for each in (rounded, sums):
        sch.compute_at(each, thread)
        sch.set_scope(each, 0, "local")
    return thread


# From convolution/depthwise.
def in_registers(sch: Schedule, p: int, thread: LoopRV, others: list[SBlockRV]) -> None:
    """Load a strip's pixels into registers, in vectors, and unroll what a thread does."""
    sums, rounded = sch.get_sblock("Sums"), sch.get_sblock("Y")
    pixels = sch.get_sblock("PaddedX") if p else sch.cache_read(sums, 0, "local")
    sch.compute_at(pixels, thread, preserve_unit_loops=True)
    sch.set_scope(pixels, 0, "local")
    unroll_inside(sch, [sums, rounded], [*others, pixels, sch.get_sblock("Y_local")])


# Used in convolution/pooling.
@checked
def pool_global(
    batch: int, c: int, n: int, groups: int = 32, width: int = 4, half: bool = True
) -> Schedule:
    """The mean of each channel, channels last: `width` channels of all pixels a thread.

    A block has `groups` of them. A thread loads 7 x 7 pixels at once, and larger images by rows.
    """
    sch = schedule(global_pool_nhwc(batch, c, n, "float16" if half else "float32"))
    sums, rounded = sch.get_sblock("Sums"), sch.get_sblock("Y")
    result = sch.cache_write(rounded, 0, "local")
    b, ch = sch.get_loops(result)
    bc, group, _ = sch.split(ch, [None, groups, width])
    bind_thread(sch, (sch.fuse(b, bc), group), ("blockIdx.x", "threadIdx.x"))
    for each in (rounded, sums):
        sch.compute_at(each, group, preserve_unit_loops=True)
        sch.set_scope(each, 0, "local")
    v, row, column = sch.get_loops(sums)[-3:]
    sch.reorder(row, column, v)
    pixels = sch.cache_read(sums, 0, "local")
    sch.compute_at(pixels, row if n > 7 else group, preserve_unit_loops=True)
    for block in (rounded, sums, pixels, result):
        loops = sch.get_loops(block)[2:]
        if block in (pixels, result):
            sch.vectorize(loops.pop())
        for loop in loops[n > 7 and block in (sums, pixels) :]:
            sch.unroll(loop)
    return sch


# From convolution/pooling.
@checked
def batch_norm_pixels(
    pixels: int, c: int, each: int = 2, block: Factors = (32, 8), width: int = 8,
    relu: bool = True, half: bool = True,
) -> Schedule:  # fmt: skip
    """Batch norm, channels last: `width` channels of `each` pixels a thread.

    X and Y are (pixels, c), in float16, or in float32 if not `half`. The four vectors are (c,), in
    float32. A block has `block` times so many pixels, and groups of channels. It works out scales
    and shifts once, and shares them: for its own, a thread would load 128 bytes of the vectors
    beside two pixels of 16 bytes each.

    >>> sch = d2ltvm.schedules.batch_norm_pixels(9, 16, block=(4, 2))
    >>> x, y = np.full((9, 16), 5, "float16"), np.empty((9, 16), "float16")
    >>> d2ltvm.emulate(sch, x, *np.full((4, 16), 4, "float32"), y)  # (5 - 4) * 4 / sqrt(4) + 4
    >>> float(y[8, 15])
    6.0
    """
    dtype = "float16" if half else "float32"
    sch = schedule(batch_norm_nhwc(pixels, c, relu=relu, dtype=dtype))
    rounded = sch.get_sblock("Y")
    result = sch.cache_write(rounded, 0, "local")
    pixel, ch = sch.get_loops(result)
    bx, side, step = sch.split(pixel, [None, block[0], each])
    bc, group, v = sch.split(ch, [None, block[1], width])
    sch.reorder(bx, bc, side, group, step, v)
    thread, tile = sch.fuse(side, group), sch.fuse(bx, bc)
    bind_thread(sch, (tile, thread), ("blockIdx.x", "threadIdx.x"))
    sch.compute_at(rounded, thread)
    share_scales(sch, tile, block[0] * block[1])
    copies = [sch.cache_read(rounded, number, "local", [rounded]) for number in (1, 2, 0)]
    for copy in copies:
        sch.compute_at(copy, thread)
    for vector in copies[:2]:
        sch.split(sch.get_loops(vector)[-1], [None, min(width, 4)])
    unroll_inside(sch, [rounded], [result, *copies])
    return sch


# From convolution/pooling.
def share_scales(sch: Schedule, tile: LoopRV, threads: int) -> None:
    """Keep a block's scales and shifts in shared memory: a thread works out those of a channel."""
    scale, shift = sch.get_sblock("Scale"), sch.get_sblock("Shift")
    for stage in (shift, scale):
        sch.compute_at(stage, tile, preserve_unit_loops=True)
        sch.set_scope(stage, 0, "shared")
    _, lane = sch.split(sch.get_loops(scale)[-1], [None, threads])
    sch.bind(lane, "threadIdx.x")
    sch.reverse_compute_at(shift, lane)


def strip_block(
    c: int, n: int, strip: tuple[int, int], width: int, most: int = 256, least: int = 128
) -> tuple[int, int, int]:
    """A block's strips of rows, of columns, and groups of channels, all of which divide.

    >>> strip_block(144, 56, (4, 1), 8)
    (1, 28, 6)

    Groups come first, up to a line, 128 bytes of a pixel in float16; then strips side by side, as
    long as the block has no more than `most` threads; then strips below each other, up to `least`.

    Args:
        c: channels, a multiple of `width`.
        n: height and width of the result.
        strip: rows and columns of the result that a thread has.
        width: neighbouring channels that a thread has.
        most: threads of a block at most.
        least: threads that strips below each other may fill it up to.
    """
    c, n = whole("c", c), whole("n", n)
    groups = _divisor(c // width, min(64 // width, most))
    wide = _divisor(n // strip[1], most // groups)
    return _divisor(n // strip[0], max(least // (wide * groups), 1)), wide, groups


def depthwise_plan(c: int, n: int, k: int, p: int, s: int) -> dict[str, tuple[int, ...] | int]:
    """What `depthwise_strips` is given for a layer, by a rule, for any number of images.

    >>> depthwise_plan(128, 56, 3, 1, 1)
    {'strip': (14, 2), 'block': (1, 4, 32), 'width': 2}

    With stride 1 neighbouring windows share most of their pixels. A thread has two channels, which
    leaves room in its registers for many pixels: a result of up to 7 x 7 as a whole, and else two
    columns. They have up to 14 rows; of windows larger than 3 x 3, which have more weights, 7.

    With stride 2 windows share little. Strips of 3 x 3 are 2 x 2 with eight channels, or 4 x 2 with
    four where a block can have squares of 8 x 8. Source: times of an H200, `depthwise/layers`.

    Args:
        c: as for `depthwise_strips`, and so are the next four.
        n: see there.
        k: see there.
        p: see there.
        s: see there.
    """
    on, c = conv_out_size(n, k, p, s), whole("c", c)
    if s == 1 and on <= 7:
        width = _divisor(c, 2)
        strip, block = (on, on), (1, 1, _divisor(c // width, 64))
    elif s == 1 or k > 3:
        width = _divisor(c, 2)
        strip = (_divisor(on, 14 if s == 1 and k <= 3 else 7), _divisor(on, 2))
        block = strip_block(c, on, strip, width, most=128 if strip[0] < on and k <= 3 else 256)
    elif on % 8 == 0:
        width = _divisor(c, 4)
        groups = _divisor(c // width, 16 if c % 64 == 0 else 32)
        strip, block = (4, 2), (_divisor(on // 4, max(1, 32 // groups)), 4, groups)
    else:
        width = _divisor(c, 8)
        strip = (2, 2) if on % 2 == 0 else (1, 1)
        block = strip_block(c, on, strip, width)
    return {"strip": strip, "block": block, "width": width}


def batch_norm_plan(pixels: int, c: int) -> dict[str, tuple[int, ...] | int]:
    """What `batch_norm_pixels` is given for a layer in float16, by a rule.

    >>> batch_norm_plan(256 * 56 * 56, 64)
    {'each': 2, 'block': (32, 8), 'width': 8}

    A thread has two pixels. The block has up to 16 groups of channels, and up to 256 threads.

    Source: 14 layers on an H100, `batch_norms.jsonl` there, by experiments/batch_norm.py. No layer
    is held out. Of the rules that are the same for all layers this one has the largest mean share
    of a copy's speed. An H200, in its own file of this name, tests it: there all layers of 256
    images reach 0.95 of a copy's speed, and three of seven with 32.

    Args:
        pixels: as for `batch_norm_pixels`, and so is the next.
        c: see there; an odd number gives a width of 1, which `batch_norm_pixels` refuses.

    Raises:
        ValueError: one of them is no positive integer.
    """
    pixels, c = whole("pixels", pixels), whole("c", c)
    width, each = math.gcd(c, 8), _divisor(pixels, 2)
    groups = _divisor(c // width, 16)
    block = (_divisor(pixels // each, 256 // groups), groups)
    return {"each": each, "block": block, "width": width}


def _divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is at most `most`."""
    return max(size for size in range(1, max(most, 1) + 1) if number % size == 0)
