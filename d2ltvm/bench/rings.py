"""The rings of `d2ltvm.hopper.ring` on a Hopper: how fast they are, and when tiles come and go."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from d2ltvm.bench.hopper_layers import HOPPER, Setting
from d2ltvm.bench.measurement import Measurement, method
from d2ltvm.bench.timing import Timing, time_together
from d2ltvm.compiler.verify import WrongResultError
from d2ltvm.hopper import ring

LAUNCHES = 3  # of which the last one's clocks are kept


@dataclass(frozen=True)
class Stream:
    """What is streamed by which kernel.

    Attributes:
        kernel: a function as `ring.stream`, of rows of X, rows of a tile, slots and laps.
        n: rows of X, of 128 bytes.
        laps: how often X is read; many laps over a small X read it from L2.
    """

    kernel: Callable[..., Any]
    n: int
    laps: int = 1


def bench_rings(
    streams: Mapping[str, Stream],
    slots: Mapping[Any, tuple[int, int]],
    label: str,
    setting: Setting = HOPPER,
) -> Measurement:
    """TB/s of streams through rings of several kinds, in turns, in a burst, each checked first.

    >>> stream = Stream(ring.stream, 2**23)
    >>> bench_rings({"device memory": stream}, {8: (32, 2)}, "KiB")  # doctest: +SKIP
    Measurement(unit='TB/s', x={'label': 'KiB', 'values': [8]}, ...)

    Args:
        streams: by legend.
        slots: for each value of the x axis, the rows of a slot and how many slots there are.
        label: of the x axis.
        setting: where kernels run.

    Raises:
        WrongResultError: sums are not NumPy's.
    """
    times: dict[str, list[Timing]] = {legend: [] for legend in streams}
    for shape in slots.values():
        runs = {legend: _bound(stream, *shape, setting) for legend, stream in streams.items()}
        for legend, timing in time_together(runs, "burst").items():
            times[legend].append(timing)
    rates: dict[str, list[float]] = {}
    spread: dict[str, list[list[float]]] = {}
    for legend, stream in streams.items():
        rates[legend] = [_rate(stream, t.median) for t in times[legend]]
        spread[legend] = [[_rate(stream, t.high), _rate(stream, t.low)] for t in times[legend]]
    x = {"label": label, "values": list(slots)}
    return Measurement(unit="TB/s", x=x, series=rates, spread=spread, notes=method("burst"))


@functools.cache
def ring_clocks(
    stages: int, pause: int, rounds: int, n: int = 2**20, setting: Setting = HOPPER
) -> Any:
    """Clocks of block 0 of a watched ring of slots of 4 KiB, by event and round.

    >>> ring_clocks(4, pause=512, rounds=48).shape  # doctest: +SKIP
    (4, 48)

    Args:
        stages, pause, rounds, n: as for `ring.stream_watched`.
        setting: where it runs.

    Raises:
        WrongResultError: sums are not NumPy's.
    """
    kernel = setting.build(ring.stream_watched(n, _ROWS, stages, pause, rounds))
    want = _sums(n, _ROWS)
    sums = np.full(want.shape, np.nan, "float32")
    tensors = kernel.upload(
        [_whole_numbers(n), sums, np.zeros((len(ring.EVENTS), rounds), "uint64")]
    )
    for _ in range(LAUNCHES):
        kernel(*tensors)
    _same(tensors[1].numpy(), want)
    return tensors[2].numpy().astype("int64")


_ROWS = 32  # of a slot of 4 KiB


def _bound(stream: Stream, rows: int, stages: int, setting: Setting) -> Callable[[], object]:
    """The launch of a stream, whose result was compared."""
    kernel = setting.build(stream.kernel(stream.n, rows, stages, stream.laps))
    want = stream.laps * _sums(stream.n, rows)
    on_gpu = kernel.upload([_whole_numbers(stream.n), np.full(want.shape, np.nan, "float32")])
    kernel(*on_gpu)
    _same(on_gpu[1].numpy(), want)
    run: Callable[[], object] = kernel.bind(*on_gpu)
    return run


def _same(sums: Any, want: Any) -> None:
    """Sums of whole numbers are exact in float32, so that there is nothing to tolerate."""
    if not np.array_equal(sums, want):
        raise WrongResultError(f"{(sums != want).sum()} of {want.size} sums are wrong")


def _rate(stream: Stream, seconds: float) -> float:
    """TB/s of a stream, in as many digits as are worth keeping."""
    return float(f"{stream.laps * stream.n * ring.WIDTH * 2 / 1e12 / seconds:.5g}")


@functools.cache
def _whole_numbers(n: int) -> Any:
    """X whose sums are exact in float32: whole and small."""
    few = np.random.default_rng(0).integers(-8, 9, (65521, ring.WIDTH)).astype("float16")
    return np.resize(few, (n, ring.WIDTH))


@functools.cache
def _sums(n: int, rows: int) -> Any:
    """What one lap through them adds up to."""
    return ring.reference(_whole_numbers(n), rows)
