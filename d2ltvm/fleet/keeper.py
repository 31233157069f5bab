"""The process that starts the tracker and the servers, and starts those again that end.

It holds their sockets, so that a tracker or server that is started again is found where it was, and
whoever asks meanwhile waits and is not turned away. All of them end when it ends, however that
happens. `python -m d2ltvm.fleet.keeper` reads a `FleetPlan` from standard input and prints a line:
nothing but 'up', or why not.
"""

import contextlib
import functools
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import psutil

from d2ltvm.fleet import server
from d2ltvm.fleet.state import Member, State

TICK = 0.2  # seconds between two looks where no signal comes
SHORT = 1.0  # seconds: what lives no longer is started again later each time
FIRST_DELAY, LONGEST_DELAY = 0.02, 5.0  # seconds until then, at first and at most
SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True)
class Device:
    """What a server measures on: its `name`, `kind` and `gpu`, as `server.serve` takes them.

    `about` is for people: 'NVIDIA H200'.
    """

    name: str
    kind: str
    gpu: str = ""
    about: str = ""


@dataclass(frozen=True)
class FleetPlan:
    """What a keeper is to start.

    Attributes:
        folder: for the state and the logs.
        host: the interface, as an address.
        port: the tracker's; the servers' are those behind it. 0 lets the system choose.
        key: what servers are asked for by.
        devices: one for each server.
        tracker: of another fleet, as host and port; None starts one.
        tied: whether to end when standard input does.
    """

    folder: str
    host: str
    port: int
    key: str
    devices: tuple[Device, ...]
    tracker: tuple[str, int] | None = None
    tied: bool = False

    def to_text(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_text(cls, text: str) -> "FleetPlan":
        """From `to_text`."""
        found = json.loads(text)
        found["devices"] = tuple(Device(**d) for d in found["devices"])
        found["tracker"] = tuple(found["tracker"]) if found["tracker"] else None
        return cls(**found)


class Child:
    """A tracker or a server: its socket, and the process that serves it now."""

    def __init__(
        self, name: str, sock: socket.socket, run: Callable[[socket.socket], None], log: Path
    ) -> None:
        self.name, self.sock, self.run, self.log = name, sock, run, log
        self.pid, self.starts, self.quick = 0, 0, 0
        self.born, self.not_before = 0.0, 0.0

    def start(self, others: list["Child"]) -> None:
        """Fork the process; in it only its own socket stays open."""
        self.starts += 1
        self.born = time.monotonic()
        keeper = os.getpid()
        self.pid = os.fork()
        if self.pid:
            return
        code = 1
        try:
            server.die_with_parent()
            if os.getppid() != keeper:
                os._exit(1)
            os.setsid()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            _redirect(self.log)
            for other in others:
                if other is not self:
                    other.sock.close()
            self.run(self.sock)
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def ended(self) -> None:
        """Its process is gone: see that its children are, and when to start it again."""
        _end_group(self.pid)
        lived = time.monotonic() - self.born
        self.quick = self.quick + 1 if lived < SHORT else 0
        self.not_before = time.monotonic() + min(
            LONGEST_DELAY, FIRST_DELAY * 2 ** max(0, self.quick - 1)
        )
        self.pid = 0


def keep(plan: FleetPlan, say: Callable[[str], None]) -> int:
    """Start everything, and keep it until a signal says to end; returns the exit code."""
    try:
        kept = children(plan)
    except OSError as error:
        say(f"{error.strerror or error}")
        return 1
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    _start_again(plan, kept)
    say("up")
    while True:
        got = signal.sigtimedwait(SIGNALS, TICK)
        _reap(kept)
        if (got and got.si_signo != signal.SIGCHLD) or (plan.tied and _closed(sys.stdin)):
            break
        _start_again(plan, kept)
    for child in kept:
        if child.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
            _end_group(child.pid)
    State(Path(plan.folder)).remove()
    return 0


def _start_again(plan: FleetPlan, kept: list[Child]) -> None:
    """Start those that have ended, and say so in the state."""
    due = [child for child in kept if not child.pid and time.monotonic() >= child.not_before]
    for child in due:
        child.start(kept)
    if due:
        with contextlib.suppress(OSError):  # a full disk: the fleet goes on, its state is old
            State(Path(plan.folder)).write(plan, [_member(child) for child in kept])


def children(plan: FleetPlan) -> list[Child]:
    """The tracker, if it is to be ours, and the servers, with their sockets and nothing started.

    Raises:
        OSError: an address or a port cannot be had.
    """
    found: list[Child] = []
    folder = Path(plan.folder)
    port, at = plan.port, plan.tracker
    if at is None:
        sock = _listening(plan.host, port)
        at = (plan.host, sock.getsockname()[1])
        found.append(Child("tracker", sock, server.track, folder / "tracker.log"))
        port += bool(port)
    cores = sorted(os.sched_getaffinity(0))
    for index, device in enumerate(plan.devices):
        sock = _listening(plan.host, port + index if port else 0)
        share = cores[index % len(cores) :: len(plan.devices)]
        run = functools.partial(_serve, device=device, cores=share, key=plan.key, at=at)
        found.append(Child(device.name, sock, run, folder / f"{device.name}.log"))
    return found


def _serve(
    sock: socket.socket, device: Device, cores: list[int], key: str, at: tuple[str, int]
) -> None:
    """Be a server that sees its own GPU, or its own share of the processor."""
    os.environ["CUDA_VISIBLE_DEVICES"] = device.gpu
    if device.kind == "cpu":
        os.sched_setaffinity(0, cores)
        os.environ["TVM_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(len(cores))
    server.serve(sock, device.name, device.kind, device.gpu, key, at, cores)


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens, on a port of the system's choice where it is 0."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # TVM sends a message in two parts; without this the second one waits for an answer to the
    # first, 40 ms. Whom the socket accepts inherits it.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"{host}:{port} cannot be had: {error.strerror}") from None
    sock.listen(128)
    return sock


def _member(child: Child) -> Member:
    return Member(child.name, child.pid, child.sock.getsockname()[1], child.starts)


def _reap(children: list[Child]) -> None:
    """Take note of the processes that ended; one that is stopped is ended."""
    for child in children:
        if not child.pid:
            continue
        pid, status = os.waitpid(child.pid, os.WNOHANG | os.WUNTRACED)
        if pid and os.WIFSTOPPED(status):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        if pid:
            child.ended()


def _end_group(group: int, limit: float = 5.0) -> None:
    """Kill what is left of a server's processes, and wait until it is gone from its device."""
    end = time.monotonic() + limit
    while (left := _living(group)) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _living(group: int) -> list[int]:
    """Processes of a session of the system's that are there and no zombies."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def _redirect(log: Path, keep_input: bool = False) -> None:
    """Send what this process prints into a log, and let it read nothing."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    if not keep_input:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def _closed(stream: IO[str]) -> bool:
    """Whether a pipe's other end is gone."""
    return bool(select.select([stream], [], [], 0)[0])


def main() -> int:
    """Read the plan, say how it went, and keep it; what goes wrong later stands in keeper.log."""
    plan = FleetPlan.from_text(sys.stdin.readline())

    def say(line: str) -> None:
        print(line, flush=True)
        _redirect(Path(plan.folder) / "keeper.log", keep_input=plan.tied)

    return keep(plan, say)


if __name__ == "__main__":
    sys.exit(main())
