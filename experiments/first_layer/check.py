"""The kernel for first layers under emulation, beside NumPy in float64.

PYTHONPATH=. python experiments/first_layer/check.py
"""

import sys
from pathlib import Path

import numpy as np

import d2ltvm
from d2ltvm.compiler.verify import compare
from d2ltvm.hopper.any_conv import Conv
from d2ltvm.network.reference import conv as exact

sys.path.insert(0, str(Path(__file__).parent))
from kernel import first_layer, first_weights, plan_first

CASES = (
    (Conv(2, (16, 24), 3, 32, (3, 3), (1, 1), (2, 2)), "relu", 2),
    (Conv(3, (9, 24), 3, 64, (3, 3), (1, 1)), "relu", 2),  # odd places
    (Conv(1, (20, 40), 3, 64, (7, 7), (3, 3), (2, 2)), "", 1),
    (Conv(2, (16, 32), 3, 96, (4, 4), (0, 0), (4, 4)), "", 4),
    (Conv(2, (13, 8), 1, 16, (5, 5), (2, 2)), "relu", 3),  # one channel
    (Conv(5, (11, 16), 3, 24, (3, 3), (1, 1), (2, 2)), "relu6", 1),  # filters that fill no tile
    (Conv(2, (10, 12), 2, 40, (1, 3), (0, 1), (1, 1)), "relu", 8),
    (Conv(1, (35, 40), 3, 128, (6, 6), (2, 2), (2, 2)), "relu", 2),
    (Conv(2, (15, 20), 4, 48, (3, 5), (1, 2), (1, 3)), "relu6", 2),
)


def check(conv, activation, sms):
    plan = plan_first(conv, sms)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((conv.batch, *conv.size, conv.ic)).astype("float16")
    w = rng.standard_normal((conv.taps, conv.oc, conv.ic)).astype("float16")
    b = rng.standard_normal(conv.oc).astype("float32")
    y = np.full((conv.batch, *conv.out, conv.oc), np.nan, "float16")
    d2ltvm.emulate(first_layer(plan, activation), x, first_weights(plan, w), b, y)
    images = x.transpose(0, 3, 1, 2).astype("float64")
    own = w.reshape(*conv.kernel, conv.oc, conv.ic).transpose(2, 3, 0, 1).astype("float64")
    want = exact(images, own, conv.stride, conv.pad, 1).transpose(0, 2, 3, 1) + b
    most = exact(abs(images), abs(own), conv.stride, conv.pad, 1).transpose(0, 2, 3, 1) + abs(b)
    if activation:
        want = np.clip(want, 0, 6 if activation == "relu6" else None)
    compare(f"Y of {conv}", y, want, most, 2 * conv.ic * conv.taps + 4, sums="float32")
    return plan


if __name__ == "__main__":
    for case in CASES:
        found = check(*case)
        print("right:", case[0], "rows", found.rows, "strip", found.strip, "later", found.later)
