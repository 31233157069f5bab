"""A found schedule as a function that a reader can read, run and change."""

import re
from typing import Any

from tvm.s_tir import Schedule

from d2ltvm.errors import shown

# What TVM writes at each call though it is the default.
DEFAULTS = (
    ", preserve_unit_iters=True, disable_predication=False",
    ", preserve_unit_iters=True",
    ", index=-1",
)
# What only MetaSchedule's own last steps read. They are done: their work is in the trace.
READ = ('"meta_schedule.',)
NAME = r"[vbl]\d+"


def as_text(sch: Any) -> str:
    """A schedule's steps as Python, with every decision in its place.

    >>> found = d2ltvm.search.space(d2ltvm.search.workload("matmul", 64), "llvm")
    >>> print(as_text(found.sample(0, 1)))
    def apply(sch):
        b0 = sch.get_sblock(name="C", func_name="main")
    ...

    Args:
        sch: a schedule with a trace, such as a search finds.

    Returns:
        The source of a function `apply(sch)`, which makes the same of a fresh schedule.

    Raises:
        TypeError: it is no schedule, or one without a trace.
    """
    if not isinstance(sch, Schedule) or sch.trace is None:
        raise TypeError(f"sch is {shown(sch)}; expected a schedule with a trace")
    known: dict[str, str] = {}
    lines = ["def apply(sch):"]
    for line in str(sch.trace).splitlines()[2:]:
        line = re.sub(NAME, lambda m: known.get(m[0], m[0]), line.strip())
        if sampled := _sampled(line):
            known.update(sampled)
        elif not any(name in line for name in READ) and "enter_postproc" not in line:
            lines.append("    " + _plain(line))
    return "\n".join(_used(lines))


def _sampled(line: str) -> dict[str, str]:
    """The decisions of a line that samples, by the names that they have afterwards."""
    found = re.match(r"(.*) = sch\.sample_(perfect_tile|categorical)\(.*decision=(.*)\)$", line)
    if not found:
        return {}
    names, kind, decision = found[1].split(", "), found[2], found[3]
    if kind == "perfect_tile":
        values = decision.strip("[]").split(", ")
        return dict(zip(names, values, strict=True))
    options = re.search(r"candidates=\[(.*?)\]", line)
    return {names[0]: options[1].split(", ")[int(decision)]} if options else {}


def _plain(line: str) -> str:
    for default in DEFAULTS:
        line = line.replace(default, "")
    return line


def _used(lines: list[str]) -> list[str]:
    """The lines without look-ups that nothing behind them needs."""
    kept: list[str] = []
    needed: set[str] = set()
    for line in reversed(lines):
        made, equal, call = line.strip().partition(" = ")
        names = set(re.findall(NAME, made)) if equal else set()
        looks = re.match(
            r"sch\.get_(loops|sblock|child_blocks|consumers|producers)\(", call or made
        )
        if looks and not names & needed:
            continue
        needed |= set(re.findall(NAME, call if equal else line))
        kept.append(line)
    return kept[::-1]
