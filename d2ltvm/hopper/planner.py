"""The planner: of all plans of a convolution or product, those that should be fastest."""

import functools
import itertools
import math
from dataclasses import replace
from typing import Any

from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_model import estimate, line_cycles, product_cycles
from d2ltvm.hopper.any_plan import PAIR, Plan, check, fits, with_stages
from d2ltvm.hopper.planning import check_sms

# Tiles that are tried: consumers, times 64 rows of each, columns.
PIXELS_BY_CHANNELS = (
    (2, 1, 256), (2, 1, 192), (2, 1, 160), (2, 1, 128), (2, 1, 96), (2, 1, 64), (2, 1, 48),
    (2, 1, 32), (2, 1, 16), (2, 2, 128), (2, 2, 96), (2, 2, 64), (2, 2, 32), (2, 2, 16),
    (1, 1, 192), (1, 1, 128), (1, 1, 96), (1, 1, 64), (1, 2, 128),
)  # fmt: skip
CHANNELS_BY_PIXELS = (
    (2, 1, 256), (2, 1, 192), (2, 1, 128), (2, 1, 64), (2, 1, 32), (2, 1, 16), (1, 1, 256),
    (1, 1, 128), (1, 1, 64), (1, 1, 32), (1, 1, 16),
)  # fmt: skip

# Blocks that share weights, and blocks that share images.
TEAMS = ((PAIR, 1), (1, PAIR), (2, 2), (1, 4))
WAVES_TO_FILL = 3
MOST_WAVES = 12  # behind which an idle part of the last one hardly counts


def tiles_to_try(conv: Conv, sms: int, **options: Any) -> list[Plan]:
    """Plans of uncut tiles that fit, and that a convolution is not much smaller than.

    Beside the tiles above there are some as wide as to fill one to three waves of tiles.
    """
    depths = [64]
    if options.get("transposed", True):
        if conv.ic <= 16:
            depths = [16]
        elif conv.ic % 64 and math.ceil(conv.ic / 32) % 2:
            depths = [64, 32] if conv.ic > 32 else [32]
    kinds = [
        (swapped, *kind, pingpong)
        for swapped, tiles in ((False, PIXELS_BY_CHANNELS), (True, CHANNELS_BY_PIXELS))
        for kind in tiles
        for pingpong in ((False, True) if kind[0] == 2 else (False,))
    ]
    kinds += [(swapped, 2, 1, columns, False) for swapped, columns in filling(conv, sms)]
    found = []
    for (swapped, consumers, per, columns, pingpong), depth in itertools.product(kinds, depths):
        plan = Plan(
            conv, sms, swapped, consumers, per, columns, depth, pingpong=pingpong, **options
        )
        aligned = plan.transposed or (plan.channels % 64 == 0 and depth == 64)
        # Of a size, twice is enough; the smallest tile always.
        large = plan.pixels > max(64 if not swapped else 16, 2 * conv.pixels)
        large |= plan.channels > max(64 if swapped or not plan.transposed else 16, 2 * conv.oc)
        plan = with_stages(plan)
        if aligned and not large and plan.stages >= 2:
            found.append(plan)
    return found


def filling(conv: Conv, sms: int) -> list[tuple[bool, int]]:
    """Whether operands are swapped, and columns with which tiles just fill some waves."""
    found = []
    for swapped, long, short in ((False, conv.pixels, conv.oc), (True, conv.oc, conv.pixels)):
        known = {
            columns for _, _, columns in (CHANNELS_BY_PIXELS if swapped else PIXELS_BY_CHANNELS)
        }
        for waves in range(1, WAVES_TO_FILL + 1):
            if across := waves * sms // math.ceil(long / 128):
                columns = math.ceil(short / across / 16) * 16
                if 64 < columns < 256 and columns not in known:
                    known.add(columns)
                    found.append((swapped, columns))
    return found


def candidates(conv: Conv, sms: int, **options: Any) -> list[Plan]:
    """Plans that are worth a thought: tiles, shared by a cluster or not, with sums cut or not.

    Bricks are not among them: beside lines of pixels they gained nothing, see `Plan.bricks`.
    """
    found: list[Plan] = []
    for base in tiles_to_try(conv, sms, **options):
        if base.pingpong and base.tiles <= sms:
            continue
        shared = sharing(base)
        found += [base, *shared, *in_pairs(base)]
        for plan in (base, *shared):
            found += cuts(plan)
        if base.consumers == 1 and not base.windows and base.tiles > sms and not base.pingpong:
            found.append(with_stages(replace(base, blocks_per_sm=2)))
    return [plan for plan in found if plan.stages >= 2 and fits(plan)]


def sharing(base: Plan) -> list[Plan]:
    """The plan with weights, or images of a product, or both, shared by the blocks of a cluster.

    It may gain where fetching takes longer than computing, or where all of the time goes into
    fetching weights that no other tile has.
    """
    found = []
    few = base.conv.is_product and base.down == 1 and not base.pingpong
    for cluster, abreast in TEAMS:
        if cluster * abreast > base.sms or cluster > base.down or abreast > base.across:
            continue
        plan = replace(base, cluster=cluster, abreast=abreast)
        each = plan.channels // cluster
        whole = each >= 32 if base.transposed else each % 64 == 0
        whole &= abreast == 1 or (base.conv.is_product and base.pixels % (8 * abreast) == 0)
        before = base if plan.team == PAIR else replace(base, cluster=cluster)
        if whole and (few or line_cycles(before) > product_cycles(base)):
            found.append(with_stages(plan))
    return found


def cuts(base: Plan) -> list[Plan]:
    """The plan with sums cut of tiles that would leave multiprocessors idle in the last wave."""
    full = base.tiles // base.lanes * base.lanes
    rest = base.tiles - full
    if base.pingpong or base.team > PAIR or not rest or full > MOST_WAVES * base.lanes:
        return []
    most = min(64, base.rounds // (2 if not full else 4), base.lanes // rest)
    parts = set() if full else set(range(2, min(most, 16) + 1))
    parts |= {most} - {0, 1}
    return [with_stages(replace(base, splits=splits, full=full)) for splits in parts]


def in_pairs(base: Plan) -> list[Plan]:
    """The plan with sums cut into two parts that meet in the shared memory of a cluster."""
    if base.pingpong or base.tiles * PAIR > base.lanes or base.rounds < 2 * PAIR:
        return []
    return [with_stages(replace(base, splits=PAIR, distributed=True))]


@functools.lru_cache(256)
def best(conv: Conv, sms: int, many: int = 1, **options: Any) -> list[Plan]:
    """The plans that should be fastest, by the model, the best first; as for `candidates`."""
    return sorted(candidates(conv, sms, **options), key=estimate)[:many]


CHOSEN_BY_YOU = {"windows", "transposed", "bias", "residual", "scale", "relu", "wide"}


def plan_any(conv: Conv, sms: int | None = None, **options: Any) -> Plan:
    """A plan; what is not given is chosen."""
    sms = check_sms(sms)
    if set(options) <= CHOSEN_BY_YOU:
        return best(conv, sms, **options)[0]
    given = Plan(conv, sms, **options)
    check(given)
    return given if "stages" in options else with_stages(given)
