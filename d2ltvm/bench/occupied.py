"""Launches timed while some multiprocessors are taken: what is left for a kernel can be chosen.

A blocker is a block that takes all shared memory of a multiprocessor, so that no other block fits
beside it, and waits. It is written in CUDA: TVM has no name for the clock that it looks at.
"""

import contextlib
import ctypes
import functools
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from d2ltvm.bench import timing
from d2ltvm.bench.measurement import Measurement
from d2ltvm.bench.timing import Run
from d2ltvm.compiler import cubin
from d2ltvm.errors import MissingError
from d2ltvm.system import chips, devices

SOURCE = r"""
__device__ unsigned long long now() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}
// state[0] counts the blocks that have started; they wait until state[1] is set, or for so many ns
extern "C" __global__ void wait_here(unsigned long long ns, volatile int* state) {
  unsigned long long begin = now();
  if (threadIdx.x == 0) atomicAdd((int*)state, 1);
  while (!state[1] && now() - begin < ns) __nanosleep(1000);
}
extern "C" __global__ void note_multiprocessor(unsigned long long ns, volatile int* seen) {
  unsigned int sm;
  asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
  unsigned long long begin = now();
  if (threadIdx.x == 0) seen[sm] = 1;
  while (now() - begin < ns) {}
}
"""
ROUNDS, LAUNCHES = 7, 5
LONGEST_WAIT, PROBE = 1_000_000_000, 2000  # ns: how long a blocker waits at most, and a probe
TRIES, PAUSE = 10, 0.5  # of a launch at most, and the seconds between two of them


class _DisturbedError(RuntimeError):
    """Blockers were not there for all launches: the GPU did something else for too long."""


def with_free_sms(runs: Mapping[str, Run], free: Sequence[int]) -> Measurement:
    """Time launches while all multiprocessors but some are taken.

    >>> with_free_sms({"add": kernel.bind(a, b, c)}, free=[132, 66])  # doctest: +SKIP
    Measurement(unit='µs', x={'label': 'free multiprocessors', 'values': [132, 66]}, ...)

    Args:
        runs: functions without arguments by legend, each of which launches on the current stream.
        free: how many multiprocessors to leave free.

    Returns:
        A `Measurement` in µs a launch. Its series 'multiprocessors seen' is the number on which
        blocks of a probe ran meanwhile, which shows that the others were taken.

    Raises:
        MissingError: there is no GPU, or no cuda-bindings.
        ValueError: a number is not from 1 to the number of multiprocessors.
        RuntimeError: blockers did not start, or ended before the launches, in every one of `TRIES`
            tries. The first try that fails says so, as a warning.
    """
    devices.need_cuda("the stored record")
    sms = chips.here().sms
    if not free or not all(1 <= count <= sms for count in free):
        raise ValueError(f"free is {list(free)}; expected numbers from 1 to {sms}")
    series: dict[str, list[float]] = {legend: [] for legend in runs}
    spread: dict[str, list[list[float]]] = {legend: [] for legend in runs}
    seen = []
    with timing.cuda_stream() as stream:
        _load(runs, stream)
        for count in free:
            for legend, run in runs.items():
                timed = functools.partial(_timed, run, sms - count, stream)
                times = [1e6 * _undisturbed(timed) for _ in range(ROUNDS)]
                series[legend].append(float(f"{statistics.median(times):.6g}"))
                spread[legend].append([float(f"{end(times):.6g}") for end in (min, max)])
            seen.append(_undisturbed(functools.partial(_seen, sms, sms - count, stream)))
    return Measurement(
        unit="µs",
        x={"label": "free multiprocessors", "values": list(free)},
        series=series | {"multiprocessors seen": seen},
        spread=spread,
        notes=f"{LAUNCHES} launches between CUDA events, warm, median of {ROUNDS} rounds; "
        "blocks that wait took the other multiprocessors",
    )


def _load(runs: Mapping[str, Run], stream: int) -> None:
    """Run everything once: CUDA loads a kernel at its first launch, and may wait for others."""
    with _words(1024) as words:
        for name in ("wait_here", "note_multiprocessor"):
            _launch(name, 1, 0, stream, 0, words.address)
        for run in runs.values():
            run()
        timing.cuda("cudaStreamSynchronize", stream)


def _undisturbed(work: Callable[[], float]) -> float:
    """What `work` returns, once more if blockers were not there, as beside another process."""
    for _ in range(TRIES - 1):
        try:
            return work()
        except _DisturbedError:
            # the same words each time, so that Python shows them once
            warnings.warn("blockers were not in place, so a launch is timed again", stacklevel=1)
            time.sleep(PAUSE)
    return work()


def _timed(run: Run, taken: int, stream: int) -> float:
    """Seconds of a launch while so many multiprocessors are taken."""
    with _taken(taken):
        run()
        return timing.elapsed(lambda: [run() for _ in range(LAUNCHES)], stream) / LAUNCHES


def _seen(sms: int, taken: int, stream: int) -> float:
    """On how many multiprocessors blocks run while so many are taken."""
    with _words(sms) as words, _taken(taken):
        _launch("note_multiprocessor", 64 * sms, 0, stream, PROBE, words.address)
        return float(words.read(stream).sum())


@contextlib.contextmanager
def _taken(count: int) -> Iterator[None]:
    """So many multiprocessors are taken while it is open, by a block each."""
    if not count:
        yield
        return
    room = chips.here().shared_block_kib * 1024
    with _stream() as waiting, _stream() as copying, _words(2) as state:
        _launch("wait_here", count, room, waiting, LONGEST_WAIT, state.address)
        end = time.monotonic() + LONGEST_WAIT / 2e9
        try:
            while (started := int(state.read(copying)[0])) < count:
                if time.monotonic() > end:
                    raise _DisturbedError(
                        f"{started} of {count} blockers started; does another process use the GPU?"
                    )
            yield
            if not _busy(waiting):
                raise _DisturbedError(
                    "the blockers ended before the launches; does another process use the GPU?"
                )
        finally:
            state.write([count, 1], copying)
            timing.cuda("cudaStreamSynchronize", waiting)


class _Words:
    """Integers of 32 bits on the device, zero at first."""

    def __init__(self, count: int) -> None:
        self.host = np.zeros(count, "int32")
        self.address = int(timing.cuda("cudaMalloc", self.host.nbytes))
        timing.cuda("cudaMemset", self.address, 0, self.host.nbytes)
        timing.cuda("cudaDeviceSynchronize")

    def read(self, stream: int) -> Any:
        self._copy(self.host.ctypes.data, self.address, "cudaMemcpyDeviceToHost", stream)
        return self.host

    def write(self, values: Sequence[int], stream: int) -> None:
        self.host[:] = values
        self._copy(self.address, self.host.ctypes.data, "cudaMemcpyHostToDevice", stream)

    def _copy(self, to: int, source: int, way: str, stream: int) -> None:
        from cuda.bindings import runtime

        kind = getattr(runtime.cudaMemcpyKind, way)
        timing.cuda("cudaMemcpyAsync", to, source, self.host.nbytes, kind, stream)
        timing.cuda("cudaStreamSynchronize", stream)


@contextlib.contextmanager
def _words(count: int) -> Iterator[_Words]:
    words = _Words(count)
    try:
        yield words
    finally:
        timing.cuda("cudaFree", words.address)


@contextlib.contextmanager
def _stream() -> Iterator[int]:
    """A stream that waits for no other."""
    stream = int(timing.cuda("cudaStreamCreateWithFlags", 1))
    try:
        yield stream
    finally:
        timing.cuda("cudaStreamDestroy", stream)


def _busy(stream: int) -> bool:
    from cuda.bindings import runtime

    (error,) = runtime.cudaStreamQuery(stream)
    return bool(error == runtime.cudaError_t.cudaErrorNotReady)


def _launch(name: str, blocks: int, shared: int, stream: int, ns: int, words: int) -> None:
    """Launch a kernel of `SOURCE` in blocks of 32 threads, with so many bytes of shared memory."""
    from cuda.bindings import driver

    function = _function(name)
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    _driver("cuFuncSetAttribute", function, attribute, shared)
    arguments = ((ns, words), (ctypes.c_ulonglong, ctypes.c_void_p))
    _driver("cuLaunchKernel", function, blocks, 1, 1, 32, 1, 1, shared, stream, arguments, 0)


@functools.cache
def _function(name: str) -> Any:
    return _driver("cuModuleGetFunction", _module(), name.encode())


@functools.cache
def _module() -> Any:
    """`SOURCE` on the GPU, compiled; it stays, as its functions do."""
    arch = chips.here().capability
    return _driver("cuModuleLoadData", cubin.compile_cubin(SOURCE, arch, agree=1))


def _driver(function: str, *arguments: Any) -> Any:
    """Call a function of the CUDA driver; its result, or a RuntimeError with the driver's word."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise MissingError(
            "cuda-bindings is not installed", "everything but timing", "pip install cuda-bindings"
        ) from error
    code, *result = getattr(driver, function)(*arguments)
    if int(code) != 0:
        raise RuntimeError(f"{function} failed: {code.name}")
    return result[0] if result else None
