"""Compute definitions and their data, against NumPy's own rules."""

import numpy as np
import pytest
from tvm import te

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


@pytest.mark.quick(4)
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


@pytest.mark.parametrize("n", [0, -1, 1.5, "8", None, (4,), True])
def test_sizes_that_are_not_positive_integers(n):
    with pytest.raises(ValueError, match=r"n is .*; expected a positive integer"):
        d2ltvm.vector_add(n)


@pytest.mark.parametrize("shape", [(), (0,), (3, -1), (2.0,), "ab"])
def test_shapes_that_are_not_shapes(shape):
    with pytest.raises(ValueError, match=r"shape1 is .*; expected positive integers"):
        d2ltvm.broadcast_add(shape, (3,))


def test_unknown_dtype():
    with pytest.raises(ValueError, match="dtype is 'float31'; expected one of float16"):
        d2ltvm.vector_add(8, "float31")


@pytest.mark.quick(2)
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


ONE = te.placeholder((8,), name="A")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (ONE, "tensors is a Tensor; expected a tuple of te tensors"),
        (None, "tensors is a NoneType; expected a tuple"),
        ("AB", "tensors is a str; expected a tuple"),
        ((ONE, 7), r"tensors\[1\] is a int; expected a te tensor"),
        (((ONE,), ONE), r"tensors\[0\] is a tuple; expected a te tensor"),
        ((np.ones(8),), r"tensors\[0\] is a ndarray; expected a te tensor"),
    ],
)
def test_what_no_schedule_starts_from_is_named_at_once(tensors, message):
    with pytest.raises(TypeError, match=message):
        d2ltvm.schedule(tensors)


def test_a_schedule_of_nothing():
    with pytest.raises(ValueError, match=r"tensors is \[\]; expected one that is computed"):
        d2ltvm.schedule([])


@pytest.mark.parametrize("function", [ops.broadcast_shape, d2ltvm.broadcast_add, d2ltvm.get_abc])
def test_a_tensor_is_no_shape(function):
    with pytest.raises(ValueError, match=r"shape1? is .*; expected positive integers"):
        function(*[ONE] * (1 if function is d2ltvm.get_abc else 2))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "uint64"])
def test_sizes_may_be_numpys_integers(dtype):
    """Narrow ones wrap around in NumPy's own arithmetic."""
    n = np.dtype(dtype).type
    shapes = [
        [tuple(map(int, t.shape)) for t in d2ltvm.matmul(*sizes)]
        for sizes in ((100, 120, 90), (n(100), n(120), n(90)))
    ]
    assert shapes[0] == shapes[1]
    a, b, c = d2ltvm.get_matmul_data(n(100), n(120), n(90))
    assert (a.shape, b.shape, c.shape) == ((100, 90), (90, 120), (100, 120))
    assert d2ltvm.vector_add(n(100))[2].shape[0] == 100
    assert ops.broadcast_shape((n(100), n(1)), (n(3),)) == (100, 3)
    assert all(type(s) is int for s in ops.broadcast_shape(np.array([n(100), n(1)]), [n(3)]))
    assert d2ltvm.get_abc((n(20), n(30)))[2].shape == (20, 30)


@pytest.mark.parametrize("shape", [0, -1, (), (2, 0), 1.5, None])
def test_data_of_no_shape(shape):
    with pytest.raises(ValueError, match=r"shape is .*; expected positive integers"):
        d2ltvm.get_abc(shape)
    with pytest.raises(ValueError, match=r"m is .*; expected a positive integer"):
        d2ltvm.get_matmul_data(1, shape, 1)
