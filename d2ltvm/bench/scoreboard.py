"""The scoreboard: each workload of the book, the library and the book's best kernel, side by side.

`python -m d2ltvm bench` prints it. What has a GPU is measured on the GPU, and comes from the
records where there is none; what runs on the CPU is measured every time.
"""

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from d2ltvm.bench import contenders, hopper_layers
from d2ltvm.bench.contenders import tvm_add
from d2ltvm.bench.measurement import Measurement
from d2ltvm.bench.progress import progress
from d2ltvm.bench.records import Record, measure
from d2ltvm.bench.run import bench_together
from d2ltvm.compute.data import bcast_data, get_abc
from d2ltvm.errors import MissingError, shown
from d2ltvm.figures import bars
from d2ltvm.schedules import elementwise

if TYPE_CHECKING:
    from d2ltvm.fleet.measuring import Servers

OURS = "TVM, this book"


@dataclass(frozen=True)
class Benchmark:
    """One line of the scoreboard.

    Attributes:
        key: name of the record, after 'scoreboard/'.
        title: what it is, for people.
        size: the one size it is measured at.
        device: 'cuda' or 'cpu'.
        data: function of the size that gives the arrays.
        library: name of the library, and the contender for it.
        contender: the book's kernel, as a contender.
        gigabytes: function of the size: what one run has to move between memory and processor.
    """

    key: str
    title: str
    size: int
    device: str
    data: Callable[[int], tuple[Any, ...]]
    library: tuple[str, Any]
    contender: Any
    gigabytes: Callable[[int], float]


@dataclass(frozen=True)
class Race:
    """Several lines of the scoreboard that are one measurement of a chapter, by both clocks.

    Attributes:
        name: of the record.
        title: what a line is, for people; `{}` stands for its place on the x axis.
        library: name of the library's series, and `ours`, of the book's.
        measure: function without arguments that measures, as for `d2ltvm.measure`.
    """

    name: str
    title: str
    library: str
    ours: str
    measure: Callable[[], Any]

    device = "cuda"


def races() -> list[Race]:
    """The measurements of chapters that the scoreboard shows, a list of `Race`."""

    def race(
        name: str, title: str, bench: Any, *args: Any, library: str = "cuDNN", ours: str = "TVM"
    ) -> Race:
        return Race(name, title, library, ours, lambda: bench(*args, clock=hopper_layers.BOTH))

    def layers(name: str, title: str, sizes: Any, ours: str = "TVM") -> Race:
        return race(name, title, hopper_layers.bench_layers, sizes, {ours: {}}, ours=ours)

    def resnet(name: str, title: str, sizes: Any) -> Race:
        return layers(name, title, [(256, *size) for size in sizes])

    return [
        layers("hopper/layer", "float16 conv {}", [hopper_layers.LAYER], "taps left out"),
        race("hopper/batches", "the same, batch {}", hopper_layers.bench_batches),
        resnet("hopper/resnet_3x3", "3 x 3, {}", hopper_layers.RESNET_3X3),
        resnet("hopper/resnet_1x1", "1 x 1, {}", hopper_layers.RESNET_1X1),
        race("hopper/products", "float16 product, n = {}", hopper_layers.bench_matmul_nt,
             [2048, 4096, 8192], library="cuBLAS"),
        race("hopper/float32", "float32 conv {}", hopper_layers.bench_float32),
    ]  # fmt: skip


def benchmarks() -> list[Benchmark]:
    """The benchmarks of the book so far, a list of `Benchmark`."""

    def vector(n: int) -> float:
        return 12 * n / 1e9

    def broadcast(n: int) -> float:
        return (8 * n * n + 4 * n) / 1e9

    torch = ("PyTorch", contenders.torch_add())
    mxnet = ("MXNet", contenders.mxnet_add("cpu"))
    gpu_add = ("cuda", get_abc, torch, tvm_add(elementwise.partitioned, "cuda"), vector)
    cpu_add = ("cpu", get_abc, mxnet, tvm_add(elementwise.cpu_vector_add, "llvm"), vector)
    gpu_rows = ("cuda", bcast_data, torch, tvm_add(elementwise.bcast_rows, "cuda"), broadcast)
    cpu_rows = ("cpu", bcast_data, mxnet, tvm_add(elementwise.cpu_bcast_add, "llvm"), broadcast)
    return [
        Benchmark("add_16k", "vector add, 2¹⁴ floats", 2**14, *gpu_add),
        Benchmark("add_64m", "vector add, 2²⁶ floats", 2**26, *gpu_add),
        Benchmark("bcast_2k", "broadcast add, 2048 x 2048", 2048, *gpu_rows),
        Benchmark("bcast_8k", "broadcast add, 8192 x 8192", 8192, *gpu_rows),
        Benchmark("cpu_add", "vector add, 2²⁵ floats", 2**25, *cpu_add),
        Benchmark("cpu_bcast", "broadcast add, 4096 x 4096", 4096, *cpu_rows),
    ]


def in_short() -> list[Benchmark | Race]:
    """What the book's first page and README.md show: a choice, all of it measured on a GPU."""
    chosen = ("hopper/products", "hopper/layer", "hopper/float32")
    by_name = {race.name: race for race in races()}
    return [*(w for w in benchmarks() if w.device == "cuda"), *(by_name[name] for name in chosen)]


def run(benchmark: Benchmark | Race) -> Record:
    """Measure a benchmark or a race, or look its record up: a `Record` with series for both sides.

    Raises:
        MissingError: it can neither be measured here nor looked up.
    """
    if isinstance(benchmark, Race):
        return measure(benchmark.name, benchmark.measure)
    name, library = benchmark.library

    def both() -> Any:
        return bench_together(
            [benchmark.size],
            {name: library, OURS: benchmark.contender},
            data=benchmark.data,
            work=benchmark.gigabytes,
            unit="GB/s",
            clock="graph" if benchmark.device == "cuda" else "host",
        )

    return measure(f"scoreboard/{benchmark.key}", both, device=benchmark.device)


def rows(benchmark: Benchmark | Race, record: Record) -> list[dict[str, Any]]:
    """Lines of the scoreboard as dicts: both sides, how many times as fast, and the provenance.

    What a race measured sustained is another such dict in each, by the key 'sustained'.
    """
    if isinstance(benchmark, Race):
        library, ours = benchmark.library, benchmark.ours
    else:
        library, ours = benchmark.library[0], OURS
    lines = _sides(record, library, ours)
    if isinstance(benchmark, Race):
        late = _sides(record.by_clock("sustained"), library, ours)
        lines = [{**sides, "sustained": more} for sides, more in zip(lines, late, strict=True)]
    return [
        {
            "workload": benchmark.title.format(x),
            "device": benchmark.device,
            "library": library,
            "unit": record.unit,
            **sides,
            "measured": record.caption,
        }
        for x, sides in zip(record.x["values"], lines, strict=True)
    ]


def _sides(record: Measurement, library: str, ours: str) -> list[dict[str, Any]]:
    """The library's value, the book's, and their ratio, along x; None without the library."""
    return [
        {
            "library_value": None if math.isnan(them) else them,
            "book_value": us,
            "ratio": None if math.isnan(them) else _ratio(us, them, record.unit),
        }
        for them, us in zip(record[library].tolist(), record[ours].tolist(), strict=True)
    ]


def _ratio(ours: float, theirs: float, unit: str) -> float:
    return theirs / ours if unit == "µs" else ours / theirs


def main(options: argparse.Namespace) -> int:
    """`python -m d2ltvm bench`: print the scoreboard, or run a set. Returns the exit status."""
    if options.set:
        from d2ltvm.bench import set_bench

        return set_bench.main(options)
    from d2ltvm.fleet import FleetError, choosing

    try:
        todo, servers = _chosen(options.only), choosing.choose("cuda", options.fleet)
        with contextlib.redirect_stdout(sys.stderr):  # of libraries, and notes on what is missing
            lines, failed = _on_fleet(todo, servers) if servers else _lines(todo)
    except (FleetError, ValueError) as error:
        print(f"python -m d2ltvm bench: {error}", file=sys.stderr)
        return 1
    print(json.dumps(lines, indent=2, allow_nan=False) if options.json else table(lines))
    return failed


def name_of(benchmark: Benchmark | Race) -> str:
    """What the option --only calls a benchmark or a race: the name of its record."""
    return benchmark.name if isinstance(benchmark, Race) else f"scoreboard/{benchmark.key}"


def _chosen(only: str | None) -> list[Benchmark | Race]:
    """The benchmarks and races that --only names, or all of them."""
    everything: list[Benchmark | Race] = [*benchmarks(), *races()]
    known = {name_of(benchmark): benchmark for benchmark in everything}
    names = only.split(",") if only else [*known]
    for name in names:
        if name not in known:
            raise ValueError(f"--only is {shown(name)}; expected some of {', '.join(known)}")
    return [known[name] for name in names]


def _on_fleet(
    todo: Sequence[Benchmark | Race], servers: "Servers"
) -> tuple[list[dict[str, Any]], int]:
    """As `_lines`: what takes a GPU each on a server, and then the rest, on a machine at rest."""
    from d2ltvm.bench.on_fleet import scoreboard_lines

    on_gpu = [name_of(benchmark) for benchmark in todo if benchmark.device == "cuda"]
    found = scoreboard_lines(on_gpu, servers) if on_gpu else {}
    parts = [found.get(name_of(benchmark)) or _lines([benchmark]) for benchmark in todo]
    return [line for lines, _ in parts for line in lines], max((code for _, code in parts))


def _lines(todo: Sequence[Benchmark | Race]) -> tuple[list[dict[str, Any]], int]:
    """The lines of the scoreboard, and the exit status: 1 where a record could not be read."""
    lines: list[dict[str, Any]] = []
    failed = 0
    for done, benchmark in enumerate(todo):
        progress(done, len(todo), benchmark.title)
        try:
            lines += rows(benchmark, run(benchmark))
        except (MissingError, ValueError) as error:
            failed |= isinstance(error, ValueError)
            lines.append(
                {"workload": benchmark.title, "device": benchmark.device, "missing": str(error)}
            )
    progress(len(todo), len(todo), "")
    return lines, failed


def table(rows: list[dict[str, Any]]) -> str:
    """The scoreboard as text, with what was measured where below it."""
    late = any("sustained" in r for r in rows)
    names = f"{'library':>9}{'this book':>10}{'ratio':>6}"
    lines = [f"{'workload':39}{'unit':7}{'':7}{names}{names if late else ''}"]
    if late:
        lines.insert(0, f"{'':80}sustained")
    numbers, sources = _sources(rows)
    for r in rows:
        if "missing" in r:
            lines.append(f"{r['workload']:39}{r['missing']}")
            continue
        mark = f"[{numbers[r['measured']]}]" if len(sources) > 1 else ""
        values = _columns(r) + (_columns(r.get("sustained")) if late else "")
        lines.append(f"{r['workload']:39}{r['unit']:7}{r['library']:7}{values} {mark}".rstrip())
    return "\n".join([*lines, "", *sources])


def _sources(rows: list[dict[str, Any]]) -> tuple[dict[str, int], list[str]]:
    """The number of each provenance, and a line for each: those that differ in the date are one."""
    dates: dict[str, list[str]] = {}
    captions = [r["measured"] for r in rows if "measured" in r]
    for caption in captions:
        made, _, date = caption.rpartition(" ")
        dates.setdefault(made, []).append(date)
    numbers = {caption: [*dates].index(caption.rpartition(" ")[0]) + 1 for caption in captions}
    lines = [f"{made} {' to '.join(sorted({min(d), max(d)}))}" for made, d in dates.items()]
    if len(lines) > 1:
        lines = [f"[{k}] {line}" for k, line in enumerate(lines, 1)]
    return numbers, lines


def _columns(sides: dict[str, Any] | None) -> str:
    """What a line of the table shows of both sides; blanks where nothing was measured."""
    if sides is None:
        return " " * 25
    there = sides["ratio"] is not None
    theirs = f"{sides['library_value']:,.1f}" if there else "not here"
    ratio = f"{sides['ratio']:.2f}" if there else ""
    return f"{theirs:>9}{sides['book_value']:>10,.1f}{ratio:>6}"


def draw(rows: list[dict[str, Any]]) -> None:
    """Draw the scoreboard: the book's speed as a multiple of the library's, a bar a workload.

    A thin bar stands for what was measured sustained. Where the rows have several sources, each
    name has the number of its own.
    """
    drawn = [r for r in rows if r.get("ratio")]
    numbers, sources = _sources(drawn)

    def name(r: dict[str, Any]) -> str:
        mark = f" [{numbers[r['measured']]}]" if len(sources) > 1 else ""
        return f"{r['workload']}, {r['library']}{mark}"

    late = {name(r): r["sustained"]["ratio"] for r in drawn if r.get("sustained", {}).get("ratio")}
    bars(
        {name(r): r["ratio"] for r in drawn},
        "times as fast as the library",
        line=(1, "library"),
        note="\n".join(sources),
        form="{:.2f}",
        points=(late, "sustained: a second or more without a rest") if late else None,
        label="short runs",
    )
