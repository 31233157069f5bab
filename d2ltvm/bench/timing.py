"""Clocks. Both sides of a comparison are timed by the same one, in turns.

- `graph`: for GPU kernels. Many launches are captured into one CUDA graph, which is replayed
  between two CUDA events, so that neither Python nor the driver's launch path is in the time.
- `stream`: the same launches one by one on a stream, between two CUDA events. For small kernels it
  times how fast launches can be made.
- `burst` and `sustained`: as `graph`, for kernels that a GPU cannot run at full clock for long,
  since it has a limit on its power. In a burst the GPU rests for a tenth of a second before each
  round. Sustained, it does not rest, and a round is the mean of a whole second.
- `host`: for CPU code that returns when it is done: the host's clock around many calls.

All warm up first, and report the median of several rounds with the smallest and the largest.
"""

import contextlib
import functools
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from d2ltvm.bench.measurement import ClockNames, as_clocks, legends
from d2ltvm.errors import MissingError, as_number, shown, whole
from d2ltvm.system import devices

ROUNDS = 7  # unless D2LTVM_ROUNDS says otherwise: see `default_rounds`

Run = Callable[[], object]  # does the work once; its result is of no use here
Round = Callable[[], float]  # times one round: seconds for one call


def in_turn(launches: Sequence[Run]) -> Run:
    """A function that makes several launches, one after the other.

    >>> made = []
    >>> in_turn([lambda: made.append("copy"), lambda: made.append("kernel")])()
    >>> made
    ['copy', 'kernel']
    """

    def run() -> None:
        for launch in launches:
            launch()

    return run


@dataclass(frozen=True)
class Timing:
    """Seconds for one call: the `median` of the rounds, and their range from `low` to `high`."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, rounds: Sequence[float]) -> "Timing":
        """The timing that several rounds, in seconds, add up to."""
        return cls(statistics.median(rounds), min(rounds), max(rounds))


def time_together(
    runs: Mapping[Any, Run], clock: ClockNames = "graph", rounds: int | None = None
) -> dict[Any, Timing]:
    """Time several functions in turns, so that heat and other load meet all of them alike.

    >>> timings = time_together({"sum": lambda: sum(range(100)), "max": lambda: max(1, 2)}, "host")
    >>> timings["sum"].low <= timings["sum"].median <= timings["sum"].high
    True
    >>> time_together({"TVM": kernel.bind(a, b, c), "PyTorch": lambda: torch.add(x, y, out=z)}
    ... )  # doctest: +SKIP
    {'TVM': Timing(median=2.1e-06, ...), 'PyTorch': Timing(...)}

    Args:
        runs: functions without arguments, by name. Under the graph and stream clocks each launches
            GPU work on the current stream and does not wait for it; under the host clock each
            returns when the work is done.
        clock: 'graph', 'burst', 'sustained', 'stream' or 'host'; or several of them, one after
            the other, such as ('burst', 'sustained').
        rounds: how many rounds, a positive integer; None for `default_rounds()`.

    Returns:
        A `Timing`, in seconds per call, by name. Of several clocks, the second and those behind it
        add theirs to the names: 'TVM, sustained'.

    Raises:
        ValueError: `clock` or `rounds` is not as above.
        MissingError: there is no GPU, or no cuda-bindings, which all clocks but 'host' need.
    """
    rounds = default_rounds() if rounds is None else whole("rounds", rounds)
    return {
        legends(name, clock)[k]: timing
        for k, one in enumerate(as_clocks(clock))
        for name, timing in _time(runs, one, rounds).items()
    }


def default_rounds() -> int:
    """Rounds of a measurement: 7, or as many as the environment variable D2LTVM_ROUNDS says.

    With `pytest --nbval`, which compares no time, pages with sustained clocks take minutes less by
    it. Where records are made it counts for nothing.

    >>> default_rounds()
    7

    Raises:
        ValueError: the variable is no positive integer.
    """
    given = os.environ.get("D2LTVM_ROUNDS", "")
    if not given or os.environ.get("D2LTVM_RECORD", "0") not in ("", "0", "none"):
        return ROUNDS
    if not given.isdecimal() or not int(given):
        raise ValueError(f"D2LTVM_ROUNDS is {shown(given)}; expected a positive integer")
    return int(given)


def _time(runs: Mapping[Any, Run], clock: str, rounds: int) -> dict[Any, Timing]:
    """Timings by one clock."""
    if not runs:
        return {}
    with contextlib.nullcontext() if clock == "host" else cuda_stream() as stream:
        timer = _TIMERS[clock]
        timers = {name: timer(run, stream) for name, run in runs.items()}
        seconds: dict[Any, list[float]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, round_of in timers.items():
                seconds[name].append(round_of())
    return {name: Timing.of(values) for name, values in seconds.items()}


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Have the GPU's clocks for this process: others that want them wait until it ends.

    Several notebooks of the book may run at once on a GPU. They compile and check side by side, but
    are timed one after the other. A kernel that another process checks meanwhile is not held back:
    the median of the rounds is there for such. It may be entered again by who holds it. Where the
    lock cannot be had, since it is another user's, it is done without.

    >>> with alone():  # doctest: +SKIP
    ...     kernel(a, b, c)
    """
    import filelock  # here, since importing the package does without it

    lock = filelock.FileLock(_lock_path(), is_singleton=True)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(lock)
        yield


def _lock_path() -> str:
    """The file that stands for this GPU, by its place on the bus, on this machine."""
    place = cuda("cudaDeviceGetPCIBusId", 13, 0).split(b"\0")[0].decode().replace(":", "-")
    return str(Path(tempfile.gettempdir()) / f"d2ltvm-gpu-{place}.lock")


@contextlib.contextmanager
def cuda_stream() -> Iterator[int]:
    """A CUDA stream of our own, current for TVM and, where it is loaded, for PyTorch: `alone`."""
    devices.need_cuda("clock='host'")
    import tvm
    import tvm_ffi

    torch = sys.modules.get("torch")
    with contextlib.ExitStack() as stack:
        stack.enter_context(alone())
        stream = int(cuda("cudaStreamCreateWithFlags", 1))  # 1: does not wait for the default one
        stack.callback(cuda, "cudaStreamDestroy", stream)
        stack.enter_context(tvm_ffi.use_raw_stream(tvm.cuda(0), stream))
        if torch is not None and torch.cuda.is_available():
            stack.enter_context(torch.cuda.stream(torch.cuda.ExternalStream(stream)))
        yield stream


def capture(run: Run, launches: int, stream: int) -> Any:
    """A CUDA graph of `launches` calls of `run`, ready to be launched."""
    mode = _runtime().cudaStreamCaptureMode.cudaStreamCaptureModeRelaxed
    cuda("cudaStreamBeginCapture", stream, mode)
    try:
        for _ in range(launches):
            run()
    finally:
        graph = cuda("cudaStreamEndCapture", stream)
    if cuda("cudaGraphGetNodes", graph, 0)[1] == 0:
        raise RuntimeError("the CUDA graph is empty: `run` did not launch on the current stream")
    executable = cuda("cudaGraphInstantiate", graph, 0)
    cuda("cudaGraphDestroy", graph)
    return executable


def elapsed(work: Run, stream: int) -> float:
    """Seconds between two CUDA events around `work()`."""
    start, stop = cuda("cudaEventCreate"), cuda("cudaEventCreate")
    cuda("cudaEventRecord", start, stream)
    work()
    cuda("cudaEventRecord", stop, stream)
    cuda("cudaEventSynchronize", stop)
    milliseconds = cuda("cudaEventElapsedTime", start, stop)
    cuda("cudaEventDestroy", start)
    cuda("cudaEventDestroy", stop)
    return float(milliseconds) / 1e3


def over_time(run: Run, seconds: float = 4.0, step: float = 0.1, rest: float = 1.0) -> list[float]:
    """How long a call takes as time goes on, when it is repeated without a rest.

    >>> over_time(kernel.bind(x, w, y), seconds=0.3)  # doctest: +SKIP
    [0.000142, 0.000151, 0.000163]

    Args:
        run: a function that launches GPU work, as for `time_together`.
        seconds: for how long.
        step: seconds over which each mean is taken, a hundredth or more.
        rest: seconds for which the GPU rests before.

    Returns:
        The mean of seconds per call in each step, a list; NaN where no round began.

    Raises:
        ValueError: `step` is less, or `seconds` less than one step.
        MissingError: as for `time_together`.
    """
    seconds, step, rest = (
        as_number(name, value)
        for name, value in (("seconds", seconds), ("step", step), ("rest", rest))
    )
    if not step >= 0.01:
        raise ValueError(f"step is {step!r}; expected 0.01 s or more")
    if not step <= seconds < math.inf:
        raise ValueError(f"seconds is {seconds!r}; expected {step} or more")
    if not 0 <= rest < math.inf:
        raise ValueError(f"rest is {rest!r}; expected seconds, 0 or more")
    rounds: list[list[float]] = [[] for _ in range(round(seconds / step))]
    with cuda_stream() as stream:
        one_round = _graph_timer(run, stream)
        time.sleep(rest)
        start = time.perf_counter()
        while (k := int((time.perf_counter() - start) / step)) < len(rounds):
            rounds[k].append(one_round())
    return [statistics.mean(some) if some else float("nan") for some in rounds]


@contextlib.contextmanager
def watch(
    milliseconds: int = 100, columns: Sequence[str] = ("clocks.sm", "power.draw")
) -> Iterator[list[tuple[float, ...]]]:
    """Watch the clock and the power of the GPU while something runs on it.

    >>> with watch() as samples:  # doctest: +SKIP
    ...     work()
    >>> samples[-1]  # doctest: +SKIP
    (1755.0, 692.4)

    Args:
        milliseconds: time from one sample to the next.
        columns: what nvidia-smi is asked for, all of them numbers: `nvidia-smi --help-query-gpu`
            has the list.

    Yields:
        A list that is filled on leaving: for each sample a number for each of `columns`: the clock
        of the multiprocessors in MHz, and the power in W, which is its mean over the last second.

    Raises:
        MissingError: there is no GPU, or no nvidia-smi.
    """
    devices.need_cuda("clock='host'")
    samples: list[tuple[float, ...]] = []
    gpu = cuda("cudaDeviceGetPCIBusId", 16, 0)
    gpu = gpu.decode() if isinstance(gpu, bytes) else gpu
    query = [f"--query-gpu={','.join(columns)}", "--format=csv,noheader,nounits"]
    try:
        process = subprocess.Popen(
            ["nvidia-smi", "-i", gpu.partition("\0")[0], *query, "-lms", str(milliseconds)],
            stdout=subprocess.PIPE,
            text=True,
        )
    except OSError as error:
        raise MissingError(
            "nvidia-smi is not there", "timing", "sudo apt-get install nvidia-utils-580"
        ) from error
    try:
        yield samples
    finally:
        process.terminate()
        for line in process.communicate()[0].splitlines():
            with contextlib.suppress(ValueError):  # a line cut short, or [N/A]
                sample = tuple(map(_reading, line.split(",")))
                if len(sample) == len(columns):
                    samples.append(sample)


def _reading(text: str) -> float:
    """A number as nvidia-smi writes it: '1755.00', or a mask such as '0x0000000000000004'."""
    return float(int(text, 16)) if text.strip().startswith("0x") else float(text)


def cuda(function: str, *args: Any) -> Any:
    """Call a function of the CUDA runtime; its result, or RuntimeError with CUDA's own words."""
    runtime = _runtime()
    error, *result = getattr(runtime, function)(*args)
    if int(error) != 0:
        text = runtime.cudaGetErrorString(error)[1].decode()
        raise RuntimeError(f"{function} failed: {text}")
    return result[0] if len(result) == 1 else tuple(result)


def _runtime() -> Any:
    try:
        from cuda.bindings import runtime
    except ImportError as error:
        raise MissingError(
            "cuda-bindings is not installed", "everything but timing", "pip install cuda-bindings"
        ) from error
    return runtime


def _graph_timer(run: Run, stream: Any, target: float = 2e-3, most: int = 200) -> Round:
    """A function that times one round: about `target` seconds of graph replays, twice over."""
    launches = max(1, min(most, round(target / _estimate(run, stream))))
    graph = capture(run, launches, stream)

    def replay(times: int) -> float:
        launch = functools.partial(cuda, "cudaGraphLaunch", graph, stream)
        return elapsed(lambda: [launch() for _ in range(times)], stream)

    replay(1)
    times = max(2, min(50, round(target / replay(1))))
    return lambda: replay(times) / times / launches


def _burst_timer(run: Run, stream: Any, rest: float = 0.1) -> Round:
    """The same, after a rest and one round that is not timed."""
    one_round = _graph_timer(run, stream)

    def after_rest() -> float:
        time.sleep(rest)
        one_round()
        return one_round()

    return after_rest


def _sustained_timer(run: Run, stream: Any, before: float = 0.25, during: float = 1.0) -> Round:
    """The mean of so many seconds, after as many as `before` of the same.

    What keeps a GPU under its limit swings, on an H200 about once a second. So the mean is over a
    whole second. With turns of half a second, one of two contenders may have the slower half of
    every swing. Measured: hopper/over_time.
    """
    one_round = _graph_timer(run, stream)

    def in_turn() -> float:
        _repeat(one_round, before)
        return statistics.mean(_repeat(one_round, during))

    return in_turn


def _repeat(one_round: Round, seconds: float) -> list[float]:
    """The results of as many rounds as begin in so many seconds."""
    end = time.perf_counter() + seconds
    results: list[float] = []
    while time.perf_counter() < end:
        results.append(one_round())
    return results


def _stream_timer(run: Run, stream: Any, target: float = 4e-3) -> Round:
    calls = max(2, round(target / _estimate(run, stream)))
    return lambda: elapsed(lambda: [run() for _ in range(calls)], stream) / calls


def _estimate(run: Run, stream: Any) -> float:
    """Seconds of one launch on the stream, roughly, after a warm-up."""
    for _ in range(3):
        run()
    cuda("cudaStreamSynchronize", stream)
    return max(elapsed(lambda: [run() for _ in range(5)], stream) / 5, 1e-7)


def _host_timer(run: Run, _stream: Any, target: float = 0.02, between: float = 1e-4) -> Round:
    """A function that times one round: as many calls as it takes to spend `target` seconds.

    The clock is read after so many calls as should take `between`. A number of calls that is
    chosen once would last, where other programs come to share the cores, for minutes.
    """
    run()
    estimate = min(_host_seconds(run, 1) for _ in range(3))
    calls = max(1, round(between / max(estimate, 1e-7)))

    def one_round() -> float:
        seconds, made = 0.0, 0
        while seconds < target:
            seconds += _host_seconds(run, calls)
            made += calls
        return seconds / made

    return one_round


_TIMERS: dict[str, Callable[[Run, Any], Round]] = {
    "graph": _graph_timer,
    "burst": _burst_timer,
    "sustained": _sustained_timer,
    "stream": _stream_timer,
    "host": _host_timer,
}


def _host_seconds(run: Run, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return time.perf_counter() - start
