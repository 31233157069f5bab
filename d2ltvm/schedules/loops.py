"""Loops that several schedules split, bind and fetch alike.

`LoopRV` and `SBlockRV` are what TVM calls a loop and a block of a schedule: random variables, of
which the schedule knows the meaning.
"""

from collections.abc import Sequence

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from d2ltvm.schedules.arguments import Factors, Tags, checked


# From memory/matmul.
@checked
def split_axis(factors: Factors, sch: Schedule, axis: LoopRV) -> list[LoopRV]:
    """Split a loop into several: those after the first have the lengths `factors`."""
    return sch.split(axis, [None, *factors])


# From memory/matmul.
@checked
def bind_thread(sch: Schedule, axes: Sequence[LoopRV], tags: Tags) -> None:
    """Bind loops to the threads and blocks that `tags` name."""
    for axis, tag in zip(axes, tags, strict=True):
        sch.bind(axis, tag)


# From memory/matmul.
def fetch(sch: Schedule, tile: SBlockRV, threads: int, width: int = 1) -> None:
    """Share out the copy of a tile, `width` elements a thread at a time."""
    step, tx, v = split_axis([threads, width], sch, sch.fuse(*sch.get_loops(tile)[-2:]))
    sch.bind(tx, "threadIdx.x")
    sch.unroll(step)
    sch.vectorize(v)


# From memory/matmul_cublas.
def pipeline(sch: Schedule, ko: LoopRV, stages: int) -> None:
    """Fetch tiles `stages` - 1 rounds ahead, asynchronously where that exists."""
    sch.annotate(ko, "software_pipeline_stage", [0, 0, stages - 1])
    sch.annotate(ko, "software_pipeline_order", [0, 1, 2])
    sch.annotate(ko, "software_pipeline_async_stages", [0])
