"""Many plans of a convolution or product, of all kinds: for whoever measures them.

The model orders the planner's candidates, not always well. Measured, others are often faster than
its first: see `bench.plan_races.measured_twice`.
"""

import collections
from typing import Any

from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_costs import costs
from d2ltvm.hopper.any_model import estimate
from d2ltvm.hopper.any_plan import Plan
from d2ltvm.hopper.planner import best

MANY = 28  # plans that are measured
# How much longer than the first a plan may take by the model: to be in the first half, as the
# first of a kind of tile, as one of a kind of kernel.
NEAR, OF_A_TILE, OF_A_KIND = 1.6, 1.3, 1.35
ALL = 1_000_000


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
    of = costs()
    chosen = dict.fromkeys(best(conv, sms, min(many, 3), of, **options))
    if options.get("windows"):
        return list(chosen)
    seen: collections.Counter[Any] = collections.Counter()
    least = estimate(next(iter(chosen)), of)
    for plan in best(conv, sms, ALL, of, **options):
        p, told = plan, estimate(plan, of)
        if len(chosen) >= many or told > NEAR * least:
            break
        shape = (p.swapped, p.rows, p.columns, p.pingpong)
        tile = (*shape, p.team > 1, p.distributed, p.cut > 0)
        kind = ("kind", p.swapped, p.consumers, p.per, p.pingpong, p.team, p.distributed,
                p.cut > 0, p.blocks_per_sm)  # fmt: skip
        good = len(chosen) < many // 2 and seen[tile] < 2
        good |= seen[kind] < 2 and told < OF_A_KIND * least
        good |= seen[shape] < 1 and told < OF_A_TILE * least
        if good and plan not in chosen:
            chosen[plan] = None
            seen.update((shape, tile, kind))
    return list(chosen)
