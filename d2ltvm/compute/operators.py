"""Compute definitions of depthwise convolution, pooling and batch normalisation.

Names and the order of arguments are d2l-tvm's. Images are (channels, height, width), all float32.
"""

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from tvm import te, tirx

from d2ltvm.compute.convolution import Array, padding, window_sizes
from d2ltvm.compute.ops import countable, placeholder
from d2ltvm.errors import is_number, shown, whole

KINDS = ("max", "avg")
ACTIVATIONS = ("", "relu", "relu6")  # none; max(x, 0); min(max(x, 0), 6)


def depthwise_conv(
    ic: int, nh: int, nw: int, kh: int, kw: int, ph: int = 0, pw: int = 0, sh: int = 1, sw: int = 1
) -> tuple[Any, Any, Any, Any]:
    """Convolution of each channel of an image with a kernel of its own.

    >>> X, K, Y, PaddedX = d2ltvm.depthwise_conv(32, 56, 56, 3, 3, 1, 1)
    >>> K.shape, Y.shape
    ((32, 1, 3, 3), (32, 56, 56))

    Args:
        ic: channels, in and out, a positive integer.
        nh: height of the image.
        nw: its width.
        kh: height of the kernels.
        kw: their width.
        ph: rows of zeros above and below the image.
        pw: columns of zeros left and right of it.
        sh: stride down.
        sw: stride across.

    Returns:
        te tensors `X` of shape `(ic, nh, nw)`, `K` of shape `(ic, 1, kh, kw)`, `Y`, and `PaddedX`,
        which is `X` where there is no padding.

    Raises:
        ValueError: a number is out of its range, or the kernel larger than the padded image.
    """
    ic = whole("ic", ic)
    sizes = window_sizes(nh, nw, kh, kw, ph, pw, sh, sw)
    nh, nw, kh, kw, ph, pw, sh, sw = map(int, (nh, nw, kh, kw, ph, pw, sh, sw))
    X = placeholder((ic, nh, nw), "float32", "X")
    K = placeholder((ic, 1, kh, kw), "float32", "K")
    PaddedX = padding(X, ph, pw) if ph or pw else X
    y, x = te.reduce_axis((0, kh), name="rkh"), te.reduce_axis((0, kw), name="rkw")

    def element(c: Any, i: Any, j: Any) -> Any:
        return te.sum(PaddedX[c, i * sh + y, j * sw + x] * K[c, 0, y, x], axis=[y, x])

    return X, K, te.compute(countable("Y", (ic, *sizes)), element, name="Y"), PaddedX


def depthwise_reference(data: Any, weight: Any, p: int = 0, s: int = 1) -> Array:
    """The same by NumPy, in the precision of its arguments.

    >>> data, weight = np.ones((2, 4, 4)), np.ones((2, 1, 3, 3))
    >>> depthwise_reference(data, weight, p=1)[0, 0]
    array([4., 6., 6., 4.])

    Args:
        data: array of shape (channels, height, width).
        weight: of shape (channels, 1, height, width).
        p: zeros on each side of the image.
        s: stride.
    """
    windows = _windows(np.pad(data, ((0, 0), (p, p), (p, p))), weight.shape[2:], s)
    result: Array = np.einsum("cijyx,cyx->cij", windows, weight[:, 0])
    return result


def pool(
    pool_type: str, c: int, nh: int, nw: int, kh: int, kw: int, ph: int = 0, pw: int = 0,
    sh: int = 1, sw: int = 1,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The largest number or the mean under a window that moves over each channel.

    >>> X, Y, PaddedX = d2ltvm.pool("max", 64, 112, 112, 3, 3, 1, 1, 2, 2)
    >>> Y.shape
    (64, 56, 56)

    Args:
        pool_type: 'max' or 'avg'. A mean counts the border, which is zeros, as d2l-tvm's does; the
            border of a maximum is the smallest number there is, so that it never wins.
        c: channels.
        nh: height of the image.
        nw: its width.
        kh: height of the window.
        kw: its width.
        ph: rows of border above and below the image.
        pw: columns of border left and right of it.
        sh: stride down.
        sw: stride across.

    Returns:
        te tensors `X` of shape `(c, nh, nw)`, `Y`, and `PaddedX`, which is `X` where there is no
        border.

    Raises:
        ValueError: `pool_type` is another one, a number is out of its range, the window is larger
            than the image with its border, or a border is as wide as the window.
    """
    if pool_type not in KINDS:
        raise ValueError(f"pool_type is {shown(pool_type)}; expected 'max' or 'avg'")
    c = whole("c", c)
    sizes = window_sizes(nh, nw, kh, kw, ph, pw, sh, sw)
    nh, nw, kh, kw, ph, pw, sh, sw = map(int, (nh, nw, kh, kw, ph, pw, sh, sw))
    for name, border, window in (("ph", ph, kh), ("pw", pw, kw)):
        if border >= window:  # a window that sees no pixel has no maximum
            raise ValueError(f"{name} is {border}; expected less than the window, {window}")
    X = placeholder((c, nh, nw), "float32", "X")
    lowest = float(np.finfo("float32").min)
    PaddedX = padding(X, ph, pw, lowest if pool_type == "max" else 0) if ph or pw else X
    y, x = te.reduce_axis((0, kh), name="rkh"), te.reduce_axis((0, kw), name="rkw")
    shape = countable("Y", (c, *sizes))

    def under(c: Any, i: Any, j: Any) -> Any:
        return PaddedX[c, i * sh + y, j * sw + x]

    if pool_type == "max":
        Y = te.compute(shape, lambda c, i, j: te.max(under(c, i, j), axis=[y, x]), name="Y")
    else:
        total = te.compute(shape, lambda c, i, j: te.sum(under(c, i, j), axis=[y, x]), name="Sums")
        many = tirx.const(kh * kw, "float32")
        Y = te.compute(shape, lambda c, i, j: total[c, i, j] / many, name="Y")
    return X, Y, PaddedX


def pool_reference(pool_type: str, data: Any, k: int, p: int = 0, s: int = 1) -> Array:
    """The same by NumPy, in the precision of its argument, of square windows.

    >>> pool_reference("avg", np.ones((1, 4, 4)), 2, p=1, s=2)[0]
    array([[0.25, 0.5 , 0.25],
           [0.5 , 1.  , 0.5 ],
           [0.25, 0.5 , 0.25]])

    Args:
        pool_type: 'max' or 'avg'.
        data: array of shape (channels, height, width).
        k: height and width of the window.
        p: border on each side.
        s: stride.
    """
    border = -np.inf if pool_type == "max" else 0
    padded = np.pad(data, ((0, 0), (p, p), (p, p)), constant_values=border)
    windows = _windows(padded, (k, k), s)
    result: Array = windows.max((3, 4)) if pool_type == "max" else windows.mean((3, 4))
    return result


def batch_norm(c: int, n: int, eps: float = 1e-5) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Batch normalisation of an image, as inference does it: with means and variances given.

    >>> X, Mean, Var, Gamma, Beta, Y = d2ltvm.batch_norm(32, 28)
    >>> Mean.shape, Y.shape
    ((32, 1, 1), (32, 28, 28))

    Args:
        c: channels.
        n: height and width of the image.
        eps: what is added to a variance before its root is taken, a positive number.

    Returns:
        te tensors `X` of shape `(c, n, n)`; `Mean`, `Var`, `Gamma` and `Beta` of shape `(c, 1, 1)`;
        and `Y`, which is `(X - Mean) / sqrt(Var + eps) * Gamma + Beta`.

    Raises:
        ValueError: a size is not a positive integer, or `eps` not a positive number.
    """
    c, n = whole("c", c), whole("n", n)
    if not is_number(eps) or not 0 < eps < 1:
        raise ValueError(f"eps is {shown(eps)}; expected a number between 0 and 1")
    X = placeholder((c, n, n), "float32", "X")
    Mean, Var, Gamma, Beta = (
        placeholder((c, 1, 1), "float32", name) for name in ("Mean", "Var", "Gamma", "Beta")
    )

    def element(k: Any, i: Any, j: Any) -> Any:
        deviation = te.sqrt(Var[k, 0, 0] + tirx.const(eps, "float32"))
        return (X[k, i, j] - Mean[k, 0, 0]) / deviation * Gamma[k, 0, 0] + Beta[k, 0, 0]

    return X, Mean, Var, Gamma, Beta, te.compute((c, n, n), element, name="Y")


def check_activation(activation: Any) -> None:
    """A ValueError, unless it is one of `ACTIVATIONS`."""
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation is {shown(activation)}; expected one of {ACTIVATIONS}")


def _windows(padded: Any, size: Any, s: int) -> Array:
    """The pixels under each window, along two more axes."""
    found: Array = sliding_window_view(padded, tuple(size), axis=(1, 2))  # type: ignore[call-overload]
    return found[:, ::s, ::s]
