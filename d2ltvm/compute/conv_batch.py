"""Convolution of batches of images, in the layouts of TVM's two tutorials, and to and from NCHW.

HWCN has the batch innermost, for threads; NHWCnc has blocks of images by channels, for TensorCores.
Arrays in NCHW are (batch, channels, height, width), kernels in OIHW (output channels, input
channels, height, width).
"""

from typing import Any

import numpy as np
from tvm import te, tirx

from d2ltvm.compute.convolution import (
    Array,
    check_arrays,
    conv_out_size,
    conv_reference,
    with_border,
)
from d2ltvm.compute.ops import countable, placeholder
from d2ltvm.errors import in_32_bits, shown, whole


def conv_hwcn(
    batch: int, oc: int, ic: int, n: int, k: int, p: int = 0, s: int = 1, dtype: str = "float32"
) -> tuple[Any, Any, Any, Any]:
    """Convolution of a batch of images with the batch as the last dimension.

    >>> X, K, Y, PaddedX = d2ltvm.compute.conv_hwcn(256, 512, 256, 14, 3, 1, 1)
    >>> X.shape, K.shape, Y.shape
    ((14, 14, 256, 256), (3, 3, 256, 512), (14, 14, 512, 256))

    Args:
        batch: number of images, a positive integer.
        oc: output channels, likewise.
        ic: input channels, likewise.
        n: height and width of an image.
        k: height and width of a kernel.
        p: rows and columns of zeros on each side.
        s: stride.
        dtype: element type of all tensors.

    Returns:
        te tensors `X` of shape `(n, n, ic, batch)`, `K` of shape `(k, k, ic, oc)`, `Y` of shape
        `(., ., oc, batch)`, and `PaddedX`.

    Raises:
        ValueError: a number is out of its range, or the kernel larger than the padded image.
    """
    on = conv_out_size(n, k, p, s)
    p, s = in_32_bits("p", p, 0), in_32_bits("s", s)
    batch, oc, ic = whole("batch", batch), whole("oc", oc), whole("ic", ic)
    n, k, p, s = int(n), int(k), int(p), int(s)
    X = placeholder((n, n, ic, batch), dtype, "X")
    K = placeholder((k, k, ic, oc), dtype, "K")
    result = countable("Y", (on, on, oc, batch))
    PaddedX = with_border(X, {0: p, 1: p})
    ric, rkh, rkw = (te.reduce_axis((0, m), r) for r, m in (("ric", ic), ("rkh", k), ("rkw", k)))

    def element(y: Any, x: Any, c: Any, image: Any) -> Any:
        value = PaddedX[y * s + rkh, x * s + rkw, ric, image]
        return te.sum(value * K[rkh, rkw, ric, c], axis=[ric, rkh, rkw])

    return X, K, te.compute(result, element, name="Y"), PaddedX


def conv_nhwcnc(
    batch: int, oc: int, ic: int, n: int, k: int, p: int = 0, s: int = 1, block: int = 16,
    dtype: str = "float16",
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """Convolution of a batch in blocks of images by channels, float32 out.

    >>> X, K, Y, PaddedX = d2ltvm.compute.conv_nhwcnc(256, 512, 256, 14, 3, 1, 1)
    >>> X.shape, K.shape
    ((16, 14, 14, 16, 16, 16), (3, 3, 16, 32, 16, 16))

    Args:
        batch: number of images, a multiple of `block`.
        oc: output channels, likewise.
        ic: input channels, likewise.
        n: height and width of an image.
        k: height and width of a kernel.
        p: rows and columns of zeros on each side.
        s: stride.
        block: height and width of a block, 16 for TensorCores' instructions.
        dtype: element type of `X` and `K`.

    Returns:
        te tensors `X` of shape `(batch / block, n, n, ic / block, block, block)`, the last two
        image and channel; `K` of shape `(k, k, ic / block, oc / block, block, block)`, the last two
        input and output channel; `Y`, like `X` with `oc`; and `PaddedX`, which has an axis for
        each of the kernel's axes too, after height and width: what is under the kernel there. An
        index is then a loop variable and not a sum of two, which `tensorize` asks for.

    Raises:
        ValueError: as for `conv_hwcn`, or a number is no multiple of the block.
    """
    on = conv_out_size(n, k, p, s)
    p, s = in_32_bits("p", p, 0), in_32_bits("s", s)
    batch, oc, ic = whole("batch", batch), whole("oc", oc), whole("ic", ic)
    n, k, p, s = int(n), int(k), int(p), int(s)
    for name, size in (("batch", batch), ("oc", oc), ("ic", ic)):
        block = _block(name, size, block)
    ib, ob, nb = ic // block, oc // block, batch // block
    X = placeholder((nb, n, n, ib, block, block), dtype, "X")
    K = placeholder((k, k, ib, ob, block, block), dtype, "K")
    result = countable("Y", (nb, on, on, ob, block, block))
    PaddedX = _under_kernel(X, on, k, p, s)
    axes = {"rib": ib, "rkh": k, "rkw": k, "ric": block}
    rib, rkh, rkw, ric = (te.reduce_axis((0, size), name) for name, size in axes.items())

    def element(b: Any, y: Any, x: Any, cb: Any, image: Any, c: Any) -> Any:
        value = PaddedX[b, y, x, rkh, rkw, rib, image, ric].astype("float32")
        weight = K[rkh, rkw, rib, cb, ric, c].astype("float32")
        return te.sum(value * weight, axis=[rib, rkh, rkw, ric])

    return X, K, te.compute(result, element, name="Y"), PaddedX


def _under_kernel(X: Any, on: int, k: int, p: int, s: int) -> Any:
    """What of X is under each place of the kernel, for each pixel; zeros beyond its border."""
    batch, n, _, *channels = X.shape

    def element(b: Any, y: Any, x: Any, i: Any, j: Any, *c: Any) -> Any:
        row, column = y * s + i, x * s + j
        inside = te.all(row >= p, row < n + p, column >= p, column < n + p)
        value = X[(b, row - p, column - p, *c)]
        return te.if_then_else(inside, value, tirx.const(0, X.dtype)) if p else value

    return te.compute((batch, on, on, k, k, *channels), element, name="PaddedX")


def to_hwcn(array: Array) -> Array:
    """Images from NCHW to HWCN, or kernels from OIHW to HWIO: the same transposition."""
    return np.ascontiguousarray(_four("array", array).transpose(2, 3, 1, 0))


def from_hwcn(array: Array) -> Array:
    """Back again: HWCN to NCHW, or HWIO to OIHW."""
    return np.ascontiguousarray(_four("array", array).transpose(3, 2, 0, 1))


def to_nhwcnc(images: Array, block: int = 16) -> Array:
    """Images from NCHW to blocks of images by channels.

    >>> d2ltvm.compute.to_nhwcnc(np.zeros((32, 48, 7, 7))).shape
    (2, 7, 7, 3, 16, 16)

    Raises:
        ValueError: there are not four dimensions, or a block does not divide batch or channels.
    """
    batch, channels, height, width = _four("images", images).shape
    block = _block("batch", batch, block)
    _block("channels", channels, block)
    shape = (batch // block, block, channels // block, block, height, width)
    return np.ascontiguousarray(images.reshape(shape).transpose(0, 4, 5, 2, 1, 3))


def from_nhwcnc(blocks: Array) -> Array:
    """Back again: blocks of images by channels to NCHW.

    Raises:
        ValueError: there are not six dimensions.
    """
    check_arrays(blocks=blocks)
    if blocks.ndim != 6:
        raise ValueError(f"blocks has shape {blocks.shape}; expected six dimensions")
    nb, height, width, cb, n, c = blocks.shape
    return blocks.transpose(0, 4, 3, 5, 1, 2).reshape(nb * n, cb * c, height, width)


def to_hwioio(kernels: Array, block: int = 16) -> Array:
    """Kernels from OIHW to blocks of input by output channels, as `conv_nhwcnc` takes them.

    >>> d2ltvm.compute.to_hwioio(np.zeros((48, 32, 3, 3))).shape
    (3, 3, 2, 3, 16, 16)

    Raises:
        ValueError: there are not four dimensions, or a block does not divide the channels.
    """
    oc, ic, height, width = _four("kernels", kernels).shape
    block = _block("oc", oc, block)
    _block("ic", ic, block)
    shape = (oc // block, block, ic // block, block, height, width)
    return np.ascontiguousarray(kernels.reshape(shape).transpose(4, 5, 2, 0, 3, 1))


def conv_batch_reference(images: Array, kernels: Array, p: int = 0, s: int = 1) -> Array:
    """What a convolution of a batch gives, by NumPy, in the precision of its inputs.

    Args:
        images: an array in NCHW.
        kernels: an array in OIHW.
        p: zeros on each side.
        s: stride.

    Returns:
        An array in NCHW.

    Raises:
        TypeError: `images` or `kernels` is no NumPy array of numbers.
        ValueError: the arrays, the padding and the stride are those of no convolution.
    """
    check_arrays(images=images, kernels=kernels)
    four = images.ndim == kernels.ndim == 4
    if not four or not len(images) or images.shape[1] != kernels.shape[1]:
        raise ValueError(
            f"images has shape {images.shape} and kernels {kernels.shape}; expected "
            "(batch, ic, nh, nw) and (oc, ic, kh, kw)"
        )
    return np.stack([conv_reference(image, kernels, p, s) for image in images])


def conv_in_layout(layout: str, X: Any, K: Any, p: int = 0) -> Array:
    """`conv_hwcn` or `conv_nhwcnc` with stride 1 by NumPy, in the precision of its arguments.

    >>> conv_in_layout("hwcn", np.ones((4, 4, 3, 2)), np.ones((3, 3, 3, 1)), 1)[:, 1, 0, 0]
    array([18., 27., 27., 18.])

    One product of matrices for each place of the kernel.

    Args:
        layout: 'hwcn' or 'nhwcnc'.
        X: images in that layout.
        K: kernels, as the definition of that layout takes them.
        p: zeros on each side.

    Raises:
        ValueError: `layout` is another.
    """
    if layout not in ("hwcn", "nhwcnc"):
        raise ValueError(f"layout is {shown(layout)}; expected 'hwcn' or 'nhwcnc'")
    first, k = (0 if layout == "hwcn" else 1), len(K)
    border = [(p, p) if axis in (first, first + 1) else (0, 0) for axis in range(X.ndim)]
    padded = np.pad(X, border)
    height, width = (size - k + 1 for size in padded.shape[first : first + 2])
    total: Array = np.zeros((), X.dtype)
    for i, j in np.ndindex(k, k):
        rows, columns = slice(i, i + height), slice(j, j + width)
        if layout == "hwcn":
            total = total + np.matmul(K[i, j].T, padded[rows, columns])
        else:  # b, y, x, image, block of channels, channel; the third before last moves up
            part = np.tensordot(padded[:, rows, columns], K[i, j], axes=([3, 5], [0, 2]))
            total = total + np.moveaxis(part, 3, 4)
    return np.ascontiguousarray(total)


def _block(name: str, size: int, block: Any) -> int:
    block = whole("block", block)
    if size % block:
        raise ValueError(f"{name} is {size}; expected a multiple of block = {block}")
    return block


def _four(name: str, array: Array) -> Array:
    check_arrays(**{name: array})
    if array.ndim != 4:
        raise ValueError(f"{name} has shape {array.shape}; expected four dimensions")
    return array
