"""Kernels that a network needs beside convolutions: pools, the stem, a bias in `conv_nhwc`."""

import re

import numpy as np
import pytest
from on_hopper import RUN, random

import d2ltvm
from d2ltvm.analysis.emulator.order import OrderError
from d2ltvm.bench.set_bench import exact
from d2ltvm.bench.sets import Case
from d2ltvm.compiler.verify import compare
from d2ltvm.hopper import stem as stems
from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.depthwise import depthwise_fused
from d2ltvm.hopper.implicit_fused import conv_nhwc_fused
from d2ltvm.hopper.patch import changed
from d2ltvm.hopper.pooling import max_pool, mean_pool
from d2ltvm.hopper.stem import StemPlan, plan_stem, stem, stem_weights
from d2ltvm.hopper.strips import Strips
from d2ltvm.network import reference


def nchw(x):
    return x.astype("float64").transpose(0, 3, 1, 2)


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize(
    ("shape", "window"),
    [
        ((2, 9, 11, 16), ((3, 3), (2, 2), (1, 1), 2)),
        ((1, 8, 7, 24), ((2, 3), (1, 2), (0, 1), 3)),
        ((1, 4, 4, 8), ((2, 2), (2, 2), (0, 0), 1)),
    ],
)
def test_max_pool(run, shape, window):
    kernel, stride, pad, _ = window
    x = random(*shape, dtype="float16")
    want = reference.max_pool(nchw(x), kernel, stride, pad).transpose(0, 2, 3, 1)
    y = np.full(want.shape, np.nan, "float16")
    run(max_pool(shape, *window), x, y)
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("shape", [(3, 5, 7, 40), (1, 1, 1, 8)])
def test_mean_pool(run, shape):
    x, y = random(*shape, dtype="float16"), np.full((shape[0], shape[3]), np.nan, "float16")
    run(mean_pool(shape), x, y)
    pixels, wide = shape[1] * shape[2], x.astype("float64")
    compare("Y", y, wide.mean((1, 2)), np.abs(wide).mean((1, 2)), terms=pixels + 1, sums="float32")


@pytest.mark.parametrize(
    "strips", [Strips((2, 5, 7, 16), (2, 3), 8), Strips((1, 4, 4, 8), (4, 1), 2)], ids=str
)
def test_each_result_is_in_one_strip(strips):
    found = np.zeros(strips.result, int)
    down, across = strips.pixels
    for i in range(strips.count):
        n, y, x, z = strips.first(i)
        found[n, y : y + down, x : x + across, z : z + strips.width] += 1
    assert (found == 1).all()


def test_pools_refuse():
    with pytest.raises(ValueError, match=r"pad is \(3, 0\); expected less than kernel = \(3, 3\)"):
        max_pool((1, 8, 8, 8), (3, 3), (1, 1), (3, 0))
    with pytest.raises(ValueError, match="channels is 12; expected a positive multiple of 8"):
        mean_pool((1, 8, 8, 12))
    for pad in ((0, 0), (1, 0)):
        with pytest.raises(ValueError, match="expected one that fits into"):
            max_pool((1, 2, 2, 8), (3, 3), (1, 1), pad)


def test_loads_stay_behind_the_wait_for_the_kernel_before():
    """The compiler may take tensors for constant, as nobody writes them in this kernel."""
    depthwise = depthwise_fused((8, 9, 9, 64), (3, 3), (1, 1), (1, 1), "relu6")
    for kernel in (max_pool((8, 9, 9, 64), (3, 3), (2, 2)), mean_pool((8, 7, 7, 64)), depthwise):
        sass = d2ltvm.build(kernel, "sm_90a").sass("sm_90a")
        places = [found[0] for found in re.finditer(r"\b(ACQBULK|LDG)\b", sass)]
        assert places[0] == "ACQBULK" and "LDG" in places


@pytest.mark.quick(1)
@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize(
    ("conv", "relu"),
    [(Conv(2, (9, 9), 64, 72, (3, 3), (1, 1)), True), (Conv(3, (5, 5), 72, 64), False)],
    ids=str,
)
def test_a_bias_in_conv_nhwc(run, conv, relu):
    x = random(conv.batch, *conv.size, conv.ic, dtype="float16")
    w = random(conv.taps, conv.oc, conv.ic, dtype="float16")
    bias = 10 * random(conv.oc)
    y = np.full((conv.batch, *conv.out, conv.oc), np.nan, "float16")
    run(conv_nhwc_fused(conv, relu, 4), x, w, bias, y)
    case = Case("a test", conv, True if conv.is_product else None)
    want, most = exact(case, x, w, np.arange(conv.pixels))
    want, most = want + bias, most + np.abs(bias)
    want = np.maximum(want, 0) if relu else want
    terms = 2 * conv.ic * conv.taps + 4
    compare("Y", y.reshape(want.shape), want, most, terms=terms, sums="float32")


def stem_checked(run, make, images):
    batch, h, w = images
    x = random(batch, h, w, 3, dtype="float16")
    weight = (random(7, 7, 64, 3) / 12).astype("float16")
    bias = random(64)
    kernel = make(images)
    y = np.full(tuple(map(int, kernel.params[3].shape)), np.nan, "float16")
    run(kernel, x, stem_weights(weight), bias, y)
    wide, taps = nchw(x), weight.astype("float64").transpose(2, 3, 0, 1)

    def pooled(x, taps, bias):
        conv = reference.conv(x, taps, (2, 2), (3, 3), 1) + bias[:, None, None]
        return reference.max_pool(np.maximum(conv, 0), (3, 3), (2, 2), (1, 1)).transpose(0, 2, 3, 1)

    most = pooled(np.abs(wide), np.abs(taps), np.abs(bias))
    compare("Y", y, pooled(wide, taps, bias), most, terms=2 * 7 * 7 * 3 + 4, sums="float32")


@pytest.mark.slow
@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize(
    ("images", "plan"),
    [
        ((2, 20, 24), None),
        ((1, 33, 40), StemPlan((1, 33, 40), 1, 4)),
        ((2, 19, 48), StemPlan((2, 19, 48), 1, 2)),
    ],
)
def test_stem(run, images, plan):
    stem_checked(run, lambda images: stem(images, 2, plan), images)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("T.cuda.cta_sync()\n                if r > 0:", "if r > 0:"),
        ("T.cuda.cta_sync()\n            item = item", "item = item"),
    ],
    ids=["for the convolution", "for the pool"],
)
def test_a_stem_that_does_not_wait(old, new):
    """The emulator says what is not ordered."""
    broken = changed(stems.stem, (old, new))
    with pytest.raises(OrderError, match="of shared memory"):
        stem_checked(d2ltvm.emulate, lambda images: broken(images, 1), (1, 20, 24))


def test_plans_of_the_stem():
    """All SMs have work, and the rows that are computed twice are few where there are many."""
    assert plan_stem((256, 224, 224), 132).rows == 56
    assert plan_stem((1, 224, 224), 132).blocks == 56
    with pytest.raises(ValueError, match="expected columns that are a multiple of 8"):
        stem((1, 20, 20))


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "pad", "options"),
    [
        ((2, 9, 11, 16), (3, 3), (1, 1), (1, 1), {"strip": (3, 3), "width": 2}),  # strips are cut
        ((2, 9, 11, 16), (3, 3), (2, 2), (1, 1), {"strip": (2, 2), "width": 4}),
        ((1, 8, 7, 24), (5, 3), (1, 2), (2, 0), {"strip": (4, 3), "width": 8}),
        ((3, 1, 1, 8), (3, 3), (1, 1), (1, 1), {}),
    ],
    ids=str,
)
@pytest.mark.parametrize("activation", ["", "relu", "relu6"])
def test_depthwise(run, shape, kernel, stride, pad, options, activation):
    x, w = random(*shape, dtype="float16"), 2 * random(*kernel, shape[3], dtype="float16")
    bias = random(shape[3])
    options["activation"] = activation
    conv = depthwise_fused(shape, kernel, stride, pad, **options)
    y = np.full([int(size) for size in conv.params[-1].shape], np.nan, "float16")
    run(conv, x, w, bias, y)

    def exact_sums(images, weights):
        images = np.pad(images, ((0, 0), *((p, p) for p in pad), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(images, kernel, (1, 2))
        return np.einsum("bijcyx,yxc->bijc", windows[:, :: stride[0], :: stride[1]], weights)

    wide = x.astype("float64"), w.astype("float64")
    want, most = exact_sums(*wide) + bias, exact_sums(*map(np.abs, wide)) + abs(bias)
    if activation:
        want = np.clip(want, 0, 6 if activation == "relu6" else None)
    compare("Y", y, want, most, terms=2 * kernel[0] * kernel[1] + 1, sums="float32")


def test_depthwise_refuses():
    told = (1, 8, 8, 16), (3, 3), (1, 1), (1, 1)
    with pytest.raises(ValueError, match="activation is 'tanh'; expected one of"):
        depthwise_fused(*told, "tanh")
    with pytest.raises(ValueError, match="width is 3; expected 2, 4 or 8"):
        depthwise_fused(*told, width=3)
    with pytest.raises(ValueError, match="expected one that fits into"):
        depthwise_fused((1, 2, 2, 8), (5, 5), (1, 1))
