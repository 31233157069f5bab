"""Kernels that follow chains through memory: each load needs the result of the one before."""

from typing import Any

from tvm.script import tirx as T


# From machine/latency.
def chase(n: int, steps: int, blocks: int = 1, threads: int = 1) -> Any:
    """Each thread follows A[A[A[...]]] for `steps` loads: from S[thread] to C[thread]."""

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((n,), "int32"),
        S: T.Buffer((blocks * threads,), "int32"),
        C: T.Buffer((blocks * threads,), "int32"),
    ):
        T.func_attr({"elements": n})
        for b in T.thread_binding(blocks, thread="blockIdx.x"):
            at = T.sblock_alloc_buffer((1,), "int32", scope="local")
            for t in T.thread_binding(threads, thread="threadIdx.x"):
                with T.sblock("C"):
                    v = T.axis.spatial(blocks * threads, b * threads + t)
                    at[0] = S[v]
                    for _ in range(steps):
                        at[0] = A[at[0]]
                    C[v] = at[0]

    return main


# From machine/latency.
def timed_chase(n: int, steps: int) -> Any:
    """One thread follows the chain from S[0] on, and writes down the clock before each load."""

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((n,), "int32"),
        S: T.Buffer((1,), "int32"),
        clocks: T.Buffer((steps + 1,), "uint64"),
        C: T.Buffer((1,), "int32"),
    ):
        T.func_attr({"elements": n})
        for b in T.thread_binding(1, thread="blockIdx.x"):
            at = T.sblock_alloc_buffer((1,), "int32", scope="local")
            for t in T.thread_binding(1, thread="threadIdx.x"):
                with T.sblock("C"):
                    v = T.axis.spatial(1, b + t)
                    at[0] = S[v]
                    for k in range(steps):
                        clocks[k] = T.cuda.clock64()
                        at[0] = A[at[0]]
                    C[v] = at[0]
                    clocks[steps] = T.cuda.clock64()

    return main
