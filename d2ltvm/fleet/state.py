"""The state of the fleet on this machine: a file that its keeper writes, and how to read it."""

import contextlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
import psutil

from d2ltvm.compiler import cache
from d2ltvm.system import files

if TYPE_CHECKING:
    from d2ltvm.fleet.keeper import FleetPlan

FILE = "state.json"


@dataclass(frozen=True)
class Member:
    """A process of the fleet: `name`, `pid` (0: being started), `port`, `starts` so far."""

    name: str
    pid: int
    port: int
    starts: int


def default_folder() -> Path:
    """Where the fleet's state and logs are kept: beside compiled kernels, in the cache folder."""
    return (cache.folder() or Path(platformdirs.user_cache_dir("d2ltvm"))) / "fleet"


class State:
    """The file in a folder, in which a keeper says what it keeps.

    >>> import tempfile
    >>> State(Path(tempfile.mkdtemp())).read() is None
    True

    Args:
        folder: where it is.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def write(self, plan: "FleetPlan", members: Sequence[Member]) -> None:
        """Say what is kept, by the process that calls."""
        found = {
            "keeper": os.getpid(),
            "born": psutil.Process().create_time(),
            "plan": json.loads(plan.to_text()),
            "members": [asdict(member) for member in members],
        }
        files.write(self.path, json.dumps(found, indent=1) + "\n")

    def read(self) -> dict[str, Any] | None:
        """What the file says; None where there is none, or none that can be read."""
        try:
            found = json.loads(self.path.read_text())
            found["members"] = [Member(**m) for m in found["members"]]
            return found if {"keeper", "born", "plan"} <= set(found) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def remove(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)


def keeper_lives(found: dict[str, Any]) -> bool:
    """Whether the process that wrote a state is still there, and no other with its number."""
    try:
        process = psutil.Process(found["keeper"])
        same = abs(process.create_time() - found["born"]) < 1
        return same and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, TypeError, ValueError):
        return False


def wait_for_end(pid: int, born: float, limit: float) -> bool:
    """Whether a process is gone within so many seconds."""
    end = time.monotonic() + limit
    with contextlib.suppress(psutil.Error):
        while keeper_lives({"keeper": pid, "born": born}):
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
    return True
