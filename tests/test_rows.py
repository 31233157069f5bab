"""The convolution of few channels that reads images as they are: `hopper.rows`."""

import itertools
import math

import numpy as np
import pytest

import d2ltvm
from d2ltvm.bench import sets
from d2ltvm.bench.records import stored_lines
from d2ltvm.compiler.verify import compare
from d2ltvm.hopper import any_costs
from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_layer import any_layer, from_text, to_text
from d2ltvm.hopper.rows import (
    RowsPlan,
    _strip,
    conv_rows,
    plan_rows,
    rows_plans,
    rows_weights,
    takes_rows,
)
from d2ltvm.network.hopper_kernels import RowsConv, conv_kernels
from d2ltvm.network.reference import conv as exact

CASES = (
    (Conv(2, (16, 24), 3, 32, (3, 3), (1, 1), (2, 2)), True, "relu", 2),
    (Conv(3, (9, 24), 3, 64, (3, 3), (1, 1)), False, "", 2),  # pixels begin within a word
    (Conv(1, (20, 40), 3, 64, (7, 7), (3, 3), (2, 2)), True, "", 1),
    (Conv(2, (16, 32), 3, 96, (4, 4), (0, 0), (4, 4)), False, "relu", 4),
    (Conv(2, (13, 8), 1, 16, (5, 5), (2, 2)), True, "relu", 3),  # one channel
    (Conv(5, (11, 16), 3, 24, (3, 3), (1, 1), (2, 2)), True, "relu6", 1),  # filters fill no tile
    (Conv(2, (10, 12), 2, 40, (1, 3), (0, 1)), True, "relu", 8),
    (Conv(1, (35, 40), 3, 128, (6, 6), (2, 2), (2, 2)), True, "relu", 2),
    (Conv(2, (15, 20), 4, 48, (3, 5), (1, 2), (1, 3)), True, "relu6", 2),
    (Conv(1, (1, 8), 1, 8, (3, 3), (1, 1)), True, "", 2),  # one row
)
FIRST = Conv(256, (224, 224), 3, 32, (3, 3), (1, 1), (2, 2))  # MobileNet's


def given(conv):
    """Images, weights, biases, and the result in float64 with the sum of magnitudes."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((conv.batch, *conv.size, conv.ic)).astype("float16")
    w = rng.standard_normal((conv.taps, conv.oc, conv.ic)).astype("float16")
    b = rng.standard_normal(conv.oc).astype("float32")
    images = x.transpose(0, 3, 1, 2).astype("float64")
    own = w.reshape(*conv.kernel, conv.oc, conv.ic).transpose(2, 3, 0, 1).astype("float64")
    want = exact(images, own, conv.stride, conv.pad, 1).transpose(0, 2, 3, 1)
    most = exact(abs(images), abs(own), conv.stride, conv.pad, 1).transpose(0, 2, 3, 1)
    return x, w, b, want, most


def check(plan):
    """Emulate a plan's kernel and compare the result with float64's."""
    conv = plan.conv
    x, w, b, want, most = given(conv)
    y = np.full((conv.batch, *conv.out, conv.oc), np.nan, "float16")
    d2ltvm.emulate(conv_rows(plan), x, rows_weights(plan, w), *([b] if plan.bias else []), y)
    if plan.bias:
        want, most = want + b, most + abs(b)
    if plan.activation:
        want = np.clip(want, 0, 6 if plan.activation == "relu6" else None)
    compare(f"Y of {conv}", y, want, most, 2 * conv.ic * conv.taps + 4, sums="float32")


@pytest.mark.parametrize(("conv", "bias", "activation", "sms"), CASES)
def test_right_at_borders_and_odd_sizes(conv, bias, activation, sms):
    check(plan_rows(conv, sms, bias, activation))


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("strip", [1, 3])
def test_right_however_the_work_is_cut(rows, strip):
    conv = Conv(2, (17, 24), 3, 16, (3, 3), (1, 1), (2, 2))
    check(RowsPlan(conv, 1, rows, strip * rows, 2, True, "relu"))


def test_a_plan_fits_and_all_are_ranked():
    found = rows_plans(FIRST, 132, 99)
    assert len(found) > 10
    assert all(plan.fits for plan in found)
    assert [p.seconds for p in found] == sorted(p.seconds for p in found)
    assert {p.per_sm for p in found} == {1, 2, 3, 4}


@pytest.mark.parametrize(
    "conv",
    [
        Conv(1, (16, 16), 8, 16, (3, 3), (1, 1)),  # channels
        Conv(1, (15, 15), 3, 16, (3, 3), (1, 1)),  # rows of 45 numbers
        Conv(1, (16, 16), 3, 12, (3, 3), (1, 1)),  # filters
        Conv(1, (16, 16), 3, 136, (3, 3), (1, 1)),
        Conv(1, (32, 32), 4, 16, (9, 9), (4, 4)),  # 324 weights
        Conv(1, (16, 16), 3, 16, (3, 3), (1, 1), (1, 1), (2, 2)),  # dilation
        Conv(1, (16, 16), 3, 16),  # one tap
    ],
)
def test_other_sizes_are_refused_and_left_to_other_ways(conv):
    assert not takes_rows(conv)
    assert rows_plans(conv, 132) == []
    with pytest.raises(ValueError, match=r"conv is .*; expected at most 4 channels"):
        plan_rows(conv, 132)
    assert any_layer(conv, sms=132).way != "rows"


def test_an_image_too_wide_for_shared_memory_has_no_plan():
    wide = Conv(1, (16, 65536), 3, 16, (3, 3), (1, 1))
    assert takes_rows(wide)
    assert rows_plans(wide, 132) == []


def test_layers_of_few_channels_are_run_so():
    few = [c.conv for c in (*sets.layers(), *sets.unseen()) if takes_rows(c.conv)]
    assert len(few) >= 8
    for conv in (*few, FIRST):
        layer = any_layer(conv, sms=132)
        assert (layer.way, layer.copies, layer.partials) == ("rows", False, None), conv
        assert from_text(conv, to_text(layer)) == layer


def test_what_it_does_not_compute_is_left_to_other_ways():
    for options in (
        {"residual": True, "bias": True},
        {"scale": True, "bias": True},
        {"wide": True},
    ):
        assert any_layer(FIRST, sms=132, **options).way != "rows"
    assert any_layer(FIRST, sms=132, numbers="float32").way != "rows"
    layer = any_layer(FIRST, sms=132, bias=True, relu6=True)
    assert (layer.plan.bias, layer.plan.activation) == (True, "relu6")
    with pytest.raises(ValueError, match="way is 'rows'; expected another one with"):
        any_layer(FIRST, sms=132, way="rows", pixels=128)


def test_a_network_gets_it_as_a_launch():
    kernel = conv_kernels(FIRST, "relu6", False, sms=132)[0]
    assert isinstance(kernel, RowsConv)
    assert kernel.takes[0][0] == (256, 224, 224, 3)
    assert kernel.takes[-1] == ((256, 112, 112, 32), "float16")
    assert (
        str(kernel)
        == f"{kernel.layer.plan.rows} of {kernel.layer.plan.strip} rows at once, 4 blocks an SM"
    )


def tried():
    """Plans that ran on an H200, and their µs, by layer."""
    cases = [c for c in (*sets.layers(), *sets.unseen()) if takes_rows(c.conv)]
    found = {case.title: case.conv for case in cases}
    for (name, oc, stride), batch in itertools.product(
        (("MobileNet", 32, (2, 2)), ("VGG-16", 64, (1, 1))), (1, 32, 256)
    ):
        conv = Conv(batch, (224, 224), 3, oc, (3, 3), (1, 1), stride)
        found[sets.Case(name, conv).title] = conv
    _, *lines = stored_lines("first_layers_tried.jsonl", "nvidia-h200")
    for line in lines:
        conv, us = found[line["title"]], line["us"]
        plans = {RowsPlan(conv, 132, *line["rule"]): us["rule"]}
        for name in (name for name in us if "rows" in name):
            rows, per_sm = int(name.split()[0]), int(name.split()[2])
            plans[RowsPlan(conv, 132, rows, _strip(conv, rows, 132 * per_sm), per_sm)] = us[name]
        yield plans


def test_the_model_is_as_near_as_its_comment_says(monkeypatch):
    monkeypatch.setattr(any_costs, "fitted", lambda chip=None: "H200")
    races = list(tried())
    errors = [abs(math.log(1e6 * p.seconds / us)) for plans in races for p, us in plans.items()]
    assert len(races) == 13
    assert 95 < len(errors) <= 105
    assert np.mean(errors) < 0.105
    lost = [plans[min(plans, key=lambda p: p.seconds)] / min(plans.values()) for plans in races]
    assert max(lost) < 1.1


@pytest.mark.parametrize("activation", ["tanh", "Relu"])
def test_an_unknown_activation_is_refused(activation):
    with pytest.raises(ValueError, match="activation is"):
        plan_rows(FIRST, 132, activation=activation)
