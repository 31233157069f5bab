"""Asynchronous copies: TMA's, and those of cp.async."""

from collections.abc import Iterable

import numpy as np

from d2ltvm.analysis.emulator.arithmetic import Array, spread
from d2ltvm.analysis.emulator.barriers import Barriers
from d2ltvm.analysis.emulator.block import Code
from d2ltvm.analysis.emulator.order import FENCED, NEVER, WORD
from d2ltvm.analysis.emulator.shared import BegunCopy
from d2ltvm.analysis.emulator.threads import finish


class Copies(Barriers):
    """Instructions that begin copies, commit them, and wait for them."""

    # TMA

    def _corner(self, coordinates: Iterable[Code]) -> tuple[int, ...]:
        """Where a box begins, the outermost dimension first."""
        if self.active.sum() != 1:
            raise NotImplementedError(f"{self.active.sum()} threads ask TMA; one is emulated")
        self._reach("TMA is asked")
        return tuple(self._same(c) for c in coordinates)[::-1]

    def _cp_async_bulk_tensor_g2s_cluster(self, pointer: Code, name: Code, *args: Code) -> None:
        name = self.value(name)
        rank = len(self.shared.maps[name].box)
        corner, address = self._corner(args[:rank]), self._address(pointer)
        _, place = self._barrier(args[rank])
        blocks = [self.shared]
        if any(getattr(word, "value", "") == "multicast::cluster" for word in args[rank + 1 :]):
            mask = self._same(args[rank + 1])
            blocks = [b for k, b in enumerate(self.shared.cluster) if mask >> k & 1]
        known = self.lanes.knows(*self._active())
        for block in blocks:
            barrier = self._barrier_of(block, place)
            self._known(barrier, FENCED)
            block.fetch(address, name, corner, barrier, known)

    def _cp_async_bulk_tensor_g2s_cluster_im2col(
        self, pointer: Code, name: Code, *args: Code
    ) -> None:
        name = self.value(name)
        barrier, _ = self._barrier(args[4])
        corner = self._corner(args[:4])
        self._known(barrier, FENCED)
        column, row = (self._same(offset) for offset in args[5:7])
        known = self.lanes.knows(*self._active())
        self.shared.walk(self._address(pointer), name, corner, (row, column), barrier, known)

    def _cp_async_bulk_tensor_s2g(self, name: Code, *args: Code) -> None:
        name = self.value(name)
        rank = len(self.shared.maps[name].box)
        store = self._address(args[rank]), name, self._corner(args[:rank])
        self.begun_stores.append(lambda: self.shared.store(*store))
        (lane,) = self._active()
        if self.storer not in (None, lane):
            raise NotImplementedError("several threads of a warpgroup ask TMA to store")
        self.storer = lane
        record = self._group_record("stores", self.lanes.stores)
        self.shared.begin_store(store[0], name, self.lanes, lane, record)

    def _cp_async_bulk_commit_group(self, *words: Code) -> None:
        self.stores.append(self.begun_stores)
        self.begun_stores = []
        self.committed["stores"] += 1

    def _cp_async_bulk_wait_group(self, most: Code, *words: Code) -> None:
        if self.storer in self._active():  # groups are of the thread that asks
            finish(self.stores, self._same(most))
            ended = self.committed["stores"] - self._same(most)
            self.lanes.ended([self.storer], self.lanes.stores, ended)

    # cp.async

    def _cp_async_cg_src_size(
        self, target: Code, source: Code, nbytes: Code, present: Code, *words: Code
    ) -> None:
        """Each active thread begins to copy 16 bytes, or as many as are present and then zeros."""
        (memory, first), (tensor, start) = self.value(target), self.value(source)
        if int(nbytes) != 16 or memory.dtype != tensor.dtype:
            raise NotImplementedError(f"cp.async of {nbytes} bytes, {tensor.dtype}")
        self._reach("cp.async is asked")
        each = np.arange(16 // memory.itemsize)
        active, shape = self.active[:, 0], self.thread.shape
        place, at, many = (
            spread(x, shape)[active]
            for x in (first, start, np.asarray(self.value(present)) // memory.itemsize)
        )
        there = each < many
        values = np.where(there, tensor[np.where(there, at + each, 0)], tensor.dtype.type(0))
        memory.view(np.uint8).reshape(len(memory), -1)[place + each] = 0xFF
        lanes = np.flatnonzero(active)
        record = self.shared.order.new_record([0], NEVER)
        spots: Array = (place * memory.itemsize // WORD + np.arange(16 // WORD)).reshape(-1)
        lane = np.repeat(lanes, 16 // WORD)
        self.shared.shadow.written_by_cp_async(self.lanes, lane, spots, record)
        self.begun_copies.append((lanes, (memory, place + each, values), record))

    def _cp_async_mbarrier_arrive(self, pointer: Code, *words: Code) -> None:
        """When all that the active threads have begun is there, they arrive at a barrier."""
        begun, records = self._begun_by_active()
        barrier, many = self._barrier(pointer)[0], int(self.active.sum())
        order = self.shared.order
        known = self.lanes.tell(self._active())
        order.agent[records] = order.of(barrier).slow

        def tell() -> None:
            order.time[records] = barrier.ended + 1
            order.of(barrier).take(known)
            barrier.arrive(many)
            self.shared.settle(barrier)

        self.shared.copies.append((begun, tell))

    def _begun_by_active(self) -> tuple[list[BegunCopy], list[int]]:
        """What active threads have begun to copy, and records of copies of which all is told now.

        What others have begun is still not told.
        """
        every, self.begun_copies = self.begun_copies, []
        begun, records = [], []
        for lanes, (memory, places, values), record in every:
            told = self.active[lanes, 0]
            begun.append((memory, places[told], values[told]))
            if told.all():
                records.append(record)
            else:
                rest = memory, places[~told], values[~told]
                self.begun_copies.append((lanes[~told], rest, record))
        return begun, records

    def _cp_async_wait_all(self, *words: Code) -> None:
        if self.begun_copies:
            raise NotImplementedError("cp.async that no barrier is told of")
