"""Compute definitions and their data, against NumPy's own rules."""

import numpy as np
import pytest

import d2ltvm
from d2ltvm.compute import ops

SHAPES = [
    ((4,), (4,)),
    ((3, 1), (3, 4)),
    ((1, 4), (3, 1)),
    ((5,), (2, 3, 5)),
    ((2, 1, 4, 1), (3, 1, 5)),
    ((1,), (1, 1)),
    ((7, 1, 1, 1, 2), (3, 1, 5, 1)),
]


def flat_schedule(tensors, nt=8):
    """One thread for each element, whatever the number of dimensions."""
    sch = d2ltvm.schedule(tensors)
    block, tx = sch.split(sch.fuse(*sch.get_loops(sch.get_sblock("C"))), [None, nt])
    sch.bind(block, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    return sch


@pytest.mark.parametrize(("shape1", "shape2"), SHAPES)
def test_broadcast_shape_is_numpys(shape1, shape2):
    assert ops.broadcast_shape(shape1, shape2) == np.broadcast_shapes(shape1, shape2)


@pytest.mark.parametrize(("shape1", "shape2"), SHAPES)
def test_broadcast_add_computes_what_numpy_does(shape1, shape2):
    kernel = d2ltvm.build(flat_schedule(d2ltvm.broadcast_add(shape1, shape2)))
    a, b, _ = d2ltvm.get_bcast_data(shape1, shape2)
    assert d2ltvm.check(kernel, (a, b), np.add) <= 2**-24


@pytest.mark.parametrize(
    ("shape1", "shape2"), [((3,), (4,)), ((2, 3), (3, 2)), ((5, 3), (4, 5, 2))]
)
def test_shapes_that_do_not_broadcast(shape1, shape2):
    with pytest.raises(ValueError):
        np.broadcast_shapes(shape1, shape2)
    for function in (ops.broadcast_shape, d2ltvm.broadcast_add, d2ltvm.get_bcast_data):
        with pytest.raises(ValueError, match=r"shape1 \(.*\) and shape2 \(.*\) do not broadcast"):
            function(shape1, shape2)


@pytest.mark.parametrize("n", [0, -1, 1.5, "8", None, (4,)])
def test_sizes_that_are_not_positive_integers(n):
    with pytest.raises(ValueError, match=r"n is .* a positive integer is allowed"):
        d2ltvm.vector_add(n)


@pytest.mark.parametrize("shape", [(), (0,), (3, -1), (2.0,), "ab"])
def test_shapes_that_are_not_shapes(shape):
    with pytest.raises(ValueError, match=r"shape1 is .* positive integers are allowed"):
        d2ltvm.broadcast_add(shape, (3,))


def test_unknown_dtype():
    with pytest.raises(ValueError, match="dtype is 'float31'; allowed: float16"):
        d2ltvm.vector_add(8, "float31")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int32"])
def test_vector_add_in_other_dtypes(dtype):
    kernel = d2ltvm.build(flat_schedule(d2ltvm.vector_add(100, dtype)))
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-100, 100, 100) / 3 for _ in range(2))
    d2ltvm.check(kernel, (a.astype(dtype), b.astype(dtype)), np.add)


def test_data_is_random_repeatable_and_poisoned():
    a, b, c = d2ltvm.get_abc((50, 3))
    again = d2ltvm.get_abc((50, 3))
    assert a.dtype == b.dtype == c.dtype == np.float32
    assert np.array_equal(a, again[0]) and np.array_equal(b, again[1])
    assert not np.array_equal(a, b) and 0.5 < a.std() < 1.5
    assert np.isnan(c).all()


def test_data_goes_through_the_constructor():
    assert [type(x) for x in d2ltvm.get_abc(3, list)] == [list] * 3
    assert [len(x) for x in d2ltvm.get_bcast_data((2, 1), (1, 3), list)] == [2, 1, 2]
