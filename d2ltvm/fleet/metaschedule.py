"""A builder and a runner for TVM's MetaSchedule, on a fleet.

TVM's own fail or wait for ever where a fleet has to go on: its builder imports every tensor
intrinsic in each of its processes, which takes longer than it allows; its runner waits without end
for a server that does not answer.

>>> with up(cpus=1, folder=tempfile.mkdtemp()) as servers:  # doctest: +SKIP
...     ms.tune_tir(mod, target, work_dir, 64, builder=builder(), runner=runner(servers))
"""

import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import tvm.s_tir.meta_schedule as ms
from tvm.ir.utils import derived_object

from d2ltvm.fleet import jobs, tracker
from d2ltvm.fleet.local import Fleet
from d2ltvm.fleet.measuring import ATTEMPTS, Servers, address_of
from d2ltvm.fleet.task import CLOCK, GRACE, LIMITS, Clock, Limits
from d2ltvm.fleet.tracker import FleetError
from d2ltvm.fleet.workers import Message, Worker, end_all, messages
from d2ltvm.system import threads


def builder(workers: int | None = None, limit: float = 60.0) -> Any:
    """A MetaSchedule builder in processes that have imported TVM, and go on from batch to batch.

    Args:
        workers: how many compile at once; None is one a core.
        limit: seconds that a candidate may take.

    Returns:
        A `meta_schedule.builder.PyBuilder`.
    """
    return _Builder(workers or threads.cores(), limit)


def runner(servers: Servers, clock: Clock = CLOCK, limits: Limits = LIMITS) -> Any:
    """A MetaSchedule runner on the servers of a fleet.

    A candidate that hangs, crashes or takes its server with it gets MetaSchedule's error, with the
    reason in words, and the search goes on. A session goes on to the next candidate, while nothing
    fails in it; what fails after others is run again, in a session of its own. Results are not
    compared with a reference, which MetaSchedule has none of: check what it finds.

    Args:
        servers: a `Fleet`, or the `Address` of one.
        clock: how kernels are timed.
        limits: seconds that each step may take.

    Returns:
        A `meta_schedule.runner.PyRunner`.

    Raises:
        FleetError: no tracker answers, or no server of the key is there.
    """
    return _Runner(servers, clock, limits)


@derived_object
class _Builder(ms.builder.PyBuilder):  # type: ignore[misc]
    def __init__(self, count: int, limit: float) -> None:
        super().__init__()
        self.pool, self.limit = _Pool(count), limit

    def build(self, build_inputs: list[Any]) -> list[Any]:
        # MetaSchedule removes the folder of each library when it has measured it.
        paths = [f"{tempfile.mkdtemp(prefix='d2ltvm-fleet-')}/candidate.so" for _ in build_inputs]
        results: dict[int, Any] = {}

        def begin(worker: Worker, k: int) -> None:
            given = build_inputs[k]
            worker.begin(k, self.limit, jobs.build_plain, given.mod, given.target, paths[k])

        def answer(worker: Worker, k: int, message: Message) -> None:
            words = _words(message, self.limit)
            if words:
                shutil.rmtree(os.path.dirname(paths[k]), ignore_errors=True)
            results[k] = ms.builder.BuilderResult(None if words else paths[k], words or None)

        self.pool.do(len(build_inputs), begin, answer)
        return [results[k] for k in range(len(build_inputs))]


@derived_object
class _Future(ms.runner.PyRunnerFuture):  # type: ignore[misc]
    def __init__(self, found: Any) -> None:
        super().__init__()
        self.found = found

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return self.found


@derived_object
class _Runner(ms.runner.PyRunner):  # type: ignore[misc]
    def __init__(self, servers: Servers, clock: Clock, limits: Limits) -> None:
        super().__init__()
        self.fleet = servers if isinstance(servers, Fleet) else None
        self.address = address_of(servers)
        self.clock, self.limits = clock, limits
        self.pool = _Pool(tracker.need_servers(self.address, wait=limits.connect))

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        results: dict[int, Any] = {}
        sessions = [_Session() for _ in runner_inputs]

        def begin(worker: Worker, k: int) -> None:
            given = runner_inputs[k]
            args = [list(info.as_json()) for info in given.args_info]
            sessions[k].begin()
            limit = 2 * self.limits.wait + GRACE
            what = (self.address, self.limits, self.clock, str(given.artifact_path), args)
            worker.begin(k, limit, jobs.measure_plain, *what)

        def answer(worker: Worker, k: int, message: Message) -> None:
            if message.kind == "connecting":
                sessions[k].port = int(message.value[1])
                return worker.extend(self.limits.connect)
            if message.kind == "serving":
                sessions[k].serving, (_, sessions[k].own) = True, message.value
                return worker.extend(self.limits.late)
            if message.kind == "late" and self.fleet and sessions[k].port:
                self.fleet.replace(sessions[k].port)
            if sessions[k].again(message, self.limits.wait):
                time.sleep(tracker.RETRY_DELAY)
                return begin(worker, k)
            found = message.value["seconds"] if message.kind == "done" else None
            words = _words(message, self.limits.run)
            results[k] = ms.runner.RunnerResult(found, words or None)
            return None

        self.pool.do(len(runner_inputs), begin, answer)
        return [_Future(results[k]) for k in range(len(runner_inputs))]


class _Session:
    """A candidate's sessions: how often it lost one, and since when nobody lets it in."""

    def __init__(self) -> None:
        self.port, self.serving, self.own, self.lost = 0, False, True, 0
        self.since = time.monotonic()

    def begin(self) -> None:
        """A new one."""
        self.port, self.serving = 0, False

    def again(self, message: Message, wait: float) -> bool:
        """Whether what happened is no fault of the candidate's, or not surely.

        Raises:
            FleetError: nobody has let it in for so many seconds.
        """
        kind = message.value[0] if message.kind == "failed" else message.kind
        if kind == "done":
            return False
        if self.serving and not self.own:  # what failed has ended the session: the next is its own
            return True
        if self.serving:
            self.lost += kind in ("late", "ended", "LostError")
            return kind in ("late", "ended", "LostError") and self.lost < ATTEMPTS
        if kind == "VersionError" or time.monotonic() - self.since > wait:
            raise FleetError(_words(message, wait))
        return True


class _Pool:
    """Workers that go on from batch to batch, and end with this object: their pipes are closed."""

    def __init__(self, count: int) -> None:
        self.workers = [Worker() for _ in range(count)]

    def do(
        self,
        count: int,
        begin: Callable[[Worker, int], None],
        answer: Callable[[Worker, int, Message], None],
    ) -> None:
        """Begin each of so many jobs on some worker, and answer what they say, to the last.

        What is raised here ends the workers too, whatever they do.
        """
        todo = deque(range(count))
        try:
            while True:
                for worker in self.workers:
                    if worker.job is None and todo:
                        begin(worker, todo.popleft())
                if not any(worker.job is not None for worker in self.workers):
                    return
                for worker, job, message in messages(self.workers):
                    answer(worker, job, message)
        except BaseException:
            end_all(self.workers)
            raise


def _words(message: Message, limit: float) -> str:
    """What went wrong, in one line; '' for a job that is done."""
    match message:
        case Message("done", _):
            return ""
        case Message("failed", (kind, words)):
            lines: Sequence[str] = [line for line in str(words).splitlines() if line.strip()]
            return f"{kind}: {lines[-1] if lines else ''}"
        case Message("late", _):
            return f"took longer than {limit:g} s"
    return f"its process ended with {message.value}"
