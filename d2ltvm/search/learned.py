"""A cost model that learns from what was measured: ridge regression, a dozen lines of NumPy.

MetaSchedule comes with three: 'xgb' wants XGBoost, 'mlp' wants PyTorch, 'random' knows nothing.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm.s_tir.meta_schedule as ms

from d2ltvm.errors import above_zero
from d2ltvm.search.ranking import as_numbers, as_times
from d2ltvm.search.spaces import Space

Array = npt.NDArray[Any]


def features(space: Space, schedules: Sequence[Any]) -> Array:
    """What MetaSchedule's own models see of schedules: a row of numbers for each.

    `PerStoreFeature` describes each store of a loop nest by 164 numbers, most of them logarithms:
    operations, loops of each kind, bytes and lines of each buffer, reuse. Their sums, and their
    largest over all stores, are what is used here.

    Args:
        space: where they come from.
        schedules: several.
    """
    extractor = ms.feature_extractor.PerStoreFeature()
    candidates = [ms.MeasureCandidate(sch, []) for sch in schedules]
    found = [f.numpy() for f in extractor.extract_from(space.context, candidates)]
    return np.array([np.concatenate([f.sum(axis=0), f.max(axis=0)]) for f in found])


class Ridge:
    """Ridge regression of the logarithm of a time, after each feature's mean and scale.

    >>> x = np.arange(8.0)[:, None]
    >>> model = Ridge(1e-6).fit(x, np.exp(x[:, 0]))
    >>> round(float(model.predict(np.array([[3.0]]))[0]), 2)
    20.09

    Args:
        strength: how much large weights cost, a positive number.

    Raises:
        ValueError: it is none.
    """

    def __init__(self, strength: float = 10.0) -> None:
        self.strength = above_zero("strength", strength)
        self._fitted: tuple[Array, Array, Array, float] | None = None

    def fit(self, x: Array, seconds: Array) -> "Ridge":
        """Fit to features, a row for each schedule, and their times in seconds.

        Raises:
            ValueError: they are no numbers, not as many, or a time is not positive.
        """
        x = as_numbers("x", x, axes=2)
        seconds = as_times("seconds", seconds, len(x), "x")
        mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-9
        z, y = (x - mean) / scale, np.log(seconds)
        # As many equations as schedules, which are fewer than the features.
        gram = z @ z.T + self.strength * np.eye(len(z))
        self._fitted = mean, scale, z.T @ np.linalg.solve(gram, y - y.mean()), float(y.mean())
        return self

    def predict(self, x: Array) -> Array:
        """Seconds of schedules by their features; all the same before the first fit.

        Raises:
            ValueError: they are no numbers, or not as many columns as were fitted.
        """
        x = as_numbers("x", x, axes=2)
        if self._fitted is None:
            return np.ones(len(x))
        mean, scale, weights, offset = self._fitted
        if x.shape[1:] != mean.shape:
            raise ValueError(f"x has {x.shape[1]} columns; expected {len(mean)}, as were fitted")
        return np.asarray(np.exp(np.clip((x - mean) / scale @ weights + offset, -30, 30)))
