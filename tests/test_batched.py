"""Convolution of batches: layouts there and back, and results against NumPy."""

import numpy as np
import pytest

import d2ltvm
from d2ltvm import batched_schedules

SHAPES = [  # batch, oc, ic, n, k, p, s
    (4, 3, 5, 6, 3, 1, 1),
    (2, 5, 3, 9, 3, 0, 2),
    (3, 2, 2, 7, 5, 2, 1),
    (1, 1, 1, 1, 1, 0, 1),
]


def data(batch, oc, ic, n, k, dtype="float32"):
    rng = np.random.default_rng(0)
    shapes = ((batch, ic, n, n), (oc, ic, k, k))
    return [rng.standard_normal(shape, "float32").astype(dtype) for shape in shapes]


def hwcn_reference(p, s):
    def reference(x, w):
        wanted = d2ltvm.conv_batch_reference(d2ltvm.from_hwcn(x), d2ltvm.from_hwcn(w), p, s)
        return d2ltvm.to_hwcn(wanted)

    return reference


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_hwcn(shape):
    batch, oc, ic, n, k, p, s = shape
    kernel = d2ltvm.build(d2ltvm.schedule(d2ltvm.conv_hwcn(*shape)[:3]), "llvm")
    images, weights = data(batch, oc, ic, n, k)
    inputs = (d2ltvm.to_hwcn(images), d2ltvm.to_hwcn(weights))
    assert d2ltvm.check(kernel, inputs, hwcn_reference(p, s), 2 * ic * k * k) < 1e-6


@pytest.mark.parametrize("shape", [(4, 8, 4, 5, 3, 1, 1), (8, 4, 12, 7, 3, 0, 2)], ids=str)
def test_nhwcnc(shape):
    batch, oc, ic, n, k, p, s = shape
    tensors = d2ltvm.conv_nhwcnc(*shape, block=4)[:3]
    kernel = d2ltvm.build(d2ltvm.schedule(tensors), "llvm")
    images, weights = data(batch, oc, ic, n, k, "float16")
    out = np.full(kernel.params[2].shape, np.nan, "float32")
    kernel(d2ltvm.to_nhwcnc(images, 4), d2ltvm.to_hwioio(weights, 4), out)
    exact = [a.astype("float64") for a in (images, weights)]
    wanted = d2ltvm.conv_batch_reference(*exact, p, s)
    # Products of float16 are exact in float32; each addition may round once.
    most = d2ltvm.conv_batch_reference(*map(np.abs, exact), p, s)
    error = np.abs(d2ltvm.from_nhwcnc(out) - wanted)
    assert (error <= ic * k * k * np.finfo("float32").eps / 2 * most).all()


def test_layouts_there_and_back():
    images, weights = data(4, 6, 8, 5, 3)
    assert np.array_equal(d2ltvm.from_hwcn(d2ltvm.to_hwcn(images)), images)
    assert np.array_equal(d2ltvm.from_nhwcnc(d2ltvm.to_nhwcnc(images, 2)), images)
    blocks = d2ltvm.to_hwioio(weights, 2)
    for o, i, y, x in ((0, 0, 0, 0), (5, 7, 2, 1), (3, 4, 1, 2)):
        assert blocks[y, x, i // 2, o // 2, i % 2, o % 2] == weights[o, i, y, x]
    assert d2ltvm.to_hwcn(images)[3, 1, 7, 2] == images[2, 7, 3, 1]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: d2ltvm.conv_hwcn(0, 1, 1, 3, 3), "batch is 0; a positive integer"),
        (lambda: d2ltvm.conv_hwcn(1, 1, 1, 3, 5), "k is 5; at most n"),
        (lambda: d2ltvm.conv_hwcn(1, 1, 1, 3, 3, -1), "p is -1; an integer from 0"),
        (lambda: d2ltvm.conv_hwcn(1, 1, 1, 3, 3, 0, 0), "s is 0; an integer from 1"),
        (lambda: d2ltvm.conv_nhwcnc(16, 17, 16, 3, 3), "oc is 17; a multiple of block = 16"),
        (lambda: d2ltvm.conv_nhwcnc(16, 16, 16, 3, 3, block=0), "block is 0; a positive integer"),
        (lambda: d2ltvm.to_nhwcnc(np.zeros((3, 16, 2, 2))), "batch is 3; a multiple of block = 16"),
        (lambda: d2ltvm.to_hwioio(np.zeros((16, 8, 3, 3))), "ic is 8; a multiple of block = 16"),
        (lambda: d2ltvm.to_hwcn(np.zeros((3, 16))), r"shape \(3, 16\); four dimensions"),
        (lambda: d2ltvm.from_nhwcnc(np.zeros((3, 16))), "six dimensions"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("options", [{}, {"interleave": False, "stages": 1, "scope": "shared"}])
@pytest.mark.parametrize("shape", [(32, 32, 8, 4, 3, 1, 1), (32, 16, 16, 5, 3, 0, 2)], ids=str)
def test_tiled_schedule_of_hwcn(shape, options):
    batch, oc, ic, n, k, p, s = shape
    tiles = {"rows": (1, 2, 2, 4), "columns": (2, 1, 2, 4), "depth": 4}
    sch = batched_schedules.hwcn_tiled(*shape, **tiles, **options)
    images, weights = (d2ltvm.to_hwcn(a) for a in data(batch, oc, ic, n, k))
    terms = 2 * ic * k * k
    error = d2ltvm.check(d2ltvm.build(sch), (images, weights), hwcn_reference(p, s), terms)
    assert error < 1e-6


def test_sizes_that_the_tile_does_not_divide_are_named():
    for shape, message in (
        ((256, 500, 256), "oc is 500; a multiple of the tile, 128, is allowed"),
        ((200, 512, 256), "batch is 200; a multiple of the tile, 256, is allowed"),
        ((256, 512, 100), "ic is 100; a multiple of the tile, 8, is allowed"),
    ):
        with pytest.raises(ValueError, match=message):
            batched_schedules.hwcn_tiled(*shape, 14, 3, 1, 1)


def test_the_tutorial_layer_keeps_the_data_path_below_the_arithmetic():
    report = d2ltvm.report(
        batched_schedules.hwcn_tiled(256, 512, 256, 14, 3, 1, 1),
        "H200",
        2 * 512 * 256 * 9 * 196 * 256,
    )
    conflicts = report.traffic.total("read", "shared")[2]
    assert conflicts == 0 and report.bound[0] == "FP32"
    assert report.seconds["L1 and shared"] < report.seconds["FP32"] / 2
