"""The sets in float32: beside a library, with the errors of both."""

import functools
import json

import numpy as np
import pytest
from test_hopper_layers import Emulated
from test_set_bench import CASES, clock, silent  # noqa: F401 a fixture

import d2ltvm
from d2ltvm import __main__
from d2ltvm.bench import float32_sets, set_bench, sets
from d2ltvm.bench.set_bench import CaseSetting, run_set
from d2ltvm.compiler import verify
from d2ltvm.hopper.any_conv import product
from d2ltvm.hopper.any_layer import any_layer


class Wrong(Emulated):
    """The last channel of what it computes is a little off."""

    def __call__(self, *arrays):
        super().__call__(*arrays)
        arrays[-1][..., -1] += np.float32(1e-4)


class Result:
    """A tensor of PyTorch's, as far as it is asked for its numbers."""

    def __init__(self, values):
        self.values = values

    def permute(self, *axes):
        return Result(self.values.transpose(axes))

    def reshape(self, *shape):
        return Result(self.values.reshape(shape))

    def cpu(self):
        return self

    def numpy(self):
        return self.values


def setting(clock, kernel=Emulated, asked=None):  # noqa: F811
    """A library whose results are float64's, cut to float16."""

    def library(case, x, w, tf32):
        if asked is not None:
            asked.append((x.dtype, w.dtype, tf32))
        every = np.arange(case.conv.pixels)
        want = set_bench.exact(case, x, w, every)[0].astype("float16").astype("float32")
        shape = (case.conv.batch, *case.conv.out, case.conv.oc)
        if case.transposed is None:
            want = want.reshape(shape).transpose(0, 3, 1, 2)

        def run():
            clock.spend(0.003)
            return Result(want)

        return run

    return CaseSetting(lambda func: kernel(func, clock), library, lambda: {"name": "emulated"})


@pytest.mark.parametrize("numbers", ["float32", "tf32"])
def test_a_set_in_float32_is_checked_and_its_errors_are_kept(numbers, clock, tmp_path):  # noqa: F811
    asked, path = [], tmp_path / "set.json"
    race = functools.partial(float32_sets.sides, numbers=numbers)
    kept = run_set(CASES, path, "burst", setting(clock, asked=asked), silent, race)
    assert json.loads(path.read_text()) == kept
    assert set(asked) == {(np.dtype("float32"), np.dtype("float32"), numbers == "tf32")}
    for found in kept["cases"].values():
        assert "error" not in found and found["burst"]["ratio"] > 1
        errors = found["errors"]
        assert 1e-5 < errors["library"] < 1e-3  # float16's
        assert 0 < errors["TVM"] < (5e-7 if numbers == "float32" else 1e-3)
        assert numbers == "float32" or errors["TVM"] > 1e-5


def test_a_wrong_result_in_float32_is_named(clock, tmp_path):  # noqa: F811
    race = functools.partial(float32_sets.sides, numbers="float32")
    kept = run_set(CASES[:1], tmp_path / "set.json", "burst", setting(clock, Wrong), silent, race)
    assert "more than their roundings explain" in kept["cases"][CASES[0].title]["error"]


@pytest.mark.parametrize(
    "words", [["--set", "epilogues"], ["--set", "layers", "--tune"]], ids=" ".join
)
def test_what_is_not_measured_of_float32_is_refused(words, capsys):
    assert __main__.main(["bench", *words, "--numbers", "tf32"]) == 1
    assert "--numbers is tf32; expected float16 with" in capsys.readouterr().err


def test_a_file_is_named_by_its_numbers(monkeypatch, clock, tmp_path):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(set_bench, "HOPPER", setting(clock))
    monkeypatch.setattr(set_bench.devices, "need_hopper", lambda: None)
    monkeypatch.setitem(set_bench.SETS, "layers", lambda: CASES[:1])
    assert __main__.main(["bench", "--set", "layers", "--numbers", "float32"]) == 0
    assert (
        CASES[0].title in json.loads((tmp_path / "bench-layers-float32.json").read_text())["cases"]
    )


def test_what_was_timed_is_read():
    every = float32_sets.timed()
    assert [each.numbers for each in every] == ["float32"] * 5 + ["tf32"] * 5
    for each in every:
        least, most = each.ratios
        assert least < each.ratio < most
        assert all(low <= each.us[side] <= high for side, (low, high) in each.spread.items())
    assert {each.case.title for each in every[:5]} == {each.case.title for each in every[5:]}


def test_the_sets_and_the_plans_that_were_tried_are_read():
    every = float32_sets.timed(run=float32_sets.SET)
    assert len(every) == len({(each.case.title, each.numbers) for each in every}) == 313
    for numbers in ("float32", "tf32"):
        tried = float32_sets.tried(numbers=numbers)
        assert len({each.case.title for each in tried}) == sum(each.picked for each in tried)
        assert all(each.plan.numbers == numbers and each.us > 0 for each in tried)
    with pytest.raises(ValueError, match="name is '1x1'; expected one such as"):
        float32_sets.plan_of("1x1", every[0].case, "float32")


def test_a_plan_for_float32_has_a_slot_to_split_one_to_multiply_and_one_to_fill():
    for case in sets.layers()[::9]:
        plan = any_layer(case.conv, numbers="float32").plan
        assert plan.stages >= 3 and plan.pieces == 2


def test_deep_sums_are_checked():
    case = next(case for case in sets.products() if case.conv.ic == 65536)
    x, w = set_bench.data(case, "float32")
    places = set_bench.some_places(case)
    want, most = set_bench.exact(case, x, w, places)
    terms = case.conv.ic // 2
    verify.compare("Y", want.astype("float32"), want, most, terms=terms, sums="float32")
    with pytest.raises(verify.WrongResultError):
        verify.compare("Y", 0 * want.astype("float32"), want, most, terms=terms, sums="float32")


def test_what_a_kernel_computes_is_held_against_its_bound():
    conv = product(70, 24, 72)
    x, w = (np.random.default_rng(3).standard_normal((n, 72), "float32") for n in (70, 24))
    kinds = {"columns": 16, "sms": 2, "way": "whole"}
    for numbers, least, most in (("float32", 1e-8, 1e-6), ("tf32", 1e-5, 1e-3)):
        layer = any_layer(conv, numbers=numbers, **kinds)
        y = float32_sets.computed(layer, x, w[None], run=d2ltvm.emulate)
        share, error = float32_sets.held_against(conv, x, w[None], y)
        assert (share <= 1) == (numbers == "float32") and least < error < most
    y[3, 0, 0, 5] = np.nan
    assert not float32_sets.held_against(conv, x, w[None], y)[0] <= 1
    cut = any_layer(conv, numbers="float32", splits=2, **kinds)
    y = float32_sets.computed(cut, x, w[None], run=d2ltvm.emulate)
    assert float32_sets.held_against(conv, x, w[None], y)[0] <= 1
