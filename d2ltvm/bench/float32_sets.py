"""`python -m d2ltvm bench --set layers --numbers float32`, or tf32: the sets in float32.

Weights are split, or a second matrix transposed, once and before anything is timed, as an engine
for inference does it. Images are as the library's: what a kernel does to them is timed.

What was timed is in book/measurements/<device>/any_float32*.jsonl: first what it ran on, then a
line for each case and each kind of number. `FIRST` has the first five cases, `TRIED` several plans
a case, by which `any_model.SPLIT` was fitted, and `SET` the planner's picks since then.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from d2ltvm.analysis.emulator.run import run_anywhere
from d2ltvm.bench import sets
from d2ltvm.bench.contenders import Array, Run
from d2ltvm.bench.records import stored_lines
from d2ltvm.bench.set_bench import (
    HOPPER,
    LIBRARY,
    OURS,
    CaseSetting,
    Sides,
    data,
    exact,
    ours,
    some_places,
)
from d2ltvm.bench.sets import Case
from d2ltvm.bench.timed_plans import plan_fields
from d2ltvm.compiler.verify import compare
from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_layer import Layer, any_layer
from d2ltvm.hopper.any_plan import Plan
from d2ltvm.hopper.any_shape import conv_any

FIRST, TRIED, SET = (f"any_float32{run}.jsonl" for run in ("", "_tried", "_set"))
TF32_BITS = 11  # that TensorCores read of a number's 24
SLOT = 64  # channels, after which sums are collected


def sides(case: Case, setting: CaseSetting = HOPPER, numbers: str = "float32") -> Mapping[str, Run]:
    """As `set_bench.sides`, and the errors of both beside it, as `errors_of` tells them.

    Args:
        case: what is computed.
        setting: where; its library takes `tf32`, whether 19 bits of a number are enough.
        numbers: 'float32' or 'tf32'.
    """
    c, places = case.conv, some_places(case)
    x, w = data(case, "float32")
    layer = any_layer(c, numbers=numbers)
    weights = as_weights(case, w)
    run, result = ours(layer, x, weights, setting, extras_of(layer, weights))
    y = result().reshape(c.pixels, c.oc)[places]
    want, most = exact(case, x, w, places)
    # TensorCores cut off what they add up: 16 products at once of three times as many numbers of
    # float16, or 8 of tf32. Sums of 64 channels are added up behind that.
    terms = max(64, c.ic * c.taps // 2)
    if numbers == "tf32":  # one number of a product is cut off, the other rounded
        most = most * (1 + 1.5 * 2.0 ** (24 - TF32_BITS + 1) / terms)
    compare("Y", y, want, most, terms=terms, sums="float32")
    library: Any = setting.library(case, x, w, tf32=numbers == "tf32")
    theirs = library()
    if case.transposed is None:
        theirs = theirs.permute(0, 2, 3, 1)
    got = {LIBRARY: theirs.reshape(c.pixels, c.oc).cpu().numpy()[places], OURS: y}
    return Sides(
        {LIBRARY: library, OURS: run},
        errors={name: errors_of(found, want) for name, found in got.items()},
    )


def as_weights(case: Case, w: Array) -> Array:
    """Weights (taps, oc, ic), also where a case has a second matrix as it is."""
    return np.ascontiguousarray(w.transpose(0, 2, 1)) if case.transposed is False else w


def extras_of(layer: Layer, w: Array) -> list[Array]:
    """What a kernel takes behind images and weights: scales, and biases that are zero."""
    if layer.numbers != "float32":
        return []
    return [np.stack([layer.factors(w), np.zeros(layer.conv.oc, "float32")])]


def errors_of(got: Array, want: Array) -> float:
    """The root of the mean square of errors, as a part of that of results.

    >>> round(errors_of(np.float32([1.5, 2]), np.array([1.0, 2.0])), 4)
    0.2236
    """
    return float(f"{np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2)):.4g}")


@dataclass(frozen=True)
class TimedCase:
    """A case in float32 that was timed beside the library.

    Attributes:
        case: what is computed.
        numbers: 'float32' or 'tf32'.
        us: times in µs, medians of rounds, by legend: 'library' and 'TVM'.
        spread: the least and the most of the rounds, likewise.
        errors: as `errors_of` tells them, likewise.
        plan: of our kernel, as a name.
    """

    case: Case
    numbers: str
    us: dict[str, float]
    spread: dict[str, tuple[float, float]]
    errors: dict[str, float]
    plan: str

    @property
    def ratio(self) -> float:
        """The library's time over ours."""
        return self.us[LIBRARY] / self.us[OURS]

    @property
    def ratios(self) -> tuple[float, float]:
        """The least and the most that the ratio can be, by the spreads of both."""
        (low, high), (least, most) = self.spread[LIBRARY], self.spread[OURS]
        return low / most, high / least


@functools.cache
def timed(device: str = "nvidia-h100-80gb-hbm3", run: str = FIRST) -> tuple[TimedCase, ...]:
    """The cases in float32 that were timed, in the order of the record.

    >>> [each.numbers for each in timed()].count("tf32")
    5

    Args:
        device: a folder under book/measurements.
        run: `FIRST` or `SET`.
    """
    found = []
    for case, line in _lines(device, run):
        spread = {name: (low, high) for name, (low, high) in line["spread"].items()}
        told = (line["us"], spread, line["errors"], line["plan"])
        found.append(TimedCase(case, line["numbers"], *told))
    return tuple(found)


def _lines(device: str, run: str) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Of a record: cases, and what is told of each."""
    cases = {case.title: case for case in (*sets.layers(), *sets.products(), *sets.unseen())}
    for line in stored_lines(run, device)[1:]:
        yield cases[line["title"]], line


@dataclass(frozen=True)
class Tried:
    """A plan of a case that was timed: its time in µs, and whether the planner had picked it."""

    case: Case
    plan: Plan
    us: float
    picked: bool


@functools.cache
def tried(device: str = "nvidia-h100-80gb-hbm3", numbers: str = "float32") -> tuple[Tried, ...]:
    """The plans that were timed, several a case.

    >>> len(tried()), sum(each.picked for each in tried())
    (235, 47)

    Args:
        device: a folder under book/measurements.
        numbers: 'float32' or 'tf32'.
    """
    return tuple(
        Tried(case, plan_of(name, case, numbers, line["way"]), us, name == line["plan"])
        for case, line in _lines(device, TRIED)
        if line["numbers"] == numbers
        for name, us in line["us"].items()
        if name != LIBRARY
    )


def plan_of(name: str, case: Case, numbers: str, way: str = "whole", sms: int = 132) -> Plan:
    """The plan of a name in the records.

    >>> case = sets.layers()[1]
    >>> plan_of("1x1x64 d64 s1+0 st7 g1 c1 A1 D0 P0 b1 Q1", case, "float32").columns
    64

    Args:
        name: such as that above.
        case: what is computed.
        numbers: 'float32' or 'tf32'.
        way: of the layer, as in the records.
        sms: of the GPU.

    Raises:
        ValueError: the name is none of these.
    """
    fields = plan_fields(name)
    if fields is None:
        raise ValueError(f"name is {name!r}; expected one such as in {TRIED}")
    layer = any_layer(case.conv, way=way, sms=sms, numbers=numbers)
    assert isinstance(layer.plan, Plan)
    return replace(layer.plan, **fields)


def computed(
    layer: Layer,
    x: Array,
    w: Array,
    make: Callable[..., Any] = conv_any,
    run: Callable[..., None] = run_anywhere,
) -> Array:
    """What the kernel of a layer in float32, or tf32, makes of images and weights.

    Args:
        layer: whose images are not copied.
        x: (batch, h, w, ic), or what has as many numbers.
        w: (taps, oc, ic).
        make: `conv_any`, or a kernel like it.
        run: what runs it.
    """
    c = layer.conv
    y = np.full((c.batch, *c.out, c.oc), np.nan, layer.dtype)
    extras = extras_of(layer, w)
    if layer.partials:
        extras.append(np.full(layer.partials, np.nan, "float32"))
    plan: Any = layer.plan
    run(make(plan.conv, plan=plan), x.reshape(layer.given), layer.weights(w), *extras, y)
    return y


def held_against(conv: Conv, x: Array, w: Array, y: Array) -> tuple[float, float]:
    """The largest error of float32 results as a share of its bound, and `errors_of`.

    The bound is a share of everything that is added, the sum of the products' magnitudes: 2^-22 for
    splitting images, for splitting weights, and for the product that is left out; an eps of float32
    for each of the 192 additions of a slot; half of one for each time of collecting, and for the
    end. What is far below the largest number of its row, or of its channel's weights, is split to
    2^-39 of that, whatever it is itself.

    Args:
        conv: what is computed.
        x, w: (batch, h, w, ic), or what has as many numbers, and (taps, oc, ic).
        y: the results.
    """
    case = Case("held against float64", conv, True if conv.is_product else None)
    images = x.reshape(conv.batch, *conv.size, conv.ic)
    want, most = exact(case, images, w, np.arange(conv.pixels))
    eps, slots = np.finfo("float32").eps, conv.taps * math.ceil(conv.ic / SLOT)
    share = 3 * 2.0**-22 + (3 * SLOT + slots / 2 + 1) * eps
    below = 2.0**-38 * conv.taps * conv.ic * float(np.abs(x).max()) * float(np.abs(w).max())
    off = np.abs(y.reshape(want.shape) - want) / (share * most + below)
    return float(off.max()), errors_of(y.reshape(want.shape), want)
