"""What a benchmark returns: values along x by contender, with their unit and their spread.

Where several clocks time, the second and those behind it add their names to those of contenders:
'TVM, sustained'. So it stands in the records. `Measurement.by_clock` takes one clock's out.
"""

import dataclasses
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from d2ltvm.errors import shown

# The clocks, and how each times, in words for a record's notes.
CLOCKS = {
    "graph": "CUDA graphs between CUDA events, warm, L2 not flushed",
    "burst": "CUDA graphs between CUDA events, a rest before each round, L2 not flushed",
    "sustained": "CUDA graphs between CUDA events, no rest, means of a second, L2 not flushed",
    "stream": "launches one by one between CUDA events, warm, L2 not flushed",
    "host": "host clock around many calls, warm",
}

ClockNames = str | Sequence[str]  # the name of one, or of several, one after the other


@dataclass(kw_only=True)
class Measurement:
    """What was measured. `d2ltvm.measure` makes a `Record` of it: the same, with where and when.

    >>> found = d2ltvm.bench.Measurement(
    ...     unit="TFLOPS", x={"label": "n", "values": [2048, 4096]}, series={"TVM": [51.5, 53.0]})
    >>> found["TVM"], found.at("TVM", 4096)
    (array([51.5, 53. ]), 53.0)

    Attributes:
        unit: unit of the series, such as 'GB/s'.
        x: {'label': text, 'values': list of numbers or names}.
        series: values by legend, each as long as `x['values']`; the median of the rounds.
        spread: [lowest, highest] of the rounds for each value, by legend; may be empty.
        notes: how it was measured, in a sentence.
        missing: contenders whose library is not there: they have no series, and NaN for values.
    """

    unit: str
    x: dict[str, Any]
    series: dict[str, list[float]]
    spread: dict[str, list[list[float]]] = field(default_factory=dict)
    notes: str = ""
    missing: tuple[str, ...] = ()

    @classmethod
    def of(cls, result: "Measurement | dict[str, Any]") -> "Measurement":
        """A measurement as it is, or of a dict of its attributes."""
        if isinstance(result, Measurement):
            return result
        if not isinstance(result, dict):
            kind = type(result).__name__
            raise TypeError(f"result is a {kind}; expected a Measurement, or a dict of its fields")
        return cls(**result)

    def __post_init__(self) -> None:
        self.missing = tuple(self.missing)
        _check_fields(self)
        size = len(self.x["values"])
        wrong = [legend for legend, values in self.series.items() if len(values) != size]
        if wrong:
            raise ValueError(f"series {wrong} of {self.title}: expected {size} values, as x has")

    def __getitem__(self, legend: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        if not isinstance(legend, str):
            raise KeyError(f"{shown(legend)}; expected a legend of {self.title}")
        if legend in self.missing:
            return np.full(len(self.x["values"]), np.nan)
        if legend not in self.series:
            known = ", ".join(self.series)
            raise KeyError(f"{shown(legend)}; expected one of {self.title}: {known}")
        return np.array(self.series[legend], dtype="float64")

    def at(self, legend: str, x: Any) -> float:
        """The value of a series where the x axis is `x`."""
        if not isinstance(x, Hashable) or x not in self.x["values"]:
            wanted = shown(self.x["values"])
            raise KeyError(f"{shown(x)}; expected an x of {self.title}: {wanted}")
        return float(self[legend][self.x["values"].index(x)])

    def by_clock(self, clock: str) -> Self:
        """What one of several clocks found, by the contenders' own names.

        >>> late = d2ltvm.load_record("hopper/products").by_clock("sustained")
        >>> list(late.series)
        ['cuBLAS', 'TVM']

        Args:
            clock: 'graph', 'burst', 'sustained', 'stream' or 'host'.

        Raises:
            KeyError: this clock was not asked.
        """
        (clock,) = as_clocks(clock)
        ending = self._ending_by(clock)
        legends = (*self.series, *self.missing)
        names = {k: k.removesuffix(ending) for k in legends if _ending(k) == ending}
        return dataclasses.replace(
            self,
            series={names[k]: v for k, v in self.series.items() if k in names},
            spread={names[k]: v for k, v in self.spread.items() if k in names},
            missing=tuple(names[k] for k in self.missing if k in names),
        )

    def _ending_by(self, clock: str) -> str:
        """What legends end in by this clock: its name, but nothing by the first."""
        endings = {_ending(legend) for legend in (*self.series, *self.missing)}
        if f", {clock}" in endings:
            return f", {clock}"
        if self.notes and not self.notes.startswith(CLOCKS[clock]):
            raise KeyError(f"clock {clock!r}; {self.title} has: {self.notes}")
        return ""

    @property
    def values(self) -> np.ndarray[Any, Any]:
        """The values of the x axis, as a NumPy array."""
        return np.array(self.x["values"])

    @property
    def label(self) -> str:
        """The label of the x axis."""
        return str(self.x["label"])

    @property
    def title(self) -> str:
        """What messages call it."""
        return "the measurement"


def _check_fields(found: Measurement) -> None:
    """A TypeError or ValueError where a field is not what it is documented to be."""
    if not isinstance(found.unit, str):
        raise TypeError(f"unit is {shown(found.unit)}; expected text")
    x = found.x
    if not isinstance(x, dict) or not {"label", "values"} <= x.keys():
        raise ValueError(f"x is {shown(x)}; expected {{'label': text, 'values': a list}}")
    if not isinstance(x["values"], list | tuple):
        raise TypeError(f"the values of x are {shown(x['values'])}; expected a list")
    lists = isinstance(found.series, dict) and all(
        isinstance(values, list | tuple) for values in found.series.values()
    )
    if not lists:
        raise TypeError(f"series is {shown(found.series)}; expected lists by legend")


def as_clocks(clock: ClockNames) -> list[str]:
    """The names of one clock or of several, as a list; ValueError if one is unknown."""
    clocks: list[Any] = list(clock) if isinstance(clock, tuple | list) and clock else [clock]
    for one in clocks:
        if not isinstance(one, str) or one not in CLOCKS:
            raise ValueError(
                f"clock is {shown(one)}; expected one of {', '.join(map(repr, CLOCKS))}"
            )
    return clocks


def method(clock: ClockNames) -> str:
    """How contenders are timed by a clock, or by several, in words for a record's notes.

    >>> method("stream")
    'launches one by one between CUDA events, warm, L2 not flushed; in turns, median of rounds'
    """
    return f"{'; '.join(CLOCKS[one] for one in as_clocks(clock))}; in turns, median of rounds"


def legends(name: str, clock: ClockNames) -> list[str]:
    """What a contender is called, by each of the clocks.

    >>> legends("TVM", ("burst", "sustained"))
    ['TVM', 'TVM, sustained']
    """
    return [name, *(f"{name}, {other}" for other in as_clocks(clock)[1:])]


def _ending(legend: str) -> str:
    """The clock at the end of a legend, with its comma; '' where there is none."""
    return next((f", {clock}" for clock in CLOCKS if legend.endswith(f", {clock}")), "")
