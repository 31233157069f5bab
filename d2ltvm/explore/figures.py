"""The figures that can be touched, a function for each.

They show a state that you set or, where a schedule is given, the kernel in hand.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from d2ltvm.analysis.coalescing import LINE, WARP
from d2ltvm.analysis.requests import Request, instructions, warp_requests
from d2ltvm.explore.widget import Explorer


def banks(sch: Any = None, **state: int) -> Explorer:
    """The banks of shared memory that a warp asks, and the wavefronts that it takes.

    >>> print(banks(columns=32, padding=1).says)
    A warp asks for 32 different words in 32 of the 32 banks: 1 wavefront, no conflict. ...

    Args:
        sch: a kernel, as for `d2ltvm.traffic`; then its own accesses to shared memory are shown.
        **state: columns, padding, across, each, vthreads, width, same_row, swizzle; with `sch`
            request; bank, the one that is marked.

    Raises:
        ValueError: the kernel has no shared memory, or a value is not one that can be set.
        TypeError: there is no such value.
    """
    return _of_requests("banks", sch, "shared", state)


def coalescing(sch: Any = None, **state: int | str) -> Explorer:
    """The sectors of global memory that a warp makes move, and how much of them it uses.

    >>> print(coalescing(stride=8).says)
    32 lanes ask for 128 different bytes. ... so 1,024 bytes move, of which 12.5% are used.

    Args:
        sch: a kernel, as for `d2ltvm.traffic`; then its own accesses to global memory are shown.
        **state: stride, offset, width, dtype; with `sch` request.

    Raises:
        ValueError: the kernel has no global memory, or a value is not one that can be set.
        TypeError: there is no such value.
    """
    return _of_requests("coalescing", sch, "global", state)


def swizzle(**state: int | str) -> Explorer:
    """Where eight rows of a tile stand among the banks: as they come, padded, or swizzled.

    >>> print(swizzle(row=128, order="128").says)
    The 16 bytes at place 2 of eight rows are in 8 of the 8 groups of banks: 1 wavefront, ...

    Args:
        **state: row, order, along, which; as for `d2ltvm.analysis.patterns.of_rows`.

    Raises:
        ValueError: a value is not one that can be set.
        TypeError: there is no such value.
    """
    return Explorer("swizzle", state)


def _of_requests(name: str, sch: Any, scope: str, state: Mapping[str, Any]) -> Explorer:
    """A figure of a kernel's accesses, first of that which costs most; or of a state alone."""
    if sch is None:
        return Explorer(name, state)
    requests = warp_requests(sch, scope)
    if not requests:
        raise ValueError(f"sch is a kernel without {scope} memory; expected one that uses it")
    alike = _alike([part for request in requests for part in instructions(request)])
    costs = [same[0].cost for same in alike]
    return Explorer(name, {"request": costs.index(max(costs)), **state}, _given(alike))


def _alike(requests: list[Request]) -> list[list[Request]]:
    """Accesses that differ by whole lines of 128 bytes together: an unrolled loop has many."""
    groups: dict[Any, list[Request]] = {}
    for r in requests:
        start = min(r.first.values()) // LINE * LINE
        pattern = frozenset((lane, byte - start) for lane, byte in r.first.items())
        groups.setdefault((r.tensor, r.kind, r.width, pattern), []).append(r)
    return list(groups.values())


def _given(alike: list[list[Request]]) -> dict[str, Any]:
    """A kernel's accesses for JavaScript: first bytes by lane, -1 where one does not ask."""
    names = _numbered(f"{same[0].kind} {same[0].tensor}" for same in alike)
    return {
        "requests": [
            {
                "name": name + (f" ({len(same)} alike)" if len(same) > 1 else ""),
                "kind": same[0].kind,
                "width": same[0].width,
                "first": [int(same[0].first.get(lane, -1)) for lane in range(WARP)],
            }
            for name, same in zip(names, alike, strict=True)
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
