"""Which lane holds which element, and where: fragments, swizzles, TMA's boxes.

In NumPy, so that kernels can be followed without a GPU.

A warp: the instruction `mma.m16n8k16` computes D = A B + C for matrices of 16 x 16, 16 x 8 and
16 x 8, with elements spread over the registers of 32 lanes. Sources: PTX ISA, "Matrix Fragments
for mma.m16n8k16 with floating point type", and "ldmatrix", which loads them. CUDA's wmma, for
16 x 16 x 16, does not say how it spreads them; for sm_80 and sm_90 it compiles to the same
instruction.

A warpgroup: Hopper's `wgmma`, and TMA, which copies boxes and swizzles their rows. Sources: PTX
ISA, "Tensors" for boxes and swizzling, "Register Fragments for wgmma" for registers.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from d2ltvm.errors import is_integer, shown

Array = npt.NDArray[Any]
Pair = tuple[int, int]  # of rows and of columns
Index = Any  # an integer, an array of them, or an expression of TVM's


def lane_a(i: Index, j: Index) -> tuple[Index, Index]:
    """Lane and register of element (i, j) of A, 16 rows by 16 columns; also for arrays.

    >>> d2ltvm.layouts.lane_a(8, 3)
    (1, 3)
    """
    return i % 8 * 4 + j % 8 // 2, j // 8 * 4 + i // 8 * 2 + j % 2


def lane_b(i: Index, j: Index) -> tuple[Index, Index]:
    """Lane and register of element (i, j) of B, 16 rows by 8 columns.

    From column 8 on, that of the next B: the lane is the same.
    """
    return j % 8 * 4 + i % 8 // 2, i // 8 * 2 + i % 2


def lane_c(i: Index, j: Index) -> tuple[Index, Index]:
    """Lane and register of element (i, j) of C and D, 16 rows by 8 columns; likewise."""
    return i % 8 * 4 + j % 8 // 2, i // 8 * 2 + j % 2


def swizzle_32b(i: Index, j: Index) -> Index:
    """The column where a tile in shared memory keeps element (i, j), of 16 rows by 16 columns.

    The two halves of a row, of 16 bytes each, change places in rows 4 to 7 and 12 to 15. Then eight
    neighbouring rows have any one half in eight different groups of banks.
    """
    return (j // 8 + i // 4) % 2 * 8 + j % 8


_LANES = {"matrix_a": lane_a, "matrix_b": lane_b, "accumulator": lane_c}


def fragment(i: Index, j: Index, kind: str) -> tuple[Index, Index]:
    """Lane and register of element (i, j) of a fragment of 16 x 16, as wmma has them.

    >>> fragment(8, 3, "matrix_a"), fragment(8, 3, "matrix_b"), fragment(8, 11, "matrix_b")
    ((1, 3), (12, 2), (12, 6))

    Of B and C, columns from 8 on are a second matrix of mma's, in the next four registers.

    Args:
        i, j: 0 to 15; also arrays.
        kind: 'matrix_a', 'matrix_b' or 'accumulator'.
    """
    lane, register = _LANES[kind](i, j)
    return lane, register if kind == "matrix_a" else register + j // 8 * 4


@functools.lru_cache
def _fragment_places(kind: str, registers: int) -> tuple[Array, Array]:
    """Lanes and registers of a matrix' elements, each of its shape."""
    i, j = np.indices((16, 16 if registers == 8 else 8))
    return fragment(i, j, kind)


def ldmatrix_row(lane: Index) -> tuple[Index, Index]:
    """Where the 8 elements begin whose address a lane gives to `ldmatrix`: row and column.

    >>> ldmatrix_row(9), ldmatrix_row(25)
    ((9, 0), (9, 8))

    The instruction loads 1, 2 or 4 matrices of 8 x 8. Lane l gives the address of row l mod 8 of
    matrix l / 8. Here they are a tile of 16 x 16, two below each other and then two beside them.
    """
    return lane % 16, lane // 16 * 8


def ldmatrix_lane(i: Index, j: Index, trans: bool = False) -> tuple[Index, Index]:
    """Lane and register that `ldmatrix` puts element (i, j) of such a tile into.

    >>> ldmatrix_lane(8, 3), ldmatrix_lane(8, 3, trans=True)
    ((1, 3), (12, 2))

    Args:
        i, j: 0 to 15; also arrays.
        trans: whether each matrix of 8 x 8 is transposed on the way.
    """
    row, column = (j % 8, i % 8) if trans else (i % 8, j % 8)
    return row * 4 + column // 2, (j // 8 * 2 + i // 8) * 2 + column % 2


def gather(registers: Array, kind: str) -> Array:
    """The matrix of each warp from registers of shape (warps, 32, 4 or 8).

    Args:
        registers: an array; 8 elements a lane are a matrix of 16 x 16, 4 one of 16 x 8.
        kind: 'matrix_a', 'matrix_b' or 'accumulator'.

    Raises:
        TypeError: `registers` is no NumPy array.
        ValueError: it has another shape, or `kind` is none of these.
    """
    _check_array("registers", registers)
    if not isinstance(kind, str) or kind not in _LANES:
        raise ValueError(f"kind is {shown(kind)}; expected one of {', '.join(_LANES)}")
    counts = (8,) if kind == "matrix_a" else (4, 8)
    if registers.ndim != 3 or registers.shape[1] != 32 or registers.shape[2] not in counts:
        many = " or ".join(map(str, counts))
        raise ValueError(f"registers has shape {registers.shape}; expected (warps, 32, {many})")
    lane, register = _fragment_places(kind, registers.shape[-1])
    return registers[:, lane, register]


def scatter(matrices: Array, registers: Array, kind: str) -> None:
    """The other way round: write each warp's matrix into its registers."""
    lane, register = _fragment_places(kind, registers.shape[-1])
    registers[:, lane, register] = matrices


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
    _check_array("tensor", tensor)
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
    _check_array("tensor", tensor)
    _check_array("values", values)
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


SPANS = {1: 128, 2: 64, 3: 32}  # bytes, by what a descriptor says


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


def multiply(acc: Array, memory: Array, a: Matrix, b: Matrix) -> None:
    """The same of matrices as descriptors say, both in one shared memory."""
    multiply_rows(acc, memory[_places(64, a)], memory, b)


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


def tiles(values: Array) -> Array:
    """A tile with rows of 64 float16 as it lies in shared memory, one-dimensional.

    Raises:
        TypeError: `values` is no NumPy array.
        ValueError: its rows have another length, or they are not whole groups of eight.
    """
    _check_array("values", values)
    if not values.ndim or values.shape[-1] != ROW or not values.size or values.size % (8 * ROW):
        raise ValueError(
            f"values has shape {values.shape}; expected rows of {ROW}, a multiple of eight of them"
        )
    rows = values.reshape(-1, ROW)
    row, column = np.indices(rows.shape)
    memory = np.empty(math.prod(values.shape), values.dtype)
    memory[swizzle_128b(row, column)] = rows
    return memory


def _check_array(name: str, value: Any) -> None:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name} is a {type(value).__name__}; expected a NumPy array")


def _each(name: str, values: Any, tensor: Array, least: int | None = None) -> list[int]:
    """An integer for each axis of a tensor."""

    def fine(n: Any) -> bool:
        return is_integer(n) and (least is None or n >= least)

    as_many = isinstance(values, tuple | list) and len(values) == tensor.ndim
    if not as_many or not all(map(fine, values)):
        wanted = f"{tensor.ndim} integers" + ("" if least is None else f" from {least}")
        raise ValueError(f"{name} is {shown(values)}; expected {wanted}, one for each axis")
    return [int(n) for n in values]
