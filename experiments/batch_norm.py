"""Batch norm with ReLU by three schedules and many plans, beside a copy, on a GPU.

    python experiments/batch_norm.py FOLDER [BATCH,...]

writes batch_norms.jsonl into a folder. `own`: each thread works out the scale and the shift of its
channels; so did `schedules.batch_norm_pixels` before this was run. `shared` is that function as it
is now: a block works them out, once, and keeps them in shared memory. `early`: the same, but a
thread loads its pixels before. Predicted: `shared` is faster than `own` where a thread has few
pixels, and by less where it has many.

Each result is compared with float64. The kernels are compiled by 15 processes at once, 24 to 48 for
a layer.
"""

import itertools
import json
import multiprocessing as mp
import sys
from pathlib import Path

import numpy as np

from d2ltvm.bench import operator_layers
from d2ltvm.bench.operator_contenders import exact_bn
from d2ltvm.bench.timing import time_together
from d2ltvm.compiler.kernel import build
from d2ltvm.compute.operators_nhwc import batch_norm_nhwc
from d2ltvm.compute.ops import schedule
from d2ltvm.schedules.loops import bind_thread
from d2ltvm.schedules.operators import unroll_inside
from d2ltvm.schedules.strips import batch_norm_pixels, share_scales

WIDTH = 8


def own(pixels, c, each, block):
    """Each thread works out the scales and the shifts of its channels, in registers."""
    sch, rounded, result, _, thread = shared_out(pixels, c, each, block)
    loaded = sch.cache_read(rounded, 0, "local")
    sch.compute_at(loaded, thread)
    stages = [sch.get_sblock(name) for name in ("Shift", "Scale")]
    for stage in stages:
        sch.compute_at(stage, thread)
        sch.set_scope(stage, 0, "local")
    vectors = [sch.cache_read(stage, number, "local") for stage in stages for number in (0, 1)]
    in_vectors(sch, vectors, thread)
    unroll_inside(sch, [rounded, *stages], [loaded, result, *vectors])
    return sch


def early(pixels, c, each, block):
    """As the package's, but a thread's pixels come before all else that a block does."""
    sch, rounded, result, tile, thread = shared_out(pixels, c, each, block)
    share_scales(sch, tile, block[0] * block[1])
    vectors = [sch.cache_read(rounded, number, "local", [rounded]) for number in (1, 2)]
    in_vectors(sch, vectors, thread)
    first_of_all(sch, sch.cache_read(rounded, 0, "local"), tile, block, each)
    unroll_inside(sch, [rounded], [result, *vectors])
    return sch


def shared_out(pixels, c, each, block):
    """A schedule, its blocks `Y` and `Y_local`, and the loops of its blocks and of its threads."""
    sch = schedule(batch_norm_nhwc(pixels, c, relu=True, dtype="float16"))
    rounded = sch.get_sblock("Y")
    result = sch.cache_write(rounded, 0, "local")
    pixel, ch = sch.get_loops(result)
    bx, side, step = sch.split(pixel, [None, block[0], each])
    bc, group, v = sch.split(ch, [None, block[1], WIDTH])
    sch.reorder(bx, bc, side, group, step, v)
    thread, tile = sch.fuse(side, group), sch.fuse(bx, bc)
    bind_thread(sch, (tile, thread), ("blockIdx.x", "threadIdx.x"))
    sch.compute_at(rounded, thread)
    return sch, rounded, result, tile, thread


def in_vectors(sch, vectors, thread):
    """Copies of vectors into a thread's registers, in pieces of four."""
    for vector in vectors:
        sch.compute_at(vector, thread)
        sch.split(sch.get_loops(vector)[-1], [None, 4])


def first_of_all(sch, loaded, tile, block, each):
    """A thread's pixels come before all else that a block does."""
    sch.compute_at(loaded, tile, index=0)
    pixel, ch = sch.get_loops(loaded)[1:]
    side, step = sch.split(pixel, [block[0], each])
    group, v = sch.split(ch, [block[1], WIDTH])
    sch.reorder(side, group, step, v)
    sch.bind(sch.fuse(side, group), "threadIdx.x")
    sch.unroll(step)
    sch.vectorize(v)


SCHEDULES = {
    "own": own,
    "shared": lambda *plan: batch_norm_pixels(*plan, WIDTH),
    "early": early,
}


def plans(pixels, c):
    """Pixels of a thread, and blocks of up to 256 or 512 threads, that divide the work."""
    found = set()
    for each, threads, most in itertools.product((2, 4, 8, 16), (256, 512), (8, 16)):
        groups = max(g for g in range(1, most + 1) if (c // WIDTH) % g == 0)
        rows = max(r for r in range(1, threads // groups + 1) if pixels % (r * each) == 0)
        if rows * groups >= 64:
            found.add((each, (rows, groups)))
    return sorted(found)


def compiled(job):
    name, plan = job
    build(SCHEDULES[name](*plan))


def timed(batch, c, n, jobs):
    """Microseconds of a layer's kernels and of a copy."""
    x, pixels = operator_layers.images(batch, n, c).reshape(-1, c), batch * n * n
    rng = np.random.default_rng(1)
    mean, gamma, beta = rng.standard_normal((3, c), "float32")
    vectors = mean, rng.random(c, "float32") + np.float32(0.5), gamma, beta
    want, most = exact_bn(x[:: pixels - 1], *vectors)
    runs = {"copy": operator_layers._copy(4 * pixels * c)}
    for name, plan in jobs:
        kernel = build(SCHEDULES[name](*plan))
        run = operator_layers._held(kernel, (x, *vectors), np.maximum(want, 0), most, 6)
        runs[f"{name}, {plan[2]} pixels, {plan[3][0]} x {plan[3][1]}"] = run
    return {name: round(1e6 * t.median, 3) for name, t in time_together(runs).items()}


def main():
    folder, batches = Path(sys.argv[1]), map(int, (sys.argv[2:] or ["32"])[0].split(","))
    layers = {}
    for batch, (c, n) in itertools.product(batches, operator_layers.NORMS):
        every = [(batch * n * n, c, *plan) for plan in plans(batch * n * n, c)]
        layers[batch, c, n] = list(itertools.product(SCHEDULES, every))
    with mp.get_context("spawn").Pool(15) as pool:
        pool.map(compiled, itertools.chain(*layers.values()), chunksize=4)
    for (batch, c, n), jobs in layers.items():
        line = {"batch": batch, "channels": c, "n": n, "us": timed(batch, c, n, jobs)}
        with (folder / "batch_norms.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
