"""The kernel for first layers beside the book's way with a copy, and beside cuDNN, on a Hopper.

    python experiments/first_layer/race.py FOLDER [SECONDS]

writes first_layers.jsonl into a folder. Predicted, by bytes alone: see `least`, in µs. All is
compiled by 15 processes at first; each result is compared with float64 at some pixels.
"""

import itertools
import json
import multiprocessing as mp
import sys
import time
from pathlib import Path

import numpy as np

from d2ltvm.bench import set_bench, sets
from d2ltvm.bench.timing import time_together
from d2ltvm.compiler.verify import compare
from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_layer import any_layer

sys.path.insert(0, str(Path(__file__).parent))
from kernel import first_layer, first_weights, plan_first


def cases():
    """First layers: of the book's sets, and of the zoo's networks."""
    found = [c for c in (*sets.layers(), *sets.unseen()) if c.conv.ic <= 4 and c.conv.oc <= 128]
    mobile, vgg = ((32, (2, 2)), (64, (1, 1)))
    for (name, (oc, stride)), batch in itertools.product(
        (("MobileNet", mobile), ("VGG-16", vgg)), (1, 32, 256)
    ):
        conv = Conv(batch, (224, 224), 3, oc, (3, 3), (1, 1), stride)
        found.append(sets.Case(f"{name}, images: {batch}", conv))
    return found


def plans(conv, sms=None):
    """The plan by the rule, and others."""
    rule = plan_first(conv, sms)
    found = {"rule": rule}
    for rows, per_sm in itertools.product({1, 2, 4, rule.rows}, (1, 2, 3, 4)):
        plan = plan_first(conv, sms, rows, per_sm)
        if plan.nbytes <= 224 * 1024 // per_sm and plan.later <= 6 and plan not in found.values():
            found[f"{rows} rows, {per_sm} blocks"] = plan
    return found


def held(plan, x, w, setting):
    """A function that launches the kernel, and one for its results."""
    kernel = setting.build(first_layer(plan, ""))
    y = np.full((plan.conv.batch, *plan.conv.out, plan.conv.oc), np.nan, "float16")
    bias = np.zeros(plan.conv.oc, "float32")
    tensors = kernel.upload([x, first_weights(plan, w), bias, y])
    run = kernel.bind(*tensors)
    run()
    return run, lambda: np.asarray(tensors[-1].numpy())


def measured(case, setting=set_bench.HOPPER, timed=time_together):
    """Microseconds of a case's contenders, and whether their results are right."""
    conv, (x, w) = case.conv, set_bench.data(case)
    places = set_bench.some_places(case)
    want, most = set_bench.exact(case, x, w, places)
    runs, errors, results = {"library": setting.library(case, x, w)}, {}, {}
    runs["book"], results["book"] = set_bench.ours(any_layer(conv), x, w, setting)
    given = plans(conv)
    for name, plan in given.items():
        runs[name], results[name] = held(plan, x, w, setting)
    for name, result in results.items():
        y = result().reshape(conv.pixels, conv.oc)[places]
        try:
            compare("Y", y, want, most, 2 * conv.ic * conv.taps + 4, sums="float32")
        except Exception as error:
            errors[name] = repr(error)[:300]
    us = {name: round(1e6 * t.median, 3) for name, t in timed(runs).items()}
    rule = given["rule"]
    return {
        "title": case.title,
        "least": round(1e6 * rule.seconds, 2),
        "rule": [rule.rows, rule.strip, rule.per_sm],
        "us": us,
        "wrong": errors,
    }


def compiled(case):
    layer = any_layer(case.conv)
    for kernel in (layer.kernel(), *([layer.copy()] if layer.copies else [])):
        set_bench.on_hopper(kernel)
    for plan in plans(case.conv).values():
        set_bench.on_hopper(first_layer(plan, ""))


def main():
    folder, end = Path(sys.argv[1]), time.time() + float((sys.argv[2:] or [300])[0])
    with mp.get_context("spawn").Pool(15) as pool:
        pool.map(compiled, cases(), chunksize=1)
    print("compiled", flush=True)
    for case in cases():
        if time.time() < end:
            line = measured(case)
            print(line, flush=True)
            with (folder / "first_layers.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
