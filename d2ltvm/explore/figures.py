"""The figures that can be touched, a function for each.

They show a state that you set or, where a schedule is given, the kernel in hand.
"""

from collections.abc import Iterable
from typing import Any

from d2ltvm.analysis import traffic
from d2ltvm.analysis.traffic import Request
from d2ltvm.explore.widget import Explorer


def banks(sch: Any = None, **state: int) -> Explorer:
    """The banks of shared memory that a warp asks, and the wavefronts that it takes.

    >>> print(banks(columns=32, padding=0).says)
    A warp asks for 32 different words in 1 of the 32 banks: 32 wavefronts, 1 without conflicts.

    Args:
        sch: a kernel, as for `d2ltvm.traffic`; then its own accesses to shared memory are shown.
        **state: columns, padding, across, each, vthreads, width, swizzle; with `sch` request.

    Raises:
        ValueError: the kernel has no shared memory, or a value is not one that can be set.
        TypeError: there is no such value.
    """
    return _of_requests("banks", sch, "shared", state)


def _of_requests(name: str, sch: Any, scope: str, state: dict[str, int]) -> Explorer:
    """A figure of a kernel's accesses, first of that which costs most; or of a state alone."""
    if sch is None:
        return Explorer(name, state)
    requests = traffic.warp_requests(sch, scope)
    if not requests:
        raise ValueError(f"sch is a kernel without {scope} memory; expected one that uses it")
    costs = [request.cost for request in requests]
    return Explorer(name, {"request": costs.index(max(costs)), **state}, _given(requests))


def _given(requests: list[Request]) -> dict[str, Any]:
    """A kernel's accesses for JavaScript: first bytes by lane, -1 where one does not ask."""
    names = _numbered(f"{r.kind} {r.tensor}" for r in requests)
    return {
        "requests": [
            {
                "name": name,
                "kind": request.kind,
                "width": request.width,
                "first": [int(request.first.get(lane, -1)) for lane in range(32)],
            }
            for name, request in zip(names, requests, strict=True)
        ]
    }


def _numbered(names: Iterable[str]) -> list[str]:
    """Names, with a number behind those that occur again."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}, {seen[name]}")
    return found
