"""The sets of layers and products, and the command that runs them."""

import json
import math

import numpy as np
import pytest
from fake_clock import FakeClock
from test_hopper_layers import Emulated, Wrong

import d2ltvm
from d2ltvm import __main__
from d2ltvm.bench import set_bench, sets, timed_plans, tuning
from d2ltvm.bench.set_bench import CaseSetting, run_set
from d2ltvm.bench.sets import Case, conv
from d2ltvm.bench.timing import Timing
from d2ltvm.hopper import any_layer, many_plans
from d2ltvm.hopper.any_conv import product
from d2ltvm.system.chips import sm_count

CASES = [
    Case("small", conv(2, 5, 8, 16)),
    Case("few channels", conv(2, 9, 3, 16, 3, 2)),
    Case("product", product(5, 24, 20), True),
    Case("product", product(5, 24, 16), False),
]


@pytest.fixture
def clock(monkeypatch):
    fake = FakeClock(monkeypatch)
    monkeypatch.setattr(set_bench, "time_together", fake.time_together)
    return fake


def beside(clock, kernel=Emulated):
    def library(case, x, w):
        return lambda: clock.spend(0.003)

    return CaseSetting(lambda func: kernel(func, clock), library, lambda: {"name": "emulated"})


def silent(done, of, what):
    pass


def test_sets_are_as_large_as_they_should_be_and_titles_differ():
    for cases, least in ((sets.layers(), 80), (sets.products(), 40)):
        assert len({case.title for case in cases}) == len(cases) >= least
        assert all(min(case.conv.out) > 0 for case in cases)
    assert {case.conv.batch for case in sets.layers()} >= {1, 8, 32, 256}
    assert {case.transposed for case in sets.products()} == {True, False}


def test_titles():
    assert Case("net", conv(1, 9, 8, 16, (3, 5), (2, 1), 2)).title == (
        "net, 1 image: 3 x 5, 8 to 16, 9 x 9, stride 2 x 1, dilation 2"
    )
    assert Case("net", conv(2, 9, 8, 16, 3, pad=0)).title.endswith("padding 0")
    assert Case("net", product(2, 3, 4), False).title == "net: 2 x 3 x 4, A B"


def test_a_set_is_measured_and_kept(clock, tmp_path):
    path = tmp_path / "set.json"
    kept = run_set(CASES, path, ("burst", "sustained"), beside(clock), silent)
    assert json.loads(path.read_text()) == kept
    assert list(kept["cases"]) == [case.title for case in CASES]
    for title, launches in zip(kept["cases"], (1, 2, 2, 1), strict=True):
        for one in ("burst", "sustained"):
            found = kept["cases"][title][one]
            assert found["TVM"] == pytest.approx(1000 * launches)  # with the copy
            assert found["library"] == pytest.approx(3000)
            assert found["ratio"] == pytest.approx(3 / launches)
    text = set_bench.table(kept, list(kept["cases"]), ("burst", "sustained"))
    assert "geometric mean 2.12" in text and CASES[1].title in text


@pytest.mark.slow
def test_it_goes_on_where_it_was_cut_off(clock, tmp_path):
    path, asked = tmp_path / "set.json", []

    def cut_off(done, of, what):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_set(CASES, path, "burst", beside(clock), cut_off)
    assert len(json.loads(path.read_text())["cases"]) == 2
    before = len(clock.asked)
    kept = run_set(CASES, path, "burst", beside(clock), lambda *at: asked.append(at))
    assert len(kept["cases"]) == 4 and len(clock.asked) - before == 2
    assert asked[0][:2] == (0, 4) and asked[-1] == (4, 4, "")
    assert not list(tmp_path.glob("*.partial"))
    # Another clock is measured beside it.
    kept = run_set(CASES[:1], path, "sustained", beside(clock), silent)
    assert {"burst", "sustained"} <= set(kept["cases"][CASES[0].title])


@pytest.mark.slow
def test_what_is_wrong_is_said_and_measured_again_the_next_time(clock, tmp_path):
    path = tmp_path / "set.json"
    kept = run_set(CASES[:1], path, "burst", beside(clock, Wrong), silent)
    (found,) = kept["cases"].values()
    assert list(found) == ["error"] and not clock.asked
    assert found["error"] in set_bench.table(kept, list(kept["cases"]), "burst")
    assert "nothing was measured" in set_bench.summary(kept["cases"], "burst")
    kept = run_set(CASES[:1], path, "burst", beside(clock), silent)
    assert list(kept["cases"][CASES[0].title]) == ["burst"]


@pytest.mark.slow
def test_a_file_of_another_device_is_not_mixed_in(clock, tmp_path):
    path = tmp_path / "set.json"
    kept = run_set(CASES[:1], path, "burst", beside(clock), silent)
    kept["device"] = {"name": "another one"}
    path.write_text(json.dumps(kept))
    with pytest.raises(ValueError, match="was measured on another one"):
        run_set(CASES[:1], path, "burst", beside(clock), silent)
    path.write_text("[]")
    with pytest.raises(ValueError, match="is no file of this command"):
        run_set(CASES[:1], path, "burst", beside(clock), silent)


def test_a_slow_case_is_named():
    cases = {"fast": {"burst": {"ratio": 1.5}}, "slow": {"burst": {"ratio": 0.5}}}
    text = set_bench.summary(cases, "burst")
    assert "geometric mean 0.866 of 2; 1 are under 0.95" in text and "0.50  slow" in text


def test_exact_results_are_those_of_the_reference():
    case = Case("it", conv(2, 6, 3, 4, 3, 2))
    x, w = set_bench.data(case)
    want, most = set_bench.exact(case, x, w, np.arange(case.conv.pixels))
    images, weights = x.transpose(0, 3, 1, 2), w.reshape(3, 3, 4, 3).transpose(2, 3, 0, 1)
    reference = d2ltvm.compute.conv_batch_reference(*map(np.float64, (images, weights)), 1, 2)
    np.testing.assert_allclose(
        want, reference.transpose(0, 2, 3, 1).reshape(want.shape), atol=1e-12
    )
    assert (most >= np.abs(want) - 1e-12).all()


@pytest.mark.slow
def test_tuning_takes_the_fastest_and_remembers_it(clock, monkeypatch, tmp_path):
    monkeypatch.setenv("D2LTVM_CACHE_DIR", str(tmp_path))
    asked = []

    def second_is_fastest(runs, clock):
        asked.append(len(runs))
        return {k: Timing(t := abs(k - 1) + 1.0, t, t) for k in runs}

    monkeypatch.setattr(tuning, "time_together", second_is_fastest)
    sizes = conv(1, 5, 8, 16)
    layer = tuning.tune(sizes, many=3, setting=beside(clock))
    assert layer == any_layer.ways(sizes, True, sm_count(), 3)[1]
    assert tuning.tune(sizes, many=3, setting=beside(clock)) == layer
    assert len(asked) == 1 and asked[0] >= 3


def test_a_set_can_be_tuned(monkeypatch):
    monkeypatch.setattr(tuning, "tune", lambda *sizes, **options: (*sizes, options))
    assert set_bench.tuned().choose(CASES[3]) == (CASES[3].conv, False, {})
    assert set_bench.tuned("none").choose(CASES[3]) == set_bench.by_model(CASES[3])
    *_, options = set_bench.tuned("many").choose(CASES[3])
    assert options == {"many": many_plans.MANY, "choose": many_plans.varied}


@pytest.mark.parametrize("way", ["whole", "boxes", "beside", "windows", "padded"])
def test_a_layer_is_kept_as_text(way):
    sizes = conv(2, 9, 3 if way in ("beside", "windows", "padded") else 8, 16)
    layer = any_layer.any_layer(sizes, way=way)
    assert any_layer.from_text(sizes, any_layer.to_text(layer)) == layer


@pytest.mark.skipif(d2ltvm.system.has_hopper(), reason="a Hopper is there")
def test_without_a_hopper_a_line_says_so(capsys, tmp_path):
    assert __main__.main(["bench", "--set", "layers", "--to", str(tmp_path / "x.json")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("python -m d2ltvm bench: ") and error.count("\n") == 1


def test_the_plans_that_were_timed_are_read():
    found = timed_plans.timed_plans()
    titles = {timed.case.title for timed in found}
    assert len(found) == 1986 and len(titles) == 245
    assert sum(timed.unseen for timed in found) == 375
    assert all(timed.us > 0 and timed.library > 0 for timed in found)
    assert all(timed.plan.tiles > 0 and timed.estimate > 1 for timed in found)
    assert {bool(timed.case.transposed) for timed in found} == {True, False}
    # The model is close to what was measured, and orders plans well: these fail if a name is
    # read wrongly.
    errors = [abs(math.log(timed.us / timed.estimate)) for timed in found]
    assert sum(errors) / len(errors) < 0.12


def test_a_name_that_is_no_plan():
    case = sets.layers()[1]
    assert timed_plans._plan(case, "library") is None
    name = "2x1x64 d64 b1 s1+0 st12 g16 tiles98 r7 P0 m1 l2 w0 c1 k0.0.0 D0"
    assert timed_plans._plan(case, name).columns == 64
    bricks = timed_plans._plan(case, name.replace("k0.0.0 D0", "k8.4.4 D1"))
    assert bricks.bricks == (8, 4, 4) and bricks.distributed and not bricks.pingpong
