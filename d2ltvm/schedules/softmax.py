"""Softmax in TVMScript: each row is read twice, or once and kept in registers or shared memory.

All are for any number of rows and columns; accesses are of one element where `width` does not
divide the columns. A block has `each` rows, with `nt` threads for each of them. A thread has
`width` neighbours of its row at a time, `nt * width` apart. What it finds by itself is in `own`;
`M` and `D` are of the whole row. `layer_norm` has the same for layer norm.
"""

from typing import Any

import numpy as np
from tvm.script import tirx as T

from d2ltvm.compute.reductions import LOG2_E
from d2ltvm.schedules.arguments import checked

LOWEST = -3.4028234663852886e38  # of float32


def in_accesses(
    rows: int, cols: int, nt: int, width: int, each: int, dtype: str
) -> tuple[int, int, int, int]:
    """The width of an access, how many a row has, how many of them a thread, and the blocks.

    An access is of 16 bytes at most: of more, TVM's CUDA does not compile under a condition.
    """
    width = min(width, 16 // np.dtype(dtype).itemsize)
    width = 1 if cols % width else width
    accesses = cols // width
    return width, accesses, -(-accesses // nt), -(-rows // each)


# From reductions/softmax.
@checked
def softmax_online(
    rows: int, cols: int, dtype: str = "float16", nt: int = 256, width: int = 8, each: int = 1
) -> Any:
    """Softmax of rows that are read twice: a maximum and a sum that follows it, in one pass."""
    width, accesses, steps, blocks = in_accesses(rows, cols, nt, width, each, dtype)

    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((rows, cols), dtype), Y: T.Buffer((rows, cols), dtype)):
        T.func_attr({"tirx.noalias": True, "rows": rows, "cols": cols})
        for bx in T.thread_binding(blocks, thread="blockIdx.x"):
            for ty in T.thread_binding(each, thread="threadIdx.y"):
                x = T.sblock_alloc_buffer((width,), dtype, scope="local")
                y = T.sblock_alloc_buffer((width,), dtype, scope="local")
                own = T.sblock_alloc_buffer((3,), "float32", scope="local")
                M = T.sblock_alloc_buffer((1,), "float32", scope="local")
                D = T.sblock_alloc_buffer((1,), "float32", scope="local")
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("one pass"):
                        i = T.axis.spatial(blocks * each, bx * each + ty)
                        t = T.axis.spatial(nt, tx)
                        # the largest so far, and the sum of exponentials for it
                        own[0] = LOWEST
                        own[1] = 0.0
                        for s in range(steps):
                            if i < rows and s * nt + t < accesses:
                                for v in T.vectorized(width):
                                    x[v] = X[i, (s * nt + t) * width + v]
                                own[2] = own[0]
                                for v in T.unroll(width):
                                    own[2] = T.max(own[2], T.Cast("float32", x[v]))
                                own[1] = own[1] * T.exp2((own[0] - own[2]) * LOG2_E)
                                own[0] = own[2]
                                for v in T.unroll(width):
                                    own[1] += T.exp2((T.Cast("float32", x[v]) - own[0]) * LOG2_E)
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("M"):
                        i = T.axis.spatial(1, 0)
                        t = T.axis.reduce(nt, tx)
                        with T.init():
                            M[i] = LOWEST
                        M[i] = T.max(M[i], own[0])
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("D"):
                        i = T.axis.spatial(1, 0)
                        t = T.axis.reduce(nt, tx)
                        with T.init():
                            D[i] = 0.0
                        D[i] = D[i] + own[1] * T.exp2((own[0] - M[0]) * LOG2_E)
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("second pass"):
                        i = T.axis.spatial(blocks * each, bx * each + ty)
                        t = T.axis.spatial(nt, tx)
                        own[2] = 1.0 / D[0]
                        for s in range(steps):
                            if i < rows and s * nt + t < accesses:
                                for v in T.vectorized(width):
                                    x[v] = X[i, (s * nt + t) * width + v]
                                for v in T.unroll(width):
                                    own[0] = T.exp2((T.Cast("float32", x[v]) - M[0]) * LOG2_E)
                                    y[v] = T.Cast(dtype, own[0] * own[2])
                                for v in T.vectorized(width):
                                    Y[i, (s * nt + t) * width + v] = y[v]

    return main


# From reductions/softmax.
@checked
def softmax_held(
    rows: int, cols: int, dtype: str = "float16", nt: int = 256, width: int = 8, each: int = 1
) -> Any:
    """Softmax of rows that are read once and kept in registers."""
    width, accesses, steps, blocks = in_accesses(rows, cols, nt, width, each, dtype)

    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((rows, cols), dtype), Y: T.Buffer((rows, cols), dtype)):
        T.func_attr({"tirx.noalias": True, "rows": rows, "cols": cols})
        for bx in T.thread_binding(blocks, thread="blockIdx.x"):
            for ty in T.thread_binding(each, thread="threadIdx.y"):
                x = T.sblock_alloc_buffer((steps, width), dtype, scope="local")
                e = T.sblock_alloc_buffer((steps, width), "float32", scope="local")
                own = T.sblock_alloc_buffer((2,), "float32", scope="local")
                M = T.sblock_alloc_buffer((1,), "float32", scope="local")
                D = T.sblock_alloc_buffer((1,), "float32", scope="local")
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("load"):
                        i = T.axis.spatial(blocks * each, bx * each + ty)
                        t = T.axis.spatial(nt, tx)
                        for s in T.unroll(steps):
                            for v in T.vectorized(width):
                                x[s, v] = T.if_then_else(
                                    i < rows and s * nt + t < accesses,
                                    X[i, (s * nt + t) * width + v],
                                    -T.infinity(dtype),
                                )
                        own[0] = LOWEST
                        for s in T.unroll(steps):
                            for v in T.unroll(width):
                                own[0] = T.max(own[0], T.Cast("float32", x[s, v]))
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("M"):
                        i = T.axis.spatial(1, 0)
                        t = T.axis.reduce(nt, tx)
                        with T.init():
                            M[i] = LOWEST
                        M[i] = T.max(M[i], own[0])
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("exponentials"):
                        i = T.axis.spatial(blocks * each, bx * each + ty)
                        t = T.axis.spatial(nt, tx)
                        own[1] = 0.0
                        for s in T.unroll(steps):
                            for v in T.unroll(width):
                                e[s, v] = T.exp2((T.Cast("float32", x[s, v]) - M[0]) * LOG2_E)
                                own[1] += e[s, v]
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("D"):
                        i = T.axis.spatial(1, 0)
                        t = T.axis.reduce(nt, tx)
                        with T.init():
                            D[i] = 0.0
                        D[i] = D[i] + own[1]
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("store"):
                        i = T.axis.spatial(blocks * each, bx * each + ty)
                        t = T.axis.spatial(nt, tx)
                        own[0] = 1.0 / D[0]
                        for s in T.unroll(steps):
                            for v in T.unroll(width):
                                x[s, v] = T.Cast(dtype, e[s, v] * own[0])
                        for s in T.unroll(steps):
                            if i < rows and s * nt + t < accesses:
                                for v in T.vectorized(width):
                                    Y[i, (s * nt + t) * width + v] = x[s, v]

    return main


# Used in reductions/softmax.
@checked
def softmax_shared(
    rows: int, cols: int, dtype: str = "float16", nt: int = 256, width: int = 8, each: int = 1
) -> Any:
    """Softmax of rows that are read once and kept in shared memory."""
    width, accesses, steps, blocks = in_accesses(rows, cols, nt, width, each, dtype)

    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((rows, cols), dtype), Y: T.Buffer((rows, cols), dtype)):
        T.func_attr({"tirx.noalias": True, "rows": rows, "cols": cols})
        for bx in T.thread_binding(blocks, thread="blockIdx.x"):
            for ty in T.thread_binding(each, thread="threadIdx.y"):
                row = T.sblock_alloc_buffer((each, steps, nt, width), dtype, scope="shared.dyn")
                x = T.sblock_alloc_buffer((width,), dtype, scope="local")
                own = T.sblock_alloc_buffer((2,), "float32", scope="local")
                M = T.sblock_alloc_buffer((1,), "float32", scope="local")
                D = T.sblock_alloc_buffer((1,), "float32", scope="local")
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("load"):
                        i = T.axis.spatial(blocks * each, bx * each + ty)
                        t = T.axis.spatial(nt, tx)
                        r = T.axis.spatial(each, ty)
                        for s in T.unroll(steps):
                            for v in T.vectorized(width):
                                row[r, s, t, v] = T.if_then_else(
                                    i < rows and s * nt + t < accesses,
                                    X[i, (s * nt + t) * width + v],
                                    -T.infinity(dtype),
                                )
                        own[0] = LOWEST
                        for s in T.unroll(steps):
                            for v in T.vectorized(width):
                                x[v] = row[r, s, t, v]
                            for v in T.unroll(width):
                                own[0] = T.max(own[0], T.Cast("float32", x[v]))
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("M"):
                        i = T.axis.spatial(1, 0)
                        t = T.axis.reduce(nt, tx)
                        with T.init():
                            M[i] = LOWEST
                        M[i] = T.max(M[i], own[0])
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("exponentials"):
                        i = T.axis.spatial(blocks * each, bx * each + ty)
                        t = T.axis.spatial(nt, tx)
                        r = T.axis.spatial(each, ty)
                        own[1] = 0.0
                        for s in T.unroll(steps):
                            for v in T.vectorized(width):
                                x[v] = row[r, s, t, v]
                            for v in T.unroll(width):
                                own[1] += T.exp2((T.Cast("float32", x[v]) - M[0]) * LOG2_E)
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("D"):
                        i = T.axis.spatial(1, 0)
                        t = T.axis.reduce(nt, tx)
                        with T.init():
                            D[i] = 0.0
                        D[i] = D[i] + own[1]
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("store"):
                        i = T.axis.spatial(blocks * each, bx * each + ty)
                        t = T.axis.spatial(nt, tx)
                        r = T.axis.spatial(each, ty)
                        own[0] = 1.0 / D[0]
                        for s in T.unroll(steps):
                            if i < rows and s * nt + t < accesses:
                                for v in T.vectorized(width):
                                    x[v] = row[r, s, t, v]
                                for v in T.unroll(width):
                                    own[1] = T.exp2((T.Cast("float32", x[v]) - M[0]) * LOG2_E)
                                    x[v] = T.Cast(dtype, own[1] * own[0])
                                for v in T.vectorized(width):
                                    Y[i, (s * nt + t) * width + v] = x[v]

    return main
