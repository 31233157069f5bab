"""Input data for the computations, random and always the same for the same arguments."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from d2ltvm.compute.convolution import Array, conv_out_size
from d2ltvm.compute.ops import Shape, as_shape, broadcast_shape, check_dtype, countable
from d2ltvm.errors import shown, whole

Constructor = Callable[[Array], Any] | None


def get_abc(shape: int | Iterable[int], constructor: Constructor = None) -> tuple[Any, Any, Any]:
    """Random `a` and `b`, and `c` to hold a result, all of one shape.

    >>> a, b, c = d2ltvm.get_abc((2, 3))
    >>> a.shape, c.dtype
    ((2, 3), dtype('float32'))

    Args:
        shape: an int or a tuple of ints.
        constructor: called on each of the three NumPy arrays, to make a framework's array of it.

    Returns:
        Three float32 arrays of `shape`: `a` and `b` standard normal with a fixed seed, `c` filled
        with NaN, so that an element nobody wrote shows.

    Raises:
        ValueError: `shape` is not a positive integer, or a tuple of them.
    """
    shape = as_shape("shape", shape)
    a, b = _normal(shape, shape)
    return _construct(constructor, a, b, np.full(shape, np.nan, "float32"))


def get_bcast_data(
    shape1: Iterable[int], shape2: Iterable[int], constructor: Constructor = None
) -> tuple[Any, Any, Any]:
    """Random `a` and `b` whose shapes broadcast, and `c` to hold their sum.

    >>> a, b, c = d2ltvm.get_bcast_data((3, 1), (3, 4))
    >>> c.shape
    (3, 4)

    Args:
        shape1: shape of `a`.
        shape2: shape of `b`.
        constructor: called on each of the three NumPy arrays.

    Returns:
        float32 arrays: `a` and `b` standard normal with a fixed seed, `c` of the broadcast shape,
        filled with NaN.

    Raises:
        ValueError: the shapes do not broadcast.
    """
    shape = broadcast_shape(shape1, shape2)
    a, b = _normal(as_shape("shape1", shape1), as_shape("shape2", shape2))
    return _construct(constructor, a, b, np.full(countable("c", shape), np.nan, "float32"))


def get_matmul_data(
    n: int, m: int, l: int, constructor: Constructor = None
) -> tuple[Any, Any, Any]:
    """Random `a` and `b` to be multiplied, and `c` to hold their product.

    >>> a, b, c = d2ltvm.get_matmul_data(64, 32, 128)
    >>> a.shape, b.shape, c.shape
    ((64, 128), (128, 32), (64, 32))

    Args:
        n: rows of `a`.
        m: columns of `b`.
        l: columns of `a` and rows of `b`.
        constructor: called on each of the three NumPy arrays.

    Returns:
        float32 arrays: `a` and `b` standard normal with a fixed seed, `c` filled with NaN.

    Raises:
        ValueError: a size is not a positive integer.
    """
    n, m, l = whole("n", n), whole("m", m), whole("l", l)
    a, b = _normal((n, l), (l, m))
    return _construct(constructor, a, b, np.full(countable("c", (n, m)), np.nan, "float32"))


def get_conv_data(
    oc: int,
    ic: int,
    n: int,
    k: int,
    p: int = 0,
    s: int = 1,
    constructor: Constructor = None,
    conv_type: str = "direct",
) -> tuple[Any, Any, Any]:
    """A random image, random kernels, and `out` to hold their convolution.

    >>> data, weight, out = d2ltvm.get_conv_data(64, 3, 32, 3, p=1)
    >>> data.shape, weight.shape, out.shape
    ((3, 32, 32), (64, 3, 3, 3), (64, 32, 32))
    >>> d2ltvm.get_conv_data(64, 64, 32, 3, p=1, conv_type="depthwise")[1].shape
    (64, 1, 3, 3)

    Args:
        oc: output channels.
        ic: input channels.
        n: height and width of the image.
        k: height and width of the kernels.
        p: padding on each side.
        s: stride.
        constructor: called on each of the three NumPy arrays.
        conv_type: 'direct', or 'depthwise', whose kernels have one input channel each.

    Returns:
        float32 arrays: `data` and `weight` standard normal with a fixed seed, `out` all NaN.

    Raises:
        ValueError: the sizes are those of no convolution, `conv_type` is another, or a depthwise
            convolution has not as many channels out as in.
    """
    on = conv_out_size(n, k, p, s)
    oc, ic, n, k = whole("oc", oc), whole("ic", ic), int(n), int(k)
    if conv_type not in ("direct", "depthwise"):
        raise ValueError(f"conv_type is {shown(conv_type)}; expected 'direct' or 'depthwise'")
    if conv_type == "depthwise" and oc != ic:
        raise ValueError(f"oc is {oc}; expected ic = {ic}, as conv_type is 'depthwise'")
    data, weight = _normal((ic, n, n), (oc, ic if conv_type == "direct" else 1, k, k))
    return _construct(
        constructor, data, weight, np.full(countable("out", (oc, on, on)), np.nan, "float32")
    )


def get_bn_data(c: int, n: int, constructor: Constructor = None) -> tuple[Any, ...]:
    """A random image, four vectors for its batch normalisation, and `out` to hold the result.

    >>> data, mean, var, gamma, beta, out = d2ltvm.get_bn_data(32, 28)
    >>> data.shape, mean.shape, out.shape
    ((32, 28, 28), (32, 1, 1), (32, 28, 28))

    Args:
        c: channels.
        n: height and width of the image.
        constructor: called on each of the six NumPy arrays.

    Returns:
        float32 arrays with a fixed seed: `data` and `beta` standard normal, `mean` and `gamma`
        normal around 1, `var` the magnitudes of such, and `out` all NaN.

    Raises:
        ValueError: a size is not a positive integer.
    """
    c, n = whole("c", c), whole("n", n)
    data, mean, var, gamma, beta = _normal((c, n, n), *[(c, 1, 1)] * 4)
    out = np.full(countable("out", (c, n, n)), np.nan, "float32")
    arrays = (data, mean + 1, abs(var + 1), gamma + 1, beta, out)
    return tuple(map(constructor, arrays)) if constructor else arrays


def get_conv_batch(
    batch: int, oc: int, ic: int, n: int, k: int, dtype: str = "float32"
) -> list[Array]:
    """A batch of random images in NCHW, and random kernels in OIHW.

    >>> images, weights = d2ltvm.compute.get_conv_batch(8, 64, 3, 32, 3)
    >>> images.shape, weights.shape
    ((8, 3, 32, 32), (64, 3, 3, 3))

    Args:
        batch: number of images.
        oc: output channels.
        ic: input channels.
        n: height and width of the images.
        k: height and width of the kernels.
        dtype: element type; numbers are standard normal, with a fixed seed, and rounded to it.

    Raises:
        ValueError: a size is not a positive integer, or `dtype` is not one of `ops.DTYPES`.
    """
    check_dtype(dtype)
    names = ("batch", "oc", "ic", "n", "k")
    batch, oc, ic, n, k = map(whole, names, (batch, oc, ic, n, k))
    arrays = _normal((batch, ic, n, n), (oc, ic, k, k))
    return [array.astype(dtype) for array in arrays]


def _normal(*shapes: Shape) -> list[Array]:
    for shape in shapes:
        countable("an array", shape)
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, "float32") for shape in shapes]


def _construct(constructor: Constructor, a: Array, b: Array, c: Array) -> tuple[Any, Any, Any]:
    return (constructor(a), constructor(b), constructor(c)) if constructor else (a, b, c)


def square_matrices(n: int) -> tuple[Any, Any, Any]:
    """Arrays for a product of square matrices, each of (n, n)."""
    n = whole("n", n)
    return get_abc((n, n))


def bcast_data(n: int) -> tuple[Any, Any, Any]:
    """Arrays for the broadcast add of the book: (n, 1), (n, n) and a result of (n, n)."""
    n = whole("n", n)
    return get_bcast_data((n, 1), (n, n))
