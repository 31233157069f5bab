"""Kernels of `hopper.any_shape` that were timed, each by its plan, beside the library.

They are in book/measurements/<device>/any_shape_*.jsonl: first what they ran on, then a line for
each case of `sets`. experiments/any_shape/probe.txt timed them, on 2026-11-23: `FIRST`, `BETWEEN`
and `LAST`. `WIDE` has up to 28 plans of each of the cases in which the model's pick was slower than
the library on either chip, and of some others, and `AGAIN` the fastest three of these and the
planner's pick: both are of 2026-11-24. Of 2026-11-25 there are three more of an H100: `WIDTHS`,
picks among few widths of tiles and among all; `ORDER`, kernels that differ in the order of their
tiles alone; and `CHOSEN`, the planner's pick then, and the fastest plan of the runs before.

On 2026-11-27 the kernels changed: sums are exchanged in another way, and a tile is found more
quickly. Four runs of an H100 have the kernels as they are since then: `PARTS`, plans whose sums are
cut, and others; `STREAM`, kernels beside such as stream-K makes; `REPLACED`, what a planner chose
for 16 cases; and `FINAL`, today's planner's picks, and the fastest plans of the runs before.

The constants of `hopper.any_costs` were fitted to what ran on a chip, but for the cases of
`sets.unseen`, and for kernels whose tiles are not in the order of `any_plan.group_of`; of `FINAL`,
to all but the cases of `REPLACED`.
"""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from d2ltvm.bench import sets
from d2ltvm.bench.records import stored_lines
from d2ltvm.bench.sets import Case
from d2ltvm.hopper import any_model
from d2ltvm.hopper.any_costs import Costs, costs, fitted
from d2ltvm.hopper.any_plan import Plan
from d2ltvm.hopper.planning import ConvPlan

SMS = 132  # of the GPUs that they ran on
FIRST, BETWEEN, LAST = (f"any_shape_{run}.jsonl" for run in ("first", "between", "last"))
SUSTAINED = "any_shape_sustained.jsonl"
WIDE, AGAIN = "any_shape_wide.jsonl", "any_shape_again.jsonl"  # of `hopper.many_plans`
# On an H100 alone:
WIDTHS, ORDER, CHOSEN = (f"any_shape_{run}.jsonl" for run in ("widths", "order", "chosen"))
PARTS, STREAM, REPLACED, FINAL = (
    f"any_shape_{run}.jsonl" for run in ("parts", "stream", "replaced", "final")
)
EXCHANGE = "any_shape_exchange.jsonl"
BOXED = "old"  # the name of conv_nhwc in the file
# A word of a plan's name: what it stands for. Words that follow from others are not read.
WORDS = {
    "d": "depth", "b": "blocks_per_sm", "st": "stages", "g": "group", "P": "pingpong", "m": "room",
    "l": "promotion", "c": "cluster", "D": "distributed", "A": "abreast", "Q": "parts",
}  # fmt: skip
IGNORED = {"tiles", "r", "w"}  # w: none of these plans has windows
WORD = re.compile(r"([A-Za-z]+)([\d.]+)")


def plan_fields(name: str) -> dict[str, Any] | None:
    """What a plan's name in the records says, as fields of `Plan`; None of what is no plan's name.

    >>> found = plan_fields("sw 2x1x64 d64 b1 s4+132 st9 g8 c2 D0")
    >>> found["columns"], found["splits"], found["full"], found["distributed"]
    (64, 4, 132, False)
    >>> plan_fields("library") is None
    True
    """
    found: dict[str, Any] = {"swapped": name.startswith("sw ")}
    tile, *words = name.removeprefix("sw ").split()
    if not re.fullmatch(r"\d+x\d+x\d+", tile):
        return None
    found |= zip(("consumers", "per", "columns"), map(int, tile.split("x")), strict=True)
    for word in words:
        if parts := re.fullmatch(r"s(\d+)\+(\d+)", word):
            found |= {"splits": int(parts[1]), "full": int(parts[2])}
            continue
        if not (match := WORD.fullmatch(word)):
            return None
        letters, value = match.groups()
        if letters == "k":
            n, y, x = map(int, value.split("."))
            found["bricks"] = (n, y, x) if n else None
        elif letters in WORDS:
            field = WORDS[letters]
            found[field] = bool(int(value)) if field in ("pingpong", "distributed") else int(value)
        elif letters not in IGNORED:
            return None
    return found


@dataclass(frozen=True)
class TimedPlan:
    """A kernel that was timed.

    Attributes:
        case: what it computes.
        plan: how; a `ConvPlan` is of `conv_nhwc`.
        us: its time in µs, the median of the rounds.
        library: that of cuDNN or cuBLAS, in the same rounds.
        chip: what it ran on, 'H100' or 'H200'.
    """

    case: Case
    plan: Plan | ConvPlan
    us: float
    library: float
    chip: str

    @property
    def estimate(self) -> float:
        """What the model says, in µs, with the constants of its chip."""
        return self.estimate_by(costs(self.chip))

    def estimate_by(self, of: Costs) -> float:
        """The same with other constants."""
        if isinstance(self.plan, ConvPlan):
            return any_model.estimate_boxed(self.plan, of) * 1e6
        return any_model.estimate(self.plan, of) * 1e6

    @property
    def unseen(self) -> bool:
        """Whether it is of a case that the constants were not fitted to."""
        return self.case.title in _titles()

    @property
    def offered(self) -> bool:
        """Whether the planner looks at such a kernel: see `any_model.boxes_are_known`."""
        return isinstance(self.plan, Plan) or any_model.boxes_are_known(self.case.conv)


@functools.cache
def _titles() -> frozenset[str]:
    return frozenset(case.title for case in sets.unseen())


@functools.cache
def timed_plans(file: str = LAST, device: str = "nvidia-h200") -> tuple[TimedPlan, ...]:
    """All of them, but for cases whose tensors have to be copied first: the copies are not timed.

    >>> found = timed_plans()
    >>> len({timed.case.title for timed in found})
    245

    Args:
        file: `FIRST`, `BETWEEN`, `LAST`, `WIDE`, `AGAIN`; or of an H100 `WIDTHS`, `ORDER`,
            `CHOSEN`, `PARTS`, `STREAM`, `REPLACED`, `FINAL`. An H100 does not have the first two.
        device: a folder under book/measurements.
    """
    found, chip = [], fitted(device)
    for case, told in _told(file, device):
        for name, us in told["us"].items():
            if plan := _plan(case, name):
                found.append(TimedPlan(case, plan, us, told["us"]["library"], chip))
    return tuple(found)


@dataclass(frozen=True)
class Picked:
    """A case, and the kernels that a run's planner picked for it in several ways.

    Attributes:
        case: what is computed.
        library: the time of cuDNN or cuBLAS, in µs.
        us: those of the picks, in the same rounds, by what picked them.
    """

    case: Case
    library: float
    us: dict[str, float]

    @property
    def unseen(self) -> bool:
        """Whether no constant was fitted to it."""
        return self.case.title in _titles()


@functools.cache
def picked(file: str = FINAL, device: str = "nvidia-h100-80gb-hbm3") -> tuple[Picked, ...]:
    """The picks of a run.

    >>> sorted(picked()[0].us)
    ['known', 'model']

    Args:
        file: `FINAL`, with the picks of today's planner by its 'model', and the fastest plans that
            were 'known'; `CHOSEN`, the same of the planner of 2026-11-25; or `WIDTHS`, with those
            of 'before', with an H100's own 'constants', with these and all 'widths', and two more.
        device: a folder under book/measurements.
    """
    found = []
    for case, told in _told(file, device):
        us = {pick: told["us"][name] for pick, name in told["picks"].items()}
        found.append(Picked(case, told["us"]["library"], us))
    return tuple(found)


def ratios_by_clock(layers: bool, device: str = "nvidia-h200") -> dict[str, list[float]]:
    """The library's time over ours, of some cases of the sets, by the graph and sustained clocks.

    >>> {clock: len(found) for clock, found in ratios_by_clock(layers=True).items()}
    {'graph': 23, 'sustained': 23}

    Args:
        layers: whether of layers, or of products.
        device: a folder under book/measurements.
    """
    cases = [case for case in stored_lines(SUSTAINED, device)[1:] if case["layer"] == layers]
    clocks = ("graph", "sustained")
    return {
        clock: [case[clock]["library"] / case[clock]["TVM"] for case in cases] for clock in clocks
    }


@dataclass(frozen=True)
class Streamed:
    """A case by stream-K, which shares out the rounds of the last tiles evenly over all blocks.

    Attributes:
        case: what is computed.
        tiles: of the kernel by stream-K.
        at_once: blocks that run at once.
        us: its time in µs.
        whole: the time of the fastest of one or two other kernels, in the same rounds.
    """

    case: Case
    tiles: int
    at_once: int
    us: float
    whole: float


@functools.cache
def streamed(device: str = "nvidia-h100-80gb-hbm3") -> tuple[Streamed, ...]:
    """The kernels by stream-K, of `STREAM`, the fastest of up to three a case.

    >>> len(streamed())
    78
    """
    return tuple(
        Streamed(case, told["tiles"], told["at_once"], told["us"], line["whole"]["us"])
        for case, line in _told(STREAM, device)
        for told in (line["streamed"],)
    )


@dataclass(frozen=True)
class Changed:
    """A kernel as it was before 2026-11-27, and with single changes.

    Attributes:
        case: what is computed.
        run: 'first' or 'second'.
        parts: that its sums are cut into; 1 if they are not.
        in_cluster: whether parts meet in a cluster.
        us: times in µs: 'before', and by what was changed.
    """

    case: Case
    run: str
    parts: int
    in_cluster: bool
    us: dict[str, float]


@functools.cache
def changed(device: str = "nvidia-h100-80gb-hbm3") -> tuple[Changed, ...]:
    """The kernels of `EXCHANGE`.

    >>> sorted({name for each in changed() for name in each.us})[:3]
    ['before', 'both', 'both, constant divisor']
    """
    return tuple(
        Changed(
            _cases()[line["title"]], line["run"], line["parts"], line["in_cluster"],
            {name: us for name, us in line["us"].items() if name != "library"},
        )
        for line in stored_lines(EXCHANGE, device)[1:]
    )  # fmt: skip


def clusters(device: str = "nvidia-h200") -> dict[int, int]:
    """How many clusters of so many blocks, each with an SM to itself, a GPU runs at once.

    The driver said so (cuOccupancyMaxActiveClusters).

    >>> clusters()[2]
    66
    """
    return {int(size): many for size, many in stored_lines(LAST, device)[0]["clusters"].items()}


@functools.cache
def _cases() -> dict[str, Case]:
    """Those of all sets, by title."""
    return {case.title: case for case in (*sets.layers(), *sets.products(), *sets.unseen())}


def _told(file: str, device: str) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Cases whose tensors were not copied, each with its line."""
    cases = _cases()
    for told in stored_lines(file, device)[1:]:
        if told["title"] in cases and not told["copied"]:
            yield cases[told["title"]], told


def _plan(case: Case, name: str) -> Plan | ConvPlan | None:
    """The plan of a name in the file; None of the library."""
    if name == BOXED and case.transposed is None:
        return any_model.boxed(case.conv, SMS)
    fields = plan_fields(name)
    if fields is None:
        return None
    return Plan(case.conv, SMS, transposed=case.transposed is not False, **fields)
