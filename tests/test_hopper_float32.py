"""Float32 convolutions as three products of float16: right to float32's own error."""

import itertools

import numpy as np
import pytest
from on_hopper import RUN

import d2ltvm
from d2ltvm.analysis import sass
from d2ltvm.hopper import float32, planning
from d2ltvm.hopper.float32 import conv_float32, power_of_two, split

pytestmark = pytest.mark.slow


def pieces_of(x, scale):
    """What `split` makes, in NumPy."""
    value = x.astype("float32") * np.float32(scale)
    high = value.astype("float16")
    return np.stack([high, (value - high.astype("float32")).astype("float16")])


def values(shape, seed, scale=1.0):
    return np.random.default_rng(seed).standard_normal(shape, "float32") * np.float32(scale)


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize(
    "shape, options",
    [
        ((128, 128, 64, 2, 3, 1, 1), {}),
        ((130, 72, 40, 2, 3, 1, 1), {}),
        ((100, 136, 72, 3, 3, 1, 2), {"columns": 128}),
        ((3, 64, 136, 6, 3, 1, 1), {"tile": (2, 8, 8), "parts": 1}),
        ((5, 128, 64, 6, 1, 0, 1), {"columns": 64, "stages": 2}),
        ((2, 64, 200, 4, 3, 1, 1), {"columns": 128, "parts": 4}),
        ((128, 64, 64, 5, 1, 0, 2), {"sms": 3}),
        ((2, 8, 8, 4, 5, 2, 1), {"skip": False}),
    ],
    ids=str,
)
def test_convolution(run, shape, options):
    batch, oc, ic, n, k, p, s = shape
    x, w = values((batch, n, n, ic), 0, 1e-3), values((oc, ic, k, k), 1, 30.0)
    scales = power_of_two(x), power_of_two(w)
    o = d2ltvm.conv_out_size(n, k, p, s)
    y = np.full((batch, o, o, oc), np.nan, "float32")
    taps = np.ascontiguousarray(w.transpose(2, 3, 0, 1).reshape(k * k, oc, ic))
    kernel = conv_float32(*shape, scale=1 / np.prod(scales), **options)
    run(kernel, pieces_of(x, scales[0]), pieces_of(taps, scales[1]), y)
    exact = [a.astype("float64") for a in (x.transpose(0, 3, 1, 2), w)]
    want = d2ltvm.compute.conv_batch_reference(*exact, p, s).transpose(0, 2, 3, 1)
    most = d2ltvm.compute.conv_batch_reference(*map(np.abs, exact), p, s).transpose(0, 2, 3, 1)
    # Each factor is known to 2**-22, and low times low, of the same size, is left out. TensorCores
    # cut off the sums of 3 x 64 products: 192 errors of eps each. Those in registers are added as
    # float32 is.
    chunks, eps = k * k * -(-ic // 64), np.finfo("float32").eps
    bound = (3 * 2.0**-22 + 192 * eps + chunks * eps / 2 + eps) * most
    assert (np.abs(y - want) <= bound).all()
    assert np.abs(y - want).max() < 2e-6 * np.abs(want).max()  # one product of float16: 3e-4


def test_one_product_of_float16_is_not_enough():
    x, w = values((64, 256), 0), values((256, 64), 1)
    want = x.astype("float64") @ w.astype("float64")
    high = [pieces_of(a, 1.0)[0].astype("float64") for a in (x, w)]
    assert np.abs(high[0] @ high[1] - want).max() > 1e-4 * np.abs(want).max()


@pytest.mark.parametrize("values", [[0.75, -3.0], [2.0**-20, 0.0], [65504.0], [1.0], [3e38]])
def test_powers_of_two(values):
    scale = power_of_two(np.array(values, "float32"))
    assert np.frexp(scale)[0] == 0.5
    assert 2**14 <= np.max(np.abs(values)) * scale < 2**15


def test_no_power_of_two():
    assert power_of_two(np.zeros(3, "float32")) == 1
    assert power_of_two(np.array([1e-38], "float32")) == 2.0**127  # which float32 holds
    for wrong in (np.inf, np.nan):
        with pytest.raises(ValueError, match="the largest of values is"):
            power_of_two(np.array([1, wrong]))


@pytest.mark.parametrize("shape", [(8,), (3, 5, 4), (1000, 4)])
def test_splitting(shape):
    x = values(shape, 0)
    x.flat[0], x.flat[1] = 0, 2.0**-26  # the last one is lost
    scale = power_of_two(x)
    pieces = np.full((2, *shape), np.nan, "float16")
    d2ltvm.emulate(split(shape, scale), x, pieces)
    assert (pieces == pieces_of(x, scale)).all()
    total = pieces.astype("float64").sum(axis=0) / scale
    assert (np.abs(total - x) <= np.maximum(2.0**-22 * np.abs(x), 2.0**-25 / scale)).all()


def test_machine_code_of_splitting():
    found = d2ltvm.build(split((256, 14, 14, 256), 2.0**14), "sm_90").sass()
    counts = d2ltvm.instructions(found)
    assert counts["LDG.E.128.CONSTANT"] == 1 and counts["STG.E.64"] == 2


def test_machine_code_of_the_convolution():
    kernel = d2ltvm.build(conv_float32(256, 512, 256, 14, 3, 1), "sm_90a")
    loop = next(x for x in sass.loops(kernel.sass()) if any(op.startswith("HGMMA") for op in x))
    assert sum(op.startswith("HGMMA.64x64x16.F32") for op in loop) == 24  # two halves
    assert sum(op.startswith("WARPGROUP.ARRIVE") for op in loop) == 2  # nothing waits in between
    assert not any(op.startswith(("R2UR", "LDL", "STL")) for op in loop)
    # Half of the columns is waited for and collected, then the other half.
    order = [op for op in loop if op.startswith(("HGMMA", "FADD", "WARPGROUP.DEPBAR"))]
    order = [op.split(".")[0] for op, _ in itertools.groupby(order)]
    assert order == ["HGMMA", "WARPGROUP", "FADD", "WARPGROUP", "FADD"]
    (resources,) = d2ltvm.resources(kernel.cubin()).values()
    assert resources.local == 0


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: conv_float32(256, 512, 256, 14, 3, columns=256),
            "columns is 256; expected 64 or 128",
        ),
        (lambda: conv_float32(256, 512, 3, 14, 3), "ic is 3; expected a positive multiple of 8"),
        (lambda: conv_float32(256, 512, 256, 14, 3, stages=4), "stages is 4; expected 2 to 3 with"),
        (
            lambda: conv_float32(256, 512, 256, 14, 3, parts=3),
            "parts is 3; expected a divisor of 4",
        ),
        (
            lambda: conv_float32(256, 512, 256, 14, 3, scale=2.0**-140),
            "scale is .*; expected a normal",
        ),
        (lambda: split((3, 3), 1.0), r"shape is \(3, 3\); expected a multiple of 4"),
        (lambda: split((4, 0), 1.0), r"shape is \(4, 0\); expected positive integers"),
        (lambda: split((4, 4), 3.0), "scale is 3.0; expected a power of two"),
        (lambda: split((4, 4), -2.0), "scale is -2.0; expected a power of two"),
        (lambda: conv_float32(0, 512, 256, 14, 3), "batch is 0; expected a positive integer"),
        (lambda: conv_float32(256, 512, 256, 14, 3, columns=0), "columns is 0; expected 64 or"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("columns, parts", [(64, 1), (64, 2), (128, 1), (128, 2), (128, 4)])
def test_shared_memory_suffices(columns, parts):
    sizes, options = (256, 512, 256, 14, 3, 1, 1), {"columns": columns, "parts": parts}
    kernel = d2ltvm.build(conv_float32(*sizes, **options), "sm_90a")
    assert kernel.launches[0].shared <= planning.SHARED_PER_BLOCK
    assert float32.plan_float32(sizes, **options).stages == {64: 4, 128: min(3, parts + 1)}[columns]
