"""A search's candidates on the servers of a fleet: built here, run, checked and timed there."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from d2ltvm.compiler.lowering import as_module, parameters
from d2ltvm.fleet import choosing, measuring, tracker
from d2ltvm.fleet.database import OK, Result
from d2ltvm.fleet.measuring import Servers
from d2ltvm.fleet.task import CLOCK, LIMITS, Clock, Limits
from d2ltvm.search.computations import Array
from d2ltvm.search.workloads import Workload

FILE = "fleet.jsonl"  # beside the records of a search: who measured what, and what was bad
EACH = 4  # candidates of a batch for each server, so that none waits long for the last one

# What came of a schedule: its name, seconds in order, its error, and what went wrong.
TellResult = Callable[[str, list[float], float, str], None]


class FleetBench:
    """Builds schedules of a workload here, and has servers of a fleet run, check and time them.

    A schedule that hangs, crashes or computes something else is told as such, with the reason.

    Attributes:
        about: what a server said of itself.
        device: the same, for a `Kept`.
        batch: how many candidates the servers want at a time.

    Args:
        work: the workload.
        kind: 'llvm' or 'cuda'.
        servers: a `d2ltvm.fleet.Fleet`, or the `Address` of one.
        folder: for the file of results, `FILE`; None keeps none.
        limits: seconds that each step may take.
        clock: how kernels are timed.

    Raises:
        FleetError: no tracker answers, it has no server of the key, or one for another kind.
    """

    def __init__(
        self,
        work: Workload,
        kind: str,
        servers: Servers,
        folder: Path | None = None,
        limits: Limits = LIMITS,
        clock: Clock = CLOCK,
    ) -> None:
        self.work, self.servers, self.limits, self.clock = work, servers, limits, clock
        self.about = choosing.ask(servers, kind, limits)
        self.device = {"name": self.about.device, "through": "a fleet"}
        self._scratch = None if folder else tempfile.TemporaryDirectory(prefix="d2ltvm-search-")
        self._folder = folder or Path(str(self._scratch and self._scratch.name))
        self._inputs = dict(zip(work.names, work.inputs(), strict=True))
        self._references: dict[bool, Array] = {}

    @property
    def batch(self) -> int:
        """How many candidates the servers want at a time."""
        return EACH * self.count

    @property
    def count(self) -> int:
        """How many servers there are now."""
        address = measuring.address_of(self.servers)
        return tracker.need_servers(address, wait=self.limits.connect)

    def all(self, schedules: Mapping[str, Any], tell: TellResult) -> None:
        """Measure schedules with one order of parameters; `tell` is called as each is known."""
        order = [p.name for p in parameters(as_module(next(iter(schedules.values()))))]
        names = [name for name in order if name in self._inputs]
        told: set[str] = set()

        def show(result: Result, name: str = "") -> None:
            told.add(name or result.name)
            seconds = sorted(result.seconds)
            why = "" if result.status == OK else f"{result.status}: {result.why}"
            tell(name or result.name, seconds, result.error or 0.0, why)

        self._folder.mkdir(parents=True, exist_ok=True)
        found = measuring.measure(
            schedules,
            [self._inputs[name] for name in names],
            lambda *given: self._reference(dict(zip(names, given, strict=True))),
            servers=self.servers,
            to=self._folder / FILE,
            target=self.about.target,
            terms=self.work.terms,
            sums=self.work.sums,
            clock=self.clock,
            limits=self.limits,
            show=show,
        )
        for name in schedules:  # that were measured before, or are the same as another
            if name not in told:
                show(found[name], name)

    def _reference(self, given: Mapping[str, Array]) -> Array:
        """The result for the inputs, or for their absolute values; each is computed once."""
        signed = any((array < 0).any() for array in given.values())
        if signed not in self._references:
            arrays = [given[name] for name in self.work.names]
            self._references[signed] = self.work.reference(*arrays)
        return self._references[signed]
