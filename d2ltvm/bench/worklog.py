"""The running table of a chapter: what was predicted for each kernel, and what was measured."""

import math
from dataclasses import dataclass, field

from d2ltvm.errors import shown

_HEAD = ("kernel", "what changed", "predicted", "measured", "of predicted", "of the ceiling")


@dataclass
class _Row:
    """One kernel: the prediction is None where nobody made one, the other where none is yet."""

    changed: str
    predicted: float | None
    measured: float | None = None


@dataclass
class Worklog:
    """A table that grows by a row a kernel. A prediction stands before its measurement, or never.

    >>> log = d2ltvm.Worklog("TB/s", ceiling=4.2)
    >>> log.predict("one element", "the first version", 4.2)
    >>> log.predict("four elements", "16 bytes an access", None)
    >>> log.measured("one element", 3.36)
    >>> print(log)
    TB/s           what changed        predicted  measured  of predicted  of the ceiling
    one element    the first version        4.20      3.36           80%             80%
    four elements  16 bytes an access          -         -             -               -
    >>> log.missed(0.10)
    ['one element']

    Args:
        unit: unit of what is predicted and measured, such as 'TB/s' or 'µs'.
        ceiling: what the hardware can do at best, in that unit; without one the table has no share.
        lower: True where less is better, as of a time. The share of the ceiling is then the
            ceiling, a shortest time, by what was measured.

    Raises:
        ValueError: a number that is not finite and above zero, or an empty name.
        KeyError: a kernel that was not predicted.
        RuntimeError: a prediction for a kernel that was measured already.
    """

    unit: str
    ceiling: float | None = None
    lower: bool = False
    _rows: dict[str, _Row] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.ceiling is not None:
            self.ceiling = _positive("ceiling", self.ceiling)

    def predict(self, kernel: str, changed: str, value: float | None) -> None:
        """Add a row, or predict anew for a kernel that was not measured yet.

        Args:
            kernel: its name in the table.
            changed: what is different from the row above, in a few words.
            value: the prediction in the table's unit; None where there is none.
        """
        for name, given in (("kernel", kernel), ("changed", changed)):
            if not isinstance(given, str) or not given:
                raise ValueError(f"{name} is {shown(given)}; expected a few words")
        if kernel in self._rows and self._rows[kernel].measured is not None:
            raise RuntimeError(f"{kernel!r} was measured already; expected its prediction before")
        predicted = None if value is None else _positive("value", value)
        self._rows[kernel] = _Row(changed, predicted)

    def measured(self, kernel: str, value: float) -> None:
        """Write down what was measured for a kernel that has a row, in the table's unit."""
        if kernel not in self._rows:
            known = ", ".join(self._rows) or "no kernel yet"
            raise KeyError(f"{shown(kernel)} has no prediction; predicted were: {known}")
        self._rows[kernel].measured = _positive("value", value)

    def missed(self, tolerance: float = 0.10) -> list[str]:
        """The kernels whose measurement is further from its prediction than this part of it."""
        tolerance = _positive("tolerance", tolerance)
        return [
            kernel
            for kernel, row in self._rows.items()
            if row.predicted and row.measured
            if abs(row.measured - row.predicted) > tolerance * row.predicted
        ]

    def __str__(self) -> str:
        table = [(self.unit, *_HEAD[1:]), *map(self._line, self._rows)]
        if not self.ceiling:
            table = [line[:-1] for line in table]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if k < 2 else cell.rjust(width)
                for k, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            for line in table
        )

    def _line(self, kernel: str) -> tuple[str, ...]:
        row = self._rows[kernel]
        ratio = share = "-"
        if row.measured and row.predicted:
            ratio = f"{row.measured / row.predicted:.0%}"
        if row.measured and self.ceiling:
            parts = (self.ceiling, row.measured) if self.lower else (row.measured, self.ceiling)
            share = f"{parts[0] / parts[1]:.0%}"
        return kernel, row.changed, _digits(row.predicted), _digits(row.measured), ratio, share


def _digits(value: float | None) -> str:
    """Three digits that count, and no power of ten."""
    if value is None:
        return "-"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(value)))}f}"


def _positive(name: str, value: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool | str) or not math.isfinite(number) or number <= 0:
        raise ValueError(f"{name} is {shown(value)}; expected a number above zero")
    return number
