"""Depthwise convolution, pooling and batch normalisation of batches with the channels last.

Images are (batch, height, width, channels), as PyTorch's `channels_last` and TensorFlow keep them:
neighbouring channels of a pixel are neighbours in memory. Inputs and results are float16, or
float32; sums are always float32.
"""

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from tvm import te, tirx

from d2ltvm.compute.convolution import Array, conv_out_size, with_border
from d2ltvm.compute.operators import KINDS
from d2ltvm.compute.ops import placeholder
from d2ltvm.errors import in_32_bits, is_number, shown, whole

FLOATS = ("float16", "float32")
LOWEST = {name: float(np.finfo(name).min) for name in FLOATS}


def depthwise_nhwc(
    batch: int, c: int, n: int, k: int, p: int = 0, s: int = 1, dtype: str = "float16"
) -> tuple[Any, Any, Any]:
    """Depthwise convolution of a batch with the channels last.

    >>> X, K, Y = d2ltvm.compute.depthwise_nhwc(32, 64, 112, 3, 1, 2)
    >>> X.shape, K.shape, Y.shape
    ((32, 112, 112, 64), (3, 3, 64), (32, 56, 56, 64))

    Args:
        batch: images, a positive integer.
        c: channels, in and out.
        n: height and width of an image.
        k: height and width of a kernel.
        p: zeros on each side of an image.
        s: stride.
        dtype: 'float16' or 'float32', of all three.

    Returns:
        te tensors `X` of shape `(batch, n, n, c)`, `K` of shape `(k, k, c)`, and `Y`, whose sums,
        in float32, are a block of its own, named `Sums`.

    Raises:
        ValueError: a number is out of its range, the kernel larger than the padded image, or
            `dtype` another.
    """
    batch, c, n, k, p, s, on = _sizes(batch, c, n, k, p, s, dtype)
    X, K = placeholder((batch, n, n, c), dtype, "X"), placeholder((k, k, c), dtype, "K")
    PaddedX = with_border(X, {1: p, 2: p}) if p else X
    y, x = te.reduce_axis((0, k), name="rkh"), te.reduce_axis((0, k), name="rkw")

    def products(b: Any, i: Any, j: Any, ch: Any) -> Any:
        pixel = PaddedX[b, i * s + y, j * s + x, ch].astype("float32")
        return te.sum(pixel * K[y, x, ch].astype("float32"), axis=[y, x])

    Sums = te.compute((batch, on, on, c), products, name="Sums")
    return X, K, te.compute(Sums.shape, lambda *i: Sums(*i).astype(dtype), name="Y")


def pool_nhwc(
    pool_type: str, batch: int, c: int, n: int, k: int, p: int = 0, s: int = 1,
    dtype: str = "float16",
) -> tuple[Any, Any]:  # fmt: skip
    """Pooling of a batch with the channels last.

    >>> X, Y = d2ltvm.compute.pool_nhwc("max", 32, 64, 112, 3, 1, 2)
    >>> Y.shape
    (32, 56, 56, 64)

    Args:
        pool_type: 'max' or 'avg', as for `pool`.
        batch: images, a positive integer.
        c: channels.
        n: height and width of an image.
        k: height and width of a window.
        p: border on each side, smaller than the window.
        s: stride.
        dtype: 'float16' or 'float32', of both.

    Returns:
        te tensors `X` of shape `(batch, n, n, c)` and `Y`; the block `Sums` holds, in float32, what
        a mean is computed from, or the maximum.

    Raises:
        ValueError: `pool_type` or `dtype` is another, or a number is out of its range.
    """
    if pool_type not in KINDS:
        raise ValueError(f"pool_type is {shown(pool_type)}; expected 'max' or 'avg'")
    batch, c, n, k, p, s, on = _sizes(batch, c, n, k, p, s, dtype)
    if p >= k:
        raise ValueError(f"p is {p}; expected less than the window, {k}")
    X = placeholder((batch, n, n, c), dtype, "X")
    border = LOWEST[dtype] if pool_type == "max" else 0
    PaddedX = with_border(X, {1: p, 2: p}, border) if p else X
    y, x = te.reduce_axis((0, k), name="rkh"), te.reduce_axis((0, k), name="rkw")
    reduce = te.max if pool_type == "max" else te.sum
    share = tirx.const(1.0 if pool_type == "max" else 1 / (k * k), "float32")

    def under(b: Any, i: Any, j: Any, ch: Any) -> Any:
        return reduce(PaddedX[b, i * s + y, j * s + x, ch].astype("float32"), axis=[y, x])

    Sums = te.compute((batch, on, on, c), under, name="Sums")
    return X, te.compute(Sums.shape, lambda *i: (Sums(*i) * share).astype(dtype), name="Y")


def global_pool_nhwc(batch: int, c: int, n: int, dtype: str = "float16") -> tuple[Any, Any]:
    """The mean of each channel of each image, with the channels last.

    >>> X, Y = d2ltvm.compute.global_pool_nhwc(32, 2048, 7)
    >>> X.shape, Y.shape
    ((32, 7, 7, 2048), (32, 2048))

    Args:
        batch: images, a positive integer.
        c: channels.
        n: height and width of an image.
        dtype: 'float16' or 'float32', of both.

    Returns:
        te tensors `X` of shape `(batch, n, n, c)` and `Y` of shape `(batch, c)`; the sums, in
        float32, are the block `Sums`.

    Raises:
        ValueError: a number is not a positive integer, or `dtype` is another.
    """
    batch, c, n, *_ = _sizes(batch, c, n, 1, 0, 1, dtype)
    X = placeholder((batch, n, n, c), dtype, "X")
    y, x = te.reduce_axis((0, n), name="ry"), te.reduce_axis((0, n), name="rx")

    def total(b: Any, ch: Any) -> Any:
        return te.sum(X[b, y, x, ch].astype("float32"), axis=[y, x])

    Sums = te.compute((batch, c), total, name="Sums")
    share = tirx.const(1 / (n * n), "float32")
    return X, te.compute((batch, c), lambda b, ch: (Sums[b, ch] * share).astype(dtype), name="Y")


def batch_norm_nhwc(
    pixels: int, c: int, eps: float = 1e-5, relu: bool = False, dtype: str = "float16"
) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Batch normalisation with the channels last, as inference does it.

    It knows pixels and no images: `pixels` is batch * height * width.

    >>> X, Mean, Var, Gamma, Beta, Y = d2ltvm.compute.batch_norm_nhwc(32 * 56 * 56, 64, relu=True)
    >>> X.shape, Mean.shape
    ((100352, 64), (64,))

    Args:
        pixels: of all images together, a positive integer.
        c: channels.
        eps: what is added to a variance, as for `batch_norm`.
        relu: whether what is negative becomes zero behind it.
        dtype: 'float16' or 'float32', of `X` and `Y`. The four vectors are float32.

    Returns:
        te tensors `X` of shape `(pixels, c)`; `Mean`, `Var`, `Gamma` and `Beta` of shape `(c,)`;
        and `Y = X * Scale + Shift`, where the blocks `Scale` and `Shift` are
        `Gamma / sqrt(Var + eps)` and `Beta - Mean * Scale`.

    Raises:
        ValueError: a size is not a positive integer, `eps` out of its range, `relu` no bool, or
            `dtype` another.
    """
    pixels, c = whole("pixels", pixels), whole("c", c)
    _check_float(dtype)
    if not is_number(eps) or not 0 < eps < 1:
        raise ValueError(f"eps is {shown(eps)}; expected a number between 0 and 1")
    if not isinstance(relu, bool | np.bool_):
        raise ValueError(f"relu is {shown(relu)}; expected True or False")
    X = placeholder((pixels, c), dtype, "X")
    names = ("Mean", "Var", "Gamma", "Beta")
    Mean, Var, Gamma, Beta = (placeholder((c,), "float32", name) for name in names)
    small = tirx.const(eps, "float32")
    Scale = te.compute((c,), lambda ch: Gamma[ch] / te.sqrt(Var[ch] + small), name="Scale")
    Shift = te.compute((c,), lambda ch: Beta[ch] - Mean[ch] * Scale[ch], name="Shift")

    def element(pixel: Any, ch: Any) -> Any:
        value = X[pixel, ch].astype("float32") * Scale[ch] + Shift[ch]
        return (te.max(value, tirx.const(0, "float32")) if relu else value).astype(dtype)

    return X, Mean, Var, Gamma, Beta, te.compute(X.shape, element, name="Y")


def depthwise_nhwc_reference(data: Any, weight: Any, p: int = 0, s: int = 1) -> Array:
    """`depthwise_nhwc` by NumPy, in the precision of its arguments.

    >>> depthwise_nhwc_reference(np.ones((1, 4, 4, 2)), np.ones((3, 3, 2)), p=1)[0, 0, :, 1]
    array([4., 6., 6., 4.])

    Args:
        data: array of shape (batch, height, width, channels).
        weight: of shape (height, width, channels).
        p: zeros on each side of an image.
        s: stride.
    """
    result: Array = np.einsum("bijcyx,yxc->bijc", _windows(data, weight.shape[0], p, s), weight)
    return result


def pool_nhwc_reference(pool_type: str, data: Any, k: int, p: int = 0, s: int = 1) -> Array:
    """`pool_nhwc` by NumPy, in the precision of its argument.

    >>> pool_nhwc_reference("max", np.arange(16.0).reshape(1, 4, 4, 1), 2, s=2)[0, :, :, 0]
    array([[ 5.,  7.],
           [13., 15.]])

    Args:
        pool_type: 'max' or 'avg'.
        data: array of shape (batch, height, width, channels).
        k: height and width of the window.
        p: border on each side.
        s: stride.
    """
    windows = _windows(data, k, p, s, -np.inf if pool_type == "max" else 0)
    result: Array = windows.max((4, 5)) if pool_type == "max" else windows.mean((4, 5))
    return result


def _windows(data: Any, k: int, p: int, s: int, border: float = 0) -> Array:
    """The pixels under each window, along two more axes."""
    padded = np.pad(data, ((0, 0), (p, p), (p, p), (0, 0)), constant_values=border)
    found: Array = sliding_window_view(padded, (k, k), axis=(1, 2))  # type: ignore[call-overload]
    return found[:, ::s, ::s]


def _sizes(
    batch: int, c: int, n: int, k: int, p: int, s: int, dtype: str
) -> tuple[int, int, int, int, int, int, int]:
    """The six sizes as Python's integers, and the height and width of the result."""
    _check_float(dtype)
    on = conv_out_size(n, k, p, s)
    p, s = in_32_bits("p", p, 0), in_32_bits("s", s)
    return whole("batch", batch), whole("c", c), int(n), int(k), p, s, on


def _check_float(dtype: Any) -> None:
    if not isinstance(dtype, str) or dtype not in FLOATS:
        raise ValueError(f"dtype is {shown(dtype)}; expected 'float16' or 'float32'")
