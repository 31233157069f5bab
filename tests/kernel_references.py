"""What the kernels compute of which `test_emulator_mutants` makes mutants, in float64."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from d2ltvm.hopper import ring


def convolved(x, w):
    """The sums of a convolution in NHWC with as many pixels as it began with."""
    k = round(len(w) ** 0.5)
    pad = k // 2
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0))).astype("float64")
    high, wide = x.shape[1] - 2 * pad, x.shape[2] - 2 * pad
    taps = [x[:, y : y + high, z : z + wide] for y in range(k) for z in range(k)]
    return sum(tap @ weights.T for tap, weights in zip(taps, w.astype("float64"), strict=True))


def windows(x, pad, outside):
    """Windows of 3 x 3 pixels with stride 2 - pad, behind all other axes."""
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=outside)
    return sliding_window_view(x.astype("float64"), (3, 3), (1, 2))


def max_pooled(x):
    return windows(x, 1, -np.inf)[:, ::2, ::2].max((-2, -1))


def stemmed(x, w, bias):
    """Seven rows of 24 numbers under each pixel by the weights; bias, ReLU, and the pool."""
    batch, high, wide, _ = x.shape
    deep = w.astype("float64").reshape(3, 64, 64).transpose(1, 0, 2).reshape(64, 192)
    numbers = np.pad(x.reshape(batch, high, -1), ((0, 0), (3, 3), (10, 24)))
    under = sliding_window_view(numbers.astype("float64"), (7, 24), (1, 2))
    under = under[:, ::2, ::6][:, :, : (wide + 1) // 2]
    sums = under.reshape(*under.shape[:3], 168) @ deep[:, :168].T + bias
    return max_pooled(np.maximum(sums, 0))


def in_rows(x, w, bias):
    """Three rows of 16 numbers under each pixel by the weights; bias and ReLU."""
    batch, high, wide, _ = x.shape
    deep = w.astype("float64")[:, :48]
    numbers = np.pad(x.reshape(batch, high, -1), ((0, 0), (1, 1), (3, 16)))
    under = sliding_window_view(numbers.astype("float64"), (3, 16), (1, 2))
    under = under[:, :, ::3][:, :, :wide]
    return np.maximum(under.reshape(*under.shape[:3], 48) @ deep[: len(bias)].T + bias, 0)


def split(x, w, values):
    """Weights are two pieces; sums are multiplied by a value of each channel, and one is added."""
    high, low = w.astype("float64").reshape(2, -1, *w.shape[1:])
    return convolved(x, high + low) * values[0] + values[1]


def fused(x, w, bias):
    return np.maximum(convolved(x, w) + bias, 0)


def depthwise(x, w, bias):
    sums = np.einsum("bijcyx,yxc->bijc", windows(x, 1, 0), w.astype("float64"))
    return np.clip(sums + bias, 0, 6)


def product(x, w):
    return x.astype("float64") @ w.astype("float64").T


def float32(x, w):
    return convolved(x[0], w[0]) + convolved(x[0], w[1]) + convolved(x[1], w[0])


def added(x, w, *others):
    """A convolution, to which all is added that comes behind its weights."""
    return convolved(x, w) + sum(other.astype("float64") for other in others)


def streamed(x):
    return ring.reference(x, 32, sms=1)


def copied(x):
    return x


def mean(x):
    return x.mean((1, 2), "float64")


OF = {  # that are no convolution, or more than that
    "one_tile": product,
    "product": product,
    "copy_boxes": copied,
    "stream": streamed,
    "stream_by_threads": streamed,
    "float32": float32,
    "split": split,
    "boxes": fused,
    "residual": added,
    "biases": added,
    "stem": stemmed,
    "rows": in_rows,
    "depthwise": depthwise,
    "max_pool": max_pooled,
    "mean_pool": mean,
}


def expected(name, *given):
    """What a kernel makes of its arrays. Where sums are cut, the last one is room for parts."""
    return OF[name](*given) if name in OF else convolved(*given[:2])
