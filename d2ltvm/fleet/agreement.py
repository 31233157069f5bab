"""Whether two GPUs of one kind are the same to a clock: the same candidates, measured by both.

A file of results has each candidate once. So each server, in a fleet of its own, measures into
files of its own: `up` takes those GPUs that CUDA_VISIBLE_DEVICES names.
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from d2ltvm.errors import above_zero, shown
from d2ltvm.fleet.database import OK, Result

WITHIN = 0.05  # how far apart two times may be and agree: so the book counts a prediction as missed


@dataclass(frozen=True)
class Used:
    """What a server measured, and with what clock and power.

    Attributes:
        who: its GPU's UUID, or, of a processor, the server's name and place.
        device: the GPU's name.
        count: of results that are 'ok'.
        clock_mhz, power_w: medians over these; None where there was no NVML.
    """

    who: str
    device: str
    count: int
    clock_mhz: float | None
    power_w: float | None


@dataclass(frozen=True)
class Agreement:
    """How far apart the times of two servers are, of the candidates that both measured.

    Attributes:
        first, second: who they are, as `Used.who`.
        ratios: by candidate, the median time of the second by that of the first.
        own: by candidate, how far apart the times of one server are, by their median: that of the
            server where they are further apart.
        within: how far a ratio may be from 1: what was stated before.
    """

    first: str
    second: str
    ratios: dict[str, float]
    own: dict[str, float]
    within: float = WITHIN

    @property
    def median(self) -> float:
        """The median ratio."""
        return statistics.median(self.ratios.values())

    @property
    def quartiles(self) -> tuple[float, float]:
        """A quarter of the ratios are below the first, a quarter above the second."""
        low, high = np.percentile(list(self.ratios.values()), [25, 75])
        return float(low), float(high)

    @property
    def furthest(self) -> str:
        """The candidate whose ratio is furthest from 1."""
        return max(self.ratios, key=lambda name: _off(self.ratios[name]))

    @property
    def apart(self) -> list[str]:
        """The candidates whose ratio is further from 1 than `within`, the furthest first."""
        found = [name for name, ratio in self.ratios.items() if _off(ratio) > self.within]
        return sorted(found, key=lambda name: -_off(self.ratios[name]))

    @property
    def agree(self) -> bool:
        """Whether there are none."""
        return not self.apart


def _off(ratio: float) -> float:
    """How far a ratio is from 1; the same for its inverse."""
    return max(ratio, 1 / ratio) - 1


def used(results: Iterable[Result]) -> list[Used]:
    """What each server measured, of results that may be of several files.

    >>> used([Result("1f", "one", OK, (2e-6,), server="gpu0 at h:1", gpu="GPU-4f", clock_mhz=1980)])
    [Used(who='GPU-4f', device='', count=1, clock_mhz=1980, power_w=None)]
    """
    return [
        Used(
            who,
            some[0].device,
            len(some),
            _median(one.clock_mhz for one in some),
            _median(one.power_w for one in some),
        )
        for who, some in _by_server(results).items()
    ]


def agreements(results: Iterable[Result], within: float = WITHIN) -> list[Agreement]:
    """How each two servers agree that measured some of the same candidates.

    >>> one = Result("1f", "one", OK, (2.00e-6, 2.01e-6), gpu="GPU-4f")
    >>> other = Result("1f", "one", OK, (2.02e-6, 2.03e-6), gpu="GPU-91")
    >>> (found,) = agreements([one, other])
    >>> round(found.ratios["one"], 3), found.agree
    (1.01, True)

    Args:
        results: of candidates by several servers; one that a server measured more than once has all
            of its times.
        within: how far a ratio may be from 1.

    Raises:
        ValueError: `within` is no number above zero, or two servers have different devices.
    """
    within, servers = float(above_zero("within", within)), _by_server(results)
    names = _names(one for some in servers.values() for one in some)
    times = {who: _times(some) for who, some in servers.items()}
    found = []
    for first, second in combinations(sorted(servers), 2):
        both = [one for one in times[first] if one in times[second]]
        if not both:
            continue
        _check_kinds(servers[first][0], servers[second][0])
        pairs = {names[one]: (times[first][one], times[second][one]) for one in both}
        ratios = {n: statistics.median(b) / statistics.median(a) for n, (a, b) in pairs.items()}
        own = {name: max(map(_spread, pair)) for name, pair in pairs.items()}
        found.append(Agreement(first, second, ratios, own, within))
    return found


def _by_server(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Good results by who measured: a GPU is the same one, whatever its server is called."""
    found: dict[str, list[Result]] = {}
    for one in results:
        if one.status == OK:
            found.setdefault(one.gpu or one.server, []).append(one)
    return found


def _names(results: Iterable[Result]) -> dict[str, str]:
    """What candidates are called, by their ids: with the id where another one is called so too."""
    first: dict[str, str] = {}
    for one in results:
        first.setdefault(one.id, one.name)
    often = Counter(first.values())
    return {id_: name if often[name] == 1 else f"{name}, {id_}" for id_, name in first.items()}


def _times(results: Iterable[Result]) -> dict[str, list[float]]:
    """All times of each candidate, by its id."""
    found: dict[str, list[float]] = {}
    for one in results:
        found.setdefault(one.id, []).extend(one.seconds)
    return found


def _spread(times: Sequence[float]) -> float:
    return (max(times) - min(times)) / statistics.median(times)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _check_kinds(one: Result, other: Result) -> None:
    if one.device != other.device:
        raise ValueError(
            f"the devices are {shown(one.device)} and {shown(other.device)}; expected two of a kind"
        )


def report(results: Sequence[Result], within: float = WITHIN) -> str:
    """What `python -m d2ltvm fleet report` prints: each server, and how each two agree.

    >>> print(report([Result("1f", "one", OK, (2e-6,), gpu="GPU-4f", clock_mhz=1980.0)]))
    server  device  right  clock (MHz)  power (W)
    GPU-4f              1         1980          -
    no candidate was measured by two servers
    """
    rows = [("server", "device", "right", "clock (MHz)", "power (W)")]
    for one in used(results):
        numbers = (str(one.count), _number(one.clock_mhz, ".0f"), _number(one.power_w, ".1f"))
        rows.append((one.who, one.device, *numbers))
    lines = _table(rows, 2)
    if bad := sum(one.status != OK for one in results):
        lines.append(f"{bad} results are of candidates that failed")
    found = agreements(results, within)
    for each in found:
        lines += ["", *_lines_of(each)]
    return "\n".join(lines if found else [*lines, "no candidate was measured by two servers"])


def _lines_of(found: Agreement) -> list[str]:
    """A candidate a line, and what they come to."""
    rows = [("candidate", "ratio", "spread of one's own times")]
    rows += [(n, f"{ratio:.4f}", f"{found.own[n]:.2%}") for n, ratio in found.ratios.items()]
    low, high = found.quartiles
    words = "they agree"
    if found.apart:
        several = f"{len(found.apart)} of {len(found.ratios)} are further apart"
        words = f"they do not agree: {several}, {', '.join(found.apart)}"
    return [
        f"{found.second} beside {found.first}: the ratio of their times",
        *_table(rows, 1),
        f"median {found.median:.4f}, quartiles {low:.4f} and {high:.4f}, "
        f"furthest {found.ratios[found.furthest]:.4f}, {found.furthest}",
        f"within {found.within:.1%}: {words}",
    ]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _table(rows: Sequence[Sequence[str]], texts: int) -> list[str]:
    """Lines of columns; the first so many are of text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if k < texts else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
