"""Figures of shapes: what they say of the chapters' own sizes, and shapes that they refuse."""

import pytest

import d2ltvm
from d2ltvm.explore.widget import Explorer


def test_a_window_has_the_chapters_numbers():
    says = d2ltvm.explore.window(n=8, k=5, p=2, row=0, column=0).says
    assert "Y is 8 × 8" in says and "27.8%" in says and "16 of them with zeros" in says
    says = d2ltvm.explore.window(n=5, k=5, p=1, d=2).says
    assert says.startswith("The kernel covers 9 pixels along each axis, and the padded image has 7")


def test_shapes_are_given_as_broadcast_add_takes_them():
    explorer = d2ltvm.explore.broadcast((3, 1, 4), (4, 1), element=22)
    assert "C has shape (3, 4, 4), and C[1, 1, 2] = A[1, 0, 2] + B[1, 0]" in explorer.says
    assert "384 bytes" in explorer.says and "64 if each number is read once" in explorer.says
    assert "axis 2: 3 and 4 do not fit" in d2ltvm.explore.broadcast((3,), (2, 3, 4)).markup


def test_an_axis_before_one_that_is_missing_counts_for_nothing():
    without = Explorer("broadcast", {"a0": 0, "a1": 0}).says
    assert Explorer("broadcast", {"a0": 3, "a1": 0}).says == without


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (4, 1, 1), (5,), (0,), 2.5])
def test_shapes_that_the_picture_has_no_room_for_are_refused(shape):
    with pytest.raises(ValueError, match=r"shape2 is .*; expected"):
        d2ltvm.explore.broadcast((3,), shape)


def test_a_box_over_the_edge_is_waited_for_as_a_whole():
    says = d2ltvm.explore.tma_box(
        rows=8, columns=1, box_rows=5, box_columns=1, row=5, column=0
    ).says
    assert "384 bytes of the image and 256 bytes of zeros" in says and "waits for 640 bytes" in says
    says = d2ltvm.explore.tma_box(store=1).says
    assert "9 pixels, 1,152 bytes, are written, and 896 bytes" in says
