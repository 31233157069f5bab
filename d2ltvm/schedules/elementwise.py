"""Schedules of copies, vector adds and broadcast adds."""

from tvm.s_tir import Schedule

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


# From elementwise/vector_add.
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
def cpu_bcast_add(n: int, chunks: int = 2, width: int = 16) -> Schedule:
    """Broadcast add on the CPU: rows in parallel, SIMD instructions along a row."""
    sch = schedule(broadcast_add((n, 1), (n, n)))
    i, j = sch.get_loops(sch.get_sblock("C"))
    chunk, _ = sch.split(i, [chunks, None])
    _, v = sch.split(j, [None, width])
    sch.parallel(chunk)
    sch.vectorize(v)
    return sch
