"""Kernels that do nearly nothing but multiply and add: how fast can a GPU?"""

from typing import Any

from tvm.script import tirx as T


# From machine/gpu_in_numbers.
def fma_kernel(blocks: int, threads: int, chains: int, steps: int) -> Any:
    """y = y / 2 + x, `steps` times, for `chains` elements of each thread."""
    n, unrolled = blocks * threads * chains, min(steps, 64)

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((n,), "float32"), C: T.Buffer((n,), "float32")):
        # TVMScript sees the outer variables that the body uses
        T.func_attr({"elements": n})
        for b in T.thread_binding(blocks, thread="blockIdx.x"):
            x = T.sblock_alloc_buffer((chains,), scope="local")
            y = T.sblock_alloc_buffer((chains,), scope="local")
            for t in T.thread_binding(threads, thread="threadIdx.x"):
                with T.sblock("C"):
                    vb = T.axis.spatial(blocks, b)
                    vt = T.axis.spatial(threads, t)
                    for k in T.unroll(chains):
                        x[k] = A[(vb * chains + k) * threads + vt]
                        y[k] = x[k]
                    for _ in range(steps // unrolled):
                        for _ in T.unroll(unrolled):
                            for k in T.unroll(chains):
                                y[k] = y[k] * T.float32(0.5) + x[k]
                    for k in T.unroll(chains):
                        C[(vb * chains + k) * threads + vt] = y[k]

    return main


# From memory/register_banks.
def fma_tile(
    blocks: int, threads: int, rows: int, columns: int, steps: int, turned: bool = False
) -> Any:
    """y[i, j] = y[i, j] a[i] + b[j], `steps` times, for rows by columns elements of each thread."""
    each = rows * columns
    n = blocks * threads * each

    def place(p: Any) -> tuple[Any, Any]:
        return (p % rows, p // rows) if turned else (p // columns, p % columns)

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((n,), "float32"), C: T.Buffer((n,), "float32")):
        # TVMScript sees the outer variables that the body uses
        T.func_attr({"elements": n, "each": each})
        for bx in T.thread_binding(blocks, thread="blockIdx.x"):
            a = T.sblock_alloc_buffer((rows,), scope="local")
            b = T.sblock_alloc_buffer((columns,), scope="local")
            y = T.sblock_alloc_buffer((each,), scope="local")
            for tx in T.thread_binding(threads, thread="threadIdx.x"):
                with T.sblock("C"):
                    vb = T.axis.spatial(blocks, bx)
                    vt = T.axis.spatial(threads, tx)
                    for k in T.unroll(rows):
                        a[k] = A[(vb * each + k) * threads + vt]
                    for k in T.unroll(columns):
                        b[k] = A[(vb * each + k) * threads + vt]
                    for k in T.unroll(each):
                        y[k] = A[(vb * each + k) * threads + vt]
                    for _ in range(steps // 16):
                        for _ in T.unroll(16):
                            for p in T.unroll(each):
                                i = T.meta_var(place(p)[0])
                                j = T.meta_var(place(p)[1])
                                y[i * columns + j] = y[i * columns + j] * a[i] + b[j]
                    for k in T.unroll(each):
                        C[(vb * each + k) * threads + vt] = y[k]

    return main
