"""Which lane of a warp holds which element of the matrices that TensorCores multiply.

The instruction `mma.m16n8k16` computes D = A B + C for matrices of 16 x 16, 16 x 8 and 16 x 8,
with elements spread over the registers of 32 lanes. Source of the layouts: PTX ISA, "Matrix
Fragments for mma.m16n8k16 with floating point type". CUDA's wmma, for 16 x 16 x 16, does not say
how it spreads them; for sm_80 and sm_90 it compiles to the same instruction.
"""

import functools

import numpy as np


def lane_a(i, j):
    """Lane and register of element (i, j) of A, 16 rows by 16 columns; also for arrays.

    >>> d2ltvm.fragments.lane_a(8, 3)
    (1, 3)
    """
    return i % 8 * 4 + j % 8 // 2, j // 8 * 4 + i // 8 * 2 + j % 2


def lane_b(i, j):
    """Lane and register of element (i, j) of B, 16 rows by 8 columns.

    From column 8 on, that of the next B: the lane is the same.
    """
    return j % 8 * 4 + i % 8 // 2, i // 8 * 2 + i % 2


def lane_c(i, j):
    """Lane and register of element (i, j) of C and D, 16 rows by 8 columns; likewise."""
    return i % 8 * 4 + j % 8 // 2, i // 8 * 2 + j % 2


def swizzled(i, j):
    """The column where a tile in shared memory keeps element (i, j), of 16 rows by 16 columns.

    The two halves of a row, of 16 bytes each, change places in rows 4 to 7 and 12 to 15. Then eight
    neighbouring rows have any one half in eight different groups of banks.
    """
    return (j // 8 + i // 4) % 2 * 8 + j % 8


_LANES = {"matrix_a": lane_a, "matrix_b": lane_b, "accumulator": lane_c}


@functools.lru_cache
def _places(kind, registers):
    """Lanes and registers of a matrix' elements, each of its shape."""
    shape = (16, 16 if registers == 8 else 8)
    i, j = np.indices(shape)
    lane, register = _LANES[kind](i, j)
    # Of B and C, columns from 8 on are a second matrix, in the next four registers.
    return lane, register if kind == "matrix_a" else register + j // 8 * 4


def gather(registers, kind):
    """The matrix of each warp from registers of shape (warps, 32, 4 or 8).

    Args:
        registers: an array; 8 elements a lane are a matrix of 16 x 16, 4 one of 16 x 8.
        kind: 'matrix_a', 'matrix_b' or 'accumulator'.
    """
    lane, register = _places(kind, registers.shape[-1])
    return registers[:, lane, register]


def scatter(matrices, registers, kind):
    """The other way round: write each warp's matrix into its registers."""
    lane, register = _places(kind, registers.shape[-1])
    registers[:, lane, register] = matrices
