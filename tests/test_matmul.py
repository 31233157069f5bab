"""Schedules of the matrix product: right at any size, and with what they cost a GPU."""

import functools

import numpy as np
import pytest

import d2ltvm
from d2ltvm import schedules
from d2ltvm.bench import contenders
from d2ltvm.compiler import lowering
from d2ltvm.compiler.verify import WrongResultError

padded = functools.partial(schedules.matmul_vthread, wide=True, align=4)
STEPS = {
    "naive": schedules.matmul_naive,
    "coalesced": schedules.matmul_coalesced,
    "shared": schedules.matmul_shared,
    "registers": schedules.matmul_registers,
    "tiled": schedules.matmul_tiled,
    "virtual threads": schedules.matmul_vthread,
    "wide": functools.partial(schedules.matmul_tiled, wide=True, unroll=True),
    "padded": padded,
    "pipelined": functools.partial(padded, stages=2, scope="shared.dyn"),
    "three stages": functools.partial(padded, stages=3, scope="shared.dyn"),
    "warps": schedules.matmul_warps,
}
SIZES = ((128, 256, 32), (130, 75, 33), (1, 1, 1), (5, 300, 129))


@pytest.mark.quick(9)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", STEPS)
def test_products_are_right(name, size):
    a, b, _ = d2ltvm.get_matmul_data(*size)
    d2ltvm.check(d2ltvm.build(STEPS[name](*size)), (a, b), np.matmul, terms=2 * size[2])


@pytest.mark.quick(2)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_product_on_the_cpu_is_right(size):
    a, b, _ = d2ltvm.get_matmul_data(*size)
    kernel = d2ltvm.build(schedules.cpu_matmul(*size), "llvm")
    d2ltvm.check(kernel, (a, b), np.matmul, terms=2 * size[2])


@pytest.mark.parametrize("size", [(0, 2, 2), (2, -1, 2), (2, 2, 1.5)], ids=str)
def test_sizes_that_are_none_are_named(size):
    name = "nml"[[isinstance(x, int) and x > 0 for x in size].index(False)]
    with pytest.raises(ValueError, match=f"^{name} is"):
        d2ltvm.matmul(*size)


def test_a_wrong_product_is_not_timed(monkeypatch):
    kernel = d2ltvm.build(schedules.matmul_shared(64, 64, 64))
    a, b, c = d2ltvm.square_matrices(64)
    contenders.verify_matmul(kernel, a, b, c)
    contenders.verify_matmul(kernel, a, b, c, most=0)

    def wrong(a, b, c):
        c[...] = a @ b
        c[20:24, 23] += 1

    for most in (0, 2**30):
        with pytest.raises(WrongResultError, match="C of 64 x 64"):
            contenders.verify_matmul(wrong, a, b, c, most=most)


def test_what_numpy_times_is_the_product():
    a, b, c = d2ltvm.square_matrices(16)
    contenders.numpy_matmul()(a, b, c)()
    assert np.allclose(c, a @ b)
    timer = d2ltvm.np_matmul_timer(256)
    assert timer(40) > 4 * min(timer(1) for _ in range(3))  # it repeats as often as it is told


def test_a_kernel_that_moves_numbers_is_checked_before_it_is_timed():
    a, _, c = d2ltvm.get_abc((64, 64))
    contenders.tvm_move(lambda a, c: schedules.transpose(len(a)), lambda a, c: a.T, None)(a, c)
    assert np.array_equal(c, a.T)
    with pytest.raises(WrongResultError, match="C is not what was to be moved"):
        contenders.tvm_move(lambda a, c: schedules.transpose(64), lambda a, c: a, None)(a, c)


def test_a_product_that_is_no_square_is_timed_too():
    a, b, c = d2ltvm.get_matmul_data(30, 20, 10)
    contenders.tvm_matmul(schedules.cpu_matmul, "llvm")(a, b, c)()
    assert np.allclose(c, a @ b, atol=1e-4)


@pytest.mark.slow
def test_asynchronous_copies_are_made_where_the_architecture_has_them():
    sch = STEPS["pipelined"](256, 256, 64)
    for arch, expected in (("sm_75", False), ("sm_80", True), ("sm_90", True)):
        assert ("cp_async" in d2ltvm.build(sch, arch).code) == expected
    assert d2ltvm.build(sch, "sm_75").cubin("sm_75")[:4] == b"\x7fELF"
    assert "cp_async" not in d2ltvm.build(padded(256, 256, 64), "sm_90").code


@pytest.mark.slow
def test_the_pass_that_is_left_out_changes_no_asynchronous_copy(monkeypatch):
    kernels = [STEPS["pipelined"](256, 256, 64), schedules.conv_split(64, 32, 14, 3, 1, 1)]
    without = [d2ltvm.build(sch, "sm_90").source for sch in kernels]
    monkeypatch.setattr(lowering, "NOT_FOR_GPUS", [])
    assert all("cp_async" in source for source in without)
    assert [d2ltvm.build(sch, "sm_90").source for sch in kernels] == without


def test_dynamic_shared_memory_is_seen_and_turned_static_for_opencl():
    sch = STEPS["pipelined"](256, 256, 64)
    (launch,) = d2ltvm.build(sch, "sm_90").launches
    assert launch.shared == 4 * 2 * 16 * (132 + 128)
    source = d2ltvm.build(sch, "opencl").source
    assert "__local float A_shared_dyn" in source
    mod = lowering.as_module(schedules.matmul_shared(64, 64, 64))
    assert "shared.dyn" not in lowering._with_static_shared_memory(mod).script()


@pytest.fixture(scope="module")
def reports():
    make = {"shared": STEPS["shared"], "padded": padded}
    return {k: d2ltvm.report(f(256, 256, 256), "H200", 2 * 256**3) for k, f in make.items()}


def test_the_report_of_a_product(reports):
    report = reports["shared"]
    assert report.launch.grid == (8, 8, 1) and report.launch.block == (32, 32, 1)
    assert report.shared == 2 * 4 * 32 * 32
    assert report.bytes == 3 * 4 * 256 * 256
    assert report.intensity == pytest.approx(2 * 256**3 / report.bytes)
    assert report.occupancy.warps == 64 and report.resources.local == 0
    assert report.occupancy.waves == pytest.approx(64 / (2 * 132))
    for text in ("8 x 8 blocks of 32 x 32", "8,192 bytes", "FLOP a byte", "by L1 and shared"):
        assert text in str(report)


def test_the_ceilings_of_the_report(reports):
    shared, padded = reports["shared"], reports["padded"]
    # Each warp: per step along k one wavefront for B, and two for four steps of A.
    loads = 256**3 // 32
    reads = sum(t.wavefronts for t in shared.traffic if (t.scope, t.kind) == ("shared", "read"))
    assert reads == loads + loads // 4 * 2
    lines = sum(t.lines for t in shared.traffic)
    assert lines == 2 * 256**3 // 32 // 32 + 256 * 256 // 32
    cycles = shared.wavefronts / (132 * 1.98e9)
    assert shared.seconds["L1 and shared"] == pytest.approx(cycles)
    assert shared.seconds["FP32"] == pytest.approx(2 * 256**3 / 67e12)
    assert shared.bound[0] == "L1 and shared" and padded.bound[0] == "FP32"


def test_a_report_without_operations():
    report = d2ltvm.report(schedules.vectorized(2**20), "A100")
    assert report.intensity is None and set(report.seconds) == {"L1 and shared", "memory"}
    assert report.bound == ("memory", pytest.approx(12 * 2**20 / 2.039e12))
    with pytest.raises(ValueError, match="name is 'H300'"):
        d2ltvm.report(schedules.vectorized(2**20), "H300")
