"""What kernels of `timed_plans` say about each other: pairs that differ in one thing, and picks."""

import collections
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from d2ltvm.analysis.emulator.run import run_anywhere
from d2ltvm.bench import set_bench
from d2ltvm.bench.sets import Case
from d2ltvm.bench.timed_plans import AGAIN, WIDE, TimedPlan, timed_plans
from d2ltvm.compiler.verify import WrongResultError, compare
from d2ltvm.hopper.any_plan import Plan, check
from d2ltvm.hopper.any_shape import conv_any

# What follows from everything else: slots that still fit, the order of tiles, room for results.
FOLLOWS = ("stages", "group", "room", "parts")


def by_case(timed: Iterable[TimedPlan]) -> dict[str, list[TimedPlan]]:
    """Kernels by the title of the case that they compute.

    >>> from d2ltvm.bench.timed_plans import timed_plans
    >>> max(map(len, by_case(timed_plans()).values()))
    11
    """
    found = collections.defaultdict(list)
    for each in timed:
        found[each.case.title].append(each)
    return dict(found)


def picks(timed: Iterable[TimedPlan]) -> list[TimedPlan]:
    """Of each case, the kernel that the model thinks fastest, of those timed that are `offered`.

    >>> from d2ltvm.bench.timed_plans import timed_plans
    >>> len(picks(timed_plans()))
    245
    """
    offered = by_case(each for each in timed if each.offered)
    return [min(found, key=lambda each: each.estimate) for found in offered.values()]


@dataclass(frozen=True)
class Twice:
    """A case whose plans were timed, and some of them again in a later run.

    Attributes:
        planned: the planner's pick, as the second run timed it.
        chosen: the plan that was fastest in the first run, as the second run timed it.
        first: the same, as the first run timed it.
    """

    planned: TimedPlan
    chosen: TimedPlan
    first: TimedPlan


def measured_twice(device: str = "nvidia-h200") -> list[Twice]:
    """What choosing among many measured plans gained, told by a run that did not choose.

    >>> cases = measured_twice()
    >>> all(twice.chosen.plan == twice.first.plan for twice in cases)
    True

    Args:
        device: a folder under book/measurements.
    """
    again = by_case(timed_plans(AGAIN, device))
    found = []
    for title, race in by_case(timed_plans(WIDE, device)).items():
        later = {each.plan: each for each in again.get(title, [])}
        both = [each for each in race if each.plan in later and isinstance(each.plan, Plan)]
        if both:
            first = min(both, key=lambda each: each.us)
            # The planner's pick was built first, so that it is the first of its line.
            found.append(Twice(again[title][0], later[first.plan], first))
    return found


def pairs(
    timed: Iterable[TimedPlan], differs: Callable[[Plan], Any], **without: Any
) -> list[tuple[TimedPlan, TimedPlan]]:
    """Kernels with something, each beside the one of the same race that differs in that alone.

    How many slots the ring has, in which order tiles are taken and where results wait may differ,
    too: they follow from the rest.

    >>> from d2ltvm.bench.timed_plans import FIRST, timed_plans
    >>> box, line = pairs(timed_plans(FIRST), lambda plan: plan.bricks, bricks=None)[0]
    >>> box.case == line.case, line.plan.bricks
    (True, None)

    Args:
        timed: of one run or of several; kernels of different runs are no pair.
        differs: whether a plan has it.
        without: fields of the plan that does not have it.
    """
    races = collections.defaultdict(list)
    for each in timed:
        if isinstance(each.plan, Plan):
            races[each.case, each.library].append((each, each.plan))
    found = []
    for race in races.values():
        for one, plan in race:
            for other, beside in race if differs(plan) else ():
                follows = set(FOLLOWS) - set(without)
                same = {name: getattr(beside, name) for name in follows}
                if replace(plan, **same, **without) == beside:
                    found.append((one, other))
    return found


def is_right(plan: Plan) -> bool:
    """Whether a plan's kernel computes, of random numbers, what float64 does.

    Without a GPU that can run it, it is emulated.

    >>> from d2ltvm.hopper.any_conv import Conv
    >>> is_right(Plan(Conv(1, (2, 3), 16, 8, (1, 1), (0, 0)), 1, columns=16, depth=16))
    True

    Raises:
        ValueError: the plan cannot run, as for `any_plan.check`.
    """
    check(plan)
    case = Case("random", plan.conv, plan.transposed if plan.conv.is_product else None)
    x, w = set_bench.data(case)
    y = np.full((plan.conv.batch, *plan.conv.out, plan.conv.oc), np.nan, plan.dtype)
    parts = [np.full(plan.partials, np.nan, "float32")] if plan.meet else []
    run_anywhere(conv_any(plan.conv, plan=plan), x, w, *parts, y)
    want, most = set_bench.exact(case, x, w, np.arange(plan.conv.pixels))
    try:
        terms = 2 * plan.conv.ic * plan.conv.taps
        compare("Y", y.reshape(want.shape), want, most, terms=terms, sums="float32")
    except WrongResultError:
        return False
    return True
