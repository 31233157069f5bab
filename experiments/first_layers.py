"""The kernel for layers of few channels beside the book's way with a copy, and beside cuDNN's.

    python experiments/first_layers.py FOLDER [SECONDS] [MANY]

writes first_layers.jsonl into a folder: the planner's pick and the next of its plans, MANY in all
(3), the way with a copy that was the book's before, and cuDNN's, of first layers of the book's sets
and of networks. On a Hopper with 16 cores it takes a minute. `least` is by bytes alone, in µs. All
is compiled by 15 processes at first; each result is compared with float64 at some pixels.
"""

import functools
import itertools
import math
import sys
import time
from pathlib import Path

from case_by_case import compile_first, keep_compiled, kernels_of, write_lines

from d2ltvm.bench import set_bench, sets
from d2ltvm.bench.timing import time_together
from d2ltvm.compiler.verify import compare
from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_costs import costs
from d2ltvm.hopper.any_layer import Layer, ways
from d2ltvm.hopper.rows import rows_plans, takes_rows


def cases():
    """First layers: of the book's sets, and of the zoo's networks."""
    found = [c for c in (*sets.layers(), *sets.unseen()) if takes_rows(c.conv)]
    mobile, vgg = ((32, (2, 2)), (64, (1, 1)))
    for (name, (oc, stride)), batch in itertools.product(
        (("MobileNet", mobile), ("VGG-16", vgg)), (1, 32, 256)
    ):
        conv = Conv(batch, (224, 224), 3, oc, (3, 3), (1, 1), stride)
        found.append(sets.Case(name, conv))
    return found


def layers(conv, many):
    """The plans by name: the pick first; and the best way with a copy, by the model."""
    found = [Layer(conv, plan, "rows") for plan in rows_plans(conv, many=many)]
    named = {f"rows {k}: {layer.plan}" if k else "rows": layer for k, layer in enumerate(found)}
    return named | {"copied": next(layer for layer in ways(conv) if layer.copies)}


def measured(case, many, setting=set_bench.HOPPER, timed=time_together):
    """Microseconds of a case's contenders, and whether their results are right."""
    conv, (x, w) = case.conv, set_bench.data(case)
    places = set_bench.some_places(case)
    want, most = set_bench.exact(case, x, w, places)
    runs, errors, results = {"library": setting.library(case, x, w)}, {}, {}
    given = layers(conv, many)
    for name, layer in given.items():
        try:
            runs[name], results[name] = set_bench.ours(layer, x, w, setting)
        except Exception as error:
            errors[name] = repr(error)[-300:]
    for name, result in results.items():
        y = result().reshape(conv.pixels, conv.oc)[places]
        try:
            compare("Y", y, want, most, 2 * conv.ic * conv.taps + 4, sums="float32")
        except Exception as error:
            errors[name] = repr(error)[:300]
    moved = 2 * (conv.batch * math.prod(conv.size) * conv.ic + conv.pixels * conv.oc)
    return {
        "title": case.title,
        "least": round(1e6 * moved / costs().memory, 2),
        "plan": str(given["rows"].plan),
        "model": round(1e6 * given["rows"].seconds, 2),
        "copied": given["copied"].way,
        "us": {
            name: [round(1e6 * n, 3) for n in (t.median, t.low, t.high)]
            for name, t in timed(runs).items()
        },
        "wrong": errors,
    }


def compiled(given):
    """Have a layer's kernels in the cache."""
    name, layer = given
    keep_compiled(name, lambda: kernels_of(layer))


def main():
    folder, end = Path(sys.argv[1]), time.time() + float((sys.argv[2:] or [300])[0])
    many = int((sys.argv[3:] or [3])[0])
    named = [
        (f"{c.title}, {n}", layer) for c in cases() for n, layer in layers(c.conv, many).items()
    ]
    compile_first(compiled, named)
    path = folder / "first_layers.jsonl"
    write_lines(path, cases(), functools.partial(measured, many=many), end)


if __name__ == "__main__":
    main()
