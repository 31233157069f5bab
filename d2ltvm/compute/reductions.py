"""Compute definitions of sums of rows, softmax and layer norm, their data and references.

A matrix is (rows, cols). It may be float16: what is added up is float32 all the same.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import te, tirx

from d2ltvm.compute.convolution import Array
from d2ltvm.compute.ops import countable, placeholder
from d2ltvm.errors import above_zero, shown, whole

DTYPES = ("float16", "float32")
LOG2_E = 1 / math.log(2)  # exp(x) is exp2(x * LOG2_E), and a GPU has an instruction for exp2


def row_sum(rows: int, cols: int, dtype: str = "float16", multiple: int = 1) -> tuple[Any, Any]:
    """Add up each row of a matrix.

    >>> X, S = d2ltvm.row_sum(8, 1024)
    >>> X.dtype, S.dtype, S.shape
    (T.float16, T.float32, (8,))

    Args:
        rows: a positive integer.
        cols: likewise.
        dtype: of the matrix, 'float16' or 'float32'.
        multiple: with zeros behind each row, in a stage `P`, its length is one of this number's
            multiples; where it is so without, there is no such stage.

    Returns:
        te tensors `X` of shape `(rows, cols)` and `S` of shape `(rows,)`, which is float32.

    Raises:
        ValueError: a size is not a positive integer, or `dtype` is another one.
    """
    rows, cols, X = _matrix(rows, cols, dtype)
    length = -(-cols // whole("multiple", multiple)) * int(multiple)
    P = X
    if length > cols:
        zero = tirx.const(0, dtype)
        P = te.compute(
            countable("P", (rows, length)),
            lambda i, c: tirx.if_then_else(c < cols, X[i, c], zero),
            name="P",
        )
    k = te.reduce_axis((0, length), name="k")
    return X, te.compute((rows,), lambda i: te.sum(_wide(P[i, k]), axis=k), name="S")


def softmax(
    rows: int, cols: int, dtype: str = "float16", exp2: Callable[[Any], Any] = tirx.exp2
) -> tuple[Any, Any]:
    """Softmax of each row of a matrix: positive numbers that add up to 1.

    >>> X, Y = d2ltvm.softmax(8, 1024)
    >>> Y.shape, Y.dtype
    ((8, 1024), T.float16)

    The largest number of the row, `M`, is subtracted first, so that no exponential overflows. `E`
    are the exponentials, `D` is their sum, and `R` is 1 / `D`. The four are stages of their own,
    float32.

    Args:
        rows: a positive integer.
        cols: likewise.
        dtype: of the matrix and of the result, 'float16' or 'float32'.
        exp2: function of an expression: 2 to the power of it.

    Returns:
        te tensors `X` and `Y`, both of shape `(rows, cols)`.

    Raises:
        ValueError: a size is not a positive integer, or `dtype` is another one.
    """
    rows, cols, X = _matrix(rows, cols, dtype)
    k, j = te.reduce_axis((0, cols), name="k"), te.reduce_axis((0, cols), name="j")
    M = te.compute((rows,), lambda i: te.max(_wide(X[i, k]), axis=k), name="M")

    def power(i: Any, c: Any) -> Any:
        return exp2((_wide(X[i, c]) - M[i]) * tirx.const(LOG2_E, "float32"))

    E = te.compute((rows, cols), power, name="E")
    D = te.compute((rows,), lambda i: te.sum(E[i, j], axis=j), name="D")
    R = te.compute((rows,), lambda i: tirx.const(1, "float32") / D[i], name="R")
    Y = te.compute((rows, cols), lambda i, c: (E[i, c] * R[i]).astype(dtype), name="Y")
    return X, Y


def layer_norm(
    rows: int, cols: int, dtype: str = "float16", eps: float = 1e-5
) -> tuple[Any, Any, Any, Any]:
    """Layer norm: each row shifted to mean 0 and scaled to variance 1, then scaled and shifted.

    >>> X, G, B, Y = d2ltvm.layer_norm(8, 1024)
    >>> G.shape, Y.shape
    ((1024,), (8, 1024))

    `M` is the mean of a row, `D` its variance, the mean of the squares of its deviations from `M`,
    and `R` is 1 / sqrt(D + eps). The three are stages of their own, float32, of shape `(rows,)`.

    Args:
        rows: a positive integer.
        cols: likewise.
        dtype: of all four, 'float16' or 'float32'.
        eps: added to the variance, so that a row of equal numbers does not divide by zero.

    Returns:
        te tensors `X`, `G` and `B` of shape `(cols,)`, which scale (gamma) and shift (beta), and
        `Y`.

    Raises:
        ValueError: a size is not a positive integer, `dtype` is another one, or `eps` is not above
            zero.
    """
    rows, cols, X = _matrix(rows, cols, dtype)
    eps = above_zero("eps", eps)
    G, B = (placeholder((cols,), dtype, name) for name in "GB")
    k, j = te.reduce_axis((0, cols), name="k"), te.reduce_axis((0, cols), name="j")
    share = tirx.const(1 / cols, "float32")
    M = te.compute((rows,), lambda i: te.sum(_wide(X[i, k]) * share, axis=k), name="M")

    def deviation(i: Any, c: Any) -> Any:
        return _wide(X[i, c]) - M[i]

    def square(i: Any, c: Any) -> Any:
        return deviation(i, c) * deviation(i, c) * share

    D = te.compute((rows,), lambda i: te.sum(square(i, j), axis=j), name="D")
    R = te.compute((rows,), lambda i: te.rsqrt(D[i] + tirx.const(eps, "float32")), name="R")

    def normed(i: Any, c: Any) -> Any:
        return (deviation(i, c) * R[i] * _wide(G[c]) + _wide(B[c])).astype(dtype)

    return X, G, B, te.compute((rows, cols), normed, name="Y")


def exp2_polynomial(x: Any) -> Any:
    """2 to the power of an expression, float32 and at most 127, without a function of a library.

    >>> X = te.placeholder((3,), name="X")
    >>> kernel = d2ltvm.build(d2ltvm.schedule(
    ...     [X, te.compute((3,), lambda i: exp2_polynomial(X[i]), name="Y")]), "llvm")
    >>> x, y = np.float32([-1000, 0.5, 3]), np.empty(3, "float32")
    >>> kernel(x, y)
    >>> np.allclose(y, [0, 2**0.5, 8], rtol=3e-7)
    True

    The whole part of `x` goes into the bits of the exponent. For the rest, from 0 to 1, there is a
    polynomial of degree 5 through the Chebyshev nodes, which is off by 1.2e-7 of its value at most.
    What is less than -127 gives 0. A processor's SIMD instructions can do all of it, where a call
    of a library's `exp2f` for each element would keep a loop from being vectorized.
    """
    x = tirx.max(x, tirx.const(-127, "float32"))
    whole_part = tirx.floor(x)
    result = tirx.const(float(POWERS[-1]), "float32")
    for power in POWERS[-2::-1]:
        result = result * (x - whole_part) + tirx.const(float(power), "float32")
    return tirx.reinterpret("float32", (whole_part.astype("int32") + 127) << 23) * result


def _powers(degree: int = 5) -> Array:
    """The coefficients of a polynomial that is 2**x between 0 and 1, the constant first."""
    nodes = (1 + np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))) / 2
    coefficients: Array = np.linalg.solve(np.vander(nodes, increasing=True), np.exp2(nodes))
    return coefficients


POWERS = _powers()


def softmax_reference(x: Array) -> Array:
    """Softmax of each row by NumPy, in the precision of `x`.

    >>> softmax_reference(np.log([[1.0, 3.0]]))
    array([[0.25, 0.75]])
    """
    e = np.exp(x - x.max(axis=1, keepdims=True))
    result: Array = e / e.sum(axis=1, keepdims=True)
    return result


def layer_norm_reference(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> Array:
    """Layer norm of each row by NumPy, in the precision of `x`.

    >>> layer_norm_reference(np.array([[1.0, 3.0]]), np.array([1.0, 1.0]), np.zeros(2), 1e-12)
    array([[-1.,  1.]])
    """
    deviation = x - x.mean(axis=1, keepdims=True)
    variance = (deviation**2).mean(axis=1, keepdims=True)
    result: Array = deviation / np.sqrt(variance + eps) * gamma + beta
    return result


def get_rows(rows: int, cols: int, dtype: str = "float16") -> Array:
    """A random matrix, standard normal with a fixed seed, rounded to `dtype`.

    >>> d2ltvm.compute.get_rows(2, 3).dtype
    dtype('float16')

    Raises:
        ValueError: a size is not a positive integer, or `dtype` is neither float16 nor float32.
    """
    _matrix(rows, cols, dtype)
    return np.random.default_rng(0).standard_normal((rows, cols), "float32").astype(dtype)


def get_scales(cols: int, dtype: str = "float16") -> tuple[Array, Array]:
    """Random gamma, from 0.5 to 1.5, and beta, standard normal, for layer norm.

    >>> gamma, beta = d2ltvm.compute.get_scales(8)
    >>> gamma.shape == beta.shape == (8,)
    True

    Raises:
        ValueError: `cols` is not a positive integer, or `dtype` is neither float16 nor float32.
    """
    _, cols, _ = _matrix(1, cols, dtype)
    rng = np.random.default_rng(1)
    gamma, beta = rng.random(cols, "float32") + 0.5, rng.standard_normal(cols, "float32")
    return gamma.astype(dtype), beta.astype(dtype)


def _matrix(rows: Any, cols: Any, dtype: Any) -> tuple[int, int, Any]:
    """Sizes as Python's ints, and a matrix of them."""
    rows, cols = whole("rows", rows), whole("cols", cols)
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"dtype is {shown(dtype)}; expected one of {', '.join(DTYPES)}")
    return rows, cols, placeholder(countable("X", (rows, cols)), dtype, "X")


def _wide(value: Any) -> Any:
    return value.astype("float32")
