"""Which tile a persistent kernel's block computes next: in turns, or on demand, by a counter."""

from typing import Any

from tvm.backend.cuda.lang.pipeline import Pipeline, PipelineState
from tvm.script import tirx as T

# TIRx has no variable that all blocks share, so this is CUDA. Behind its last
# value the counter is zero again: asked once for each tile, it is as it was.
NEXT_TILE = """
__device__ unsigned int tiles_asked_for;
__device__ int next_tile(int tiles) { return atomicInc(&tiles_asked_for, tiles - 1); }
"""


# From hopper/implicit.
@T.meta_class
class StaticScheduler:
    """The number of the tile that a thread is at: in turns, from block to block."""

    def __init__(self, tiles: int, blocks: int) -> None:
        self.tiles, self.blocks = tiles, blocks
        self.work_idx = T.local_scalar("int32")

    @T.inline
    def init(self, block):
        self.work_idx = block

    def is_valid(self) -> Any:
        return self.work_idx < self.tiles

    @T.inline
    def prefetch_next_work(self):
        """Of the producer, long before it needs to know: nothing."""
        T.evaluate(0)

    @T.inline
    def advance_to_next_work(self):
        """Of the producer: go on."""
        self.work_idx = self.work_idx + self.blocks

    @T.inline
    def fetch_next_work(self):
        """Of the consumers: go on."""
        self.work_idx = self.work_idx + self.blocks


# From hopper/on_demand.
@T.meta_class
class DynamicScheduler:
    """The number of the tile that a thread is at: on demand, by a counter of all blocks."""

    def __init__(self, pool: Any, tiles: int, blocks: int) -> None:
        self.tiles, self.blocks = tiles, blocks
        self.work_idx = T.local_scalar("int32")
        self.next_idx = T.local_scalar("int32")
        self.answers = pool.alloc((2,), "int32", align=8)
        self.queue = Pipeline(pool, 2, full="mbar", empty="mbar", init_full=1, init_empty=2 * 128)
        self.turn = PipelineState(2)

    @T.inline
    def init(self, block):
        self.work_idx = block
        self.turn.init(0)

    def is_valid(self) -> Any:
        return self.work_idx < self.tiles

    @T.inline
    def prefetch_next_work(self):
        """Of the producer, long before it needs to know: ask the counter."""
        self.next_idx = self.blocks + T.cuda.func_call(
            "next_tile", self.tiles, source_code=NEXT_TILE, return_type="int32"
        )

    @T.inline
    def advance_to_next_work(self):
        """Of the producer: go on, and tell the consumers."""
        self.work_idx = self.next_idx
        self.queue.empty.wait(self.turn.stage, self.turn.phase ^ 1)
        self.answers[self.turn.stage] = self.work_idx
        self.queue.full.arrive(self.turn.stage)
        self.turn.advance()

    @T.inline
    def fetch_next_work(self):
        """Of all threads of the consumers: wait for the answer."""
        self.queue.full.wait(self.turn.stage, self.turn.phase)
        self.work_idx = self.answers[self.turn.stage]
        self.queue.empty.arrive(self.turn.stage)
        self.turn.advance()


def tile_scheduler(pool: Any, tiles: int, blocks: int, on_demand: bool) -> Any:
    """The scheduler that a plan asks for; `pool` is that of the block's shared memory."""
    if on_demand:
        return DynamicScheduler(pool, tiles, blocks)
    return StaticScheduler(tiles, blocks)
