"""Little's law for a GPU's memory: what has to be under way, and what bandwidth follows from it."""

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
