"""Schedules of depthwise convolution, pooling and batch norm: every element against float64."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import d2ltvm
from d2ltvm import schedules
from d2ltvm.bench import operator_layers
from d2ltvm.bench.operator_contenders import exact_bn
from d2ltvm.compiler.verify import compare
from d2ltvm.compute import (
    depthwise_nhwc_reference,
    depthwise_reference,
    pool_nhwc_reference,
    pool_reference,
)
from d2ltvm.system import environment

ROOT = Path(__file__).parents[1]

# batch, c, n, k, p, s; then strip, block and width: some do not divide, one has no border.
WINDOWS = (
    ((2, 16, 7, 3, 1, 1), {"strip": (7, 1), "block": (1, 7, 2), "width": 8}),
    ((1, 8, 7, 5, 2, 2), {"strip": (1, 2), "block": (2, 2, 1), "width": 4}),
    ((1, 6, 5, 3, 0, 2), {"strip": (2, 1), "block": (1, 3, 2), "width": 2}),
    ((1, 5, 5, 3, 1, 1), {"strip": (2, 1), "block": (1, 2, 3), "width": 1}),
)


def normal(*shape, half=True):
    values = np.random.default_rng(sum(shape)).standard_normal(shape, "float32") - 0.3
    return values.astype("float16" if half else "float32")


def computed(sch, *inputs):
    """What a kernel writes: emulated in float16, which PoCL may lack, and run in float32."""
    kernel = d2ltvm.build(sch, "sm_90")
    out = np.full(kernel.params[-1].shape, np.nan, kernel.params[-1].dtype)
    if out.dtype == "float16":
        d2ltvm.emulate(sch, *inputs, out)
    else:
        d2ltvm.build(sch)(*inputs, out)
    return out


def hold(got, terms, reference, *inputs):
    """Every element against float64; sums are float32."""
    wide = [x.astype("float64") for x in inputs]
    compare("Y", got, reference(*wide), reference(*map(abs, wide)), terms, "float32")


@pytest.mark.quick(2)
@pytest.mark.parametrize(("shape", "plan"), WINDOWS, ids=lambda v: str(v)[:24])
def test_strips_of_a_depthwise_convolution(shape, plan):
    half = plan["width"] != 2  # PoCL runs that one, in float32
    batch, c, n, k, p, s = shape
    x, w = normal(batch, n, n, c, half=half), normal(k, k, c, half=half)
    got = computed(schedules.depthwise_strips(*shape, **plan, half=half), x, w)
    hold(got, 2 * k * k, lambda x, w: depthwise_nhwc_reference(x, w, p, s), x, w)


@pytest.mark.quick(2)
@pytest.mark.parametrize("largest", [True, False], ids=["max", "avg"])
@pytest.mark.parametrize(("shape", "plan"), [WINDOWS[2], WINDOWS[3]], ids=lambda v: str(v)[:24])
def test_strips_of_a_pooling(shape, plan, largest):
    batch, c, n, k, p, s = shape
    x, kind = normal(batch, n, n, c) - np.float16(3), "max" if largest else "avg"
    got = computed(schedules.pool_strips(*shape, **plan, largest=largest), x)
    if largest:
        np.testing.assert_array_equal(got, pool_nhwc_reference("max", x, k, p, s))
    else:
        hold(got, k * k + 2, lambda x: pool_nhwc_reference(kind, x, k, p, s), x)


@pytest.mark.parametrize(
    ("batch", "c", "n", "groups", "width"), [(1, 64, 7, 8, 8), (2, 24, 3, 4, 2), (1, 9, 9, 2, 4)]
)
def test_a_mean_of_all_pixels(batch, c, n, groups, width):
    x = normal(batch, n, n, c)
    got = computed(schedules.pool_global(batch, c, n, groups, width), x)
    hold(got, n * n + 1, lambda x: x.mean((1, 2)), x)


def test_blocks_of_a_mean_write_their_own_channels_alone():
    """What one writes beyond is overwritten when blocks run in turn, and wrong on a GPU."""
    table = d2ltvm.traffic(schedules.pool_global(1, 512, 7))
    (write,) = [t for t in table if (t.kind, t.scope) == ("write", "global")]
    assert (write.requests, write.sectors) == (512 // 128, 512 * 2 // 32)


@pytest.mark.parametrize(
    ("pixels", "c", "each", "block", "width", "relu", "half"),
    [
        (64, 32, 4, (4, 4), 8, True, True), (64, 32, 4, (4, 4), 8, False, True),
        (9, 12, 2, (3, 2), 4, True, True), (9, 12, 2, (3, 2), 4, False, False),
        (29, 20, 3, (3, 2), 8, True, True),  # nothing divides: a thread has channels of two lines
        (7, 33, 1, (2, 3), 2, True, False),
        (5, 64, 2, (1, 2), 8, True, True),  # 16 channels for two threads
        (29, 1, 2, (2, 4), 8, False, True),
    ],
)  # fmt: skip
def test_a_batch_norm_of_pixels(pixels, c, each, block, width, relu, half):
    x = normal(pixels, c, half=half)
    mean, gamma, beta = np.random.default_rng(c).standard_normal((3, c), "float32")
    var = abs(mean) + np.float32(0.5)
    sch = schedules.batch_norm_pixels(pixels, c, each, block, width, relu, half)
    got = computed(sch, x, mean, var, gamma, beta)
    want, most = exact_bn(x, mean, var, gamma, beta)
    compare("Y", got, np.maximum(want, 0) if relu else want, most, 8, "float32")


def test_a_block_works_out_its_scales_once():
    """Blocks of 64 channels and 16 pixels: each loads 64 numbers of each vector, in 8 sectors."""
    table = d2ltvm.traffic(schedules.batch_norm_pixels(64, 64, 2, (8, 8)))
    vectors = [t.sectors for t in table if t.tensor in ("Mean", "Var", "Gamma", "Beta")]
    assert vectors == [64 // 16 * 8] * 4
    written = [t.requests for t in table if (t.kind, t.scope) == ("write", "shared")]
    assert sum(written) == 64 // 16 * 2 * 2  # two warps' lanes, of scales and of shifts


def test_the_experiment_times_three_schedules_that_are_right():
    spec = importlib.util.spec_from_file_location("norms", ROOT / "experiments/batch_norm.py")
    experiment = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(experiment)
    x = normal(64, 64)
    mean, gamma, beta = np.random.default_rng(1).standard_normal((3, 64), "float32")
    var = abs(mean) + np.float32(0.5)
    want, most = exact_bn(x, mean, var, gamma, beta)
    for make in experiment.SCHEDULES.values():
        got = computed(make(64, 64, 2, (8, 8)), x, mean, var, gamma, beta)
        compare("Y", got, np.maximum(want, 0), most, 8, "float32")
    assert (2, (32, 8)) in experiment.plans(256 * 56 * 56, 64)


@pytest.mark.quick(1)
@pytest.mark.parametrize("target", [None, "llvm"], ids=["threads", "cpu"])
@pytest.mark.parametrize(
    ("c", "n", "k", "p", "s"), [(4, 14, 3, 1, 1), (3, 13, 5, 2, 2), (2, 9, 3, 0, 1)]
)
def test_one_image(c, n, k, p, s, target):
    x, w = normal(c, n, n, half=False), normal(c, 1, k, k, half=False)
    if target:
        convolutions = [schedules.cpu_depthwise(c, n, k, p, s)]
        pools = [schedules.cpu_pool(c, n, k, p, s, largest=kind) for kind in (True, False)]
    else:
        convolutions = [schedules.depthwise_rows(c, n, k, p, s, rows=3, nt=32)]
        pools = [schedules.pool_rows(c, n, k, p, s, 2, 32, kind) for kind in (True, False)]
    for sch in convolutions:
        kernel = d2ltvm.build(sch, target)
        d2ltvm.check(kernel, (x, w), lambda x, w: depthwise_reference(x, w, p, s), 2 * k * k)
    for sch, kind in zip(pools, ("max", "avg"), strict=True):
        kernel = d2ltvm.build(sch, target)
        d2ltvm.check(kernel, (x,), lambda x, kind=kind: pool_reference(kind, x, k, p, s), k * k + 2)


@pytest.mark.quick(1)
@pytest.mark.parametrize("c", [1, 5])
def test_batch_norms_of_an_image(c):
    *inputs, out = d2ltvm.get_bn_data(c, 7)
    for sch, target in (
        (schedules.batch_norm_flat(c, 7, 64), None),
        (schedules.cpu_batch_norm(c, 7), "llvm"),
    ):
        out.fill(np.nan)
        d2ltvm.build(sch, target)(*inputs, out)
        compare("Y", out, *exact_bn(*inputs), terms=6)


@pytest.mark.slow
def test_a_pixel_is_requested_once_for_each_window_it_is_in_and_strips_share():
    """A strip of r rows reads r + 2 rows, three columns wide, 16 bytes a lane."""
    for rows in (1, 2, 7):
        sch = schedules.depthwise_strips(1, 64, 14, 3, 1, 1, (rows, 1), (1, 14, 8))
        warps = 14 // rows * 4  # 14 x 8 threads a block
        asked = 3 * (rows + 2) * warps
        # Requests all of whose lanes lie outside of the image are not made.
        (found,) = [t.requests for t in d2ltvm.traffic(sch) if (t.kind, t.tensor) == ("read", "X")]
        assert 0.7 * asked <= found <= asked


def test_the_rule_gives_plans_that_divide():
    for layer in operator_layers.depthwise_layers():
        plan = schedules.depthwise_plan(*layer)
        (rows, columns), (bands, wide, groups) = plan["strip"], plan["block"]
        assert layer.out % (rows * bands) == layer.out % (columns * wide) == 0
        assert layer.c % (groups * plan["width"]) == 0
        assert 32 <= bands * wide * groups <= 256


@pytest.mark.parametrize("batch", [1, 3, 32, 256])
def test_the_rule_of_batch_norms_gives_plans_that_divide(batch):
    for c, n in [*operator_layers.NORMS, (12, 7), (9, 5)]:
        pixels = batch * n * n
        plan = schedules.batch_norm_plan(pixels, c)
        (side, groups), each = plan["block"], plan["each"]
        assert pixels % (each * side) == c % (groups * plan["width"]) == 0
        assert each == 2 - pixels % 2
        assert side * groups <= 256


def test_batch_norms_have_two_pixels_a_thread_and_up_to_256_threads():
    blocks = [(32, 8), (64, 4), (32, 8), *[(16, 16)] * 4]
    for batch in (256, 32):
        plans = [schedules.batch_norm_plan(batch * n * n, c) for c, n in operator_layers.NORMS]
        assert [plan["each"] for plan in plans] == [2] * 7
        assert [plan["block"] for plan in plans] == blocks


def test_the_plans_of_the_rule_were_timed():
    path = environment.measurements() / "nvidia-h100-80gb-hbm3" / operator_layers.TIMED_NORMS
    lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    shares = operator_layers.timed_norms()
    assert len(lines) == len(shares) == 2 * len(operator_layers.NORMS)
    for line in lines:
        batch, c, n, times = (line[key] for key in ("batch", "channels", "n", "us"))
        side, groups = schedules.batch_norm_plan(batch * n * n, c)["block"]
        for name, share in shares[batch, f"{c} x {n}"].items():
            assert share == times["copy"] / times[f"{name}, 2 pixels, {side} x {groups}"]


@pytest.mark.parametrize(("pixels", "c"), [(64, 32), (49, 12), (3, 10)])
def test_batch_norms_by_the_rule_are_right(pixels, c):
    x = normal(pixels, c)
    mean, gamma, beta = np.random.default_rng(c).standard_normal((3, c), "float32")
    var = abs(mean) + np.float32(0.5)
    sch = schedules.batch_norm_pixels(pixels, c, **schedules.batch_norm_plan(pixels, c))
    want, most = exact_bn(x, mean, var, gamma, beta)
    compare("Y", computed(sch, x, mean, var, gamma, beta), np.maximum(want, 0), most, 8, "float32")


def test_layers_are_those_of_the_networks():
    counts = {name: len(layers) for name, layers in operator_layers.NETWORKS.items()}
    assert counts == {"MobileNet": 9, "MobileNetV2": 10, "EfficientNet-B0": 12}
    first = operator_layers.NETWORKS["MobileNet"][1]
    assert (first.out, first.title) == (56, "64 x 112, 3x3 / 2")
    assert first.moved(2) == 2 * 2 * 64 * (112**2 + 56**2)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: d2ltvm.compute.depthwise_nhwc(1, 8, 4, 5), "k is 5; expected at most n"),
        (lambda: d2ltvm.compute.depthwise_nhwc(0, 8, 4, 3), "batch is 0; expected"),
        (lambda: d2ltvm.compute.depthwise_nhwc(1, 8, 4, 3, dtype="int8"), "dtype is 'int8'; exp"),
        (lambda: d2ltvm.compute.pool_nhwc("sum", 1, 8, 4, 2), "pool_type is 'sum'; expected"),
        (lambda: d2ltvm.compute.pool_nhwc("max", 1, 8, 4, 2, 2), "p is 2; expected less than"),
        (lambda: d2ltvm.compute.global_pool_nhwc(1, 8, 0), "n is 0; expected"),
        (lambda: d2ltvm.compute.batch_norm_nhwc(8, 8, eps=0), "eps is 0; expected"),
        (lambda: d2ltvm.compute.batch_norm_nhwc(8, 8, relu=1), "relu is 1; expected True or"),
        (lambda: d2ltvm.get_conv_data(4, 4, 8, 3, conv_type="wide"), "conv_type is 'wide'; exp"),
        (lambda: d2ltvm.get_conv_data(4, 2, 8, 3, conv_type="depthwise"), "oc is 4; expected ic"),
        (lambda: schedules.batch_norm_plan(0, 8), "pixels is 0; expected"),
        (lambda: schedules.batch_norm_plan(8, True), "c is True; expected"),
        (lambda: schedules.depthwise_strips(1, 8, 4, 3, 1, 1, (1, 2, 3)), r"strip is \(1, 2, 3\)"),
    ],
)
def test_what_is_wrong_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
