"""Races: what a search found, the book's schedules and the library, timed in turns in one run."""

import datetime
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from d2ltvm.bench import contenders, operator_layers, rows, set_bench
from d2ltvm.bench.measurement import Measurement
from d2ltvm.bench.operator_layers import FIRST, LAST, Window
from d2ltvm.bench.run import as_measurement
from d2ltvm.bench.sets import Case
from d2ltvm.bench.timing import Run, time_together
from d2ltvm.compute import data
from d2ltvm.fleet.database import OK, Database
from d2ltvm.hopper.any_conv import Conv
from d2ltvm.search.computations import BATCH_LAYER, DEPTHWISE_LAYER, KERNEL, PAD, SIDE, SOFTMAX_ROWS
from d2ltvm.search.on_fleet import FILE
from d2ltvm.search.tune import CANDIDATE, Bench
from d2ltvm.search.workloads import Workload

FOUND, BOOK, LIBRARY = "found: ", "book: ", "library: "  # what legends begin with
BY_RULES, BY_BOOK = "TVM's rules", "the book's sketch"


def race(work: Workload, found: Mapping[str, Any]) -> Measurement:
    """Time schedules of a workload beside the book's and the library's on a GPU, in µs.

    >>> race(work, {"TVM's rules": best.sch})  # doctest: +SKIP
    Measurement(unit='µs', x={'label': 'workload', 'values': ['hwcn-128']}, ...)

    All are checked before one is timed: each element, but for the library's, which are no work of
    this book, and for those of the Hopper kernel at random pixels.

    Args:
        work: the workload.
        found: schedules, by who found them.

    Returns:
        A `Measurement`; legends begin with 'found: ', 'book: ' or 'library: '.

    Raises:
        MissingError: there is no GPU, or no PyTorch.
        WrongResultError: a schedule computes something else.
    """
    bench = Bench(work, "cuda")
    mine = {FOUND + name: sch for name, sch in found.items()}
    mine |= {BOOK + name: make() for name, make in work.by_hand("cuda").items()}
    runs = {name: bench.checked(sch)[0] for name, sch in mine.items()} | libraries(work)
    return as_measurement("workload", [work.title], [time_together(runs)])


def libraries(work: Workload) -> dict[str, Run]:
    """The library's ways to compute a workload, which launch it without waiting, by legend.

    Of the layer on TensorCores, the book's kernel for Hopper is among them: no sketch has what it
    is made of.
    """
    return LIBRARIES[work.name](work.size)


def _matmul(n: int) -> dict[str, Run]:
    return {LIBRARY + "cuBLAS": contenders.torch_matmul()(*data.get_matmul_data(n, n, n))}


def _conv(n: int) -> dict[str, Run]:
    arrays = data.get_conv_data(n, n, SIDE, KERNEL, PAD, 1)
    return _cudnn(lambda last: contenders.torch_conv(PAD, 1, last)(*arrays))


def _hwcn(batch: int) -> dict[str, Run]:
    oc, ic, n, k, p, s = BATCH_LAYER
    arrays = data.get_conv_batch(batch, oc, ic, n, k)
    return _cudnn(lambda last: contenders.torch_conv_batch(p, s, last)(*arrays))


def _cudnn(convolve: Callable[[bool], Run]) -> dict[str, Run]:
    """A convolution in both layouts, of a function that is told whether channels are last."""
    orders = {"first": False, "last": True}
    return {f"{LIBRARY}cuDNN, channels {name}": convolve(last) for name, last in orders.items()}


def _tensorcores(batch: int) -> dict[str, Run]:
    oc, ic, n, k, p, _ = BATCH_LAYER
    case = Case("race", Conv(batch, (n, n), ic, oc, (k, k), (p, p)))
    found = set_bench.sides(case)
    return {
        LIBRARY + "cuDNN, channels last": found[set_bench.LIBRARY],
        BOOK + "wgmma and TMA": found[set_bench.OURS],
    }


def _depthwise(batch: int) -> dict[str, Run]:
    found = operator_layers.depthwise_contenders(batch, Window(*DEPTHWISE_LAYER))
    return {LIBRARY + name: found[name] for name in (LAST, FIRST)}


def _softmax(cols: int) -> dict[str, Run]:
    return {
        LIBRARY + "PyTorch": rows.torch_rows("softmax")(
            *rows.rows_data("softmax", SOFTMAX_ROWS, cols)
        )
    }


LIBRARIES: dict[str, Callable[[int], dict[str, Run]]] = {
    "matmul": _matmul,
    "conv": _conv,
    "hwcn": _hwcn,
    "tensorcores": _tensorcores,
    "depthwise": _depthwise,
    "softmax": _softmax,
}


def trials(folder: str | Path) -> tuple[Measurement, Measurement]:
    """What a search on a fleet measured, from the file that it keeps of the servers' answers.

    Args:
        folder: of the search, with its `fleet.jsonl`.

    Returns:
        The microseconds of a call; and in seconds, when each was known, from the first one on, what
        its compilation took, and its session on a server. Both are by the number of the candidate.
        Bad ones are left out; the notes say how many of what kind.

    Raises:
        ValueError: there is none.
    """
    path = Path(folder) / FILE
    if not path.exists():
        raise ValueError(f"{path} is not there; expected the folder of a search on a fleet")
    with Database(path) as database:
        found = {_number(r.name): r for r in database.results.values() if CANDIDATE in r.name}
    good = {number: result for number, result in sorted(found.items()) if result.status == OK}
    if not good:
        raise ValueError(f"{path} has no candidate that was right")
    kinds = Counter(result.status for result in found.values() if result.status != OK)
    bad = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"
    notes = f"{len(found)} candidates; bad ones: {bad}"
    x = {"label": "candidate", "values": list(good)}
    seconds = [sorted(result.seconds) for result in good.values()]
    at = [datetime.datetime.fromisoformat(result.date) for result in good.values()]
    start = min(datetime.datetime.fromisoformat(result.date) for result in found.values())
    calls = [round(s[len(s) // 2] * 1e6, 3) for s in seconds]
    moments = {
        "known after": [(moment - start).total_seconds() for moment in at],
        "compiling": [result.build_s for result in good.values()],
        "session": [result.session_s for result in good.values()],
    }
    return (
        Measurement(unit="µs", x=x, series={"a call": calls}, notes=notes),
        Measurement(unit="s", x=x, series=moments, notes=notes),
    )


def _number(name: str) -> int:
    return int(name.rpartition(" ")[2])
