"""The smallest kernel with TMA and wgmma: one tile."""

from typing import Any

from tvm.backend.cuda.lang.pipeline import TMABar
from tvm.script import tirx as T

from d2ltvm.hopper.planning import DEPTH, check_integers, check_multiples
from d2ltvm.hopper.tiles import encode_descriptor, multiply, shared_tile, tma_load


# From hopper/wgmma.
def one_tile(columns: int = 64, repeats: int = 1, blocks: int = 1) -> Any:
    """A kernel for one tile: C = A Bᵀ, with A of (64, 64) and B of (columns, 64).

    >>> kernel = d2ltvm.build(hopper.one_tile(), "sm_90a")

    A and B are float16, C is float32. One thread of a warpgroup asks TMA for A and B,
    and all multiply when they are there.

    Args:
        columns: 8 to 256, a multiple of 8.
        repeats: how often the product is added up, to see how long one takes.
        blocks: that do the same; C is (blocks, 64, columns).

    Returns:
        A PrimFunc, for `d2ltvm.build`.

    Raises:
        ValueError: a size is not as above.
    """
    check_multiples(columns=columns)
    check_integers(repeats=repeats, blocks=blocks)
    if columns > 256:
        raise ValueError(f"columns is {columns}; expected a multiple of 8, up to 256")

    @T.prim_func
    def main(a_ptr: T.handle, b_ptr: T.handle, c_ptr: T.handle):
        A = T.match_buffer(a_ptr, (64, DEPTH), "float16", align=16)
        B = T.match_buffer(b_ptr, (columns, DEPTH), "float16", align=16)
        C = T.match_buffer(c_ptr, (blocks, 64, columns), "float32", align=16)
        T.device_entry()
        block = T.cta_id([blocks])
        T.warpgroup_id([1])
        thread = T.thread_id([128])

        pool = T.SMEMPool()
        sA = shared_tile(pool, (64, DEPTH))
        sB = shared_tile(pool, (columns, DEPTH))
        arrived = TMABar(pool, 1)
        arrived.init(1)
        pool.commit()
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()

        if thread == 0:
            arrived.arrive(0, (64 + columns) * DEPTH * 2)  # bytes to come
            tma_load(sA[:, :], A[0:64, 0:DEPTH], arrived.ptr_to([0]))
            tma_load(sB[:, :], B[0:columns, 0:DEPTH], arrived.ptr_to([0]))
        arrived.wait(0, 0)

        acc = T.alloc_local((columns // 2,), "float32")
        matrices = T.alloc_local((2,), "uint64")
        encode_descriptor(matrices[0], sA.ptr_to([0, 0]))
        encode_descriptor(matrices[1], sB.ptr_to([0, 0]))
        for r in T.serial(repeats):
            multiply(acc, matrices, 0, columns, r)
        T.ptx.wgmma.wait_group.sync.aligned(0)

        # Of each 8 columns a thread has two neighbours, and those 8 rows below.
        row: T.let[T.int32] = thread // 32 * 16 + thread % 32 // 4
        column: T.let[T.int32] = thread % 4 * 2
        for j in T.unroll(columns // 8):
            for i in T.unroll(4):
                C[block, row + i // 2 * 8, column + j * 8 + i % 2] = acc[j * 4 + i]

    return main
