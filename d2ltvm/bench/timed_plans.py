"""Kernels of `hopper.any_shape` that were timed on one H200, each by its plan, beside the library.

They are in book/measurements/nvidia-h200/any_shape_plans.jsonl, a line for each layer or product of
`sets`: several plans, in CUDA graphs and in turns with cuDNN in its benchmark mode, channels last,
or with cuBLAS, on 2026-11-23. What timed them is an earlier version of
experiments/any_shape/probe.txt, which had no clusters, no bricks and no consumers in turns.
"""

import functools
import json
import re
from dataclasses import dataclass
from typing import Any

from d2ltvm.bench import sets
from d2ltvm.bench.sets import Case
from d2ltvm.hopper import any_model
from d2ltvm.hopper.any_plan import Plan
from d2ltvm.hopper.planning import ConvPlan
from d2ltvm.system import environment

SMS = 132  # of the GPU that they ran on
FILE = "nvidia-h200/any_shape_plans.jsonl"
BOXED = "old"  # the name of conv_nhwc in the file
NAME = re.compile(
    r"(?P<swapped>sw )?(?P<consumers>\d)x(?P<per>\d)x(?P<columns>\d+) d(?P<depth>\d+) "
    r"b(?P<blocks_per_sm>\d) s(?P<splits>\d+)\+(?P<full>\d+) st(?P<stages>\d+) g(?P<group>\d+) "
    r"tiles\d+ r\d+"
)


@dataclass(frozen=True)
class TimedPlan:
    """A kernel that was timed.

    Attributes:
        case: what it computes.
        plan: how; a `ConvPlan` is of `conv_nhwc`.
        us: its time in µs, the median of the rounds.
        library: that of cuDNN or cuBLAS, in the same rounds.
    """

    case: Case
    plan: Plan | ConvPlan
    us: float
    library: float

    @property
    def estimate(self) -> float:
        """What the model says, in µs."""
        if isinstance(self.plan, ConvPlan):
            return any_model.estimate_boxed(self.plan) * 1e6
        return any_model.estimate(self.plan) * 1e6


@functools.cache
def timed_plans() -> tuple[TimedPlan, ...]:
    """All of them, but for cases whose tensors have to be copied first: the copies are not timed.

    >>> found = timed_plans()
    >>> len({timed.case.title for timed in found})
    118
    """
    cases = {case.title: case for case in (*sets.layers(), *sets.products())}
    found = []
    for line in (environment.measurements() / FILE).read_text().splitlines():
        told = json.loads(line)
        case = cases.get(told["title"])
        if case is None or told["copied"]:
            continue
        for name, us in told["us"].items():
            if plan := _plan(case, name):
                found.append(TimedPlan(case, plan, us, told["us"]["library"]))
    return tuple(found)


def _plan(case: Case, name: str) -> Plan | ConvPlan | None:
    """The plan of a name in the file; None of the library."""
    if name == BOXED and case.transposed is None:
        return any_model.boxed(case.conv, SMS)
    if not (found := NAME.fullmatch(name)):
        return None
    given = found.groupdict()
    swapped = given.pop("swapped") is not None
    numbers: dict[str, Any] = {key: int(value) for key, value in given.items()}
    return Plan(case.conv, SMS, swapped, **numbers, transposed=case.transposed is not False)
