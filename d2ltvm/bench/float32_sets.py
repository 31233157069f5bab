"""`python -m d2ltvm bench --set layers --numbers float32`, or tf32: the sets in float32.

Weights are split, or a second matrix transposed, once and before anything is timed, as an engine
for inference does it. Images are as the library's: what a kernel does to them is timed.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from d2ltvm.bench.contenders import Array, Run
from d2ltvm.bench.set_bench import (
    HOPPER,
    LIBRARY,
    OURS,
    Setting,
    Sides,
    data,
    exact,
    ours,
    some_places,
)
from d2ltvm.bench.sets import Case
from d2ltvm.compiler.verify import compare
from d2ltvm.hopper.any_layer import any_layer

TF32_BITS = 11  # that TensorCores read of a number's 24


def sides(case: Case, setting: Setting = HOPPER, numbers: str = "float32") -> Mapping[str, Run]:
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
    values = np.stack([layer.factors(weights), np.zeros(c.oc, "float32")])
    extras = [values] if layer.numbers == "float32" else []
    run, result = ours(layer, x, weights, setting, extras)
    y = result().reshape(c.pixels, c.oc)[places]
    want, most = exact(case, x, w, places)
    terms = 2 * c.ic * c.taps
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


def errors_of(got: Array, want: Array) -> float:
    """The root of the mean square of errors, as a part of that of results.

    >>> round(errors_of(np.float32([1.5, 2]), np.array([1.0, 2.0])), 4)
    0.2236
    """
    return float(f"{np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2)):.4g}")
