"""Plans that were measured: the file is the records', each can run, and layers are run by them."""

import pytest

from d2ltvm.bench import sets
from d2ltvm.hopper import fastest, planner
from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_costs import COSTS, costs
from d2ltvm.hopper.any_layer import any_layer, ways
from d2ltvm.hopper.any_plan import check, fits
from d2ltvm.hopper.fastest import fastest_known
from tools import fastest_plans


def test_the_file_is_what_the_records_say():
    assert fastest.FILE.read_text() == fastest_plans.text(), "run: python tools/fastest_plans.py"


@pytest.mark.parametrize("chip", ["H100", "H200"])
def test_each_plan_can_run(chip):
    found = 0
    for case in (*sets.layers(), *sets.products(), *sets.unseen()):
        plan = fastest_known(case.conv, 132, chip, case.transposed is not False)
        if plan is not None:
            check(plan)
            assert fits(plan) and plan.stages >= 2 and plan.conv == case.conv
            found += 1
    assert found > 200


def test_a_layer_that_was_measured_is_run_by_its_plan():
    conv = Conv(32, (28, 28), 512, 512)
    known = fastest_known(conv, 132)
    assert any_layer(conv, sms=132).plan == known
    assert ways(conv, sms=132)[0].plan == known
    assert [layer.plan for layer in ways(conv, sms=132)].count(known) == 1
    fused = any_layer(conv, sms=132, bias=True, relu=True).plan
    assert (fused.columns, fused.bias, fused.relu) == (known.columns, True, True)


def test_known_plans_can_be_left_out():
    conv = Conv(32, (14, 14), 576, 160)
    assert any_layer(conv, sms=132, known=False).plan == planner.best(conv, 132)[0]
    assert any_layer(conv, sms=132).plan == fastest_known(conv, 132) != planner.best(conv, 132)[0]


def test_nothing_is_known_of_other_sizes_chips_and_numbers_of_sms():
    conv = Conv(32, (28, 28), 512, 512)
    assert fastest_known(conv, 131) is None
    assert fastest_known(conv, 132, "A100") is None
    assert fastest_known(Conv(33, (28, 28), 512, 512), 132) is None


@pytest.mark.parametrize("more", [{"bias": True, "residual": True}, {"wide": True}])
def test_a_plan_with_something_else_to_compute_can_run_or_there_is_none(more):
    found = [fastest_known(case.conv, 132, "H100", **more) for case in sets.layers()]
    assert sum(plan is not None for plan in found) > 80
    for plan in found:
        if plan is not None:
            check(plan)
            assert fits(plan) and plan.stages >= 2


def test_costs_are_a_chips():
    assert costs("NVIDIA H100 80GB HBM3") is COSTS["H100"]
    assert costs("H200") is costs("NVIDIA GH200") is COSTS["H200"]


@pytest.mark.parametrize(
    ("conv", "options", "way"),
    [
        (Conv(256, (7, 7), 512, 512, (3, 3), (1, 1)), {}, "boxes"),
        (Conv(256, (7, 7), 512, 512, (3, 3), (1, 1)), {"bias": True}, "whole"),  # it has no bias
        (Conv(256, (28, 28), 256, 256, (3, 3), (1, 1), (2, 2)), {}, "whole"),  # slower in the race
        (Conv(32, (7, 7), 512, 512, (3, 3), (1, 1)), {}, "whole"),  # not in the race
    ],
)
def test_the_special_kernel_is_taken_where_it_won(conv, options, way, monkeypatch):
    monkeypatch.setattr(fastest, "fitted", lambda: "H200")
    found = ways(conv, sms=132, **options)
    assert found[0].way == any_layer(conv, sms=132, **options).way == way
    assert len(found) == len(set(found))


def test_nothing_was_raced_on_an_h100_or_with_fewer_sms():
    conv = Conv(256, (7, 7), 512, 512, (3, 3), (1, 1))
    assert fastest.boxes_won(conv, 132, "H200")
    assert not fastest.boxes_won(conv, 132, "H100") and not fastest.boxes_won(conv, 131, "H200")
