"""Whether a kernel's time depends on where its tensors lie in memory, and on what runs in turn.

    python experiments/placement.py FOLDER

writes placement.jsonl into a folder: a header with the device, and a line for each run: a name, and
by contender the median, least and most of the rounds, in microseconds. The kernels are a ring that
reads from the L2 cache, and the layer of the book in tiles of 64, 128 and 256 channels. Each is
timed by itself, beside others, and with several copies of its tensors at other addresses: one
compiled kernel each time. Half a minute on a Hopper.
"""

import json
import sys
from pathlib import Path

import numpy as np

from d2ltvm import hopper
from d2ltvm.bench import hopper_layers, rings
from d2ltvm.bench.timing import time_together
from d2ltvm.hopper import ring
from d2ltvm.system.devices import describe_device

COPIES = 6
SMALL = rings.Stream(ring.stream, 32 * 32 * 132, 16)  # 17 MB, read 16 times: from L2
LARGE = rings.Stream(ring.stream, 2**23)  # from device memory
SLOTS = 32, 16  # rows of a slot, and slots: 64 KiB


def ring_runs(stream, count):
    """Launches of one stream, each with tensors of its own."""
    return [rings._bound(stream, *SLOTS, hopper_layers.HOPPER) for _ in range(count)]


def layer_runs(columns, count):
    """Launches of the layer in tiles of so many channels, each with tensors of its own."""
    kernel = hopper_layers.HOPPER.build(hopper.conv_nhwc(*hopper_layers.LAYER, columns=columns))
    runs = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        shapes = [tuple(int(n) for n in p.shape) for p in kernel.params]
        data = [rng.standard_normal(shape, "float32").astype("float16") for shape in shapes]
        runs.append(kernel.bind(*kernel.upload(data)))
    return runs


def races():
    """By name, the contenders of each race. Tensors of earlier races stay on the GPU."""
    small, large = ring_runs(SMALL, COPIES), ring_runs(LARGE, 1)
    yield "ring, copies", {f"copy {k}": run for k, run in enumerate(small)}
    yield "ring, alone", {"copy 0": small[0]}
    yield "ring, beside device memory", {"copy 0": small[0], "device memory": large[0]}
    narrow, middle, wide = (layer_runs(columns, COPIES) for columns in (64, 128, 256))
    yield "64 columns, alone", {"copy 0": narrow[0]}
    yield "64 columns, copies", {f"copy {k}": run for k, run in enumerate(narrow)}
    yield "256 columns, copies", {f"copy {k}": run for k, run in enumerate(wide)}
    both = {"64": narrow[0], "128": middle[0], "256": wide[0]}
    yield "64, 128 and 256 columns", both
    yield "256, 128 and 64 columns", dict(reversed(both.items()))
    yield "ring, alone again", {"copy 0": small[0]}


def main():
    path = Path(sys.argv[1]) / "placement.jsonl"
    lines = [{"device": describe_device()}]
    for name, runs in races():
        times = time_together(runs, "burst")
        us = {n: [round(1e6 * s, 3) for s in (t.median, t.low, t.high)] for n, t in times.items()}
        lines.append({"race": name, "us": us})
        print(lines[-1], flush=True)
    path.write_text("".join(json.dumps(line, default=str) + "\n" for line in lines))


if __name__ == "__main__":
    main()
