"""Kernels as small as can be in which the order of two accesses matters: who writes, who reads.

Two readings around a barrier; boxes that threads write and TMA stores; boxes that TMA brings and
threads read; a product whose matrices and sums threads have written. What stands between two
accesses is in each of them only once, so that it can be taken away.
"""

from typing import Any

from tvm.backend.cuda.lang.pipeline import TMABar
from tvm.script import tirx as T

from d2ltvm.hopper.first_kernels import (
    BOX,
    DEPTH,
    ROWS,
    THREADS,
    checked,
    describe,
    make_ready,
    one_wgmma,
    place,
    swizzled_rows,
)
from d2ltvm.hopper.tiles import tma_load, tma_store


# From hopper/order.
def turn_twice() -> Any:
    """C[0] = C[1] = A, 128 float32 turned round; each thread reads its element twice."""

    @T.prim_func
    def main(a_ptr: T.handle, c_ptr: T.handle):
        A = T.match_buffer(a_ptr, (THREADS,), "float32")
        C = T.match_buffer(c_ptr, (2, THREADS), "float32")
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([THREADS])
        pool = T.SMEMPool()
        tile = pool.alloc((THREADS,), "float32")
        pool.commit()

        tile[thread] = A[thread]
        T.cuda.cta_sync()
        C[0, thread] = tile[THREADS - 1 - thread]
        T.cuda.cta_sync()
        C[1, thread] = tile[THREADS - 1 - thread]

    return main


# From hopper/order.
@checked
def double_boxes(n: int) -> Any:
    """C = 2 A, of 8 n x 16 float32: 128 threads write a box, TMA stores it, n times."""
    high, wide = BOX

    @T.prim_func
    def main(a_ptr: T.handle, c_ptr: T.handle):
        A = T.match_buffer(a_ptr, (high * n, wide), "float32")
        C = T.match_buffer(c_ptr, (high * n, wide), "float32", align=16)
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([THREADS])
        pool = T.SMEMPool()
        tile = pool.alloc(BOX, "float32", align=128)
        pool.commit()

        y, x = T.meta_var((thread // wide, thread % wide))
        for r in T.serial(n):
            tile[y, x] = 2.0 * A[high * r + y, x]
            T.ptx.fence.proxy.async_.shared__cta()
            T.cuda.cta_sync()
            if thread == 0:
                tma_store(C[high * r : high * (r + 1), :], tile[:, :])
                T.ptx.cp.async_.bulk.commit_group()
                T.ptx.cp.async_.bulk.wait_group.read(0)
            T.cuda.cta_sync()

    return main


# From hopper/order.
@checked
def copy_boxes(n: int) -> Any:
    """C = A, of 8 n x 16 float32: TMA brings a box, 128 threads read it, n times."""
    high, wide = BOX

    @T.prim_func
    def main(a_ptr: T.handle, c_ptr: T.handle):
        A = T.match_buffer(a_ptr, (high * n, wide), "float32", align=16)
        C = T.match_buffer(c_ptr, (high * n, wide), "float32")
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([THREADS])
        pool = T.SMEMPool()
        slot = pool.alloc(BOX, "float32", align=128)
        full = TMABar(pool, 1)
        pool.commit()
        make_ready(full)

        y, x = T.meta_var((thread // wide, thread % wide))
        for r in T.serial(n):
            if thread == 0:
                full.arrive(0, high * wide * 4)
                tma_load(slot[:, :], A[high * r : high * (r + 1), :], full.ptr_to([0]))
            full.wait(0, r % 2)
            C[high * r + y, x] = slot[y, x]
            T.ptx.fence.proxy.async_.shared__cta()
            T.cuda.cta_sync()

    return main


# From hopper/order.
@T.inline
def bring(tile, X, rows, depth, thread):
    """Threads copy a matrix to shared memory, a row each, by ordinary stores."""
    for j in T.serial(depth):
        if thread < rows:
            tile[thread, j] = X[thread, j]


# From hopper/order.
@checked
def add_product(columns: int = 8) -> Any:
    """C = D + A Bᵀ by one wgmma: threads bring A, (64, 16), B, (columns, 16), and the sums D."""

    @T.prim_func
    def main(a_ptr: T.handle, b_ptr: T.handle, d_ptr: T.handle, c_ptr: T.handle):
        A = T.match_buffer(a_ptr, (ROWS, DEPTH), "float16")
        B = T.match_buffer(b_ptr, (columns, DEPTH), "float16")
        D = T.match_buffer(d_ptr, (ROWS, columns), "float32")
        C = T.match_buffer(c_ptr, (ROWS, columns), "float32")
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([THREADS])
        pool = T.SMEMPool()
        sA, sB = swizzled_rows(pool, ROWS), swizzled_rows(pool, columns)
        pool.commit()
        sums = T.alloc_local((columns // 2,), "float32")
        matrices = T.alloc_local((2,), "uint64")
        describe(matrices[0], sA, DEPTH)
        describe(matrices[1], sB, DEPTH)

        bring(sA, A, ROWS, DEPTH, thread)
        bring(sB, B, columns, DEPTH, thread)
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        for i in T.unroll(columns // 2):
            row, column = T.meta_var(place(thread, i))
            sums[i] = D[row, column]
        T.ptx.wgmma.fence.sync.aligned()
        one_wgmma(sums, matrices[0], matrices[1], columns, True)
        T.ptx.wgmma.commit_group.sync.aligned()
        T.ptx.wgmma.wait_group.sync.aligned(0)
        for i in T.unroll(columns // 2):
            row, column = T.meta_var(place(thread, i))
            C[row, column] = sums[i]

    return main
