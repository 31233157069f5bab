"""What kernels that were timed say about each other."""

from dataclasses import replace

import pytest

from d2ltvm.bench import plan_races
from d2ltvm.bench.timed_plans import timed_plans
from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_plan import Plan

FOUND = [t for t in timed_plans() if isinstance(t.plan, Plan)]


def test_a_pair_is_of_one_race_and_differs_in_one_field():
    one = next(t for t in FOUND if t.plan.splits == 1)
    wide = replace(one, plan=replace(one.plan, group=one.plan.group + 1, relu=True))
    both = replace(one, plan=replace(one.plan, relu=True, bias=True))
    another_race = replace(wide, library=wide.library + 1)
    timed = [one, wide, both, another_race]
    pairs = plan_races.pairs(timed, lambda plan: plan.relu, relu=False)
    assert pairs == [(wide, one)]


def test_the_pick_is_the_one_that_the_model_thinks_fastest():
    races = plan_races.by_case(FOUND)
    for pick in plan_races.picks(FOUND):
        assert pick.estimate == min(t.estimate for t in races[pick.case.title])


def test_a_wrong_kernel_is_told(monkeypatch):
    plan = Plan(Conv(1, (2, 3), 16, 8, (1, 1), (0, 0)), 1, columns=16, depth=16)
    monkeypatch.setattr(plan_races, "run_anywhere", lambda kernel, x, w, y: y.fill(0))
    assert not plan_races.is_right(plan)


def test_a_plan_that_cannot_run_is_refused():
    plan = Plan(Conv(1, (2, 3), 16, 8, (1, 1), (0, 0)), 1, columns=16, depth=16, splits=3)
    with pytest.raises(ValueError, match="splits is 3"):
        plan_races.is_right(plan)
