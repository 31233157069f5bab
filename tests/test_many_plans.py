"""Many plans of one thing: each can be built, and those of a small product are right."""

import pytest

from d2ltvm.bench.plan_races import is_right, measured_twice
from d2ltvm.hopper.any_conv import Conv, product
from d2ltvm.hopper.any_plan import check, fits
from d2ltvm.hopper.many_plans import varied
from d2ltvm.hopper.planner import best, candidates

CASES = [
    (Conv(8, (28, 28), 256, 256, (3, 3), (1, 1)), {}),
    (Conv(32, (14, 14), 72, 40), {}),
    (product(333, 4096, 1000), {}),
    (product(1000, 1000, 1000), {"transposed": False}),
    (product(2, 512, 4096), {"bias": True}),
]


@pytest.mark.parametrize(("conv", "options"), CASES)
def test_candidates_can_be_built(conv, options):
    plans = candidates(conv, 132, **options)
    assert len(plans) == len(set(plans)) > 50
    for plan in plans:
        check(plan)
        assert fits(plan) and plan.stages >= 2 and plan.conv == conv


@pytest.mark.parametrize(("conv", "options"), CASES)
def test_varied_plans_differ_and_begin_with_the_planners(conv, options):
    plans = varied(conv, 132, 12, **options)
    assert plans[:3] == best(conv, 132, 3, **options)
    assert 9 <= len(plans) == len(set(plans)) <= 12
    assert len({(p.swapped, p.rows, p.columns) for p in plans}) >= 4


def test_of_windows_there_are_only_the_planners():
    from d2ltvm.hopper.any_conv import windows

    win = windows(Conv(8, (64, 64), 3, 64, (7, 7), (3, 3), (2, 2)))
    assert varied(win.unfolded, 132, windows=win) == best(win.unfolded, 132, 3, windows=win)


@pytest.mark.slow
@pytest.mark.parametrize("k", range(6))
def test_varied_plans_are_right(k):
    assert is_right(varied(product(200, 136, 328), 6, 18)[3 * k])


def test_measured_twice_holds_one_race_of_each_run():
    for twice in measured_twice():
        assert twice.planned.library == twice.chosen.library  # of one race
        assert twice.planned.case == twice.first.case
