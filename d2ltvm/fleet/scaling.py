"""How many GPUs one machine can keep busy: each part's share of a candidate, measured.

A candidate passes through five parts. The servers and the cores that build do several at once; the
tracker, the process that gives out the work, and the file of results do one after the other. The
slowest part sets the pace.
"""

import pickle
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm.rpc import base

from d2ltvm.compiler import verify
from d2ltvm.errors import above_zero, whole
from d2ltvm.fleet import jobs, tracker
from d2ltvm.fleet.database import OK, Database, Result
from d2ltvm.fleet.local import Fleet
from d2ltvm.fleet.measuring import Servers, measure
from d2ltvm.fleet.task import CLOCK, LIMITS, Array, Clock, Task
from d2ltvm.fleet.tracker import Address
from d2ltvm.system import devices, threads

PARTS = ("servers", "builders", "tracker", "queue", "file")


@dataclass(frozen=True)
class Terms:
    """Seconds of a candidate, by part.

    Attributes:
        session: on a server, from the request for it to the result.
        build: of a core, to compile it.
        client: of a core of the same machine, to speak with the server.
        request: of the tracker, to give out a server and to take it back.
        queue: of the process that calls `measure`.
        line: of the file, until a result is on the disk.
        cores: of the machine that builds.

    Raises:
        ValueError: one is no number above zero, or `cores` no positive integer.
    """

    session: float
    build: float
    client: float
    request: float
    queue: float
    line: float
    cores: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            whole(name, value) if name == "cores" else above_zero(name, value)

    def rates(self, servers: int) -> dict[str, float]:
        """Candidates a second that each part could pass, with so many servers.

        >>> Terms(1.0, 2.0, 0.5, 0.001, 0.002, 0.004, cores=32).rates(8)["servers"]
        8.0
        """
        servers = whole("servers", servers)
        return {
            "servers": servers / self.session,
            "builders": self.cores / (self.build + self.client),
            "tracker": 1 / self.request,
            "queue": 1 / self.queue,
            "file": 1 / self.line,
        }

    def rate(self, servers: int) -> float:
        """Candidates a second of the slowest part."""
        return min(self.rates(servers).values())

    def slowest(self, servers: int) -> str:
        """Which part that is, one of `PARTS`.

        >>> Terms(1.0, 2.0, 0.5, 0.001, 0.002, 0.004, cores=32).slowest(1000)
        'builders'
        """
        rates = self.rates(servers)
        return min(rates, key=lambda part: rates[part])

    def most(self) -> dict[str, float]:
        """With how many servers each part, but for the servers, becomes the slowest.

        >>> Terms(1.0, 2.0, 0.5, 0.001, 0.002, 0.004, cores=32).most()["file"]
        250.0
        """
        rates = self.rates(1)
        return {part: rates[part] * self.session for part in PARTS if part != "servers"}


def measure_terms(
    servers: Servers,
    mod: Any,
    inputs: Sequence[Array],
    reference: Callable[..., Any],
    *,
    target: Any,
    clock: Clock = CLOCK,
    cores: int | None = None,
    count: int = 8,
) -> Terms:
    """Measure all of them, on one candidate.

    >>> a, b, _ = d2ltvm.get_abc(1000)
    >>> mod = d2ltvm.schedules.cpu_vector_add(1000).mod
    >>> measure_terms(servers, mod, (a, b), np.add, target="llvm")  # doctest: +SKIP
    Terms(session=0.14, build=0.21, client=0.02, request=0.0009, queue=0.004, line=0.0003, cores=2)

    Args:
        servers: a `Fleet`, or the `Address` of one, of which one server is used.
        mod, inputs, reference, target, clock: as `measure` takes them.
        cores: of the machine that builds; None is this one.
        count: how often each is measured; the median counts.
    """
    target = devices.as_target(target)
    address = servers.address if isinstance(servers, Fleet) else servers
    task = Task(tuple(inputs), *verify.references(reference, inputs))
    with tempfile.TemporaryDirectory() as place:
        library, given = f"{place}/candidate.so", f"{place}/task"
        Path(given).write_bytes(pickle.dumps(task))
        params, _ = jobs.build(_say_nothing, mod, target, library)
        build, _ = _seconds(lambda: jobs.build(_say_nothing, mod, target, library), count)
        what = (address, LIMITS, clock, library, params, given)
        client, session = _seconds(lambda: jobs.measure(_say_nothing, *what, alone=False), count)
        jobs.let_go()
        alike = {
            str(k): tvm.IRModule({"main": mod["main"].with_attr("k", k)}) for k in range(count)
        }
        own = time.process_time()
        measure(
            alike, inputs, reference, servers=servers, to=f"{place}/run", target=target, clock=clock
        )
        queue = (time.process_time() - own) / count
        line = line_seconds(place)
    request = request_seconds(address)
    return Terms(session, build, client, request, queue, line, cores or threads.cores())


def _say_nothing(_phase: str, _value: object = None) -> None:
    """In the place of what tells the queue about a job's phases."""


def _seconds(call: Callable[[], object], count: int) -> tuple[float, float]:
    """Medians over some calls: seconds of a core, those of ended processes included, and passed."""
    work, passed = [], []
    for _ in range(count):
        before, start = _work(), time.perf_counter()
        call()
        passed.append(time.perf_counter() - start)
        work.append(_work() - before)
    return statistics.median(work), statistics.median(passed)


def _work() -> float:
    """Seconds of a core so far. `os.times` counts ticks of 10 ms, and a call may take less."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def request_seconds(address: Address, count: int = 200) -> float:
    """Seconds of a tracker to learn that a server is free, and to give it to a client.

    The servers are made up, under a key of their own, and each client is a new connection, as in a
    run.

    Args:
        address: the tracker's; the key does not matter.
        count: how many requests are made, one after the other.
    """
    made_up = Address(address.host, address.port, f"{address.key}.scaling")
    times = []
    with tracker.connected(made_up, 10.0) as line:
        for _ in range(count):
            start = time.perf_counter()
            free = (1, base.random_key(made_up.key))
            tracker.ask(line, base.TrackerCode.PUT, made_up.key, free, None)
            tracker.request(made_up, 10.0)
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def line_seconds(folder: str | Path | None = None, count: int = 100) -> float:
    """Seconds until a result is on the disk.

    Args:
        folder: where the file would be; None is the folder for temporary files.
        count: how many lines are written.
    """
    with (
        tempfile.TemporaryDirectory(dir=folder) as place,
        Database(Path(place) / "lines.jsonl") as database,
    ):
        times = []
        for k in range(count):
            result = Result(f"{k:016x}", f"candidate {k}", OK, (1e-6,) * 3, server="gpu0 at h:9191")
            start = time.perf_counter()
            database.append(result)
            times.append(time.perf_counter() - start)
    return statistics.median(times)
