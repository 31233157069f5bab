"""What an expression's operations do to NumPy values, as they do in CUDA.

Integers wrap around and are divided towards zero, or down, as the operation says. A float becomes
an integer by leaving out its fraction; too large a one becomes the largest there is. Of a number
and NaN, the number is the smaller and the larger one.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from d2ltvm.analysis import index_exprs

Array = npt.NDArray[Any]
Value = Any  # an int, a NumPy scalar, or an array of shape (threads, lanes of a vector)


def spread(value: Value, shape: tuple[int, ...]) -> Array:
    """NumPy's `broadcast_to`, which takes its time even where there is nothing to do."""
    if type(value) is np.ndarray and value.shape == shape:
        return value
    return np.broadcast_to(value, shape)


def divide(a: Value, b: Value) -> Value:
    """C's division: of integers, towards zero.

    >>> divide(-7, 2), float(divide(np.float32(7), np.float32(2)))
    (-3, 3.5)
    """
    if is_float(a) or is_float(b):
        return np.true_divide(a, b)
    if isinstance(a, int) and isinstance(b, int):
        return int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b))
    return (a - np.fmod(a, b)) // b


def remainder(a: Value, b: Value) -> Value:
    """C's remainder, which has the sign of `a`.

    >>> remainder(-7, 2)
    -1
    """
    if isinstance(a, int) and isinstance(b, int):
        return a - b * divide(a, b)
    return np.fmod(a, b)


def smaller(a: Value, b: Value) -> Value:
    """CUDA's min; TVM defines its own of float16, which is a comparison."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return np.where(np.less(a, b), a, b) if _is_half(a) else np.fmin(a, b)


def larger(a: Value, b: Value) -> Value:
    """CUDA's max; as for min."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return np.where(np.greater(a, b), a, b) if _is_half(a) else np.fmax(a, b)


BINARY: dict[str, Callable[[Value, Value], Value]] = {
    **index_exprs.OPERATIONS,
    "Add": operator.add,
    "Sub": operator.sub,
    "Div": divide,
    "Mod": remainder,
    "Min": smaller,
    "Max": larger,
}


def wrapped(value: Value, dtype: str) -> Value:
    """An int that is too large for 32 bits as its type leaves it; other values as they are."""
    if not isinstance(value, int) or -(2**31) <= value < 2**31:
        return value
    kind = np.dtype(dtype)
    bits = 8 * kind.itemsize
    return np.array(value % 2**bits, f"uint{bits}").view(kind)


def cast(value: Value, dtype: str) -> Value:
    """C's conversion to a type.

    >>> cast(np.float32([-1.9, 1e20, np.nan]), "int32").tolist()
    [-1, 2147483647, 0]
    """
    value, kind = np.asarray(value), np.dtype(dtype)
    if not is_float(value) or kind.kind not in "iu":
        return value.astype(kind)
    # Conversions are to 32 bits at least, of which a narrow type keeps the lowest.
    wide = np.iinfo(np.promote_types(kind, f"{kind.kind}4"))
    whole = np.nan_to_num(
        np.trunc(value.astype("float64")), nan=0.0, posinf=2.0**64, neginf=-(2.0**64)
    )
    inside = (whole > wide.min) & (whole < wide.max)
    ends = np.where(whole >= wide.max, wide.max, wide.min).astype(wide.dtype)
    return np.where(inside, np.where(inside, whole, 0).astype(wide.dtype), ends).astype(kind)


def is_float(value: Value) -> bool:
    """Whether a value is of floating point; NumPy calls bfloat16 and its like 'V'."""
    return getattr(value, "dtype", np.dtype(int)).kind in "fV"


def _is_half(value: Value) -> bool:
    return is_float(value) and value.dtype.itemsize == 2


def call(name: str, *values: Value) -> Value:
    """A function of numbers, such as 'exp', in the type of its first argument.

    Raises:
        NotImplementedError: it is not one of `FUNCTIONS`.
    """
    if name not in FUNCTIONS:
        raise NotImplementedError(f"cannot emulate {name}")
    first = np.asarray(values[0])
    result = np.asarray(FUNCTIONS[name](first, *values[1:]))
    return result if name in CONDITIONS else result.astype(first.dtype)


def _bits(value: Array) -> Array:
    """The bits of each element, the highest first, along a new last axis."""
    nbytes = value.astype(value.dtype.newbyteorder(">"))[..., None].view(np.uint8)
    return np.unpackbits(nbytes, axis=-1)


def _leading_zeros(value: Array) -> Array:
    bits = _bits(value)
    return np.where(bits.any(axis=-1), bits.argmax(axis=-1), bits.shape[-1])


CONDITIONS = ("isnan", "isinf", "isfinite")
FUNCTIONS: dict[str, Callable[..., Value]] = {
    **{name: getattr(np, name) for name in (
        *CONDITIONS, "exp", "exp2", "log", "log2", "log10", "log1p", "sqrt", "floor", "ceil",
        "trunc", "fabs", "sin", "cos", "tan", "sinh", "cosh", "tanh", "hypot", "copysign",
        "nextafter", "fmod",
    )},
    **{f"a{name}": getattr(np, f"arc{name}") for name in (
        "sin", "cos", "tan", "sinh", "cosh", "tanh", "tan2"
    )},
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "erf": np.vectorize(math.erf, otypes=[float]),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "round": np.rint,  # TVM makes nearbyint of it, which takes an even number of two
    "nearbyint": np.rint,
    "pow": np.power,
    "ldexp": lambda x, n: x * np.exp2(n),
    "abs": np.abs,
    "popcount": lambda x: _bits(x).sum(axis=-1),
    "clz": _leading_zeros,
    "likely": np.asarray,
}  # fmt: skip
