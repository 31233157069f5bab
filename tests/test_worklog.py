"""A chapter's running table, and what says whether an exercise is solved."""

import math

import numpy as np
import pytest

import d2ltvm
from d2ltvm.analysis.emulator.order import SynchronizationError


def test_a_prediction_stands_before_its_measurement():
    log = d2ltvm.Worklog("µs", ceiling=50, lower=True)
    log.predict("one", "the first", 80)
    log.predict("one", "the first", 100)
    with pytest.raises(KeyError, match="'two' has no prediction; predicted were: one"):
        log.measured("two", 5)
    log.measured("one", 125)
    with pytest.raises(RuntimeError, match="'one' was measured already"):
        log.predict("one", "the first", 125)
    kernel, _, *numbers = str(log).splitlines()[1].split()
    assert (kernel, numbers) == ("one", ["first", "100", "125", "125%", "40%"])


def test_what_missed_is_what_is_further_away_than_the_tolerance():
    log = d2ltvm.Worklog("TB/s")
    for name, predicted, measured in [
        ("near", 1, 1.09), ("above", 1, 1.11), ("below", 1, 0.89), ("none", None, 7),
    ]:  # fmt: skip
        log.predict(name, "x", predicted)
        log.measured(name, measured)
    log.predict("later", "x", 3)
    assert log.missed() == ["above", "below"]
    assert log.missed(0.2) == []


def test_a_table_lines_up_and_has_a_share_only_with_a_ceiling():
    log = d2ltvm.Worklog("GFLOPS")
    log.predict("a", "b", 12345.6)
    log.predict("long name", "a longer change", 0.04567)
    lines = str(log).splitlines()
    assert len({len(line.rstrip()) for line in lines}) == 1
    assert "ceiling" not in lines[0] and "12,346" in lines[1] and "0.0457" in lines[2]


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "fast", True])
def test_numbers_are_above_zero(value):
    log = d2ltvm.Worklog("ms")
    with pytest.raises(ValueError, match=r"value is .*; expected a number above zero"):
        log.predict("a", "b", value)
    with pytest.raises(ValueError, match=r"ceiling is .*; expected a number above zero"):
        d2ltvm.Worklog("ms", ceiling=value)
    log.predict("a", "b", None)
    with pytest.raises(ValueError, match="value is"):
        log.measured("a", value)
    with pytest.raises(ValueError, match="tolerance is"):
        log.missed(value)
    with pytest.raises(ValueError, match="changed is ''; expected a few words"):
        log.predict("a", "", 1)


def test_a_verdict_names_the_first_condition_that_fails(capsys):
    d2ltvm.verdict({"a": True, "b": lambda: np.bool_(True)})
    d2ltvm.verdict({"a": np.bool_(True)})
    d2ltvm.verdict({"a": True, "b": lambda: False, "c": lambda: pytest.fail("called")})
    said = capsys.readouterr().out.splitlines()
    assert said == ["solved: all 2 hold", "solved: it holds", "not yet: b"]


@pytest.mark.parametrize("error", [ValueError, d2ltvm.WrongResultError, SynchronizationError])
def test_a_verdict_says_what_is_wrong_and_does_not_stop_there(capsys, error):
    def wrong():
        raise error("C[0] is 1\nand more")

    d2ltvm.verdict({"right": wrong, "fast": lambda: pytest.fail("called")})
    assert capsys.readouterr().out.splitlines() == ["C[0] is 1", "not yet: right"]
    with pytest.raises(ZeroDivisionError):
        d2ltvm.verdict({"right": lambda: 1 / 0})


@pytest.mark.parametrize("conditions", [{}, [True], None, {"a": 1}, {"a": "yes"}, {1: True}])
def test_conditions_are_truths_by_words(conditions):
    with pytest.raises(ValueError, match="expected"):
        d2ltvm.verdict(conditions)
