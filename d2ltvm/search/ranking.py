"""How good a cost model is: does it put candidates in order, and what does its choice cost?"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from d2ltvm.errors import shown, whole

Array = npt.NDArray[Any]


def ranks(values: Sequence[float] | Array) -> Array:
    """The rank of each value, from 0; equal values share the mean of theirs.

    >>> ranks([10, 30, 10]).tolist()
    [0.5, 2.0, 0.5]

    Raises:
        ValueError: they are no numbers in a row, or one is NaN.
    """
    values = as_numbers("values", values)
    _, place, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts + 1) / 2)[place])


def rank_correlation(one: Sequence[float] | Array, other: Sequence[float] | Array) -> float:
    """Spearman's rank correlation: 1 for the same order, -1 for the opposite, 0 for neither.

    >>> rank_correlation([1, 2, 3], [10, 40, 90])
    1.0

    Args:
        one: numbers, two or more that differ.
        other: as many.

    Raises:
        ValueError: there are not as many, fewer than two, all of one side are equal, or one of
            them is no number.

    Source: Spearman, "The proof and measurement of association between two things", 1904.
    """
    one, other = as_numbers("one", one), as_numbers("other", other)
    if len(one) != len(other) or len(one) < 2:
        raise ValueError(
            f"one has {len(one)} values, other {len(other)}; expected as many, 2 or more"
        )
    if len(np.unique(one)) < 2 or len(np.unique(other)) < 2:
        raise ValueError("all values of one, or of other, are equal; expected some that differ")
    return float(np.round(np.corrcoef(ranks(one), ranks(other))[0, 1], 12))


def regret(
    predicted: Sequence[float] | Array, measured: Sequence[float] | Array, top: int
) -> float:
    """The best time among a model's first choices, by the best time of all.

    >>> regret([1, 2, 3], [12.0, 10.0, 9.0], top=2)
    1.1111111111111112

    Args:
        predicted: what the model says of each candidate; less is better.
        measured: seconds of each.
        top: how many first choices are measured, a positive integer.

    Raises:
        ValueError: there are not as many of both, or none; one is no number, a time is not
            positive, or `top` is not as above.
    """
    predicted = as_numbers("predicted", predicted)
    measured = as_times("measured", measured, len(predicted), "predicted")
    top = whole("top", top)
    chosen = np.argsort(predicted, kind="stable")[:top]
    return float(np.min(measured[chosen]) / np.min(measured))


def as_times(name: str, values: Any, many: int, of: str) -> Array:
    """Positive finite numbers in a row, as many as there are of something.

    Raises:
        ValueError: they are not, or there are none; the message calls them `name`, and the other
            ones `of`.
    """
    found = as_numbers(name, values)
    if len(found) != many or not many:
        raise ValueError(f"{of} has {many} values, {name} {len(found)}; expected as many")
    if not 0 < found.min() <= found.max() < np.inf:
        raise ValueError(f"{name} is {shown(values)}; expected positive numbers")
    return found


def as_numbers(name: str, values: Any, axes: int = 1) -> Array:
    """Numbers in a row, or rows of them, as an array of float64.

    In a row, infinite ones may be among them.

    Args:
        name: what the message calls them.
        values: the numbers.
        axes: 1 for a row, 2 for rows.

    Raises:
        ValueError: they are none.
    """
    try:
        found = np.asarray(values)
    except (ValueError, TypeError):
        found = np.asarray(None)
    bad = (np.isnan, lambda some: ~np.isfinite(some))[axes - 1]
    if found.ndim != axes or found.dtype.kind not in "iuf" or bad(found).any():
        expected = ("numbers in a row", "rows of numbers")[axes - 1]
        raise ValueError(f"{name} is {shown(values)}; expected {expected}")
    return found.astype("float64")
