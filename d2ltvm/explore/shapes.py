"""The figures of shapes: what lies under a window, what a shape repeats, what a box brings."""

from d2ltvm.explore.widget import Explorer


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
