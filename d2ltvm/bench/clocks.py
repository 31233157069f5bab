"""The same kernel by several clocks, and under several conditions: what moves a measured time.

For the chapters on measuring. Each function that times on the GPU returns a `Measurement`, for
`d2ltvm.measure`; `timing` has the clocks that the rest of the book uses.
"""

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm

from d2ltvm.bench import timing
from d2ltvm.bench.contenders import Contender, Schedule
from d2ltvm.bench.libraries import torch_cuda
from d2ltvm.bench.measurement import Measurement
from d2ltvm.bench.run import as_measurement, as_sizes
from d2ltvm.bench.timing import Run, Timing
from d2ltvm.compiler.cubin import ensure_cuda_compiler
from d2ltvm.compiler.kernel import build
from d2ltvm.compiler.lowering import as_module, lower
from d2ltvm.compute.data import get_abc
from d2ltvm.schedules.elementwise import copy_unrolled
from d2ltvm.schedules.multiply_add import fma_kernel
from d2ltvm.system import chips, devices

WaitForDevice = Callable[[], object]  # returns when all work that was asked for is done


def once_not_waiting(run: Run, wait: WaitForDevice, calls: int = 101) -> Timing:
    """Seconds until a single call returns, while the GPU has nothing else to do.

    >>> once_not_waiting(lambda: None, lambda: None).median < 1e-3
    True
    """
    seconds = []
    for _ in range(calls):
        wait()
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return Timing.of(seconds)


def waiting_for_each(run: Run, wait: WaitForDevice) -> Timing:
    """Seconds of a call that returns when its work is done."""

    def both() -> None:
        run()
        wait()

    return timing.time_together({"": both}, "host")[""]


def waiting_once(run: Run, wait: WaitForDevice, calls: int = 100) -> Timing:
    """Seconds of a call, of many that are made before anybody waits."""

    def many() -> None:
        for _ in range(calls):
            run()
        wait()

    t = timing.time_together({"": many}, "host")[""]
    return Timing(t.median / calls, t.low / calls, t.high / calls)


def five_ways(run: Run, wait: WaitForDevice) -> dict[str, Timing]:
    """Seconds of one call by five clocks, by the clock's name."""
    return {
        "one call, not waiting": once_not_waiting(run, wait),
        "one call, waiting": waiting_for_each(run, wait),
        "100 calls, then waiting": waiting_once(run, wait),
        "events": timing.time_together({"": run}, "stream")[""],
        "events around a graph": timing.time_together({"": run}, "graph")[""],
    }


def sweep(contender: Contender, wait: WaitForDevice, sizes: Iterable[int]) -> Measurement:
    """µs of a vector add by five clocks, a series for each, at several sizes."""
    counts = as_sizes(sizes)
    times = [five_ways(contender(*get_abc(n)), wait) for n in counts]
    found = as_measurement("n", counts, times)
    found.notes = "time of one vector add, by five clocks; data on the GPU, warm"
    return found


def by_time_evaluator(
    func: Schedule, sizes: Iterable[int], numbers: Sequence[int] = (1, 100), repeat: int = 15
) -> Measurement:
    """µs of a vector add by TVM's own `time_evaluator`, a series for each number of calls.

    Args:
        func: function of a size that returns a schedule of an addition.
        sizes: the sizes.
        numbers: of calls between two events.
        repeat: how many means over so many calls are taken.
    """
    counts = as_sizes(sizes)
    ensure_cuda_compiler()
    times = []
    for n in counts:
        executable = lower(as_module(func(n)), devices.as_target("cuda"), None).executable
        arrays = [tvm.runtime.tensor(a, device=tvm.cuda(0)) for a in get_abc(n)]
        found = {}
        for number in numbers:
            clock = executable.mod.time_evaluator("main", tvm.cuda(0), number=number, repeat=repeat)
            with timing.alone():
                clock(*arrays)  # warm
                seconds = [float(s) for s in clock(*arrays).results]
            found[f"number={number}"] = Timing.of(seconds)
        times.append(found)
    result = as_measurement("n", counts, times)
    result.notes = f"TVM's time_evaluator, repeat={repeat}, after one that was not kept; medians"
    return result


def first_calls(func: Schedule, n: int = 2**20, calls: int = 10) -> Measurement:
    """µs of the first calls of a kernel, one after the other: a new one, and one that has run."""
    fresh = build(func(n), "cuda").bind(*get_abc(n))
    before = build(func(n), "cuda").bind(*get_abc(n))
    before()
    timing.cuda("cudaDeviceSynchronize")
    with timing.cuda_stream() as stream:
        series = {
            name: [float(f"{timing.elapsed(f, stream) * 1e6:.4g}") for _ in range(calls)]
            for name, f in (("a new kernel", fresh), ("one that has run before", before))
        }
    return Measurement(
        unit="µs",
        x={"label": "call", "values": list(range(1, calls + 1))},
        series=series,
        notes="each call between two CUDA events of its own, waiting for each",
    )


def warm_and_cold(contender: Contender, sizes: Iterable[int], rounds: int = 21) -> Measurement:
    """TB/s of a vector add whose data the L2 cache may hold, and after a copy that fills it.

    Each is a single launch between events. Before the warm one the same copy is made, and one
    addition that nobody times.
    """
    counts = as_sizes(sizes)
    filling = 2**26
    copy = build(copy_unrolled(filling), "cuda").bind(*get_abc(filling)[::2])
    times = []
    for n in counts:
        launch = contender(*get_abc(n))
        found = {}
        for name, before in (("warm", (copy, launch)), ("cold", (copy,))):
            seconds = []
            with timing.cuda_stream() as stream:
                for _ in range(rounds):
                    for prepare in before:
                        prepare()
                    seconds.append(timing.elapsed(launch, stream))
            found[name] = Timing.of(seconds)
        times.append(found)
    result = as_measurement("n", counts, times, "stream", lambda n: 12 * n / 1e12, "TB/s")
    result.notes = (
        f"vector add; single launches between events, after a copy of 256 MiB; median of {rounds}"
    )
    return result


# What the driver gives as a reason for a lower clock, bit by bit.
# Source: NVML API reference, clocks event reasons.
REASONS = {"its limit of power": 0x04, "heat": 0x20 | 0x40, "the board": 0x08 | 0x80}


@functools.cache
def under_power(name: str, windows: int = 10, seconds: float = 0.3) -> tuple[list[float], Any]:
    """TFLOPS of some seconds of work, window by window, and what was watched meanwhile.

    Args:
        name: 'random numbers' or 'zeros', of a product in float16; or 'FMA kernel'.
        windows: how many.
        seconds: of each.

    Returns:
        The rates; and clock (MHz), power (W) and the share of samples that gave each of `REASONS`,
        medians and means over the second half.
    """
    run, operations = _hot(name)
    once = timing.time_together({"": run}, "stream", rounds=1)[""].median
    times = max(1, round(seconds / once))

    def work() -> None:
        for _ in range(times):
            run()

    columns = ("clocks.sm", "power.draw", "clocks_event_reasons.active")
    with timing.cuda_stream() as stream, timing.watch(columns=columns) as samples:
        spent = [timing.elapsed(work, stream) for _ in range(windows)]
    late = np.array(samples[len(samples) // 2 :])
    seen = [float(np.mean(late[:, 2].astype(int) & bits > 0)) for bits in REASONS.values()]
    rates = [float(f"{operations * times / s / 1e12:.5g}") for s in spent]
    return rates, [*np.median(late[:, :2], axis=0).tolist(), *seen]


def _hot(name: str, n: int = 8192) -> tuple[Run, int]:
    """Work that draws much power, and how many operations it makes."""
    if name == "FMA kernel":
        blocks, steps = 2 * chips.here().sms, 2**16
        a, _, c = get_abc(blocks * 1024 * 4)
        return build(fma_kernel(blocks, 1024, 4, steps), "cuda").bind(a, c), 2 * a.size * steps
    torch = torch_cuda()
    fill = {"random numbers": torch.randn, "zeros": torch.zeros}[name]
    x, y = (fill(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
    return functools.partial(torch.matmul, x, y, out=torch.empty_like(x)), 2 * n**3


def power(names: Sequence[str]) -> Measurement:
    """TFLOPS in each tenth of a run of about three seconds, by what is worked on."""
    return Measurement(
        unit="TFLOPS",
        x={"label": "tenth of the run", "values": list(range(1, 11))},
        series={name: under_power(name)[0] for name in names},
        notes="products: cuBLAS, float16, 8192 x 8192; ten windows of 0.3 s one after another",
    )


def meanwhile(names: Sequence[str]) -> Measurement:
    """Clock, power and the driver's reasons for a lower clock, of the same runs as `power`'s."""
    what = ["clock (MHz)", "power (W)", *REASONS]
    return Measurement(
        unit="as named; reasons: share of samples",
        x={"label": "", "values": what},
        series={name: under_power(name)[1] for name in names},
        notes="medians over the second half of each run, from nvidia-smi",
    )


def in_turns(contenders: Mapping[str, Contender], n: int, rounds: int = 40) -> Measurement:
    """µs of each of many rounds of several contenders, in turns, by CUDA graphs."""
    data = get_abc(n)
    runs = {name: contender(*data) for name, contender in contenders.items()}
    series: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, t in timing.time_together(runs, "graph", rounds=1).items():
            series[name].append(float(f"{t.median * 1e6:.5g}"))
    return Measurement(
        unit="µs",
        x={"label": "round", "values": list(range(1, rounds + 1))},
        series=series,
        notes=f"vector add of {n} floats, CUDA graphs, in turns",
    )


def one_by_one_and_in_a_graph(contenders: Mapping[str, Contender], n: int = 2**28) -> Measurement:
    """TB/s of a copy between CUDA events: launched one by one, and in a CUDA graph."""
    a, _, c = get_abc(n)
    times: list[dict[str, Timing]] = []
    runs = {name: contender(a, c) for name, contender in contenders.items()}
    times = [timing.time_together(runs, which) for which in ("stream", "graph")]
    found = as_measurement(
        "how", ["one by one", "in a graph"], times, "stream", lambda _: 8 * n / 1e12, "TB/s"
    )
    found.notes = f"copy of {n} floats, between CUDA events, in turns"
    return found
