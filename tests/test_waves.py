"""Tiles dealt out to multiprocessors, and loads under way, against plain simulations."""

import heapq
import math

import numpy as np
import pytest

import d2ltvm
from d2ltvm.analysis import in_flight, roofline, waves
from d2ltvm.hopper import planning


def drawn(rng):
    split = int(rng.choice([1, 1, 2, 3, 4]))
    return {
        "tiles": int(rng.integers(1, 60)),
        "sms": int(rng.integers(1, 20)),
        "an_sm": int(rng.integers(1, 4)),
        "rounds": int(rng.integers(split, 12)),
        "split": split,
        "ends": int(rng.integers(0, 4)),
        "way": str(rng.choice(waves.WAYS)),
        "faster": int(rng.choice([0, 0, 25, 50])),
    }


def test_every_round_is_dealt_out_once_and_no_place_does_two_things_at_a_time():
    rng = np.random.default_rng(0)
    for _ in range(300):
        how = drawn(rng)
        dealt = waves.deal(**how)
        seen = np.zeros((how["tiles"], how["rounds"]), int)
        for place, pieces in enumerate(dealt.places):
            now = 0
            for piece in pieces:
                seen[piece.tile, piece.first : piece.last] += 1
                assert piece.start == now
                now = piece.stop
                fast = place // how["an_sm"] % 5 == 0
                speed = 1 + how["faster"] / 100 * fast
                took = (piece.last - piece.first + how["ends"]) / speed
                assert piece.stop - piece.start == pytest.approx(took)
        assert (seen == 1).all(), how
        assert len(dealt.places) == how["sms"] * how["an_sm"]


def ticking(how):
    """Rounds until all is done, when places take pieces on demand: step by step."""
    tiles, rounds, split = how["tiles"], how["rounds"], how["split"]
    sizes = [rounds * (k + 1) // split - rounds * k // split for k in range(split)] * tiles
    left, tick = [0] * (how["sms"] * how["an_sm"]), 0
    while sizes or any(left):
        for place, rest in enumerate(left):
            if rest == 0 and sizes:
                left[place] = sizes.pop(0) + how["ends"]
        left = [max(0, rest - 1) for rest in left]
        tick += 1
    return tick


def test_on_demand_takes_as_long_as_a_clock_says():
    rng = np.random.default_rng(1)
    for _ in range(300):
        how = drawn(rng) | {"way": "on demand", "faster": 0}
        assert waves.deal(**how).time == ticking(how), how


def test_in_turns_takes_as_long_as_the_plan_and_the_occupancy_say():
    shape = planning.ConvShape(256, 512, 256, 14, 3, 1)
    plan = planning.plan_conv(shape, sms=132)
    dealt = waves.deal(plan.tiles, 132, rounds=9 * plan.chunks)
    assert dealt.time == math.ceil(plan.tiles / 132) * 9 * plan.chunks
    held = d2ltvm.occupancy("H200", 256, 64, grid=1000)
    dealt = waves.deal(1000, 132, held.blocks)
    assert dealt.waves == pytest.approx(held.waves)
    assert dealt.busy == pytest.approx(held.waves / math.ceil(held.waves))


def test_stream_k_is_as_even_as_whole_rounds_allow():
    rng = np.random.default_rng(2)
    for _ in range(100):
        how = drawn(rng) | {"way": "stream-K", "faster": 0, "ends": 0}
        dealt = waves.deal(**how)
        places = how["sms"] * how["an_sm"]
        assert dealt.time == math.ceil(dealt.rounds / places)
        assert dealt.sums <= places


def test_what_cannot_be_dealt_out_is_refused():
    with pytest.raises(ValueError, match="tiles is 0; expected an integer of at least 1"):
        waves.deal(0, 132)
    with pytest.raises(ValueError, match="split is 4; expected at most the 3 rounds of a tile"):
        waves.deal(8, 132, rounds=3, split=4)
    with pytest.raises(ValueError, match="way is 'at once'; expected 'in turns', 'on demand', 's"):
        waves.deal(8, 132, way="at once")


def served(count, latency, rate, loads=20000):
    """Loads a ns, when `count` are always under way: each takes its turn, then the latency."""
    asked, free, ends = [0.0] * count, 0.0, []
    for _ in range(loads):
        free = max(free, heapq.heappop(asked)) + 1 / rate
        ends.append(free + latency)
        heapq.heappush(asked, ends[-1])
    return (loads // 2) / (ends[-1] - ends[loads // 2 - 1])


@pytest.mark.parametrize("threads, loads", [(32, 1), (256, 1), (1024, 1), (1024, 4), (2048, 8)])
def test_littles_law_is_what_a_queue_does(threads, loads):
    found = in_flight.in_flight("H200", threads, 400, 4, loads)
    rate = 4800 / 132 / 4  # loads a ns of an SM
    attained = served(threads * loads, 400, rate) * 4 * 132 / 1000
    assert found.tb_s == pytest.approx(attained, rel=0.03)
    assert found.wait == pytest.approx(found.bytes / (found.tb_s * 1000 / 132))
    assert found.needed == pytest.approx(4800 / 132 * 400)


def test_loads_that_cannot_be_under_way_are_refused():
    with pytest.raises(ValueError, match="threads is 2048; expected at most 1024 on T4"):
        in_flight.in_flight("T4", 2048, 400)
    with pytest.raises(ValueError, match="latency is 0; expected a positive number"):
        in_flight.in_flight("T4", 32, 0)


def test_the_roofline():
    h200 = d2ltvm.chip("H200")
    assert roofline.attainable("H200", h200.balance / 2) == h200.fp32_tflops / 2
    assert roofline.attainable("H200", 1000, sms=66) == h200.fp32_tflops / 2
    with pytest.raises(ValueError, match="sms is 133; expected 1 to 132 on H200"):
        roofline.attainable("H200", 1, 133)
    with pytest.raises(ValueError, match="intensity is 0; expected a positive number"):
        roofline.attainable("H200", 0)
