"""Layer norm in TVMScript: each row is read twice, or once and kept, as in `softmax`."""

from typing import Any

from tvm.script import tirx as T

from d2ltvm.schedules.arguments import checked
from d2ltvm.schedules.softmax import in_accesses


# Used in reductions/softmax.
@checked
def layer_norm_welford(
    rows: int,
    cols: int,
    dtype: str = "float16",
    nt: int = 256,
    width: int = 8,
    each: int = 1,
    eps: float = 1e-5,
) -> Any:
    """Layer norm of rows that are read twice: mean and variance in one pass."""
    width, accesses, steps, blocks = in_accesses(rows, cols, nt, width, each, dtype)

    @T.prim_func(s_tir=True)
    def main(
        X: T.Buffer((rows, cols), dtype),
        G: T.Buffer((cols,), dtype),
        B: T.Buffer((cols,), dtype),
        Y: T.Buffer((rows, cols), dtype),
    ):
        T.func_attr({"tirx.noalias": True, "rows": rows, "cols": cols})
        for bx in T.thread_binding(blocks, thread="blockIdx.x"):
            for ty in T.thread_binding(each, thread="threadIdx.y"):
                x = T.sblock_alloc_buffer((width,), dtype, scope="local")
                g = T.sblock_alloc_buffer((width,), dtype, scope="local")
                b = T.sblock_alloc_buffer((width,), dtype, scope="local")
                own = T.sblock_alloc_buffer((4,), "float32", scope="local")
                M = T.sblock_alloc_buffer((1,), "float32", scope="local")
                D = T.sblock_alloc_buffer((1,), "float32", scope="local")
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("one pass"):
                        i = T.axis.spatial(blocks * each, bx * each + ty)
                        t = T.axis.spatial(nt, tx)
                        own[0] = 0.0  # elements so far, their mean, the squares of deviations
                        own[1] = 0.0
                        own[2] = 0.0
                        for s in range(steps):
                            if i < rows and s * nt + t < accesses:
                                for v in T.vectorized(width):
                                    x[v] = X[i, (s * nt + t) * width + v]
                                for v in T.unroll(width):
                                    own[0] += 1.0
                                    own[3] = T.Cast("float32", x[v]) - own[1]
                                    own[1] += own[3] / own[0]
                                    own[2] += own[3] * (T.Cast("float32", x[v]) - own[1])
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("M"):
                        i = T.axis.spatial(1, 0)
                        t = T.axis.reduce(nt, tx)
                        with T.init():
                            M[i] = 0.0
                        M[i] = M[i] + own[0] * own[1] / T.float32(cols)
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("D"):
                        i = T.axis.spatial(1, 0)
                        t = T.axis.reduce(nt, tx)
                        with T.init():
                            D[i] = 0.0
                        D[i] = D[i] + (own[2] + own[0] * (own[1] - M[0]) * (own[1] - M[0]))
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("second pass"):
                        i = T.axis.spatial(blocks * each, bx * each + ty)
                        t = T.axis.spatial(nt, tx)
                        own[3] = T.rsqrt(D[0] / T.float32(cols) + eps)
                        for s in range(steps):
                            if i < rows and s * nt + t < accesses:
                                for v in T.vectorized(width):
                                    x[v] = X[i, (s * nt + t) * width + v]
                                    g[v] = G[(s * nt + t) * width + v]
                                    b[v] = B[(s * nt + t) * width + v]
                                for v in T.unroll(width):
                                    own[0] = (T.Cast("float32", x[v]) - M[0]) * own[3]
                                    x[v] = T.Cast(
                                        dtype,
                                        own[0] * T.Cast("float32", g[v]) + T.Cast("float32", b[v]),
                                    )
                                for v in T.vectorized(width):
                                    Y[i, (s * nt + t) * width + v] = x[v]

    return main


# Used in reductions/softmax.
@checked
def layer_norm_held(
    rows: int,
    cols: int,
    dtype: str = "float16",
    nt: int = 256,
    width: int = 8,
    each: int = 1,
    eps: float = 1e-5,
) -> Any:
    """Layer norm of rows that are read once and kept in registers."""
    width, accesses, steps, blocks = in_accesses(rows, cols, nt, width, each, dtype)

    @T.prim_func(s_tir=True)
    def main(
        X: T.Buffer((rows, cols), dtype),
        G: T.Buffer((cols,), dtype),
        B: T.Buffer((cols,), dtype),
        Y: T.Buffer((rows, cols), dtype),
    ):
        T.func_attr({"tirx.noalias": True, "rows": rows, "cols": cols})
        for bx in T.thread_binding(blocks, thread="blockIdx.x"):
            for ty in T.thread_binding(each, thread="threadIdx.y"):
                x = T.sblock_alloc_buffer((steps, width), dtype, scope="local")
                g = T.sblock_alloc_buffer((width,), dtype, scope="local")
                b = T.sblock_alloc_buffer((width,), dtype, scope="local")
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
                                    T.Cast(dtype, 0.0),
                                )
                        own[0] = 0.0
                        for s in T.unroll(steps):
                            for v in T.unroll(width):
                                own[0] += T.Cast("float32", x[s, v])
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("M"):
                        i = T.axis.spatial(1, 0)
                        t = T.axis.reduce(nt, tx)
                        with T.init():
                            M[i] = 0.0
                        M[i] = M[i] + own[0] / T.float32(cols)
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("deviations"):
                        i = T.axis.spatial(blocks * each, bx * each + ty)
                        t = T.axis.spatial(nt, tx)
                        own[1] = 0.0
                        for s in T.unroll(steps):
                            if s * nt + t < accesses:
                                for v in T.unroll(width):
                                    own[0] = T.Cast("float32", x[s, v]) - M[0]
                                    own[1] += own[0] * own[0]
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
                        own[1] = T.rsqrt(D[0] / T.float32(cols) + eps)
                        for s in T.unroll(steps):
                            if i < rows and s * nt + t < accesses:
                                for v in T.vectorized(width):
                                    g[v] = G[(s * nt + t) * width + v]
                                    b[v] = B[(s * nt + t) * width + v]
                                for v in T.unroll(width):
                                    own[0] = (T.Cast("float32", x[s, v]) - M[0]) * own[1]
                                    x[s, v] = T.Cast(
                                        dtype,
                                        own[0] * T.Cast("float32", g[v]) + T.Cast("float32", b[v]),
                                    )
                                for v in T.vectorized(width):
                                    Y[i, (s * nt + t) * width + v] = x[s, v]

    return main


# Used in reductions/softmax.
@checked
def layer_norm_shared(
    rows: int,
    cols: int,
    dtype: str = "float16",
    nt: int = 256,
    width: int = 8,
    each: int = 1,
    eps: float = 1e-5,
) -> Any:
    """Layer norm of rows that are read once and kept in shared memory."""
    width, accesses, steps, blocks = in_accesses(rows, cols, nt, width, each, dtype)

    @T.prim_func(s_tir=True)
    def main(
        X: T.Buffer((rows, cols), dtype),
        G: T.Buffer((cols,), dtype),
        B: T.Buffer((cols,), dtype),
        Y: T.Buffer((rows, cols), dtype),
    ):
        T.func_attr({"tirx.noalias": True, "rows": rows, "cols": cols})
        for bx in T.thread_binding(blocks, thread="blockIdx.x"):
            for ty in T.thread_binding(each, thread="threadIdx.y"):
                row = T.sblock_alloc_buffer((each, steps, nt, width), dtype, scope="shared.dyn")
                x = T.sblock_alloc_buffer((width,), dtype, scope="local")
                g = T.sblock_alloc_buffer((width,), dtype, scope="local")
                b = T.sblock_alloc_buffer((width,), dtype, scope="local")
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
                                    T.Cast(dtype, 0.0),
                                )
                        own[0] = 0.0
                        for s in T.unroll(steps):
                            for v in T.vectorized(width):
                                x[v] = row[r, s, t, v]
                            for v in T.unroll(width):
                                own[0] += T.Cast("float32", x[v])
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("M"):
                        i = T.axis.spatial(1, 0)
                        t = T.axis.reduce(nt, tx)
                        with T.init():
                            M[i] = 0.0
                        M[i] = M[i] + own[0] / T.float32(cols)
                for tx in T.thread_binding(nt, thread="threadIdx.x"):
                    with T.sblock("deviations"):
                        i = T.axis.spatial(blocks * each, bx * each + ty)
                        t = T.axis.spatial(nt, tx)
                        r = T.axis.spatial(each, ty)
                        own[1] = 0.0
                        for s in T.unroll(steps):
                            if s * nt + t < accesses:
                                for v in T.vectorized(width):
                                    x[v] = row[r, s, t, v]
                                for v in T.unroll(width):
                                    own[0] = T.Cast("float32", x[v]) - M[0]
                                    own[1] += own[0] * own[0]
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
                        own[1] = T.rsqrt(D[0] / T.float32(cols) + eps)
                        for s in T.unroll(steps):
                            if i < rows and s * nt + t < accesses:
                                for v in T.vectorized(width):
                                    x[v] = row[r, s, t, v]
                                    g[v] = G[(s * nt + t) * width + v]
                                    b[v] = B[(s * nt + t) * width + v]
                                for v in T.unroll(width):
                                    own[0] = (T.Cast("float32", x[v]) - M[0]) * own[1]
                                    x[v] = T.Cast(
                                        dtype,
                                        own[0] * T.Cast("float32", g[v]) + T.Cast("float32", b[v]),
                                    )
                                for v in T.vectorized(width):
                                    Y[i, (s * nt + t) * width + v] = x[v]

    return main
