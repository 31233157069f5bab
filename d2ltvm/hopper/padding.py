"""Copies of tensors with zeros around them, for what TMA cannot read as it is."""

import math
from typing import Any

import numpy as np
import tvm
from tvm.script import tirx as T

from d2ltvm.hopper.any_conv import MOST_LINES, Conv, beside
from d2ltvm.hopper.planning import LARGE, extents
from d2ltvm.hopper.tiles import dependent_launch, wait_for_kernel_before

Shape = tuple[int, ...]


# Used in hopper/which_plan.
def padded(given: Shape, wanted: Shape, before: Shape | None = None, dtype: str = "float16") -> Any:
    """A kernel that copies a tensor into another one, with zeros where it is larger.

    >>> kernel = d2ltvm.build(padded((2, 5, 5, 3), (2, 5, 8, 4), (0, 0, 1, 0)), "sm_90a")

    A thread copies four neighbours, and stores them at once.

    Args:
        given, wanted: shapes of four axes; the size of the second is a multiple of 4.
        before: zeros in front of the first element, along each axis; by default none. What does
            not fit is left out.
        dtype: of both, float16 or float32.

    Returns:
        A PrimFunc of both tensors, for `d2ltvm.build`.

    Raises:
        ValueError: a shape has other axes, or the size is not as above.
    """
    before = (0,) * len(given) if before is None else before
    if not len(given) == len(wanted) == len(before) == 4:
        raise ValueError(f"given is {given}, wanted {wanted}, before {before}; expected four axes")
    if math.prod(wanted) % 4:
        raise ValueError(f"wanted is {wanted}; expected a multiple of 4 elements")

    @T.inline
    def copy(own, source, i, v):
        x3: T.let[T.int32] = T.cast(i % wanted[3], "int32") - before[3]
        x2: T.let[T.int32] = T.cast(i // wanted[3] % wanted[2], "int32") - before[2]
        x1: T.let[T.int32] = T.cast(i // math.prod(wanted[2:]) % wanted[1], "int32") - before[1]
        x0: T.let[T.int32] = T.cast(i // math.prod(wanted[1:]), "int32") - before[0]
        own[v] = T.Cast(dtype, 0)
        if is_inside(x0, given[0]) and is_inside(x1, given[1]):  # noqa: SIM102 a short line
            if is_inside(x2, given[2]) and is_inside(x3, given[3]):
                own[v] = source[x0, x1, x2, x3]

    return _stored_at_once(given, wanted, 4, copy, dtype)


# Used in hopper/which_plan.
def unfolded(conv: Conv, dtype: str = "float16") -> Any:
    """A kernel that lays the pixels under each row of a convolution's kernels side by side.

    >>> kernel = d2ltvm.build(unfolded(Conv(2, (9, 9), 3, 16, (7, 7), (3, 3), (2, 2))), "sm_90a")
    >>> [param.shape for param in kernel.params]
    [(2, 9, 9, 3), (2, 9, 5, 32)]

    What was a convolution of few channels is then one by kernels of one column, of more channels:
    `any_conv.beside`. A thread copies eight neighbours, and stores them at once.

    Args:
        conv: the sizes.
        dtype: of images, float16 or float32.

    Returns:
        A PrimFunc of the images and of what they become, for `d2ltvm.build`.

    Raises:
        ValueError: images have more rows than 32 bits number.
    """
    if (rows := conv.batch * conv.size[0]) > MOST_LINES:
        raise ValueError(
            f"{conv} has images of {rows:,} rows; expected at most {MOST_LINES:,}, which the "
            "kernel numbers in 32 bits"
        )
    given = (conv.batch, *conv.size, conv.ic)
    wide, depth = conv.out[1], beside(conv).ic
    wanted = (conv.batch, conv.size[0], wide, depth)
    step, far = conv.stride[1], conv.dilation[1]

    @T.inline
    def copy(own, source, i, v):
        e: T.let[T.int32] = T.cast(i % depth, "int32")
        x: T.let[T.int32] = (
            T.cast(i // depth % wide, "int32") * step - conv.pad[1] + e // conv.ic * far
        )
        y: T.let[T.int32] = T.cast(i // (depth * wide), "int32")
        own[v] = T.Cast(dtype, 0)
        if e < conv.kernel[1] * conv.ic and is_inside(x, conv.size[1]):
            own[v] = source[y // conv.size[0], y % conv.size[0], x, e % conv.ic]

    return _stored_at_once(given, wanted, 16 // np.dtype(dtype).itemsize, copy, dtype)


def _stored_at_once(given: Shape, wanted: Shape, width: int, copy: Any, dtype: str) -> Any:
    """A kernel whose threads each make `width` neighbours of a result, and store them at once.

    `copy` is inline: it writes the element at an index of the flat result to a place of a thread's
    own array.
    """
    size = math.prod(wanted)
    count = "int64" if size >= LARGE else "int32"  # in which elements of the result are numbered
    number = getattr(T, count)
    given, wanted = extents(*given), extents(*wanted)

    @T.prim_func
    def main(x_ptr: T.handle, y_ptr: T.handle):
        X = T.match_buffer(x_ptr, given, dtype, align=16)
        Y = T.match_buffer(y_ptr, wanted, dtype, align=16)
        flat = T.decl_buffer(extents(size), dtype, data=Y.data, align=16)
        T.device_entry()
        block = T.cta_id([math.ceil(size / (256 * width))])
        T.warpgroup_id([2])
        thread = T.thread_id([256])
        pool = T.SMEMPool()
        pool.alloc((1,), "uint64", align=8)  # a dependent launch has shared memory
        pool.commit()
        wait_for_kernel_before()
        own = T.alloc_local((width,), dtype)
        first: T.let[number] = (T.cast(block, count) * 256 + thread) * width
        if first < size:
            for v in T.unroll(width):
                copy(own, X, first + v, v)
            for v in T.vectorized(width):
                flat[first + v] = own[v]

    return dependent_launch(main)


def is_inside(index: Any, size: int) -> Any:
    """Whether an index is one of an axis of some size."""
    return tvm.tirx.all(index >= 0, index < size)
