"""`conv_nhwc` with a bias and a ReLU: the kernel of the chapter, and a step before it stores.

Sums wait in registers for their tile to be stored. There each thread adds the bias of its channels
to them, which costs no further trip to memory.
"""

from typing import Any

from tvm.script import tirx as T

from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.implicit import conv_nhwc
from d2ltvm.hopper.patch import changed


@T.inline
def add_bias(acc, B, channel, thread, columns, oc, relu):
    """Add to each sum of a consumer the bias of its channel; let negative ones be zero if `relu`.

    A thread has two neighbours of each 8 columns, in two rows that are 8 apart.
    """
    for g in T.unroll(columns // 8):
        for v in T.unroll(2):
            c: T.let[T.int32] = T.min(channel + g * 8 + thread % 4 * 2 + v, oc - 1)
            for h in T.unroll(2):
                j: T.let[T.int32] = g * 4 + h * 2 + v
                acc[j] = acc[j] + B[c]
                if relu:
                    acc[j] = T.max(acc[j], T.float32(0))


# Used in network/on_hopper.
def conv_nhwc_fused(conv: Conv, relu: bool = True, sms: int | None = None) -> Any:
    """A kernel for a convolution in NHWC with a bias, and a ReLU behind that.

    >>> kernel = conv_nhwc_fused(Conv(8, (7, 7), 64, 64, (3, 3), (1, 1)))
    >>> [param.shape for param in kernel.params]
    [(8, 7, 7, 64), (9, 64, 64), (64,), (8, 7, 7, 64)]

    Args:
        conv: sizes, of squares without dilation, as `any_model.boxed` takes them.
        relu: whether what is then below zero becomes zero.
        sms: as for `conv_nhwc`.

    Returns:
        A PrimFunc of X, W and Y as `conv_nhwc` has them, and B (oc), float32, before Y.
    """
    with_bias = changed(
        conv_nhwc,
        ("w_ptr: T.handle, y_ptr", "w_ptr: T.handle, b_ptr: T.handle, y_ptr"),
        (
            'Y = T.match_buffer(y_ptr, (batch, o, o, oc), "float16", align=16)',
            'B = T.match_buffer(b_ptr, (oc,), "float32", align=16)\n'
            '        Y = T.match_buffer(y_ptr, (batch, o, o, oc), "float16", align=16)',
        ),
        (
            "release_last(ring, thread, last)",
            "release_last(ring, thread, last)\n"
            "                add_bias(acc, B, tile.channel, thread, columns, oc, RELU)",
        ),
        add_bias=add_bias,
        RELU=relu,
    )
    c = conv
    return with_bias(c.batch, c.oc, c.ic, c.size[0], c.kernel[0], c.pad[0], c.stride[0], sms)
