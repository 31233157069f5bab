"""What measures a chip, on a chip that is imagined: chains, places, and what is timed."""

import contextlib
import types

import numpy as np
import pytest

import d2ltvm
from d2ltvm.bench import clocks, probes, timing
from d2ltvm.bench.timing import Timing
from d2ltvm.schedules.chains import chase, timed_chase
from d2ltvm.schedules.multiply_add import fma_kernel


@pytest.mark.parametrize(("n", "line", "sectors"), [(32, 32, 1), (4096, 32, 4), (8192, 512, 2)])
def test_a_chain_visits_each_line_once_and_comes_back(n, line, sectors):
    a = probes.chain_of(n, line, sectors, first=1000)
    for sector in range(sectors):
        at, seen = 8 * sector, set()
        for _ in range(n // line):
            at = int(a[at]) - 1000
            seen.add(at)
        assert seen == set(range(8 * sector, n, line)) and at == 8 * sector


def test_sectors_of_a_line_go_the_same_way():
    a = probes.chain_of(2048, sectors=4)
    for k in (1, 2, 3):
        assert (a[8 * k :: 32] == a[::32] + 8 * k).all()


def test_a_chain_needs_whole_lines_and_room_for_its_sectors():
    for n, line, sectors in ((33, 32, 1), (64, 32, 5), (64, 8, 2)):
        with pytest.raises(ValueError, match="n a multiple of line"):
            probes.chain_of(n, line, sectors)


@pytest.mark.parametrize("sectors", [1, 2, 4])
def test_places_are_on_the_chain_and_differ(sectors):
    n = 2**14
    starts = probes.places(n, 64, sectors=sectors)
    assert len(set(starts.tolist())) == 64 and starts.max() < n
    assert set((starts % 32).tolist()) == {8 * k for k in range(sectors)}
    assert len(set((starts // 32).tolist())) == 64 // sectors


def follow(a, s, steps):
    at = s
    for _ in range(steps):
        at = a[at]
    return at


@pytest.mark.quick(1)
@pytest.mark.parametrize(("blocks", "threads", "steps"), [(1, 1, 7), (2, 32, 5), (3, 96, 40)])
def test_chase_follows_the_chain(blocks, threads, steps):
    n = 2**14
    a, s = probes.chain_of(n), probes.places(n, blocks * threads)
    kernel = d2ltvm.build(chase(n, steps, blocks, threads), "opencl")
    assert d2ltvm.check(kernel, (a, s), lambda a, s: follow(a, s, steps)) == 0


def test_the_timed_chain_reads_the_clock_once_before_each_load():
    sass = d2ltvm.build(timed_chase(4096, 64), "sm_90").sass("sm_90")
    body = [word for word in sass.split() if word == "CS2R" or word.startswith("LDG.E.CONSTANT")]
    order = "".join(word[0] for word in body)
    assert "CLCLCL" in order and "CC" not in order and "LL" not in order[1:]


class FakeTensor:
    def __init__(self, array):
        self.array, self.shape = np.array(array), np.array(array).shape

    def numpy(self):
        return self.array


class FakeKernel:
    """Takes a second for each load of a thread, and follows the chain in NumPy."""

    def __init__(self, gpu, func):
        self.gpu, self.func = gpu, func
        gpu.built.append(func)

    def bind(self, *tensors):
        if self.func[0] is fma_kernel:
            *_, chains, steps = self.func
            return lambda: self.gpu.spend(chains * steps)
        return lambda: self(*tensors)

    def __call__(self, chain, start, *rest):
        steps = self.func[2]
        at = start.array
        for _ in range(steps):
            at = chain.array[at]
            self.gpu.visited.append(at.copy())
        rest[-1].array = at
        if self.func[0] is timed_chase:
            rest[0].array = np.arange(steps + 1, dtype="uint64") * 300
        self.gpu.spend(steps)


class FakeGpu:
    now = 0.0

    def __init__(self):
        self.built, self.visited = [], []

    def spend(self, seconds):
        self.now += seconds

    def elapsed(self, work, _stream):
        start = self.now
        work()
        return self.now - start

    def time_together(self, runs, clock="graph", rounds=7):
        found = {}
        for name, run in runs.items():
            seconds = self.elapsed(run, None)
            found[name] = Timing(seconds, seconds, seconds)
        return found


@pytest.fixture
def gpu(monkeypatch):
    fake = FakeGpu()
    tensors = types.SimpleNamespace(tensor=lambda a, device: FakeTensor(a))
    stub = types.SimpleNamespace(runtime=tensors, cuda=lambda _: None)
    for module in (probes, clocks):
        monkeypatch.setattr(module, "tvm", stub)
        monkeypatch.setattr(module, "build", lambda func, _: FakeKernel(fake, func))
    for function in (chase, timed_chase, fma_kernel):
        for module in (probes, clocks):
            if hasattr(module, function.__name__):
                name = function.__name__
                monkeypatch.setattr(module, name, lambda *a, f=function: (f, *a))
    monkeypatch.setattr(timing, "cuda_stream", contextlib.nullcontext)
    monkeypatch.setattr(timing, "elapsed", fake.elapsed)
    monkeypatch.setattr(timing, "time_together", fake.time_together)
    return fake


def test_latencies_are_for_one_load(gpu):
    sizes = [2**12, 2**13]
    found = probes.latencies(sizes, steps=64)
    assert found.series == {"one load": [1e9, 1e9], "one load in each 2048 bytes": [1e9, 1e9]}
    assert found.unit == "ns" and found.x["values"] == sizes
    whole = {int(at[0]) for at in gpu.visited if at[0] < sizes[0]}
    assert whole == set(range(0, sizes[0], 32))  # all of it, before it is timed


def test_lanes_begin_at_so_many_lines(gpu):
    found = probes.lanes([2**12], (1, 4, 32), steps=16)
    assert found.series == {"16 KiB": [1e9] * 3}
    different = [len(set(at.tolist())) for at in gpu.visited]
    assert sorted(set(different)) == [1, 4, 32] and all(len(at) == 32 for at in gpu.visited)


@pytest.mark.slow
def test_loads_under_way_are_counted_for_all_of_the_chip(gpu, monkeypatch):
    monkeypatch.setattr(probes.chips, "here", lambda: types.SimpleNamespace(sms=2))
    found = probes.loads_under_way([4, 64, 2048], (1, 2), n=2**18)
    # a load takes a second: as many as there are places
    assert found["32 bytes of a line"].tolist() == pytest.approx([8e-9, 128e-9, 4096e-9])
    assert found["64 bytes of a line"].tolist() == pytest.approx([8e-9, 128e-9, 4096e-9])
    assert [func[3:] for func in gpu.built] == [(2, 32), (2, 64), (4, 1024)]
    lines = {len(set((at // 32).tolist())) for at in gpu.visited if len(at) == 128}
    assert lines == {128, 64}


def test_single_loads_are_differences_of_the_clock(gpu):
    found = probes.single_loads([2**12, 2**14], count=16, steps=64)
    assert found.series == {"16 KiB": [300.0] * 16, "64 KiB": [300.0] * 16}


def test_fma_rates_count_the_work_of_every_chain(gpu, monkeypatch):
    monkeypatch.setattr(probes.chips, "here", lambda: types.SimpleNamespace(sms=2))
    found = probes.fma_rates((1, 64), (1, 4), steps=8)
    # a second for each step of a chain: 2 operations of 32 lanes a warp, on 2 SMs
    assert found.at("1 chain a thread", 1) * 1e12 == pytest.approx(2 * 32 * 2)
    assert found.at("4 chains a thread", 64) * 1e12 == pytest.approx(2 * 32 * 64 * 2)
    assert found.unit == "TFLOPS"
    assert [func[1:3] for func in gpu.built] == [(2, 32), (4, 1024)] * 2


def test_the_corner_changes_one_thing_at_a_time(gpu, monkeypatch):
    monkeypatch.setattr(probes, "get_abc", lambda n: (None, None, None))
    found = probes.corner(steps=2)
    base, *others = [func[1:4] for func in gpu.built]
    assert base == (2**14, 256, 4)
    elements = [b * t * c for b, t, c in others]
    assert elements == [2**27, *[2**24] * 5] and len(found.x["values"]) == 7
    # a step of a chain takes a second
    assert found.at("FMA kernel", "as above") == pytest.approx(2 * 2**24 / 4 / 1e12)


def test_intensities_are_operations_for_each_byte(gpu):
    found = probes.intensities((1, 4), blocks=2, threads=32, chains=2)
    assert found.x["values"] == [0.25, 1.0]
    assert found["FMA kernel"].tolist() == pytest.approx([2 * 128 / 2 / 1e12] * 2)


def test_launch_times_have_a_range(gpu):
    found = probes.launch_times
    assert found.__doc__.startswith("µs of a copy")


def test_ways_to_hold_a_clock_to_a_call_on_the_host():
    calls = []
    asked = clocks.once_not_waiting(lambda: calls.append("run"), lambda: calls.append("wait"), 3)
    assert calls == ["wait", "run"] * 3 and 0 < asked.low <= asked.median <= asked.high < 1e-3


def test_waiting_once_divides_by_the_calls(gpu):
    def run():
        gpu.spend(3)

    assert clocks.waiting_once(run, lambda: gpu.spend(100), calls=10).median == 13
    assert clocks.waiting_for_each(run, lambda: gpu.spend(100)).median == 103


def test_five_ways_are_five(gpu):
    assert list(clocks.five_ways(lambda: gpu.spend(2), lambda: None)) == [
        "one call, not waiting",
        "one call, waiting",
        "100 calls, then waiting",
        "events",
        "events around a graph",
    ]


def test_a_cold_launch_comes_right_after_a_copy(gpu, monkeypatch):
    done = []
    monkeypatch.setattr(clocks, "get_abc", lambda n: (n, n, n))
    monkeypatch.setattr(clocks, "copy_unrolled", lambda n: "copy")
    copy = types.SimpleNamespace(bind=lambda *_: lambda: done.append("copy"))
    monkeypatch.setattr(clocks, "build", lambda func, _: copy)

    def contender(*_):
        def add():
            gpu.spend(1 if done[-1] == "add" else 2)
            done.append("add")

        return add

    found = clocks.warm_and_cold(contender, [2**10], rounds=3)
    assert found.at("warm", 2**10) == pytest.approx(2 * found.at("cold", 2**10))
    assert done == ["copy", "add", "add"] * 3 + ["copy", "add"] * 3


def test_power_and_what_was_watched_meanwhile(gpu, monkeypatch):
    clocks.under_power.cache_clear()
    monkeypatch.setattr(clocks, "_hot", lambda name: (lambda: gpu.spend(0.01), 10**12))

    @contextlib.contextmanager
    def watch(columns):
        samples = []
        yield samples
        samples += [(1980.0, 300.0, 0.0)] * 2 + [(1440.0, 690.0, 4.0), (1460.0, 696.0, 64.0)]

    monkeypatch.setattr(timing, "watch", watch)
    rates, seen = clocks.under_power("anything")
    assert rates == [100.0] * 10 and seen == [1450.0, 693.0, 0.5, 0.5, 0.0]
    clocks.under_power.cache_clear()


def test_rounds_in_turns_are_kept_one_by_one(gpu):
    def contender(*_):
        return lambda: gpu.spend(2e-6)

    found = clocks.in_turns({"a": contender, "b": contender}, 8, rounds=3)
    assert found.series == {"a": [2.0] * 3, "b": [2.0] * 3}


def test_a_copy_one_by_one_and_in_a_graph(gpu, monkeypatch):
    monkeypatch.setattr(clocks, "get_abc", lambda n: (n, n, n))
    contender = {"TVM": lambda a, c: lambda: gpu.spend(8)}
    found = clocks.one_by_one_and_in_a_graph(contender, 10**12)
    assert found["TVM"].tolist() == [1, 1] and found.values.tolist()[1] == "in a graph"
