"""Which tile a block computes next: in turns, or on demand, by a counter of all blocks."""

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
class Job:
    """The tile that a thread is at, and the way to the next.

    In turns, a block goes on by as many tiles as there are blocks. On demand, the
    thread that fetches asks a counter of all blocks, and passes the answer on to
    those that multiply.
    """

    def __init__(self, pool, tiles, blocks, on_demand):
        self.tiles, self.blocks, self.on_demand = tiles, blocks, on_demand
        self.tile = T.local_scalar("int32")
        self.next = T.local_scalar("int32")
        self.passed = pool.alloc((2,), "int32", align=8)
        self.queue = Pipeline(pool, 2, full="mbar", empty="mbar", init_full=1, init_empty=2 * 128)
        self.turn = PipelineState(2)

    @T.inline
    def begin(self, block):
        self.tile = block
        self.turn.init(0)

    @T.inline
    def ask(self):
        """Of the thread that fetches, long before it needs to know: what is next?"""
        if self.on_demand:
            self.next = self.blocks + T.cuda.func_call(
                "next_tile", self.tiles, source_code=NEXT_TILE, return_type="int32"
            )
        else:
            self.next = self.tile + self.blocks

    @T.inline
    def pass_on(self):
        """Of the thread that fetches: go on, and tell the others."""
        self.tile = self.next
        if self.on_demand:
            self.queue.empty.wait(self.turn.stage, self.turn.phase ^ 1)
            self.passed[self.turn.stage] = self.tile
            self.queue.full.arrive(self.turn.stage)
            self.turn.advance()

    @T.inline
    def take(self):
        """Of all threads that multiply: go on."""
        if self.on_demand:
            self.queue.full.wait(self.turn.stage, self.turn.phase)
            self.tile = self.passed[self.turn.stage]
            self.queue.empty.arrive(self.turn.stage)
            self.turn.advance()
        else:
            self.tile = self.tile + self.blocks
