"""What workers do: build a candidate, and have a server run, check and time it."""

import functools
import json
import os
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import rpc

from d2ltvm.compiler import cubin, verify
from d2ltvm.compiler.launches import Param
from d2ltvm.compiler.lowering import lower
from d2ltvm.compute.ops import as_number, whole
from d2ltvm.errors import shown
from d2ltvm.fleet import server, tracker, workers
from d2ltvm.fleet.tracker import Address, FleetError
from d2ltvm.fleet.workers import Tell
from d2ltvm.system import devices

Array = np.ndarray[Any, np.dtype[Any]]
KEPT = 10.0  # seconds for which a session goes on to the next candidate, while others wait


@dataclass(frozen=True)
class Clock:
    """How a kernel is timed: TVM's `time_evaluator`, after a first call that does not count.

    Attributes:
        repeat: how many means are taken.
        number: over how many calls each, at least.
        min_repeat_ms: for how many milliseconds each, at least.

    Raises:
        ValueError: one is no such number.
    """

    repeat: int = 3
    number: int = 1
    min_repeat_ms: int = 20

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            whole(name, value, 0 if name == "min_repeat_ms" else 1)


@dataclass(frozen=True)
class Limits:
    """Seconds that each step may take.

    Attributes:
        build: to compile a candidate.
        wait: until a server is free, with the tracker away or not.
        connect: until a server answers.
        run: of a candidate on a server: upload, the first run, the check and the timing; 0 is no
            limit.

    Raises:
        ValueError: one is no number, or less than 0.
    """

    build: float = 60.0
    wait: float = 60.0
    connect: float = 10.0
    run: float = 10.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not as_number(name, value) >= 0:
                raise ValueError(f"{name} is {shown(value)}; expected seconds, 0 or more")


CLOCK, LIMITS = Clock(), Limits()  # where nothing else is said


@dataclass(frozen=True)
class Task:
    """What all candidates of a run compute.

    Attributes:
        inputs: arrays for what a candidate reads, in its order.
        wants, magnitudes: for what it writes, as `d2ltvm.compiler.verify.compare` takes them.
        terms, sums: as `d2ltvm.check` takes them.
    """

    inputs: Sequence[Array]
    wants: Sequence[Array]
    magnitudes: Sequence[Array]
    terms: int = 1
    sums: str | None = None


class VersionError(FleetError):
    """A server has other versions than its client."""


class LostError(RuntimeError):
    """The server is gone, or does not answer any more."""


def about(tell: Tell, address: Address, limits: Limits) -> dict[str, Any]:
    """What a server says of itself, for a `choosing.About`."""
    with _Session(address).of(tell, limits) as session:
        return session.itself()


def hold(tell: Tell, address: Address, limits: Limits) -> None:
    """Keep a server from all others until this process is ended."""
    with _Session(address).of(tell, replace(limits, run=0)) as session:  # 0: without a limit
        tell("held", session.itself())
        while True:
            time.sleep(3600)


def build(tell: Tell, mod: Any, target: Any, path: str) -> tuple[Sequence[Param], float]:
    """Compile a module into a shared library; returns its parameters, and seconds that it took.

    Raises:
        ValueError, MissingError: as `d2ltvm.build`.
        RuntimeError: a compiler's words.
    """
    if target.kind.name == "cuda":
        _ready_for_cuda()
    start = time.monotonic()
    lowered = lower(mod, target)
    lowered.executable.export_library(path)
    return lowered.params, time.monotonic() - start


def build_plain(tell: Tell, mod: Any, target: Any, path: str) -> None:
    """The same for a module of MetaSchedule's, by TVM's passes and no others."""
    if target.kind.name == "cuda":
        _ready_for_cuda()
    mod = tvm.s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod)
    tvm.compile(mod, target=target).export_library(path)


def _ready_for_cuda() -> None:
    """What a process needs that compiles for GPUs: a compiler, and a driver that was spoken to.

    The driver knows no names of devices until a process has asked whether there are any.
    """
    cubin.ensure_cuda_compiler()
    devices.has_cuda()


def measure(
    tell: Tell,
    address: Address,
    limits: Limits,
    clock: Clock,
    path: str,
    params: Sequence[Param],
    task: str,
    alone: bool = True,
) -> dict[str, Any]:
    """Have a server run a library on a task's inputs, check what it computes, and time it.

    The server's session is the one of the candidate before, if that was right, unless it has to be
    `alone`, in a session of its own.

    Returns:
        Seconds of each repeat, the error, who measured, and what clock and power were meanwhile.

    Raises:
        WrongResultError: it computes something else.
        TimeoutError: it ran out of time.
        LostError: the server is gone.
        FleetError: there is no server, or one of another version.
        RuntimeError: TVM's words on what the candidate did.
    """
    given = read_task(task)

    def work(session: _Session) -> dict[str, Any]:
        arrays = _arrays(params, given)
        device = session.device()
        module = session.upload(path)
        tensors = [tvm.runtime.tensor(a, device=device) for a in arrays]
        module["main"](*tensors)
        device.sync()
        written = [k for k, p in enumerate(params) if p.output]
        results = [tensors[k].numpy() for k in written]
        errors = [
            verify.compare(params[k].name, got, want, most, given.terms, given.sums)
            for k, got, want, most in zip(
                written, results, given.wants, given.magnitudes, strict=True
            )
        ]
        return {"error": max(errors), **session.timed(module, device, clock, tensors)}

    return _in_session(work, tell, address, limits, alone)


def measure_plain(
    tell: Tell,
    address: Address,
    limits: Limits,
    clock: Clock,
    path: str,
    args_info: Sequence[Any],
) -> dict[str, Any]:
    """The same for a library of MetaSchedule's, on random numbers, which nobody checks."""
    with _Session(address).of(tell, limits) as session:
        device = session.device()
        module = session.upload(path)
        fill = session.remote.get_function("tvm.contrib.random.random_fill_for_measure")
        tensors = []
        for _, dtype, shape in args_info:
            tensors.append(tvm.runtime.empty(shape, dtype, device))
            fill(tensors[-1])
        device.sync()
        return session.timed(module, device, clock, tensors)


def _in_session(
    work: Callable[["_Session"], dict[str, Any]],
    tell: Tell,
    address: Address,
    limits: Limits,
    alone: bool,
) -> dict[str, Any]:
    """What some work makes of a session: of the one that is kept, or else of a new one.

    It is kept for the next candidate if nothing went wrong.
    """
    global _kept
    if alone or _kept is None or not _kept.goes_on(address):
        let_go()
    session, _kept = _kept or _Session(address), None
    try:
        with session.of(tell, limits):
            found = work(session)
    except BaseException:
        session.end()
        raise
    _kept = session
    return found


_kept: "_Session | None" = None  # by this process, for its next candidate


def let_go() -> None:
    """End the session that this process keeps, if it keeps one, so that others get its server."""
    global _kept
    session, _kept = _kept, None
    if session is not None:
        session.end()


workers.AT_REST.append(let_go)


@functools.lru_cache(maxsize=1)
def read_task(path: str) -> Task:
    """The task that a file holds; a worker reads it once."""
    task: Task = pickle.loads(Path(path).read_bytes())
    return task


def _arrays(params: Sequence[Param], task: Task) -> list[Array]:
    """One for each parameter; those that it writes hold nothing that is right."""
    inputs, wants = iter(task.inputs), iter(task.wants)
    return [verify.poison(p, next(wants)) if p.output else next(inputs) for p in params]


class _Session:
    """A server, while this process measures on it; what goes wrong gets a name."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.server: dict[str, Any] = {}
        self.remote: Any = None
        self.begun = self.since = 0.0
        self.served = 0

    def of(self, tell: Tell, limits: Limits) -> "_Session":
        """The same, for a candidate: whom to tell, and how long each step may take."""
        self.tell, self.limits = tell, limits
        return self

    def __enter__(self) -> "_Session":
        own = self.remote is None
        if own:
            self._connect()
        else:
            self.tell("connecting", tuple(self.server["at"].rsplit(":", 1)))
        self._limit(self.limits.run)
        self.tell("serving", (self.server["at"], own))
        return self

    def _connect(self) -> None:
        host, port, match_key = tracker.request(self.address, self.limits.wait)
        self.tell("connecting", (host, port))
        try:
            self.remote = rpc.connect(host, port, match_key)
            about = json.loads(self.remote.get_function(server.ABOUT)())
        except AttributeError as error:
            raise VersionError(
                f"the server at {host}:{port} is none of a fleet's; expected one that "
                "python -m d2ltvm fleet up starts"
            ) from error
        except Exception as error:
            raise LostError(f"{host}:{port} does not let clients in: {_line(error)}") from error
        self.server, self.begun = {**about, "at": f"{host}:{port}"}, time.monotonic()
        if about["versions"] != (here := server.versions()):
            raise VersionError(
                f"the server {about['name']} at {host}:{port} has {_listed(about['versions'])}; "
                f"expected {_listed(here)}, as here"
            )

    def goes_on(self, address: Address) -> bool:
        """Whether the next candidate may have it: for a while, so that others get their turn."""
        return address == self.address and time.monotonic() - self.begun < KEPT

    def end(self) -> None:
        """Close the connection; the server ends the session's process, and is free."""
        self.remote = None

    def _limit(self, seconds: float) -> None:
        """From now on the session has so many seconds, until it is told again; 0 is no limit."""
        self.since = time.monotonic()
        self.remote.get_function(server.LIMIT)(seconds)

    def itself(self) -> dict[str, Any]:
        """What the server says of itself, without its versions."""
        found = {name: value for name, value in self.server.items() if name != "versions"}
        return {**found, "cores": tuple(found["cores"])}

    def device(self) -> Any:
        """The one device that the server has."""
        return self.remote.device(self.server["kind"], 0)

    def upload(self, path: str) -> Any:
        """A library, loaded there; under a name of its own, since the one before is in use."""
        self.served += 1
        name = f"{self.served}-{os.path.basename(path)}"
        self.remote.upload(path, name)
        return self.remote.load_module(name)

    def timed(self, module: Any, device: Any, clock: Clock, tensors: Sequence[Any]) -> Any:
        """Seconds of each repeat, with who measured, and with what clock and power there were."""
        watch, watched = (self.remote.get_function(f) for f in (server.WATCH, server.WATCHED))
        evaluator = module.time_evaluator(
            "main", device, clock.number, clock.repeat, clock.min_repeat_ms
        )
        watch()
        seconds = [float(s) for s in evaluator(*tensors).results]
        return {
            "seconds": seconds,
            "server": f"{self.server['name']} at {self.server['at']}",
            "device": self.server["device"],
            **json.loads(watched()),
        }

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        took = time.monotonic() - self.since
        if error is None or isinstance(error, verify.WrongResultError | ValueError):
            return
        if self.remote is not None and not self._answers():
            where = self.server.get("at", "a server")
            if 0 < self.limits.run <= took:
                raise TimeoutError(f"took longer than {self.limits.run:g} s on {where}")
            raise LostError(f"{where} ended while it ran") from error

    def _answers(self) -> bool:
        try:
            self.remote.get_function(server.ABOUT)()
        except Exception:
            return False
        return True


def _line(error: BaseException) -> str:
    """An exception of TVM's in one line: its last, which has the reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
