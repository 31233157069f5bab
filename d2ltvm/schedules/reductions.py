"""Schedules of sums of rows, and of what needs such sums: softmax and layer norm in passes.

All are for any number of rows and columns. Where `width` does not divide the columns, a row begins
at no multiple of it: then each access is of one element.
"""

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from d2ltvm.compute.ops import schedule
from d2ltvm.compute.reductions import exp2_polynomial, layer_norm, row_sum, softmax
from d2ltvm.schedules.arguments import checked


# From reductions/sums.
@checked
def sum_a_thread(rows: int, cols: int, dtype: str = "float16", nt: int = 128) -> Schedule:
    """Sum of rows: a thread for each row."""
    sch = schedule(row_sum(rows, cols, dtype))
    block = sch.get_sblock("S")
    result = sch.cache_write(block, 0, "local")
    bx, tx = sch.split(sch.get_loops(result)[0], [None, nt])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    sch.compute_at(block, tx)
    sch.decompose_reduction(block, sch.get_loops(block)[-1])
    return sch


# From reductions/sums.
@checked
def sum_a_block(rows: int, cols: int, dtype: str = "float16", nt: int = 256) -> Schedule:
    """Sum of rows: a block for each row, and neighbouring threads add neighbouring elements."""
    sch = schedule(row_sum(rows, cols, dtype))
    i, k = sch.get_loops(sch.get_sblock("S"))
    _, tx = sch.split(k, [None, nt])
    sch.bind(i, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    return sch


# From reductions/sums.
def load_wide(sch: Schedule, block: SBlockRV, loops: list[LoopRV]) -> None:
    """Bind the threads of a sum over steps, threads and neighbours; load the neighbours at once."""
    step, tx, v = loops
    sch.reorder(tx, step, v)
    sch.bind(tx, "threadIdx.x")
    loaded = sch.cache_read(block, 0, "local", [block])
    sch.compute_at(loaded, step, preserve_unit_loops=True)
    sch.vectorize(sch.get_loops(loaded)[-1])
    sch.unroll(v)


# From reductions/sums.
@checked
def sum_wide(
    rows: int, cols: int, dtype: str = "float16", nt: int = 256, width: int = 8
) -> Schedule:
    """Sum of rows: as `sum_a_block`, with loads of `width` elements."""
    sch = schedule(row_sum(rows, cols, dtype))
    block = sch.get_sblock("S")
    i, k = sch.get_loops(block)
    sch.bind(i, "blockIdx.x")
    load_wide(sch, block, sch.split(k, [None, nt, width if cols % width == 0 else 1]))
    return sch


# From reductions/sums.
@checked
def sum_pieces(
    rows: int, cols: int, dtype: str = "float16", pieces: int = 64, nt: int = 256, width: int = 8
) -> Schedule:
    """Sum of rows: `pieces` blocks for each row, and a second kernel that adds up their sums."""
    width = width if cols % (pieces * nt * width) == 0 else 1
    pieces = min(pieces, -(-cols // (nt * width)))
    sch = schedule(row_sum(rows, cols, dtype, pieces * nt * width))
    if cols % (pieces * nt * width):
        sch.compute_inline(sch.get_sblock("P"))
    total = sch.get_sblock("S")
    piece, *_ = sch.split(sch.get_loops(total)[1], [pieces, None, nt, width])
    part = sch.rfactor(piece, 1)
    i, piece, *loops = sch.get_loops(part)
    sch.bind(i, "blockIdx.y")
    sch.bind(piece, "blockIdx.x")
    load_wide(sch, part, loops)
    i, piece = sch.get_loops(total)
    _, tx = sch.split(piece, [None, 32])
    sch.bind(i, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    return sch


# From reductions/softmax.
def in_passes(sch: Schedule, nt: int, width: int, each: int) -> None:
    """A block for `each` rows, which are read once for M, once more for D, and again for Y."""
    block = sch.get_sblock("Y")
    stored = sch.cache_write(block, 0, "local")
    i, c = sch.get_loops(stored)
    step, tx, v = sch.split(c, [None, nt, width])
    sch.reorder(tx, step, v)
    bx, ty = sch.split(i, [None, each])
    for loop, tag in ((bx, "blockIdx.x"), (ty, "threadIdx.y"), (tx, "threadIdx.x")):
        sch.bind(loop, tag)
    sch.vectorize(v)
    sch.compute_at(block, step, preserve_unit_loops=True)
    sch.unroll(sch.get_loops(block)[-1])
    loaded = sch.cache_read(block, 0, "local", [block])
    sch.compute_at(loaded, step, preserve_unit_loops=True)
    sch.vectorize(sch.get_loops(loaded)[-1])
    for name in "RDM":
        stage = sch.get_sblock(name)
        sch.compute_at(stage, ty)
        sch.set_scope(stage, 0, "local")
        if name != "R":
            load_wide(sch, stage, sch.split(sch.get_loops(stage)[-1], [None, nt, width]))


# From reductions/softmax.
@checked
def softmax_passes(
    rows: int, cols: int, dtype: str = "float16", nt: int = 256, width: int = 8, each: int = 1
) -> Schedule:
    """Softmax of rows that are read three times."""
    sch = schedule(softmax(rows, cols, dtype))
    sch.compute_inline(sch.get_sblock("E"))
    in_passes(sch, nt, width if cols % width == 0 else 1, each)
    return sch


# Used in reductions/softmax.
@checked
def layer_norm_passes(
    rows: int, cols: int, dtype: str = "float16", nt: int = 256, width: int = 8, each: int = 1
) -> Schedule:
    """Layer norm of rows that are read three times."""
    sch = schedule(layer_norm(rows, cols, dtype))
    in_passes(sch, nt, width if cols % width == 0 else 1, each)
    return sch


def in_lanes(sch: Schedule, block: SBlockRV, i: LoopRV, width: int) -> None:
    """Move a sum over a row under the loop `i` of a CPU, in `width` parts side by side."""
    k = sch.get_loops(block)[-1]
    part = sch.rfactor(sch.split(k, [None, width])[1], 1)
    sch.compute_at(block, i, preserve_unit_loops=True)
    sch.compute_at(part, i, preserve_unit_loops=True)
    *_, lane, step = sch.get_loops(part)
    sch.reorder(step, lane)
    sch.vectorize(lane)
    sch.decompose_reduction(part, step)


def _on_cpu(sch: Schedule, between: str, chunks: int, width: int) -> Schedule:
    """Rows shared out among the cores, and each pass over a row in SIMD instructions."""
    i, c = sch.get_loops(sch.get_sblock("Y"))
    chunk, i = sch.split(i, [chunks, None])
    sch.parallel(chunk)
    sch.vectorize(sch.split(c, [None, width])[1])
    for name in between:
        stage = sch.get_sblock(name)
        if name in "MD":
            in_lanes(sch, stage, i, width)
            continue
        sch.compute_at(stage, i)
        if name == "E":
            sch.vectorize(sch.split(sch.get_loops(stage)[-1], [None, width])[1])
    return sch


# Used in reductions/softmax.
@checked
def cpu_softmax(
    rows: int, cols: int, dtype: str = "float32", chunks: int = 2, width: int = 16
) -> Schedule:
    """Softmax of rows on a CPU: rows in parallel, and SIMD instructions along a row."""
    sch = schedule(softmax(rows, cols, dtype, exp2_polynomial))
    return _on_cpu(sch, "RDEM", chunks, width if cols % width == 0 else 1)


# Used in reductions/softmax.
@checked
def cpu_layer_norm(
    rows: int, cols: int, dtype: str = "float32", chunks: int = 2, width: int = 16
) -> Schedule:
    """Layer norm of rows on a CPU: rows in parallel, and SIMD instructions along a row."""
    sch = schedule(layer_norm(rows, cols, dtype))
    return _on_cpu(sch, "RDM", chunks, width if cols % width == 0 else 1)
