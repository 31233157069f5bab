"""Rings of tiles: sums at many sizes, errors, machine code, and rings that are broken."""

import numpy as np
import pytest
from on_hopper import RUN, needs_hopper

import d2ltvm
from d2ltvm.analysis import sass
from d2ltvm.analysis.emulator.order import SynchronizationError
from d2ltvm.hopper import ring
from d2ltvm.hopper.patch import changed

pytestmark = pytest.mark.slow

KERNELS = [ring.stream, ring.stream_by_threads]

# Rows of X that tiles and blocks divide and that they do not; one slot, more slots than tiles.
SIZES = [
    (1024, {"rows": 32, "stages": 4, "sms": 4}),
    (1000, {"rows": 48, "stages": 3, "sms": 3, "laps": 2}),
    (4097, {"rows": 128, "stages": 1, "sms": 5}),
    (1, {"rows": 16, "stages": 2, "laps": 3}),
    (129, {"rows": 256, "stages": 5, "sms": 1}),
    (700, {"rows": 64, "stages": 9, "sms": 100, "laps": 4}),
]


def data(n):
    """Numbers of which none is zero, so that a row too few or too many shows."""
    values = np.random.default_rng(0).standard_normal((n, 64), "float32")
    return (values + np.copysign(0.5, values)).astype("float16")


def poisoned(x, rows, laps=1, sms=None):
    return np.full(ring.reference(x, rows, laps, sms).shape, np.nan, "float32")


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("n, options", SIZES, ids=str)
def test_sums(run, kernel, n, options):
    x, sizes = data(n), {k: v for k, v in options.items() if k != "stages"}
    want, most = (ring.reference(a, **sizes) for a in (x, np.abs(x)))
    got = np.full(want.shape, np.nan, "float32")
    run(kernel(n, **options), x, got)
    terms = options.get("laps", 1) * -(-n // (options["rows"] * len(got))) * options["rows"] // 16
    assert (np.abs(got - want) <= terms * np.finfo("float32").eps / 2 * most).all()


def test_reference_adds_up_every_row_once():
    x = data(777)
    sums = ring.reference(x, rows=48, laps=3, sms=5)
    assert sums.shape == (5, 16, 64)
    assert np.allclose(sums.sum(axis=(0, 1)), 3 * x.sum(axis=0, dtype="float64"))
    assert np.array_equal(ring.reference(x[:16], rows=16)[0], x[:16].astype("float64"))


def clocked(rounds=8, **options):
    x = data(500)
    kernel = ring.stream_watched(len(x), rows=32, sms=2, rounds=rounds, **options)
    return kernel, x, poisoned(x, 32, sms=2), np.zeros((4, rounds), "uint64")


@pytest.mark.parametrize("pause", [0, 3000])
def test_clocks_are_kept_and_sums_stay_right(pause):
    kernel, x, sums, clocks = clocked(pause=pause, stages=2)
    d2ltvm.emulate(kernel, x, sums, clocks)
    assert np.allclose(sums, ring.reference(x, 32, sms=2), atol=1e-4)
    asked, arrived, taken, back = clocks.astype("int64")
    assert (clocks > 0).all() and (np.diff(clocks.astype("int64")) > 0).all()
    assert (arrived > asked).all() and (back >= taken + pause).all()
    assert (asked[2:] > back[:-2]).all()  # a slot is asked for again when it has been handed back


@needs_hopper
def test_clocks_on_the_gpu():
    kernel, x, sums, clocks = clocked(pause=2000, stages=2)
    built = d2ltvm.build(kernel)
    tensors = built.upload([x, sums, clocks])
    built(*tensors)
    assert np.allclose(tensors[1].numpy(), ring.reference(x, 32, sms=2), atol=1e-4)
    asked, arrived, taken, back = tensors[2].numpy().astype("int64")
    # The pause begins a few instructions before a tile is noted as taken.
    assert (arrived > asked).all() and (back >= taken + 1900).all()
    assert (asked[2:] > taken[:-2]).all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"n": 0}, "n is 0; expected a positive integer"),
        ({"n": 1.5}, "n is 1.5; expected a positive integer"),
        ({"rows": 40}, "rows is 40; expected a multiple of 16, up to 256"),
        ({"rows": 32.0}, "rows is 32.0; expected a positive integer"),
        ({"rows": 272}, "rows is 272; expected a multiple of 16, up to 256"),
        ({"stages": 0}, "stages is 0; expected a positive integer"),
        ({"stages": 15}, "stages is 15; expected 1 to 14 with rows = 128"),
        ({"laps": 0}, "laps is 0; expected a positive integer"),
        ({"sms": 0}, "sms is 0; expected a positive integer"),
    ],
    ids=str,
)
def test_errors(kernel, wrong, message):
    with pytest.raises(ValueError, match=message):
        kernel(**{"n": 1024, **wrong})


def test_errors_of_clocks():
    with pytest.raises(ValueError, match="pause is -1; expected an integer of at least 0"):
        ring.stream_watched(1024, pause=-1)
    for rounds in (0, 9):
        with pytest.raises(ValueError, match=f"rounds is {rounds}; expected 1 to 8, which block 0"):
            ring.stream_watched(500, rows=32, sms=2, rounds=rounds)


def loop_with(text, *names):
    """Opcodes, without their suffixes, of the smallest loop that has all of them."""
    for loop in sass.loops(text):
        opcodes = [opcode.partition(".")[0] for opcode in loop]
        if set(names) <= set(opcodes):
            return opcodes
    raise AssertionError(f"no loop with {names}")


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("rows, stages", [(16, 1), (32, 4), (128, 14), (256, 7)])
def test_machine_code(kernel, rows, stages):
    """No register is spilled, and all have read a slot when it is handed back."""
    built = d2ltvm.build(kernel(2**20, rows, stages), "sm_90a")
    (resources,) = d2ltvm.resources(built.cubin()).values()
    assert resources.local == 0 and built.launches[0].shared == stages * (rows * 128 + 16)
    text = built.sass()
    consumer = next(loop for loop in sass.loops(text) if "LDS.128" in loop)
    reads, barriers = (
        [k for k, opcode in enumerate(consumer) if opcode.startswith(start)]
        for start in ("LDS", "SYNCS")
    )
    assert len(reads) == rows // 16
    waits, arrives = barriers
    assert waits < min(reads) and max(reads) < arrives
    assert "SR_CLOCKLO" not in text
    if kernel is ring.stream:
        assert text.count("UTMALDG.2D") == 1 and "LDGSTS" not in text
    else:
        assert loop_with(text, "LDGSTS", "SYNCS").count("LDGSTS") == rows // 16
        assert "UTMALDG" not in text


def test_machine_code_with_clocks():
    built = d2ltvm.build(ring.stream_watched(2**20, 32, pause=512, rounds=40), "sm_90a")
    (resources,) = d2ltvm.resources(built.cubin()).values()
    assert resources.local == 0 and built.launches[0].block == (384, 1, 1)
    assert "SR_CLOCKLO" in built.sass()


def test_tma_costs_the_same_whatever_the_size():
    loops = [
        loop_with(d2ltvm.build(ring.stream(2**20, rows), "sm_90a").sass(), "UTMALDG", "SYNCS")
        for rows in (32, 256)
    ]
    assert len(loops[0]) == len(loops[1])


@pytest.mark.parametrize(
    "kernel, old, new",
    [
        (ring.stream, "ring.full.wait(slot.stage, slot.phase)", "T.evaluate(0)"),
        (ring.stream, "ring.empty.arrive(slot.stage)", "T.evaluate(0)"),
        (ring.stream, "slot.phase ^ 1", "slot.phase"),
        (ring.stream, "arrive(slot.stage, nbytes)", "arrive(slot.stage, nbytes // 2)"),
        (ring.stream, "init_empty=128", "init_empty=127"),
        (ring.stream, "init_empty=128", "init_empty=129"),
        (ring.stream_by_threads, "ring.full.wait(slot.stage, slot.phase)", "T.evaluate(0)"),
        (ring.stream_by_threads, "ring.empty.arrive(slot.stage)", "T.evaluate(0)"),
        (ring.stream_by_threads, "slot.phase ^ 1", "slot.phase"),
        (ring.stream_by_threads, "init_full=128", "init_full=127"),
        (ring.stream_by_threads, "init_full=128", "init_full=129"),
    ],
)
def test_a_broken_ring_is_noticed(kernel, old, new):
    x = data(1000)
    with pytest.raises(SynchronizationError):
        d2ltvm.emulate(changed(kernel, (old, new))(len(x), 32, 3, sms=2), x, poisoned(x, 32, sms=2))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_slot_holds_nothing_before_it_is_full(kernel):
    """With a slot for each tile nobody is stuck without barriers, but what is read is NaN."""
    x = data(64)
    sums = poisoned(x, 32, sms=1)
    waits, hands_back = "ring.full.wait(slot.stage, slot.phase)", "ring.empty.arrive(slot.stage)"
    broken = changed(kernel, (waits, "T.evaluate(0)"), (hands_back, "T.evaluate(0)"))
    with pytest.raises(SynchronizationError, match="ends while 2 copies"):
        d2ltvm.emulate(broken(len(x), 32, 2, sms=1), x, sums)
    assert np.isnan(sums).all()


def test_copies_of_which_no_barrier_is_told():
    x = data(64)
    tells = """T.ptx["cp.async.mbarrier.arrive.noinc.shared.b64"](
                        ring.full.ptr_to([slot.stage])
                    )"""
    broken = changed(ring.stream_by_threads, (tells, "T.evaluate(0)"))
    with pytest.raises(NotImplementedError, match=r"cp\.async that no barrier is told of"):
        d2ltvm.emulate(broken(len(x), 32, 2, sms=1), x, poisoned(x, 32, sms=1))


def test_copies_of_threads_that_do_not_arrive():
    """A warp that arrives tells of its own copies, not of those of the three other warps."""
    x = data(1000)
    tells = """T.ptx["cp.async.mbarrier.arrive.noinc.shared.b64"](
                        ring.full.ptr_to([slot.stage])
                    )"""
    one_warp = "if thread % 128 < 32:\n                        " + tells.replace("\n", "\n    ")
    edits = (tells, one_warp), ("init_full=128", "init_full=32")
    broken = changed(ring.stream_by_threads, *edits)
    with pytest.raises((SynchronizationError, NotImplementedError)):
        d2ltvm.emulate(broken(len(x), 32, 3, sms=2), x, poisoned(x, 32, sms=2))
