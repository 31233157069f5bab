"""Many plans of a convolution or product, of all kinds: for whoever measures them.

The planner tries few widths of tiles and cuts, and its model picks among them. Measured, other
widths and cuts are often faster than the model says: see `bench.plan_races.measured_twice`.
"""

import collections
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_model import estimate
from d2ltvm.hopper.any_plan import AT_ONCE, LARGEST_CLUSTER, PAIR, Plan, check, fits, with_stages
from d2ltvm.hopper.planner import best

WIDTHS = range(16, 257, 16)
TEAMS = ((1, 1), (2, 1), (1, 2), (2, 2), (1, 4), (4, 1))  # blocks that share weights, and images
MOST_PARTS = 10
LONG_SUMS = 512  # channels, from which slots of 32 gain nothing
MANY = 28  # plans that are measured
# How much longer than the first a plan may take by the model: to be in the first half, as the
# first of a kind of tile, as one of a kind of kernel.
NEAR, OF_A_TILE, OF_A_KIND = 1.6, 1.3, 1.35


def every_plan(conv: Conv, sms: int, **options: Any) -> list[Plan]:
    """Plans with tiles of all widths, shared and cut in all ways.

    >>> from d2ltvm.hopper import planner
    >>> conv = Conv(8, (28, 28), 256, 256, (3, 3), (1, 1))
    >>> len(every_plan(conv, 132)) > 5 * len(planner.candidates(conv, 132))
    True

    Args:
        conv: what is computed.
        sms: blocks that run at once.
        options: as for `planner.plan_any`, of what is computed.
    """
    found = {}
    for base in _tiles(conv, sms, options):
        for shared in _shared(base):
            for plan in (shared, *_cut(shared)):
                try:
                    whole = with_stages(plan)
                    check(whole)
                except ValueError:
                    continue
                if whole.stages >= 2 and fits(whole):
                    found[whole] = True
    return list(found)


def _tiles(conv: Conv, sms: int, options: dict[str, Any]) -> Iterator[Plan]:
    """Uncut tiles of all widths, each for a block alone."""
    transposed = options.get("transposed", True)
    depths = (64,) if conv.ic % 64 == 0 or conv.ic > LONG_SUMS or not transposed else (64, 32)
    kinds = [(c, per, ping) for c in (1, 2) for per in (1, 2) for ping in (False, True)[:c]]
    for swapped in (False, True):
        for consumers, per, pingpong in kinds:
            for columns in WIDTHS:
                for depth in depths:
                    plan = Plan(
                        conv, sms, swapped, consumers, per, columns, depth, pingpong=pingpong,
                        **options,
                    )  # fmt: skip
                    large = plan.pixels > max(64, 2 * conv.pixels)
                    large |= plan.channels > max(64, 2 * conv.oc)
                    aligned = transposed or plan.channels % 64 == 0
                    in_turns = plan.tiles > sms or not pingpong
                    if aligned and in_turns and not large and fits(plan):
                        yield plan


def _shared(base: Plan) -> Iterator[Plan]:
    """The plan, and with what it fetches shared by blocks of a cluster."""
    for cluster, abreast in TEAMS:
        if cluster > base.down or abreast > base.across or base.pixels % (8 * abreast):
            continue
        if abreast == 1 or base.conv.is_product:
            yield replace(base, cluster=cluster, abreast=abreast)


def _cut(plan: Plan) -> Iterator[Plan]:
    """The plan with sums cut, in memory or in a cluster; or with two blocks on an SM."""
    if plan.pingpong:
        return
    full = plan.tiles // plan.lanes * plan.lanes
    rest = plan.tiles - full
    if plan.team <= PAIR and rest:
        most = min(64, plan.rounds // 3, plan.lanes // rest)
        for splits in {*range(2, min(most, MOST_PARTS) + 1), most} - {0, 1}:
            yield replace(plan, splits=splits, full=full)
    if plan.team > 1:
        return
    for splits in range(2, LARGEST_CLUSTER + 1):
        at_once = AT_ONCE.get(splits, plan.sms // splits)
        if plan.tiles <= at_once and plan.rounds >= 2 * splits:
            yield replace(plan, splits=splits, distributed=True)
    if plan.consumers == 1 and plan.tiles > plan.sms:
        yield replace(plan, blocks_per_sm=2)


def varied(conv: Conv, sms: int, many: int = MANY, **options: Any) -> list[Plan]:
    """Plans to measure: the planner's first three, and then such as differ from each other.

    Up to half of them are those that are fastest by the model, of each kind of tile two. The others
    are the first of their kinds: of tiles, of clusters, of cuts.

    >>> plans = varied(Conv(32, (28, 28), 256, 256, (3, 3), (1, 1)), 132)
    >>> len(plans), len({plan.columns for plan in plans}) > 5
    (28, True)

    Args:
        conv: what is computed.
        sms: blocks that run at once.
        many: how many; there may be fewer.
        options: as for `planner.plan_any`, of what is computed.
    """
    chosen = dict.fromkeys(best(conv, sms, min(many, 3), **options))
    if options.get("windows"):
        return list(chosen)
    told = {plan: estimate(plan) for plan in every_plan(conv, sms, **options)}
    least = min(told.values(), default=0.0)
    seen: collections.Counter[Any] = collections.Counter()
    for plan in sorted(told, key=lambda plan: told[plan]):
        if len(chosen) >= many or told[plan] > NEAR * least:
            break
        p = plan
        shape = (p.swapped, p.rows, p.columns, p.pingpong)
        tile = (*shape, p.team > 1, p.distributed, p.cut > 0)
        kind = ("kind", p.swapped, p.consumers, p.per, p.pingpong, p.team, p.distributed,
                p.cut > 0, p.blocks_per_sm)  # fmt: skip
        good = len(chosen) < many // 2 and seen[tile] < 2
        good |= seen[kind] < 2 and told[plan] < OF_A_KIND * least
        good |= seen[shape] < 1 and told[plan] < OF_A_TILE * least
        if good and plan not in chosen:
            chosen[plan] = None
            seen.update((shape, tile, kind))
    return list(chosen)
