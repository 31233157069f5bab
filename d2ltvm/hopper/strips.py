"""What is computed under windows, channels last, and the strip of it that a thread has."""

import math
from dataclasses import dataclass
from typing import Any

from d2ltvm.compute.convolution import conv_out_size
from d2ltvm.errors import shown
from d2ltvm.hopper.any_conv import MOST_LINES
from d2ltvm.layouts import Pair

Images = tuple[int, int, int, int]  # batch, height, width, channels


def under_windows(images: Images, kernel: Pair, stride: Pair, pad: Pair) -> Images:
    """The shape of what has a result for each place of a window in images, channels last.

    >>> under_windows((8, 112, 112, 64), (3, 3), (2, 2), (1, 1))
    (8, 56, 56, 64)

    Raises:
        ValueError: the window does not fit into the padded image.
    """
    batch, h, w, c = images
    axes = list(zip((h, w), kernel, pad, stride, strict=True))
    if any(k > n + 2 * p for n, k, p, _ in axes):
        raise ValueError(f"kernel is {shown(kernel)}; expected one that fits into {images}")
    high, wide = (conv_out_size(*axis) for axis in axes)
    return batch, high, wide, c


def check_strips(images: Images, result: Images, strips: int) -> None:
    """Refuse what a kernel would number beyond 32 bits; offsets into its tensors may have 64."""
    counts = {
        "pixels": math.prod(images[:3]),
        "pixels of results": math.prod(result[:3]),
        "strips": strips,
    }
    for what, many in counts.items():
        if many > MOST_LINES:
            raise ValueError(
                f"images is {shown(images)}, which makes {many:,} {what}; expected at most "
                f"{MOST_LINES:,}, which kernels number in 32 bits"
            )


@dataclass(frozen=True)
class Strips:
    """A result in strips of neighbouring pixels and channels, one for each thread.

    >>> strips = Strips((2, 5, 6, 16), (2, 3), 8)
    >>> strips.count, strips.first(7)
    (24, (0, 2, 3, 8))

    Attributes:
        result: its shape, channels last.
        pixels: rows and columns of a strip; the last ones may go over the edge.
        width: channels of a strip, by which those of the result can be divided.
    """

    result: Images
    pixels: Pair
    width: int

    @property
    def grid(self) -> Images:
        """How many strips there are along each axis."""
        batch, high, wide, c = self.result
        down, across = self.pixels
        return batch, math.ceil(high / down), math.ceil(wide / across), c // self.width

    @property
    def count(self) -> int:
        return math.prod(self.grid)

    def first(self, i: Any) -> tuple[Any, Any, Any, Any]:
        """Image, row, column and channel where strip i begins: `i` is an integer or TVM's."""
        _, high, wide, groups = self.grid
        down, across = self.pixels
        return (
            i // (groups * wide * high),
            i // (groups * wide) % high * down,
            i // groups % wide * across,
            i % groups * self.width,
        )
