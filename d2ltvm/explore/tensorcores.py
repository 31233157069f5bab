"""The figures of TensorCores: how they are fed, and who holds what they multiply."""

from typing import Any

from d2ltvm.explore.widget import Explorer


def ring(**state: Any) -> Explorer:
    """A ring of slots in time, as `d2ltvm.analysis.ring_timeline` follows it.

    >>> print(ring(stages=3).says)
    10 tiles in ...; the consumer waits for full 14% of the time, ...

    Args:
        **state: stages, rounds, multiply, latency, transfer, ask, broken, time.

    Raises:
        ValueError: a value is not one that can be set.
        TypeError: there is no such value.
    """
    return Explorer("ring", state)
