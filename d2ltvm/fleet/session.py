"""A server of a fleet, while this process measures on it: its session, and what is kept there."""

import itertools
import json
import os
import time
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import rpc

from d2ltvm.compiler import verify
from d2ltvm.compiler.launches import Param
from d2ltvm.fleet import server, tracker
from d2ltvm.fleet.task import Clock, Limits, Task, read_task
from d2ltvm.fleet.tracker import Address, FleetError
from d2ltvm.fleet.workers import Tell

TIME_SLICE = 10.0  # seconds for which a session goes on to the next candidate, while others wait
SLOWEST = 10e6  # bytes a second at least that a task's arrays are sent with: they have that long


class VersionError(FleetError):
    """A server has other versions than its client."""


class LostError(RuntimeError):
    """The server is gone, or does not answer any more."""


class Session:
    """A server, while this process measures on it; what goes wrong gets a name."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.server: dict[str, Any] = {}
        self.remote: Any = None
        self.begun = self.since = self.allowed = 0.0
        self.served = 0
        self.there: Sent | None = None

    def of(self, tell: Tell, limits: Limits) -> "Session":
        """The same, for a candidate: whom to tell, and how long each step may take."""
        self.tell, self.limits = tell, limits
        return self

    def __enter__(self) -> "Session":
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
        return address == self.address and time.monotonic() - self.begun < TIME_SLICE

    def end(self) -> None:
        """Close the connection; the server ends the session's process, and is free."""
        self.remote = self.there = None

    def _limit(self, seconds: float) -> None:
        """From now on the session has so many seconds, until it is told again; 0 is no limit."""
        self.since, self.allowed = time.monotonic(), seconds
        self.remote.get_function(server.LIMIT)(seconds)

    def itself(self) -> dict[str, Any]:
        """What the server says of itself, without its versions."""
        found = {name: value for name, value in self.server.items() if name != "versions"}
        return {**found, "cores": tuple(found["cores"])}

    def device(self) -> Any:
        """The one device that the server has."""
        return self.remote.device(self.server["kind"], 0)

    def task(self, path: str) -> "Sent":
        """The arrays of a task, in the server's memory; they are sent if they are not there."""
        if self.there is None or self.there.path != path:
            self.there, task = None, read_task(path)
            more = task.nbytes / SLOWEST
            self.tell("sending", more)
            self._limit(self.limits.run and self.limits.run + more)
            self.there = Sent(self.remote, self.device(), path, task)
            self.tell("sent", None)
            self._limit(self.limits.run)
        return self.there

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
            "gpu": self.server["gpu"],
            **json.loads(watched()),
        }

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        took = time.monotonic() - self.since
        if error is None or isinstance(error, verify.WrongResultError | ValueError):
            return
        if self.remote is not None and not self._answers():
            where = self.server.get("at", "a server")
            if 0 < self.allowed <= took:
                raise TimeoutError(f"took longer than {self.allowed:g} s on {where}")
            raise LostError(f"{where} ended while it ran") from error

    def _answers(self) -> bool:
        try:
            self.remote.get_function(server.ABOUT)()
        except Exception:
            return False
        return True


class Sent:
    """A task's arrays on a server, for all candidates of a session.

    A candidate could write to what others read, or are compared with: what fails in a session that
    served others is measured again, in one of its own.
    """

    def __init__(self, remote: Any, device: Any, path: str, task: Task) -> None:
        self.path, self.task, self.device = path, task, device
        self._compare = remote.get_function(server.COMPARE)
        self.inputs = [tvm.runtime.tensor(a, device=device) for a in task.inputs]
        self.wants, self.magnitudes = (
            [tvm.runtime.tensor(a, device=remote.cpu(0)) for a in arrays]
            for arrays in (task.wants, task.magnitudes)
        )
        self._poisoned: dict[tuple[int, str], Any] = {}

    def arguments(self, params: Sequence[Param]) -> list[Any]:
        """A tensor for each parameter; those that a candidate writes hold nothing that is right."""
        inputs, count = iter(self.inputs), itertools.count()
        return [self._poison(p, next(count)) if p.output else next(inputs) for p in params]

    def _poison(self, param: Param, index: int) -> Any:
        key = index, param.dtype
        if key not in self._poisoned:
            array = verify.poison(param, self.task.wants[index])
            self._poisoned[key] = tvm.runtime.tensor(array, device=self.device)
        given = tvm.runtime.empty(param.shape, param.dtype, self.device)
        return self._poisoned[key].copyto(given)

    def compare(self, params: Sequence[Param], tensors: Sequence[Any]) -> float:
        """The largest error of a candidate's results; see `verify.compare`.

        Raises:
            WrongResultError, ValueError: as there.
        """
        written = [(p.name, t) for p, t in zip(params, tensors, strict=True) if p.output]
        errors = []
        for (name, got), want, most in zip(written, self.wants, self.magnitudes, strict=True):
            words = self._compare(name, got, want, most, self.task.terms, self.task.sums or "")
            kind, found = json.loads(words)
            if kind in RAISED:
                raise RAISED[kind](found)
            errors.append(found)
        return max(errors)


RAISED = {error.__name__: error for error in (verify.WrongResultError, ValueError)}


def _line(error: BaseException) -> str:
    """An exception of TVM's in one line: its last, which has the reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
