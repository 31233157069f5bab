"""Arithmetic and control flow of the emulator, against C's rules and against NumPy."""

import math

import numpy as np
import pytest
from tvm import te, tirx
from tvm.script import tirx as T

import d2ltvm
from d2ltvm import schedules
from d2ltvm.analysis.emulator import arithmetic


def over(function, dtypes, n, nt):
    """A schedule of one thread an element: what a function makes of the inputs' elements."""
    inputs = [te.placeholder((n,), d, name=f"X{k}") for k, d in enumerate(dtypes)]
    C = te.compute((n,), lambda i: function(*(x[i] for x in inputs)), name="C")
    sch = d2ltvm.schedule([*inputs, C])
    bx, tx = sch.split(sch.get_loops(sch.get_sblock("C"))[0], [None, nt])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    return sch


def emulated(function, *inputs, dtype=None, nt=32):
    c = np.zeros(inputs[0].shape, dtype or inputs[0].dtype)
    sch = over(function, [str(x.dtype) for x in inputs], len(c), nt)
    d2ltvm.emulate(sch, *inputs, c)
    return c


@pytest.mark.quick(14)
@pytest.mark.parametrize(
    "function, expected",
    [
        (te.truncdiv, lambda a, b: int(abs(a) // abs(b)) * (1 if a * b >= 0 else -1)),
        (te.truncmod, lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1)),
        (te.floordiv, lambda a, b: a // b),
        (te.floormod, lambda a, b: a % b),
        (te.min, min),
        (te.max, max),
        (lambda a, b: a & b, lambda a, b: a & b),
        (lambda a, b: a | b, lambda a, b: a | b),
        (lambda a, b: a ^ b, lambda a, b: a ^ b),
        (lambda a, b: ~a, lambda a, b: ~a),
        (lambda a, b: a >> 3, lambda a, b: a >> 3),
        (lambda a, b: a << 3, lambda a, b: a << 3),
        (lambda a, b: a + b, lambda a, b: a + b),
        (lambda a, b: a - b, lambda a, b: a - b),
        (lambda a, b: a * b, lambda a, b: a * b),
        (lambda a, b: te.abs(a), lambda a, b: abs(a)),
        (lambda a, b: te.if_then_else(a < b, a, b), min),
        (lambda a, b: tirx.Select(a >= b, a, b), max),
        (lambda a, b: te.any(a < 0, b < 0).astype("int32"), lambda a, b: a < 0 or b < 0),
        (lambda a, b: te.all(a < 0, b < 0).astype("int32"), lambda a, b: a < 0 and b < 0),
        (lambda a, b: tirx.Not(a < b).astype("int32"), lambda a, b: a >= b),
    ],
)
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_integers_are_those_of_c(function, expected, dtype):
    info = np.iinfo(dtype)
    a = np.array([7, -7, 7, -7, info.max, info.min, 0, 5], dtype)
    b = np.array([2, 2, -2, -2, 3, 3, 4, -8], dtype)
    found = emulated(lambda x, y: function(x, y).astype(dtype), a, b)
    wanted = [int(expected(int(x), int(y))) for x, y in zip(a, b, strict=True)]
    bits = 8 * a.itemsize
    assert found.tolist() == [(w + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) for w in wanted]


def test_unsigned_integers_wrap_around():
    a, b = np.array([0, 5, 250, 255], "uint8"), np.array([1, 9, 9, 255], "uint8")
    assert emulated(lambda x, y: x - y, a, b).tolist() == [255, 252, 241, 0]
    assert emulated(lambda x, y: x * y, a, b).tolist() == [0, 45, 2250 % 256, 1]
    big = np.array([2**32 - 1, 2**31, 0, 1], "uint32")
    assert emulated(lambda x: x >> 31, big).tolist() == [1, 1, 0, 0]
    assert emulated(lambda x: tirx.popcount(x), big).tolist() == [32, 1, 0, 1]
    clz = emulated(lambda x: tirx.clz(x.astype("int32")), big, dtype="int32")
    assert clz.tolist() == [0, 0, 32, 31]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_are_divided_and_not_rounded(dtype):
    a, b = np.array([1.73, -7.5, 1, 5], dtype), np.array([1, 2, 8, -0.3], dtype)
    assert (emulated(lambda x, y: x / y, a, b) == a / b).all() and (a / b)[1] == -3.75
    assert (arithmetic.call("fmod", a, b) == np.fmod(a, b)).all()
    if dtype != "float16":  # TVM writes hfmod, which CUDA lacks: a machine with a GPU refuses it
        assert (emulated(te.fmod, a, b) == np.fmod(a, b)).all()


def test_of_a_number_and_nan_the_number_is_the_smaller_and_the_larger():
    """As fminf and fmaxf have it; TVM's own of float16 compare, and give the second one."""
    nan = math.nan
    a, b = (np.array(x, "float32") for x in ([nan, 1, nan, 2], [1, nan, nan, 3]))
    for function, last in ((te.min, 2), (te.max, 3)):
        assert str(emulated(function, a, b).tolist()) == str([1.0, 1.0, nan, float(last)])
        halves = emulated(function, a.astype("float16"), b.astype("float16"))
        assert str(halves.tolist()) == str([1.0, nan, nan, float(last)])


def test_a_float_becomes_an_integer_as_in_cuda():
    x = np.array([1.9, -1.9, 300.5, -300.5, 1e20, -1e20, math.nan, math.inf], "float32")
    for dtype, wanted in {
        "int32": [1, -1, 300, -300, 2**31 - 1, -(2**31), 0, 2**31 - 1],
        "uint32": [1, 0, 300, 0, 2**32 - 1, 0, 0, 2**32 - 1],
        "int64": [1, -1, 300, -300, 2**63 - 1, -(2**63), 0, 2**63 - 1],
        "int8": [1, -1, 300 - 256, 256 - 300, -1, 0, 0, -1],  # the lowest byte of 32 bits
        "bool": [1] * 8,
    }.items():
        found = emulated(lambda v, d=dtype: v.astype(d).astype("int64"), x, dtype="int64")
        assert found.astype("uint64").tolist() == [w % 2**64 for w in wanted], dtype


def test_integers_become_narrower_by_their_lowest_bits():
    x = np.array([300, -300, 2**31 - 1, -129], "int32")
    assert emulated(lambda v: v.astype("int8").astype("int32"), x).tolist() == [44, -44, -1, 127]
    assert emulated(lambda v: v.astype("uint8").astype("int32"), x).tolist() == [44, 212, 255, 127]


def test_float16_is_rounded_after_each_operation():
    a, b = np.array([2048, 0.1, 60000], "float16"), np.array([1, 0.2, 60000], "float16")
    found = emulated(lambda x, y: (x + y) * x, a, b)
    assert found.tolist() == [math.inf, float((a[1] + b[1]) * a[1]), math.inf]
    assert emulated(lambda x, y: x + y, a, b).tolist() == [2048, float(a[1] + b[1]), math.inf]


FUNCTIONS = ["exp", "exp2", "log", "log2", "log10", "sqrt", "rsqrt", "sin", "cos", "tan", "sinh"]
FUNCTIONS += ["cosh", "tanh", "sigmoid", "erf", "floor", "ceil", "trunc", "round", "nearbyint"]
FUNCTIONS += ["abs", "atan", "asin", "acos", "asinh", "atanh", "log1p", "exp10"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_a_number(name):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(0.01, 0.99, 60), [0.5, 0.25, 0.75, 0.125]]).astype("float32")
    if name in ("floor", "ceil", "trunc", "round", "nearbyint", "abs", "tanh", "sigmoid", "erf"):
        x = (x - 0.5) * 10
    function = getattr(te, name, None) or getattr(tirx, name)
    exact = {
        "rsqrt": lambda v: 1 / np.sqrt(v), "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
        "erf": np.vectorize(math.erf), "round": np.rint, "nearbyint": np.rint,
        "exp10": lambda v: 10.0**v, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
        "asinh": np.arcsinh, "atanh": np.arctanh,
    }  # fmt: skip
    wanted = exact.get(name, getattr(np, name, None))(x.astype("float64"))
    assert np.allclose(emulated(function, x), wanted, rtol=3e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["pow", "fmod", "atan2", "hypot", "copysign"])
def test_functions_of_two_numbers(name):
    rng = np.random.default_rng(1)
    x, y = rng.uniform(0.1, 3, (2, 64)).astype("float32")
    exact = {"pow": np.power, "atan2": np.arctan2}.get(name) or getattr(np, name)
    wanted = exact(x.astype("float64"), y.astype("float64"))
    assert np.allclose(emulated(getattr(tirx, name), x, y), wanted, rtol=1e-5)


@pytest.mark.parametrize("n, nt", [(100, 50), (7, 7), (96, 48), (33, 1)])
def test_blocks_of_any_number_of_threads(n, nt):
    a, b, c = d2ltvm.get_abc(n)
    d2ltvm.emulate(schedules.one_thread_each(n, nt=nt), a, b, c)
    assert (c == a + b).all()


def test_a_loop_of_another_length_in_each_thread():
    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((64,), "int32")):
        for b in T.thread_binding(2, "blockIdx.x"):
            for x in T.thread_binding(32, "threadIdx.x"):
                C[b * 32 + x] = 0
                for k in range(x + 1):
                    C[b * 32 + x] = C[b * 32 + x] + k + b

    c = np.zeros(64, "int32")
    d2ltvm.emulate(main, c)
    x, b = np.arange(64) % 32, np.arange(64) // 32
    assert (c == x * (x + 1) // 2 + b * (x + 1)).all()


def test_a_loop_that_begins_elsewhere_in_each_thread():
    @T.prim_func(s_tir=True)
    def main(C: T.Buffer((32,), "int32")):
        for x in T.thread_binding(32, "threadIdx.x"):
            C[x] = 0
            for k in range(x, 2 * x):
                C[x] = C[x] * 2 + k

    c, wanted = np.zeros(32, "int32"), []
    d2ltvm.emulate(main, c)
    for x in range(32):
        total = 0
        for k in range(x, 2 * x):
            total = (total * 2 + k + 2**31) % 2**32 - 2**31
        wanted.append(total)
    assert c.tolist() == wanted


def test_a_value_that_has_a_name_stays_when_its_register_changes():
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((32,), "int32"), C: T.Buffer((32,), "int32")):
        for x in T.thread_binding(32, "threadIdx.x"):
            r = T.alloc_buffer((2,), "int32", scope="local")
            r[0] = A[x]
            r[1] = x
            old: T.let[T.int32] = r[0]
            r[0] = r[1]
            r[1] = old
            C[x] = r[0] * 100 + r[1]

    a, c = np.arange(32, dtype="int32")[::-1].copy(), np.zeros(32, "int32")
    d2ltvm.emulate(main, a, c)
    assert (c == np.arange(32) * 100 + a).all()


def test_what_is_behind_and_is_only_looked_at_where_it_matters():
    """The last element has no right neighbour, and is not asked for one."""
    n = 64
    X = te.placeholder((n,), name="X")
    C = te.compute(
        (n,), lambda i: te.if_then_else(te.all(i < n - 1, X[i + 1] > 0.5), 1.0, 2.0), name="C"
    )
    sch = d2ltvm.schedule([X, C])
    sch.bind(sch.get_loops(sch.get_sblock("C"))[0], "threadIdx.x")
    x, c = np.random.default_rng(0).random(n, "float32"), np.zeros(n, "float32")
    d2ltvm.emulate(sch, x, c)
    assert (c == np.where(np.append(x[1:], 0) > 0.5, 1, 2)).all()


@pytest.mark.parametrize("at", [64, -1])
def test_an_access_outside_of_an_array_is_named(at):
    """Which only the data says; others are refused before."""
    A, I = te.placeholder((64,), name="A"), te.placeholder((64,), "int32", name="I")
    sch = d2ltvm.schedule([A, I, te.compute((64,), lambda i: A[I[i]], name="C")])
    sch.bind(sch.get_loops(sch.get_sblock("C"))[0], "threadIdx.x")
    a, index = np.zeros(64, "float32"), np.arange(64, dtype="int32")
    d2ltvm.emulate(sch, a, index, a.copy())
    index[7] = at
    with pytest.raises(IndexError, match=rf"^A is accessed at {at}; it has 64 elements$"):
        d2ltvm.emulate(sch, a, index, a.copy())


@pytest.mark.parametrize("n", [32, 64, 128])
def test_a_sum_over_the_threads_of_a_block(n):
    A = te.placeholder((8, n), name="A")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="C")
    sch = d2ltvm.schedule([A, C])
    i, k = sch.get_loops(sch.get_sblock("C"))
    sch.bind(i, "blockIdx.x")
    sch.bind(k, "threadIdx.x")
    a, c = np.random.default_rng(0).random((8, n), "float32"), np.zeros(8, "float32")
    d2ltvm.emulate(sch, a, c)
    assert np.allclose(c, a.astype("float64").sum(axis=1), rtol=1e-6)


def test_two_launches_one_after_the_other():
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] * 2, name="B")
    C = te.compute((64,), lambda i: B[63 - i] + 1, name="C")
    sch = d2ltvm.schedule([A, C])
    for name in ("B", "C"):
        sch.bind(sch.get_loops(sch.get_sblock(name))[0], "threadIdx.x")
    a, c = np.random.default_rng(0).random(64, "float32"), np.zeros(64, "float32")
    d2ltvm.emulate(sch, a, c)
    assert (c == a[::-1] * 2 + 1).all()


ORDERS = ["row_major", "col_major"]


@pytest.mark.parametrize("c_order", ORDERS)
@pytest.mark.parametrize("b_order", ORDERS)
@pytest.mark.parametrize("a_order", ORDERS)
def test_fragments_are_loaded_and_stored_in_either_order(a_order, b_order, c_order):
    """Tiles of 16 x 16 in rows of 24, 28 and 20, each as it stands or transposed."""

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((16, 24), "float16"),
        B: T.Buffer((16, 28), "float16"),
        C: T.Buffer((16, 20), "float32"),
    ):
        for _ in T.thread_binding(32, "threadIdx.x"):
            a = T.alloc_buffer((256,), "float16", scope="wmma.matrix_a")
            b = T.alloc_buffer((256,), "float16", scope="wmma.matrix_b")
            c = T.alloc_buffer((256,), "float32", scope="wmma.accumulator")
            T.evaluate(T.tvm_fill_fragment(c.data, 16, 16, 16, 0, T.float32(0), dtype="void"))
            T.evaluate(
                T.tvm_load_matrix_sync(
                    a.data, 16, 16, 16, 0, A.access_ptr("r"), 24, a_order, dtype="void"
                )
            )
            T.evaluate(
                T.tvm_load_matrix_sync(
                    b.data, 16, 16, 16, 0, B.access_ptr("r"), 28, b_order, dtype="void"
                )
            )
            T.evaluate(T.tvm_mma_sync(c.data, 0, a.data, 0, b.data, 0, c.data, 0, dtype="void"))
            T.evaluate(
                T.tvm_store_matrix_sync(
                    c.data, 16, 16, 16, 0, C.access_ptr("w"), 20, c_order, dtype="void"
                )
            )

    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 9, (16, row)).astype("float16") for row in (24, 28))
    c = np.full((16, 20), math.nan, "float32")
    d2ltvm.emulate(main, a, b, c)

    def tile(array, order):
        return array[:, :16] if order == "row_major" else array[:, :16].T

    exact = tile(a, a_order).astype("float64") @ tile(b, b_order).astype("float64")
    assert (tile(c, c_order) == exact).all() and np.isnan(c[:, 16:]).all()


def test_what_is_not_emulated_is_named_in_one_line():
    with pytest.raises(NotImplementedError, match=r"^cannot emulate a Call: .*logf") as error:
        emulated(lambda x: tirx.call_pure_extern("float32", "logf", x), np.ones(32, "float32"))
    assert "\n" not in str(error.value)
    with pytest.raises(NotImplementedError, match=r"^cannot emulate cbrt$"):
        arithmetic.call("cbrt", 1.0)


def test_arguments_that_are_no_arrays_are_named():
    with pytest.raises(ValueError, match=r"arrays are .*; expected "):
        d2ltvm.emulate(schedules.one_thread_each(4), [1, 2, 3, 4], None, None)
