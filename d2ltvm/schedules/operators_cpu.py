"""Schedules of depthwise convolution, pooling and batch normalisation for the CPU.

Images are (channels, height, width), in float32, and sizes in d2l-tvm's order. Channels are shared
out among the cores, and neighbours in a row are the lanes of an instruction.
"""

from tvm.s_tir import Schedule

from d2ltvm.compute.operators import batch_norm, depthwise_conv, pool
from d2ltvm.compute.ops import schedule
from d2ltvm.schedules.arguments import checked
from d2ltvm.schedules.conv import largest_divisor


# From convolution/operators_cpu.
@checked
def cpu_depthwise(
    c: int, n: int, k: int, p: int, s: int, rows: int = 4, lanes: int = 16
) -> Schedule:
    """Depthwise convolution on the CPU: `rows` by `lanes` sums of a channel at a time."""
    X, K, Y, _ = depthwise_conv(c, n, n, k, k, p, p, s, s)
    return of_windows(schedule([X, K, Y]), p, rows, lanes)


# From convolution/operators_cpu.
@checked
def cpu_pool(
    c: int, n: int, k: int, p: int, s: int, rows: int = 4, lanes: int = 16, largest: bool = True
) -> Schedule:
    """Pooling on the CPU: `rows` by `lanes` results of a channel at a time."""
    X, Y, _ = pool("max" if largest else "avg", c, n, n, k, k, p, p, s, s)
    return of_windows(schedule([X, Y]), p, rows, lanes)


# From convolution/operators_cpu.
@checked
def cpu_batch_norm(c: int, n: int) -> Schedule:
    """Batch norm on the CPU: a channel a task, and its pixels as one long row."""
    sch = schedule(batch_norm(c, n))
    channel, i, j = sch.get_loops(sch.get_sblock("Y"))
    pixel = sch.fuse(i, j)
    sch.parallel(channel)
    sch.vectorize(sch.split(pixel, [None, largest_divisor(sch, pixel, 16)])[1])
    return sch


# From convolution/operators_cpu.
def of_windows(sch: Schedule, p: int, rows: int, lanes: int) -> Schedule:
    """Tile what a window makes: a channel a task, `rows` by `lanes` results in registers."""
    result = sch.get_sblock("Y")
    mean = len(sch.get_loops(result)) == 3  # the division behind the sums of a mean
    sums = sch.get_sblock("Sums") if mean else result
    if not mean:
        result = sch.cache_write(sums, 0, "local")
    channel, i, j = sch.get_loops(result)
    height, width = largest_divisor(sch, i, rows), largest_divisor(sch, j, lanes)
    band, row = sch.split(i, [None, height])
    piece, v = sch.split(j, [None, width])
    sch.reorder(channel, band, piece, row, v)
    sch.compute_at(sums, piece, preserve_unit_loops=True)
    sch.set_scope(sums, 0, "local")
    if p:
        padded = sch.get_sblock("PaddedX")
        sch.compute_at(padded, channel, preserve_unit_loops=True)
        border = sch.decompose_padding(padded, sch.get_loops(padded)[1])
        sch.vectorize(sch.get_loops(border)[-1])
    *_, y, x, rkh, rkw = sch.get_loops(sums)
    sch.reorder(rkh, rkw, y, x)
    sch.parallel(channel)
    for loop in (rkh, rkw, y, row):
        sch.unroll(loop)
    sch.vectorize(x)
    sch.vectorize(v)
    sch.decompose_reduction(sums, rkh)
    return sch
