"""Candidates whose time was predicted, and then measured on a GPU.

Four files beside this module have them: a line for each, with its workload, where it comes from,
what was predicted, and its trace. None had run when they were written.

- `candidates.jsonl.xz`, by experiments/search/gather.txt: what the first judge predicted. The
  second one was fitted to their times. `unrolled.jsonl.xz` has what `unrolled` counts in them.
- `fresh.jsonl.xz`, by experiments/search/fresh.txt: of two other sizes, for a test of both judges.
- `more.jsonl.xz`, likewise: of four other workloads, with what the third judge, `pipes`, says of
  them. The others speak only of the first of these, in float32 on threads.
- `fourth.jsonl.xz`, likewise: of TensorCores with 64 images, with what the fourth judge, `waits`,
  says.

What a GPU measured of them is in book/measurements/<device>/search.jsonl, search_fresh.jsonl,
search_more.jsonl and search_fourth.jsonl, written by experiments/search/measure.txt.
"""

import functools
import hashlib
import json
import lzma
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from d2ltvm.search.followed import Followed
from d2ltvm.search.pipes import Piped
from d2ltvm.search.predicted import Counted
from d2ltvm.search.spaces import Space
from d2ltvm.search.unrolled import Unrolled
from d2ltvm.search.workloads import Workload
from d2ltvm.system import environment

CANDIDATES = Path(__file__).with_name("candidates.jsonl.xz")
FRESH = Path(__file__).with_name("fresh.jsonl.xz")
MORE = Path(__file__).with_name("more.jsonl.xz")
FOURTH = Path(__file__).with_name("fourth.jsonl.xz")
UNROLLED = Path(__file__).with_name("unrolled.jsonl.xz")
RECORDS = {
    CANDIDATES: "search.jsonl",
    FRESH: "search_fresh.jsonl",
    MORE: "search_more.jsonl",
    FOURTH: "search_fourth.jsonl",
}
Kernels = tuple[tuple[Piped, Followed], ...]
LIBRARY = "library"
JUMP = 1.3


@dataclass(frozen=True)
class Gathered:
    """A candidate with its prediction.

    Attributes:
        key: a few letters that stand for it; of a schedule of the book 'by hand: ' and its name.
        origin: 'rules' (MetaSchedule's sketches), 'book' (`book_space`), or 'by hand'.
        predicted: seconds by the first judge; None of what is by hand or what it does not know.
        counted: what the analyser found in it; None likewise, and of `MORE` and `FOURTH`, where
            `counted` says it anew.
        trace: its steps, as MetaSchedule writes them; None of what is by hand.
        unrolled: what the compiler leaves of its loops, for the second judge; as `counted`.
        second, third, fourth: seconds by these judges, if they were predicted before any candidate
            ran.
        kernels: what the fourth judge counted in each kernel; None of others.
    """

    key: str
    origin: str
    predicted: float | None
    counted: Counted | None
    trace: Any
    unrolled: Unrolled | None
    second: float | None
    third: float | None
    fourth: float | None
    kernels: Kernels | None


@dataclass(frozen=True)
class Timed(Gathered):
    """A candidate that was measured.

    Attributes:
        seconds: of a launch, the median of three rounds, or the one round of a slow candidate.
    """

    seconds: float


def gathered(work: Workload) -> list[Gathered]:
    """The candidates of a workload, those that a judge likes best first, the rest in no order.

    >>> found = gathered(d2ltvm.search.workload("matmul", 2048))
    >>> len(found) > 500
    True
    """
    return [_gathered(line) for line in _lines() if (line["name"], line["size"]) == _of(work)]


def timed(work: Workload, device: str = "nvidia-h200") -> list[Timed]:
    """The candidates of a workload that a GPU has measured; none where no record exists yet.

    Runs that were not steady are left out: see `runs`.

    Args:
        work: the workload.
        device: a folder under book/measurements.
    """
    found = {line["key"]: line for line in _steady(device) if line["workload"] == work.title}
    return [
        Timed(**vars(one), seconds=statistics.median(found[one.key]["us"]) / 1e6)
        for one in gathered(work)
        if "us" in found.get(one.key, {})
    ]


def library(work: Workload, device: str = "nvidia-h200") -> float | None:
    """Seconds of cuBLAS or cuDNN in the same runs; None where no record exists yet."""
    lines = [x for x in _steady(device) if x["workload"] == work.title and x["origin"] == LIBRARY]
    times = [t for x in lines for t in x["us"]]
    return statistics.median(times) / 1e6 if times else None


@dataclass(frozen=True)
class MeasuringRun:
    """A run of the measuring program.

    Attributes:
        number: from 1.
        timed: candidates of all workloads that were timed in three rounds.
        slow: how many of them took over `JUMP` times as long in one round as in another.
    """

    number: int
    timed: int
    slow: int

    @property
    def steady(self) -> bool:
        """Whether no more than one candidate in 20 has such rounds."""
        return self.slow <= self.timed / 20


def runs(device: str = "nvidia-h200") -> list[MeasuringRun]:
    """The runs of a record, and whether their rounds agree; none where no record exists yet.

    >>> [run.steady for run in runs("nvidia-h200")][:2]
    [True, True]
    """
    rounds: dict[int, list[list[float]]] = {}
    for line in _measured(device):
        if len(line.get("us", ())) == 3 and line["origin"] != LIBRARY:
            rounds.setdefault(line["run"], []).append(line["us"])
    return [
        MeasuringRun(number, len(found), sum(max(us) > JUMP * min(us) for us in found))
        for number, found in sorted(rounds.items())
    ]


def caption(device: str = "nvidia-h200", file: Path = CANDIDATES) -> str:
    """One line that says on what candidates were measured; or that they were not.

    Args:
        device: a folder under book/measurements.
        file: whose candidates: one of `RECORDS`.
    """
    lines = _read(device, RECORDS[file])
    if not lines:
        return f"no record of these candidates exists yet for {device}"
    d, versions = lines[0]["device"], lines[0]["software"]
    return (
        f"{d['name']}, driver {d['driver']}, CUDA {d['cuda']}, TVM {versions.get('apache-tvm')}; "
        f"recorded {lines[0]['date']}"
    )


def failures(work: Workload, device: str = "nvidia-h200") -> dict[str, str]:
    """Why candidates of a workload have no time, by their keys."""
    return {
        line["key"]: line["failed"]
        for line in _steady(device)
        if line["workload"] == work.title and "failed" in line
    }


def predictions(device: str = "nvidia-h200", file: Path = FRESH) -> tuple[str, str]:
    """The SHA-256 of a file of fresh predictions: as it is, and as the record names it.

    Args:
        device: a folder under book/measurements.
        file: one of `RECORDS`.
    """
    lines = _read(device, RECORDS[file])
    named = lines[0]["candidates"] if lines else ""
    return hashlib.sha256(file.read_bytes()).hexdigest(), named


def remade(one: Gathered, space: Space) -> Any:
    """The schedule of a candidate, made anew from its trace.

    Args:
        one: one with a trace.
        space: any space of its workload, for the computation.
    """
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import Trace

    sch = Schedule(space.context.mod)
    Trace.apply_json_to_schedule(one.trace, sch)
    return sch


def _of(work: Workload) -> tuple[str, int]:
    return work.name, work.size


def _gathered(line: dict[str, Any]) -> Gathered:
    counts, left = line.get("counted"), line.get("unrolled")
    first, second, third, fourth = (
        line[key] / 1e6 if key in line else None
        for key in ("predicted_us", "second_us", "third_us", "fourth_us")
    )
    return Gathered(
        key=line["key"],
        origin=line["origin"],
        predicted=first,
        counted=Counted(**counts) if counts else None,
        trace=line.get("trace"),
        unrolled=Unrolled(**left) if left else _unrolled().get(line["key"]),
        second=second,
        third=third,
        fourth=fourth,
        kernels=_kernels(line["kernels"]) if "kernels" in line else None,
    )


def _kernels(lines: list[Any]) -> Kernels:
    return tuple((Piped(**counted), Followed(**code)) for counted, code in lines)


@functools.cache
def _lines() -> list[dict[str, Any]]:
    texts = [lzma.decompress(path.read_bytes()) for path in RECORDS]
    return [json.loads(line) for text in texts for line in text.splitlines()]


@functools.cache
def _unrolled() -> dict[str, Unrolled]:
    with lzma.open(UNROLLED, "rt") as file:
        return {line.pop("key"): Unrolled(**line) for line in map(json.loads, file)}


def _steady(device: str) -> list[dict[str, Any]]:
    """The lines of steady runs."""
    numbers = {run.number for run in runs(device) if run.steady}
    return [line for line in _measured(device) if line.get("run") in numbers and "key" in line]


def _measured(device: str) -> list[dict[str, Any]]:
    """The lines of all records."""
    return [line for name in RECORDS.values() for line in _read(device, name)]


@functools.cache
def _read(device: str, name: str) -> list[dict[str, Any]]:
    path = environment.measurements() / device / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
