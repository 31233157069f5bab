"""The scoreboard: each workload of the book, the library and the book's best kernel, side by side.

`python -m d2ltvm bench` prints it. What has a GPU is measured on the GPU, and comes from the
records where there is none; what runs on the CPU is measured every time.
"""

import argparse
import json
import sys
from dataclasses import dataclass

from d2ltvm import baselines, hopper_bench, schedules
from d2ltvm.bench import bcast_data, bench_together, tvm_add
from d2ltvm.data import get_abc
from d2ltvm.errors import MissingError
from d2ltvm.figures import bars
from d2ltvm.records import measure

OURS = "TVM, this book"


@dataclass(frozen=True)
class Workload:
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
    data: object
    library: tuple
    contender: object
    gigabytes: object


@dataclass(frozen=True)
class Race:
    """Several lines of the scoreboard that are one measurement of a chapter.

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
    measure: object

    device = "cuda"


def races():
    """The measurements of chapters that the scoreboard shows, a list of `Race`."""
    layers, layer = hopper_bench.bench_layers, hopper_bench.LAYER
    ours = {"taps left out": {}}

    def resnet(name, title, sizes):
        return Race(name, title, "cuDNN", "TVM", lambda: layers([(256, *one) for one in sizes]))

    def products():
        return hopper_bench.bench_products([2048, 4096, 8192])

    return [
        Race(
            "hopper/layer", "conv {}, burst", "cuDNN", "taps left out",
            lambda: layers([layer], ours),
        ),
        Race(
            "hopper/layer_sustained", "conv {}, sustained", "cuDNN", "taps left out",
            lambda: layers([layer], ours, "sustained"),
        ),
        Race("hopper/batches", "the same, {} images", "cuDNN", "TVM", hopper_bench.bench_batches),
        resnet("hopper/resnet_3x3", "3 x 3, {}", hopper_bench.RESNET_3X3),
        resnet("hopper/resnet_1x1", "1 x 1, {}", hopper_bench.RESNET_1X1),
        Race("hopper/products", "float16 product, n = {}", "cuBLAS", "TVM", products),
        Race("hopper/float32", "float32 conv {}", "cuDNN", "TVM", hopper_bench.bench_float32),
    ]  # fmt: skip


def workloads():
    """The workloads of the book so far, a list of `Workload`."""

    def vector(n):
        return 12 * n / 1e9

    def broadcast(n):
        return (8 * n * n + 4 * n) / 1e9

    torch = ("PyTorch", baselines.torch_add)
    mxnet = ("MXNet", baselines.mxnet_add("cpu"))
    gpu_add = ("cuda", get_abc, torch, tvm_add(schedules.partitioned, "cuda"), vector)
    cpu_add = ("cpu", get_abc, mxnet, tvm_add(schedules.cpu_vector_add, "llvm"), vector)
    gpu_rows = ("cuda", bcast_data, torch, tvm_add(schedules.bcast_rows, "cuda"), broadcast)
    cpu_rows = ("cpu", bcast_data, mxnet, tvm_add(schedules.cpu_bcast_add, "llvm"), broadcast)
    return [
        Workload("add_16k", "vector add, 2^14 floats", 2**14, *gpu_add),
        Workload("add_64m", "vector add, 2^26 floats", 2**26, *gpu_add),
        Workload("bcast_2k", "broadcast add, 2048 x 2048", 2048, *gpu_rows),
        Workload("bcast_8k", "broadcast add, 8192 x 8192", 8192, *gpu_rows),
        Workload("cpu_add", "vector add, 2^25 floats", 2**25, *cpu_add),
        Workload("cpu_bcast", "broadcast add, 4096 x 4096", 4096, *cpu_rows),
    ]


def run(workload):
    """Measure a workload or a race, or look its record up: a `Record` with series for both sides.

    Raises:
        MissingError: it can neither be measured here nor looked up.
    """
    if isinstance(workload, Race):
        return measure(workload.name, workload.measure)
    name, library = workload.library

    def both():
        return bench_together(
            [workload.size],
            {name: library, OURS: workload.contender},
            data=workload.data,
            work=workload.gigabytes,
            unit="GB/s",
            clock="graph" if workload.device == "cuda" else "host",
        )

    return measure(f"scoreboard/{workload.key}", both, device=workload.device)


def rows(workload, record):
    """Lines of the scoreboard as dicts: both sides, how many times as fast, and the provenance."""
    race = isinstance(workload, Race)
    library = workload.library if race else workload.library[0]
    ours = record[workload.ours if race else OURS]
    theirs = record[library] if library in record.series else [None] * len(ours)
    return [
        {
            "workload": workload.title.format(x),
            "device": workload.device,
            "library": library,
            "unit": record.unit,
            "library_value": float(them) if them else None,
            "book_value": float(us),
            "ratio": _ratio(float(us), float(them), record.unit) if them else None,
            "measured": record.caption,
        }
        for x, us, them in zip(record.x["values"], ours, theirs, strict=True)
    ]


def _ratio(ours, theirs, unit):
    return theirs / ours if unit == "µs" else ours / theirs


def main(argv=None):
    """`python -m d2ltvm bench`: print the scoreboard. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m d2ltvm bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    as_json = parser.parse_args(argv).json
    lines, todo = [], [*workloads(), *races()]
    for done, workload in enumerate(todo):
        _progress(done, len(todo), workload.title)
        try:
            lines += rows(workload, run(workload))
        except MissingError as error:
            lines.append(
                {"workload": workload.title, "device": workload.device, "missing": str(error)}
            )
    _progress(len(todo), len(todo), "")
    print(json.dumps(lines, indent=2) if as_json else table(lines))
    return 0


def table(rows):
    """The scoreboard as text, with what was measured where below it."""
    lines = [f"{'workload':38}{'library':>24}{'this book':>16}{'ratio':>8}"]
    sources = []
    for r in rows:
        if "missing" in r:
            lines.append(f"{r['workload']:38}  {r['missing']}")
            continue
        if r["measured"] not in sources:
            sources.append(r["measured"])
        theirs = f"{r['library_value']:,.1f} {r['unit']}" if r["ratio"] else "not here"
        ratio = f"{r['ratio']:.2f}" if r["ratio"] else ""
        mark = f"[{sources.index(r['measured']) + 1}]"
        lines.append(
            f"{r['workload']:38}{r['library'] + ' ' + theirs:>24}"
            f"{r['book_value']:>9,.1f} {r['unit']:6}{ratio:>8} {mark}"
        )
    return "\n".join([*lines, "", *(f"[{k}] {text}" for k, text in enumerate(sources, 1))])


def draw(rows):
    """Draw the scoreboard: the book's speed as a multiple of the library's, a bar a workload."""
    ratios = {f"{r['workload']} ({r['library']})": r["ratio"] for r in rows if r["ratio"]}
    sources = dict.fromkeys(r["measured"] for r in rows if r["ratio"])
    bars(
        ratios,
        "speed of the book's kernel, library = 1",
        line=(1, "library"),
        note="\n".join(sources),
        form="{:.2f}",
    )


def _progress(done, of, what):
    """A progress bar on stderr, where somebody is looking at it."""
    if sys.stderr.isatty():
        bar = "#" * (20 * done // of)
        print(f"\r[{bar:20}] {done}/{of} {what:40}", end="", file=sys.stderr, flush=True)
        if done == of:
            print("\r" + " " * 72 + "\r", end="", file=sys.stderr)
