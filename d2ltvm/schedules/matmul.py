"""Schedules of the matrix product, from one thread an element to tiles of warps."""

import math
from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from d2ltvm.compute.ops import matmul, schedule
from d2ltvm.schedules.arguments import Factors, checked
from d2ltvm.schedules.loops import bind_thread, fetch, pipeline, split_axis


# From memory/matmul.
@checked
def matmul_naive(n: int, m: int, l: int, nt: int = 32) -> Schedule:
    """Matrix product: one element a thread, neighbours in neighbouring rows."""
    sch = schedule(matmul(n, m, l))
    i, j, k = sch.get_loops(sch.get_sblock("C"))
    by, ty = split_axis([nt], sch, j)
    bx, tx = split_axis([nt], sch, i)
    sch.reorder(by, bx, ty, tx, k)
    bind_thread(sch, (by, bx, ty, tx), ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"))
    return sch


# Used in memory/matmul.
@checked
def matmul_coalesced(n: int, m: int, l: int, nt: int = 32) -> Schedule:
    """Matrix product: one element a thread, neighbours in neighbouring columns."""
    sch = schedule(matmul(n, m, l))
    i, j, k = sch.get_loops(sch.get_sblock("C"))
    by, ty = split_axis([nt], sch, i)
    bx, tx = split_axis([nt], sch, j)
    sch.reorder(by, bx, ty, tx, k)
    bind_thread(sch, (by, bx, ty, tx), ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"))
    return sch


# From memory/matmul.
def with_caches(sch: Schedule, tile: Factors, scope: str = "shared") -> tuple[SBlockRV, ...]:
    """Keep the sums of a product in registers, copies of A and B in shared memory.

    Sizes that are no multiple of the tile are filled up with zeros in the copies.
    """
    C = sch.get_sblock("C")
    sch.pad_einsum(C, tile)
    copies = [sch.cache_read(C, k, scope) for k in (0, 1)]
    sums = sch.cache_write(C, 0, "local")
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        name = sch.get(block).name_hint
        if name in ("A_pad", "B_pad"):
            sch.compute_inline(block)
        elif name == "C_pad":
            sch.compute_inline(sums)
            sums = block
    return C, sums, *copies


# From memory/matmul.
@checked
def matmul_shared(n: int, m: int, l: int, nt: int = 32) -> Schedule:
    """Matrix product: one element a thread, tiles of A and B in shared memory."""
    sch = schedule(matmul(n, m, l))
    C, sums, A, B = with_caches(sch, (nt, nt, nt))
    i, j, k = sch.get_loops(C)
    by, ty = split_axis([nt], sch, i)
    bx, tx = split_axis([nt], sch, j)
    ko, ki = split_axis([nt], sch, k)
    sch.reorder(by, bx, ty, tx, ko, ki)
    bind_thread(sch, (by, bx, ty, tx), ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"))
    sch.reverse_compute_at(sums, tx)
    for tile in (A, B):
        sch.compute_at(tile, ko)
        bind_thread(sch, sch.get_loops(tile)[-2:], ("threadIdx.y", "threadIdx.x"))
    sch.decompose_reduction(C, ko)
    return sch


# From memory/matmul.
@checked
def matmul_registers(
    n: int, m: int, l: int, lanes: int = 16, each: int = 8, depth: int = 16
) -> Schedule:
    """Matrix product: `lanes` by `lanes` threads a block, each with `each` by `each` elements."""
    sch = schedule(matmul(n, m, l))
    C, sums, A, B = with_caches(sch, (lanes * each, lanes * each, depth))
    a, b = (sch.cache_read(C, k, "local") for k in (0, 1))
    i, j, k = sch.get_loops(C)
    by, ty, y = split_axis([lanes, each], sch, i)
    bx, tx, x = split_axis([lanes, each], sch, j)
    ko, ki = split_axis([depth], sch, k)
    sch.reorder(by, bx, ty, tx, ko, ki, y, x)
    thread = sch.fuse(ty, tx)
    bind_thread(sch, (by, bx, thread), ("blockIdx.y", "blockIdx.x", "threadIdx.x"))
    sch.reverse_compute_at(sums, thread)
    for values, tile in ((a, A), (b, B)):
        sch.compute_at(values, ki)
        sch.compute_at(tile, ko)
        fetch(sch, tile, lanes * lanes)
    sch.decompose_reduction(C, ko)
    return sch


# From memory/register_banks.
def tile_loops(
    sch: Schedule,
    C: SBlockRV,
    rows: Factors,
    columns: Factors,
    depth: int,
    interleave: bool = False,
) -> tuple[LoopRV, LoopRV, LoopRV]:
    """Tile a product; `rows` and `columns` are pieces, warps, lanes, elements."""
    i, j, k = sch.get_loops(C)
    by, vy, wy, ly, y = split_axis(rows, sch, i)
    bx, vx, wx, lx, x = split_axis(columns, sch, j)
    ko, ki = split_axis([depth], sch, k)
    lanes = [ly, lx]
    # Interleaved, the last two bits of a lane are one for its row, one for its column.
    if interleave:
        (ly, y0), (lx, x0) = split_axis([2], sch, ly), split_axis([2], sch, lx)
        lanes = [ly, lx, y0, x0]
    sch.reorder(by, bx, vy, vx, wy, wx, *lanes, ko, ki, y, x)
    tx = sch.fuse(wy, wx, *lanes)
    tags = ("blockIdx.y", "blockIdx.x", "vthread.y", "vthread.x", "threadIdx.x")
    bind_thread(sch, (by, bx, vy, vx, tx), tags)
    return tx, ko, ki


# From memory/matmul_cublas.
@checked
def matmul_tiled(
    n: int, m: int, l: int,
    rows: Factors = (1, 1, 16, 8), columns: Factors = (1, 1, 16, 8), depth: int = 16,
    wide: bool = False, align: int = 0, unroll: bool = False, stages: int = 1,
    interleave: bool = False, scope: str = "shared",
) -> Schedule:  # fmt: skip
    """Matrix product: tiles in shared memory and in each thread's registers."""
    sch = schedule(matmul(n, m, l))
    C, sums, A, B = with_caches(sch, (math.prod(rows), math.prod(columns), depth), scope)
    a, b = (sch.cache_read(C, k, "local") for k in (0, 1))
    tx, ko, ki = tile_loops(sch, C, rows, columns, depth, interleave)
    sch.reverse_compute_at(sums, tx)
    for values, tile in ((a, A), (b, B)):
        sch.compute_at(values, ki)
        sch.compute_at(tile, ko)
    threads = math.prod((*rows[1:3], *columns[1:3]))
    fetch(sch, A, threads)
    fetch(sch, B, threads, 4 if wide else 1)
    if wide:
        widen(sch, A, a, b, sums)
    # The distance between rows of A's tile is then a multiple of 8, and `align` more.
    if align:
        sch.storage_align(A, 0, 0, 8, align)
    sch.decompose_reduction(C, ko)
    if unroll:
        sch.unroll(ki)
    if stages > 1:
        pipeline(sch, ko, stages)
    return sch


# From memory/register_banks.
def widen(sch: Schedule, A: SBlockRV, *copies: SBlockRV) -> None:
    """Turn A's tile, so that rows are neighbours, and copy four at once."""
    sch.transform_layout(A, ("write", 0), lambda i, k: (k, i))
    for copy in copies:
        sch.vectorize(sch.get_loops(copy)[-1])


# From memory/register_banks.
@checked
def matmul_vthread(n: int, m: int, l: int, **options: Any) -> Schedule:
    """Matrix product: a thread's 8 by 8 elements in four pieces, far apart."""
    pieces = (2, 1, 16, 4)
    return matmul_tiled(n, m, l, pieces, pieces, unroll=True, **options)


# From memory/matmul_cublas.
@checked
def matmul_warps(n: int, m: int, l: int, **options: Any) -> Schedule:
    """Matrix product: 128 by 256 a block, 64 by 64 a warp, 16 by 8 a thread."""
    return matmul_tiled(
        n, m, l, rows=(4, 2, 4, 4), columns=(2, 4, 8, 4), wide=True, align=4,
        unroll=True, stages=2, interleave=True, scope="shared.dyn", **options,
    )  # fmt: skip


# From memory/matmul_cpu.
@checked
def cpu_matmul(
    n: int,
    m: int,
    l: int,
    rows: int = 128,
    columns: int = 256,
    depth: int = 128,
    height: int = 8,
    width: int = 32,
) -> Schedule:
    """Matrix product on the CPU: packed tiles for the cache and for registers."""
    sch = schedule(matmul(n, m, l))
    C, sums, A, B = with_caches(sch, (rows, columns, depth), "global")
    i, j, k = sch.get_loops(C)
    io, im, ii = split_axis([rows // height, height], sch, i)
    jo, jm, jj = split_axis([columns // width, width], sch, j)
    ko, ki = split_axis([depth], sch, k)
    sch.reorder(io, jo, ko, im, jm, ki, ii, jj)
    sch.parallel(sch.fuse(io, jo))
    sch.reverse_compute_at(sums, sch.get_loops(C)[0], preserve_unit_loops=True)
    for tile in (A, B):
        sch.compute_at(tile, ko, preserve_unit_loops=True)
    sch.transform_layout(A, ("write", 0), lambda i, k: (i // height, k, i % height))
    sch.transform_layout(B, ("write", 0), lambda k, j: (j // width, k, j % width))
    for block in (B, sums):
        *_, v = split_axis([width], sch, sch.get_loops(block)[-1])
        sch.vectorize(v)
    sch.unroll(ii)
    sch.vectorize(jj)
    sch.decompose_reduction(C, ko)
    return sch
