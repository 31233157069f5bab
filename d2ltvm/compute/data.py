"""Input data for the computations, random and always the same for the same arguments."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from d2ltvm.compute.convolution import Array, conv_out_size
from d2ltvm.compute.ops import Shape, as_shape, broadcast_shape, check_dtype, countable, whole

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
    oc: int, ic: int, n: int, k: int, p: int = 0, s: int = 1, constructor: Constructor = None
) -> tuple[Any, Any, Any]:
    """A random image, random kernels, and `out` to hold their convolution.

    >>> data, weight, out = d2ltvm.get_conv_data(64, 3, 32, 3, p=1)
    >>> data.shape, weight.shape, out.shape
    ((3, 32, 32), (64, 3, 3, 3), (64, 32, 32))

    Args:
        oc: output channels.
        ic: input channels.
        n: height and width of the image.
        k: height and width of the kernels.
        p: padding on each side.
        s: stride.
        constructor: called on each of the three NumPy arrays.

    Returns:
        float32 arrays: `data` and `weight` standard normal with a fixed seed, `out` all NaN.

    Raises:
        ValueError: the sizes are those of no convolution.
    """
    on = conv_out_size(n, k, p, s)
    oc, ic, n, k = whole("oc", oc), whole("ic", ic), int(n), int(k)
    data, weight = _normal((ic, n, n), (oc, ic, k, k))
    return _construct(
        constructor, data, weight, np.full(countable("out", (oc, on, on)), np.nan, "float32")
    )


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
