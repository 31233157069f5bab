"""Loops that several schedules split, bind and fetch alike."""


# From memory/matmul.
def split_axis(factors, sch, axis):
    """Split a loop into several: those after the first have the lengths `factors`."""
    return sch.split(axis, [None, *factors])


# From memory/matmul.
def bind_thread(sch, axes, tags):
    """Bind loops to the threads and blocks that `tags` name."""
    for axis, tag in zip(axes, tags, strict=True):
        sch.bind(axis, tag)


# From memory/matmul.
def fetch(sch, tile, threads, width=1):
    """Share out the copy of a tile, `width` elements a thread at a time."""
    step, tx, v = split_axis([threads, width], sch, sch.fuse(*sch.get_loops(tile)[-2:]))
    sch.bind(tx, "threadIdx.x")
    sch.unroll(step)
    sch.vectorize(v)


# From memory/matmul.
def pipeline(sch, ko, stages):
    """Fetch tiles `stages` - 1 rounds ahead, asynchronously where that exists."""
    sch.annotate(ko, "software_pipeline_stage", [0, 0, stages - 1])
    sch.annotate(ko, "software_pipeline_order", [0, 1, 2])
    sch.annotate(ko, "software_pipeline_async_stages", [0])
