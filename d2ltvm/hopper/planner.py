"""The planner: of all plans of a convolution or product, those that should be fastest."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import Any

from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_costs import Costs, costs
from d2ltvm.hopper.any_model import estimate
from d2ltvm.hopper.any_plan import (
    LARGEST_CLUSTER,
    MAX_ACTIVE_CLUSTERS,
    PAIR,
    Plan,
    check,
    fits,
    possible,
    with_stages,
)
from d2ltvm.hopper.planning import check_sms

NAMES = [field.name for field in fields(Plan)]
WIDTHS = range(16, 257, 16)  # columns of a tile
CONSUMERS = ((1, 1), (1, 2), (2, 1), (2, 2))  # consumers, and times 64 rows of each
# Blocks that share weights, and blocks that share images.
TEAMS = ((1, 1), (PAIR, 1), (1, PAIR), (2, 2), (1, 4), (4, 1))
MOST_PARTS = 10  # that are tried one after the other; behind it as many as there is room for
LONG_SUMS = 512  # channels, from which slots of 32 gain nothing


def candidates(conv: Conv, sms: int, **options: Any) -> list[Plan]:
    """Plans that are worth a thought: tiles of all widths, shared and cut in all ways.

    Bricks are not among them: beside lines of pixels they gained nothing, see `Plan.bricks`.

    >>> conv = Conv(8, (28, 28), 256, 256, (3, 3), (1, 1))
    >>> {plan.columns for plan in candidates(conv, 132)} == set(WIDTHS)
    True

    Args:
        conv: what is computed.
        sms: blocks that run at once.
        options: as for `plan_any`, of what is computed.
    """
    return list(finished(unfinished(conv, sms, **options)))


def unfinished(conv: Conv, sms: int, **options: Any) -> Iterator[Plan]:
    """The same without slots and room for results, and with some that cannot run.

    What the model says does not depend on these, and to work them out takes longer than the model.
    """
    for base in tiles_to_try(conv, sms, **options):
        for shared in sharing(base):
            yield shared
            yield from cuts(shared)


def finished(plans: Iterable[Plan]) -> Iterator[Plan]:
    """Those that can run, each once, with as many slots as fit."""
    found = set()
    for plan in filter(possible, plans):
        whole = with_stages(plan)
        # One slot is split, one is multiplied, one is filled: none of them may be missing.
        if whole.stages >= (3 if plan.pieces > 1 else 2) and whole not in found:
            found.add(whole)
            yield whole


def tiles_to_try(conv: Conv, sms: int, **options: Any) -> Iterator[Plan]:
    """Uncut tiles of all widths, each for a block alone.

    None has over twice the result's pixels or channels, but the smallest is always among them.
    """
    transposed = options.get("transposed", True)
    kinds = itertools.product(
        (False, True), CONSUMERS, (False, True), WIDTHS, depths(conv, transposed)
    )
    if options.get("numbers") == "float32":
        kinds = itertools.product((False,), ((1, 1), (2, 1)), (False,), WIDTHS, (64,))
    for swapped, (consumers, per), pingpong, columns, depth in kinds:
        if pingpong and consumers == 1:
            continue
        plan = Plan(
            conv, sms, swapped, consumers, per, columns, depth, pingpong=pingpong, **options
        )
        large = plan.pixels > max(16 if swapped else 64, 2 * conv.pixels)
        large |= plan.channels > max(64 if swapped or not transposed else 16, 2 * conv.oc)
        # The second matrix of a product as it is comes in boxes of 64 columns.
        aligned = transposed or plan.channels % 64 == 0
        in_turns = plan.tiles > sms or not pingpong
        if aligned and in_turns and not large and fits(plan):
            yield plan


def depths(conv: Conv, transposed: bool) -> tuple[int, ...]:
    """Channels of a slot that are tried: fewer than 64 where it would not be full."""
    if not transposed:
        return (64,)
    if conv.ic <= 16:
        return (16,)
    if conv.ic <= 32:
        return (32,)
    return (64,) if conv.ic % 64 == 0 or conv.ic > LONG_SUMS else (64, 32)


def sharing(base: Plan) -> Iterator[Plan]:
    """The plan, and with what it fetches shared by the blocks of a cluster."""
    changed = changes_of(base)
    for cluster, abreast in TEAMS:
        if cluster > base.down or abreast > base.across or cluster * abreast > base.sms:
            continue
        if base.pixels % (8 * abreast):
            continue
        if abreast == 1 or base.conv.is_product:
            yield changed(cluster=cluster, abreast=abreast)


def changes_of(plan: Plan) -> Callable[..., Plan]:
    """A function that returns the plan with other fields: `dataclasses.replace`, but quicker.

    >>> changes_of(Plan(Conv(8, (28, 28), 64, 64), 132))(columns=64).columns
    64
    """
    given = {name: getattr(plan, name) for name in NAMES}

    def changed(**changes: Any) -> Plan:
        new = object.__new__(Plan)  # a frozen dataclass sets its fields one by one
        new.__dict__.update(given, **changes)
        return new

    return changed


def cuts(plan: Plan) -> Iterator[Plan]:
    """The plan with sums cut, in memory or in a cluster; or two blocks on an SM, if they fit."""
    if plan.pingpong:
        return
    changed = changes_of(plan)
    full = plan.tiles // plan.lanes * plan.lanes
    rest = plan.tiles - full
    if plan.team <= PAIR and rest:
        most = min(64, plan.rounds // 3, plan.lanes // rest)
        for splits in {*range(2, min(most, MOST_PARTS) + 1), most} - {0, 1}:
            yield changed(splits=splits, full=full)
    if plan.team > 1:
        return
    for splits in range(2, LARGEST_CLUSTER + 1):
        at_once = MAX_ACTIVE_CLUSTERS.get(splits, plan.sms // splits)
        if plan.tiles <= at_once and plan.rounds >= 2 * splits:
            yield changed(splits=splits, distributed=True)
    if plan.consumers == 1 and plan.tiles > plan.sms:
        two = changed(blocks_per_sm=2)
        if fits(two):
            yield two


def best(
    conv: Conv, sms: int, many: int = 1, of: Costs | None = None, **options: Any
) -> list[Plan]:
    """The plans that should be fastest, by the model, the best first; as for `candidates`.

    Args:
        conv, sms, options: as for `candidates`.
        many: how many.
        of: a chip's constants; None for those of this machine's GPU.
    """
    return list(itertools.islice(finished(_sorted(conv, sms, of or costs(), **options)), many))


@functools.lru_cache(64)
def _sorted(conv: Conv, sms: int, of: Costs, **options: Any) -> tuple[Plan, ...]:
    plans = unfinished(conv, sms, **options)
    return tuple(sorted(plans, key=lambda plan: estimate(plan, of)))


CHOSEN_BY_YOU = {
    "windows", "transposed", "bias", "residual", "scale", "relu", "relu6", "wide", "numbers"
}  # fmt: skip


def plan_any(conv: Conv, sms: int | None = None, **options: Any) -> Plan:
    """A plan; what is not given is chosen."""
    sms = check_sms(sms)
    if set(options) <= CHOSEN_BY_YOU:
        return best(conv, sms, **options)[0]
    given = Plan(conv, sms, **options)
    check(given)
    return given if "stages" in options else with_stages(given)
