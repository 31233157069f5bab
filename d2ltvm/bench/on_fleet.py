"""`python -m d2ltvm bench` on a fleet: a process for each part, beside a server that it holds.

Both sides of a comparison run in one process, by one clock, so no part is a candidate in a session.
Records of several GPUs of one kind would be measured one after the other otherwise.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from d2ltvm.fleet import leasing, tracker
from d2ltvm.fleet.leasing import Ended
from d2ltvm.fleet.measuring import Servers, address_of

BENCH = [sys.executable, "-m", "d2ltvm", "bench", "--fleet", "none", "--json"]
LinesAndStatus = tuple[list[dict[str, Any]], int]


def scoreboard_lines(
    names: Sequence[str], servers: Servers, kind: str = "cuda"
) -> dict[str, LinesAndStatus]:
    """Lines of the scoreboard, measured each beside a server of its own.

    Args:
        names: of benchmarks and races, as `scoreboard.name_of` has them.
        servers, kind: as for `leasing.lease`.

    Returns:
        By name the lines, and the exit status of their process. Where it printed none, the only
        line has the reason as 'missing'.

    Raises:
        FleetError: there is no server of that kind on this machine.
    """
    commands = {name: [*BENCH, "--only", name] for name in names}
    found = leasing.run_each(commands, servers, kind)
    return {name: _lines_of(name, ended) for name, ended in found.items()}


def _lines_of(name: str, ended: Ended) -> LinesAndStatus:
    try:
        return list(json.loads(ended.out)), ended.code
    except ValueError:
        reason = (ended.err.strip().splitlines() or [f"it ended with {ended.code}"])[-1]
        return [{"workload": name, "device": "cuda", "missing": reason}], 1


def run_parts(
    name: str, path: Path, others: Sequence[str], servers: Servers, kind: str = "cuda"
) -> dict[str, Ended]:
    """Measure a set into one file, a part of it on each server.

    Args:
        name: of the set.
        path: of the file, in which the processes write in turns.
        others: further options.
        servers, kind: as for `leasing.lease`.

    Raises:
        FleetError: there is no server of that kind on this machine.
    """
    count = tracker.need_servers(address_of(servers))
    own = [*BENCH, "--set", name, "--to", str(path), *others]
    commands = {f"{k}/{count}": [*own, "--part", f"{k}/{count}"] for k in range(1, count + 1)}

    def show(part: str, ended: Ended) -> None:
        lines = ended.err.strip().splitlines()
        print(f"part {part}: {lines[-1] if lines else 'measured'}", file=sys.stderr, flush=True)

    return leasing.run_each(commands, servers, kind, show)
