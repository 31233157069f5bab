"""What epilogues cost: the race of bias, ReLU, residual, scale and float32 results."""

import json

import numpy as np
import pytest
from test_hopper_layers import Wrong
from test_set_bench import CASES, beside, clock, silent  # noqa: F401 - a fixture

from d2ltvm.bench import epilogues
from d2ltvm.bench.set_bench import LIBRARY, OURS, run_set
from d2ltvm.compiler.verify import WrongResultError
from d2ltvm.hopper.any_layer import any_layer


def race(clock):  # noqa: F811
    def fused(case, x, w, bias, residual):
        names = (epilogues.BIAS, epilogues.RESIDUAL)
        return {name: (lambda: clock.spend(0.004)) for name in names}

    return lambda case, setting: epilogues.sides(case, setting, fused)


@pytest.mark.slow
def test_a_layer_is_measured_with_every_epilogue(clock, tmp_path):  # noqa: F811
    path = tmp_path / "set.json"
    kept = run_set(CASES[:2], path, ("burst", "sustained"), beside(clock), silent, race(clock))
    assert json.loads(path.read_text()) == kept
    for case, launches in zip(CASES[:2], (1, 2), strict=True):
        for one in ("burst", "sustained"):
            found = kept["cases"][case.title][one]
            for name in ("", *epilogues.EPILOGUES):
                assert found[epilogues.named(OURS, name)] == pytest.approx(1000 * launches)
            assert found[epilogues.named(LIBRARY, epilogues.BIAS)] == pytest.approx(4000)
            assert epilogues.named(LIBRARY, "float32") not in found
    text = epilogues.summary(kept["cases"], "burst")
    assert "1.000 of the plain kernel's time, the library's 1.333" in text
    assert text.splitlines()[0].endswith("geometric mean of the ratios 2.828")


@pytest.mark.slow
def test_so_is_a_product_as_its_matrix_is_given(clock):  # noqa: F811
    for case in CASES[2:]:
        runs = race(clock)(case, beside(clock))
        ours = {epilogues.named(OURS, name) for name in ("", *epilogues.EPILOGUES)}
        assert set(runs) > ours


def test_a_wrong_kernel_is_not_timed(clock):  # noqa: F811
    with pytest.raises(WrongResultError):
        race(clock)(CASES[0], beside(clock, Wrong))


@pytest.mark.parametrize("name", epilogues.EPILOGUES)
def test_what_is_expected_of_an_epilogue_is_more_than_the_sums(name):
    given = epilogues.values(CASES[0])
    places = np.arange(CASES[0].conv.pixels)
    want = np.random.default_rng(0).standard_normal((len(places), CASES[0].conv.oc))
    found, most = epilogues.finished(epilogues.EPILOGUES[name], given, places, want, abs(want))
    assert np.array_equal(found, want) == (name == "float32")
    assert (most >= abs(found) - 1e-12).all()


def test_what_is_computed_leaves_the_plan_to_be_chosen():
    layer = any_layer(CASES[0].conv, bias=True, residual=True, relu=True)
    assert layer.plan.bias and layer.plan.residual and layer.plan.relu and layer.plan.stages >= 2
    assert any_layer(CASES[1].conv, wide=True).dtype == "float32"
    assert any_layer(CASES[1].conv).dtype == "float16"
