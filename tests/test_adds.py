"""What the chapters on adds measure and draw, on an imagined GPU, and the kernels they measure."""

import contextlib
import itertools
import types
from functools import partial

import numpy as np
import pytest

import d2ltvm
from d2ltvm import schedules
from d2ltvm.analysis import in_flight, starting
from d2ltvm.bench import adds, contenders, occupied, run, timing
from d2ltvm.bench.timing import Timing
from d2ltvm.compiler import cubin
from d2ltvm.compiler.in_order import in_order
from d2ltvm.compiler.kernel import build
from d2ltvm.errors import MissingError


def order_of(kernel):
    """Loads, additions and stores of the machine code: L, A and S."""
    letters = {"LDG": "L", "FADD": "A", "STG": "S"}
    words = [word.partition(".")[0] for word in kernel.sass("sm_90").split()]
    return "".join(letters[word] for word in words if word in letters)


def test_without_the_word_no_load_overtakes_a_store():
    sch = schedules.staying(2**16, blocks=4)
    assert order_of(d2ltvm.build(sch, "sm_90"))[:4] == "LLLL"
    with in_order():
        source = d2ltvm.build(sch, "sm_90").source
    assert "__restrict__" not in source and "__restrict__" in d2ltvm.build(sch, "sm_90").source
    listing = cubin.instructions(cubin.disassemble(cubin.compile_cubin(source, "sm_90")))
    assert listing["LDG.E"] == 2 * listing["STG.E"]


@pytest.mark.parametrize("ahead", [1, 2, 8])
def test_so_many_loads_come_before_the_first_addition(ahead):
    with in_order():
        source = d2ltvm.build(schedules.loads_ahead(256, 2048, ahead), "sm_90").source
    kernel = types.SimpleNamespace(
        sass=lambda arch: cubin.disassemble(cubin.compile_cubin(source, arch))
    )
    rounds = order_of(kernel)
    assert rounds.startswith("L" * 2 * ahead + "A") and "S" + "L" * 2 * ahead + "A" in rounds


@pytest.mark.quick(1)
@pytest.mark.parametrize("n", [1, 33, 100, 257])
def test_broadcast_adds_are_right(n):
    kernel = d2ltvm.build(schedules.bcast_in_steps(n))
    assert d2ltvm.check(kernel, d2ltvm.get_bcast_data((n, 1), (n, n))[:2], np.add) <= 2**-24
    kernel = d2ltvm.build(schedules.loads_ahead(n, 40, 4))
    assert d2ltvm.check(kernel, d2ltvm.get_abc((n, 40))[:2], np.add) <= 2**-24


@pytest.mark.quick(1)
@pytest.mark.parametrize("n", [1, 255, 4099])
def test_vector_adds_are_right(n):
    for schedule in (
        schedules.neighbours,
        partial(schedules.staying, nt=32, blocks=3, width=4),
        partial(schedules.staying, nt=64, blocks=5),
    ):
        kernel = d2ltvm.build(schedule(n))
        assert d2ltvm.check(kernel, d2ltvm.get_abc(n)[:2], np.add) <= 2**-24
    vectors = [d2ltvm.get_abc(n)[0]] * 3
    kernel = d2ltvm.build(schedules.sum_of_vectors(n, 3))
    assert d2ltvm.check(kernel, vectors, lambda *v: sum(v), terms=2) < 1e-6
    assert d2ltvm.sectors(schedules.sum_of_vectors(2**12, 3)).total("read") == (96, 1536)


def test_nothing_to_do_has_as_many_blocks_as_are_asked_for():
    kernel = d2ltvm.build(schedules.nothing_to_do(100, 64))
    assert str(kernel.launches[0]) == "main_kernel: grid (100, 1, 1), block (64, 1, 1)"
    assert d2ltvm.check(kernel, d2ltvm.get_abc(1)[:2], np.add) == 0


def test_the_memory_of_the_model_sends_as_long_as_it_says():
    for size, share in ((1, 4 / 22), (4, 16 / 25), (8, 1.0)):
        rows, busy = in_flight.deliveries(4, size, until=22_000)
        sent = sum(end - start for start, end, _ in rows["memory"])
        assert busy == pytest.approx(share) and sent / 22_000 == pytest.approx(share, abs=0.01)
        for spans in rows.values():
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def test_both_paces_start_every_block_once():
    for pace, taken, end in (
        ("GPU", (), 12),
        ("multiprocessor", (), 12),
        ("GPU", (2, 3), 12),
        ("multiprocessor", (2, 3), 24),
    ):
        rows, found = starting.starts(pace, 12, taken=taken)
        begun = [s for spans in rows.values() for s, _, what in spans if what == "a block starts"]
        assert found == end and len(begun) == len(set(begun)) == 12
        assert all(
            spans[0] == (0, end, "taken") for sm, spans in rows.items() if int(sm[3]) in taken
        )
    with pytest.raises(ValueError, match="'neither', 4 free; expected one of"):
        starting.starts("neither", 1)
    with pytest.raises(ValueError, match="0 free"):
        starting.starts("GPU", 1, sms=2, taken=(0, 1))


@pytest.fixture
def imagined(monkeypatch):
    """Kernels run without a GPU, and each takes ten microseconds."""

    def on_cpu(sch, target=None, config=None):
        return build(sch, None if target == "cuda" else target, config)

    def time_together(runs, clock="graph", rounds=7):
        for function in runs.values():
            function()
        return {name: Timing(1e-5, 8e-6, 2e-5) for name in runs}

    for module in (contenders, adds):
        monkeypatch.setattr(module, "build", on_cpu)
    for module in (run, timing):
        monkeypatch.setattr(module, "time_together", time_together)
    monkeypatch.setattr(contenders, "torch_add", contenders.numpy_add)
    monkeypatch.setattr(adds.chips, "here", lambda: types.SimpleNamespace(sms=2))


@pytest.mark.slow
def test_rates_are_of_what_moves(imagined):
    found = adds.vector_adds((1024, 1027))
    assert found["copy"].tolist() == found["twice four"].tolist() == [1024 * 12e-7, 1027 * 12e-7]
    assert list(found.series)[:2] == ["copy", "PyTorch"] and len(found.series) == 7
    found = adds.reads_for_a_write((1, 3), floats=2**13)
    assert found.series == {"four elements a thread": [4 * 2**13 / 1e7] * 2}
    assert found.spread["four elements a thread"][0] == [4 * 2**13 / 2e7, 4 * 2**13 / 8e6]
    found = adds.one_half_at_a_time(128, 32, 16)
    both = (8 * 128 * 128 + 512) / 1e7
    assert found["continuous"].tolist() == pytest.approx([4 * 128 * 128 / 1e7] * 2 + [both], 1e-5)
    assert found.x["values"] == ["loads only", "stores only", "both"]


@pytest.mark.slow
def test_what_changes_is_on_the_axis(imagined):
    found = adds.loads_in_order({"4": 1, "16": 4}, (1, 2), nt=64, rounds=1)
    assert found.x["values"] == [64, 128] and list(found.series) == ["4", "16"]
    assert found.series["4"] == [pytest.approx(2 * 2048 * 4 * 12e-7, 1e-5)] * 2
    found = adds.staying_and_going((64, 128), rounds=1)
    assert list(found.series) == ["blocks that stay", "blocks that come and go"]
    assert found.x["values"] == [64, 128]
    found = adds.lanes_apart((4, 16), n=64, nt=32)
    assert found.series == {k: [64 * 64 * 4 / 1e7] * 2 for k in ("loads only", "stores only")}
    found = adds.loads_before_adding((1, 2), an_sm=64, nt=32, rows=8)
    assert found.series == {"64 threads on each SM": [pytest.approx(8 * 128 * 12e-7, 1e-5)] * 2}
    assert adds.threads_and_blocks((32,), (4, 8), 64).series["nt = 32"][0] > 0
    assert adds.block_sizes((32, 64), (8,)).series == {"2^8": [10.0, 10.0]}
    found = adds.launches_without_work((32, 64), 2**10)
    assert found.series == {"nothing to do": [10.0] * 2, "one element a thread": [10.0] * 2}
    assert list(adds.like_pytorch(32).series)[2] == "two, one after the other"


def test_fewer_multiprocessors_are_twelfths_of_all(imagined, monkeypatch):
    asked = {}
    monkeypatch.setattr(adds.chips, "here", lambda: types.SimpleNamespace(sms=132))
    monkeypatch.setattr(
        occupied, "with_free_sms", lambda runs, free: asked.update(runs=list(runs), free=free)
    )
    adds.launches_on_fewer_sms(blocks=4, n=2**10)
    assert asked["free"] == [132, 110, 88, 66, 44, 33, 22, 11] and len(asked["runs"]) == 4


class Words:
    """Integers on an imagined device."""

    made = None

    def __init__(self, count):
        self.host, self.address, self.history = np.zeros(count, "int32"), self, []
        Words.made.append(self)

    def read(self, _stream):
        return self.host

    def write(self, values, _stream):
        self.history.append(list(values))


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of 8 multiprocessors that runs nothing, and says what it was asked for."""
    told = types.SimpleNamespace(launches=[], words=[], now=0.0, busy=True, start=True)
    Words.made = told.words

    def launch(name, blocks, shared, _stream, _ns, words):
        told.launches.append((name, blocks, shared))
        if name == "wait_here" and told.start:
            words.host[0] = blocks
        if name == "note_multiprocessor":
            taken = told.launches[-2][1] if told.launches[-2][0] == "wait_here" else 0
            words.host[: 8 - taken] = 1

    def elapsed(work, _stream):
        work()
        return 30e-6

    monkeypatch.setattr(occupied, "_launch", launch)
    monkeypatch.setattr(occupied, "_Words", Words)
    monkeypatch.setattr(occupied, "_busy", lambda _: told.busy)
    monkeypatch.setattr(occupied.devices, "need_cuda", lambda _: None)
    sheet = types.SimpleNamespace(sms=8, shared_block_kib=227)
    monkeypatch.setattr(occupied.chips, "here", lambda: sheet)
    monkeypatch.setattr(timing, "cuda_stream", lambda: contextlib.nullcontext(1))
    monkeypatch.setattr(timing, "cuda", lambda *_: 1)
    monkeypatch.setattr(timing, "elapsed", elapsed)
    return told


def test_blockers_take_all_but_some_and_are_released(gpu):
    found = occupied.with_free_sms({"add": lambda: None}, [8, 6])
    assert found.series == {"add": [6.0, 6.0], "multiprocessors seen": [8.0, 6.0]}
    waiting = [launch for launch in gpu.launches if launch[0] == "wait_here"][1:]
    assert waiting == [("wait_here", 2, 227 * 1024)] * (occupied.ROUNDS + 1)
    states = [words for words in gpu.words if len(words.host) == 2]
    assert all(words.history == [[2, 1]] for words in states) and len(states) == len(waiting)


def test_blockers_that_do_not_wait_are_an_error(gpu, monkeypatch):
    monkeypatch.setattr(occupied, "TRIES", 1)
    gpu.busy = False
    with pytest.raises(RuntimeError, match="ended before the launches; does another process"):
        occupied.with_free_sms({"add": lambda: None}, [4])
    gpu.start = False
    monkeypatch.setattr(occupied, "LONGEST_WAIT", 0)
    with pytest.raises(RuntimeError, match="0 of 4 blockers started; does another process"):
        occupied.with_free_sms({"add": lambda: None}, [4])
    assert all(words.history for words in gpu.words if len(words.host) == 2)
    for free in ([], [0], [9]):
        with pytest.raises(ValueError, match="expected numbers from 1 to 8"):
            occupied.with_free_sms({}, free)


def test_a_launch_beside_another_process_is_timed_again_and_a_line_says_so(gpu, monkeypatch):
    tries = []
    monkeypatch.setattr(occupied, "PAUSE", 0)
    monkeypatch.setattr(occupied, "_busy", lambda _: tries.append(1) or len(tries) % 3 == 0)
    with pytest.warns(UserWarning, match="a launch is timed again") as said:
        found = occupied.with_free_sms({"add": lambda: None}, [6])
    assert found.series == {"add": [6.0], "multiprocessors seen": [6.0]}
    assert len(tries) == 3 * (occupied.ROUNDS + 1)  # in each, the third try was left in peace
    assert len({str(line.message) for line in said}) == 1
    states = [words for words in gpu.words if len(words.host) == 2]
    assert all(words.history == [[2, 1]] for words in states)  # each try released its blockers


def test_blockers_compile_for_every_chip_of_the_book():
    for arch in ("sm_75", "sm_80", "sm_90"):
        sass = cubin.disassemble(cubin.compile_cubin(occupied.SOURCE, arch, agree=1))
        assert "NANOSLEEP" in sass and "wait_here" in sass and "note_multiprocessor" in sass


def test_without_a_gpu_there_is_one_line():
    if not d2ltvm.has_cuda():
        with pytest.raises(MissingError, match="the stored record"):
            occupied.with_free_sms({}, [1])
