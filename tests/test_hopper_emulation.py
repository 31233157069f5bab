"""Hopper's kernels on NumPy arrays: what forgets to wait is wrong there, or stuck."""

import numpy as np
import pytest
from tvm.backend.cuda.lang.pipeline import Pipeline, TMABar
from tvm.script import tirx as T

import d2ltvm
from d2ltvm import hopper
from d2ltvm.analysis.emulator.order import OrderError, SynchronizationError
from d2ltvm.analysis.emulator.shared import Barrier, Shared, Turns
from d2ltvm.compiler import lowering
from d2ltvm.compiler.launches import TensorMap
from d2ltvm.hopper import tiles
from d2ltvm.hopper.patch import changed

pytestmark = pytest.mark.slow

# Two tiles one after the other, of three rounds each, in a ring of two slots.
SIZES = {"n": 200, "m": 64, "l": 136}
OPTIONS = {"stages": 2, "sms": 1}


def product(kernel=None):
    """The largest error of the emulated product, NaN as infinity."""
    rng = np.random.default_rng(0)
    n, m, l = SIZES.values()
    a, b = (rng.standard_normal(shape, "float32").astype("float16") for shape in ((n, l), (m, l)))
    c = np.full((n, m), np.nan, "float16")
    d2ltvm.emulate(kernel or hopper.matmul_nt(**SIZES, **OPTIONS), a, b, c)
    error = np.abs(c - a.astype("float64") @ b.astype("float64").T).max()
    return np.inf if np.isnan(error) else error


def test_the_kernel_as_it_is():
    assert product() < 0.02  # half a unit of a float16 from 32 to 64


def test_registers_that_are_traded():
    """That a warpgroup takes registers of another one changes nothing here."""
    trade = 'T.ptx["setmaxnreg.inc.sync.aligned.u32"](232)\n            consumer: T.let'
    assert product(changed(hopper.matmul_nt, ("consumer: T.let", trade))(**SIZES, **OPTIONS)) < 0.02


@T.inline
def release_without_waiting(ring, thread, last, k):
    if thread % 128 == 0 and k > 0:
        ring.empty.arrive(last)


@T.inline
def release_too_early(ring, thread, last, k):
    T.ptx.wgmma.wait_group.sync.aligned(2)
    if thread % 128 == 0 and k > 0:
        ring.empty.arrive(last)


@T.inline
def release_twice(ring, thread, last, k):
    T.ptx.wgmma.wait_group.sync.aligned(1)
    if thread % 128 == 0 and k > 0:
        ring.empty.arrive(last)
        ring.empty.arrive(last)


@T.inline
def release_nothing(ring, thread, last, k):
    T.ptx.wgmma.wait_group.sync.aligned(1)


@T.inline
def finish_without_waiting(ring, thread, last):
    if thread % 128 == 0:
        ring.empty.arrive(last)


@pytest.mark.parametrize("wrong", [release_without_waiting, release_too_early])
def test_a_slot_that_is_released_before_it_has_been_read(monkeypatch, wrong):
    """It is said, and it can be seen in the result, too."""
    monkeypatch.setattr("d2ltvm.hopper.product.release", wrong)
    rng = np.random.default_rng(0)
    n, m, l = SIZES.values()
    a, b = (rng.standard_normal(shape).astype("float16") for shape in ((n, l), (m, l)))
    c = np.zeros((n, m), "float16")
    with pytest.raises(OrderError, match=r"TMA overwrites byte 0 .* which wgmma reads; missing"):
        d2ltvm.emulate(hopper.matmul_nt(**SIZES, **OPTIONS), a, b, c)
    assert not np.abs(c - a.astype("float64") @ b.astype("float64").T).max() < 1


def test_products_that_nobody_waits_for(monkeypatch):
    monkeypatch.setattr("d2ltvm.hopper.product.release_last", finish_without_waiting)
    with pytest.raises(SynchronizationError, match="the kernel ends while 8 copies or products"):
        product()


def test_a_slot_that_is_not_released(monkeypatch):
    monkeypatch.setattr("d2ltvm.hopper.product.release", release_nothing)
    stuck = r"ever: 0 for barrier \d+, parity 0 \(missing: 2 of 2 arrivals\); 1 for"
    with pytest.raises(SynchronizationError, match=stuck):
        product()


def test_a_slot_that_is_released_twice(monkeypatch):
    monkeypatch.setattr("d2ltvm.hopper.product.release", release_twice)
    with pytest.raises(SynchronizationError, match="for ever"):
        product()


def test_barriers():
    barrier = Barrier(2)
    barrier.nbytes += 8
    barrier.arrive(2)
    assert barrier.phase == 0
    barrier.come(8)
    assert (barrier.phase, barrier.missing) == (1, 2)
    with pytest.raises(SynchronizationError, match="more than 2 arrive at a barrier"):
        barrier.arrive(3)


def test_a_barrier_that_asks_for_too_many(monkeypatch):
    def pipeline(pool, stages, **options):
        return Pipeline(pool, stages, **{**options, "init_empty": 3})

    monkeypatch.setattr("d2ltvm.hopper.product.Pipeline", pipeline)
    with pytest.raises(SynchronizationError, match=r"wait for ever: 0 for barrier \d+, parity 0"):
        product()


def there_and_back(wait, finish=True, barrier=True):
    """A tile that is copied to shared memory and back, with and without waiting."""

    @T.prim_func
    def main(a_ptr: T.handle, c_ptr: T.handle):
        A = T.match_buffer(a_ptr, (64, 64), "float16", align=16)
        C = T.match_buffer(c_ptr, (64, 64), "float16", align=16)
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([1])
        thread = T.thread_id([128])
        pool = T.SMEMPool()
        tile = tiles.shared_tile(pool, (64, 64))
        arrived = TMABar(pool, 1)
        if barrier:
            arrived.init(1)
        pool.commit()
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        if thread == 0:
            arrived.arrive(0, 64 * 64 * 2)
            tiles.tma_load(tile[:, :], A[0:64, 0:64], arrived.ptr_to([0]))
        if wait:
            arrived.wait(0, 0)
        if thread == 0:
            tiles.tma_store(C[0:64, 0:64], tile[:, :])
            T.ptx.cp.async_.bulk.commit_group()
            if finish:
                T.ptx.cp.async_.bulk.wait_group(0)

    return main


def test_tma_there_and_back():
    a = np.random.default_rng(0).standard_normal((64, 64)).astype("float16")
    c = np.full_like(a, np.nan)
    d2ltvm.emulate(there_and_back(wait=True), a, c)
    assert (c == a).all()


@pytest.mark.parametrize("wait, finish", [(False, True), (True, False)])
def test_copies_that_nobody_waits_for(wait, finish):
    a = np.ones((64, 64), "float16")
    with pytest.raises(SynchronizationError, match="ends while 1 copies or products last"):
        d2ltvm.emulate(there_and_back(wait, finish), a, np.full_like(a, np.nan))


def test_what_tma_is_told():
    mod = lowering.as_module(hopper.conv_nhwc(3, 24, 40, 9, 3, 1, 1))
    maps = lowering.lower(mod, d2ltvm.system.as_target("sm_90a")).tensor_maps
    told = ("float16", 128, True)
    assert maps == {
        "inputs_tensormap": TensorMap("X", (3, 9, 9, 40), (4, 2, 16, 64), *told),
        "W_tensormap": TensorMap("W", (9, 24, 40), (1, 64, 64), *told),
        "results_tensormap": TensorMap("Y", (3, 9, 9, 24), (2, 2, 16, 64), *told),
    }


def test_maps_that_are_not_emulated():
    map_ = TensorMap("X", (8, 64), (8, 64), "float16", 128, simple=False)
    shared = Shared(1024, {"map": map_}, {"X": np.zeros((8, 64), "float16")})
    with pytest.raises(NotImplementedError, match="TMA's map of X"):
        shared.store(0, "map", (0, 0))


def test_a_slot_that_is_fetched_again_holds_nothing_until_the_box_comes():
    """What was there before must not look as if it had come: the next box is often alike."""
    box = TensorMap("X", (8, 64), (8, 64), "float16", 128, simple=True)
    x = np.ones((8, 64), "float16")
    shared = Shared(x.nbytes, {"map": box}, {"X": x})
    barrier = Barrier(1)
    for _ in range(2):
        shared.fetch(0, "map", (0, 0), barrier)
        assert np.isnan(shared.memory.view("float16")).all()
        assert shared.deliver() and (shared.memory.view("float16") == 1).all()


def test_arrays_are_checked():
    a = np.ones((64, 64), "float16")
    with pytest.raises(ValueError, match=r"arrays are .*; expected"):
        d2ltvm.emulate(there_and_back(wait=True), a, a[:32])
    with pytest.raises(ValueError, match="C is not contiguous; pass"):
        d2ltvm.emulate(there_and_back(wait=True), a, a.T)


def test_a_barrier_that_is_not_there():
    a = np.ones((64, 64), "float16")
    with pytest.raises(SynchronizationError, match="at byte 8192 of shared memory there is no"):
        d2ltvm.emulate(there_and_back(wait=True, barrier=False), a, np.full_like(a, np.nan))


def test_a_counter_that_is_not_left_as_it_was():
    """One that is to count to more than there are tiles."""
    wrong = changed(
        hopper.conv_nhwc,
        ("tile_scheduler(pool, tiles,", "tile_scheduler(pool, tiles + 1,"),
        ("scheduler.is_valid()", "scheduler.work_idx < tiles"),
    )
    shapes = (300, 1, 1, 64), (1, 64, 64), (300, 1, 1, 64)
    arrays = [np.zeros(shape, "float16") for shape in shapes]
    options = {"on_demand": True, "columns": 64, "sms": 2}
    d2ltvm.emulate(hopper.conv_nhwc(300, 64, 64, 1, 1, **options), *arrays)
    with pytest.raises(SynchronizationError, match="leaves its counter of tiles at 3"):
        d2ltvm.emulate(wrong(300, 64, 64, 1, 1, **options), *arrays)


def written_by_threads(value):
    """A kernel of two blocks, each thread of which writes what an expression is."""

    @T.prim_func
    def main(c_ptr: T.handle):
        C = T.match_buffer(c_ptr, (2, 128), "int32", align=16)
        T.device_entry()
        block = T.cta_id([2])
        thread = T.thread_id([128])
        C[block, thread] = value()

    return main


def test_what_is_not_known():
    seven = "__device__ int seven() { return 7; }"
    for value, message in (
        (
            lambda: T.cuda.func_call("seven", source_code=seven, return_type="int32"),
            '"seven" in 128 threads',
        ),
        (lambda: T.cuda.mov_sreg(32, "warpid"), 'the special register "warpid"'),
    ):
        with pytest.raises(NotImplementedError, match=message):
            d2ltvm.emulate(written_by_threads(value), np.zeros((2, 128), "int32"))


@pytest.mark.parametrize("instruction", ["cvt.rn.f16x2.f32", "cvt.rn.relu.f16x2.f32"])
def test_a_conversion_is_done_as_it_is_written_or_not_at_all(instruction):
    @T.prim_func
    def main(c_ptr: T.handle):
        C = T.match_buffer(c_ptr, (128,), "uint32", align=16)
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([128])
        pair = T.alloc_local((1,), "uint32")
        T.ptx[instruction](pair[0], T.float32(2), T.float32(-1))
        C[thread] = pair[0]

    found = np.zeros(128, "uint32")
    if "relu" in instruction:
        with pytest.raises(NotImplementedError, match="cvt, but of two float32 to float16"):
            d2ltvm.emulate(main, found)
    else:
        d2ltvm.emulate(main, found)
        assert (found.view("float16").reshape(128, 2) == (-1, 2)).all()


def test_each_block_has_an_sm():
    sms = np.full((2, 128), -1, "int32")
    d2ltvm.emulate(written_by_threads(lambda: T.cuda.mov_sreg(32, "smid")), sms)
    assert (sms == [[0], [1]]).all()


def test_errors_of_one_end_the_others():
    seen, turns = [], None

    def first():
        turns.wait(0, lambda: False, "nothing")
        seen.append("went on")

    def second():
        raise KeyError("of the second")

    turns = Turns(2, lambda: False)
    with pytest.raises(KeyError, match="of the second"):
        turns.run([first, second])
    assert seen == []


def test_a_tensor_under_another_name():
    @T.prim_func
    def main(a_ptr: T.handle, c_ptr: T.handle):
        A = T.match_buffer(a_ptr, (2, 64), "float32", align=16)
        C = T.match_buffer(c_ptr, (128,), "float32", align=16)
        flat = T.decl_buffer((128,), "float32", data=A.data, align=16)
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([128])
        C[thread] = flat[thread] * T.float32(2)

    a, c = np.arange(128, dtype="float32").reshape(2, 64), np.zeros(128, "float32")
    d2ltvm.emulate(main, a, c)
    assert (c == 2 * a.reshape(-1)).all()


@pytest.mark.parametrize("make", [hopper.matmul_nt, hopper.conv_nhwc], ids=["matmul", "conv"])
def test_a_dependent_launch_has_to_wait(make):
    """As it is, nothing is asked for before the kernel before has ended; without the wait it is."""
    sizes = {"matmul_nt": (64, 64, 64), "conv_nhwc": (128, 64, 64, 1, 1)}[make.__name__]
    arrays = [np.zeros(p.shape, p.dtype) for p in d2ltvm.build(make(*sizes), "sm_90a").params]
    d2ltvm.emulate(make(*sizes), *arrays)
    wait = {"matmul_nt": "()", "conv_nhwc": "(plan.early)"}[make.__name__]
    hasty = changed(make, (f"wait_for_kernel_before{wait}", "T.evaluate(0)"))
    with pytest.raises(SynchronizationError, match=r"griddepcontrol\.wait"):
        d2ltvm.emulate(hasty(*sizes), *arrays)


def test_a_report_of_a_kernel_of_tma_and_wgmma():
    report = d2ltvm.report(hopper.matmul_nt(256, 256, 64), "H200", flop=2 * 256 * 256 * 64)
    assert report.traffic is None and report.wavefronts is None
    assert list(report.seconds) == ["TensorCores", "memory"]
    assert report.bytes == 2 * (2 * 256 * 64 + 256 * 256)
    assert report.shared > 100_000 and report.occupancy.blocks == 1
    assert "registers" in str(report) and "by TensorCores" in str(report)
    with pytest.raises(ValueError, match=r"arch is 'sm_80'; expected 'sm_90a'"):
        d2ltvm.report(hopper.matmul_nt(256, 256, 64), "A100")
