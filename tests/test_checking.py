"""`check` accepts what rounding explains and nothing else."""

import numpy as np
import pytest

import d2ltvm
from d2ltvm import schedules
from d2ltvm.compiler.lowering import Param


class Fake:
    """Stands in for a Kernel: computes with a Python function."""

    def __init__(self, function, shape=(100,), dtype="float32"):
        names = [("A", False), ("B", False), ("C", True)]
        self.params = tuple(Param(name, shape, dtype, output) for name, output in names)
        self.function = function

    def __call__(self, a, b, c):
        self.function(a, b, c)


def add(a, b, c):
    c[...] = a + b


def inputs(dtype="float32"):
    a, b, _ = d2ltvm.get_abc(100)
    return (a * 50).astype(dtype), (b * 50).astype(dtype)


def test_a_right_kernel_passes_with_its_rounding_error():
    error = d2ltvm.check(Fake(add), inputs(), np.add)
    assert 0 < error <= 2**-24


def test_one_wrong_element_is_found_and_named():
    def wrong(a, b, c):
        add(a, b, c)
        c[17] += 1e-3

    with pytest.raises(d2ltvm.WrongResultError, match=r"C\[17\] is .* 1 of 100 elements"):
        d2ltvm.check(Fake(wrong), inputs(), np.add)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_an_element_that_nobody_writes_is_found(dtype):
    def lazy(a, b, c):
        c[:-1] = a[:-1] + b[:-1]

    with pytest.raises(d2ltvm.WrongResultError, match=r"C\[99\]"):
        d2ltvm.check(Fake(lazy, dtype=dtype), inputs(dtype), np.add)


def test_a_nan_is_an_error():
    def nan(a, b, c):
        add(a, b, c)
        c[3] = np.nan

    with pytest.raises(d2ltvm.WrongResultError, match=r"C\[3\] is nan"):
        d2ltvm.check(Fake(nan), inputs(), np.add)


def test_the_tolerance_follows_the_number_of_roundings():
    def sloppy(a, b, c):
        c[...] = (a + b) * np.float32(1 + 2**-22)

    with pytest.raises(d2ltvm.WrongResultError):
        d2ltvm.check(Fake(sloppy), inputs(), np.add, terms=1)
    assert d2ltvm.check(Fake(sloppy), inputs(), np.add, terms=8) > 2**-23


def test_a_difference_is_held_to_its_own_size():
    """|a| - |b| is smaller than a - b where the signs differ, and must not be the bound."""
    a, b = np.float32([1.1, -2.3]), np.float32([-1.7, 0.4])

    def exact(x, y, out):
        out[:] = x - y

    assert d2ltvm.check(Fake(exact, shape=(2,)), (a, b), np.subtract) <= 2**-24


def test_integers_wrap_and_are_exact():
    a = np.arange(100, dtype="int8")
    assert d2ltvm.check(Fake(add, dtype="int8"), (a, a), np.add) == 0


def test_a_reference_of_the_wrong_shape_or_number():
    with pytest.raises(ValueError, match=r"reference gives shape \(99,\) for C"):
        d2ltvm.check(Fake(add), inputs(), lambda a, b: (a + b)[1:])
    with pytest.raises(ValueError, match="reference gives 2 outputs; the kernel writes C"):
        d2ltvm.check(Fake(add), inputs(), lambda a, b: (a, b))


@pytest.mark.parametrize("n", [1, 30, 130, 512])
@pytest.mark.parametrize(
    "schedule", ["continuous_parallel", "alternate_parallel", "bcast_vectorized", "bcast_rows"]
)
def test_broadcast_schedules(schedule, n):
    kernel = d2ltvm.build(getattr(schedules, schedule)(n))
    assert d2ltvm.check(kernel, d2ltvm.bcast_data(n)[:2], np.add) <= 2**-24


@pytest.mark.parametrize("n", [1, 1000, 1024, 4099])
@pytest.mark.parametrize("schedule", ["one_thread_each", "vectorized", "unrolled", "partitioned"])
def test_vector_schedules(schedule, n):
    kernel = d2ltvm.build(getattr(schedules, schedule)(n))
    assert d2ltvm.check(kernel, d2ltvm.get_abc(n)[:2], np.add) <= 2**-24


@pytest.mark.parametrize("n", [1, 33, 130])
def test_cpu_schedules(n):
    vector = d2ltvm.build(schedules.cpu_vector_add(n), "llvm")
    assert d2ltvm.check(vector, d2ltvm.get_abc(n)[:2], np.add) <= 2**-24
    rows = d2ltvm.build(schedules.cpu_bcast_add(n), "llvm")
    assert d2ltvm.check(rows, d2ltvm.bcast_data(n)[:2], np.add) <= 2**-24
