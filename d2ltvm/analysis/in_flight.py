"""Little's law for a GPU's memory: what has to be under way, and what bandwidth follows from it."""

import heapq
from dataclasses import dataclass
from numbers import Real

from d2ltvm.system import chips


@dataclass(frozen=True)
class InFlight:
    """What `in_flight` says of loads that are under way.

    Attributes:
        bytes: that each multiprocessor has asked for and does not have yet.
        needed: that it would need to have asked for, to use the bandwidth.
        tb_s: bandwidth that follows, TB/s.
        wait: ns from asking to having: the latency, and more where loads queue, beyond `needed`.
    """

    bytes: int
    needed: float
    tb_s: float
    wait: float


def in_flight(
    gpu: str,
    threads: int,
    latency: float,
    width: int = 4,
    loads: int = 1,
    bandwidth: float | None = None,
) -> InFlight:
    """The bandwidth that loads under way make possible.

    >>> found = in_flight("H200", threads=512, latency=400)
    >>> found.bytes, round(found.needed), round(found.tb_s, 3)
    (2048, 14545, 0.676)

    Little's law: what is under way is the rate at which it arrives, times the time that it takes.

    Args:
        gpu: its name, as for `d2ltvm.chip`.
        threads: on a multiprocessor.
        latency: ns from asking to having where nothing queues.
        width: bytes of a load of a thread.
        loads: that a thread has asked for before it waits for the first.
        bandwidth: that the memory can reach, TB/s; that of the data sheet by default.

    Returns:
        `InFlight`.

    Raises:
        ValueError: the GPU is not known, it does not hold so many threads, or a number is not
            positive.

    Source: Little, "A proof for the queuing formula: L = λW", 1961; for GPUs, Volkov, "Better
    performance at lower occupancy", 2010.
    """
    chip = chips.chip(gpu)
    bandwidth = chip.bandwidth_tb_s if bandwidth is None else bandwidth
    numbers = {"threads": threads, "width": width, "loads": loads}
    for name, value in (numbers | {"latency": latency, "bandwidth": bandwidth}).items():
        if not isinstance(value, Real) or value <= 0:
            raise ValueError(f"{name} is {value!r}; expected a positive number")
    if threads > chip.max_threads:
        raise ValueError(
            f"threads is {threads}; expected at most {chip.max_threads} on {chip.name}"
        )
    under_way = threads * width * loads
    rate = bandwidth * 1000 / chip.sms  # bytes a ns, of each multiprocessor
    attained = min(rate, under_way / latency)
    return InFlight(under_way, rate * latency, attained * chip.sms / 1000, under_way / attained)


Spans = list[tuple[float, float, str]]  # start, end, what: as `figures.draw_timeline` takes them


def deliveries(
    warps: int, size: int, latency: int = 20, until: int = 60
) -> tuple[dict[str, Spans], float]:
    """Warps that ask one memory for data, one request at a time each: who waits, and who sends.

    >>> rows, busy = deliveries(warps=4, size=1)
    >>> rows["warp 0"][:2], rows["memory"][0], round(busy, 2)
    ([(0, 21, 'waits'), (21, 22, 'adds')], (20, 21, 'sends'), 0.18)

    The memory of this model answers `latency` after a request was made, or when it has sent what
    was asked for before. Sending takes as long as the request is large, and adding a unit of time.
    A warp asks again at once, as the next warp would in its place.

    Args:
        warps: that ask, all of them at time 0 for the first time.
        size: of a request, in units of time that the memory takes to send it.
        latency: from asking to the begin of an answer, where nothing queues.
        until: where the picture ends.

    Returns:
        Spans of each warp and of the memory, by name, and the share of time in which the memory
        sends, in the long run.
    """
    rows: dict[str, Spans] = {f"warp {w}": [] for w in range(warps)}
    rows["memory"] = []
    asking, free = [(0, w) for w in range(warps)], 0
    while asking[0][0] < until:
        now, warp = heapq.heappop(asking)
        start = max(free, now + latency)
        free = start + size
        for who, spans in (
            (f"warp {warp}", [(now, free, "waits"), (free, free + 1, "adds")]),
            ("memory", [(start, free, "sends")]),
        ):
            rows[who] += [(a, min(b, until), what) for a, b, what in spans if a < until]
        heapq.heappush(asking, (free + 1, warp))
    return rows, min(1.0, warps * size / (latency + size + 1))
