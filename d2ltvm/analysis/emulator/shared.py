"""What the warpgroups of a block share: turns, barriers, shared memory, and TMA's copies.

Whatever is asynchronous happens at the worst moment that the kernel allows: see `warpgroups`.
"""

import contextvars
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import greenlet
import numpy as np

from d2ltvm import layouts
from d2ltvm.analysis.emulator.arithmetic import Array
from d2ltvm.analysis.emulator.order import (
    ALL,
    NEVER,
    PLAIN,
    WORD,
    Known,
    Lane,
    Lanes,
    Order,
    Shadow,
    SynchronizationError,
)
from d2ltvm.compiler.launches import TensorMap
from d2ltvm.layouts.arrays import rounded_up

RANK = 24  # lowest bits of an address in a cluster: the place; above, the block's rank

Ready = Callable[[], bool]
Corner = tuple[int, ...]
BegunCopy = tuple[Array, Array, Array]  # an array, elements of it, what is to come there


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
        self._waits: list[tuple[Ready, object] | None] = [(lambda: True, "its start")] * many

    def wait(self, k: int, ready: Ready, what: object) -> None:
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
        self.nbytes, self.ended = 0, 0  # how many phases have

    @property
    def phase(self) -> int:
        return self.ended % 2

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
            self.missing, self.ended = self.count, self.ended + 1


class Awaited(NamedTuple):
    """What somebody waits for at a barrier, in words: what it lacks, when that is looked at."""

    barrier: Barrier
    address: int
    parity: int

    def __str__(self) -> str:
        barrier, lacks = self.barrier, []
        if barrier.missing:
            lacks.append(f"{barrier.missing} of {barrier.count} arrivals")
        if barrier.nbytes:
            expects = "" if barrier.nbytes > 0 else "expect_tx of "
            lacks.append(f"{expects}{abs(barrier.nbytes)} bytes")
        return f"barrier {self.address}, parity {self.parity} (missing: {', '.join(lacks)})"


class Counter:
    """What all blocks share: CUDA's atomicInc of a variable that begins at zero."""

    count = 0

    def next_tile(self, tiles: int) -> int:
        """The count before; it goes up by one, or to zero behind the last tile."""
        before = self.count
        self.count = 0 if before >= tiles - 1 else before + 1
        return before


class Parts:
    """What blocks that compute parts of one tile share: how many have written their sums, by tile.

    A counter is zero again when each has gone on, as in CUDA behind twice as many parts.
    """

    def __init__(self) -> None:
        self.done: dict[int, int] = {}

    def count(self, tile: int, parts: int) -> None:
        """One more has come, or gone on."""
        self.done[tile] = (self.done.get(tile, 0) + 1) % (2 * parts)


class Shared:
    """What the warpgroups of a block share: memory, barriers, TMA, and a counter of all blocks."""

    def __init__(
        self,
        nbytes: int,
        maps: Mapping[str, TensorMap],
        arrays: Mapping[str, Array],
        counter: Counter | None = None,
        dependent: bool = False,
        parts: Parts | None = None,
        order: Order | None = None,
    ) -> None:
        self.counter, self.dependent = counter or Counter(), dependent
        self.parts, self.order = parts or Parts(), order or Order(1)
        self.shadow = Shadow(self.order, nbytes)
        self.syncs = [self.order.nothing(), self.order.nothing()]  # of the block, in turns
        self.memory = np.full(rounded_up(nbytes, 8), 0xFF, np.uint8)  # NaN, as any kind of float
        self.maps, self.arrays = maps, arrays
        self.barriers: dict[int, Barrier] = {}  # by their bytes
        self.synced: dict[int, int] = {}
        self.gone: set[int] = set()  # warpgroups that have ended
        self.cluster: list[Shared] = [self]  # of the blocks of its cluster, in their order
        self.lanes: list[Lanes] = []  # of its warpgroups
        self.named: dict[int, Lanes] = {}  # who has used a named barrier
        self.visits: list[
            tuple[int, int]
        ] = []  # from elsewhere: which thread has used memory, and when
        self.copies: list[tuple[list[BegunCopy], Callable[[], None]]] = []
        self.clock = 0

    def look_at_clock(self) -> np.uint64:
        """A clock that moves on by 1,000 cycles when it is looked at, and not else."""
        self.clock += 1000
        return np.uint64(self.clock)

    def fetch(
        self,
        address: int,
        name: str,
        corner: Corner,
        barrier: Barrier,
        known: Known | None = None,
    ) -> None:
        """Begin to copy a box: its place holds NaN until it comes. Who asks knows so much."""
        view, places, tensor, shape = self._box(address, name)
        steps = self.maps[name].steps or (1,) * len(shape)
        whole = [(size - 1) * step + 1 for size, step in zip(shape, steps, strict=True)]
        values = layouts.box(tensor, corner, whole)[tuple(slice(None, None, k) for k in steps)]
        self._begin(view, places, values, barrier, self._overwritten(address, values, known))

    def walk(
        self,
        address: int,
        name: str,
        corner: Corner,
        tap: tuple[int, int],
        barrier: Barrier,
        known: Known | None = None,
    ) -> None:
        """Begin to copy pixels of images, in TMA's im2col mode, `tap` rows and columns further."""
        walk = self.maps[name].walk
        if walk is None:
            raise SynchronizationError(f"{name} is no map for im2col mode")
        view, places, tensor, _ = self._box(address, name)
        values = layouts.im2col(tensor.reshape(-1), walk, corner, tap)
        self._begin(view, places, values, barrier, self._overwritten(address, values, known))

    def _overwritten(self, address: int, values: Array, known: Known | None) -> int:
        """The record of a copy that begins. A swizzle stays within the bytes of its box."""
        record = self.order.new_record([0], NEVER)
        words = slice(address // WORD, (address + values.nbytes) // WORD)
        if known is not None:
            self.shadow.written_by_copy(known, words, record)
        return record

    def _begin(
        self, view: Array, places: Array, values: Array, barrier: Barrier, record: int
    ) -> None:
        view[places] = np.nan
        copy = view, places, values.reshape(-1)
        self.order.agent[record] = self.order.of(barrier).copies

        def tell() -> None:
            self.order.time[record] = barrier.ended + 1  # the phase in which its bytes count
            barrier.come(values.nbytes)
            self.settle(barrier)

        self.copies.append(([copy], tell))

    def name_sync(self, number: int, lanes: Lanes) -> None:
        """A warpgroup syncs by a barrier that has a number; others must not use the same one."""
        if self.named.setdefault(number, lanes) is not lanes or number == 0:
            self.order.fault(
                f"barrier {number} of the block is used by others, too; missing: one of its own"
            )

    def end(self) -> None:
        """All its threads have ended: then nobody may use its memory any more."""
        known = np.max([lanes.tell(ALL)[PLAIN] for lanes in self.lanes], axis=0)
        if any(known[thread] < when for thread, when in self.visits):
            self.order.fault(
                "a block ends while others may use its memory; missing: a cluster's sync"
            )

    def settle(self, barrier: Barrier) -> None:
        """Who waits for a phase that has just ended knows what came before."""
        self.order.of(barrier).settle(barrier.ended)

    def deliver(self) -> bool:
        """Let the newest copy arrive; False where none is under way."""
        if not self.copies:
            return False
        parts, tell = self.copies.pop()
        for view, places, values in parts:
            view[places] = values
        tell()
        return True

    def begin_store(self, address: int, name: str, lanes: Lanes, lane: Lane, record: int) -> None:
        """A thread asks TMA to copy a box to its tensor: what is there has to be ready."""
        view, places, *_ = self._box(address, name)
        words = slice(address // WORD, (address + len(places) * view.itemsize) // WORD)
        self.shadow.read_by_store(lanes, lane, words, record)

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
        if box.swizzled:
            at = layouts.swizzle(at, box.swizzled)
        # A map may take a tensor for one of another type.
        tensor = self.arrays[box.tensor].reshape(-1).view(box.dtype)
        return view, at // view.itemsize, tensor if box.walk else tensor.reshape(box.shape), box.box
