"""`check` accepts what rounding explains and nothing else."""

import numpy as np
import pytest

import d2ltvm
from d2ltvm import schedules
from d2ltvm.compiler.launches import Param


class Fake:
    """Stands in for a Kernel: computes with a Python function."""

    def __init__(self, function, shape=(100,), dtype="float32"):
        names = [("A", False), ("B", False), ("C", True)]
        self.params = tuple(Param(name, shape, dtype, output) for name, output in names)
        self.function = function

    def __call__(self, a, b, c):
        self.function(a, b, c)


def add(a, b, c):
    with np.errstate(over="ignore"):
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


def test_one_rounding_is_that_of_the_result():
    """1 and -1 + 2^-10 leave 2^-10, and an error of 2^-24 is 2^-14 of that."""
    a, b = np.float32([1, 1]), np.float32([1, -1 + 2**-10])

    def off(x, y, out):
        out[:] = (x + y) * np.float32([1, 1 + 2**-14])

    kernel = Fake(off, shape=(2,))
    with pytest.raises(d2ltvm.WrongResultError, match=r"C\[1\] is .* 1 of 2 elements"):
        d2ltvm.check(kernel, (a, b), np.add)
    assert d2ltvm.check(kernel, (a, b), np.add, terms=2) == 2**-25


def test_integers_wrap_and_are_exact():
    a = np.arange(100, dtype="int8")
    assert d2ltvm.check(Fake(add, dtype="int8"), (a, a), np.add) == 0


def test_a_reference_of_the_wrong_shape_or_number():
    with pytest.raises(ValueError, match=r"reference gives shape \(99,\) for C"):
        d2ltvm.check(Fake(add), inputs(), lambda a, b: (a + b)[1:])
    with pytest.raises(ValueError, match="reference gives 2 outputs; the kernel writes C"):
        d2ltvm.check(Fake(add), inputs(), lambda a, b: (a, b))


def big_input():
    a, b = inputs()
    a[0] = 1e8
    return a, b


def test_one_huge_input_excuses_no_other_element():
    def zero_elsewhere(a, b, c):
        c[...] = 0
        c[0] = a[0] + b[0]

    with pytest.raises(d2ltvm.WrongResultError, match=r"99 of 100 elements"):
        d2ltvm.check(Fake(zero_elsewhere), big_input(), np.add)
    assert d2ltvm.check(Fake(add), big_input(), np.add) <= 2**-24


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_inf_and_nan_are_held_to_their_places(value):
    a, b = inputs()
    a[5] = value
    assert 0 < d2ltvm.check(Fake(add), (a, b), np.add) <= 2**-24

    def anything(x, y, c):
        c[...] = value

    def finite(x, y, c):
        c[...] = np.nan_to_num(x + y)

    def negated(x, y, c):
        c[...] = x + y
        c[5] = -c[5] if np.isinf(c[5]) else 0

    for function, wrong in ((anything, 99), (finite, 1), (negated, 1)):
        with pytest.raises(d2ltvm.WrongResultError, match=f"{wrong} of 100 elements"):
            d2ltvm.check(Fake(function), (a, b), np.add)


def test_what_rounds_to_inf_has_to_be_inf():
    a, b = np.float16([65504, 65504, -65504, 1]), np.float16([16, 8, -60000, 1])
    got = a.astype("float32") + b.astype("float32")
    assert d2ltvm.check(Fake(add, (4,), "float16"), (a, b), np.add) <= 2**-11

    def cut_off(x, y, c):
        c[...] = np.clip(got, -65504, 65504)

    with pytest.raises(d2ltvm.WrongResultError, match=r"C\[2\] is -65504.0 and should be -1255"):
        d2ltvm.check(Fake(cut_off, (4,), "float16"), (a, b), np.add)


class Product(Fake):
    """A product of matrices, of l terms."""

    def __init__(self, function, l, dtype="float16"):
        self.params = tuple(
            Param(name, shape, dtype, output)
            for name, shape, output in (
                ("A", (16, l), False), ("B", (l, 16), False), ("C", (16, 16), True)
            )
        )  # fmt: skip
        self.function = function


def halves(l):
    a, b, _ = d2ltvm.get_matmul_data(16, 16, l)
    return a.astype("float16"), b.astype("float16")


@pytest.mark.parametrize("l", [256, 4096])
def test_zeros_never_pass_for_a_long_sum_in_float16(l):
    def zeros(a, b, c):
        c[...] = 0

    with pytest.raises(ValueError, match=f"terms is {2 * l}; .*float16 zeros would pass"):
        d2ltvm.check(Product(zeros, l), halves(l), np.matmul, terms=2 * l)
    with pytest.raises(d2ltvm.WrongResultError, match="of 256 elements"):
        d2ltvm.check(Product(zeros, l), halves(l), np.matmul, terms=2 * l, sums="float32")

    def right(a, b, c):
        c[...] = a.astype("float32") @ b.astype("float32")

    error = d2ltvm.check(Product(right, l), halves(l), np.matmul, terms=2 * l, sums="float32")
    assert 0 < error <= 2**-11


def test_a_short_sum_in_float16_is_held_to_float16():
    def right(a, b, c):
        c[...] = 0
        for k in range(a.shape[1]):
            c[...] = c + a[:, k : k + 1] * b[k : k + 1]

    assert d2ltvm.check(Product(right, 16), halves(16), np.matmul, terms=32) < 32 * 2**-11


def test_differences_of_equal_numbers_are_zero():
    a, _ = inputs()

    def subtract(x, y, c):
        c[...] = x - y

    assert d2ltvm.check(Fake(subtract), (a, a), np.subtract) == 0


def test_where_absolute_values_overflow_the_reference_is_the_bound():
    a, b = np.float32([-800, 1]), np.float32([0, 0])

    def exp(x, y, c):
        c[...] = np.exp(x)

    assert d2ltvm.check(Fake(exp, (2,)), (a, b), lambda x, y: np.exp(x), terms=4) < 4 * 2**-24

    def seven(x, y, c):
        c[...] = [7, np.exp(1)]

    with pytest.raises(d2ltvm.WrongResultError, match=r"C\[0\] is 7.0 and should be 0.0"):
        d2ltvm.check(Fake(seven, (2,)), (a, b), lambda x, y: np.exp(x), terms=4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda a, b: (a,), "inputs is 1; expected a tuple of 2, for A, B"),
        (lambda a, b: (a, b, a), "inputs is 3; expected a tuple of 2, for A, B"),
        (lambda a, b: np.stack([a, b]), "inputs is one array; expected a tuple of 2, for A, B"),
        (lambda a, b: (a, b[1:]), r"the input B is float32 of shape \(99,\); expected float32"),
        (lambda a, b: (a.astype("float64"), b), "the input A is float64 of .*; expected float32"),
    ],
)
def test_inputs_that_do_not_fit(given, message):
    with pytest.raises(ValueError, match=message):
        d2ltvm.check(Fake(add), given(*inputs()), np.add)


def test_inputs_that_are_no_arrays():
    with pytest.raises(TypeError, match="the input A is a list; expected a NumPy array"):
        d2ltvm.check(Fake(add), ([1.0] * 100, inputs()[1]), np.add)


def test_a_dtype_that_numpy_lacks():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.ones(100, ml_dtypes.bfloat16)
    with pytest.raises(ValueError, match="bfloat16; expected a dtype of NumPy's"):
        d2ltvm.check(Fake(add, dtype="bfloat16"), (x, x), np.add)


@pytest.mark.parametrize("reference", [np.negative, lambda a: a, lambda a, b, c: a])
def test_a_reference_of_the_wrong_arity(reference):
    with pytest.raises(TypeError, match=r"reference( takes|: )"):
        d2ltvm.check(Fake(add), inputs(), reference)


@pytest.mark.parametrize("terms", [0, -1, 1.5, None])
def test_terms_that_are_no_number_of_roundings(terms):
    with pytest.raises(ValueError, match=r"terms is .*; expected a positive integer"):
        d2ltvm.check(Fake(add), inputs(), np.add, terms=terms)


def test_compare_takes_arrays():
    want = np.array([1.0, 2.0])
    assert d2ltvm.compiler.verify.compare("Y", want.astype("float32"), want) == 0
    with pytest.raises(ValueError, match=r"Y has shape \(1,\); expected \(2,\)"):
        d2ltvm.compiler.verify.compare("Y", want[:1], want)


@pytest.mark.quick(8)
@pytest.mark.parametrize("n", [1, 30, 130, 512])
@pytest.mark.parametrize(
    "schedule", ["continuous_parallel", "alternate_parallel", "bcast_vectorized", "bcast_rows"]
)
def test_broadcast_schedules(schedule, n):
    kernel = d2ltvm.build(getattr(schedules, schedule)(n))
    assert d2ltvm.check(kernel, d2ltvm.bcast_data(n)[:2], np.add) <= 2**-24


@pytest.mark.quick(8)
@pytest.mark.parametrize("n", [1, 1000, 1024, 4099])
@pytest.mark.parametrize("schedule", ["one_thread_each", "vectorized", "unrolled", "partitioned"])
def test_vector_schedules(schedule, n):
    kernel = d2ltvm.build(getattr(schedules, schedule)(n))
    assert d2ltvm.check(kernel, d2ltvm.get_abc(n)[:2], np.add) <= 2**-24


@pytest.mark.quick(1)
@pytest.mark.parametrize("n", [1, 33, 130])
def test_cpu_schedules(n):
    vector = d2ltvm.build(schedules.cpu_vector_add(n), "llvm")
    assert d2ltvm.check(vector, d2ltvm.get_abc(n)[:2], np.add) <= 2**-24
    rows = d2ltvm.build(schedules.cpu_bcast_add(n), "llvm")
    assert d2ltvm.check(rows, d2ltvm.bcast_data(n)[:2], np.add) <= 2**-24


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: d2ltvm.check(len, (), np.add), "kernel is .*; expected what d2ltvm.build returns"),
        (
            lambda: d2ltvm.plot_record("x"),
            "record is 'x'; expected what d2ltvm.load_record returns",
        ),
        (lambda: d2ltvm.hopper.conv_any(5), r"conv is 5; expected a d2ltvm.hopper.any_conv.Conv"),
    ],
)
def test_another_kind_of_object_is_named(call, words):
    with pytest.raises(TypeError, match=words):
        call()
