"""The kernels that chapters make for some sizes, beside the kernel for any shape and the library.

    python experiments/special.py FOLDER [SECONDS]

writes special.jsonl into a folder: a line for each layer or product, with microseconds (median,
least, most) by a burst of the library, of the chapter's kernel (`special`: `conv_nhwc` or
`matmul_nt`; where it leaves out taps, also with `all taps`), and of the kernel for any shape
(`general`), by the plan that `hopper.any_layer` prefers among those for it. All ran in turns, and
each result is compared with float64 at some pixels. All is compiled by 15 processes at first. On a
Hopper with 16 cores all takes two minutes.

The record in the book joins two runs. In the earlier one, this timed each case sustained, too, and
was cut off after three layers; these have both.
"""

import functools
import sys
import time
from pathlib import Path

import numpy as np
from case_by_case import compile_first, keep_compiled, write_lines

from d2ltvm import hopper
from d2ltvm.bench import set_bench
from d2ltvm.bench.hopper_layers import special_cases
from d2ltvm.bench.timing import time_together
from d2ltvm.compiler.verify import compare
from d2ltvm.hopper.any_layer import ways
from d2ltvm.hopper.planning import ConvPlan

LEAVES_OUT = (7, 7)  # pixels of the images whose kernel leaves out taps, and was the faster one


def general(case):
    """The way that should be fastest of those with the kernel for any shape."""
    return next(way for way in ways(case.conv) if not isinstance(way.plan, ConvPlan))


def special(case, **options):
    """The kernel of a chapter: of *implicit*, or of *product*."""
    c = case.conv
    if case.transposed is not None:
        return hopper.matmul_nt(c.batch, c.oc, c.ic)
    sizes = c.batch, c.oc, c.ic, c.size[0], c.kernel[0], c.pad[0], c.stride[0]
    return hopper.conv_nhwc(*sizes, **options)


def specials(case):
    """The special kernels of a case, by name; with `all taps` where one leaves out taps."""
    found = {"special": special(case)}
    if case.transposed is None and case.conv.size == LEAVES_OUT and case.conv.taps > 1:
        found["special, all taps"] = special(case, skip=False)
    return found


def launched(kernel, case, x, w, setting):
    """A function that runs a special kernel, and one that returns what it computed."""
    kernel, c = setting.build(kernel), case.conv
    images, weights = (x.reshape(c.batch, c.ic), w[0]) if case.transposed is not None else (x, w)
    y = np.full(kernel.params[2].shape, np.nan, "float16")
    tensors = kernel.upload([images, weights, y])
    run = kernel.bind(*tensors)
    run()
    return run, lambda: np.asarray(tensors[-1].numpy())


def measured(case, setting=set_bench.HOPPER, timed=time_together):
    """Microseconds of a case's contenders; a kernel whose result is wrong is not timed."""
    (x, w), places = set_bench.data(case), set_bench.some_places(case)
    want, most = set_bench.exact(case, x, w, places)
    runs, wrong, way = {"library": setting.library(case, x, w)}, {}, general(case)
    made = {
        name: functools.partial(launched, kernel, case, x, w, setting)
        for name, kernel in specials(case).items()
    }
    made["general"] = lambda: set_bench.ours(way, x, w, setting)
    for name, make in made.items():
        try:
            run, result = make()
            y = result().reshape(case.conv.pixels, case.conv.oc)[places]
            compare("Y", y, want, most, 2 * case.conv.ic * case.conv.taps + 4, sums="float32")
            runs[name] = run
        except Exception as error:
            wrong[name] = repr(error)[:300]
    times = timed(runs, "burst")
    us = {n: [round(1e6 * s, 3) for s in (t.median, t.low, t.high)] for n, t in times.items()}
    return {"title": case.title, "plan": str(way.plan), "burst": us, "wrong": wrong}


def compiled(case):
    """Have both kernels of a case in the cache."""
    keep_compiled(case.title, lambda: (*specials(case).values(), general(case).kernel()))


def main():
    folder, end = Path(sys.argv[1]), time.time() + float((sys.argv[2:] or [300])[0])
    compile_first(compiled, special_cases())
    write_lines(folder / "special.jsonl", special_cases(), measured, end)


if __name__ == "__main__":
    main()
