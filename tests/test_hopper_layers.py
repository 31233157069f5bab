"""Benchmarks of Hopper's kernels: emulated beside NumPy here, on the GPU where it is one."""

import numpy as np
import pytest
from fake_clock import FakeClock
from on_hopper import needs_hopper

import d2ltvm
from d2ltvm import hopper
from d2ltvm.bench import hopper_layers
from d2ltvm.bench.hopper_layers import (
    Setting,
    bench_beside_schedules,
    bench_float32,
    bench_layers,
    bench_matmul_nt,
)
from d2ltvm.compiler.lowering import as_module, parameters

pytestmark = pytest.mark.slow

LAYER = (2, 8, 8, 4, 3, 1, 1)


@pytest.fixture
def clock(monkeypatch):
    return FakeClock(monkeypatch)


class OnDevice(np.ndarray):
    """An array that can be asked for as if it were on a GPU."""

    def numpy(self):
        return np.asarray(self)

    def cpu(self):
        return self


class Emulated:
    """A kernel as `d2ltvm.build` makes it, on the emulator. Bound, it takes a millisecond."""

    def __init__(self, kernel, clock):
        self.kernel, self.clock = kernel, clock
        self.params = parameters(as_module(kernel))

    def __call__(self, *arrays):
        d2ltvm.emulate(self.kernel, *map(np.asarray, arrays))

    def upload(self, arrays):
        return [array.view(OnDevice) for array in arrays]

    def bind(self, *arrays):
        calls = []

        def run():
            if not calls:  # what it computes is known then
                self(*arrays)
            calls.append(self.clock.spend(0.001))

        return run


class Wrong(Emulated):
    """The last channel of what it computes is a little off."""

    def __call__(self, *arrays):
        super().__call__(*arrays)
        if len(arrays) == 3:  # it does not split, but multiplies
            arrays[2][..., -1] += np.asarray(0.01, arrays[2].dtype)


def beside_numpy(clock, kernel=Emulated):
    """NumPy as the library, which takes three milliseconds."""

    def conv(p, s):
        def contender(images, weights):
            exact = images.astype("float64"), weights.astype("float64")
            result = d2ltvm.compute.conv_batch_reference(*exact, p, s).astype(images.dtype)
            return lambda: clock.spend(0.003) or result.view(OnDevice)

        return contender

    def product(a, b):
        return lambda: clock.spend(0.003)

    return Setting(build=lambda func: kernel(func, clock), conv=conv, product=product)


@pytest.fixture
def setting(clock):
    return beside_numpy(clock)


def check_sides(result, xs, ours):
    """Both sides are there, in µs."""
    assert list(result.series) == ["cuDNN", *ours]
    assert result.x == {"label": "layer", "values": xs} and result.unit == "µs"
    assert result["cuDNN"] == pytest.approx([3000] * len(xs))
    for legend in ours:
        assert result[legend] == pytest.approx([1000] * len(xs))
        assert np.ravel(result.spread[legend]) == pytest.approx([500, 2000] * len(xs))


def test_layers_are_timed_beside_the_library(clock, setting):
    strided = (3, 16, 8, 5, 3, 1, 2)
    result = bench_layers([LAYER, strided], setting=setting)
    check_sides(result, ["8 to 8, 4 x 4", "8 to 16, 5 x 5, stride 2"], ["TVM"])
    assert result.notes.startswith("CUDA graphs between CUDA events, a rest")
    assert clock.asked == [(["cuDNN", "TVM"], "burst")] * 2


def test_variants_are_kernels_with_options(setting):
    made = []

    def other(*layer, **options):
        made.append((layer, options))
        return hopper.conv_nhwc(*layer, **options)

    variants = {"2 slots": {"stages": 2}, "other": {"kernel": other, "skip": False}}
    result = bench_layers([LAYER], variants, hopper_layers.BOTH, names=["it"], setting=setting)
    for name in hopper_layers.BOTH:
        check_sides(result.by_clock(name), ["it"], ["2 slots", "other"])
    assert list(result.series) == [
        *("cuDNN", "2 slots", "other"),
        *("cuDNN, sustained", "2 slots, sustained", "other, sustained"),
    ]
    assert made == [(LAYER, {"skip": False})]
    assert variants["other"] == {"kernel": other, "skip": False}  # not used up


def test_schedules_take_turns_with_kernels(monkeypatch, clock, setting):
    asked = []

    def contender(schedule, p, s, layout):
        asked.append((schedule, p, s, layout))
        return lambda images, weights: lambda: clock.spend(0.002 * (images.shape == (2, 8, 4, 4)))

    monkeypatch.setattr(hopper_layers, "tvm_conv_batch", contender)
    schedule, strided = object(), (2, 8, 8, 4, 3, 1, 2)
    result = bench_beside_schedules({"a": schedule}, {"b": {}}, strided, setting=setting)
    assert clock.asked == [(["cuDNN", "b", "a"], "burst")]
    assert asked == [(schedule, 1, 2, "nhwcnc")]
    assert result.x == {"label": "layer", "values": ["8 to 8, 4 x 4, stride 2"]}
    assert result.unit == "µs" and result["a"] == pytest.approx([2000])


@pytest.mark.parametrize(
    "bench",
    [
        lambda setting: bench_layers([LAYER], setting=setting),
        lambda setting: bench_beside_schedules({}, None, LAYER, setting=setting),
        lambda setting: bench_float32(LAYER, setting=setting),
        lambda setting: bench_matmul_nt([64], setting=setting),
    ],
    ids=["layers", "beside schedules", "float32", "products"],
)
def test_what_is_wrong_is_not_timed(clock, bench):
    with pytest.raises(d2ltvm.WrongResultError):
        bench(beside_numpy(clock, Wrong))
    assert not clock.asked


def test_float32_is_timed_with_its_splitting(setting):
    result = bench_float32(LAYER, setting=setting)
    assert result.series["TVM"] == [3000.0]  # two kernels split, one convolves
    assert result.series["cuDNN"] == [3000.0]


def test_errors_of_float32(setting):
    result = hopper_layers.errors_float32(LAYER, setting=setting)
    library, ours = (result.series[name] for name in ("cuDNN", "TVM"))
    # The library's stand-in rounds once. Ours has three products of two pieces of 11 bits.
    for k in range(2):
        assert 0 < library[k] < ours[k] < 2e-6
    assert ours[0] < ours[1] and result.values.tolist() == ["mean", "largest"]


def test_products_are_rates(setting):
    result = bench_matmul_nt([64, 128], setting=setting)
    assert list(result.series) == ["cuBLAS", "TVM"] and result.unit == "TFLOPS"
    work = 2 * np.array([64, 128]) ** 3 / 1e12
    assert result["cuBLAS"] == pytest.approx(work / 0.003, rel=1e-5)
    assert result["TVM"] == pytest.approx(work / 0.001, rel=1e-5)


def test_batches_are_those_of_the_tutorials_layer(monkeypatch):
    asked = []
    monkeypatch.setattr(
        hopper_layers, "bench_layers", lambda layers, **rest: asked.append((layers, rest))
    )
    hopper_layers.bench_batches("sustained")
    ((layers, rest),) = asked
    assert [layer[0] for layer in layers] == rest["names"] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert {layer[1:] for layer in layers} == {hopper_layers.LAYER[1:]}
    assert rest["clock"] == "sustained"


@pytest.mark.skipif(d2ltvm.system.has_hopper(), reason="a Hopper is there")
def test_without_a_hopper_nothing_is_measured():
    for bench in (lambda: bench_layers([LAYER]), lambda: bench_matmul_nt([64])):
        with pytest.raises(d2ltvm.MissingError):
            bench()


@needs_hopper
def test_on_a_hopper():
    pytest.importorskip("torch")
    layers = bench_layers([LAYER, hopper_layers.LAYER], clock=hopper_layers.BOTH)
    products = bench_matmul_nt([1024])
    float32 = bench_float32(LAYER)
    for ours, library in (
        (layers["TVM"], layers["cuDNN"]),
        (layers["TVM, sustained"], layers["cuDNN, sustained"]),
        (products["TVM"], products["cuBLAS"]),
        (float32["TVM"], float32["cuDNN"]),
    ):
        assert (ours / library > 0.1).all() and (ours / library < 10).all()
