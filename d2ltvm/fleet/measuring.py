"""`measure`: candidates are built here, and run, checked and timed by the servers of a fleet."""

import contextlib
import datetime
import errno
import hashlib
import pickle
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm_ffi

from d2ltvm.compiler import verify
from d2ltvm.compiler.launches import Param
from d2ltvm.compiler.lowering import as_module, parameters
from d2ltvm.errors import is_integer, shown, whole
from d2ltvm.fleet import jobs, tracker
from d2ltvm.fleet.database import OK, Database, Result
from d2ltvm.fleet.local import Fleet
from d2ltvm.fleet.task import CLOCK, GRACE, LIMITS, Array, Clock, Limits, Task
from d2ltvm.fleet.tracker import Address, FleetError
from d2ltvm.fleet.workers import Message, Worker, end_all, messages
from d2ltvm.system import devices, threads

ATTEMPTS = 2  # sessions that a candidate may lose before it is to blame
# Processes that build are slow to begin beside each other. So there are a few for each server at
# first, and as many more each time that a server has had nothing to measure for so long.
BUILDERS_PER_SERVER, PATIENCE = 4, 1.0  # processes; seconds

Servers = Fleet | Address


def address_of(servers: Servers) -> Address:
    """Where the tracker of a fleet is, and what its servers are asked for by."""
    return servers.address if isinstance(servers, Fleet) else servers


def candidate_id(mod: Any, target: Any) -> str:
    """The same for candidates of the same structure and target, whatever they are called.

    >>> mod, other = (d2ltvm.schedule(d2ltvm.vector_add(n)).mod for n in (64, 65))
    >>> candidate_id(mod, "llvm") == candidate_id(mod, "llvm") != candidate_id(other, "llvm")
    True

    Args:
        mod: an IRModule.
        target: its target, or the target's text.

    Returns:
        16 hexadecimal digits, from TVM's structural hash.
    """
    text = f"{tvm_ffi.structural_hash(mod):016x} {target}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def measure(
    candidates: Mapping[str, Any],
    inputs: Sequence[Array],
    reference: Callable[..., Any],
    *,
    servers: Servers,
    to: str | Path,
    target: Any,
    terms: int = 1,
    sums: str | None = None,
    clock: Clock = CLOCK,
    limits: Limits = LIMITS,
    builders: int | None = None,
    show: Callable[[Result], object] = lambda _: None,
) -> dict[str, Result]:
    """Build candidates here, and have a fleet's servers run, check and time them.

    A session is a process on a server. It goes on to the next candidate while all are right; what
    goes wrong ends it. A candidate that fails in a session that served others is measured again, in
    one of its own, since what they spoiled may be why. Each result is on the disk before the next
    one is asked for. A run that was cut off goes on where it was when it is called again; a
    candidate that has a result, good or bad, is not measured again.

    Building and measuring happen in processes of their own, so a script calls it, as Python asks of
    scripts that start processes, below `if __name__ == "__main__":`.

    >>> schedules = {"plain": d2ltvm.schedules.cpu_vector_add(1000)}
    >>> a, b, _ = d2ltvm.get_abc(1000)
    >>> path = tempfile.mkdtemp()
    >>> with d2ltvm.fleet.up(cpus=1, folder=path) as servers:
    ...     found = measure(
    ...         schedules, (a, b), np.add, servers=servers, to=f"{path}/add.jsonl", target="llvm"
    ...     )
    >>> found["plain"].status, len(found["plain"].seconds)
    ('ok', 3)

    Args:
        candidates: schedules, or modules, by name. They compute the same.
        inputs, reference, terms, sums: as `d2ltvm.check` takes them.
        servers: a `Fleet`, or the `Address` of one.
        to: the file of a `Database`.
        target: what to build for, as `d2ltvm.build` takes it: 'llvm', or 'sm_90'.
        clock: how kernels are timed.
        limits: seconds that each step may take.
        builders: how many compile at once, at most; None is one a core.
        show: called with each new result.

    Returns:
        A `Result` for each candidate, by its name, those that were in the file included.

    Raises:
        ValueError, TypeError: an argument is not as above.
        OSError: the disk is full.
        FleetError: another process is using the file, no server is left for `limits.wait` seconds,
            or one has another version.
    """
    target = devices.as_target(target)
    if not isinstance(candidates, Mapping) or not candidates:
        raise ValueError(f"candidates is {shown(candidates)}; expected schedules by name")
    if builders is not None and (not is_integer(builders) or builders < 1):
        raise ValueError(f"builders is {shown(builders)}; expected a positive integer, or None")
    terms = whole("terms", terms)
    mods = {name: as_module(sch) for name, sch in candidates.items()}
    for name, mod in mods.items():
        _check_inputs(name, mod, inputs)
    task = Task(tuple(inputs), *verify.references(reference, inputs), terms, sums)
    ids = {name: candidate_id(mod, target) for name, mod in mods.items()}
    with Database(to) as database, tempfile.TemporaryDirectory(prefix="d2ltvm-fleet-") as folder:
        todo = {ids[n]: _Candidate(n, ids[n], mods[n]) for n in reversed(mods)}
        for known in todo.keys() & database.results.keys():
            del todo[known]
        if todo:
            run = _Run(servers, Path(folder), target, clock, limits, database, show)
            run.go(list(reversed(todo.values())), task, builders or threads.cores())
        return {name: database.results[ids[name]] for name in mods}


def _check_inputs(name: str, mod: Any, inputs: Sequence[Array]) -> None:
    try:
        verify.check_inputs([p for p in parameters(mod) if not p.output], inputs)
    except (ValueError, TypeError) as error:
        raise type(error)(f"the candidate {name!r}: {error}") from None


@dataclass
class _Candidate:
    """A candidate on its way, and what has come of it so far."""

    name: str
    id: str
    mod: Any
    step: str = "build"  # then 'wait', 'connect', 'serve'
    at: str = ""  # the server that it is with
    own: bool = True  # whether its session served no other before
    alone: bool = False  # whether the next one must not
    since: float = 0.0  # when its session began
    build_s: float = 0.0
    params: Sequence[Param] = ()
    sessions: int = 0
    lost: list[str] = field(default_factory=list)  # why each session was
    builders_lost: int = 0


class _Run:
    """One call of `measure`: who is where, and what to do when something happens."""

    def __init__(
        self,
        servers: Servers,
        folder: Path,
        target: Any,
        clock: Clock,
        limits: Limits,
        database: Database,
        show: Callable[[Result], object],
    ) -> None:
        self.fleet = servers if isinstance(servers, Fleet) else None
        self.address = address_of(servers)
        self.folder, self.target, self.clock, self.limits = folder, target, clock, limits
        self.database, self.show = database, show
        self.to_build: deque[_Candidate] = deque()
        self.to_measure: deque[_Candidate] = deque()
        self.trouble_since: float | None = None  # since when no server has let us in
        self.not_before = 0.0  # nothing is asked of the tracker until then
        self.may_build = 0  # processes
        self.fed = 0.0  # when the servers last had something to measure

    def go(self, candidates: Sequence[_Candidate], task: Task, builders: int) -> None:
        """Until each candidate has a result."""
        count = min(tracker.need_servers(self.address, wait=self.limits.connect), len(candidates))
        self.task = str(self.folder / "task")
        Path(self.task).write_bytes(pickle.dumps(task))
        self.to_build.extend(candidates)
        building = [Worker() for _ in range(min(builders, len(candidates)))]
        measuring = [Worker() for _ in range(count)]
        self.may_build, self.fed = BUILDERS_PER_SERVER * count, time.monotonic()
        try:
            while self._give_work(building, measuring):
                for worker, candidate, message in messages([*measuring, *building], PATIENCE):
                    answer = self._measured if worker in measuring else self._built
                    answer(worker, candidate, message)
        finally:
            end_all([*measuring, *building])

    def _give_work(self, building: list[Worker], measuring: list[Worker]) -> bool:
        """Let idle workers begin; returns whether there is anything left to wait for."""
        ahead = 2 * len(measuring)
        for worker in self._builders(building, measuring):
            if worker.job is None and self.to_build and len(self.to_measure) < ahead:
                self._begin_build(worker, self.to_build.popleft())
        if self.to_measure and (early := self.not_before - time.monotonic()) > 0:
            time.sleep(early)
        for worker in measuring:
            if worker.job is None and self.to_measure:
                self._begin_session(worker, self.to_measure.popleft())
        return any(worker.job is not None for worker in (*building, *measuring))

    def _builders(self, building: list[Worker], measuring: list[Worker]) -> list[Worker]:
        """Those that may build: some more where a server waits though all of them are busy."""
        now, those = time.monotonic(), building[: self.may_build]
        idle = any(worker.job is None for worker in measuring) and not self.to_measure
        if not idle or any(worker.job is None for worker in those):
            self.fed = now
        elif now - self.fed >= PATIENCE:
            self.may_build, self.fed = self.may_build + BUILDERS_PER_SERVER * len(measuring), now
        return building[: self.may_build]

    def _path(self, candidate: _Candidate) -> Path:
        return self.folder / f"{candidate.id}.so"

    def _begin_build(self, worker: Worker, candidate: _Candidate) -> None:
        what = (candidate.mod, self.target, str(self._path(candidate)))
        worker.begin(candidate, self.limits.build, jobs.build, *what)

    def _begin_session(self, worker: Worker, candidate: _Candidate) -> None:
        candidate.step, candidate.at = "wait", ""
        limit = 2 * self.limits.wait + GRACE
        where = (self.address, self.limits, self.clock)
        what = (str(self._path(candidate)), candidate.params, self.task, candidate.alone)
        worker.begin(candidate, limit, jobs.measure, *where, *what)

    def _built(self, worker: Worker, candidate: _Candidate, message: Message) -> None:
        match message:
            case Message("done", (params, seconds)):
                candidate.params, candidate.build_s = params, seconds
                self.to_measure.append(candidate)
            case Message("failed", (kind, words)):
                _raise_if_not_its_fault(kind, words)
                self._keep(candidate, "compile error", f"{kind}: {_short(words)}")
            case Message("late", _):
                self._keep(candidate, "compile error", f"took longer than {self.limits.build:g} s")
            case Message("ended", code):
                candidate.builders_lost += 1
                if candidate.builders_lost < ATTEMPTS:
                    self.to_build.append(candidate)
                else:
                    self._keep(candidate, "compile error", f"the compiler ended with {code}, twice")

    def _measured(self, worker: Worker, candidate: _Candidate, message: Message) -> None:
        match message:
            case Message("connecting", (host, port)):
                candidate.step, candidate.at = "connect", f"{host}:{port}"
                candidate.since = time.monotonic()
                worker.extend(self.limits.connect)
            case Message("serving", (at, own)):
                candidate.step, self.trouble_since = "serve", None
                candidate.at, candidate.own = at, own
                candidate.sessions += own
                worker.extend(self.limits.late)
            case Message("sending", seconds):
                worker.extend(self.limits.late + seconds)
            case Message("sent", _):
                worker.extend(self.limits.late)
            case Message("failed" | "late" | "ended") if self._may_be_anothers_fault(candidate):
                candidate.alone = True
                self.to_measure.append(candidate)
            case Message("done", found):
                self._keep(candidate, OK, "", **found)
            case Message("failed", (kind, words)):
                self._failed(candidate, kind, _short(words))
            case Message("late" | "ended", _):
                self._gone(candidate, message)

    @staticmethod
    def _may_be_anothers_fault(candidate: _Candidate) -> bool:
        """Whether it was in a session that had served others: what they spoiled is still there."""
        return candidate.step == "serve" and not candidate.own

    def _failed(self, candidate: _Candidate, kind: str, words: str) -> None:
        """A session ended with an exception."""
        if kind == "VersionError":
            raise FleetError(words)
        if kind == "WrongResultError":
            self._keep(candidate, "wrong result", words)
        elif kind == "TimeoutError" and candidate.step == "serve":
            self._keep(candidate, "time limit", words)
        elif candidate.step != "serve":  # it has not been run: the fleet is to blame
            self._trouble(candidate, words)
        elif kind == "LostError":
            self._lost(candidate, "crash", words)
        else:
            _raise_if_not_its_fault(kind, words)
            self._keep(candidate, "run error", f"{kind}: {words}")

    def _gone(self, candidate: _Candidate, message: Message) -> None:
        """A server does not answer, or the process that spoke with it is gone."""
        late = message.kind == "late"
        words = f"{candidate.at or 'the tracker'} does not answer" if late else "its client ended"
        if late and self.fleet and candidate.at:
            self.fleet.replace(int(candidate.at.rpartition(":")[2]))
        if candidate.step == "serve":
            self._lost(candidate, "no answer" if late else "crash", words)
        else:
            self._trouble(candidate, words)

    def _lost(self, candidate: _Candidate, status: str, words: str) -> None:
        """It took its server with it, or went with it: once more, and then it is to blame."""
        candidate.alone = True
        candidate.lost.append(words)
        if len(candidate.lost) < ATTEMPTS:
            self.to_measure.append(candidate)
        else:
            self._keep(candidate, status, "; ".join(candidate.lost))

    def _trouble(self, candidate: _Candidate, words: str) -> None:
        """Tracker or server turned us away: wait, and ask again, for as long as the limit says."""
        now = time.monotonic()
        self.trouble_since = self.trouble_since or now
        self.not_before = now + tracker.RETRY_DELAY
        if now - self.trouble_since > self.limits.wait:
            raise FleetError(
                f"no server of {self.address} has let anybody in for {self.limits.wait:g} s: "
                f"{words}; the {len(self.database.results)} results before are kept"
            )
        self.to_measure.appendleft(candidate)

    def _keep(self, candidate: _Candidate, status: str, why: str, **found: Any) -> None:
        """A candidate has its result."""
        if "seconds" in found:
            found["seconds"] = tuple(found["seconds"])
        session = time.monotonic() - candidate.since if candidate.since else 0.0
        result = Result(
            id=candidate.id,
            name=candidate.name,
            status=status,
            why=why,
            attempts=candidate.sessions or int(status == OK),
            build_s=round(candidate.build_s, 4),
            session_s=round(session, 4),
            date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            **{"server": candidate.at, **found},
        )
        self.database.append(result)
        with contextlib.suppress(OSError):
            self._path(candidate).unlink()
        self.show(result)


def _short(words: str) -> str:
    """An exception of TVM's in one line, and not a long one."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return shown_text(lines[-1]) if lines else ""


def shown_text(text: str, most: int = 300) -> str:
    """A text, cut off where it is long."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _raise_if_not_its_fault(kind: str, words: str) -> None:
    """What this machine lacks is no candidate's fault."""
    if "No space left on device" in words:
        raise OSError(errno.ENOSPC, _short(words))
    if kind in ("MissingError", "OSError", "PermissionError", "FileNotFoundError", "ImportError"):
        raise FleetError(f"candidates cannot be built or measured here: {_short(words)}")
