"""What Hopper's instructions do to places: TMA's boxes, swizzled rows, and wgmma's registers.

In NumPy, so that kernels can be followed without a GPU. Sources: PTX ISA, "Tensors" for boxes and
swizzling, "Register Fragments for wgmma" for registers.
"""

import functools
import math

import numpy as np

from d2ltvm import fragments

ROW = 64  # float16 of a row of 128 bytes
EACH = 8  # float16 of 16 bytes, which a swizzle moves together


def box(tensor, corner, shape):
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
    """
    inside = tuple(
        slice(max(0, first), max(0, first + size))
        for first, size in zip(corner, shape, strict=True)
    )
    found = tensor[inside]
    out = np.zeros(shape, tensor.dtype)
    starts = [max(0, -first) for first in corner]
    out[tuple(slice(a, a + n) for a, n in zip(starts, found.shape, strict=True))] = found
    return out


def put(tensor, corner, values):
    """Store a box as TMA does: what is outside of the tensor is left out."""
    slices = [
        (slice(max(0, first), min(first + size, most)), slice(max(0, -first), max(0, most - first)))
        for first, size, most in zip(corner, values.shape, tensor.shape, strict=True)
    ]
    tensor[tuple(there for there, _ in slices)] = values[tuple(here for _, here in slices)]


def swizzled(row, column):
    """Where a float16 of a tile with rows of 128 bytes stands, counted from its beginning.

    >>> swizzled(0, 8), swizzled(1, 8)
    (8, 64)

    Eight rows of 16 bytes below each other lie in eight groups of four banks.
    """
    return row * ROW + (column // EACH ^ row % 8) * EACH + column % EACH


def accumulator(row, column):
    """The thread of a warpgroup, and its register, that hold an element of wgmma's result.

    >>> accumulator(8, 1)
    (0, 3)

    Args:
        row: 0 to 63.
        column: 0 to 255.
    """
    lane, register = fragments.lane_c(row % 16, column % 8)  # as for mma, again and again
    return row // 16 * 32 + lane, column // 8 * 4 + register


def wgmma(acc, a, b, a_start, b_start):
    """Add one product to the registers of a warpgroup, from swizzled tiles in shared memory.

    Args:
        acc: float32 of (128, columns / 2): the registers of the threads.
        a, b: shared memory, one-dimensional arrays of float16.
        a_start, b_start: where, in elements, a matrix of 64 x 16, and one of columns x 16, begin.
            The rows of 128 bytes that they lie in begin at a multiple of 1,024 bytes.
    """
    columns = acc.shape[1] * 2
    left, right = (
        x[_matrix(n, start)].astype("float32")
        for x, n, start in ((a, 64, a_start), (b, columns, b_start))
    )
    acc[_places(columns)] += left @ right.T


@functools.lru_cache
def _places(columns):
    """`accumulator` of all elements of 64 x columns."""
    return accumulator(*np.indices((64, columns)))


@functools.lru_cache
def _matrix(rows, start):
    """The elements of `rows` x 16 in swizzled rows, swizzled after the start is added, as hardware.

    So 16 columns further is 32 bytes further in a descriptor, although it is not in memory.
    """
    tile, first = start // (ROW * 8) * ROW * 8, start % (ROW * 8)
    row, column = np.indices((rows, 16))
    place = first + row * ROW + column
    return tile + swizzled(place // ROW, place % ROW)


def tiles(values):
    """A tile with rows of 64 float16 as it lies in shared memory, one-dimensional."""
    rows = values.reshape(-1, ROW)
    row, column = np.indices(rows.shape)
    memory = np.empty(math.prod(values.shape), values.dtype)
    memory[swizzled(row, column)] = rows
    return memory
