"""Benchmarks: clocks, contenders and baselines on the CPU, and on the GPU where there is one."""

import contextlib
import functools
import time
from types import SimpleNamespace

import numpy as np
import pytest
from fake_clock import FakeClock

import d2ltvm
from d2ltvm import schedules
from d2ltvm.bench import (
    contenders,
    d2l_names,
    libraries,
    operator_contenders,
    scoreboard,
    timing,
)
from d2ltvm.bench import run as bench_run
from d2ltvm.bench.run import as_measurement

needs_gpu = pytest.mark.skipif(not d2ltvm.has_cuda(), reason="needs an NVIDIA GPU")


@pytest.fixture
def clock(monkeypatch):
    return FakeClock(monkeypatch)


def test_the_host_clock_tells_two_sleeps_apart():
    """A sleep is never too short. A busy machine makes it too long: it tries again."""
    slept = {"short": 0.002, "long": 0.006}
    runs = {name: functools.partial(time.sleep, seconds) for name, seconds in slept.items()}
    for _ in range(20):
        timings = d2ltvm.time_together(runs, "host", rounds=3)
        for name, seconds in slept.items():
            assert seconds <= timings[name].low <= timings[name].median <= timings[name].high
        if timings["short"].median < slept["short"] + 0.003 and timings["long"].median < 0.009:
            return
    raise AssertionError(f"off by more than 3 ms each time, the last time {timings}")


def test_a_timing_is_the_median_of_its_rounds():
    assert timing.Timing.of([5.0, 1.0, 2.0]) == timing.Timing(2.0, 1.0, 5.0)


@pytest.mark.parametrize("slower", [1, 1000])
def test_a_round_of_the_host_ends_soon_where_calls_become_slow(monkeypatch, slower):
    """As they do when other programs come to share the cores."""
    now, made, seconds = [0.0], [0], 2e-6

    def call():
        made[0] += 1
        now[0] += seconds

    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    one_round = timing._host_timer(call, None)
    seconds *= slower
    start, made[0] = now[0], 0
    assert one_round() == pytest.approx(seconds)
    assert now[0] - start == pytest.approx(made[0] * seconds)
    assert 0.02 <= now[0] - start < 0.02 + 51 * seconds


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


@pytest.mark.parametrize("seconds", [-0.5, float("nan")])
def test_bench_workload_refuses_a_clock_that_goes_back(seconds):
    with pytest.raises(
        ValueError, match=rf"^workload\(1\) is {seconds}; expected seconds, 0 or more"
    ):
        d2ltvm.bench_workload(lambda repeats: seconds)
    with pytest.raises(ValueError, match=r"^workload\(5\) is -1.0; expected seconds"):
        d2ltvm.bench_workload(lambda repeats: 0.2 if repeats == 1 else -1)


@pytest.mark.slow
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
    assert np.isnan(result.by_clock("host")["absent"]).all()
    assert capsys.readouterr().out.count("absent is left out: no such library") == 1


def test_a_contender_gets_the_arrays_of_its_size_and_nothing_else(clock):
    given = []

    def contender(*arrays):
        given.append(arrays)
        return lambda: clock.spend(0.001 * len(arrays[0]))

    result = d2ltvm.bench_together(
        np.array([2, 5]), {"it": contender}, lambda n: (np.zeros(n),), clock="stream", xlabel="ms"
    )
    assert [[a.shape for a in arrays] for arrays in given] == [[(2,)], [(5,)]]
    assert clock.asked == [(["it"], "stream")] * 2
    assert result.unit == "µs" and result.x == {"label": "ms", "values": [2, 5]}
    assert result["it"] == pytest.approx([2000, 5000])


@pytest.mark.parametrize("sizes", [[], [1.5], ["8"]], ids=str)
def test_sizes_that_are_none(sizes):
    with pytest.raises(ValueError, match=r"^sizes is .*; expected"):
        d2ltvm.bench_together(sizes, {"NumPy": contenders.numpy_add()}, clock="host")


def test_work_a_second_is_of_the_median_and_its_spread_in_order():
    times = [{"TVM": timing.Timing(2.0, 1.0, 4.0)}, {"TVM": timing.Timing(0.5, 0.5, 0.5)}]
    result = as_measurement("n", [8, 16], times, "host", work=lambda n: n / 4, unit="GB/s")
    assert result.series == {"TVM": [1.0, 8.0]}
    assert result.spread == {"TVM": [[0.5, 2.0], [8.0, 8.0]]}
    assert result.unit == "GB/s" and result.notes.startswith("host clock")
    plain = as_measurement("n", [8, 16], times, "host", unit="GB/s")
    assert plain.unit == "µs" and plain.series == {"TVM": [2e6, 5e5]}


@pytest.fixture
def two_ms(clock, monkeypatch):
    """Whatever runs takes 2 ms, of MXNet and TVM alike."""
    given = clock.time_together

    def time_together(runs, clock_name):
        slowed = {name: lambda run=run: (run(), clock.spend(2e-3)) for name, run in runs.items()}
        return given(slowed, clock_name)

    monkeypatch.setattr(bench_run, "time_together", time_together)
    monkeypatch.setattr(d2l_names, "time_together", time_together)
    return clock.asked


def conv(*shape):
    return d2ltvm.schedule(d2ltvm.conv(*np.repeat(shape, (1, 1, 2, 2, 2, 2)).tolist())[:3])


def conv_hwcn(*shape):
    return d2ltvm.schedule(d2ltvm.compute.conv_hwcn(*shape)[:3])


def has_mxnet():
    try:
        return bool(libraries.mxnet())
    except d2ltvm.MissingError:
        return False


@pytest.fixture
def needs_mxnet():
    if not has_mxnet():
        pytest.skip("MXNet is not there")


def test_gflops_are_operations_by_seconds(two_ms):
    """By d2l-tvm's names, for each computation its own number of operations."""
    add = d2ltvm.bench_vector_add_tvm(schedules.cpu_vector_add, [64, 2**10], "llvm")
    rows = d2ltvm.bench_bcast_add_tvm(schedules.cpu_bcast_add, [32], "llvm")
    product = d2ltvm.bench_matmul_tvm(schedules.cpu_matmul, [16], "llvm")
    convolution = d2ltvm.bench_conv_tvm(conv, [(4, 9, 3)], "llvm")
    billion = 2e-3 * 1e9
    assert add == pytest.approx([64 / billion, 2**10 / billion])
    assert rows == pytest.approx([32**2 / billion])
    assert product == pytest.approx([2 * 16**3 / billion])
    assert convolution == pytest.approx([2 * 4 * 4 * 9**2 * 3**2 / billion])
    assert all(asked == ([""], "host") for asked in two_ms)


@pytest.mark.slow
def test_operators_by_d2l_tvms_names(two_ms):
    """GFLOPS of a depthwise convolution, seconds of a pooling and of a batch norm."""
    found = d2ltvm.bench_depthwise_conv_tvm(schedules.cpu_depthwise, [(4, 9, 3)], "llvm")
    assert found == pytest.approx([2 * 4 * 9**2 * 3**2 / 2e-3 / 1e9])
    sizes = [(4, 9, 3), (2, 8, 3)]
    for kind in ("max", "avg"):
        largest = kind == "max"
        func = lambda size, largest=largest: schedules.cpu_pool(*size, 1, 1, largest=largest)  # noqa: E731
        assert d2ltvm.bench_pooling_tvm(func, sizes, "llvm", kind).tolist() == [2e-3, 2e-3]
    norm = d2ltvm.bench_bn_tvm(lambda size: schedules.cpu_batch_norm(*size), [(4, 9)], "llvm")
    assert norm.tolist() == [2e-3]
    assert all(asked == ([""], "host") for asked in two_ms)


def test_a_pooling_that_is_another_is_not_timed(two_ms):
    with pytest.raises(d2ltvm.WrongResultError):
        d2ltvm.bench_pooling_tvm(
            lambda size: schedules.cpu_pool(*size, 1, 1), [(4, 9, 3)], "llvm", "avg"
        )
    assert not two_ms


@pytest.mark.slow
@pytest.mark.usefixtures("needs_mxnet")
def test_operators_of_mxnet(two_ms):
    found = d2ltvm.bench_depthwise_conv_mxnet([(4, 9, 3)])
    assert found == pytest.approx([2 * 4 * 9**2 * 3**2 / 2e-3 / 1e9])
    assert d2ltvm.bench_pooling_mxnet("max", [(4, 9, 3)]).tolist() == [2e-3]
    assert d2ltvm.bench_bn_mxnet([(4, 9)]).tolist() == [2e-3]


@pytest.mark.slow
@pytest.mark.usefixtures("needs_mxnet")
def test_mxnet_computes_what_the_kernels_do(monkeypatch):
    """The arrays that MXNet is given and writes are those of the definitions."""
    seen = []
    monkeypatch.setattr(operator_contenders, "_waiting", lambda call, out: seen.append((call, out)))
    data, weight, out = d2ltvm.get_conv_data(3, 3, 8, 3, 1, conv_type="depthwise")
    operator_contenders.mxnet_depthwise(1)(data, weight, out)
    operator_contenders.mxnet_pool("max", 3)(data, out)
    operator_contenders.mxnet_bn()(*d2ltvm.get_bn_data(3, 8))
    for call, _ in seen:
        call()
    got = [out.asnumpy()[0] for _, out in seen]
    *inputs, _ = d2ltvm.get_bn_data(3, 8)
    wanted = [
        d2ltvm.compute.depthwise_reference(data, weight, 1),
        d2ltvm.compute.pool_reference("max", data, 3, 1),
        operator_contenders.exact_bn(*inputs)[0],
    ]
    for one, want in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, want, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("needs_mxnet")
def test_gflops_of_mxnet(two_ms):
    billion = 2e-3 * 1e9
    assert d2ltvm.bench_vector_add_mxnet([64]) == pytest.approx([64 / billion])
    assert d2ltvm.bench_bcast_add_mxnet([32]) == pytest.approx([32**2 / billion])
    assert d2ltvm.bench_conv_mxnet([(4, 9, 3)]) == pytest.approx([2 * 16 * 9**4 / 9 / billion])


@pytest.mark.slow
def test_convolutions_are_timed_beside_the_library(two_ms):
    result = d2ltvm.bench_convs([2, 4], {"a": conv, "b": conv}, n=5, k=3, target="llvm")
    sides = ["MXNet", "a", "b"] if has_mxnet() else ["a", "b"]
    assert two_ms == [(sides, "host")] * 2
    assert list(result.series) == sides and result.x == {"label": "channels", "values": [2, 4]}
    assert result.missing == (() if has_mxnet() else ("MXNet",))
    assert result.unit == "µs" and result["b"].tolist() == [2000, 2000]
    assert result.spread["a"] == [[1000, 4000]] * 2


def test_products_are_timed_beside_the_library(two_ms):
    result = d2ltvm.bench_products([64], {"a": schedules.cpu_matmul}, target="llvm")
    assert two_ms == [(["NumPy", "a"], "host")] and result.unit == "GFLOPS"
    assert result["a"].tolist() == pytest.approx([2 * 64**3 / 2e-3 / 1e9])


@pytest.mark.slow
def test_a_wrong_convolution_is_not_timed(two_ms):
    def doubled(*shape):
        from tvm import te

        X, K, Y = d2ltvm.conv(*np.repeat(shape, (1, 1, 2, 2, 2, 2)).tolist())[:3]
        return d2ltvm.schedule([X, K, te.compute(Y.shape, lambda *i: 2 * Y(*i), name="Z")])

    with pytest.raises(d2ltvm.WrongResultError):
        d2ltvm.bench_convs([4], {"wrong": doubled}, n=5, target="llvm")
    assert not two_ms


@pytest.mark.slow
def test_convolutions_of_a_batch(two_ms):
    shape = (6, 4, 3, 5, 3, 1, 2)
    result = d2ltvm.bench.bench_batched({"plain": conv_hwcn}, shape, target="llvm")
    assert result.x == {"label": "batch", "values": [6]} and result["plain"].tolist() == [2000]
    several = d2ltvm.bench.bench_batched(
        {"plain": conv_hwcn}, shape, batches=np.array([1, 7]), target="llvm"
    )
    assert several.x["values"] == [1, 7]
    assert two_ms == [(["plain"], "host")] * 3


def test_a_wrong_batch_is_not_timed(two_ms):
    with pytest.raises(d2ltvm.WrongResultError, match=r"^Y\["):
        d2ltvm.bench.bench_batched({"turned": turned_round}, (6, 4, 3, 6, 3, 1, 1), target="llvm")
    with pytest.raises(ValueError, match="layout is 'nchw'; expected 'hwcn' or 'nhwcnc'"):
        d2ltvm.bench.bench_batched({}, (6, 4, 3, 5, 3, 1, 1), layout="nchw", target="llvm")
    assert not two_ms


def turned_round(*shape):
    """A convolution of the right shape, whose images are turned round."""
    from tvm import te

    X, W, Y, _ = d2ltvm.compute.conv_hwcn(*shape)
    n = shape[0]
    turned = te.compute(Y.shape, lambda y, x, c, b: Y[y, x, c, n - 1 - b], name="Z")
    return d2ltvm.schedule([X, W, turned])


@pytest.mark.skipif(d2ltvm.has_cuda(), reason="a GPU is there")
def test_without_a_gpu_convolutions_are_not_timed_as_if_there_were_one():
    with pytest.raises(d2ltvm.MissingError):
        d2ltvm.bench_convs([4], {"a": conv})
    with pytest.raises(d2ltvm.MissingError):
        d2ltvm.bench.bench_batched({"a": conv_hwcn}, (6, 4, 3, 5, 3, 1, 1))


@pytest.mark.parametrize("clock", ["graph", "burst", "sustained", "stream"])
def test_without_a_gpu_its_clocks_say_so_in_one_line(clock, monkeypatch):
    monkeypatch.setenv("D2LTVM_NO_CUDA", "1")
    add = {"add": lambda a, b, c: lambda: np.add(a, b, out=c)}
    with pytest.raises(
        d2ltvm.MissingError, match=r"GPU is hidden .*; what still works: clock='host'"
    ):
        d2ltvm.bench_together([64], add, clock=clock)
    assert d2ltvm.bench_together([64], add, clock="host").at("add", 64) > 0


def test_without_a_gpu_neither_its_time_nor_its_power_is_watched(monkeypatch):
    monkeypatch.setenv("D2LTVM_NO_CUDA", "1")
    with pytest.raises(d2ltvm.MissingError, match="GPU is hidden"):
        timing.over_time(lambda: None)
    with pytest.raises(d2ltvm.MissingError, match="GPU is hidden"), timing.watch():
        pass


@needs_gpu
def test_convolutions_are_timed_beside_cudnn():
    pytest.importorskip("torch")
    result = d2ltvm.bench_convs([64], {"tiling": schedules.tiling})
    assert list(result.series) == ["cuDNN", "tiling"]
    assert result.at("cuDNN", 64) < result.at("tiling", 64) < 100 * result.at("cuDNN", 64)


class Tensor:
    """An array as PyTorch has it, with the format that it was asked for."""

    def __init__(self, array, layout="NCHW"):
        self.array, self.dtype, self.layout = array, str(array.dtype), layout

    def cuda(self):
        return self

    def contiguous(self, memory_format):
        return Tensor(self.array, memory_format)


def torch_that_notes_calls():
    """PyTorch's part in a convolution: `called` has layouts and TF32's flag, a pair a call."""
    cudnn = SimpleNamespace(benchmark=False, benchmark_limit=10, allow_tf32=True)
    called = []

    def conv2d(x, w, stride, padding):
        called.append((x.layout, w.layout, cudnn.allow_tf32))

    functional = SimpleNamespace(conv2d=conv2d, pad=lambda x, _: Tensor(x.array, x.layout))
    return SimpleNamespace(
        backends=SimpleNamespace(cudnn=cudnn), from_numpy=Tensor, float16="float16",
        channels_last="NHWC", nn=SimpleNamespace(functional=functional), called=called,
    )  # fmt: skip


def test_cudnns_layout_and_tf32_are_those_that_were_asked_for(monkeypatch):
    """In turns too: what is allowed is for all of PyTorch, and each run says what it wants."""
    torch = torch_that_notes_calls()
    monkeypatch.setattr(contenders, "torch_cuda", lambda: torch)
    arrays = d2ltvm.get_conv_data(4, 4, 8, 3, 1)
    asked = [(False, False), (True, False), (False, True), (True, True)]
    runs = [
        d2ltvm.contenders.torch_conv(1, channels_last=last, tf32=tf32)(*arrays)
        for last, tf32 in asked
    ]
    cudnn = torch.backends.cudnn
    assert cudnn.benchmark is True and cudnn.benchmark_limit == 0
    torch.called.clear()
    for run in (*runs, *reversed(runs)):
        run()
    layouts = [("NHWC" if last else "NCHW", tf32) for last, tf32 in asked]
    expected = [(layout, layout, tf32) for layout, tf32 in (*layouts, *reversed(layouts))]
    assert torch.called == expected


@pytest.mark.parametrize(("dtype", "layout"), [("float32", "NCHW"), ("float16", "NHWC")])
def test_cudnn_gets_float16_with_channels_last_and_never_tf32_unasked(monkeypatch, dtype, layout):
    torch = torch_that_notes_calls()
    monkeypatch.setattr(contenders, "torch_cuda", lambda: torch)
    d2ltvm.contenders.torch_conv_batch(1)(*d2ltvm.compute.get_conv_batch(2, 4, 4, 8, 3, dtype))
    assert set(torch.called) == {(layout, layout, False)}


def test_names_of_kernels_are_those_of_the_gpu(monkeypatch):
    """The profiler's own entries, without an underscore, are left out."""
    events = [SimpleNamespace(key=key) for key in ("Activity Buffer Request", "a_kernel", "b_c")]
    seen = SimpleNamespace(key_averages=lambda: events)
    ran = []
    torch = SimpleNamespace(
        profiler=SimpleNamespace(
            ProfilerActivity=SimpleNamespace(CUDA="cuda"),
            profile=lambda activities: contextlib.nullcontext(seen),
        ),
        cuda=SimpleNamespace(synchronize=lambda: ran.append("waited")),
    )
    monkeypatch.setattr(libraries, "torch_cuda", lambda: torch)
    assert libraries.torch_kernels(lambda: ran.append("run")) == ["a_kernel", "b_c"]
    assert ran == ["run", "waited"]


def test_a_wrong_kernel_is_not_timed():
    def subtract(n):
        A, B, _ = d2ltvm.vector_add(n)
        from tvm import te

        return d2ltvm.schedule([A, B, te.compute((n,), lambda i: A[i] - B[i], name="C")])

    with pytest.raises(d2ltvm.WrongResultError):
        d2ltvm.bench_vector_add_tvm(subtract, [64], "llvm")


def test_mxnet_is_refused_under_numpy_2(monkeypatch):
    monkeypatch.setattr(np, "__version__", "2.1.0")
    with pytest.raises(d2ltvm.MissingError, match=r"cannot be imported under NumPy 2\.1\.0"):
        d2ltvm.bench.libraries.mxnet()


def test_mxnet_context_is_cpu_or_gpu():
    with pytest.raises(ValueError, match="ctx is 'tpu'; expected 'cpu' or 'gpu'"):
        d2ltvm.bench.libraries.mxnet_context("tpu")


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
    workload = next(w for w in scoreboard.benchmarks() if w.device == "cpu")
    name = workload.library[0]
    record = d2ltvm.bench.Record(
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
        "#!/bin/sh\n"
        + "".join(f"echo '{line}'\n" for line in lines)
        + f": > '{folder}/said'\nexec sleep 60\n"
    )
    program.chmod(0o755)


@pytest.fixture
def gpu(monkeypatch):
    """As if there were a GPU, which says where it is on the bus."""
    monkeypatch.setattr(timing.devices, "has_cuda", lambda: True)
    monkeypatch.setattr(timing, "cuda", lambda *args: b"0000:19:00.0\0\0\0\0")


def test_watch_gives_clock_and_power_and_leaves_out_what_it_cannot_read(gpu, tmp_path, monkeypatch):
    fake_nvidia_smi(tmp_path, ["1980, 312.50", "[N/A], 300", "1755, 698.1", "17"])
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with timing.watch() as samples:
        while not (tmp_path / "said").exists():
            time.sleep(0.01)
    assert samples == [(1980.0, 312.5), (1755.0, 698.1)]


def test_watch_without_nvidia_smi_says_so(gpu, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(d2ltvm.MissingError, match="nvidia-smi"), timing.watch():
        pass
