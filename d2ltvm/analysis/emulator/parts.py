"""How the blocks that compute parts of a tile use their sums in a tensor: in which order."""

import numpy as np

from d2ltvm.analysis.emulator.arithmetic import Array
from d2ltvm.analysis.emulator.order import PLAIN, TOLD, Lane, Lanes

READ = "a thread reads parts of other blocks"


class PartsOrder:
    """Of a warpgroup: who has written parts, published them, and waited for those of others.

    A thread counts for all of its warpgroup that their parts are there, behind a fence for the
    whole GPU (`__threadfence`). That publishes what the thread knows of; so it needs a sync with
    all that have written. Others' parts may be read by who knows that this thread has waited.
    """

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._used = False
        self._stored = np.zeros(len(lanes.fenced), np.int32)
        self._tensors: set[int] = set()  # those that it has written
        self._waited: tuple[Lane, int] | None = None  # who has, and when

    def store(self, memory: Array, lanes: list[Lane]) -> None:
        self._lanes.now += 1
        self._stored[lanes] = self._lanes.now
        self._tensors.add(memory.ctypes.data)
        self._waited = None

    def count(self, lane: Lane) -> None:
        """A thread counts the part of its warpgroup, and waits for the others."""
        self._used = True
        known = self._lanes.knows(lane)[PLAIN, self._lanes.own]
        if (known < self._stored).any():
            self._fault("parts are counted", TOLD)

    def wait(self, lane: Lane) -> None:
        """It has waited for them."""
        self._waited = lane, self._lanes.now
        self._lanes.now += 1

    def leave(self) -> None:
        """A thread says that its warpgroup has read the others' parts."""
        if self._waited is None:
            self._fault(READ, "await_parts")

    def load(self, memory: Array, lanes: list[Lane]) -> None:
        if not self._used or memory.ctypes.data not in self._tensors:
            return
        if self._waited is None:
            self._fault(READ, "await_parts")
            return
        (lane, time), mine = self._waited, self._lanes
        others = [one for one in lanes if one != lane]
        common = [one for one in others if one not in mine.more][:1]  # these know the same
        for one in common + [one for one in others if one in mine.more]:
            if mine.knows(one)[PLAIN, mine.first + lane] < time:
                self._fault(READ, TOLD + ", behind await_parts")
                return

    def _fault(self, what: str, missing: str) -> None:
        self._lanes.order.fault(f"{what}; missing: {missing}")
