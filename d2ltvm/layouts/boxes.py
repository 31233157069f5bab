"""What TMA copies, and where it puts that: boxes of tensors, pixels of images, swizzled rows.

Source: PTX ISA, "Tensors" for boxes and swizzling.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from d2ltvm.errors import is_integer, shown
from d2ltvm.layouts.arrays import Array, Index, Pair, check_array

ROW = 64  # float16 of a row of 128 bytes
EACH = 8  # float16 of 16 bytes, which a swizzle moves together


def box(tensor: Array, corner: Sequence[int], shape: Sequence[int]) -> Array:
    """A box of a tensor as TMA fetches it: zeros where it is outside.

    >>> box(np.ones((2, 2)), (-1, 0), (2, 2))
    array([[0., 0.],
           [1., 1.]])

    Args:
        tensor: a NumPy array.
        corner: the first index along each axis; it may be outside.
        shape: the size along each axis.

    Returns:
        An array of `shape`.

    Raises:
        TypeError: `tensor` is no NumPy array.
        ValueError: `corner` or `shape` does not have an integer for each of its axes.
    """
    check_array("tensor", tensor)
    corner, shape = _each("corner", corner, tensor), _each("shape", shape, tensor, 0)
    inside = tuple(
        slice(max(0, first), max(0, first + size))
        for first, size in zip(corner, shape, strict=True)
    )
    found = tensor[inside]
    out = np.zeros(shape, tensor.dtype)
    starts = [max(0, -first) for first in corner]
    out[tuple(slice(a, a + n) for a, n in zip(starts, found.shape, strict=True))] = found
    return out


@dataclass(frozen=True)
class Walk:
    """How TMA walks over images of float16 in NHWC.

    Attributes:
        shape: images, rows, columns, channels.
        strides: bytes from an image to the next, and from a row, and from a pixel.
        lower: the first row and the first column of the bounding box, relative to the image's.
        upper: its last row and column, relative to the image's last.
        steps: rows and columns that it goes on by: the strides of a convolution.
        channels, pixels: of a box.
    """

    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int]
    lower: Pair
    upper: Pair
    steps: Pair
    channels: int
    pixels: int

    @property
    def arguments(self) -> tuple[int, ...]:
        """What `compiler.im2col.encode` takes behind map and tensor, the innermost axis first."""
        ends = self.lower[::-1] + self.upper[::-1] + self.steps[::-1]
        return (*self.shape[::-1], *self.strides[::-1], *ends, self.channels, self.pixels)

    @classmethod
    def of(cls, arguments: tuple[int, ...]) -> "Walk":
        """The walk that `arguments` came from."""
        a = arguments
        return cls(a[3::-1], a[6:3:-1], a[8:6:-1], a[10:8:-1], a[12:10:-1], *a[13:15])  # type: ignore[arg-type]


def im2col(memory: Array, walk: Walk, corner: Sequence[int], tap: Sequence[int]) -> Array:
    """Pixels as TMA fetches them in its im2col mode: zeros where they are outside of the images.

    Args:
        memory: images in NHWC of float16, one-dimensional.
        walk: how TMA walks over them.
        corner: image, row, column and channel at which it begins.
        tap: by how many rows and columns the pixels that it reads lie further.

    Returns:
        An array of pixels by channels.
    """
    (images, high, wide, many), (image, row, column, channel) = walk.shape, corner
    last_row, last_column = high - 1 + walk.upper[0], wide - 1 + walk.upper[1]
    out = np.zeros((walk.pixels, walk.channels), memory.dtype)
    there = min(walk.channels, max(0, many - channel))
    for pixel in out:
        y, x = row + tap[0], column + tap[1]
        if 0 <= image < images and 0 <= y < high and 0 <= x < wide:
            place = (image, y, x)
            first = sum(a * b for a, b in zip(place, walk.strides, strict=True)) // memory.itemsize
            pixel[:there] = memory[first + channel : first + channel + there]
        column += walk.steps[1]
        if column > last_column:
            column, row = walk.lower[1], row + walk.steps[0]
        if row > last_row:
            row, image = walk.lower[0], image + 1
    return out


def put(tensor: Array, corner: Sequence[int], values: Array) -> None:
    """Store a box as TMA does: what is outside of the tensor is left out.

    Raises:
        TypeError: `tensor` or `values` is no NumPy array.
        ValueError: `corner` does not have an integer for each axis, or `values` other axes.
    """
    check_array("tensor", tensor)
    check_array("values", values)
    corner = _each("corner", corner, tensor)
    if values.ndim != tensor.ndim or not np.can_cast(values.dtype, tensor.dtype, "same_kind"):
        raise ValueError(
            f"values is {values.dtype} of shape {values.shape}; expected "
            f"{tensor.ndim} axes of what {tensor.dtype} holds"
        )
    slices = [
        (_part(first, size, most), slice(max(0, -first), max(0, most - first)))
        for first, size, most in zip(corner, values.shape, tensor.shape, strict=True)
    ]
    tensor[tuple(there for there, _ in slices)] = values[tuple(here for _, here in slices)]


def _part(first: int, size: int, most: int) -> slice:
    """What of `size` places from `first` on is among the first `most`: maybe nothing."""
    return slice(max(0, first), max(0, min(first + size, most)))


def swizzle_128b(row: Index, column: Index) -> Index:
    """Where a float16 of a tile with rows of 128 bytes stands, counted from its beginning.

    >>> swizzle_128b(0, 8), swizzle_128b(1, 8)
    (8, 64)

    Eight rows of 16 bytes below each other lie in eight groups of four banks.
    """
    return row * ROW + (column // EACH ^ row % 8) * EACH + column % EACH


def swizzle_64b(row: Index, column: Index) -> Index:
    """Where a float16 of a tile with rows of 64 bytes stands; as `swizzle_128b`.

    >>> swizzle_64b(0, 8), swizzle_64b(2, 8)
    (8, 64)

    Two rows lie in one line of 128 bytes, so 16 bytes change places by every second row.
    """
    half = ROW // 2
    return row * half + (column // EACH ^ row // 2 % 4) * EACH + column % EACH


def swizzle(byte: Index, span: int) -> Index:
    """Where a byte of a tile stands that TMA swizzles, counted from the tile's beginning.

    >>> swizzle(128 + 16, 128)
    128

    In the byte's number, the bits that count its 16 bytes within `span` are combined with those
    that count lines of 128 bytes, by exclusive or. So `swizzle_32b` is of rows of 32 bytes what
    this is for a span of 32, and likewise the others.

    Args:
        byte: where it would stand without; an integer, or an array.
        span: 32, 64 or 128 bytes, which 16 bytes stay within.

    Raises:
        ValueError: `span` is something else.
    """
    if span not in (32, 64, 128):
        raise ValueError(f"span is {span!r}; expected 32, 64 or 128")
    return byte ^ (byte >> 7 & span // 16 - 1) << 4


def tiles(values: Array) -> Array:
    """A tile with rows of 64 float16 as it lies in shared memory, one-dimensional.

    Raises:
        TypeError: `values` is no NumPy array.
        ValueError: its rows have another length, or they are not whole groups of eight.
    """
    check_array("values", values)
    if not values.ndim or values.shape[-1] != ROW or not values.size or values.size % (8 * ROW):
        raise ValueError(
            f"values has shape {values.shape}; expected rows of {ROW}, a multiple of eight of them"
        )
    rows = values.reshape(-1, ROW)
    row, column = np.indices(rows.shape)
    memory = np.empty(math.prod(values.shape), values.dtype)
    memory[swizzle_128b(row, column)] = rows
    return memory


def _each(name: str, values: Any, tensor: Array, least: int | None = None) -> list[int]:
    """An integer for each axis of a tensor."""

    def fine(n: Any) -> bool:
        return is_integer(n) and (least is None or n >= least)

    as_many = isinstance(values, tuple | list) and len(values) == tensor.ndim
    if not as_many or not all(map(fine, values)):
        wanted = f"{tensor.ndim} integers" + ("" if least is None else f" from {least}")
        raise ValueError(f"{name} is {shown(values)}; expected {wanted}, one for each axis")
    return [int(n) for n in values]
