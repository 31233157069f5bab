"""What the layouts are said in: arrays of NumPy, indices, and whole pieces."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Pair = tuple[int, int]  # of rows and of columns
Index = Any  # an integer, an array of them, or an expression of TVM's


def rounded_up(number: int, piece: int) -> int:
    """The least multiple of `piece` that is not under `number`.

    >>> rounded_up(33, 32), rounded_up(64, 32)
    (64, 64)
    """
    return -(-number // piece) * piece


def check_array(name: str, value: Any) -> None:
    """A TypeError that names the argument, unless it is a NumPy array."""
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name} is a {type(value).__name__}; expected a NumPy array")
