"""Random schedules, each by a seed: what is computed, how, and what NumPy says comes out.

Values are small integers in every dtype, so that sums are exact and results are compared by `==`.
"""

import operator
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import te
from tvm.script import tirx as T

import d2ltvm
from d2ltvm.compiler import lowering

SIZES = (1, 3, 7, 8, 13, 16, 21, 32, 37)
THREADS = (1, 2, 6, 8, 16, 24, 32, 33, 48, 64)
DTYPES = ("float32", "float32", "float16", "float64", "int8", "int32")


@dataclass(frozen=True)
class Case:
    """A schedule, its inputs, what comes out, and in words what was done."""

    sch: object
    inputs: tuple
    expected: np.ndarray
    text: str


def case(seed):
    """The schedule of a seed. Where TVM refuses what was drawn, something else is drawn."""
    for attempt in range(100):
        rng = np.random.default_rng((seed, attempt))
        try:
            drawn = rng.choice([elementwise, elementwise, product, by_block])(rng)
            lowering.lower(lowering.as_module(drawn.sch), d2ltvm.system.as_target("sm_80"))
            return drawn
        except (tvm.error.InternalError, tvm.s_tir.ScheduleError, ValueError):
            continue
    raise AssertionError(f"nothing can be drawn for seed {seed}")


def values(rng, shape, dtype):
    return rng.integers(-3, 4, shape).astype(dtype)


def place(rng, n, m):
    """Where C[i, j] reads, of expressions and of arrays alike; under what conditions; in words."""
    s, d = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    return [
        (lambda i, j: (i, j), None, "as it is"),
        (lambda i, j: (j, i), None, "transposed"),
        (lambda i, j: (i * s, j), None, f"rows by {s}"),
        (lambda i, j: (i, j * s + 1), None, f"columns by {s}"),
        (lambda i, j: (n - 1 - i, j), None, "upside down"),
        (lambda i, j: (j,), None, "a row"),
        (lambda i, j: (i,), None, "a column"),
        (lambda i, j: (i // s, j % d), None, f"i // {s}, j % {d}"),
        (lambda i, j: (i, j - d), lambda i, j: (j >= d,), f"right by {d}"),
        (lambda i, j: (i + 1, j + d), lambda i, j: (i < n - 1, j < m - d), f"up and left by {d}"),
        (lambda i, j: ((i * m + j) * s % (n * m),), None, f"scattered by {s}"),
    ][rng.integers(11)]


def elementwise(rng):
    """One or two inputs, read at some places."""
    n, m = (int(x) for x in rng.choice(SIZES, 2))
    dtype = str(rng.choice(DTYPES))
    join = [operator.add, operator.mul, operator.sub][rng.integers(3)]
    inputs, arrays, reads, results, text = [], [], [], [], [f"{n} x {m} {dtype}"]
    i, j = np.indices((n, m))
    for name in "AB"[: rng.integers(1, 3)]:
        where, when, words = place(rng, n, m)
        met = np.logical_and.reduce(when(i, j)) if when else np.ones((n, m), bool)
        if not met.any():
            raise ValueError("nothing is read")
        shape = tuple(int(np.where(met, k, 0).max()) + 1 for k in where(i, j))
        tensor = te.placeholder(shape, dtype, name=name)
        array = values(rng, shape, dtype)
        found = array[tuple(np.where(met, k, 0) for k in where(i, j))]
        inputs.append(tensor)
        arrays.append(array)
        reads.append((tensor, where, when))
        results.append(np.where(met, found, 0).astype(dtype))
        text.append(f"{name} {words}")

    def value(i, j):
        parts = []
        for tensor, where, when in reads:
            read = tensor(*where(i, j))
            zero = tvm.tirx.const(0, dtype)
            parts.append(te.if_then_else(te.all(*when(i, j)), read, zero) if when else read)
        return join(*parts) if len(parts) > 1 else parts[0] + parts[0]

    C = te.compute((n, m), value, name="C")
    expected = join(*results) if len(results) > 1 else results[0] + results[0]
    sch = d2ltvm.schedule([*inputs, C])
    text.append(flat(rng, sch, n * m) if rng.random() < 0.5 else tiled(rng, sch, len(inputs)))
    return Case(sch, tuple(arrays), expected, "; ".join(text))


def flat(rng, sch, size):
    """All loops as one, in blocks, threads, and what is left for each thread."""
    block, nt, each = sch.get_sblock("C"), int(rng.choice(THREADS)), int(rng.choice((1, 2, 3, 4)))
    fused = sch.fuse(*sch.get_loops(block))
    if rng.random() < 0.5:
        bx, tx, inner = sch.split(fused, [None, nt, each])
    else:
        bx, inner, tx = sch.split(fused, [None, each, nt])
        sch.reorder(bx, tx, inner)
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    how = rng.choice(["vectorize", "unroll", "serial"])
    if how != "serial":
        getattr(sch, how)(inner)
    if rng.random() < 0.3:
        sch.compute_at(sch.cache_read(block, 0, "local"), tx)
        how += ", by a register"
    return f"{nt} threads, {each} each, {how}"


def tiled(rng, sch, inputs):
    """Two loops in tiles, an input by way of shared memory, virtual threads."""
    block = sch.get_sblock("C")
    ty, tx = (int(x) for x in rng.choice((1, 2, 4, 5, 8, 16), 2))
    ey, ex, vy = (int(x) for x in rng.choice((1, 2, 3, 4), 3))
    i, j = sch.get_loops(block)
    by, vi, ti, ii = sch.split(i, [None, vy, ty, ey])
    bx, tj, jj = sch.split(j, [None, tx, ex])
    order = [by, bx, vi, ti, tj, ii, jj]
    if rng.random() < 0.3:
        order[5:] = order[:4:-1]
    sch.reorder(*order)
    axes = ("blockIdx.y", "blockIdx.x", "vthread.y", "threadIdx.y", "threadIdx.x")
    for loop, axis in zip(order, axes, strict=False):
        sch.bind(loop, axis)
    how = rng.choice(["vectorize", "unroll", "serial"])
    if how != "serial":
        getattr(sch, how)(order[-1])
    text = f"tiles {vy} x {ty} x {ey} by {tx} x {ex}, {how}"
    if rng.random() < 0.6:
        copy = sch.cache_read(block, int(rng.integers(inputs)), "shared")
        sch.compute_at(copy, bx)
        text += together(rng, sch, copy, ty, tx)
    return text


def together(rng, sch, copy, ty, tx):
    """All threads of a block fetch a tile."""
    inner = sch.get_loops(copy)[-len(sch.get(copy).iter_vars) :]
    wide = int(rng.choice((1, 1, 2, 4)))
    _, y, x, each = sch.split(sch.fuse(*inner), [None, ty, tx, wide])
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")
    if wide > 1:
        sch.vectorize(each)
    pad = int(rng.integers(0, 3)) if len(inner) > 1 else 0
    if pad:
        sch.storage_align(copy, 0, 0, 32, pad)
    return f", a tile in shared memory, {wide} wide, padded by {pad}"


def product(rng):
    """A product of matrices, or its transposes, in tiles."""
    n, m, l = (int(x) for x in rng.choice((3, 7, 8, 13, 16, 20), 3))
    dtype = str(rng.choice(("float32", "float16", "float64", "int32")))
    ta, tb = (bool(x) for x in rng.integers(0, 2, 2))
    A = te.placeholder((l, n) if ta else (n, l), dtype, name="A")
    B = te.placeholder((m, l) if tb else (l, m), dtype, name="B")
    k = te.reduce_axis((0, l), name="k")
    C = te.compute(
        (n, m),
        lambda i, j: te.sum((A[k, i] if ta else A[i, k]) * (B[j, k] if tb else B[k, j]), axis=k),
        name="C",
    )
    sch = d2ltvm.schedule([A, B, C])
    block = sch.get_sblock("C")
    ty, tx = (int(x) for x in rng.choice((2, 4, 8), 2))
    ey, ex, vy, vx = (int(x) for x in rng.choice((1, 2, 3), 4))
    step = int(rng.choice((2, 3, 4, 8)))
    i, j, k = sch.get_loops(block)
    bi, vi, ti, ii = sch.split(i, [None, vy, ty, ey])
    bj, vj, tj, jj = sch.split(j, [None, vx, tx, ex])
    ko, ki = sch.split(k, [None, step])
    sch.reorder(bi, bj, vi, vj, ti, tj, ko, ki, ii, jj)
    axes = ("blockIdx.y", "blockIdx.x", "vthread.y", "vthread.x", "threadIdx.y", "threadIdx.x")
    for loop, axis in zip((bi, bj, vi, vj, ti, tj), axes, strict=True):
        sch.bind(loop, axis)
    sch.reverse_compute_at(sch.cache_write(block, 0, "local"), tj)
    text = f"{n} x {m} x {l} {dtype}, {'AT' if ta else 'A'} {'BT' if tb else 'B'}; step {step}"
    for which in (0, 1):
        if rng.random() < 0.7:
            copy = sch.cache_read(block, which, "shared")
            sch.compute_at(copy, ko)
            text += together(rng, sch, copy, ty, tx)
    if rng.random() < 0.4:
        sch.unroll(ki)
        text += ", unrolled"
    sch.decompose_reduction(block, ko)
    a, b = (
        values(rng, [int(s) for s in A.shape], dtype),
        values(rng, [int(s) for s in B.shape], dtype),
    )
    expected = ((a.T if ta else a).astype("int64") @ (b.T if tb else b).astype("int64")).astype(
        dtype
    )
    return Case(sch, (a, b), expected, f"{text}; {vy} x {ty} x {ey} by {vx} x {tx} x {ex}")


def by_block(rng):
    """An index into shared memory that depends on the block, and a loop that begins there."""
    blocks, nt = int(rng.integers(2, 9)), int(rng.choice((16, 32, 33, 64)))
    a, b, c = (int(x) for x in rng.integers(0, 5, 3))
    size, rounds = nt * int(rng.integers(1, 4)), int(rng.integers(1, 4))
    most = int(rng.integers(1, nt + 1))
    dtype = str(rng.choice(("float32", "float16", "float64", "int8")))

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((blocks, size), dtype), C: T.Buffer((blocks, nt), dtype)):
        for u in T.thread_binding(blocks, "blockIdx.x"):
            for x in T.thread_binding(nt, "threadIdx.x"):
                s = T.alloc_buffer((size,), dtype, scope="shared")
                r = T.alloc_buffer((1,), dtype, scope="local")
                for k in range(size // nt):
                    s[k * nt + x] = A[u, k * nt + x]
                r[0] = T.Cast(dtype, 0)
                for k in range(rounds):
                    if x + u * c < most + k:
                        r[0] = r[0] + s[(x * (u * a + b) + k) % size]
                C[u, x] = r[0]

    array = values(rng, (blocks, size), dtype)
    u, x = np.indices((blocks, nt))
    expected = np.zeros((blocks, nt), dtype)
    for k in range(rounds):
        there = array[u, (x * (u * a + b) + k) % size]
        expected += np.where(x + u * c < most + k, there, 0).astype(dtype)
    sch = tvm.s_tir.Schedule(main)
    text = f"{blocks} blocks, s[(x (u {a} + {b}) + k) % {size}], {rounds} rounds, {nt} threads"
    return Case(sch, (array,), expected, f"{text}, {dtype}")
