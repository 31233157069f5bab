"""The figures of TensorCores: how they are fed, and who holds what they multiply."""

from typing import Any

from d2ltvm.explore.widget import Explorer


def fragments(**state: Any) -> Explorer:
    """Which lane holds which element of what TensorCores multiply, as `d2ltvm.layouts` says.

    >>> print(fragments(what="mma_b", lane=26, register=1).says)
    Lane 26 holds 4 elements of B, from rows 4, 5, 12 and 13 and column 6. B[5, 6] is in ...

    Args:
        **state: what, one of mma_a, mma_b, mma_c, wmma_a, wmma_b, wmma_c, ldmatrix,
            ldmatrix_trans, sums (of wgmma) and operand (of wgmma, in shared memory); lane and
            register; number, of matrices that ldmatrix loads; warp and block, of 16 rows and 16
            columns of the sums; row and step, of an operand.

    Raises:
        ValueError: a value is not one that can be set.
        TypeError: there is no such value.
    """
    return Explorer("fragments", state)


def ring(**state: Any) -> Explorer:
    """A ring of slots in time, as `d2ltvm.analysis.ring_timeline` follows it.

    >>> print(ring(stages=3).says)
    10 tiles in ...; the consumer waits for full 14% of the time, ...

    Args:
        **state: stages, rounds, multiply, latency, transfer, ask, broken, time.

    Raises:
        ValueError: a value is not one that can be set.
        TypeError: there is no such value.
    """
    return Explorer("ring", state)
