"""The smallest kernels in TIRx, one idea each: thread by thread, from a copy to one wgmma.

A copy; shared memory and a barrier between threads; an mbarrier between one thread and others; a
box that TMA brings; one product of a warpgroup. They compute nothing useful, and run on Hopper.
"""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, ParamSpec

from tvm.backend.cuda.lang.pipeline import MBarrier, TMABar
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T

from d2ltvm.errors import is_integer, shown
from d2ltvm.hopper.planning import LARGEST_SIZE
from d2ltvm.hopper.tiles import ALONG_ROWS, AS_IT_IS, SWIZZLES, UNIT, UNUSED, tma_load

P = ParamSpec("P")

THREADS = 128  # of a block: a warpgroup
BOX = (8, 16)  # rows and columns of a tile: a float32 for each thread
ROWS, DEPTH = 64, 16  # of A, in one wgmma of float16

# What arguments may be: at least, at most, and a multiple of; others are 1 to LARGEST_SIZE.
LIMITS = {
    "m": (4, LARGEST_SIZE, 4),
    "columns": (8, 256, 8),
    **dict.fromkeys(("row", "column"), (-LARGEST_SIZE, LARGEST_SIZE, 1)),
}


def checked(function: Callable[P, Any]) -> Callable[P, Any]:
    """A kernel's function that refuses sizes which there is no kernel for."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checking(*args: P.args, **kwargs: P.kwargs) -> Any:
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            least, most, step = LIMITS.get(name, (1, LARGEST_SIZE, 1))
            if not is_integer(value) or not least <= value <= most or value % step:
                what = "an integer" if step == 1 else f"a multiple of {step}"
                raise ValueError(
                    f"{name} is {shown(value)}; expected {what} from {least:,} to {most:,}"
                )
            bound.arguments[name] = int(value)  # TVM's parser does not know NumPy's
        return function(*bound.args, **bound.kwargs)

    return checking


# From hopper/tirx.
@checked
def copy(n: int) -> Any:
    """C = A, of n float32: each thread copies an element."""
    blocks = math.ceil(n / THREADS)

    @T.prim_func
    def main(a_ptr: T.handle, c_ptr: T.handle):
        A = T.match_buffer(a_ptr, (n,), "float32")
        C = T.match_buffer(c_ptr, (n,), "float32")
        T.device_entry()
        block = T.cta_id([blocks])
        thread = T.thread_id([THREADS])
        i: T.let[T.int32] = block * THREADS + thread
        if i < n:
            C[i] = A[i]

    return main


# From hopper/tirx.
@checked
def reverse(n: int) -> Any:
    """C = A, each tile of 128 float32 turned round, by way of shared memory."""
    blocks = math.ceil(n / THREADS)

    @T.prim_func
    def main(a_ptr: T.handle, c_ptr: T.handle):
        A = T.match_buffer(a_ptr, (n,), "float32")
        C = T.match_buffer(c_ptr, (n,), "float32")
        T.device_entry()
        block = T.cta_id([blocks])
        thread = T.thread_id([THREADS])

        pool = T.SMEMPool()
        tile = pool.alloc((THREADS,), "float32")
        pool.commit()

        first: T.let[T.int32] = block * THREADS
        many: T.let[T.int32] = T.min(THREADS, n - first)
        if thread < many:
            tile[thread] = A[first + thread]
        T.cuda.cta_sync()
        if thread < many:
            C[first + thread] = tile[many - 1 - thread]

    return main


# From hopper/tirx.
@checked
def hand_over(n: int) -> Any:
    """C[r, t] = A[r]: a thread hands n float32 to 128 others, one in each round."""

    @T.prim_func
    def main(a_ptr: T.handle, c_ptr: T.handle):
        A = T.match_buffer(a_ptr, (n,), "float32")
        C = T.match_buffer(c_ptr, (n, THREADS), "float32")
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([2 * THREADS])

        pool = T.SMEMPool()
        slot = pool.alloc((1,), "float32")
        full, empty = MBarrier(pool, 1), MBarrier(pool, 1)
        pool.commit()
        full.init(1)
        empty.init(THREADS)
        T.cuda.cta_sync()

        if thread == 0:
            for r in T.serial(n):
                empty.wait(0, (r + 1) % 2)
                slot[0] = A[r]
                full.arrive(0)
        elif thread >= THREADS:
            for r in T.serial(n):
                full.wait(0, r % 2)
                C[r, thread - THREADS] = slot[0]
                empty.arrive(0)

    return main


# From hopper/tirx.
@T.inline
def make_ready(barrier):
    """Let a barrier wait for one thread, and let TMA and all threads see it."""
    barrier.init(1)
    T.ptx.fence.proxy.async_.shared__cta()
    T.cuda.cta_sync()


# From hopper/tirx.
@checked
def one_box(n: int, m: int, row: int, column: int) -> Any:
    """C = 8 x 16 float32 of A, n x m, from (row, column) on: zeros outside of A."""
    high, wide = BOX

    @T.prim_func
    def main(a_ptr: T.handle, c_ptr: T.handle):
        A = T.match_buffer(a_ptr, (n, m), "float32", align=16)
        C = T.match_buffer(c_ptr, BOX, "float32")
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([THREADS])

        pool = T.SMEMPool()
        tile = pool.alloc(BOX, "float32", align=128)
        arrived = TMABar(pool, 1)
        pool.commit()
        make_ready(arrived)

        if thread == 0:
            arrived.arrive(0, high * wide * 4)  # bytes to come
            box = A[row : row + high, column : column + wide]
            tma_load(tile[:, :], box, arrived.ptr_to([0]))
        arrived.wait(0, 0)
        y, x = T.meta_var((thread // wide, thread % wide))
        C[y, x] = tile[y, x]

    return main


# From hopper/tirx.
def swizzled_rows(pool: Any, rows: int, depth: int = DEPTH) -> Any:
    """A tile of float16 in shared memory, swizzled as TMA writes and wgmma reads it."""
    layout = mma_shared_layout("float16", SWIZZLES[depth], (rows, depth))
    return pool.alloc((rows, depth), "float16", align=1024, layout=layout)


# From hopper/tirx.
@T.inline
def fetch_both(sA, sB, A, B, barrier, nbytes):
    """Ask TMA for two whole matrices, of so many bytes together."""
    barrier.arrive(0, nbytes)
    tma_load(sA[:, :], A[:, :], barrier.ptr_to([0]))
    tma_load(sB[:, :], B[:, :], barrier.ptr_to([0]))


# From hopper/tirx.
@T.inline
def describe(descriptor, tile, depth):
    """Write where a tile begins, and how its rows lie, into 64 bits."""
    eight_rows = T.meta_var(8 * depth * 2 // UNIT)
    T.cuda.wgmma.encode_matrix_descriptor(
        T.address_of(descriptor), tile.ptr_to([0, 0]), UNUSED, eight_rows, SWIZZLES[depth]
    )


# From hopper/tirx.
@T.inline
def one_wgmma(sums, a, b, columns, add):
    """Begin to multiply what two descriptors name: add to the sums, or overwrite them."""
    T.ptx[f"wgmma.mma_async.sync.aligned.m{ROWS}n{columns}k{DEPTH}.f32.f16.f16"](
        *[sums[i] for i in range(columns // 2)], a, b, T.ptx.pred(add),
        AS_IT_IS, AS_IT_IS, ALONG_ROWS, ALONG_ROWS,
    )  # fmt: skip


# From hopper/tirx.
def place(thread: Any, i: Any) -> tuple[Any, Any]:
    """Row and column of the sum that is in register i of a thread."""
    warp, lane = thread // 32, thread % 32
    return warp * 16 + lane // 4 + i % 4 // 2 * 8, i // 4 * 8 + lane % 4 * 2 + i % 2


# From hopper/tirx.
@checked
def one_product(columns: int = 8) -> Any:
    """C = A Bᵀ by one wgmma: A is (64, 16), B (columns, 16), C (64, columns)."""
    nbytes = (ROWS + columns) * DEPTH * 2

    @T.prim_func
    def main(a_ptr: T.handle, b_ptr: T.handle, c_ptr: T.handle):
        A = T.match_buffer(a_ptr, (ROWS, DEPTH), "float16", align=16)
        B = T.match_buffer(b_ptr, (columns, DEPTH), "float16", align=16)
        C = T.match_buffer(c_ptr, (ROWS, columns), "float32")
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([THREADS])
        pool = T.SMEMPool()
        sA, sB = swizzled_rows(pool, ROWS), swizzled_rows(pool, columns)
        arrived = TMABar(pool, 1)
        pool.commit()
        make_ready(arrived)
        if thread == 0:
            fetch_both(sA, sB, A, B, arrived, nbytes)
        arrived.wait(0, 0)

        sums = T.alloc_local((columns // 2,), "float32")
        matrices = T.alloc_local((2,), "uint64")
        describe(matrices[0], sA, DEPTH)
        describe(matrices[1], sB, DEPTH)
        T.ptx.wgmma.fence.sync.aligned()
        one_wgmma(sums, matrices[0], matrices[1], columns, False)
        T.ptx.wgmma.commit_group.sync.aligned()
        T.ptx.wgmma.wait_group.sync.aligned(0)
        for i in T.unroll(columns // 2):
            row, column = T.meta_var(place(thread, i))
            C[row, column] = sums[i]

    return main
