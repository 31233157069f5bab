"""Benchmarks: clocks, contenders and baselines on the CPU, and on the GPU where there is one."""

import contextlib
import time

import numpy as np
import pytest

import d2ltvm
from d2ltvm import schedules
from d2ltvm.bench import contenders, libraries, scoreboard, timing

needs_gpu = pytest.mark.skipif(not d2ltvm.has_cuda(), reason="needs an NVIDIA GPU")


def test_the_host_clock_tells_two_sleeps_apart():
    runs = {"short": lambda: time.sleep(0.002), "long": lambda: time.sleep(0.006)}
    timings = d2ltvm.time_together(runs, "host", rounds=3)
    for name, seconds in (("short", 0.002), ("long", 0.006)):
        t = timings[name]
        assert t.low <= t.median <= t.high
        assert seconds <= t.median < seconds + 0.003


def test_a_timing_is_the_median_of_its_rounds():
    assert timing.Timing.of([5.0, 1.0, 2.0]) == timing.Timing(2.0, 1.0, 5.0)


@pytest.fixture
def swinging(monkeypatch):
    """A GPU whose calls take 1 s and, in every second half of a second, 1.1 s; and its time."""

    class FakeTime:
        now = 0.0

        def perf_counter(self):
            return self.now

        def sleep(self, seconds):
            self.now += seconds

    fake = FakeTime()

    def one_round():
        seconds = 1.0 if fake.now % 1.0 < 0.5 else 1.1
        fake.now += 0.004 * seconds
        return seconds

    monkeypatch.setattr(timing, "time", fake)
    monkeypatch.setattr(timing, "cuda_stream", contextlib.nullcontext)
    monkeypatch.setattr(timing, "_graph_timer", lambda run, stream: one_round)
    return fake


def test_sustained_does_not_favour_the_first_of_two(swinging):
    """A clock that swings with a period of a second treats both alike, in either order."""
    first, second = (timing._sustained_timer(None, None) for _ in range(2))
    rounds = [(first(), second()) for _ in range(7)]
    means = [timing.Timing.of(found).median for found in zip(*rounds, strict=True)]
    assert means == pytest.approx([1.047, 1.047], abs=0.003)
    assert swinging.now >= 14 * 1.25


def test_over_time(swinging):
    found = timing.over_time(None, seconds=2, step=0.25, rest=3)
    assert found == pytest.approx([1, 1, 1.1, 1.1, 1, 1, 1.1, 1.1], abs=0.01)
    assert swinging.now == pytest.approx(5, abs=0.01)


def test_over_time_where_no_round_begins(swinging, monkeypatch):
    monkeypatch.setattr(
        timing, "_graph_timer", lambda run, stream: lambda: swinging.sleep(0.025) or 7.0
    )
    found = timing.over_time(None, seconds=0.04, step=0.01, rest=0)
    assert np.isnan(found[1]) and found[0] == found[2] == 7


@pytest.mark.parametrize("argument, value", [("step", 0.001), ("seconds", 0.05)])
def test_over_time_arguments(argument, value):
    with pytest.raises(ValueError, match=f"{argument} is {value}"):
        timing.over_time(None, **{argument: value})


def test_several_clocks_one_after_the_other():
    calls = {"a": 0, "b": 0}

    def count(name):
        calls[name] += 1
        time.sleep(0.001 if name == "a" else 0.004)

    runs = {name: lambda name=name: count(name) for name in calls}
    timings = d2ltvm.time_together(runs, ("host", "host"), rounds=1)
    assert list(timings) == ["a", "b", "a, host", "b, host"]
    assert timings["a, host"].median < timings["b, host"].median
    assert min(calls.values()) >= 4  # at least a warm-up and a round by each


@pytest.mark.parametrize(
    ("argument", "value", "given"),
    [("clock", "sundial", "sundial"), ("clock", "x", ("host", "x")), ("rounds", 0, 0)],
)
def test_clock_arguments(argument, value, given):
    with pytest.raises(ValueError, match=f"{argument} is {value!r}"):
        d2ltvm.time_together({"nothing": lambda: None}, **{argument: given})


def test_bench_workload_divides_by_its_repeats():
    calls = []

    def workload(repeats):
        calls.append(repeats)
        return repeats * 0.25

    assert d2ltvm.bench_workload(workload) == 0.25
    assert calls == [1, 1, 5]
    assert d2ltvm.bench_workload(lambda repeats: 3.0 * repeats) == 3.0


def test_contenders_are_timed_side_by_side_and_missing_ones_named(capsys):
    def absent(*arrays):
        raise d2ltvm.MissingError("no such library", "the rest", "install it")

    result = d2ltvm.bench_together(
        [64, 128],
        {
            "NumPy": d2ltvm.contenders.numpy_add(),
            "absent": absent,
            "TVM": d2ltvm.contenders.tvm_add(schedules.cpu_vector_add, "llvm"),
        },
        work=lambda n: n / 1e9,
        clock=("host", "host"),
    )
    assert result.x["values"] == [64, 128]
    assert result.missing == ("absent", "absent, host")
    assert set(result.series) == {"NumPy", "TVM", "NumPy, host", "TVM, host"}
    assert result.notes.count("host clock") == 2
    for legend, values in result.series.items():
        for value, (low, high) in zip(values, result.spread[legend], strict=True):
            assert 0 < low <= value <= high
    assert capsys.readouterr().out.count("absent is left out: no such library") == 1


def test_without_work_the_result_is_microseconds():
    result = d2ltvm.bench_together([8], {"NumPy": d2ltvm.contenders.numpy_add()}, clock="host")
    assert result.unit == "µs" and 0.05 < result.series["NumPy"][0] < 1000


def test_a_wrong_kernel_is_not_timed():
    def subtract(n):
        A, B, _ = d2ltvm.vector_add(n)
        from tvm import te

        return d2ltvm.schedule([A, B, te.compute((n,), lambda i: A[i] - B[i], name="C")])

    with pytest.raises(d2ltvm.WrongResultError):
        d2ltvm.bench_vector_add_tvm(subtract, [64], "llvm")


def test_d2ltvm_names_return_gflops():
    for gflops in (
        d2ltvm.bench_vector_add_tvm(schedules.cpu_vector_add, [2**16], "llvm"),
        d2ltvm.bench_bcast_add_tvm(schedules.cpu_bcast_add, [256], "llvm"),
    ):
        assert gflops.shape == (1,) and 1e-4 < gflops[0] < 1000  # slow where cores are busy


def test_mxnet_runs_beside_tvm():
    try:
        d2ltvm.libraries.mxnet()
    except d2ltvm.MissingError as error:
        pytest.skip(str(error))
    a, b, c = d2ltvm.bcast_data(16)
    contenders.mxnet_add("cpu")(a, b, c)()
    assert d2ltvm.bench_vector_add_mxnet([1024])[0] > 0
    assert d2ltvm.bench_bcast_add_mxnet([64])[0] > 0


def test_mxnet_is_refused_under_numpy_2(monkeypatch):
    monkeypatch.setattr(np, "__version__", "2.1.0")
    with pytest.raises(d2ltvm.MissingError, match=r"cannot be imported under NumPy 2\.1\.0"):
        d2ltvm.libraries.mxnet()


def test_mxnet_context_is_cpu_or_gpu():
    with pytest.raises(ValueError, match="ctx is 'tpu'; expected 'cpu' or 'gpu'"):
        d2ltvm.libraries.mxnet_context("tpu")


@pytest.mark.parametrize(
    ("capability", "runs"),
    [
        ((7, 0), True),
        ((7, 5), True),
        ((8, 0), True),
        ((8, 9), True),
        ((9, 0), False),
        ((3, 7), False),
    ],
)
def test_which_gpus_mxnet_has_code_for(capability, runs):
    problem = libraries.mxnet_gpu_problem(capability)
    assert (problem is None) == runs
    if problem:
        assert "{}.{}".format(*capability) in problem


@pytest.mark.skipif(d2ltvm.has_cuda(), reason="a GPU is there")
def test_without_a_gpu_the_torch_baseline_says_so():
    with pytest.raises(d2ltvm.MissingError, match="PyTorch"):
        d2ltvm.bench_vector_add_torch([64])


def test_scoreboard_rows_and_table():
    workload = next(w for w in scoreboard.workloads() if w.device == "cpu")
    name = workload.library[0]
    record = d2ltvm.Record(
        name="scoreboard/x",
        unit="GB/s",
        x={"label": "n", "values": [1]},
        series={name: [10.0], scoreboard.OURS: [12.0]},
        device={"name": "chip", "driver": "", "cuda": ""},
        date="2026-01-01",
    )
    (row,) = scoreboard.rows(workload, record)
    assert row["ratio"] == 1.2
    text = scoreboard.table([row, {"workload": "other", "device": "cuda", "missing": "no record"}])
    assert "1.20" in text and "no record" in text and "chip" in text


@needs_gpu
def test_the_graph_clock_agrees_with_the_datasheet_within_reason():
    gflops = d2ltvm.bench_vector_add_tvm(schedules.unrolled, [2**26], "cuda")[0]
    terabytes = gflops * 12 / 1e3
    assert 0.2 < terabytes < 8  # T4: 0.32 TB/s, H200: 4.8 TB/s


@needs_gpu
def test_an_empty_graph_is_refused():
    with pytest.raises(RuntimeError, match="graph is empty"):
        d2ltvm.time_together({"nothing": lambda: None}, "graph")


def fake_nvidia_smi(folder, lines):
    program = folder / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines) + "exec sleep 9\n"
    )
    program.chmod(0o755)


def test_watch_gives_clock_and_power_and_leaves_out_what_it_cannot_read(tmp_path, monkeypatch):
    fake_nvidia_smi(tmp_path, ["1980, 312.50", "[N/A], 300", "1755, 698.1", "17"])
    monkeypatch.setattr(timing, "cuda", lambda *args: b"0000:19:00.0\0\0\0\0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with timing.watch() as samples:
        time.sleep(0.3)
    assert samples == [(1980.0, 312.5), (1755.0, 698.1)]


def test_watch_without_nvidia_smi_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "cuda", lambda *args: b"0000:19:00.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(d2ltvm.MissingError, match="nvidia-smi"), timing.watch():
        pass
