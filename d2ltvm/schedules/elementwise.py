"""Schedules of copies, vector adds and broadcast adds."""

from tvm import te
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from d2ltvm.compute.ops import broadcast_add, schedule, vector_add, vector_copy
from d2ltvm.schedules.arguments import checked


# From machine/gpu_in_numbers.
@checked
def copy_unrolled(n: int, nt: int = 128, width: int = 4, steps: int = 2) -> Schedule:
    """Copy: `steps` accesses of `width` elements a thread, a block's width apart."""
    sch = schedule(vector_copy(n))
    (i,) = sch.get_loops(sch.get_sblock("C"))
    bx, step, tx, v = sch.split(i, [None, steps, nt, width])
    sch.reorder(bx, tx, step, v)
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    sch.unroll(step)
    sch.vectorize(v)
    return sch


# From elementwise/vector_add.
@checked
def one_thread_each(n: int, nt: int = 256) -> Schedule:
    """Vector add: one element a thread, `nt` threads a block."""
    sch = schedule(vector_add(n))
    (i,) = sch.get_loops(sch.get_sblock("C"))
    bx, tx = sch.split(i, [None, nt])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    return sch


# From elementwise/vector_add.
@checked
def neighbours(n: int, nt: int = 128, width: int = 4) -> Schedule:
    """Vector add: `width` neighbouring elements a thread, one access for each of them."""
    sch = schedule(vector_add(n))
    (i,) = sch.get_loops(sch.get_sblock("C"))
    bx, tx, _ = sch.split(i, [None, nt, width])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    return sch


# From elementwise/vector_add.
@checked
def vectorized(n: int, nt: int = 128, width: int = 4) -> Schedule:
    """Vector add: `width` neighbouring elements a thread, in one access."""
    sch = schedule(vector_add(n))
    (i,) = sch.get_loops(sch.get_sblock("C"))
    bx, tx, v = sch.split(i, [None, nt, width])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    sch.vectorize(v)
    return sch


# From elementwise/vector_add.
@checked
def unrolled(n: int, nt: int = 128, width: int = 4, steps: int = 2) -> Schedule:
    """Vector add: `steps` accesses of `width` elements a thread, a block's width apart."""
    sch = schedule(vector_add(n))
    (i,) = sch.get_loops(sch.get_sblock("C"))
    bx, step, tx, v = sch.split(i, [None, steps, nt, width])
    sch.reorder(bx, tx, step, v)
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    sch.unroll(step)
    sch.vectorize(v)
    return sch


# From elementwise/vector_add.
@checked
def partitioned(n: int, nt: int = 128, width: int = 4, steps: int = 2) -> Schedule:
    """Vector add: as `unrolled`, with the guard for the last block kept out of all the others."""
    sch = unrolled(n, nt, width, steps)
    bx = sch.get_loops(sch.get_sblock("C"))[0]
    sch.annotate(bx, "pragma_loop_partition_hint", 1)
    return sch


# From elementwise/enough_under_way.
@checked
def staying(n: int, nt: int = 128, blocks: int = 528, width: int = 1) -> Schedule:
    """Vector add by blocks that stay: each takes `width` elements a thread, again and again."""
    sch = schedule(vector_add(n))
    (i,) = sch.get_loops(sch.get_sblock("C"))
    step, bx, tx, v = sch.split(i, [None, blocks, nt, width])
    sch.reorder(bx, tx, step, v)
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    sch.vectorize(v)
    return sch


# From elementwise/enough_under_way.
@checked
def loads_ahead(rows: int, columns: int, ahead: int, nt: int = 128) -> Schedule:
    """Add matrices: a thread goes down a column, and loads for `ahead` rows before it adds."""
    sch = schedule(broadcast_add((rows, columns), (rows, columns)))
    block = sch.get_sblock("C")
    i, j = sch.get_loops(block)
    step, row = sch.split(i, [None, ahead])
    bx, tx = sch.split(j, [None, nt])
    sch.reorder(bx, tx, step, row)
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    for number in range(2):
        loaded = sch.cache_read(block, number, "local")
        sch.compute_at(loaded, step, preserve_unit_loops=True)
        sch.unroll(sch.get_loops(loaded)[-2])
    sch.unroll(row)
    return sch


# Used in machine/under_way.
@checked
def sum_of_vectors(n: int, vectors: int, nt: int = 128, width: int = 4) -> Schedule:
    """The sum of several vectors: as `vectorized`, with more to read for each number written."""
    inputs = [te.placeholder((n,), "float32", f"A{k}") for k in range(vectors)]
    total = te.compute((n,), lambda i: sum((A[i] for A in inputs[1:]), inputs[0][i]), name="C")
    sch = schedule([*inputs, total])
    (i,) = sch.get_loops(sch.get_sblock("C"))
    bx, tx, v = sch.split(i, [None, nt, width])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    sch.vectorize(v)
    return sch


# From elementwise/block_starts.
@checked
def nothing_to_do(blocks: int, nt: int = 32) -> Schedule:
    """Vector add of a single number, in far too many blocks: all threads but one do nothing."""
    sch = schedule(vector_add(1))
    (i,) = sch.get_loops(sch.get_sblock("C"))
    bx, tx = sch.split(i, [blocks, nt])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    return sch


# From elementwise/on_a_cpu.
@checked
def cpu_vector_add(n: int, chunks: int = 2, width: int = 16) -> Schedule:
    """Vector add on the CPU: `chunks` pieces in parallel, SIMD instructions inside."""
    sch = schedule(vector_add(n))
    (i,) = sch.get_loops(sch.get_sblock("C"))
    chunk, j = sch.split(i, [chunks, None])
    _, v = sch.split(j, [None, width])
    sch.parallel(chunk)
    sch.vectorize(v)
    return sch


# From elementwise/broadcast_add.
@checked
def continuous_parallel(n: int, nt: int = 64, nb: int = 256) -> Schedule:
    """Broadcast add: each thread takes a run of neighbouring elements."""
    sch = schedule(broadcast_add((n, 1), (n, n)))
    fused = sch.fuse(*sch.get_loops(sch.get_sblock("C")))
    if n * n > nb * nt:
        bx, tx, _ = sch.split(fused, [nb, nt, None])
    else:
        bx, tx = sch.split(fused, [None, nt])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    return sch


# From elementwise/broadcast_add.
@checked
def alternate_parallel(n: int, nt: int = 64, nb: int = 256) -> Schedule:
    """Broadcast add: neighbouring threads take neighbouring elements, at every step."""
    sch = schedule(broadcast_add((n, 1), (n, n)))
    fused = sch.fuse(*sch.get_loops(sch.get_sblock("C")))
    if n * n > nb * nt:
        step, bx, tx = sch.split(fused, [None, nb, nt])
        sch.reorder(bx, tx, step)
    else:
        bx, tx = sch.split(fused, [None, nt])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    return sch


# From elementwise/broadcast_add.
def share_out(sch: Schedule, loop: LoopRV, continuous: bool, nt: int, nb: int) -> None:
    """Give a loop to `nb` blocks of `nt` threads: a run for each, or one each in turns."""
    if continuous:
        bx, tx, step = sch.split(loop, [nb, nt, None])
    else:
        step, bx, tx = sch.split(loop, [None, nb, nt])
        sch.reorder(bx, tx, step)
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")


# From elementwise/broadcast_add.
@checked
def writes_only(n: int, continuous: bool, nt: int = 64, nb: int = 2048) -> Schedule:
    """C[i, j] = A[i, 0]: the stores of a broadcast add, with nearly nothing to load."""
    A = te.placeholder((n, 1), "float32", "A")
    sch = schedule([A, te.compute((n, n), lambda i, j: A[i, 0], name="C")])
    share_out(sch, sch.fuse(*sch.get_loops(sch.get_sblock("C"))), continuous, nt, nb)
    return sch


# From elementwise/broadcast_add.
@checked
def reads_only(n: int, continuous: bool, nt: int = 64, nb: int = 2048) -> Schedule:
    """A sum for each thread, over its part of B: its loads, with nearly nothing to store."""
    threads, each = nt * nb, n * n // (nt * nb)
    B = te.placeholder((n * n,), "float32", "B")
    k = te.reduce_axis((0, each), "k")
    sch = schedule(
        [
            B,
            te.compute(
                (threads,),
                lambda t: te.sum(B[t * each + k if continuous else k * threads + t], axis=k),
                name="C",
            ),
        ]
    )
    block = sch.get_sblock("C")
    t, _ = sch.get_loops(block)
    bx, tx = sch.split(t, [nb, nt])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    sch.reverse_compute_at(sch.cache_write(block, 0, "local"), tx)
    return sch


# From elementwise/broadcast_add.
@checked
def bcast_vectorized(n: int, nt: int = 256, width: int = 4) -> Schedule:
    """Broadcast add: `width` neighbouring elements a thread, in one access."""
    sch = schedule(broadcast_add((n, 1), (n, n)))
    fused = sch.fuse(*sch.get_loops(sch.get_sblock("C")))
    bx, tx, v = sch.split(fused, [None, nt, width])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    sch.vectorize(v)
    return sch


# From elementwise/broadcast_add.
@checked
def bcast_rows(n: int, nt: int = 256, width: int = 4, rows: int = 2) -> Schedule:
    """Broadcast add: the same columns of `rows` rows a thread, all of its B loaded first."""
    sch = schedule(broadcast_add((n, 1), (n, n)))
    block = sch.get_sblock("C")
    i, j = sch.get_loops(block)
    by, row = sch.split(i, [None, rows])
    bx, tx, v = sch.split(j, [None, nt, width])
    sch.reorder(by, bx, tx, row, v)
    sch.bind(by, "blockIdx.y")
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    loaded = sch.cache_read(block, 1, "local")
    sch.compute_at(loaded, tx, preserve_unit_loops=True)
    each, lanes = sch.get_loops(loaded)[3:]
    for loop in (each, row):
        sch.unroll(loop)
    for loop in (lanes, v):
        sch.vectorize(loop)
    return sch


# From elementwise/broadcast_add.
@checked
def bcast_in_steps(n: int, nt: int = 128, steps: int = 2) -> Schedule:
    """Broadcast add: `steps` single elements a thread, a block's width apart."""
    sch = schedule(broadcast_add((n, 1), (n, n)))
    fused = sch.fuse(*sch.get_loops(sch.get_sblock("C")))
    bx, step, tx = sch.split(fused, [None, steps, nt])
    sch.reorder(bx, tx, step)
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    sch.unroll(step)
    return sch


# From elementwise/on_a_cpu.
@checked
def cpu_bcast_add(n: int, chunks: int = 2, width: int = 16) -> Schedule:
    """Broadcast add on the CPU: rows in parallel, SIMD instructions along a row."""
    sch = schedule(broadcast_add((n, 1), (n, n)))
    i, j = sch.get_loops(sch.get_sblock("C"))
    chunk, _ = sch.split(i, [chunks, None])
    _, v = sch.split(j, [None, width])
    sch.parallel(chunk)
    sch.vectorize(v)
    return sch
