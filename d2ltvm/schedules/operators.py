"""Schedules of depthwise convolution, pooling and batch normalisation for GPUs.

Images are (channels, height, width), in float32, and sizes in d2l-tvm's order. What keeps the
channels last is in `strips`.
"""

from collections.abc import Sequence

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from d2ltvm.compute.operators import batch_norm, depthwise_conv, pool
from d2ltvm.compute.ops import schedule
from d2ltvm.schedules.arguments import checked


# Used in convolution/operators.
@checked
def depthwise_rows(
    c: int, n: int, k: int, p: int, s: int, rows: int = 4, nt: int = 128
) -> Schedule:
    """Depthwise convolution of an image: `rows` pixels of a column a thread, loaded before used."""
    X, K, Y, _ = depthwise_conv(c, n, n, k, k, p, p, s, s)
    sch = schedule([X, K, Y])
    return _rows_of_columns(sch, p, rows, nt)


# Used in convolution/operators.
@checked
def pool_rows(
    c: int, n: int, k: int, p: int, s: int, rows: int = 4, nt: int = 128, largest: bool = True
) -> Schedule:
    """Pooling of an image: `rows` pixels of a column a thread, of the largest or of the mean."""
    X, Y, _ = pool("max" if largest else "avg", c, n, n, k, k, p, p, s, s)
    sch = schedule([X, Y])
    if not largest:
        sch.compute_at(sch.get_sblock("Sums"), _columns(sch, sch.get_sblock("Y"), rows, nt))
        sch.set_scope("Sums", 0, "local")
        return _held(sch, p, sch.get_sblock("Sums"), sch.get_sblock("Y"))
    return _rows_of_columns(sch, p, rows, nt)


# Used in convolution/operators.
@checked
def batch_norm_flat(c: int, n: int, nt: int = 1024) -> Schedule:
    """Batch norm of an image: one element a thread, in order."""
    sch = schedule(batch_norm(c, n))
    bx, tx = sch.split(sch.fuse(*sch.get_loops(sch.get_sblock("Y"))), [None, nt])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    return sch


def _rows_of_columns(sch: Schedule, p: int, rows: int, nt: int) -> Schedule:
    """Give each thread `rows` results of a column, their sums and all their pixels in registers."""
    sums = sch.get_sblock("Y")
    result = sch.cache_write(sums, 0, "local")
    sch.compute_at(sums, _columns(sch, result, rows, nt))
    return _held(sch, p, sums, result)


def _columns(sch: Schedule, block: SBlockRV, rows: int, nt: int) -> LoopRV:
    """Split a result of (channels, height, width) over blocks and threads; returns the threads'."""
    channel, i, j = sch.get_loops(block)
    band, row = sch.split(i, [None, rows])
    sch.reorder(channel, band, j, row)
    bx, tx = sch.split(sch.fuse(channel, band, j), [None, nt])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    return tx


def _held(sch: Schedule, p: int, sums: SBlockRV, result: SBlockRV) -> Schedule:
    """Load all pixels of a thread into registers first, and unroll what it does."""
    thread = sch.get_loops(result)[1]
    pixels = sch.get_sblock("PaddedX") if p else sch.cache_read(sums, 0, "local")
    sch.compute_at(pixels, thread)
    sch.set_scope(pixels, 0, "local")
    unroll_inside(sch, [pixels, sums, result])
    return sch


# From convolution/depthwise.
def unroll_inside(
    sch: Schedule, blocks: Sequence[SBlockRV], copies: Sequence[SBlockRV] = ()
) -> None:
    """Unroll the loops of a thread, but for the last one of each copy, which is a vector."""
    for block in (*blocks, *copies):
        loops = sch.get_loops(block)[2:]  # behind blockIdx and threadIdx
        if block in copies:
            sch.vectorize(loops.pop())
        for loop in loops:
            sch.unroll(loop)
