"""Benchmarks of rings: emulated here, with a clock that passes where a test says so."""

import numpy as np
import pytest
from fake_clock import FakeClock
from test_hopper_layers import Emulated, OnDevice

from d2ltvm.bench import rings
from d2ltvm.bench.hopper_layers import Setting
from d2ltvm.bench.rings import Stream, bench_rings, ring_clocks
from d2ltvm.compiler.verify import WrongResultError
from d2ltvm.hopper import ring


class Small(Emulated):
    """On the emulator, and in memory of its own, as on a GPU."""

    def upload(self, arrays):
        return [array.copy().view(OnDevice) for array in arrays]


class Off(Small):
    """One sum is a little off."""

    def __call__(self, *arrays):
        super().__call__(*arrays)
        arrays[1][0, 0, 0] += 1


@pytest.fixture
def clock(monkeypatch):
    fake = FakeClock(monkeypatch)
    monkeypatch.setattr(rings, "time_together", fake.time_together)
    return fake


def on(kernel, clock):
    return Setting(build=lambda func: kernel(func, clock))


@pytest.mark.slow
def test_rates_are_bytes_by_time_with_their_spread(clock):
    streams = {"once": Stream(ring.stream, 300), "twice": Stream(ring.stream, 300, laps=2)}
    slots = {4: (32, 1), 8: (32, 2)}
    found = bench_rings(streams, slots, "KiB in flight", on(Small, clock))
    once = 300 * 128 / 0.001 / 1e12
    assert found.unit == "TB/s" and found.x == {"label": "KiB in flight", "values": [4, 8]}
    assert found["once"] == pytest.approx([once, once], rel=1e-4)
    assert found["twice"] == pytest.approx([2 * once, 2 * once], rel=1e-4)
    assert found.spread["once"][0] == pytest.approx([once / 2, once * 2], rel=1e-4)
    assert [names for names, _ in clock.asked] == [["once", "twice"]] * 2  # in turns
    assert {how for _, how in clock.asked} == {"burst"}


@pytest.mark.slow
def test_wrong_sums_are_not_timed(clock):
    with pytest.raises(WrongResultError, match="1 of 3072 sums are wrong"):
        bench_rings({"x": Stream(ring.stream, 96)}, {4: (32, 1)}, "KiB", on(Off, clock))
    with pytest.raises(WrongResultError, match="1 of 2048 sums are wrong"):
        ring_clocks(2, 0, 1, 64, on(Off, clock))


@pytest.mark.slow
def test_clocks_are_those_of_the_events(clock):
    clocks = ring_clocks(2, pause=1000, rounds=1, n=64, setting=on(Small, clock))
    asked, arrived, taken, back = clocks[:, 0]
    assert clocks.dtype == np.int64 and asked < arrived and back >= taken + 1000
