"""What a chip can do: measurements of its ceilings, for the chapters on the machine.

Each function runs kernels on the GPU that is there and returns a `Measurement`, for
`d2ltvm.measure`. `chain_of` and `places` make the data of those that follow chains through memory.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm

from d2ltvm.bench import timing
from d2ltvm.bench.libraries import torch_cuda
from d2ltvm.bench.measurement import Measurement
from d2ltvm.bench.run import as_measurement, as_sizes
from d2ltvm.bench.timing import Run, Timing
from d2ltvm.compiler.kernel import build
from d2ltvm.compute.data import get_abc
from d2ltvm.errors import whole
from d2ltvm.schedules.chains import chase, timed_chase
from d2ltvm.schedules.elementwise import copy_unrolled
from d2ltvm.schedules.multiply_add import fma_kernel
from d2ltvm.system import chips

Array = npt.NDArray[Any]
LINE_ELEMENTS = 32  # of 4 bytes, in the 128 bytes that caches keep together
SECTOR_ELEMENTS = 8  # in a sector of 32 bytes


def digits(value: float, count: int = 5) -> float:
    """A number to so many digits, so that records read.

    >>> digits(1234.5678)
    1234.6
    """
    return float(f"{value:.{count}g}")


# Arithmetic, the start of a kernel, and both ceilings of the roofline.


def fma_launch(blocks: int, threads: int, chains: int, steps: int) -> tuple[Run, int]:
    """A launch of `fma_kernel` on data of the right size, and how many operations it makes."""
    n = blocks * threads * chains
    a, _, c = get_abc(n)
    return build(fma_kernel(blocks, threads, chains, steps), "cuda").bind(a, c), 2 * n * steps


def fma_rates(warps: Iterable[int], chains: Iterable[int], steps: int = 2**16) -> Measurement:
    """TFLOPS of `fma_kernel` by warps on each multiprocessor, a series for each number of chains.

    Args:
        warps: on each multiprocessor: up to 32, in one block, or a multiple of 32.
        chains: of each thread.
        steps: of a chain.
    """
    counts, sms = as_sizes(warps), chips.here().sms
    times: list[dict[str, Timing]] = [{} for _ in counts]
    for each in as_sizes(chains):
        legend = f"{each} chain{'s' * (each > 1)} a thread"
        for found, count in zip(times, counts, strict=True):
            run, _ = fma_launch(sms * max(1, count // 32), 32 * min(count, 32), each, steps)
            (one,) = timing.time_together({"": run}).values()
            # as long as one chain would take: the work differs from series to series
            found[legend] = Timing(*(s / each for s in (one.median, one.low, one.high)))
    return as_measurement(
        "warps on each SM", counts, times, work=lambda count: 64 * count * sms * steps / 1e12,
        unit="TFLOPS",
    )  # fmt: skip


def arithmetic(n: int = 8192, steps: int = 2**16) -> Measurement:
    """TFLOPS of `fma_kernel` and of cuBLAS's products of n x n matrices, in turns."""
    torch = torch_cuda()
    fma, operations = fma_launch(2 * chips.here().sms, 1024, 4, steps)
    runs = {"FP32, FMA kernel": (fma, operations)}
    for name, dtype, tf32 in (
        ("FP32, cuBLAS", torch.float32, False),
        ("TF32, cuBLAS", torch.float32, True),
        ("FP16, cuBLAS", torch.float16, False),
    ):
        x, y = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
        z = torch.empty_like(x)

        def product(x: Any = x, y: Any = y, z: Any = z, tf32: bool = tf32) -> None:
            torch.backends.cuda.matmul.allow_tf32 = tf32
            torch.matmul(x, y, out=z)

        runs[name] = product, 2 * n**3
    timings = timing.time_together({name: run for name, (run, _) in runs.items()})
    rates = {
        name: [runs[name][1] / seconds / 1e12 for seconds in (t.median, t.high, t.low)]
        for name, t in timings.items()
    }
    return Measurement(
        unit="TFLOPS",
        x={"label": "what", "values": list(rates)},
        series={"measured": [digits(median, 6) for median, *_ in rates.values()]},
        spread={"measured": [[digits(end, 6) for end in ends] for _, *ends in rates.values()]},
        notes=f"CUDA graphs, warm, in turns; products of {n} x {n} matrices, random data",
    )


def launch_times() -> Measurement:
    """µs of a copy of one float, launched one by one, and in a CUDA graph."""
    a, _, c = get_abc(1)
    run = build(copy_unrolled(1), "cuda").bind(a, c)
    times = [timing.time_together({"": run}, which)[""] for which in ("stream", "graph")]
    return Measurement(
        unit="µs",
        x={"label": "how", "values": ["one by one", "in a graph"]},
        series={"copy of one float": [digits(1e6 * t.median) for t in times]},
        spread={"copy of one float": [[1e6 * t.low, 1e6 * t.high] for t in times]},
        notes="time between two CUDA events, divided by the number of launches",
    )


def intensities(
    steps: Iterable[int], blocks: int = 2**14, threads: int = 256, chains: int = 4
) -> Measurement:
    """TFLOPS of `fma_kernel` by operations for each byte: 2 for each of `steps`, and 8 bytes."""
    counts = as_sizes(steps)
    times = []
    for count in counts:
        run, _ = fma_launch(blocks, threads, chains, count)
        times.append(timing.time_together({"FMA kernel": run}))
    n = blocks * threads * chains
    found = as_measurement(
        "FLOP per byte", counts, times, work=lambda count: 2 * n * count / 1e12, unit="TFLOPS"
    )
    found.x["values"] = [count / 4 for count in counts]
    found.notes = f"CUDA graphs; {n} elements, 8 bytes moved for each"
    return found


def corner(steps: int = 64) -> Measurement:
    """TFLOPS of `fma_kernel` where memory and arithmetic take as long, with one thing changed."""
    launches = {  # blocks, threads, chains
        "as above": (2**14, 256, 4),
        "8 times the elements": (2**17, 256, 4),
        "64 threads a block": (2**16, 64, 4),
        "one chain a thread": (2**16, 256, 1),
        "two chains": (2**15, 256, 2),
        "eight chains": (2**13, 256, 8),
        "sixteen chains": (2**12, 256, 16),
    }
    times, operations = [], {}
    for what, (blocks, threads, chains) in launches.items():
        run, operations[what] = fma_launch(blocks, threads, chains, steps)
        times.append(timing.time_together({"FMA kernel": run}))
    found = as_measurement(
        "what", list(launches), times, work=lambda what: operations[what] / 1e12, unit="TFLOPS"
    )
    found.notes = f"CUDA graphs; {steps} FMAs and 8 bytes for each element"
    return found


# Chains through memory.


def chain_of(n: int, line: int = LINE_ELEMENTS, sectors: int = 1, first: int = 0) -> Array:
    """An array in which following the indices visits one element in each `line`, in random order.

    >>> a = chain_of(128)
    >>> at, visited = 0, []
    >>> for _ in range(4):
    ...     at = int(a[at])
    ...     visited.append(at)
    >>> sorted(visited), at
    ([0, 32, 64, 96], 0)

    Args:
        n: elements, a multiple of `line`.
        line: elements from one place to the next in memory.
        sectors: how many sectors of 8 elements of each line have a chain; all go the same way.
        first: what is added to each index: where in a larger array this one begins.

    Returns:
        An array of int32.

    Raises:
        ValueError: `n` is no multiple of `line`, or `line` has fewer than so many sectors.
    """
    n, line, sectors = whole("n", n), whole("line", line), whole("sectors", sectors)
    if n % line or SECTOR_ELEMENTS * sectors > line:
        raise ValueError(
            f"n, line, sectors are {n}, {line}, {sectors}; expected n a multiple of line, and line "
            f"at least {SECTOR_ELEMENTS * sectors}"
        )
    order = np.random.default_rng(0).permutation(n // line)
    a = np.zeros(n, "int32")
    for sector in range(sectors):
        at = order * line + SECTOR_ELEMENTS * sector
        a[at] = np.roll(at, -1) + first
    return a


def places(n: int, count: int, line: int = LINE_ELEMENTS, sectors: int = 1) -> Array:
    """Where `count` threads begin on a chain of `n` elements, spread over it.

    With several sectors, as many neighbouring threads begin in the same line, each in its own.

    >>> places(256, 4)
    array([  0,  64, 128, 192], dtype=int32)
    >>> places(256, 4, sectors=2)
    array([  0,   8, 128, 136], dtype=int32)
    """
    thread = np.arange(count)
    apart = n // line // -(-count // sectors)  # lines
    return (thread // sectors * apart * line + thread % sectors * SECTOR_ELEMENTS).astype("int32")


def chase_time(kernel: Any, chain: Any, starts: Array, warm: int = 1, rounds: int = 7) -> Timing:
    """Seconds of one launch of `chase`, each of which goes on where the one before it ended.

    Args:
        kernel: `chase`, built.
        chain: a tensor on the GPU.
        starts: where each thread begins.
        warm: pairs of launches before the first that is timed.
        rounds: pairs of launches that are timed.
    """
    here, there = (tvm.runtime.tensor(starts, device=tvm.cuda(0)) for _ in range(2))
    onward, back = kernel.bind(chain, here, there), kernel.bind(chain, there, here)

    def both() -> None:
        onward()
        back()

    with timing.cuda_stream() as stream:
        for _ in range(warm):
            both()
        return Timing.of([timing.elapsed(both, stream) / 2 for _ in range(rounds)])


def chains_of(
    sizes: Sequence[int], line: int = LINE_ELEMENTS, sectors: int = 1
) -> tuple[Any, list[int]]:
    """Chains of several sizes one behind the other, on the GPU, and where each of them begins."""
    firsts = np.cumsum([0, *sizes])[:-1].tolist()
    each = [chain_of(n, line, sectors, first) for n, first in zip(sizes, firsts, strict=True)]
    return tvm.runtime.tensor(np.concatenate(each), device=tvm.cuda(0)), firsts


def latencies(
    sizes: Iterable[int], lines: Sequence[int] = (LINE_ELEMENTS, 512), steps: int = 2**14
) -> Measurement:
    """ns of a load that one thread waits for, by the size of the array that its chain visits.

    Args:
        sizes: of the array, in elements, multiples of each of `lines`.
        lines: elements from one place to the next; a series for each.
        steps: loads of a launch.
    """
    counts = as_sizes(sizes)
    times: list[dict[str, Timing]] = [{} for _ in counts]
    for line in lines:
        legend = "one load" if line == LINE_ELEMENTS else f"one load in each {4 * line} bytes"
        chain, firsts = chains_of(counts, line)
        kernel = build(chase(int(chain.shape[0]), steps), "cuda")
        for found, n, first in zip(times, counts, firsts, strict=True):
            warm = min(n // line, 2**20) // (2 * steps) + 1  # once round, or through 128 MiB
            start = np.array([first], "int32")
            found[legend] = chase_time(kernel, chain, start, warm)
    result = as_measurement("array (elements)", counts, times, "stream")
    for values in (*result.series.values(), *(p for s in result.spread.values() for p in s)):
        values[:] = [digits(1e3 * value / steps) for value in values]
    result.unit = "ns"
    result.notes = "one thread follows a random chain, one element in each 128 bytes; CUDA events"
    return result


def reported() -> Measurement:
    """What the GPU says of itself."""
    chip = chips.here()
    values = {
        "multiprocessors": chip.sms,
        "L2 cache (MiB)": chip.l2_mib,
        "clock (GHz)": chip.boost_ghz,
    }
    return Measurement(
        unit="as named",
        x={"label": "what", "values": list(values)},
        series={"reported": [float(value) for value in values.values()]},
        notes="attributes of the device, by the CUDA driver",
    )


def single_loads(sizes: Iterable[int], count: int = 1024, steps: int = 2**14) -> Measurement:
    """Cycles of single loads of one thread, one after the other, from arrays of several sizes.

    Args:
        sizes: of the arrays, in elements.
        count: how many loads are kept, evenly spaced over those that were made.
        steps: loads of a launch.
    """
    counts = as_sizes(sizes)
    chain, firsts = chains_of(counts)
    kernel = build(timed_chase(int(chain.shape[0]), steps), "cuda")
    warm = build(chase(int(chain.shape[0]), steps), "cuda")
    series = {}
    for n, first in zip(counts, firsts, strict=True):
        place = tvm.runtime.tensor(np.array([first], "int32"), device=tvm.cuda(0))
        end = tvm.runtime.tensor(np.array([first], "int32"), device=tvm.cuda(0))
        clocks = tvm.runtime.tensor(np.zeros(steps + 1, "uint64"), device=tvm.cuda(0))
        for _ in range(min(n // LINE_ELEMENTS, 2**20) // steps + 2):
            warm(chain, place, end)
            place, end = end, place
        kernel(chain, place, clocks, end)
        cycles = np.diff(clocks.numpy().astype("int64"))[:-1]  # nobody waits for the last load
        kept = cycles[:: max(1, len(cycles) // count)][:count]
        series[f"{4 * n // 2**10} KiB"] = [float(value) for value in kept]
    return Measurement(
        unit="cycles",
        x={"label": "load", "values": list(range(count))},
        series=series,
        notes=f"one thread, the clock read before each of {steps} loads, {count} of them kept",
    )


def lanes(
    sizes: Iterable[int], counts: Sequence[int] = (1, 2, 4, 8, 16, 32), steps: int = 2**13
) -> Measurement:
    """ns of a step of one warp, whose lanes ask for so many different lines, by size of the array.

    All 32 lanes load in each step. With fewer places than lanes, several lanes are at the same one.
    """
    arrays = as_sizes(sizes)
    chain, firsts = chains_of(arrays)
    kernel = build(chase(int(chain.shape[0]), steps, 1, 32), "cuda")
    times: list[dict[str, Timing]] = [{} for _ in counts]
    for n, first in zip(arrays, firsts, strict=True):
        for found, count in zip(times, counts, strict=True):
            starts = first + places(n, count)[np.arange(32) % count]
            warm = min(n // LINE_ELEMENTS // count, 2**20) // (2 * steps) + 1
            found[f"{4 * n // 2**10} KiB"] = chase_time(kernel, chain, starts.astype("int32"), warm)
    result = as_measurement("lines in a request", list(counts), times, "stream")
    for values in (*result.series.values(), *(p for s in result.spread.values() for p in s)):
        values[:] = [digits(1e3 * value / steps) for value in values]
    result.unit = "ns"
    result.notes = f"one warp follows random chains, {steps} steps a launch; CUDA events"
    return result


def loads_under_way(
    threads: Iterable[int], sectors: Sequence[int] = (1, 2, 4), n: int = 2**29
) -> Measurement:
    """10^9 loads a second of threads that each wait for one load at a time, on all of the chip.

    Args:
        threads: on each multiprocessor: a divisor of 32, or a multiple, up to 2,048.
        sectors: of a line of 128 bytes that neighbouring lanes visit together; a series for each.
        n: elements of the array.
    """
    counts, sms = as_sizes(threads), chips.here().sms
    chain, _ = chains_of([n], sectors=max(sectors))
    times: list[dict[str, Timing]] = [{} for _ in counts]
    steps = [max(256, 2**17 // max(count, 32)) for count in counts]
    for found, count, many in zip(times, counts, steps, strict=True):
        whole_warps = max(count, 32)
        blocks, nt = sms * max(1, whole_warps // 1024), min(whole_warps, 1024)
        kernel = build(chase(n, many, blocks, nt), "cuda")
        for group in sectors:
            starts = places(n, sms * count, sectors=min(group, count))
            # with fewer places than lanes, several lanes are at the same one
            here = starts.reshape(sms, count)[:, np.arange(whole_warps) % count].ravel()
            legend = f"{32 * group} bytes of a line"
            found[legend] = chase_time(kernel, chain, np.ascontiguousarray(here), rounds=5)
    loads = dict(zip(counts, steps, strict=True))
    result = as_measurement(
        "threads on each SM", counts, times, "stream",
        work=lambda count: sms * count * loads[count] / 1e9, unit="10^9 loads a second",
    )  # fmt: skip
    result.notes = f"each thread follows a random chain through {n} int32; CUDA events"
    return result
