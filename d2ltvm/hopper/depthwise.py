"""Depthwise convolution with channels last, float16, with a bias and an activation behind it."""

import math
from typing import Any

from tvm.script import tirx as T

from d2ltvm.compute.operators import check_activation
from d2ltvm.compute.ops import wholes
from d2ltvm.errors import shown
from d2ltvm.hopper.padding import is_inside
from d2ltvm.hopper.planning import check_multiples, extents
from d2ltvm.hopper.strips import Strips, check_strips, under_windows
from d2ltvm.hopper.tiles import dependent_launch, wait_without_shared_memory
from d2ltvm.layouts import Pair


# Used in network/on_hopper.
def depthwise_fused(
    images: tuple[int, int, int, int],
    kernel: Pair,
    stride: Pair,
    pad: Pair = (0, 0),
    activation: str = "",
    strip: Pair = (2, 2),
    width: int = 8,
) -> Any:
    """A kernel for a depthwise convolution, a bias and an activation, channels last.

    >>> conv = depthwise_fused((8, 56, 56, 64), (3, 3), (1, 1), (1, 1), "relu6")
    >>> [param.shape for param in conv.params]
    [(8, 56, 56, 64), (3, 3, 64), (64,), (8, 56, 56, 64)]

    Images, weights and results are float16, biases and sums float32. A thread has `width`
    neighbouring channels of a strip of the result, as in `schedules.depthwise_strips`. It loads
    its weights once, and each pixel under the strip once.

    Args:
        images: (batch, height, width, channels); channels are a multiple of 8.
        kernel, stride, pad: by rows and by columns.
        activation: '' for none, 'relu', or 'relu6'.
        strip: rows and columns of the result that a thread has. `schedules.strips.depthwise_plan`
            has a rule for it.
        width: channels of a thread, 2, 4 or 8.

    Returns:
        A PrimFunc of images, weights, biases and results, for `d2ltvm.build`.

    Raises:
        ValueError: a size is not as above; the kernel does not fit into the padded image; there are
            more pixels or strips than 32 bits number.
    """
    batch, h, w, c = wholes("images", images, 4)
    (kh, kw), (sh, sw) = wholes("kernel", kernel, 2), wholes("stride", stride, 2)
    ph, pw = wholes("pad", pad, 2, 0)
    check_multiples(channels=c)
    check_activation(activation)
    result = under_windows((batch, h, w, c), (kh, kw), (sh, sw), (ph, pw))
    _, oh, ow, _ = result
    down, across = wholes("strip", strip, 2)
    if width not in (2, 4, 8):
        raise ValueError(f"width is {shown(width)}; expected 2, 4 or 8")
    strips = Strips(result, (down, across), width)
    work = strips.count
    check_strips((batch, h, w, c), result, work)
    threads = 256 if work >= 132 * 256 else 128  # small blocks, where there is little to do
    sums, taps = down * across, kh * kw
    under = (across - 1) * sw + kw  # columns under a strip
    all_rows, all_columns = oh % down == 0, ow % across == 0  # no strip is cut

    @T.inline
    def load_row(row, X, n, y, x, z):
        """The pixels of a row under a strip; zeros outside of the image."""
        for q in T.unroll(under):
            left: T.let[T.int32] = x * sw - pw + q
            if is_inside(y, h) and is_inside(left, w):
                for v in T.vectorized(width):
                    row[q * width + v] = X[n, y, left, z + v]
            else:
                for v in T.unroll(width):
                    row[q * width + v] = T.float16(0)

    @T.inline
    def add_row(acc, row, weights, r):
        """Add what row r under a strip gives to each of its sums."""
        for d in T.unroll(down):
            if r - d * sh >= 0 and r - d * sh < kh:
                for a in T.unroll(across):
                    for q in T.unroll(kw):
                        for v in T.unroll(width):
                            acc[(d * across + a) * width + v] = acc[
                                (d * across + a) * width + v
                            ] + T.Cast("float32", row[(a * sw + q) * width + v]) * T.Cast(
                                "float32", weights[((r - d * sh) * kw + q) * width + v]
                            )

    @T.inline
    def store(acc, bias, own, Y, n, y, x, z):
        """Add biases, apply the activation, and store the results of a strip."""
        for d in T.unroll(down):
            for a in T.unroll(across):
                if (all_rows or y + d < oh) and (all_columns or x + a < ow):
                    for v in T.unroll(width):
                        i: T.let[T.int32] = (d * across + a) * width + v
                        acc[i] = acc[i] + bias[v]
                        if activation != "":
                            acc[i] = T.max(acc[i], T.float32(0))
                        if activation == "relu6":
                            acc[i] = T.min(acc[i], T.float32(6))
                        own[v] = T.Cast("float16", acc[i])
                    for v in T.vectorized(width):
                        Y[n, y + d, x + a, z + v] = own[v]

    @T.prim_func
    def main(x_ptr: T.handle, w_ptr: T.handle, b_ptr: T.handle, y_ptr: T.handle):
        X = T.match_buffer(x_ptr, extents(batch, h, w, c), "float16", align=16)
        W = T.match_buffer(w_ptr, (kh, kw, c), "float16", align=16)
        B = T.match_buffer(b_ptr, (c,), "float32", align=16)
        Y = T.match_buffer(y_ptr, extents(*result), "float16", align=16)
        T.device_entry()
        block = T.cta_id([math.ceil(work / threads)])
        T.warpgroup_id([threads // 128])
        thread = T.thread_id([threads])
        wait_without_shared_memory()
        acc = T.alloc_local((sums * width,), "float32")
        weights = T.alloc_local((taps * width,), "float16")
        bias = T.alloc_local((width,), "float32")
        row = T.alloc_local((under * width,), "float16")
        own = T.alloc_local((width,), "float16")
        i: T.let[T.int32] = block * threads + thread
        first = T.meta_var(strips.first(i))
        z: T.let[T.int32] = first[3]
        x: T.let[T.int32] = first[2]
        y: T.let[T.int32] = first[1]
        n: T.let[T.int32] = first[0]
        if i < work:
            for t in T.unroll(taps):
                for v in T.vectorized(width):
                    weights[t * width + v] = W[t // kw, t % kw, z + v]
            for v in T.unroll(width):
                bias[v] = B[z + v]
            for j in T.unroll(sums * width):
                acc[j] = T.float32(0)
            for r in T.unroll((down - 1) * sh + kh):
                load_row(row, X, n, y * sh - ph + r, x, z)
                add_row(acc, row, weights, r)
            store(acc, bias, own, Y, n, y, x, z)

    return dependent_launch(main)
