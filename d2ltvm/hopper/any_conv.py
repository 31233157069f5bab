"""The sizes of a convolution or a product, and how TMA reads its images: windows, bricks."""

import functools
import math
from dataclasses import dataclass

from d2ltvm.errors import shown
from d2ltvm.hopper.planning import check_integers
from d2ltvm.layouts import Pair

# Pixels, or filters by taps: they stay in 32 bits when they are rounded up to a cluster's tiles.
MOST_LINES = 2**31 - 2**12
MOST_ELEMENTS = 2**39  # of a tensor: TMA's strides are less than 2^40 bytes
PAIRS = {"size": 1, "kernel": 1, "pad": 0, "stride": 1, "dilation": 1}  # and the least of each


@dataclass(frozen=True)
class Conv:
    """The sizes of any convolution.

    >>> Conv(8, (224, 224), 8, 64, (7, 7), pad=(3, 3), stride=(2, 2)).out
    (112, 112)

    Attributes:
        batch: images.
        size: rows and columns of an image.
        ic, oc: channels in and out.
        kernel: rows and columns of a kernel.
        pad, stride, dilation: by rows and by columns.

    Raises:
        ValueError: a size is no integer that is possible, or more than TMA takes; there are groups,
            which a kernel would compute one by one, so that nothing here helps.
    """

    batch: int
    size: Pair
    ic: int
    oc: int
    kernel: Pair = (1, 1)
    pad: Pair = (0, 0)
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    groups: int = 1

    def __post_init__(self) -> None:
        for name in ("batch", "ic", "oc", "groups"):
            check_integers(**{name: getattr(self, name)})
        for name, least in PAIRS.items():
            pair = getattr(self, name)
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise ValueError(f"{name} is {shown(pair)}; expected rows and columns")
            for value in pair:
                check_integers(least, **{name: value})
        if self.groups > 1:
            raise ValueError(f"groups is {self.groups}; expected 1: there is no kernel for groups")
        if min(self.out) < 1:
            raise ValueError(
                f"kernel is {self.kernel}; expected one that fits into {self.size} with "
                f"pad = {self.pad} and dilation = {self.dilation}"
            )
        spans = [d * (k - 1) for d, k in zip(self.dilation, self.kernel, strict=True)]
        if max(self.stride) > 8 or max(self.pad) > 127 or max(spans) > 128:
            raise ValueError(
                f"stride is {self.stride}, pad {self.pad}, and a kernel spans {max(spans) + 1}; "
                "TMA takes strides up to 8, pads up to 127 and 129 pixels"
            )
        most = max(self.pixels * self.oc, self.batch * math.prod(self.size) * self.ic)
        if max(self.pixels, self.taps * self.oc) > MOST_LINES or most >= MOST_ELEMENTS:
            raise ValueError(
                f"{self} has results of {self.pixels:,} pixels, {self.taps * self.oc:,} lines of "
                f"weights and tensors of {most:,} elements; expected at most {MOST_LINES:,} pixels "
                f"and lines, which kernels number in 32 bits, and fewer than 2^39 elements, since "
                "TMA's strides are below 2^40 bytes"
            )

    @functools.cached_property
    def out(self) -> Pair:
        """Rows and columns of the result."""
        high, wide = (
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, p, s, d in zip(
                self.size, self.kernel, self.pad, self.stride, self.dilation, strict=True
            )
        )
        return high, wide

    @functools.cached_property
    def pixels(self) -> int:
        """Of all results."""
        return self.batch * self.out[0] * self.out[1]

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    @property
    def flop(self) -> int:
        return 2 * self.pixels * self.oc * self.ic * self.taps

    @functools.cached_property
    def read(self) -> Pair:
        """Rows and columns of an image that some tap reads: with a stride, not all of them.

        >>> Conv(32, (56, 56), 256, 512, stride=(2, 2)).read
        (28, 28)
        """
        high, wide = (
            len({o * s - p + t * d for o in range(out) for t in range(k)} & set(range(n)))
            for n, k, p, s, d, out in zip(
                self.size, self.kernel, self.pad, self.stride, self.dilation, self.out, strict=True
            )
        )
        return high, wide

    @functools.cached_property
    def nbytes(self) -> int:
        """That must be moved at least, of float16."""
        x = self.batch * math.prod(self.read) * self.ic
        return 2 * (x + self.taps * self.oc * self.ic + self.pixels * self.oc)

    @property
    def is_product(self) -> bool:
        """Whether a pixel is computed from one pixel, at the same place."""
        return (self.kernel, self.pad, self.stride) == ((1, 1), (0, 0), (1, 1))


@dataclass(frozen=True)
class Windows:
    """Images of few channels, of which the taps of a row lie one behind the other.

    The pixels under a row of a kernel are neighbours in memory. So TMA can be told that a pixel has
    all of their channels, and that the next pixel begins a stride further: they overlap.

    Attributes:
        conv: what is computed, of images with 3 channels for example.
        channels: that images are padded to; a stride of them is a multiple of 16 bytes.
    """

    conv: Conv
    channels: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of the padded images: wide enough for the last window."""
        c = self.conv
        wide = (c.out[1] - 1) * c.stride[1] + c.kernel[1]
        return (c.batch, c.size[0], math.ceil(wide / c.stride[1]) * c.stride[1], self.channels)

    @property
    def depth(self) -> int:
        """Of a window: all channels of a row of a kernel."""
        return self.conv.kernel[1] * self.channels

    @property
    def unfolded(self) -> Conv:
        """The same convolution, with kernels of one column."""
        c = self.conv
        return Conv(
            c.batch, (c.size[0], c.out[1]), math.ceil(self.depth / 8) * 8, c.oc,
            (c.kernel[0], 1), (c.pad[0], 0), (c.stride[0], 1), (c.dilation[0], 1),
        )  # fmt: skip


def windows(conv: Conv) -> Windows:
    """A convolution by windows.

    >>> stem = windows(Conv(8, (224, 224), 3, 64, (7, 7), (3, 3), (2, 2)))
    >>> stem.shape, stem.unfolded.kernel, stem.unfolded.ic
    ((8, 224, 230, 4), (7, 1), 32)
    """
    channels = next(c for c in (1, 2, 4, 8) if c >= conv.ic and c * conv.stride[1] % 8 == 0)
    return Windows(conv, channels)


@functools.cache
def bricks_of(conv: Conv, pixels: int) -> tuple[int, int, int]:
    """Images, rows and columns, so many pixels, that cover the results in the fewest tiles.

    >>> bricks_of(Conv(32, (56, 56), 64, 64, (3, 3), (1, 1)), 128)
    (32, 1, 4)
    """
    sizes = (conv.batch, *conv.out)
    powers = [2**i for i in range(9) if 2**i <= pixels]
    boxes = [(pixels // (h * w), h, w) for h in powers for w in powers if h * w <= pixels]
    boxes = [
        box
        for box in boxes
        if max((box[1] - 1) * conv.stride[0] + 1, (box[2] - 1) * conv.stride[1] + 1) <= 256
    ]

    def tiles(box: tuple[int, int, int]) -> int:
        return math.prod(math.ceil(a / b) for a, b in zip(sizes, box, strict=True))

    return min(boxes, key=lambda box: (tiles(box), -box[0]))


def beside(conv: Conv) -> Conv:
    """The same convolution when the pixels under each row of a kernel lie side by side.

    >>> beside(Conv(8, (224, 224), 3, 64, (7, 7), (3, 3), (2, 2)))  # doctest: +ELLIPSIS
    Conv(batch=8, size=(224, 112), ic=32, ...)
    """
    depth = math.ceil(conv.kernel[1] * conv.ic / 16) * 16
    return Conv(
        conv.batch, (conv.size[0], conv.out[1]), depth, conv.oc, (conv.kernel[0], 1),
        (conv.pad[0], 0), (conv.stride[0], 1), (conv.dilation[0], 1),
    )  # fmt: skip


def product(n: int, m: int, l: int) -> Conv:
    """The product of (n, l) and the transpose of (m, l) as a convolution: a row is an image.

    >>> product(16, 4096, 4096).is_product
    True
    """
    return Conv(n, (1, 1), l, m)
