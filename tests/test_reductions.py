"""Sums of rows, softmax and layer norm: definitions, schedules, and what holds them to float64."""

import functools

import numpy as np
import pytest

import d2ltvm
from d2ltvm import schedules
from d2ltvm.bench import rows
from d2ltvm.compiler.verify import WrongResultError
from d2ltvm.compute import layer_norm_reference, reductions, softmax_reference

KERNELS = {
    "sum": ("sum_a_thread", "sum_a_block", "sum_wide", "sum_pieces"),
    "softmax": ("softmax_passes", "softmax_online", "softmax_held", "softmax_shared"),
    "layer norm": (
        "layer_norm_passes", "layer_norm_welford", "layer_norm_held", "layer_norm_shared",
    ),
}  # fmt: skip
EVERY = [(kind, name) for kind, names in KERNELS.items() for name in names]
SEVERAL = {"nt": 32, "each": 4}  # rows in a block, a warp each


def right(kind, name, shape, dtype, **options):
    """The error of a schedule: on the device for float32, emulated for float16."""
    sch = getattr(schedules, name)(*shape, dtype, **options)
    kernel = d2ltvm.build(sch) if dtype == "float32" else functools.partial(d2ltvm.emulate, sch)
    parts = 1 if name == "sum_a_thread" else 32
    return rows.check_rows(kind, kernel, rows.rows_data(kind, *shape, dtype), parts=parts)


@pytest.mark.quick(5)
@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_a_schedule_is_right_whether_or_not_its_width_and_threads_divide_a_row(kind, name):
    assert right(kind, name, (3, 1003), "float32") < 1e-6
    assert right(kind, name, (2, 600), "float16", nt=64) < 1e-3


@pytest.mark.quick(3)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("_", "name"), EVERY)
def test_a_schedule_compiles_for_a_gpu_in_both_types(_, name, dtype):
    """A vector of eight float32 under a condition does not: TVM's CUDA has no such type."""
    assert d2ltvm.build(getattr(schedules, name)(3, 2048, dtype), "sm_90").cubin()


@pytest.mark.quick(3)
@pytest.mark.parametrize(("kind", "name"), [e for e in EVERY if e[0] != "sum"])
def test_several_rows_in_a_block_are_right_also_where_the_last_block_has_fewer(kind, name):
    assert right(kind, name, (5, 104), "float16", **SEVERAL) < 1e-3


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", ["cpu_softmax", "cpu_layer_norm"])
@pytest.mark.parametrize("shape", [(5, 1003), (3, 64), (1, 16)], ids=str)
def test_schedules_for_a_cpu_are_right(name, shape):
    kind = name.removeprefix("cpu_").replace("_", " ")
    kernel = d2ltvm.build(getattr(schedules, name)(*shape), "llvm")
    assert rows.check_rows(kind, kernel, rows.rows_data(kind, *shape, "float32")) < 2e-6


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", KERNELS["softmax"])
def test_softmax_of_large_and_of_masked_numbers(name):
    x = np.zeros((3, 64), "float32")
    x[0] = np.linspace(9e4, 1e5, 64)  # each exponential by itself would overflow
    x[1, 5:] = -np.inf
    x[2] = -1e5
    y = np.full_like(x, np.nan)
    d2ltvm.build(getattr(schedules, name)(3, 64, "float32"))(x, y)
    np.testing.assert_allclose(y, softmax_reference(x.astype("float64")), rtol=1e-5, atol=1e-30)


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", KERNELS["layer norm"])
def test_layer_norm_far_from_zero_keeps_its_digits(name):
    """A mean of 1,000 standard deviations: the mean of squares, less the square, has none left."""
    x, gamma, beta, y = rows.rows_data("layer norm", 3, 256, "float32")
    x += 1000
    d2ltvm.build(getattr(schedules, name)(3, 256, "float32"))(x, gamma, beta, y)
    want = layer_norm_reference(*(a.astype("float64") for a in (x, gamma, beta)))
    assert np.abs(y - want).max() < 2e-3
    variance = (x * x).mean(1, keepdims=True) - x.mean(1, keepdims=True) ** 2
    bad = (x - x.mean(1, keepdims=True)) / np.sqrt(np.abs(variance)) * gamma + beta
    assert np.abs(bad - want).max() > 1e-2


def test_what_is_computed_from_a_sum_over_threads_has_a_place_of_its_own():
    """TVM's rewriting of storage would put 1 / D where all threads still read D."""
    kernel = d2ltvm.build(schedules.softmax_passes(2, 512), "sm_90")
    (line,) = (line for line in kernel.code.splitlines() if " / " in line)
    assert "red_result" not in line.partition("=")[0], line
    assert "__shfl_down_sync" in kernel.code


@pytest.mark.parametrize(
    ("name", "reads"), [("held", 1), ("shared", 1), ("online", 2), ("passes", 3)]
)
def test_a_row_that_is_held_is_read_once_in_16_bytes(name, reads):
    table = d2ltvm.sectors(getattr(schedules, f"softmax_{name}")(2, 8192))
    read = [t for t in table if t.tensor == "X" and t.kind == "read"]
    assert sum(t.requests for t in read) == reads * 2 * 8192 * 2 // 512


def test_a_sum_over_threads_that_tvm_takes_for_another_is_refused():
    sch = d2ltvm.schedule(d2ltvm.row_sum(3, 1000))
    total = sch.get_sblock("S")
    piece, *_ = sch.split(sch.get_loops(total)[1], [2, None, 64])
    part = sch.rfactor(piece, 1)
    for loop, tag in zip(sch.get_loops(part), ("blockIdx.y", "blockIdx.x"), strict=False):
        sch.bind(loop, tag)
    sch.bind(sch.get_loops(part)[-1], "threadIdx.x")
    sch.bind(sch.get_loops(total)[0], "blockIdx.x")
    with pytest.raises(ValueError, match="does not add up over threads in all of the blocks S_rf"):
        d2ltvm.build(sch)


def test_a_wrong_result_is_seen():
    arrays = rows.rows_data("softmax", 4, 100)

    def naive(x, y):
        y[:] = softmax_reference(x.astype("float32"))
        y[-1, 3] *= np.float16(1.01)

    with pytest.raises(WrongResultError, match=r"softmax\[3, 3\]"):
        rows.check_rows("softmax", naive, arrays)


def test_arguments_are_named_where_they_are_wrong():
    with pytest.raises(ValueError, match="dtype is 'int8'; expected one of float16, float32"):
        d2ltvm.row_sum(2, 2, "int8")
    with pytest.raises(ValueError, match="rows is 0"):
        d2ltvm.softmax(0, 4)
    with pytest.raises(ValueError, match="eps is 0; expected a number above zero"):
        d2ltvm.layer_norm(2, 4, eps=0)
    with pytest.raises(ValueError, match="dtype is 'int8'"):
        schedules.softmax_held(2, 4, "int8")
    with pytest.raises(ValueError, match="kind is 'max'"):
        rows.rows_data("max", 2, 4)


def test_the_polynomial_is_as_good_as_it_says():
    x = np.linspace(-126, 127, 20001, dtype="float32")
    whole = np.floor(x)
    poly = np.polynomial.Polynomial(reductions.POWERS)((x - whole).astype("float64"))
    exact = np.exp2((x - whole).astype("float64"))
    assert np.abs(poly / exact - 1).max() < 3e-7


@pytest.mark.parametrize("kind", rows.KINDS)
def test_numpy_computes_what_it_is_asked_for(kind):
    x, *scales, _ = arrays = rows.rows_data(kind, 5, 12, "float32")
    found = rows.numpy_rows(kind)(*arrays)()
    wide = x.astype("float64")
    off = wide - wide.mean(1, keepdims=True)
    want = {
        "sum": wide.sum(1),
        "softmax": np.exp(wide) / np.exp(wide).sum(1, keepdims=True),
        "layer norm": off / np.sqrt((off**2).mean(1, keepdims=True) + 1e-5),
    }[kind]
    want = want * scales[0] + scales[1] if scales else want
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="kind is 'sums'; expected one of sum"):
        rows.numpy_rows("sums")


def test_rows_race_in_bytes_that_have_to_move(capsys):
    racing = {"NumPy": rows.numpy_rows("softmax"), "PyTorch": rows.torch_rows("softmax")}
    found = rows.bench_rows("softmax", racing, [(4, 64), (2, 8)], "float32", "llvm", "GB/s")
    assert found.x["values"] == ["4 x 64", "2 x 8"] and found.unit == "GB/s"
    if found.missing:
        assert found.missing == ("PyTorch",) and "PyTorch is left out" in capsys.readouterr().out
