"""What the chapters on adds measure: kernels in which one thing differs.

Each function runs kernels on the GPU that is there and returns a `Measurement`, for
`d2ltvm.measure`.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from d2ltvm.bench import contenders, occupied, timing
from d2ltvm.bench.contenders import Contender, tvm_add, tvm_checked
from d2ltvm.bench.measurement import Measurement
from d2ltvm.bench.run import bench_together
from d2ltvm.bench.timing import Run, Timing
from d2ltvm.compiler.in_order import in_order
from d2ltvm.compiler.kernel import build
from d2ltvm.compute.data import bcast_data, get_abc
from d2ltvm.schedules import elementwise
from d2ltvm.system import chips

Array = npt.NDArray[Any]


def vector_bytes(n: int) -> float:
    """What a vector add moves, in TB: two floats read and one written for each element."""
    return 12 * n / 1e12


def broadcast_bytes(n: int) -> float:
    """What a broadcast add moves, in TB, if each number of A is read once."""
    return (8 * n * n + 4 * n) / 1e12


def vector_adds(sizes: Iterable[int] = (2**26, 2**26 + 3)) -> Measurement:
    """TB/s of each kernel of the chapter, of a copy of as many bytes, and of PyTorch."""
    ours = {
        "one element": elementwise.one_thread_each,
        "four neighbours": elementwise.neighbours,
        "four": elementwise.vectorized,
        "twice four": elementwise.unrolled,
        "guard kept out": elementwise.partitioned,
    }
    racing = {"copy": copy_of_as_much, "PyTorch": contenders.torch_add()}
    racing |= {legend: tvm_add(func, "cuda") for legend, func in ours.items()}
    return bench_together(sizes, racing, work=vector_bytes, unit="TB/s")


def copy_of_as_much(_a: Array, _b: Array, c: Array) -> Run:
    """A copy that moves as many bytes as an addition into `c`."""
    x, _, z = get_abc(max(1, len(c) * 3 // 2))
    return contenders.tvm_copy(elementwise.copy_unrolled, "cuda")(x, z)


def reads_for_a_write(vectors: Iterable[int] = (1, 2, 3, 4, 8), floats: int = 2**27) -> Measurement:
    """TB/s of a sum of several vectors, by their number, with as many bytes moved in all."""
    counts, times = list(vectors), []
    for count in counts:
        n = floats // (count + 1) // 512 * 512
        data = [get_abc(n)[0] for _ in range(count)]
        sch = elementwise.sum_of_vectors(n, count)
        run = tvm_checked(sch, _sum, count, "cuda")(*data, np.empty(n, "float32"))
        moved = 4 * n * (count + 1) / 1e12
        times.append({"four elements a thread": (timing.time_together({"": run})[""], moved)})
    return _rates(
        "vectors read for one written", counts, times, f"CUDA graphs, warm; {floats} floats moved"
    )


def _sum(*vectors: Array) -> Any:
    return sum(vectors[1:], vectors[0])


def loads_in_order(
    widths: Mapping[str, int], blocks: Iterable[int], nt: int = 128, rounds: int = 24
) -> Measurement:
    """TB/s of a vector add by blocks that stay, by threads on each multiprocessor.

    No load overtakes a store, so that a thread has two loads under way, and no more.

    Args:
        widths: elements of a load, by legend.
        blocks: on each multiprocessor.
        nt: threads of a block.
        rounds: of 4 elements of a thread where 2,048 threads are on each multiprocessor.
    """
    sms, counts = chips.here().sms, list(blocks)
    n = sms * 2048 * 4 * rounds
    series, spread = {}, {}
    for legend, width in widths.items():
        runs = {
            str(count): in_its_order(
                tvm_add(
                    partial(elementwise.staying, nt=nt, blocks=sms * count, width=width), "cuda"
                )
            )
            for count in counts
        }
        found = bench_together([n], runs, work=vector_bytes, unit="TB/s")
        series[legend], spread[legend] = _along(found, map(str, counts))
    return Measurement(
        unit="TB/s",
        x={"label": "threads on each SM", "values": [nt * count for count in counts]},
        series=series,
        spread=spread,
        notes=f"blocks that stay, loads in order, {n} elements; CUDA graphs, in turns",
    )


def staying_and_going(threads: Iterable[int], rounds: int = 24) -> Measurement:
    """TB/s of a vector add with one element at a time, by blocks that stay and that come and go.

    Args:
        threads: of a block: divisors of 2,048, as many as a multiprocessor holds.
        rounds: of 4 elements of a thread, of blocks that stay.
    """
    sms, counts = chips.here().sms, list(threads)
    n = sms * 2048 * 4 * rounds
    kernels = {
        "blocks that stay": [
            partial(elementwise.staying, nt=nt, blocks=sms * 2048 // nt) for nt in counts
        ],
        "blocks that come and go": [partial(elementwise.one_thread_each, nt=nt) for nt in counts],
    }
    runs = {
        f"{legend}, {nt}": in_its_order(tvm_add(func, "cuda"))
        for legend, funcs in kernels.items()
        for nt, func in zip(counts, funcs, strict=True)
    }
    found = bench_together([n], runs, work=vector_bytes, unit="TB/s")
    series, spread = {}, {}
    for legend in kernels:
        series[legend], spread[legend] = _along(found, (f"{legend}, {nt}" for nt in counts))
    return Measurement(
        unit="TB/s",
        x={"label": "threads in a block", "values": counts},
        series=series,
        spread=spread,
        notes=f"one element at a time, {n} elements; CUDA graphs, in turns",
    )


def in_its_order(contender: Contender) -> Contender:
    """A contender whose kernel is built so that no load overtakes a store."""

    def built_in_order(*arrays: Array) -> Run:
        with in_order():
            return contender(*arrays)

    return built_in_order


def block_sizes(threads: Iterable[int], powers: Iterable[int] = (12, 16, 20, 24)) -> Measurement:
    """µs of vector adds with four elements a thread, by the threads of a block."""
    counts, series, spread = list(threads), {}, {}
    for power in powers:
        runs = {str(nt): tvm_add(partial(elementwise.vectorized, nt=nt), "cuda") for nt in counts}
        found = bench_together([2**power], runs)
        series[f"2^{power}"], spread[f"2^{power}"] = _along(found, map(str, counts))
    return Measurement(
        unit="µs",
        x={"label": "threads in a block", "values": counts},
        series=series,
        spread=spread,
        notes="vector add, four elements a thread; CUDA graphs, in turns",
    )


def launches_without_work(threads: Iterable[int], n: int = 2**24) -> Measurement:
    """µs of `n` threads that have nothing to do, and of as many with an element each."""
    counts, one, arrays = list(threads), get_abc(1), get_abc(n)
    runs: dict[Any, Run] = {}
    for nt in counts:
        nothing = build(elementwise.nothing_to_do(n // nt, nt), "cuda")
        runs["nothing to do", nt] = nothing.bind(*one)
        func = partial(elementwise.one_thread_each, nt=nt)
        runs["one element a thread", nt] = tvm_add(func, "cuda")(*arrays)
    found = timing.time_together(runs)
    times = [
        {legend: found[legend, nt] for legend in ("nothing to do", "one element a thread")}
        for nt in counts
    ]
    series, spread = _by_legend(times, lambda t: 1e6 * t)
    return Measurement(
        unit="µs",
        x={"label": "threads in a block", "values": counts},
        series=series,
        spread=spread,
        notes=f"{n} threads in each launch; CUDA graphs, in turns",
    )


def launches_on_fewer_sms(
    twelfths: Iterable[int] = (12, 10, 8, 6, 4, 3, 2, 1), blocks: int = 2**18, n: int = 2**24
) -> Measurement:
    """µs of launches of many blocks while only so many twelfths of all multiprocessors are free."""
    one, arrays = get_abc(1), get_abc(n)
    runs: dict[str, Run] = {}
    for nt in (32, 256):
        nothing = build(elementwise.nothing_to_do(blocks, nt), "cuda")
        runs[f"nothing to do, {nt} threads"] = nothing.bind(*one)
    single = partial(elementwise.one_thread_each, nt=64)
    runs["one element, 64 threads"] = tvm_add(single, "cuda")(*arrays)
    runs["four elements, 128 threads"] = tvm_add(elementwise.vectorized, "cuda")(*arrays)
    sms = chips.here().sms
    return occupied.with_free_sms(runs, [sms * part // 12 for part in twelfths])


def one_half_at_a_time(n: int = 8192, nt: int = 64, nb: int = 2048) -> Measurement:
    """TB/s of a broadcast add's loads alone, of its stores alone, and of both, in two orders."""
    a, b, c = bcast_data(n)
    threads = nt * nb
    flat, sums = b.reshape(-1), np.empty(threads, "float32")
    runs: dict[Any, Run] = {}
    for order, continuous in (("continuous", True), ("alternate", False)):
        shape, axis = ((threads, -1), 1) if continuous else ((-1, threads), 0)
        reads = elementwise.reads_only(n, continuous, nt, nb)
        summed = partial(_sums_along, shape=shape, axis=axis)
        runs["loads only", order] = tvm_checked(reads, summed, n * n // threads, "cuda")(flat, sums)
        writes = elementwise.writes_only(n, continuous, nt, nb)
        repeated = partial(np.broadcast_to, shape=(n, n))
        runs["stores only", order] = tvm_checked(writes, repeated, 1, "cuda")(a, c)
        func = getattr(elementwise, f"{order}_parallel")
        runs["both", order] = tvm_add(partial(func, nt=nt, nb=nb), "cuda")(a, b, c)
    found = timing.time_together(runs)
    moved = {
        "loads only": 4 * n * n / 1e12,
        "stores only": 4 * n * n / 1e12,
        "both": broadcast_bytes(n),
    }
    times = [
        {order: (found[what, order], moved[what]) for order in ("continuous", "alternate")}
        for what in moved
    ]
    notes = f"n = {n}, {nb} blocks of {nt} threads; CUDA graphs, in turns"
    return _rates("what a kernel does", list(moved), times, notes)


def lanes_apart(each: Iterable[int], n: int = 8192, nt: int = 256) -> Measurement:
    """TB/s of the continuous order's loads alone and stores alone, by the elements of a thread.

    The lanes of a warp are as far apart: by 8 floats, each touches a sector of its own, and by 32
    a line of 128 bytes of its own.
    """
    counts, times = list(each), []
    a, b, c = bcast_data(n)
    flat, moved = b.reshape(-1), 4 * n * n / 1e12
    for count in counts:
        threads = n * n // count
        reads = elementwise.reads_only(n, True, nt, threads // nt)
        summed = partial(_sums_along, shape=(threads, -1), axis=1)
        sums = np.empty(threads, "float32")
        writes = elementwise.writes_only(n, True, nt, threads // nt)
        repeated = partial(np.broadcast_to, shape=(n, n))
        runs = {
            "loads only": tvm_checked(reads, summed, count, "cuda")(flat, sums),
            "stores only": tvm_checked(writes, repeated, 1, "cuda")(a, c),
        }
        times.append({k: (t, moved) for k, t in timing.time_together(runs).items()})
    notes = f"continuous, n = {n}, blocks of {nt} threads; CUDA graphs, in turns"
    return _rates("elements of a thread", counts, times, notes)


def _sums_along(b: Array, shape: tuple[int, int], axis: int) -> Any:
    return b.reshape(shape).sum(axis)


def loads_before_adding(
    ahead: Iterable[int], an_sm: int = 512, nt: int = 128, rows: int = 384
) -> Measurement:
    """TB/s of an addition of matrices, by for how many rows a thread loads before it adds.

    Args:
        ahead: rows.
        an_sm: threads on each multiprocessor, which is a thread for each column.
        nt: threads of a block.
        rows: of the matrices.
    """
    counts, columns = list(ahead), chips.here().sms * an_sm
    a, b, c = get_abc((rows, columns))
    runs = {
        count: in_its_order(_add_of(elementwise.loads_ahead(rows, columns, count, nt)))(a, b, c)
        for count in counts
    }
    moved = vector_bytes(rows * columns)
    found = timing.time_together(runs)
    times = [{f"{an_sm} threads on each SM": (found[count], moved)} for count in counts]
    notes = f"{rows} x {columns}, blocks that stay, loads in order; CUDA graphs, in turns"
    return _rates("rows loaded before the first addition", counts, times, notes)


def _add_of(sch: Any) -> Contender:
    return tvm_checked(sch, np.add, 1, "cuda")


def threads_and_blocks(threads: Iterable[int], blocks: Iterable[int], n: int = 8192) -> Measurement:
    """TB/s of the alternate broadcast add, by blocks and their threads."""
    counts, sizes = list(blocks), list(threads)
    series, spread = {}, {}
    for nt in sizes:
        runs = {
            str(nb): tvm_add(partial(elementwise.alternate_parallel, nt=nt, nb=nb), "cuda")
            for nb in counts
        }
        found = bench_together([n], runs, data=bcast_data, work=broadcast_bytes, unit="TB/s")
        series[f"nt = {nt}"], spread[f"nt = {nt}"] = _along(found, map(str, counts))
    return Measurement(
        unit="TB/s",
        x={"label": "nb", "values": counts},
        series=series,
        spread=spread,
        notes=f"alternate, n = {n}; CUDA graphs, in turns",
    )


def like_pytorch(n: int = 8192) -> Measurement:
    """TB/s of PyTorch's broadcast add, and of kernels that share out the work as it does."""
    two = tvm_add(elementwise.bcast_in_steps, "cuda")
    racing = {
        "PyTorch": contenders.torch_add(),
        "one each": tvm_add(partial(elementwise.bcast_vectorized, width=1), "cuda"),
        "two, one after the other": in_its_order(two),
        "two, both loaded first": two,
        "wide": tvm_add(elementwise.bcast_vectorized, "cuda"),
    }
    return bench_together([n], racing, data=bcast_data, work=broadcast_bytes, unit="TB/s")


def _along(found: Measurement, legends: Iterable[str]) -> tuple[list[float], list[list[float]]]:
    """Series and spread of kernels that raced at one size, as one line of a plot."""
    names = list(legends)
    return [found.series[name][0] for name in names], [found.spread[name][0] for name in names]


Times = list[dict[str, Timing]]


def _by_legend(
    times: Times, value: Callable[[float], float]
) -> tuple[dict[str, list[float]], dict[str, list[list[float]]]]:
    """Series and spread of timings, each as `value` makes it of seconds."""
    series: dict[str, list[float]] = {}
    spread: dict[str, list[list[float]]] = {}
    for found in times:
        for legend, t in found.items():
            median, *ends = (float(f"{value(s):.6g}") for s in (t.median, t.low, t.high))
            series.setdefault(legend, []).append(median)
            spread.setdefault(legend, []).append(sorted(ends))
    return series, spread


def _rates(
    label: str, values: list[Any], found: list[dict[str, tuple[Timing, float]]], notes: str
) -> Measurement:
    """TB/s of timings that each come with what was moved, in TB."""
    times = [
        {
            legend: Timing(*(s / tb for s in (t.median, t.low, t.high)))
            for legend, (t, tb) in at.items()
        }
        for at in found
    ]
    series, spread = _by_legend(times, lambda seconds: 1 / seconds)
    return Measurement(
        unit="TB/s", x={"label": label, "values": values}, series=series, spread=spread, notes=notes
    )
