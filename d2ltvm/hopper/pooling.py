"""Pools of images with channels last, float16: eight channels a thread, in 16 bytes at once."""

import math
from typing import Any

from tvm.script import tirx as T

from d2ltvm.compute.ops import wholes
from d2ltvm.errors import shown
from d2ltvm.hopper.padding import is_inside
from d2ltvm.hopper.planning import check_integers, check_multiples, extents
from d2ltvm.hopper.strips import Strips, check_strips, under_windows
from d2ltvm.hopper.tiles import dependent_launch, wait_without_shared_memory
from d2ltvm.layouts import Pair

WIDTH = 8  # channels of a thread: 16 bytes
THREADS = 256
PAIRS = WIDTH // 2  # of float16, in a register each
LOWEST_PAIR = 0xFBFFFBFF  # a pair of -65504, the lowest number of float16


# Used in network/on_hopper.
def max_pool(
    images: tuple[int, int, int, int], kernel: Pair, stride: Pair, pad: Pair = (0, 0), down: int = 2
) -> Any:
    """A kernel for the largest number under a window, channels last.

    >>> pool = max_pool((8, 112, 112, 64), (3, 3), (2, 2), (1, 1))
    >>> [param.shape for param in pool.params]
    [(8, 112, 112, 64), (8, 56, 56, 64)]

    X is (batch, h, w, c), Y (batch, oh, ow, c), both float16. A thread has `down` results below
    each other, so that it loads a row of images that two windows share only once.

    Args:
        images: the shape of X; channels are a multiple of 8.
        kernel, stride, pad: by rows and by columns. What is outside of an image does not count.
        down: results of a thread.

    Returns:
        A PrimFunc of X and Y, for `d2ltvm.build`.

    Raises:
        ValueError: a size is not as above; a window may lie in the padding altogether; there are
            more pixels or strips than 32 bits number.
    """
    batch, h, w, c = wholes("images", images, 4)
    (kh, kw), (sh, sw) = wholes("kernel", kernel, 2), wholes("stride", stride, 2)
    ph, pw = wholes("pad", pad, 2, 0)
    check_integers(down=down)
    check_multiples(channels=c)
    if not (0 <= ph < kh and 0 <= pw < kw):
        raise ValueError(f"pad is {shown(pad)}; expected less than kernel = {kernel}")
    result = under_windows((batch, h, w, c), (kh, kw), (sh, sw), (ph, pw))
    _, oh, ow, _ = result
    strips = Strips((batch, oh, ow, c // 2), (down, 1), PAIRS)
    work = strips.count
    check_strips((batch, h, w, c), result, work)

    @T.prim_func
    def main(x_ptr: T.handle, y_ptr: T.handle):
        X = T.match_buffer(x_ptr, extents(batch, h, w, c), "float16", align=16)
        Y = T.match_buffer(y_ptr, extents(*result), "float16", align=16)
        pixels = T.decl_buffer(extents(batch, h, w, c // 2), "uint32", data=X.data, align=16)
        results = T.decl_buffer(extents(*strips.result), "uint32", data=Y.data, align=16)
        T.device_entry()
        block = T.cta_id([math.ceil(work / THREADS)])
        T.warpgroup_id([THREADS // 128])
        thread = T.thread_id([THREADS])
        wait_without_shared_memory()
        largest = T.alloc_local((down * PAIRS,), "uint32")
        row = T.alloc_local((PAIRS,), "uint32")
        own = T.alloc_local((PAIRS,), "uint32")
        i: T.let[T.int32] = block * THREADS + thread
        first = T.meta_var(strips.first(i))
        z: T.let[T.int32] = first[3]
        x: T.let[T.int32] = first[2]
        y: T.let[T.int32] = first[1]
        n: T.let[T.int32] = first[0]
        if i < work:
            for j in T.unroll(down * PAIRS):
                largest[j] = T.uint32(LOWEST_PAIR)
            for r in T.unroll((down - 1) * sh + kh):
                above: T.let[T.int32] = y * sh - ph + r
                if is_inside(above, h):
                    for v in T.unroll(PAIRS):
                        row[v] = T.uint32(LOWEST_PAIR)
                    for q in T.unroll(kw):
                        left: T.let[T.int32] = x * sw - pw + q
                        if is_inside(left, w):
                            for v in T.vectorized(PAIRS):
                                own[v] = pixels[n, above, left, z + v]
                            for v in T.unroll(PAIRS):
                                T.ptx["max.f16x2"](row[v], row[v], own[v])
                    for d in T.unroll(down):
                        if r - d * sh >= 0 and r - d * sh < kh:
                            for v in T.unroll(PAIRS):
                                T.ptx["max.f16x2"](
                                    largest[d * PAIRS + v], largest[d * PAIRS + v], row[v]
                                )
            for d in T.unroll(down):
                if y + d < oh:
                    for v in T.unroll(PAIRS):
                        own[v] = largest[d * PAIRS + v]
                    for v in T.vectorized(PAIRS):
                        results[n, y + d, x, z + v] = own[v]

    return dependent_launch(main)


# Used in network/on_hopper.
def mean_pool(images: tuple[int, int, int, int]) -> Any:
    """A kernel for the mean of each channel of each image, channels last, summed up in float32.

    >>> pool = mean_pool((8, 7, 7, 2048))
    >>> [param.shape for param in pool.params]
    [(8, 7, 7, 2048), (8, 2048)]

    Args:
        images: the shape of X, (batch, h, w, c), float16; channels are a multiple of 8.

    Returns:
        A PrimFunc of X and Y, (batch, c), float16, for `d2ltvm.build`.

    Raises:
        ValueError: a size is not as above; there are more pixels than 32 bits number.
    """
    batch, h, w, c = wholes("images", images, 4)
    check_multiples(channels=c)
    groups = c // WIDTH
    work = batch * groups
    check_strips((batch, h, w, c), (batch, 1, 1, c), work)
    threads = 128  # small blocks: there are few of them

    @T.prim_func
    def main(x_ptr: T.handle, y_ptr: T.handle):
        X = T.match_buffer(x_ptr, extents(batch, h, w, c), "float16", align=16)
        Y = T.match_buffer(y_ptr, extents(batch, c), "float16", align=16)
        T.device_entry()
        block = T.cta_id([math.ceil(work / threads)])
        T.warpgroup_id([threads // 128])
        thread = T.thread_id([threads])
        wait_without_shared_memory()
        total = T.alloc_local((WIDTH,), "float32")
        own = T.alloc_local((WIDTH,), "float16")
        i: T.let[T.int32] = block * threads + thread
        z: T.let[T.int32] = i % groups * WIDTH
        n: T.let[T.int32] = i // groups
        if i < work:
            for v in T.unroll(WIDTH):
                total[v] = T.float32(0)
            for y in T.serial(h):
                for x in T.unroll(w):  # loads of a row are under way together
                    for v in T.vectorized(WIDTH):
                        own[v] = X[n, y, x, z + v]
                    for v in T.unroll(WIDTH):
                        total[v] = total[v] + T.Cast("float32", own[v])
            for v in T.unroll(WIDTH):
                own[v] = T.Cast("float16", total[v] / T.float32(h * w))
            for v in T.vectorized(WIDTH):
                Y[n, z + v] = own[v]

    return dependent_launch(main)
