"""The matrix product for Hopper: a producer fills a ring of tiles, two consumers multiply them."""

import math
from typing import Any

from tvm.backend.cuda.lang.pipeline import Pipeline, PipelineState
from tvm.script import tirx as T

from d2ltvm.hopper.planning import (
    DEPTH,
    ROWS,
    check_integers,
    check_multiples,
    check_ring,
    check_sms,
    group_size,
    tile_columns,
    tile_parts,
    with_plain_arguments,
)
from d2ltvm.hopper.tiles import (
    dependent_launch,
    encode_descriptor,
    multiply,
    registers_to_shared,
    release,
    release_last,
    shared_tile,
    tma_load,
    tma_store,
    wait_for_kernel_before,
)


# From hopper/product.
@T.meta_class
class ProductTile:
    """Where a tile of the result begins, in registers."""

    def __init__(self) -> None:
        self.row = T.local_scalar("int32")
        self.column = T.local_scalar("int32")


# From hopper/product.
@with_plain_arguments
def matmul_nt(
    n: int,
    m: int,
    l: int,
    columns: int | None = None,
    stages: int | None = None,
    parts: int | None = None,
    sms: int | None = None,
) -> Any:
    """A kernel for C = A Bᵀ: A is (n, l), B (m, l), C (n, m), all float16.

    >>> kernel = d2ltvm.build(hopper.matmul_nt(4096, 4096, 4096), "sm_90a")

    `nt` is BLAS's word for it: A as it is (N), B transposed (T). The kernel is warp-
    specialised: one thread, the producer, asks TMA for tiles of A and B, up to `stages`
    rounds ahead of the two warpgroups that multiply them, the consumers. And it is
    persistent: a block takes tile after tile. Sums are float32.

    Args:
        n, m, l: positive integers; m and l are multiples of 8: rows begin at 16 bytes.
        columns: of a tile, 64, 128 or 256; None for `tile_columns`.
        stages: slots of the ring; None for as many as fit.
        parts: in which results are stored one by one; None for `tile_parts`.
        sms: blocks that run at once; None for one on each SM (132 without a GPU).

    Returns:
        A PrimFunc, for `d2ltvm.build`.

    Raises:
        ValueError: a size is not as above, or shared memory is too small.
    """
    check_integers(n=n)
    check_multiples(m=m, l=l)
    sms = check_sms(sms)
    down, rounds = math.ceil(n / ROWS), math.ceil(l / DEPTH)
    columns = tile_columns(down, m, sms) if columns is None else columns
    parts = tile_parts(columns, rounds) if parts is None else parts
    stages = check_ring(columns, stages, parts)
    across, width = math.ceil(m / columns), columns // parts
    group = group_size(down)  # tiles below each other, which share columns of B
    tiles, nbytes = down * across, (ROWS + columns) * DEPTH * 2
    blocks = min(sms, tiles)

    @T.inline
    def rasterize(tile, index):
        tile.row = (index // (group * across) * group + index % group) * ROWS
        tile.column = index % (group * across) // group * columns

    @T.prim_func
    def main(a_ptr: T.handle, b_ptr: T.handle, c_ptr: T.handle):
        A = T.match_buffer(a_ptr, (n, l), "float16", align=16)
        B = T.match_buffer(b_ptr, (m, l), "float16", align=16)
        C = T.match_buffer(c_ptr, (n, m), "float16", align=16)
        T.device_entry()
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1})
        block = T.cta_id([blocks])
        warpgroup = T.warpgroup_id([3])  # 0 is the producer, 1 and 2 are consumers
        thread = T.thread_id([384])

        # All shared memory comes from one pool: another variable would move it off
        # the 1024 bytes at which the pattern of a swizzle begins.
        pool = T.SMEMPool()
        sA = shared_tile(pool, (stages, ROWS, DEPTH))
        sB = shared_tile(pool, (stages, columns, DEPTH))
        sC = shared_tile(pool, (2, width // 64, 64, 64))
        ring = Pipeline(pool, stages, full="tma", empty="mbar", init_full=1, init_empty=2)
        pool.commit()
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        wait_for_kernel_before()

        tile = ProductTile()
        slot = PipelineState(stages, 0)
        index: T.int32 = block
        # One if and else. With two ifs the compiler would not see that the threads of
        # a warpgroup agree on `slot`, and move it between registers in the inner loop.
        if warpgroup == 0:
            if thread == 0:
                while index < tiles:
                    rasterize(tile, index)
                    y: T.let[T.int32] = tile.row
                    x: T.let[T.int32] = tile.column
                    for k in T.serial(rounds):
                        ring.empty.wait(slot.stage, slot.phase ^ 1)  # all begin empty
                        ring.full.arrive(slot.stage, nbytes)  # that will come
                        z: T.let[T.int32] = k * DEPTH
                        tma_load(
                            sA[slot.stage, :, :],
                            A[y : y + ROWS, z : z + DEPTH],
                            ring.full.ptr_to([slot.stage]),
                        )
                        tma_load(
                            sB[slot.stage, :, :],
                            B[x : x + columns, z : z + DEPTH],
                            ring.full.ptr_to([slot.stage]),
                        )
                        slot.advance()
                    index = index + blocks
        else:
            consumer: T.let[T.int32] = warpgroup - 1
            acc = T.alloc_local((columns // 2,), "float32")
            pair = T.alloc_local((4,), "uint32")
            matrices = T.alloc_local((2,), "uint64")
            encode_descriptor(matrices[0], sA.ptr_to([0, consumer * 64, 0]))
            encode_descriptor(matrices[1], sB.ptr_to([0, 0, 0]))
            last: T.int32 = 0
            while index < tiles:
                rasterize(tile, index)
                for k in T.serial(rounds):
                    ring.full.wait(slot.stage, slot.phase)
                    multiply(acc, matrices, slot.stage, columns, k)
                    release(ring, thread, last, k)
                    last = slot.stage
                    slot.advance()
                release_last(ring, thread, last)
                # The epilogue: results go to shared memory, and from there TMA stores them.
                for h in T.unroll(parts):
                    registers_to_shared(acc, pair, sC, consumer, thread, h, width)
                    if thread % 128 == 0:
                        for j in T.unroll(width // 64):
                            y: T.let[T.int32] = tile.row + consumer * 64
                            x: T.let[T.int32] = tile.column + h * width + j * 64
                            tma_store(C[y : y + 64, x : x + 64], sC[consumer, j, :, :])
                        T.ptx.cp.async_.bulk.commit_group()
                index = index + blocks
            if thread % 128 == 0:
                T.ptx.cp.async_.bulk.wait_group(0)

    return dependent_launch(main)
