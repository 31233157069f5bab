"""The fleet of this machine: start it, find it, ask how it is, end it."""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import psutil

import d2ltvm
from d2ltvm.errors import MissingError, is_integer, shown
from d2ltvm.fleet import keeper, nvml, tracker
from d2ltvm.fleet.keeper import Device, FleetPlan
from d2ltvm.fleet.state import Member, State, default_folder, keeper_lives, wait_for_end
from d2ltvm.fleet.tracker import Address, FleetError, as_key
from d2ltvm.system import devices, toolchain

LOOPBACK = "127.0.0.1"
START_TIMEOUT, END_TIMEOUT = 60.0, 20.0  # seconds until all servers have to be there, and gone
WARNING = "TVM's RPC asks nobody who they are: whoever reaches these ports runs any code as you"


@dataclass(frozen=True)
class Server:
    """A server, as it is now.

    Attributes:
        name: such as 'gpu0'.
        state: 'free', 'busy', or 'starting' where its process has ended and a new one begins.
        device: what it measures on.
        pid, port: of its process, and where it listens.
        key: what it is asked for by.
        starts: how often its process was started.
    """

    name: str
    state: str
    device: str
    pid: int
    port: int
    key: str
    starts: int


class Fleet:
    """A tracker and servers that a keeper on this machine keeps. `up` and `find` make it.

    In a `with` statement it ends with the block; it also ends with this process.

    Attributes:
        folder: where its state and its logs are.
        address: its tracker's `Address`.
    """

    def __init__(self, folder: Path, found: dict[str, Any], process: Any = None) -> None:
        self.folder, self._found, self._process = folder, found, process
        self.address = _address(found)

    @property
    def kind(self) -> str:
        """What its servers measure on: 'cpu' or 'cuda'."""
        return str(self._found["plan"]["devices"][0]["kind"])

    def servers(self) -> list[Server]:
        """Its servers, each with what it does now.

        Raises:
            FleetError: the fleet has ended.
        """
        found = self._read()
        about = {d["name"]: d["about"] for d in found["plan"]["devices"]}
        return [
            Server(m.name, _doing(m), about[m.name], m.pid, m.port, found["plan"]["key"], m.starts)
            for m in found["members"]
            if m.name in about
        ]

    def member(self, name: str) -> Member:
        """The process of a server, or the tracker's, as it is now."""
        return next(m for m in self._read()["members"] if m.name == name)

    def replace(self, port: int) -> None:
        """End the server that listens on a port, if it is ours: its keeper starts it again."""
        with contextlib.suppress(FleetError, ProcessLookupError):
            for member in self._read()["members"]:
                if member.port == port and member.pid:
                    os.kill(member.pid, signal.SIGKILL)

    def down(self) -> None:
        """End it: the servers, the tracker, the keeper.

        Raises:
            FleetError: the keeper does not end.
        """
        with contextlib.suppress(ProcessLookupError):
            if keeper_lives(self._found):
                os.kill(self._found["keeper"], signal.SIGTERM)
        if self._process:
            self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_TIMEOUT)
        if not wait_for_end(self._found["keeper"], self._found["born"], END_TIMEOUT):
            os.kill(self._found["keeper"], signal.SIGKILL)
            if not wait_for_end(self._found["keeper"], self._found["born"], END_TIMEOUT):
                raise FleetError(f"the keeper, process {self._found['keeper']}, does not end")
            State(self.folder).remove()

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def _read(self) -> dict[str, Any]:
        found = State(self.folder).read()
        if found is None or not keeper_lives(found):
            raise FleetError(f"the fleet of {self.folder} has ended; its logs are there")
        return found


def up(
    cpus: int | None = None,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    key: str | None = None,
    join: str | None = None,
    folder: str | Path | None = None,
    tied: bool = True,
) -> Fleet:
    """Start a tracker and a server for each GPU, or some on the processor.

    >>> with up(cpus=1, folder="/tmp/one") as fleet:  # doctest: +SKIP
    ...     [(server.name, server.state, server.key) for server in fleet.servers()]
    [('cpu0', 'free', 'cpu')]

    Args:
        cpus: so many servers on the processor, which share its cores; None is one a GPU.
        host: the address of the interface to listen on. By default nobody outside of this machine
            gets in; TVM's RPC asks nobody who they are.
        port: the tracker's; the servers have those behind it. 0 lets the system choose.
        key: what servers are asked for by; None is 'cpu', or the GPU's name.
        join: 'host:port' of another machine's tracker, to which the servers go instead.
        folder: for state and logs; None is the user's cache folder.
        tied: whether it ends with this process.

    Returns:
        A `Fleet`, whose servers all are at the tracker.

    Raises:
        ValueError: an argument is not as above.
        MissingError: there is no GPU.
        FleetError: a fleet is up there already, a port is taken, or a server does not start.
    """
    listed = _devices(cpus)
    plan = FleetPlan(
        folder=str(_made(folder)),
        host=_interface(host),
        port=_port(port, len(listed) + 1),
        key=as_key(_key(listed) if key is None else key),
        devices=listed,
        tracker=None if join is None else _host_and_port(join),
        tied=tied,
    )
    _check_ports(plan)
    with _only_one(Path(plan.folder)):
        process = _start(plan)
        try:
            found = State(Path(plan.folder)).read()
            assert found is not None
            fleet = Fleet(Path(plan.folder), found, process if tied else None)
            _wait_for_servers(fleet, len(listed))
            return fleet
        except BaseException:
            process.kill()
            process.wait()
            State(Path(plan.folder)).remove()
            raise


def find(folder: str | Path | None = None) -> Fleet:
    """The fleet that was started on this machine.

    Raises:
        FleetError: there is none, or it has ended without `down`.
    """
    place = default_folder() if folder is None else Path(folder)
    found = State(place).read()
    if found is None:
        raise FleetError("no fleet is up; python -m d2ltvm fleet up")
    if not keeper_lives(found):
        raise FleetError(
            f"no fleet is up: that of process {found['keeper']} ended without `down`; its logs are "
            f"in {place}; python -m d2ltvm fleet up starts a new one"
        )
    return Fleet(place, found)


@contextlib.contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Keep others from starting a fleet in a folder meanwhile; what an ended one left goes."""
    try:
        with filelock.FileLock(folder / "up.lock", timeout=0):
            found = State(folder).read()
            if found and keeper_lives(found):
                raise FleetError(
                    f"a fleet is up already: tracker {_address(found)}, keeper {found['keeper']}; "
                    "python -m d2ltvm fleet down ends it"
                )
            State(folder).remove()
            yield
    except filelock.Timeout:
        raise FleetError(f"another process is starting a fleet in {folder}") from None


def _check_ports(plan: FleetPlan) -> None:
    """Find a port that is taken before a process is started that would."""
    try:
        for child in keeper.children(plan):
            child.sock.close()
    except OSError as error:
        raise FleetError(f"the fleet cannot start: {error.strerror or error}") from None


def _start(plan: FleetPlan) -> subprocess.Popen[str]:
    """A keeper that has begun."""
    package = str(Path(d2ltvm.__file__).parent.parent)
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "d2ltvm.fleet.keeper"],
        env={**os.environ, **toolchain.FORKS, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(plan.to_text())
    process.stdin.flush()
    answers = select.select([process.stdout], [], [], START_TIMEOUT)[0]
    said = process.stdout.readline().strip() if answers else f"nothing for {START_TIMEOUT:g} s"
    if said != "up":
        process.kill()
        words = said or process.stderr.read().strip().rpartition("\n")[2]
        process.communicate()
        raise FleetError(f"the fleet cannot start: {words}")
    process.stdout.close()
    process.stderr.close()
    if not plan.tied:
        process.stdin.close()
    return process


def _wait_for_servers(fleet: Fleet, count: int) -> None:
    """Until all servers are at the tracker."""
    end = time.monotonic() + START_TIMEOUT
    while True:
        listening = {server.port for server in fleet.servers()}
        there = {port for _, port in tracker.ports(fleet.address)}
        if len(listening & there) == count:
            return
        if time.monotonic() > end:
            raise FleetError(f"servers do not start; their logs are in {fleet.folder}")
        time.sleep(0.02)


def _devices(cpus: int | None) -> tuple[Device, ...]:
    if cpus is not None:
        if not is_integer(cpus) or not 0 < cpus <= 1024:
            raise ValueError(f"cpus is {shown(cpus)}; expected how many servers, 1 to 1024")
        about = devices.describe_processor()["name"]
        return tuple(Device(f"cpu{k}", "cpu", "", about) for k in range(cpus))
    found = nvml.gpus()
    if not found:
        raise MissingError(
            "NVML finds no GPU here",
            "servers on the processor",
            "python -m d2ltvm fleet up --cpus 2",
        )
    if len(names := sorted({gpu.name for gpu in found})) > 1:
        raise ValueError(
            f"the GPUs are {', '.join(names)}; expected one kind, by CUDA_VISIBLE_DEVICES"
        )
    return tuple(Device(f"gpu{k}", "cuda", gpu.uuid, gpu.name) for k, gpu in enumerate(found))


def _key(listed: tuple[Device, ...]) -> str:
    """'cpu', or the GPU's name in small letters."""
    if listed[0].kind == "cpu":
        return "cpu"
    return re.sub(r"[^a-z0-9]+", "-", listed[0].about.lower()).strip("-")


def _interface(host: str) -> str:
    if host in ("0.0.0.0", "::", ""):
        raise ValueError(
            f"host is {host!r}; expected the address of one interface, which servers tell clients"
        )
    if not isinstance(host, str):
        raise ValueError(f"host is {shown(host)}; expected an address such as {LOOPBACK}")
    return host


def _port(port: int, count: int) -> int:
    if not is_integer(port) or not (port == 0 or 0 < port <= 65536 - count):
        raise ValueError(f"port is {shown(port)}; expected 0, or 1 to {65536 - count}")
    return int(port)


def _host_and_port(join: str) -> tuple[str, int]:
    address = Address.of(join, "any")
    return address.host, address.port


def _made(folder: str | Path | None) -> Path:
    place = (default_folder() if folder is None else Path(folder)).resolve()
    place.mkdir(parents=True, exist_ok=True)
    return place


def _address(found: dict[str, Any]) -> Address:
    plan = found["plan"]
    if plan["tracker"]:
        host, port = plan["tracker"]
        return Address(host, port, plan["key"])
    port = next(m.port for m in found["members"] if m.name == "tracker")
    return Address(plan["host"], port, plan["key"])


def _doing(member: Member) -> str:
    """Whether a server has a session: TVM forks a process for each."""
    try:
        return "busy" if psutil.Process(member.pid).children() else "free"
    except (psutil.Error, ValueError):
        return "starting"
