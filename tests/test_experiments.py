"""Experiments whose records are in the book, emulated, and what these records hold."""

import importlib.util
import json
import math
import sys
import types
from pathlib import Path

import pytest
from test_bench_epilogues import race
from test_hopper_layers import Wrong
from test_set_bench import CASES, beside, clock  # noqa: F401 - a fixture

from d2ltvm.bench import epilogues, sets
from d2ltvm.bench.records import stored_lines
from d2ltvm.hopper.any_conv import Conv, product
from d2ltvm.hopper.any_plan import Plan

ROOT = Path(__file__).parents[1]
SPECIAL = [
    sets.Case("layer", Conv(2, (5, 5), 64, 64, (3, 3), (1, 1))),
    sets.Case("product", product(128, 64, 64), True),
]


def experiment(name):
    """One as a module. As a program it finds those beside it by itself."""
    folder = ROOT / "experiments"
    spec = importlib.util.spec_from_file_location(f"of_{name}", folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Has some of three cases written by a run that has so many seconds, and reads all lines."""
    by_case, path = experiment("case_by_case"), tmp_path / "x.jsonl"
    monkeypatch.setattr(by_case, "describe_device", lambda: {"name": "a GPU"})

    def run(titles, seconds, name="first"):
        now = iter(range(10))
        monkeypatch.setattr(by_case.time, "time", lambda: next(now))
        cases = [types.SimpleNamespace(title=title) for title in titles]
        by_case.write_lines(path, cases, lambda case: {"title": case.title, "run": name}, seconds)
        return [json.loads(line) for line in path.read_text().splitlines()]

    return run


def test_cases_are_written_as_they_come_until_the_time_is_over(written):
    device, *lines = written("abc", 2)
    assert device == {"device": {"name": "a GPU"}} and [x["title"] for x in lines] == ["a", "b"]


def test_lines_of_an_earlier_run_are_kept(written):
    earlier = written("ab", 9)
    *kept, device, last = written("abc", 9, "second")
    assert kept == earlier and device == earlier[0] and last == {"title": "c", "run": "second"}


def test_a_kernel_that_cannot_be_compiled_is_told_of(monkeypatch, capsys):
    by_case, seen = experiment("case_by_case"), []
    monkeypatch.setattr(by_case.set_bench, "on_hopper", lambda kernel: seen.append(1 // kernel))
    by_case.keep_compiled("one", lambda: iter([1, 0, 1]))
    said = capsys.readouterr().out
    assert seen == [1] and said.startswith("one ZeroDivisionError") and said.count("\n") == 1


def test_first_layers_have_a_way_with_a_copy_beside_the_picks():
    first = experiment("first_layers")
    named = first.layers(next(iter(first.cases())).conv, 2)
    assert set(named) >= {"rows", "copied"}
    assert len(first.kernels_of(named["copied"])) == 2 and len(first.kernels_of(named["rows"])) == 1


@pytest.fixture(scope="module")
def special():
    return experiment("special")


@pytest.mark.slow
@pytest.mark.parametrize("case", SPECIAL, ids=lambda case: case.title)
def test_special_kernels_run_beside_the_general_one(case, special, clock):  # noqa: F811
    line = special.measured(case, beside(clock), clock.time_together)
    assert line["title"] == case.title and line["plan"].startswith("Plan(") and not line["wrong"]
    us = {name: times[0] for name, times in line["burst"].items()}
    assert us == pytest.approx({"library": 3000, "special": 1000, "general": 1000})


def test_one_that_is_wrong_is_not_timed(special, clock):  # noqa: F811
    line = special.measured(SPECIAL[1], beside(clock, Wrong), clock.time_together)
    assert set(line["burst"]) == {"library"} and set(line["wrong"]) == {"special", "general"}


def test_the_record_of_special_kernels(special):
    _, *lines = stored_lines("special.jsonl", "nvidia-h200")
    cases = {case.title: case for case in special.special_cases()}
    assert {line["title"] for line in lines} == set(cases) and len(lines) == len(cases)
    for line in lines:
        assert f"conv={cases[line['title']].conv}" in line["plan"] and not line["wrong"]
        for clock_ in {"burst", "sustained"} & set(line):
            assert set(line[clock_]) >= {"library", "special", "general"}
            assert all(low <= us <= high for us, low, high in line[clock_].values())
    assert ["sustained" in line for line in lines] == [True] * 3 + [False] * (len(lines) - 3)
    (line,) = (line for line in lines if "special, all taps" in line["burst"])
    assert cases[line["title"]].conv.size == special.LEAVES_OUT


@pytest.mark.slow
def test_products_with_epilogues_are_measured(clock):  # noqa: F811
    products = experiment("epilogues_products")
    found = products.measured(CASES[2], "burst", beside(clock), race(clock), clock.time_together)
    assert found["us"]["TVM, float32"] == pytest.approx(1000 * (1 + (found["ways"][""] != "whole")))
    assert set(found["plans"]) == {"", *epilogues.EPILOGUES}
    wrong = products.measured(CASES[3], "burst", beside(clock, Wrong), race(clock))
    assert "TVM" in wrong["errors"] and "us" not in wrong


def test_the_record_of_products_with_epilogues():
    products = experiment("epilogues_products")
    assert len(products.cases()) == len(products.TITLES)
    _, *lines = stored_lines("epilogues_products.jsonl", "nvidia-h200")
    ours = {epilogues.named("TVM", name) for name in ("", *epilogues.EPILOGUES)}
    theirs = ("", epilogues.BIAS, epilogues.ADDED, epilogues.WIDE)
    names = ours | {epilogues.named("library", name) for name in theirs}
    for line, title in zip(lines, products.TITLES, strict=True):
        assert line["title"] == title and set(line["errors"].values()) == {"right"}
        assert set(line["us"]) == set(line["low"]) == set(line["high"]) == names
        assert all(line["low"][n] <= line["us"][n] <= line["high"][n] for n in names)


def test_the_record_of_large_tensors():
    large = experiment("large_tensors")
    _, *lines = stored_lines("large_tensors.jsonl", "nvidia-h200")
    for line, case in zip(lines, large.CASES, strict=True):
        conv = case.case.conv
        images, results = conv.batch * math.prod(conv.size) * conv.ic, conv.pixels * conv.oc
        assert (line["title"], line["what"]) == (case.case.title, case.what)
        assert line["elements"] == [images, results] and max(images, results) >= 2**31
        assert line["places"] == len(large.places_of(conv)) and "TVM" not in line["errors"]
        assert line["us"]["TVM"][1] <= line["us"]["TVM"][0] <= line["us"]["TVM"][2]
        assert line["options"] == case.options and line["way"] in ("whole", "padded", "rows")
        if line["way"] == "whole":
            assert f"conv={conv}" in line["plan"] and isinstance(case.layer.plan, Plan)
        # Results are of the size of one, or a few: what differs is how they were rounded.
        assert ("apart" in line) != ("library" in line["errors"]) and line.get("apart", 0) <= 2**-7
    assert sum("apart" in line for line in lines) == 9
