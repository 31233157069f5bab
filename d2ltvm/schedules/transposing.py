"""Kernels that move each number once, to another place: every s-th element, and transposing."""

from typing import Any

from tvm import te
from tvm.s_tir import Schedule
from tvm.script import tirx as T

from d2ltvm.compute.ops import schedule
from d2ltvm.schedules.arguments import Factors
from d2ltvm.schedules.loops import bind_thread, split_axis


# From memory/seeing_memory.
def strided(n: int, stride: int, dtype: str = "float32", nt: int = 64) -> Schedule:
    """C[i] = A[stride * i], one element a thread."""
    A = te.placeholder((n * stride,), dtype, name="A")
    C = te.compute((n,), lambda i: A[i * stride], name="C")
    sch = schedule((A, C))
    bx, tx = split_axis([nt], sch, sch.get_loops(sch.get_sblock("C"))[0])
    bind_thread(sch, (bx, tx), ("blockIdx.x", "threadIdx.x"))
    return sch


# From memory/transpose.
def transpose(n: int, lanes: Factors = (1, 32), shared: bool = True, pad: int = 0) -> Schedule:
    """C = A transposed: blocks of 32 by 32, in which a warp writes `lanes` rows and columns."""
    A = te.placeholder((n, n), name="A")
    C = te.compute((n, n), lambda i, j: A[j, i], name="C")
    sch = schedule((A, C))
    block = sch.get_sblock("C")
    tile = sch.cache_read(block, 0, "shared") if shared else None
    i, j = sch.get_loops(block)
    by, iy, il = split_axis([32 // lanes[0], lanes[0]], sch, i)
    bx, jy, jl = split_axis([32 // lanes[1], lanes[1]], sch, j)
    sch.reorder(by, bx, iy, jy, il, jl)
    step, ty = split_axis([8], sch, sch.fuse(iy, jy))
    tx = sch.fuse(il, jl)
    sch.reorder(by, bx, ty, tx, step)
    tags = ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x")
    bind_thread(sch, (by, bx, ty, tx), tags)
    if shared:
        sch.compute_at(tile, bx)
        y, x = sch.get_loops(tile)[-2:]
        step, y = split_axis([8], sch, y)
        bind_thread(sch, (y, x), tags[2:])
        if pad:
            sch.storage_align(tile, 0, 0, 32, pad)
    return sch


# From memory/transpose.
def swizzled(n: int) -> Any:
    """C = A transposed, by way of a tile whose rows are permuted."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((n, n), "float32"), C: T.Buffer((n, n), "float32")):
        T.func_attr({"tirx.noalias": True, "n": n})
        for by in T.thread_binding(n // 32, thread="blockIdx.y"):
            for bx in T.thread_binding(n // 32, thread="blockIdx.x"):
                tile = T.sblock_alloc_buffer((32, 32), "float32", scope="shared")
                for ty in T.thread_binding(8, thread="threadIdx.y"):
                    for tx in T.thread_binding(32, thread="threadIdx.x"):
                        for step in range(4):
                            with T.sblock("in"):
                                u, v, x = T.axis.remap("SSS", [by, bx, tx])
                                y = T.axis.spatial(32, step * 8 + ty)
                                tile[y, x ^ y] = A[v * 32 + y, u * 32 + x]
                for ty in T.thread_binding(8, thread="threadIdx.y"):
                    for tx in T.thread_binding(32, thread="threadIdx.x"):
                        for step in range(4):
                            with T.sblock("out"):
                                u, v, y = T.axis.remap("SSS", [by, bx, tx])
                                x = T.axis.spatial(32, step * 8 + ty)
                                C[u * 32 + x, v * 32 + y] = tile[y, x ^ y]

    return main
