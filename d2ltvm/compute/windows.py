"""Which pixels a convolution's kernel lies on, and which of its products are with padding.

Images and kernels are square here; the dilation is the distance between neighbouring taps.
"""

import numpy as np

from d2ltvm.compute.convolution import Array, conv_out_size
from d2ltvm.errors import whole


def pixels_under(n: int, k: int, p: int, s: int, d: int = 1) -> Array:
    """The pixels that a kernel's taps lie on, along one axis, for each pixel of the output.

    >>> pixels_under(3, 3, 1, 1)
    array([[-1,  0,  1],
           [ 0,  1,  2],
           [ 1,  2,  3]])

    A pixel under 0, or from `n` on, is padding.

    Args:
        n: height or width of the image, a positive integer.
        k: of the kernel: its taps along the axis.
        p: zeros on each side of the image, an integer from 0.
        s: stride, a positive integer.
        d: dilation, likewise; 1 is a kernel without gaps.

    Returns:
        An array of shape (output size, k). With dilation a kernel covers `(k - 1) d + 1` pixels,
        and the output size is that of a kernel so large.

    Raises:
        ValueError: one of them is not as above, or the kernel is larger than the padded image.
    """
    n, k, p, d = whole("n", n), whole("k", k), whole("p", p, 0), whole("d", d)
    covered = (k - 1) * d + 1
    if covered > n + 2 * p:
        raise ValueError(
            f"k = {k} with d = {d} covers {covered} pixels; expected at most n + 2 p = {n + 2 * p}"
        )
    size = conv_out_size(n, covered, p, s)
    return np.arange(size)[:, None] * int(s) - p + np.arange(k) * d


def padding_products(n: int, k: int, p: int, s: int, d: int = 1) -> Array:
    """Which products of a convolution are with padding, for one pair of channels.

    >>> found = padding_products(14, 3, 1, 1)
    >>> print(f"{found.sum()} of {found.size}")
    164 of 1764

    Args:
        n: as for `pixels_under`, and so are the next four.
        k: see there.
        p: see there.
        s: see there.
        d: see there.

    Returns:
        A bool array of shape (output size, output size, k, k): row and column of the output, then
        of the kernel.

    Raises:
        ValueError: as for `pixels_under`.
    """
    pixels = pixels_under(n, k, p, s, d)
    inside = (pixels >= 0) & (pixels < n)
    return ~(inside[:, None, :, None] & inside[None, :, None, :])
