"""Compute definitions of convolution, its sizes, and a reference for its results.

Names and the order of arguments are d2l-tvm's. Images are (channels, height, width), kernels
(output channels, input channels, height, width), all float32.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from tvm import te, tirx

from d2ltvm.compute.ops import countable, placeholder, several
from d2ltvm.errors import in_32_bits, is_number, shown, whole
from d2ltvm.layouts.arrays import rounded_up

Array = npt.NDArray[Any]


def conv_out_size(n: int, k: int, p: int, s: int) -> int:
    """Height or width of a convolution's output.

    >>> d2ltvm.conv_out_size(64, 3, 1, 1)
    64

    Args:
        n: height or width of the image, a positive integer.
        k: of the kernel, likewise.
        p: zeros on each side of the image, an integer from 0.
        s: stride, a positive integer.

    Returns:
        `(n - k + 2 p) // s + 1`.

    Raises:
        ValueError: one of them is not as above, or the kernel is larger than the padded image.
    """
    n, k, p, s = whole("n", n), whole("k", k), whole("p", p, 0), whole("s", s)
    if k > n + 2 * p:
        raise ValueError(f"k is {k}; expected at most n + 2 p = {n + 2 * p}")
    return (n - k + 2 * p) // s + 1


def conv_gflop(oc: int, ic: int, n: int, k: int, p: int, s: int) -> float:
    """Operations of a convolution of square images, in units of 1e9.

    >>> d2ltvm.conv_gflop(64, 64, 64, 3, 1, 1)
    0.301989888

    Args:
        oc: output channels.
        ic: input channels.
        n: height and width of the image.
        k: height and width of the kernel.
        p: padding on each side.
        s: stride.

    Returns:
        2 oc ic k^2 for each element of a channel of the output: a multiplication and an addition.

    Raises:
        ValueError: the sizes are those of no convolution.
    """
    oc, ic, on = whole("oc", oc), whole("ic", ic), conv_out_size(n, k, p, s)
    k = int(k)
    return 2 * oc * ic * on * on * k * k / 1e9


def padding(X: Any, ph: int, pw: int, val: float = 0) -> Any:
    """Put a border around the last two dimensions of a tensor.

    >>> d2ltvm.padding(te.placeholder((3, 4, 5), name="X"), 1, 2).shape
    (3, 6, 9)

    Args:
        X: a te tensor of two dimensions or more.
        ph: rows above and below, an integer from 0.
        pw: columns left and right, likewise.
        val: what to fill them with.

    Returns:
        A te tensor named `PaddedX`.

    Raises:
        TypeError: `X` is no te tensor.
        ValueError: `X` has fewer dimensions, a border is not an integer from 0, or `X` cannot hold
            `val`.
    """
    if not isinstance(X, te.Tensor):
        raise TypeError(f"X is a {type(X).__name__}; expected a te tensor")
    if len(X.shape) < 2:
        raise ValueError(f"X has shape {tuple(X.shape)}; expected two dimensions or more")
    ph, pw = in_32_bits("ph", ph, 0), in_32_bits("pw", pw, 0)
    if not _holds(str(X.dtype), val):
        raise ValueError(f"val is {shown(val)}; expected a number that {X.dtype} can hold")
    return with_border(X, {len(X.shape) - 2: ph, len(X.shape) - 1: pw}, val)


def with_border(X: Any, border: dict[int, int], val: float = 0) -> Any:
    """`padding` of any dimensions: `border` has how much by the dimension's number."""
    sizes = [int(size) for size in X.shape]
    shape = tuple(size + 2 * border.get(k, 0) for k, size in enumerate(sizes))

    def element(*index: Any) -> Any:
        bounds = [(index[k] >= b, index[k] < sizes[k] + b) for k, b in border.items()]
        source = [i - border[k] if k in border else i for k, i in enumerate(index)]
        inside = te.all(*(bound for pair in bounds for bound in pair))
        return te.if_then_else(inside, X(*source), tirx.const(val, X.dtype))

    return te.compute(countable("PaddedX", shape), element, name="PaddedX")


def _holds(dtype: str, value: Any) -> bool:
    """Whether a dtype has a number: any float in its range, an integer exactly."""
    if not is_number(value):
        return False
    with np.errstate(all="ignore"):
        held = np.asarray(float(value)).astype(dtype)
    if held.dtype.kind == "f":
        return bool(np.isfinite(held)) or not math.isfinite(value)
    limits = np.iinfo(dtype)
    return bool(limits.min <= value <= limits.max and int(value) == value)


def conv(
    oc: int, ic: int, nh: int, nw: int, kh: int, kw: int, ph: int = 0, pw: int = 0,
    sh: int = 1, sw: int = 1,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """Convolution of an image of several channels.

    >>> X, K, Y, PaddedX = d2ltvm.conv(64, 3, 32, 32, 3, 3, 1, 1)
    >>> Y.shape
    (64, 32, 32)

    Args:
        oc: output channels, a positive integer.
        ic: input channels, likewise.
        nh: height of the image.
        nw: its width.
        kh: height of the kernel.
        kw: its width.
        ph: rows of zeros above and below the image.
        pw: columns of zeros left and right of it.
        sh: stride down.
        sw: stride across.

    Returns:
        te tensors `X` of shape `(ic, nh, nw)`, `K` of shape `(oc, ic, kh, kw)`, `Y`, and `PaddedX`,
        which is `X` where there is no padding.

    Raises:
        ValueError: a number is out of its range, or the kernel larger than the padded image.
    """
    oc, ic = whole("oc", oc), whole("ic", ic)
    sizes = window_sizes(nh, nw, kh, kw, ph, pw, sh, sw)
    nh, nw, kh, kw, ph, pw, sh, sw = map(int, (nh, nw, kh, kw, ph, pw, sh, sw))
    X = placeholder((ic, nh, nw), "float32", "X")
    K = placeholder((oc, ic, kh, kw), "float32", "K")
    PaddedX = padding(X, ph, pw) if ph or pw else X
    return X, K, _convolved(PaddedX, K, (oc, *sizes), sh, sw, "Y"), PaddedX


def window_sizes(
    nh: int, nw: int, kh: int, kw: int, ph: int, pw: int, sh: int, sw: int
) -> list[int]:
    """Height and width of what a window makes of an image; the arguments are those of `conv`.

    Raises:
        ValueError: a number is out of its range, or the window larger than the padded image.
    """
    sizes = []
    for names, values in ((("nh", "kh", "ph", "sh"), (nh, kh, ph, sh)),
                          (("nw", "kw", "pw", "sw"), (nw, kw, pw, sw))):  # fmt: skip
        try:
            sizes.append(conv_out_size(*values))
        except ValueError as error:
            given = ", ".join(f"{n} = {shown(v)}" for n, v in zip(names, values, strict=True))
            raise ValueError(f"of {given}: {error}") from None
    for name, value in (("ph", ph), ("pw", pw), ("sh", sh), ("sw", sw)):
        in_32_bits(name, value, 0)
    return sizes


def conv_in_tiles(
    oc: int, ic: int, nh: int, nw: int, kh: int, kw: int, ph: int = 0, pw: int = 0,
    sh: int = 1, sw: int = 1, tile: Sequence[int] = (1, 1, 1, 1),
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Convolution whose sizes are rounded up to whole tiles, with zeros in what is added.

    >>> X, K, Y = d2ltvm.compute.conv_in_tiles(17, 3, 63, 63, 3, 3, 1, 1, tile=(8, 4, 4, 32))
    >>> Y.shape
    (17, 63, 63)

    Its blocks, by name: `PaddedX` and `PaddedK`, the inputs with zeros around them; `Sums`, the
    convolution, of whole tiles; and `Y`, the part of `Sums` that was asked for.

    Args:
        oc: as for `conv`, and so are the next nine.
        ic: see there.
        nh: see there.
        nw: see there.
        kh: see there.
        kw: see there.
        ph: see there.
        pw: see there.
        sh: see there.
        sw: see there.
        tile: output channels, input channels, rows and columns of a tile, positive integers.

    Returns:
        te tensors `X`, `K` and `Y`, of the shapes that `conv` gives them.

    Raises:
        ValueError: as for `conv`, or the tile is not four positive integers.
    """
    X, K, plain, _ = conv(oc, ic, nh, nw, kh, kw, ph, pw, sh, sw)
    oc, oh, ow = (int(size) for size in plain.shape)
    ic, nh, nw, kh, kw, ph, pw, sh, sw = map(int, (ic, nh, nw, kh, kw, ph, pw, sh, sw))
    four = tuple(tile) if isinstance(tile, tuple | list) else (tile,)
    if len(four) != 4:
        raise ValueError(f"tile is {shown(tile)}; expected four sizes: of oc, ic, rows and columns")
    sizes = [whole(f"a size of tile = {shown(four)}", size) for size in four]
    OC, IC, OH, OW = (rounded_up(n, t) for n, t in zip((oc, ic, oh, ow), sizes, strict=True))
    zero = tirx.const(0.0, X.dtype)

    def image(c: Any, i: Any, j: Any) -> Any:
        inside = te.all(c < ic, i >= ph, i < nh + ph, j >= pw, j < nw + pw)
        return te.if_then_else(inside, X[c, i - ph, j - pw], zero)

    def kernels(o: Any, c: Any, i: Any, j: Any) -> Any:
        return te.if_then_else(te.all(o < oc, c < ic), K[o, c, i, j], zero)

    shape = (IC, (OH - 1) * sh + kh, (OW - 1) * sw + kw)
    PaddedX = te.compute(shape, image, name="PaddedX")
    PaddedK = te.compute((OC, IC, kh, kw), kernels, name="PaddedK")
    Sums = _convolved(PaddedX, PaddedK, (OC, OH, OW), sh, sw, "Sums")
    return X, K, te.compute((oc, oh, ow), lambda c, i, j: Sums[c, i, j], name="Y")


def conv_pack(
    oc: int, ic: int, nh: int, nw: int, kh: int, kw: int, ph: int, pw: int, toc: int, tic: int,
    sh: int = 1, sw: int = 1,
) -> tuple[Any, Any, Any, Any, Any, Any]:  # fmt: skip
    """Convolution in blocks of channels, the layout NCHWc, from and to the plain layout.

    >>> X, K, Y, PackedX, PackedK, PackedY = d2ltvm.conv_pack(64, 32, 8, 8, 3, 3, 1, 1, 16, 8)
    >>> PackedX.shape, PackedK.shape, PackedY.shape
    ((4, 10, 10, 8), (4, 4, 3, 3, 8, 16), (4, 8, 8, 16))

    Args:
        oc: as for `conv`, and so are the next seven.
        ic: see there.
        nh: see there.
        nw: see there.
        kh: see there.
        kw: see there.
        ph: see there.
        pw: see there.
        toc: output channels of a block; `oc` is a multiple of it.
        tic: input channels of a block; `ic` is a multiple of it.
        sh: stride down.
        sw: stride across.

    Returns:
        te tensors `X`, `K` and `Y` as of `conv`; `PackedX` of shape
        `(ic / tic, nh + 2 ph, nw + 2 pw, tic)`, `PackedK` of shape
        `(oc / toc, ic / tic, kh, kw, tic, toc)`, and `PackedY` of shape `(oc / toc, ., ., toc)`.

    Raises:
        ValueError: as for `conv`, or a number of channels is no multiple of its block.
    """
    X, K, plain, PaddedX = conv(oc, ic, nh, nw, kh, kw, ph, pw, sh, sw)
    oc, ic, nh, nw, kh, kw = map(int, (oc, ic, nh, nw, kh, kw))
    ph, pw, sh, sw = map(int, (ph, pw, sh, sw))
    toc, tic = _block("toc", toc, "oc", oc), _block("tic", tic, "ic", ic)
    _, oh, ow = (int(size) for size in plain.shape)
    PackedX = te.compute(
        (ic // tic, nh + 2 * ph, nw + 2 * pw, tic),
        lambda io, y, x, ii: PaddedX[io * tic + ii, y, x],
        name="PackedX",
    )
    PackedK = te.compute(
        (oc // toc, ic // tic, kh, kw, tic, toc),
        lambda oo, io, y, x, ii, oi: K[oo * toc + oi, io * tic + ii, y, x],
        name="PackedK",
    )
    axes = {"rio": ic // tic, "rkh": kh, "rkw": kw, "rii": tic}
    rio, rkh, rkw, rii = (te.reduce_axis((0, size), name) for name, size in axes.items())

    def element(oo: Any, i: Any, j: Any, oi: Any) -> Any:
        x = PackedX[rio, i * sh + rkh, j * sw + rkw, rii]
        return te.sum(x * PackedK[oo, rio, rkh, rkw, rii, oi], axis=[rio, rkh, rkw, rii])

    PackedY = te.compute((oc // toc, oh, ow, toc), element, name="PackedY")
    Y = te.compute((oc, oh, ow), lambda c, i, j: PackedY[c // toc, i, j, c % toc], name="Y")
    return X, K, Y, PackedX, PackedK, PackedY


def conv_reference(
    x: Array, k: Array, p: int | Sequence[int] = 0, s: int | Sequence[int] = 1
) -> Array:
    """What a convolution gives, by NumPy, in the precision of its inputs.

    Args:
        x: an image of shape `(ic, nh, nw)`.
        k: kernels of shape `(oc, ic, kh, kw)`.
        p: zeros on each side, a number or one for rows and one for columns.
        s: stride, likewise.

    Returns:
        An array of shape `(oc, ., .)`.

    Raises:
        TypeError: `x` or `k` is no NumPy array of numbers.
        ValueError: the arrays, the padding and the stride are those of no convolution.
    """
    check_arrays(x=x, k=k)
    if x.ndim != 3 or k.ndim != 4 or k.shape[1] != x.shape[0]:
        raise ValueError(
            f"x has shape {x.shape} and k {k.shape}; expected (ic, nh, nw) and (oc, ic, kh, kw)"
        )
    (ph, pw), (sh, sw) = _pair("p", p, 0), _pair("s", s, 1)
    for n, size, zeros, step in zip(x.shape[1:], k.shape[2:], (ph, pw), (sh, sw), strict=True):
        conv_out_size(n, size, zeros, step)
    channels, height, width = x.shape
    countable(f"x with p = {shown(p)}", (channels, height + 2 * ph, width + 2 * pw))
    padded = np.pad(x, ((0, 0), (ph, ph), (pw, pw)))
    windows: Any = sliding_window_view(padded, k.shape[2:], axis=(1, 2))  # type: ignore[call-overload]
    return np.asarray(np.tensordot(k, windows[:, ::sh, ::sw], axes=((1, 2, 3), (0, 3, 4))))


def _convolved(image: Any, kernels: Any, shape: Sequence[int], sh: int, sw: int, name: str) -> Any:
    """The sums of a convolution, of an image that has its borders."""
    names = ("ric", "rkh", "rkw")
    ric, rkh, rkw = (
        te.reduce_axis((0, int(size)), name=r)
        for r, size in zip(names, kernels.shape[1:], strict=True)
    )

    def element(c: Any, i: Any, j: Any) -> Any:
        x = image[ric, i * sh + rkh, j * sw + rkw]
        return te.sum(x * kernels[c, ric, rkh, rkw], axis=[ric, rkh, rkw])

    return te.compute(countable(name, tuple(shape)), element, name=name)


def check_arrays(**arrays: Any) -> None:
    """A TypeError unless all are NumPy arrays of numbers."""
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{name} is a {type(array).__name__}; expected a NumPy array")
        if array.dtype.kind not in "fiu":
            raise TypeError(f"{name} is an array of {array.dtype}; expected one of numbers")


def _pair(name: str, value: Any, least: int) -> tuple[int, int]:
    """A number for rows and one for columns, of one or of two."""
    pair = tuple(value) if several(value) else (value, value)
    if len(pair) != 2:
        raise ValueError(
            f"{name} is {shown(value)}; expected a number, or one for rows and columns each"
        )
    return whole(name, pair[0], least), whole(name, pair[1], least)


def _block(name: str, block: Any, all_name: str, channels: int) -> int:
    try:
        if channels % whole(name, block) == 0:
            return int(block)
    except ValueError:
        pass
    raise ValueError(
        f"{name} is {shown(block)}; expected an integer that divides {all_name} = {channels}"
    )
