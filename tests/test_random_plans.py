"""Plans at random: those that `check` lets through are right, and none hangs or fails to build.

A longer run: D2LTVM_RANDOM_PLANS=500 python -m pytest tests/test_random_plans.py
"""

import os
import random

import pytest
from test_any_shape import computed

import d2ltvm
from d2ltvm.compiler.verify import compare
from d2ltvm.hopper.any_conv import Conv, product
from d2ltvm.hopper.any_plan import Plan, check, fits, possible, with_stages

CONVS = (
    product(72, 264, 136),
    product(200, 72, 520),
    Conv(2, (9, 9), 64, 72, (3, 3), (1, 1)),
    Conv(1, (7, 9), 40, 24, (3, 3), (1, 1), (2, 2)),
    Conv(3, (5, 5), 72, 96),
)
SEEDS = 8
EACH = int(os.environ.get("D2LTVM_RANDOM_PLANS", 2 * SEEDS)) // SEEDS
BRICKS = ((1, 4, 16), (2, 8, 8), (1, 8, 8), (3, 8, 8), (8, 3, 8), (4, 4, 4), (1, 16, 16), (2, 2, 8))


def options(rnd, conv):
    """Fields of a plan, most of them possible by themselves."""
    some = rnd.choice
    told = {
        "sms": some([1, 2, 3, 4, 8]), "swapped": some([False, False, True]),
        "consumers": some([1, 2, 2, 3]), "per": some([1, 1, 2, 3]),
        "columns": some([16, 24, 32, 48, 64, 96, 112, 128, 192, 256]),
        "depth": some([16, 32, 48, 64, 64]), "splits": some([1, 1, 2, 3, 4]),
        "group": some([1, 2, 8]), "blocks_per_sm": some([1, 1, 2]),
        "pingpong": some([False] * 4 + [True]), "cluster": some([1, 1, 1, 2, 3, 4]),
        "abreast": some([1, 1, 2]), "distributed": some([False] * 4 + [True]),
        "residual": some([False, True]), "scale": some([False, True]),
        "relu": some([False, True]), "wide": some([False] * 4 + [True]),
        "transposed": not conv.is_product or some([False, True, True]),
        "bricks": some([None] * 4 + [some(BRICKS)]),
    }  # fmt: skip
    return told | {"bias": told["residual"] or told["scale"]}


def drawn(seed):
    """A plan that `check` lets through, and that has room on an SM."""
    rnd = random.Random(seed)
    while True:
        conv = rnd.choice(CONVS)
        told = options(rnd, conv)
        try:
            check(given := Plan(conv, **told))
        except ValueError:
            continue
        plan = with_stages(given)
        if possible(plan) and plan.stages >= 2 and fits(plan):
            return conv, told | {"stages": plan.stages, "parts": plan.parts, "room": plan.room}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_not_refused_is_right(seed):
    for number in range(EACH):
        conv, told = drawn(seed * 10_000 + number)
        transposed = told.pop("transposed")
        y, want, most = computed(d2ltvm.emulate, conv, transposed, **told)
        terms = 2 * conv.ic * conv.taps + 4
        compare(f"Y of {conv} by {told}", y, want, most, terms, sums="float32")


LAYER = Conv(2, (9, 9), 64, 72, (3, 3), (1, 1))


@pytest.mark.parametrize(
    ("conv", "told", "words"),
    [
        (CONVS[0], {"columns": 24}, "columns is 24; expected a multiple of 16, from 16 to 256"),
        (CONVS[0], {"columns": 272}, "columns is 272; expected a multiple of 16, from 16 to 256"),
        (CONVS[0], {"columns": "64"}, "columns is '64'; expected a positive integer"),
        (CONVS[0], {"consumers": 0}, "consumers is 0; expected a positive integer"),
        (CONVS[0], {"depth": 48}, "depth is 48; expected 16, 32 or 64"),
        (CONVS[0], {"consumers": 3, "per": 2}, "consumers is 3 and per 2; expected together at"),
        (CONVS[0], {"transposed": False, "columns": 96}, "transposed is False; expected True with"),
        (CONVS[0], {"transposed": False, "depth": 32}, "transposed is False; expected True with"),
        (CONVS[0], {"bricks": (1, 8, 16)}, "bricks is .*; expected 128 pixels, as a tile has, and"),
        (LAYER, {"bricks": (1, 8, 8)}, "bricks is .*; expected 128 pixels, as a tile has, and"),
        (LAYER, {"consumers": 3, "bricks": (8, 3, 8)}, "bricks is .*; expected sizes that boxes"),
    ],
    ids=str,
)
def test_what_would_be_wrong_is_refused(conv, told, words):
    with pytest.raises(ValueError, match=words):
        check(Plan(conv, 4, **told))
