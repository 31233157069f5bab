"""Processes that work for this one, each with a limit on its time, and nothing lost when they end.

Building and measuring both call C++ that may hang or crash, so both happen in processes that can be
killed. They are forked from a process that has imported TVM once and does nothing else (Python's
`forkserver`), so that a new one costs milliseconds.
"""

import contextlib
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from typing import Any

from d2ltvm.fleet.server import die_with_parent
from d2ltvm.system import environment, toolchain

START_TIMEOUT = 60.0  # seconds until a new process has to have begun its job
BEGUN = "begun"  # the message that says so
REST = 0.5  # seconds without a job, after which a worker gives back what it keeps for the next
AT_REST: list[Callable[[], None]] = []  # what a worker calls then
STARTING = threading.Lock()
PRELOADED = ["tvm.rpc.server", "d2ltvm.fleet.jobs"]

Tell = Callable[[str, object], None]  # says which phase a job is in, with something about it
Job = Callable[..., Any]  # of a Tell, and of what it is called with


@dataclass(frozen=True)
class Message:
    """What a worker says: `kind`, with a `value`.

    `kind` is a phase that the job told; 'done', with its result; 'failed', with an exception;
    'ended', with an exit code, where the process is gone; or 'late', where it had to be killed.
    """

    kind: str
    value: Any


@dataclass
class Worker:
    """A process for one job at a time.

    Attributes:
        job: what the caller says of the job under way; None for a worker that has none.
        deadline: when, by `time.monotonic`, the phase under way has to be over.
    """

    job: Any = None
    deadline: float = float("inf")
    _limit: float = field(default=float("inf"), repr=False)
    _process: Any = field(default=None, repr=False)
    _pipe: Any = field(default=None, repr=False)

    def begin(self, job: Any, limit: float, function: Job, *arguments: Any) -> None:
        """Start a job, whose first phase may take so many seconds."""
        if self._process is not None and not self._process.is_alive():  # killed while at rest
            self.end()
        if self._process is None:
            self._start()
        self.job, self._limit = job, limit
        self.extend(START_TIMEOUT + limit)
        with contextlib.suppress(OSError):  # it has just ended: the next look finds out
            self._pipe.send((function, arguments))

    def extend(self, limit: float) -> None:
        """A new phase, which may take so many seconds from now on."""
        self.deadline = time.monotonic() + limit

    def end(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
            self._pipe.close()
        self._process = self._pipe = self.job = None
        self.deadline = float("inf")

    def look(self) -> Message | None:
        """What it says, if anything; a process past its deadline is killed."""
        try:
            if self._pipe.poll():
                message = Message(*self._pipe.recv())
                if message.kind == BEGUN:
                    self.extend(self._limit)
                    return None
                if message.kind in ("done", "failed"):
                    self.job, self.deadline = None, float("inf")
                return message
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode
            self.end()
            return Message("ended", code)
        if time.monotonic() >= self.deadline:
            self.end()
            return Message("late", None)
        return None

    def _start(self) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs,), daemon=True)
        # The variables are for what it is forked from, if that starts. All threads share them: one
        # would take what another set for what was there before.
        with STARTING, environment.variables(toolchain.FORKS):
            self._process.start()
        theirs.close()


def end_all(workers: Sequence[Worker]) -> None:
    """End them at the same time: one that has opened the driver of some GPUs takes long to end."""
    for worker in workers:
        if worker._process is not None:
            worker._process.kill()
    for worker in workers:
        worker.end()


def messages(
    workers: Sequence[Worker], most: float = 3600.0
) -> Iterator[tuple[Worker, Any, Message]]:
    """Wait until something happens to a job, and say what: worker, job, message.

    Nothing comes if nothing happens for `most` seconds.
    """
    busy = [worker for worker in workers if worker.job is not None]
    if not busy:
        return
    first = min(worker.deadline for worker in busy)
    connection.wait(
        [worker._pipe for worker in busy], max(0.0, min(first - time.monotonic(), most))
    )
    for worker in busy:
        job = worker.job
        if message := worker.look():
            yield worker, job, message


def work(pipe: Any) -> None:
    """What a worker runs: jobs, one after the other, until nobody has any."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer

    def tell(phase: str, value: object = None) -> None:
        pipe.send((phase, value))

    while True:
        try:
            if not pipe.poll(REST):
                for let_go in AT_REST:
                    let_go()
            function, arguments = pipe.recv()
        except EOFError:
            return
        tell(BEGUN)
        try:
            result = function(tell, *arguments)
        except Exception as error:
            pipe.send(("failed", (type(error).__name__, str(error))))
        else:
            pipe.send(("done", result))
