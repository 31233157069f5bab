"""A warpgroup's matrices: Hopper's `wgmma`, its registers, and what its descriptors say.

Source: PTX ISA, "Register Fragments for wgmma" for registers.
"""

import functools
from typing import NamedTuple

import numpy as np

from d2ltvm.layouts.arrays import Array, Index
from d2ltvm.layouts.boxes import EACH, ROW, swizzle
from d2ltvm.layouts.fragments import lane_c

SPANS = {1: 128, 2: 64, 3: 32}  # bytes, by what a descriptor says
TF32 = np.uint32(0xFFFFE000)  # the bits of a float32 that TensorCores read as tf32


def accumulator(row: Index, column: Index) -> tuple[Index, Index]:
    """The thread of a warpgroup, and its register, that hold an element of wgmma's result.

    >>> accumulator(8, 1)
    (0, 3)

    Args:
        row: 0 to 63.
        column: 0 to 255.
    """
    lane, register = lane_c(row % 16, column % 8)  # as for mma, again and again
    return row // 16 * 32 + lane, column // 8 * 4 + register


class Matrix(NamedTuple):
    """What a descriptor of wgmma says, in elements of float16.

    Attributes:
        start: where the matrix begins in shared memory.
        span: bytes within which its rows are swizzled: 32, 64 or 128.
        leading, stride: of a turned one, from 64 columns to the next, and from 8 rows to the next.
        turned: whether rows of shared memory are columns of the matrix.
    """

    start: int
    span: int = 2 * ROW
    leading: int = 0
    stride: int = 0
    turned: bool = False

    @classmethod
    def of(cls, descriptor: int, turned: bool = False) -> "Matrix":
        """From 64 bits, which count in 16 bytes. Source: PTX ISA, "Matrix Descriptor Format"."""
        start, leading, stride = (EACH * (descriptor >> k & 0x3FFF) for k in (0, 16, 32))
        matrix = cls(start, SPANS[descriptor >> 62 & 3], leading, stride, turned)
        if not turned and 2 * stride != 8 * matrix.span:
            raise ValueError(f"the stride of {matrix} is not of eight rows")
        return matrix


def wgmma(acc: Array, a: Array, b: Array, a_start: int, b_start: int) -> None:
    """Add one product to the registers of a warpgroup, from swizzled tiles in shared memory.

    Args:
        acc: float32 of (128, columns / 2): the registers of the threads.
        a, b: shared memory, one-dimensional arrays of float16.
        a_start, b_start: where, in elements, a matrix of 64 x 16, and one of columns x 16, begin.
            The rows of 128 bytes that they lie in begin at a multiple of 1,024 bytes.
    """
    columns = acc.shape[1] * 2
    left, right = a[_places(64, Matrix(a_start))], b[_places(columns, Matrix(b_start))]
    acc[_accumulators(columns)] += left.astype("float32") @ right.astype("float32").T


def multiply(acc: Array, memory: Array, a: Matrix, b: Matrix, numbers: str = "float16") -> None:
    """The same of matrices as descriptors say, both in one shared memory.

    Of 'tf32', a float32 stands in the place of two float16, and its last 13 bits are not read.
    """
    if numbers == "float16":
        multiply_rows(acc, memory[_places(64, a)], memory, b)
        return
    columns = acc.shape[1] * 2
    left, right = (
        (memory[_places(rows, side)].view("uint32") & TF32).view("float32")
        for rows, side in ((64, a), (columns, b))
    )
    acc[_accumulators(columns)] += left @ right.T


def multiply_rows(acc: Array, left: Array, memory: Array, b: Matrix) -> None:
    """The same where the 64 x 16 elements of the first matrix are given."""
    columns = acc.shape[1] * 2
    right = memory[_places(columns, b)]
    acc[_accumulators(columns)] += left.astype("float32") @ right.astype("float32").T


def rows_of(registers: Array) -> Array:
    """The 64 x 16 elements of a matrix that a warpgroup has in registers.

    Each of 128 threads has eight float16, in four registers: of row r = thread % 32 // 4, of those
    of its warp, elements 2 c and 2 c + 1 with c = thread % 4; the same of row r + 8; and of both
    rows those that are 8 further. Source: PTX ISA, "Register Fragments for wgmma", matrix A.
    """
    row, column = np.indices((64, 16))
    thread = row // 16 * 32 + row % 8 * 4 + column % 8 // 2
    elements: Array = registers[thread, column // 8 * 4 + row % 16 // 8 * 2 + column % 2]
    return elements


@functools.lru_cache(4096)
def words(rows: int, matrix: Matrix) -> Array:
    """The 4 bytes, counted from the start of shared memory, in which `rows` x 16 elements lie."""
    return np.unique(_places(rows, matrix) // 2)


@functools.lru_cache
def _accumulators(columns: int) -> tuple[Array, Array]:
    """`accumulator` of all elements of 64 x columns."""
    return accumulator(*np.indices((64, columns)))


@functools.lru_cache
def _places(rows: int, matrix: Matrix) -> Array:
    """The elements of `rows` x 16 in swizzled rows, swizzled after the start is added, as hardware.

    So 16 columns further is 32 bytes further in a descriptor, although it is not in memory.
    """
    row, column = np.indices((rows, 16))
    if matrix.turned:
        place = row // ROW * matrix.leading + row % ROW + column // 8 * matrix.stride
        place += column % 8 * (matrix.span // 2)
    else:
        place = row * (matrix.span // 2) + column
    places: Array = swizzle(2 * (matrix.start + place), matrix.span) // 2
    return places
