"""Which lane of a warp holds which element of `mma`, and what `ldmatrix` loads.

The instruction `mma.m16n8k16` computes D = A B + C for matrices of 16 x 16, 16 x 8 and 16 x 8, with
elements spread over the registers of 32 lanes. Sources: PTX ISA, "Matrix Fragments for
mma.m16n8k16 with floating point type", and "ldmatrix", which loads them. CUDA's wmma, for
16 x 16 x 16, does not say how it spreads them; for sm_80 and sm_90 it compiles to the same
instruction.
"""

import functools

import numpy as np

from d2ltvm.errors import shown
from d2ltvm.layouts.arrays import Array, Index, check_array


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
    check_array("registers", registers)
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
