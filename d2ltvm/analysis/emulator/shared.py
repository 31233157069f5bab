"""What the warpgroups of a block share: turns, barriers, shared memory, and TMA's copies.

Whatever is asynchronous happens at the worst moment that the kernel allows: see `warpgroups`.
"""

import contextvars
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import greenlet
import numpy as np

from d2ltvm import layouts
from d2ltvm.analysis.emulator.arithmetic import Array
from d2ltvm.compiler.launches import TensorMap

Ready = Callable[[], bool]
Corner = tuple[int, ...]
Copy = tuple[Array, Array, Array]  # an array, elements of it, what is to come there


class SynchronizationError(RuntimeError):
    """Warpgroups wait for what never comes, or a kernel ends before its copies have."""


class Turns:
    """Lets functions take turns: one runs, on a stack of its own, until it waits for something.

    The stacks are greenlets: threads of the system would take turns late on a busy machine.

    Args:
        many: functions.
        deliver: called when all wait; False when it cannot help.
    """

    def __init__(self, many: int, deliver: Ready) -> None:
        self.many, self._deliver = many, deliver
        # None for those that have ended.
        self._waits: list[tuple[Ready, str] | None] = [(lambda: True, "its start")] * many

    def wait(self, k: int, ready: Ready, what: str) -> None:
        """Of function `k`: let others run until `ready()`."""
        self._waits[k] = ready, what
        greenlet.getcurrent().parent.switch()

    def run(self, functions: Sequence[Callable[[], None]]) -> None:
        """Run all to their ends; the first error of one ends the others."""
        stacks = [greenlet.greenlet(function) for function in functions]
        for stack in stacks:
            stack.gr_context = contextvars.copy_context()  # what errors NumPy 2 ignores is there
        try:
            while any(self._waits):
                able = [k for k, wait in enumerate(self._waits) if wait and wait[0]()]
                for k in able:
                    stacks[k].switch()
                    if stacks[k].dead:
                        self._waits[k] = None
                if not able and not self._deliver():
                    stuck = [f"{k} for {wait[1]}" for k, wait in enumerate(self._waits) if wait]
                    raise SynchronizationError(f"warpgroups wait for ever: {'; '.join(stuck)}")
        finally:
            for stack in stacks:
                stack.throw()  # ends those that still wait


class Barrier:
    """An mbarrier: a phase ends when all have arrived and all bytes have come."""

    def __init__(self, count: int) -> None:
        self.count = self.missing = count
        self.nbytes, self.phase = 0, 0

    def arrive(self, many: int) -> None:
        self.missing -= many
        if self.missing < 0:
            raise SynchronizationError(f"more than {self.count} arrive at a barrier in one phase")
        self._turn()

    def come(self, nbytes: int) -> None:
        self.nbytes -= nbytes
        self._turn()

    def _turn(self) -> None:
        if self.missing == self.nbytes == 0:
            self.missing, self.phase = self.count, self.phase ^ 1


class Counter:
    """What all blocks share: CUDA's atomicInc of a variable that begins at zero."""

    count = 0

    def next_tile(self, tiles: int) -> int:
        """The count before; it goes up by one, or to zero behind the last tile."""
        before = self.count
        self.count = 0 if before >= tiles - 1 else before + 1
        return before


class Shared:
    """What the warpgroups of a block share: memory, barriers, TMA, and a counter of all blocks."""

    def __init__(
        self,
        nbytes: int,
        maps: Mapping[str, TensorMap],
        arrays: Mapping[str, Array],
        counter: Counter | None = None,
        dependent: bool = False,
    ) -> None:
        self.counter, self.dependent = counter or Counter(), dependent
        self.memory = np.full(-(-nbytes // 8) * 8, 0xFF, np.uint8)  # NaN, as any kind of float
        self.maps, self.arrays = maps, arrays
        self.barriers: dict[int, Barrier] = {}  # by their bytes
        self.synced: dict[int, int] = {}
        self.copies: deque[tuple[list[Copy], Callable[[], None]]] = deque()
        self.clock = 0

    def look_at_clock(self) -> np.uint64:
        """A clock that moves on by 1,000 cycles when it is looked at, and not else."""
        self.clock += 1000
        return np.uint64(self.clock)

    def fetch(self, address: int, name: str, corner: Corner, barrier: Barrier) -> None:
        """Begin to copy a box: its place holds NaN until it comes."""
        view, places, tensor, shape = self._box(address, name)
        view[places] = np.nan
        values = layouts.box(tensor, corner, shape)
        copy = view, places, values.reshape(-1)
        self.copies.append(([copy], lambda: barrier.come(values.nbytes)))

    def deliver(self) -> bool:
        """Let the oldest copy arrive; False where none is under way."""
        if not self.copies:
            return False
        parts, tell = self.copies.popleft()
        for view, places, values in parts:
            view[places] = values
        tell()
        return True

    def store(self, address: int, name: str, corner: Corner) -> None:
        """Copy a box to its tensor."""
        view, places, tensor, shape = self._box(address, name)
        layouts.put(tensor, corner, view[places].reshape(shape))

    def _box(self, address: int, name: str) -> tuple[Array, Array, Array, Corner]:
        """Shared memory as the box's dtype, the elements of the box in it, its tensor and shape."""
        box = self.maps[name]
        if not box.simple:
            raise NotImplementedError(f"TMA's map of {box.tensor}: {box}")
        view = self.memory.view(box.dtype)
        at = address + np.arange(int(np.prod(box.box))) * view.itemsize
        if box.swizzled:  # of an address, bits 7 to 9 change bits 4 to 6
            at ^= (at >> 7 & 7) << 4
        return view, at // view.itemsize, self.arrays[box.tensor].reshape(box.shape), box.box
