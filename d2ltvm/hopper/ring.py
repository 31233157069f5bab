"""A ring of tiles in shared memory: a producer fills it, a consumer empties it, barriers between.

What the kernels do with the tiles is simple, they add up columns, so that what one sees of them is
how tiles come. They are written in TIRx, thread by thread, and run on Hopper.
"""

import math
from typing import Any

import numpy as np
from tvm.backend.cuda.lang.pipeline import Pipeline, PipelineState
from tvm.script import tirx as T
from tvm.tirx.layout import S, TileLayout

from d2ltvm.hopper.patch import changed
from d2ltvm.hopper.planning import SHARED_PER_BLOCK, check_integers, check_sms
from d2ltvm.hopper.tiles import tma_load

WIDTH = 64  # float16 of a row, which are 128 bytes: once around the banks of shared memory
LINES = 16  # rows that 128 threads read at once, 16 bytes each
EVENTS = (
    "asked",
    "arrived",
    "taken",
    "handed back",
)  # of a tile: what `stream_watched` keeps clocks of


# From hopper/feeding.
def stream(n: int, rows: int = 128, stages: int = 4, laps: int = 1, sms: int | None = None) -> Any:
    """A kernel that adds up the columns of X, which TMA brings through a ring of tiles.

    >>> kernel = d2ltvm.build(ring.stream(2**20), "sm_90a")

    X is (n, 64) float16. Block k takes tiles k, k + blocks, …, of `rows` rows each. One
    thread asks TMA for tiles, up to `stages` of them ahead of the warpgroup that adds
    them up. The sums are float32 of (blocks, 16, 64): those of every 16th row of a tile.

    Args:
        n: rows of X, a positive integer.
        rows: of a tile, 16 to 256, a multiple of 16.
        stages: slots of the ring.
        laps: how often a block goes through its tiles.
        sms: blocks that run at once; None for one on each SM (132 without a GPU).

    Returns:
        A PrimFunc, for `d2ltvm.build`.

    Raises:
        ValueError: a size is not as above, or shared memory is too small.
    """
    tiles, blocks = check_stream(n, rows, stages, laps, sms)
    nbytes = rows * WIDTH * 2

    @T.prim_func
    def main(x_ptr: T.handle, sums_ptr: T.handle):
        X = T.match_buffer(x_ptr, (n, WIDTH), "float16", align=16)
        sums_of = T.match_buffer(sums_ptr, (blocks, LINES, WIDTH), "float32", align=16)
        T.device_entry()
        block = T.cta_id([blocks])
        warpgroup = T.warpgroup_id([2])  # 0 is the producer, 1 the consumer
        thread = T.thread_id([256])

        pool = T.SMEMPool()
        tile = plain_tile(pool, (stages, rows, WIDTH))
        ring = Pipeline(pool, stages, full="tma", empty="mbar", init_full=1, init_empty=128)
        pool.commit()
        T.ptx.fence.proxy.async_.shared__cta()  # TMA, too, shall see the barriers
        T.cuda.cta_sync()

        slot = PipelineState(stages, 0)
        if warpgroup == 0:
            if thread == 0:
                for _ in T.serial(laps):
                    at: T.int32 = block
                    while at < tiles:
                        ring.empty.wait(slot.stage, slot.phase ^ 1)  # all begin empty
                        ring.full.arrive(slot.stage, nbytes)  # that will come
                        y: T.let[T.int32] = at * rows
                        tma_load(
                            tile[slot.stage, :, :],
                            X[y : y + rows, 0:WIDTH],
                            ring.full.ptr_to([slot.stage]),
                        )
                        slot.advance()
                        at = at + blocks
        else:
            sums = T.alloc_local((8,), "float32")
            eight = T.alloc_local((8,), "float16")
            clear(sums)
            for _ in T.serial(laps):
                at: T.int32 = block
                while at < tiles:
                    ring.full.wait(slot.stage, slot.phase)
                    add_slot(sums, eight, tile, slot.stage, thread, rows)
                    T.ptx.fence.proxy.async_.shared__cta()  # TMA overwrites it next
                    ring.empty.arrive(slot.stage)  # each thread, when it has read
                    slot.advance()
                    at = at + blocks
            write_sums(sums_of, sums, block, thread)

    return main


# From hopper/ring.
def stream_watched(
    n: int,
    rows: int = 128,
    stages: int = 4,
    pause: int = 0,
    rounds: int = 8,
    sms: int | None = None,
) -> Any:
    """The kernel of `stream`, but slots are held, and block 0 writes down when tiles come and go.

    >>> kernel = d2ltvm.build(ring.stream_watched(2**20, rounds=48), "sm_90a")

    A third warpgroup waits for `full`, to see when tiles arrive. Clocks are uint64 of
    (4, rounds), behind the sums: when a tile was asked for, arrived, was taken and handed
    back (by the first thread that adds up).

    Args:
        n, rows, stages, sms: as for `stream`.
        pause: cycles for which a slot is held at least, once its tile has been taken.
        rounds: of block 0 whose clocks are kept.

    Returns:
        A PrimFunc, for `d2ltvm.build`.

    Raises:
        ValueError: a size is not as above, or block 0 has fewer rounds.
    """
    tiles, blocks = check_stream(n, rows, stages, 1, sms)
    check_integers(0, pause=pause, rounds=rounds)
    if not 1 <= rounds <= math.ceil(tiles / blocks):
        most = math.ceil(tiles / blocks)
        raise ValueError(f"rounds is {rounds}; expected 1 to {most}, which block 0 has")

    @T.inline
    def note(clocks, event, block, r):
        if block == 0 and r < rounds:
            clocks[event, r] = T.cuda.clock64()

    @T.inline
    def hold(start):
        now: T.uint64 = start
        while now - start < T.uint64(pause):
            now = T.cuda.clock64()

    @T.inline
    def note_arrivals(ring, slot, clocks, block, thread):
        if block == 0 and thread == 256:
            for r in T.serial(rounds):
                ring.full.wait(slot.stage, slot.phase)
                clocks[1, r] = T.cuda.clock64()
                slot.advance()

    return changed(
        stream, *WATCHED, rounds=rounds, note=note, hold=hold, note_arrivals=note_arrivals
    )(n, rows, stages, 1, sms)


# Edits of `stream`: what to replace, by what. The events are those of EVENTS.
WATCHED = (
    ("sums_ptr: T.handle):", "sums_ptr: T.handle, clocks_ptr: T.handle):\n"
     '        clocks = T.match_buffer(clocks_ptr, (4, rounds), "uint64", align=16)'),
    ("T.warpgroup_id([2])", "T.warpgroup_id([3])"),
    ("T.thread_id([256])", "T.thread_id([384])"),
    ("slot = PipelineState(stages, 0)\n",
     "slot = PipelineState(stages, 0)\n        r: T.int32 = 0\n"),
    ("slot.advance()", "slot.advance(); r = r + 1"),
    ("ring.full.arrive(", "note(clocks, 0, block, r); ring.full.arrive("),
    ("        else:\n", "        elif warpgroup == 1:\n"),
    ("ring.full.wait(slot.stage, slot.phase)\n",
     "ring.full.wait(slot.stage, slot.phase)\n"
     "                    start: T.uint64 = T.cuda.clock64()\n"
     "                    if thread == 128:\n"
     "                        note(clocks, 2, block, r)\n"),
    ("ring.empty.arrive(slot.stage)",
     "hold(start); ring.empty.arrive(slot.stage)\n"
     "                    if thread == 128:\n"
     "                        note(clocks, 3, block, r)\n"
     "                   "),
    ("write_sums(sums_of, sums, block, thread)\n",
     "write_sums(sums_of, sums, block, thread)\n"
     "        else:\n"
     "            note_arrivals(ring, slot, clocks, block, thread)\n"),
)  # fmt: skip


# From hopper/ring.
def stream_by_threads(
    n: int, rows: int = 128, stages: int = 4, laps: int = 1, sms: int | None = None
) -> Any:
    """The kernel of `stream`, but 128 threads fill the ring, with cp.async.

    >>> kernel = d2ltvm.build(ring.stream_by_threads(2**20), "sm_90a")

    Each copies 16 bytes of every 16th row. A slot is full when the copies of all are there.

    Args, returned and raised: as for `stream`.
    """
    tiles, blocks = check_stream(n, rows, stages, laps, sms)

    @T.prim_func
    def main(x_ptr: T.handle, sums_ptr: T.handle):
        X = T.match_buffer(x_ptr, (n, WIDTH), "float16", align=16)
        sums_of = T.match_buffer(sums_ptr, (blocks, LINES, WIDTH), "float32", align=16)
        T.device_entry()
        block = T.cta_id([blocks])
        warpgroup = T.warpgroup_id([2])  # 0 is the producer, 1 the consumer
        thread = T.thread_id([256])

        pool = T.SMEMPool()
        tile = plain_tile(pool, (stages, rows, WIDTH))
        ring = Pipeline(pool, stages, full="mbar", empty="mbar", init_full=128, init_empty=128)
        pool.commit()
        T.cuda.cta_sync()

        slot = PipelineState(stages, 0)
        if warpgroup == 0:
            for _ in T.serial(laps):
                at: T.int32 = block
                while at < tiles:
                    ring.empty.wait(slot.stage, slot.phase ^ 1)
                    copy_rows(tile, X, slot.stage, at * rows, thread, n, rows)
                    T.ptx["cp.async.mbarrier.arrive.noinc.shared.b64"](
                        ring.full.ptr_to([slot.stage])
                    )
                    slot.advance()
                    at = at + blocks
            T.ptx["cp.async.wait_all"]()
        else:
            sums = T.alloc_local((8,), "float32")
            eight = T.alloc_local((8,), "float16")
            clear(sums)
            for _ in T.serial(laps):
                at: T.int32 = block
                while at < tiles:
                    ring.full.wait(slot.stage, slot.phase)
                    add_slot(sums, eight, tile, slot.stage, thread, rows)
                    ring.empty.arrive(slot.stage)
                    slot.advance()
                    at = at + blocks
            write_sums(sums_of, sums, block, thread)

    return main


# From hopper/ring.
@T.inline
def copy_rows(tile, X, stage, first, thread, n, rows):
    """Begin to copy the rows from `first` on into a slot, zeros for those behind the last."""
    column: T.let[T.int32] = thread % 8 * 8
    for i in T.unroll(rows // LINES):
        row: T.let[T.int32] = i * LINES + thread // 8
        T.ptx["cp.async.cg.shared.global"](
            tile.ptr_to([stage, row, column]),
            X.ptr_to([first + row, column]),
            16,
            T.if_then_else(first + row < n, T.uint32(16), T.uint32(0)),
        )


# From hopper/feeding.
@T.inline
def clear(sums):
    """Let sums begin at zero."""
    for j in T.unroll(8):
        sums[j] = T.float32(0)


# From hopper/feeding.
@T.inline
def add_slot(sums, eight, tile, stage, thread, rows):
    """Add what is in a slot to the sums of a warpgroup: 8 columns a thread, every 16th row."""
    row: T.let[T.int32] = thread % 128 // 8
    column: T.let[T.int32] = thread % 8 * 8
    for i in T.unroll(rows // LINES):
        for j in T.vectorized(8):
            eight[j] = tile[stage, i * LINES + row, column + j]
        for j in T.unroll(8):
            sums[j] = sums[j] + T.Cast("float32", eight[j])


# From hopper/feeding.
@T.inline
def write_sums(sums_of, sums, block, thread):
    """Write the sums of a warpgroup to those of all blocks."""
    for j in T.unroll(8):
        sums_of[block, thread % 128 // 8, thread % 8 * 8 + j] = sums[j]


def reference(x: Any, rows: int = 128, laps: int = 1, sms: int | None = None) -> Any:
    """What the kernels compute, in float64 of (blocks, 16, 64).

    >>> ring.reference(np.ones((1000, 64), "float16")).shape
    (8, 16, 64)

    Args:
        x: an array of (n, 64).
        rows, laps, sms: as for `stream`.
    """
    tiles, blocks = check_stream(len(x), rows, 1, laps, sms)
    whole = np.zeros((tiles * rows, WIDTH), x.dtype)
    whole[: len(x)] = x
    parts = whole.reshape(tiles, rows // LINES, LINES, WIDTH)
    sums = [parts[k::blocks].sum(axis=(0, 1), dtype="float64") for k in range(blocks)]
    return laps * np.stack(sums)


# From hopper/feeding.
def plain_tile(pool: Any, shape: tuple[int, ...], dtype: str = "float16") -> Any:
    """A tile in shared memory, one row behind the other."""
    return pool.alloc(shape, dtype, align=1024, layout=TileLayout(S[tuple(shape)]))


def check_stream(n: int, rows: int, stages: int, laps: int, sms: int | None) -> tuple[int, int]:
    """Refuse what the kernels cannot do; else how many tiles and blocks there are."""
    check_integers(n=n, stages=stages, laps=laps, rows=rows)
    if rows % LINES or rows > 256:
        raise ValueError(f"rows is {rows}; expected a multiple of {LINES}, up to 256")
    most = SHARED_PER_BLOCK // (rows * WIDTH * 2 + 16)  # two barriers of 8 bytes
    if stages > most:
        raise ValueError(f"stages is {stages}; expected 1 to {most} with rows = {rows}")
    tiles = math.ceil(n / rows)
    return tiles, min(check_sms(sms), tiles)
