"""A kernel's window: its pixels and its products with padding, against an image that is padded."""

import numpy as np
import pytest

import d2ltvm
from d2ltvm.compute import windows

# n, k, p, s, d
SHAPES = (
    (5, 3, 1, 1, 1), (8, 5, 2, 1, 1), (14, 3, 1, 2, 1), (7, 3, 2, 1, 2), (9, 2, 3, 3, 3),
    (1, 1, 0, 1, 1), (4, 1, 2, 3, 2), (63, 3, 0, 2, 1),
)  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_with_padding_are_those_whose_pixel_is_zero(shape):
    n, k, p, s, d = shape
    padded = np.pad(np.ones((n, n)), p)
    covered = (k - 1) * d + 1
    places = range(0, n + 2 * p - covered + 1, s)
    wanted = np.array(
        [[padded[y : y + covered : d, x : x + covered : d] == 0 for x in places] for y in places]
    )
    found = windows.padding_products(*shape)
    assert found.shape == wanted.shape
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("shape", [each for each in SHAPES if each[-1] == 1], ids=str)
def test_what_is_left_is_what_a_convolution_of_ones_adds_up(shape):
    n, k, p, s, _ = shape
    sums = d2ltvm.conv_reference(np.ones((1, n, n)), np.ones((1, 1, k, k)), p, s)[0]
    assert np.array_equal((~windows.padding_products(*shape)).sum(axis=(2, 3)), sums)
    assert len(windows.pixels_under(*shape)) == d2ltvm.conv_out_size(n, k, p, s)


def test_windows_of_no_convolution_are_refused():
    with pytest.raises(ValueError, match="d is 0; expected a positive integer"):
        windows.pixels_under(5, 3, 1, 1, 0)
    with pytest.raises(
        ValueError, match=r"k = 5 with d = 2 covers 9 pixels; expected at most n \+"
    ):
        windows.pixels_under(5, 5, 1, 1, 2)
    with pytest.raises(ValueError, match=r"k is 2\.5; expected a positive integer"):
        windows.padding_products(5, 2.5, 1, 1)
