"""A ring in time: against its recurrence, and, where it is broken, against kernels emulated."""

import re

import numpy as np
import pytest

import d2ltvm
from d2ltvm.analysis.emulator.order import SynchronizationError
from d2ltvm.analysis.ring_timeline import BROKEN, ring_timeline
from d2ltvm.hopper import ring
from d2ltvm.hopper.patch import changed

# A barrier whose phase before counts as over: a wait that is none, at which others take turns.
OVER = (
    "pool.commit()",
    'over = Pipeline(pool, 1, full="mbar", empty="mbar", init_full=1, init_empty=1)\n'
    "        pool.commit()",
)
FULL = "ring.full.wait(slot.stage, slot.phase)"
EMPTY = "ring.empty.wait(slot.stage, slot.phase ^ 1)"
EDITS = {
    "nothing": (),
    "full": (OVER, (FULL, "over.full.wait(0, 1)")),
    "empty": (OVER, (EMPTY, "over.full.wait(0, 1)")),
    "back": (("ring.empty.arrive(slot.stage)", "T.evaluate(0)"),),
    "consumer": ((FULL, "ring.full.wait(slot.stage, 0)"),),
    "producer": ((EMPTY, "ring.empty.wait(slot.stage, 1)"),),
    "first": (("slot.phase ^ 1", "slot.phase"),),
}
ENDS = {"wait for ever": "deadlock", "arrive at a barrier": "overrun", "the kernel ends": "early"}


def emulated(stages, rounds, broken):
    """How a kernel of the book ends, its sum, and what hangs, when its copies are very late."""
    x = np.repeat(2.0 ** np.arange(rounds), 16)[:, None] * np.ones((1, 64))
    sums = np.full((1, 16, 64), np.nan, "float32")
    kernel = changed(ring.stream, *EDITS[broken])(len(x), 16, stages, sms=1)
    try:
        d2ltvm.emulate(kernel, x.astype("float16"), sums)
    except SynchronizationError as error:
        (ends,) = (end for text, end in ENDS.items() if text in str(error))
        waits = re.findall(r"(\d) for barrier (\d+), parity (\d)", str(error))
        return ends, None, [tuple(map(int, each)) for each in waits]
    return "done", sums[0, 0, 0], []


@pytest.mark.quick(6)
@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("stages, rounds", [(1, 3), (2, 3), (2, 7), (3, 3), (3, 9), (4, 10)])
def test_it_ends_as_the_kernel_does(stages, rounds, broken):
    # A copy arrives when both wait, as in emulation, and both take turns.
    found = ring_timeline(stages, rounds, 10**6, 0, multiply=1, ask=1, broken=broken)
    ends, total, waits = emulated(stages, rounds, broken)
    assert found.ends == ends
    if ends == "done":
        held = [np.nan if tile.held is None else 2.0**tile.held for tile in found.tiles]
        right = [tile.right for tile in found.tiles]
        assert np.array_equal(total, np.sum(held), equal_nan=True)
        assert (total == 2.0**rounds - 1) == all(right)
    if ends == "deadlock":
        stuck = [w for w in found.waits if w.until is None]
        slots = stages * 16 * 128
        assert waits == [
            (int(w.who == "consumer"), slots + 8 * barrier(w, stages), w.parity) for w in stuck
        ]


def barrier(wait, stages):
    """Its number behind the slots: all of `full`, then all of `empty`."""
    return wait.tile % stages + stages * (wait.who == "producer")


def recurrence(stages, rounds, transfer, latency, multiply, ask):
    """Clocks of the events of each tile in a ring that is right."""
    asked, arrived, taken, done, free = [], [], [], [], 0
    for k in range(rounds):
        back = done[k - stages] if k >= stages else 0
        asked.append(max(back, asked[-1] + ask if asked else 0))
        free = max(free, asked[-1]) + transfer
        arrived.append(free + latency)
        taken.append(max(arrived[-1], done[-1] if done else 0))
        done.append(taken[-1] + multiply)
    return list(zip(asked, arrived, taken, done, strict=True))


def test_a_ring_that_is_right():
    rng = np.random.default_rng(0)
    for _ in range(300):
        stages, rounds = (int(n) for n in rng.integers(1, [7, 20]))
        transfer, latency, multiply, ask = (int(n) for n in rng.integers(1, [9, 30, 20, 6]))
        given = stages, rounds, transfer, latency, multiply, ask
        found, want = ring_timeline(*given), recurrence(*given)
        assert [(t.asked, t.arrived, t.taken, t.done) for t in found.tiles] == want
        assert found.ends == "done" and found.time == want[-1][-1]
        assert all(tile.right and tile.held == k for k, tile in enumerate(found.tiles))
        assert not any(tile.overwrites for tile in found.tiles)
        idle = found.time - rounds * multiply
        assert found.waited("consumer") == idle
        for k in range(stages):
            fills = len(range(k, rounds, stages))
            assert len(found.full[k]) == len(found.empty[k]) == fills


def test_who_overwrites_a_slot_in_use_is_named():
    """Copies come quickly and the consumer is slow: tile 2 goes where tile 0 is multiplied.

    Then full[1] has had two phases, of tiles 1 and 3, and the consumer waits for the first of them.
    """
    found = ring_timeline(2, 4, transfer=1, latency=0, multiply=10, ask=2, broken="empty")
    assert [tile.overwrites for tile in found.tiles] == [False, False, True, True]
    assert found.tiles[0].held == 0 and not found.tiles[0].right
    assert (found.ends, found.full) == ("deadlock", [[1, 5], [3, 7]])
    assert found.waits[-1] == ("consumer", 1, 0, 11, None)
    # With a tile less nobody is stuck, and only the tile that was overwritten is wrong.
    found = ring_timeline(2, 3, transfer=1, latency=0, multiply=10, ask=2, broken="empty")
    assert [tile.right for tile in found.tiles] == [False, True, True]


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"stages": 0}, "stages is 0; expected a positive integer"),
        ({"multiply": 0}, "multiply is 0; expected a positive integer"),
        ({"latency": -1}, "latency is -1; expected an integer of at least 0"),
        ({"broken": "all"}, "broken is 'all'; expected one of nothing, full, empty, back,"),
    ],
    ids=str,
)
def test_errors(wrong, message):
    good = {"stages": 2, "rounds": 4, "transfer": 1, "latency": 1, "multiply": 1}
    with pytest.raises(ValueError, match=message):
        ring_timeline(**{**good, **wrong})
