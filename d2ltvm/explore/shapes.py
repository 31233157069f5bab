"""The figures of shapes: what lies under a window, what a shape repeats, what a box brings."""

from collections.abc import Sequence

from d2ltvm.compute.ops import as_shape
from d2ltvm.explore.widget import Explorer

LARGEST_DRAWN = (3, 4, 4)  # what a picture has room for


def window(**state: int) -> Explorer:
    """The pixels that a convolution's kernel lies on, and the products that are with padding.

    >>> print(window(n=7, k=3, p=1, row=0, column=0).says)
    Y is 7 × 7. Y[0, 0] adds up 9 products, 5 of them with zeros; ... 80 are with zeros, 18.1%.

    Args:
        **state: n, k, p, s and d, as for `compute.windows.pixels_under`; row and column of the
            output; tap, counted row by row.

    Raises:
        ValueError: a value is not one that can be set.
        TypeError: there is no such value.
    """
    return Explorer("window", state)


def broadcast(
    shape1: Sequence[int] = (3, 1), shape2: Sequence[int] = (3, 4), **state: int
) -> Explorer:
    """The numbers of two tensors that each element of their sum is made of.

    >>> print(broadcast((2,), (3, 4)).says)
    (2,) and (3, 4) do not broadcast: axis 1 of the result would be 2 and 4. Expected are ...

    Args:
        shape1: of A, as for `d2ltvm.broadcast_add`: one to three axes, at most 3, 4 and 4 long.
        shape2: of B, likewise.
        **state: element, the one of C that is looked at, counted row by row.

    Raises:
        ValueError: a shape is not as above, or element is not one that can be set.
        TypeError: there is no such value.
    """
    for key, name, given in (("a", "shape1", shape1), ("b", "shape2", shape2)):
        shape = as_shape(name, given)
        sizes = (0,) * (3 - len(shape)) + shape
        if len(sizes) > 3 or any(a > b for a, b in zip(sizes, LARGEST_DRAWN, strict=True)):
            raise ValueError(
                f"{name} is {shape}; expected one to three axes, at most 3, 4 and 4 long"
            )
        state |= {f"{key}{k}": size for k, size in enumerate(sizes)}
    return Explorer("broadcast", state)


def tma_box(**state: int) -> Explorer:
    """The box that TMA copies from an image, or stores to it, where it hangs over the edge.

    >>> print(tma_box(box_rows=2, box_columns=6, row=-1, column=0, channels=8).says)
    TMA fetches a box of 2 × 6 pixels of 16 bytes at corner (−1, 0): 96 bytes of the image and ...

    Args:
        **state: rows and columns of the image; box_rows, box_columns; row and column, the corner
            of the box; channels of a pixel, float16; store, 1 for the way back.

    Raises:
        ValueError: a value is not one that can be set.
        TypeError: there is no such value.
    """
    return Explorer("tma_box", state)
