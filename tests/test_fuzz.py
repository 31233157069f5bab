"""Random calls of public functions: each is right, or one clear line.

`make test` tries the same 1,200 inputs every time. `make fuzz` tries 20,000 others each time, and
D2LTVM_FUZZ_INPUTS says how many.
"""

import time

import fuzz_analysis
import fuzz_compute
import fuzz_schedules
import fuzzing
import numpy as np
import pytest

import d2ltvm

GROUPS = {**fuzz_compute.GROUPS, **fuzz_schedules.GROUPS, **fuzz_analysis.GROUPS}
ALL = sum(GROUPS.values())


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: f"{g.__module__}.{g.__name__}")
def test_right_or_one_clear_line(group):
    """Of each group as many inputs as its share of all."""
    tally = fuzzing.run(group, max(1, round(fuzzing.INPUTS * GROUPS[group] / ALL)))
    assert not tally.faults
    assert tally["right"] + tally["clear"] == sum(tally.values()) > 0


BROKEN = {
    "wrong": (lambda n: n + 1, {"n": 1}, lambda r: r == 1),
    "refused": (lambda n: d2ltvm.conv_out_size(n, 0, 0, 1), {"n": 1}, lambda r: r == 1),
    "taken": (lambda n: n, {"n": -1}, fuzzing.REFUSED),
    "of no kind that is documented": (lambda n: {}[n], {"n": 1}, fuzzing.REFUSED),
    "several lines": (lambda n: raised(f"n is {n}\nexpected 1"), {"n": 1}, fuzzing.REFUSED),
    "nothing named": (lambda n: raised("expected something else"), {"n": 7}, fuzzing.REFUSED),
    "nothing expected": (lambda n: raised(f"n is {n}"), {"n": 7}, fuzzing.REFUSED),
    "memory": (lambda n: np.ones(n), {"n": 2**40}, fuzzing.EITHER),
    "hang": (lambda n: time.sleep(n), {"n": 2}, fuzzing.EITHER),
}


def raised(message):
    raise ValueError(message)


@pytest.mark.parametrize("name", BROKEN)
def test_a_fault_is_noticed(name, monkeypatch):
    monkeypatch.setattr(fuzzing, "SECONDS", 0.2)
    with pytest.raises(fuzzing.Fault):
        fuzzing.Tally().judge(*BROKEN[name])


def test_what_is_right_is_no_fault():
    tally = fuzzing.Tally()
    tally.judge(d2ltvm.conv_out_size, {"n": 8, "k": 3, "p": 0, "s": 1}, lambda r: r == 6)
    tally.judge(d2ltvm.conv_out_size, {"n": 8, "k": 0, "p": 0, "s": 1}, fuzzing.REFUSED)
    assert dict(tally) == {"right": 1, "clear": 1}
