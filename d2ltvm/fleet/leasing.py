"""A server's device for a process of this machine, while nobody else measures on it.

A chapter, or a benchmark beside a library, cannot be one candidate in a session: both sides run in
one process, by the same clock. It runs beside a server instead. The server is held meanwhile, so
that the fleet gives its device to nobody else, and the process sees that device alone.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psutil

from d2ltvm.fleet import choosing, jobs, server, tracker
from d2ltvm.fleet.choosing import About
from d2ltvm.fleet.measuring import Servers, address_of
from d2ltvm.fleet.task import Limits
from d2ltvm.fleet.tracker import FleetError
from d2ltvm.fleet.workers import Worker

PATIENT = Limits(wait=3600.0)  # others may hold their servers for as long as a chapter takes


@dataclass(frozen=True)
class Ended:
    """What came of a command.

    Attributes:
        code: its exit code.
        out, err: what it printed.
        server: beside which it ran, such as 'gpu0, GPU-4f0c…'; '' for none.
        seconds: that it took.
    """

    code: int
    out: str
    err: str
    server: str = ""
    seconds: float = 0.0


@contextlib.contextmanager
def lease(servers: Servers, kind: str, limits: Limits = PATIENT) -> Iterator[About]:
    """Hold a server of this machine; nobody else measures on its device until the block ends.

    >>> with lease(fleet.find(), "cuda") as held:  # doctest: +SKIP
    ...     subprocess.run(["python", "-m", "d2ltvm", "bench"], env=environment(held))

    Args:
        servers: a `Fleet`, or the `Address` of one.
        kind: of the target: 'llvm' or 'cuda'.
        limits: seconds that each step may take.

    Raises:
        FleetError: there is none, it is for another kind, on another machine, or it was lost
            while it was held, so that others may have measured on its device.
    """
    address, worker = address_of(servers), Worker()
    tracker.need_servers(address, wait=limits.connect)
    try:
        worker.begin(address, 2 * limits.wait, jobs.hold, address, limits)
        while (message := choosing.said(worker)).kind == "connecting":
            worker.extend(limits.connect)
        if message.kind != "held":
            raise choosing.cannot_ask(address, message)
        about = About(**message.value)
        choosing.check_kind(about, address, kind)
        if about.machine != server.machine():
            raise FleetError(
                f"the server {about.name} at {about.at} is on another machine; expected one of "
                "this, since both sides of a measurement run beside their device"
            )
        begun = _begun(about.session)
        yield about
        if begun is None or _begun(about.session) != begun:
            raise FleetError(
                f"the server {about.name} was lost while it was held: others may have measured on "
                "its device meanwhile"
            )
    finally:
        worker.end()


def _begun(pid: int) -> float | None:
    """When a process began that is there; it tells processes of one number apart."""
    try:
        process = psutil.Process(pid)
        ended = process.status() == psutil.STATUS_ZOMBIE
        return None if ended else float(process.create_time())
    except psutil.Error:
        return None


def environment(held: About) -> dict[str, str]:
    """The environment of a process that sees the device of a server alone."""
    own = {choosing.VARIABLE: choosing.NONE, "TVM_NUM_THREADS": str(len(held.cores))}
    if held.kind == "cuda":
        own["CUDA_VISIBLE_DEVICES"] = held.gpu
    return {**os.environ, **own, "OMP_NUM_THREADS": str(len(held.cores))}


def run_each(
    commands: Mapping[str, Sequence[str]],
    servers: Servers,
    kind: str,
    show: Callable[[str, Ended], object] = lambda *_: None,
    limits: Limits = PATIENT,
) -> dict[str, Ended]:
    """Run commands, as many at once as there are servers, each beside a server that it holds.

    Each sees the GPU of its server alone, and runs on a share of this machine's cores, so that
    none takes the time of another.

    Args:
        commands: by name, as for `subprocess.run`.
        servers, kind, limits: as for `lease`.
        show: called with each name and what came of it.

    Returns:
        What came of each, by its name. A server that was lost is an exit code of 1, with the
        reason behind what the command printed.

    Raises:
        FleetError: there is no server of that kind on this machine.
    """
    count = tracker.need_servers(address_of(servers), wait=limits.connect)
    with lease(servers, kind, limits):  # what is wrong with all of them is one line
        pass

    def run(name: str) -> Ended:
        ended = Ended(1, "", "")
        try:
            with lease(servers, kind, limits) as held:
                ended = _run(commands[name], held)
        except FleetError as error:
            ended = Ended(1, ended.out, f"{ended.err}{error}\n")
        show(name, ended)
        return ended

    with ThreadPoolExecutor(min(count, len(commands))) as pool:
        return dict(zip(commands, pool.map(run, commands), strict=True))


def _run(command: Sequence[str], held: About) -> Ended:
    pipe, start = subprocess.PIPE, time.monotonic()
    with subprocess.Popen(
        command, env=environment(held), stdout=pipe, stderr=pipe, text=True
    ) as process:
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            os.sched_setaffinity(process.pid, held.cores)
        try:
            out, err = process.communicate()
        except BaseException:
            process.kill()
            raise
    who = ", ".join(filter(None, (held.name, held.gpu)))
    return Ended(process.returncode, out, err, who, round(time.monotonic() - start, 1))
