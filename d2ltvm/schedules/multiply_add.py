"""A kernel that does nearly nothing but multiply and add: how fast can a GPU?"""

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
