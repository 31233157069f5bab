"""What a fleet is asked: what candidates compute, how they are timed, how long steps may take."""

import functools
import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from d2ltvm.errors import as_number, shown, whole

Array = npt.NDArray[Any]
GRACE = 3.0  # seconds after a limit of a server's own until it is taken for dead


@dataclass(frozen=True)
class Clock:
    """How a kernel is timed: TVM's `time_evaluator`, after a first call that does not count.

    Attributes:
        repeat: how many means are taken.
        number: over how many calls each, at least.
        min_repeat_ms: for how many milliseconds each, at least.

    Raises:
        ValueError: one is no such number.
    """

    repeat: int = 3
    number: int = 1
    min_repeat_ms: int = 20

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            whole(name, value, 0 if name == "min_repeat_ms" else 1)


@dataclass(frozen=True)
class Limits:
    """Seconds that each step may take.

    Attributes:
        build: to compile a candidate.
        wait: until a server is free, with the tracker away or not.
        connect: until a server answers.
        run: of a candidate on a server: upload, the first run, the check and the timing; 0 is no
            limit. What all candidates share is sent before that: see `session.SLOWEST`.

    Raises:
        ValueError: one is no number, or less than 0.
    """

    build: float = 60.0
    wait: float = 60.0
    connect: float = 10.0
    run: float = 10.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not as_number(name, value) >= 0:
                raise ValueError(f"{name} is {shown(value)}; expected seconds, 0 or more")

    @property
    def late(self) -> float:
        """Seconds until a server that runs a candidate is taken for dead.

        >>> Limits().late, Limits(run=0).late
        (13.0, inf)
        """
        return self.run + GRACE if self.run else math.inf


CLOCK, LIMITS = Clock(), Limits()  # where nothing else is said


@dataclass(frozen=True)
class Task:
    """What all candidates of a run compute.

    Attributes:
        inputs: arrays for what a candidate reads, in its order.
        wants, magnitudes: for what it writes, as `d2ltvm.compiler.verify.compare` takes them.
        terms, sums: as `d2ltvm.check` takes them.
    """

    inputs: Sequence[Array]
    wants: Sequence[Array]
    magnitudes: Sequence[Array]
    terms: int = 1
    sums: str | None = None

    @property
    def nbytes(self) -> int:
        """Of all arrays."""
        arrays = (*self.inputs, *self.wants, *self.magnitudes)
        return sum(np.asarray(array).nbytes for array in arrays)


@functools.lru_cache(maxsize=1)
def read_task(path: str) -> Task:
    """The task that a file holds; a worker reads it once."""
    task: Task = pickle.loads(Path(path).read_bytes())
    return task
