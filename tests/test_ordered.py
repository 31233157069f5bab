"""Kernels in which the order of two accesses matters: right, and what is said of wrong ones."""

import numpy as np
import pytest
from on_hopper import RUN, random, result

import d2ltvm
from d2ltvm import figures
from d2ltvm.hopper import ordered
from d2ltvm.hopper.patch import changed

FENCE, SYNC = "T.ptx.fence.proxy.async_.shared__cta()", "T.cuda.cta_sync()"
READ = "T.ptx.cp.async_.bulk.wait_group.read(0)"
GAP, ONE = "\n" + " " * 12, "if thread == 0:\n" + " " * 16


@pytest.mark.parametrize("run", RUN)
def test_a_tile_is_read_twice(run):
    a = random(128)
    assert (result(run, ordered.turn_twice(), (2, 128), a) == a[::-1]).all()


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_boxes(run, n):
    a = random(8 * n, 16)
    assert (result(run, ordered.double_boxes(n), a.shape, a) == 2 * a).all()
    assert (result(run, ordered.copy_boxes(n), a.shape, a) == a).all()


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("columns", [8, 24])
def test_a_product_is_added(run, columns):
    a, b = (random(rows, 16, dtype="float16") for rows in (64, columns))
    d = random(64, columns)
    got = result(run, ordered.add_product(columns), d.shape, a, b, d)
    assert np.abs(got - d - a.astype("float64") @ b.astype("float64").T).max() < 1e-5


@pytest.mark.parametrize(
    ("make", "old", "new", "said"),
    [
        (ordered.double_boxes, FENCE, "pass", "missing: fence.proxy.async"),
        (ordered.double_boxes, FENCE + GAP + SYNC, FENCE, "missing: a barrier"),
        (ordered.double_boxes, FENCE + GAP, ONE + FENCE + GAP, "missing: fence.proxy.async"),
        (ordered.double_boxes, READ + GAP + SYNC, READ, "missing: cp.async.bulk.wait_group.read"),
        (ordered.double_boxes, READ, "pass", "missing: cp.async.bulk.wait_group.read"),
        (ordered.copy_boxes, FENCE + GAP + SYNC, FENCE, "which a thread has read"),
    ],
)
def test_what_is_said_of_wrong_ones(make, old, new, said):
    a = random(24, 16)
    with pytest.raises(RuntimeError, match=said):
        result(d2ltvm.emulate, changed(make, (old, new))(3), a.shape, a)


@pytest.mark.parametrize(
    "new",
    [
        SYNC + GAP + FENCE,
        SYNC + GAP + ONE + FENCE,
    ],
)
def test_a_fence_may_stand_on_the_way(new):
    a = random(24, 16)
    kernel = changed(ordered.double_boxes, (FENCE + GAP + SYNC, new))(3)
    assert (result(d2ltvm.emulate, kernel, a.shape, a) == 2 * a).all()


def test_the_compiler_reads_anew_behind_a_barrier():
    once = "C[0, thread] = tile[THREADS - 1 - thread]\n" + " " * 8
    without = changed(ordered.turn_twice, (once + SYNC, once))
    for make, loads in ((ordered.turn_twice, 2), (without, 1)):
        assert d2ltvm.instructions(d2ltvm.build(make(), "sm_90a").sass("sm_90a"))["LDS"] == loads


@pytest.mark.parametrize(
    ("make", "size", "message"),
    [
        (ordered.double_boxes, 0, "n is 0; expected an integer from 1 to"),
        (ordered.copy_boxes, 1.5, "n is 1.5; expected an integer"),
        (ordered.add_product, 12, "columns is 12; expected a multiple of 8 from 8 to 256"),
    ],
)
def test_sizes_that_make_no_sense(make, size, message):
    with pytest.raises(ValueError, match=message):
        make(size)


def test_arrows_between_steps():
    rows = {"one": [(0, 1, "x", "a")], " ": [], "two": [(1, 2, "x", "b")]}
    figures.draw_steps({"p": rows}, {"x": "white"}, arrows={"p": [("one", 1, "two", 1, "told")]})
    with pytest.raises(ValueError, match="an arrow ends at 'three'; expected one of one,  , two"):
        figures.draw_steps({"p": rows}, {"x": "white"}, arrows={"p": [("one", 1, "three", 1, "")]})
