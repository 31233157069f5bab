"""The smallest kernels in TIRx: right at many sizes, and what the emulator says of wrong ones."""

import numpy as np
import pytest
from on_hopper import RUN, random, result

import d2ltvm
from d2ltvm import layouts
from d2ltvm.hopper import first_kernels
from d2ltvm.hopper.patch import changed


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("n", [1, 127, 128, 256, 1000])
def test_vectors_are_copied_and_reversed_in_tiles(run, n):
    a = random(n)
    turned = np.concatenate([a[k : k + 128][::-1] for k in range(0, n, 128)])
    assert (result(run, first_kernels.copy(n), n, a) == a).all()
    assert (result(run, first_kernels.reverse(n), n, a) == turned).all()


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_numbers_are_handed_over(run, n):
    a = random(n)
    assert (result(run, first_kernels.hand_over(n), (n, 128), a) == a[:, None]).all()


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("corner", [(8, 16), (-2, 20), (17, -4), (-8, 0), (20, 28)])
def test_a_box_has_zeros_outside(run, corner):
    a = random(20, 28)
    got = result(run, first_kernels.one_box(20, 28, *corner), first_kernels.BOX, a)
    assert (got == layouts.box(a, corner, first_kernels.BOX)).all()


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("columns", [8, 24, 256])
def test_one_product(run, columns):
    a, b = (random(rows, 16, dtype="float16") for rows in (64, columns))
    got = result(run, first_kernels.one_product(columns), (64, columns), a, b)
    assert np.abs(got - a.astype("float64") @ b.astype("float64").T).max() < 1e-5


def test_where_a_sum_is_agrees_with_layouts():
    thread, register = np.indices((128, 128))
    row, column = first_kernels.place(thread, register)
    assert (np.stack(layouts.accumulator(row, column)) == (thread, register)).all()


@pytest.mark.parametrize(
    ("make", "sizes", "old", "new", "said"),
    [
        ("hand_over", (2,), "empty.wait(0, (r + 1) % 2)", "pass", "for ever: 1 for barrier 8"),
        ("hand_over", (2,), "(r + 1) % 2", "r % 2", "for ever: 0 for barrier 16, parity 0"),
        ("hand_over", (2,), "empty.init(THREADS)", "empty.init(1)", "more than 1 arrive"),
        ("one_box", (20, 28, -2, 20), "wide * 4", "wide * 2", "for ever: 0 for barrier 512"),
        ("one_box", (20, 28, -2, 20), "wide * 4", "wide * 8", "for ever: 0 for barrier 512"),
        ("one_box", (20, 28, -2, 20), "arrived.wait(0, 0)", "pass", "ends while 1 copies"),
    ],
)
def test_what_is_said_of_wrong_ones(make, sizes, old, new, said):
    kernel = changed(getattr(first_kernels, make), (old, new))(*sizes)
    a = random(*sizes[:2])
    shape = first_kernels.BOX if make == "one_box" else (*sizes, 128)
    with pytest.raises(RuntimeError, match=said):
        result(d2ltvm.emulate, kernel, shape, a)


@pytest.mark.parametrize("parity", ["(r + 1) % 2", "0", "1"])
def test_who_passes_early_knows_nothing_of_what_comes_later(parity):
    """Even if the one to wait for comes before the waiting threads go on."""
    kernel = changed(first_kernels.hand_over, ("full.wait(0, r % 2)", f"full.wait(0, {parity})"))
    with pytest.raises(RuntimeError, match="a thread reads byte 0 of shared memory, which"):
        result(d2ltvm.emulate, kernel(3), (3, 128), random(3))


def test_instructions():
    for kernel, wanted in (
        (first_kernels.reverse(1000), ["STS", "BAR.SYNC.DEFER_BLOCKING", "LDS"]),
        (first_kernels.one_box(20, 28, 0, 0), ["UTMALDG.2D"]),
        (first_kernels.one_product(), ["HGMMA.64x8x16.F32"]),
    ):
        found = d2ltvm.instructions(d2ltvm.build(kernel, "sm_90a").sass())
        assert [found[name] for name in wanted] == [1] * len(wanted)


@pytest.mark.parametrize(
    ("make", "sizes", "message"),
    [
        ("copy", (0,), "n is 0; expected an integer from 1 to"),
        ("reverse", (2.5,), "n is 2.5; expected an integer"),
        ("hand_over", ("5",), "n is '5'; expected an integer"),
        ("one_box", (20, 27, 0, 0), "m is 27; expected a multiple of 4 from 4 to"),
        ("one_box", (20, 28, 0.5, 0), "row is 0.5; expected an integer from -"),
        ("one_product", (12,), "columns is 12; expected a multiple of 8 from 8 to 256"),
        ("one_product", (264,), "columns is 264; expected a multiple of 8"),
    ],
)
def test_sizes_that_make_no_sense(make, sizes, message):
    with pytest.raises(ValueError, match=message):
        getattr(first_kernels, make)(*sizes)


def test_sizes_may_be_numpys():
    assert first_kernels.one_product(np.int64(16)) and first_kernels.copy(np.int8(5))


def short(kernel):
    return d2ltvm.kernel_code(d2ltvm.build(kernel, "sm_90a").source, short=True)


def test_a_short_kernel_code_has_ptx_in_the_place_of_calls():
    code = short(first_kernels.one_product())
    assert "tvm_builtin" not in code and "warp_id_in_cta" not in code
    lines = [line.strip() for line in code.splitlines()]
    for line in (
        "mbarrier.init.shared.b64 [pool + 2304], 1;",
        "fence.proxy.async.shared::cta;",
        "__syncthreads();",
        "mbarrier.arrive.expect_tx.shared.b64 _, [pool + 2304], 2304;",
        "[pool + 2048], [&B_tensormap, {0, 0}], [pool + 2304];",
        "P1, [pool + 2304], 0;  // until P1",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
        "matrices_ptr[1], 0, 1, 1, 0, 0;",
        "wgmma.wait_group.sync.aligned 0;",
    ):
        assert line in lines


@pytest.mark.slow
def test_every_hopper_kernel_can_be_shown_short():
    for kernel in (
        first_kernels.hand_over(5),
        d2ltvm.hopper.ring.stream_watched(1000, rounds=2, sms=1),
        d2ltvm.hopper.ring.stream_by_threads(1000, sms=1),
        d2ltvm.hopper.matmul_nt(256, 256, 64, sms=1),
    ):
        code = short(kernel)
        assert "tvm_builtin" not in code and "%" not in code.replace(" % ", "")
