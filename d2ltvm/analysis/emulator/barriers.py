"""How warpgroups wait for each other: synchronizations, mbarriers, and fences."""

import numpy as np

from d2ltvm.analysis.emulator.block import Code
from d2ltvm.analysis.emulator.order import (
    ALL,
    FENCED,
    PLAIN,
    Known,
    Lane,
    SynchronizationError,
)
from d2ltvm.analysis.emulator.shared import RANK, Awaited, Barrier, Shared
from d2ltvm.analysis.emulator.threads import Threads


class Barriers(Threads):
    """Instructions of barriers and fences; one that is told of `words` takes no notice of them."""

    def _barrier(self, node: Code) -> tuple[Barrier, int]:
        address = self._address(node)
        barrier = self._barrier_of(self.shared, address)
        self._known(barrier)
        return barrier, address

    def _barrier_of(self, block: Shared, address: int) -> Barrier:
        if address not in block.barriers:
            raise SynchronizationError(f"at byte {address} of shared memory there is no barrier")
        return block.barriers[address]

    def _known(self, barrier: Barrier, proxy: int = PLAIN) -> None:
        """Those who use a barrier have to know that it was initialized."""
        b = self.shared.order.of(barrier)
        if self.lanes in b.familiar or b.maker < 0:
            return
        lanes = self._active()
        for known in [self.lanes.common] if lanes is ALL else map(self.lanes.knows, lanes):
            if known[PLAIN, b.maker] < b.made:
                self._fault("an mbarrier is used", "a sync behind its initialization")
            elif proxy == FENCED and not b.published and known[FENCED, b.maker] < b.made:
                missing = "fence.proxy.async or fence.mbarrier_init behind its initialization"
                self._fault("TMA is told of an mbarrier", missing)
            elif lanes is ALL:
                b.familiar.add(self.lanes)

    # Synchronizations

    def _cta_sync(self) -> None:
        self._sync([self.shared], self.shared.syncs, "the whole block")

    def _cluster_sync(self) -> None:
        self._sync(self.shared.cluster, self.shared.order.syncs, "the whole cluster")

    def _sync(self, blocks: list[Shared], told: list[Known], what: str) -> None:
        """Wait until all warpgroups of blocks have synchronized as often as this one.

        A cluster does not wait for threads that have ended (PTX, barrier.cluster).
        """
        self.shared.synced[self.number] = mine = self.shared.synced.get(self.number, 0) + 1
        everyone = range(self.many)
        here = told[mine % 2]  # the next time may begin before all have gone on from this one
        np.maximum(here, self.lanes.tell(ALL), out=here)
        cluster = blocks is self.shared.cluster

        def here_or_gone(b: Shared, k: int) -> bool:
            return b.synced.get(k, 0) >= mine or (cluster and k in b.gone)

        self._wait(lambda: all(here_or_gone(b, k) for b in blocks for k in everyone), what)
        self.lanes.learn(ALL, here)

    def _warpgroup_sync(self, number: Code) -> None:
        if not self.active.all():
            raise NotImplementedError("warpgroup_sync where not all threads take part")
        self.shared.name_sync(self._same(number), self.lanes)
        self.lanes.sync()

    def _warp_sync(self) -> None:
        if not self.active.all():
            raise NotImplementedError("warp_sync where not all threads take part")
        for warp in (ALL[first : first + 32] for first in range(0, len(ALL), 32)):
            self.lanes.learn(warp, self.lanes.tell(warp))

    # mbarriers

    def _mbarrier_init(self, pointer: Code, count: Code, *words: Code) -> None:
        self.shared.barriers[self._address(pointer)] = barrier = Barrier(self._same(count))
        b, (lane, *_) = self.shared.order.of(barrier), self._active()
        b.maker, b.made = self.lanes.first + lane, self.lanes.now

    def _mbarrier_wait(self, pointer: Code, parity: Code) -> None:
        (barrier, address), parity = self._barrier(pointer), self._same(parity)
        order, seen = self.shared.order.of(barrier), self.shared.order.nothing()

        def ready() -> bool:
            nonlocal seen
            seen = order.done  # not what comes before these threads go on: they may be faster
            return barrier.phase != parity

        self._wait(ready, Awaited(barrier, address, parity))
        self.lanes.learn(self._active(), seen)

    _mbarrier_wait_acquire_cluster = _mbarrier_wait

    def _mbarrier_arrive(self, pointer: Code, count: Code, *words: Code) -> None:
        barrier, _ = self._barrier(pointer)
        self._arrive(barrier, self._active(), self._same(count) * int(self.active.sum()))

    def _arrive(self, barrier: Barrier, lanes: list[Lane], many: int) -> None:
        """Threads arrive, and tell the barrier what they know."""
        self.shared.order.of(barrier).take(self.lanes.tell(lanes))
        barrier.arrive(many)
        self.shared.settle(barrier)

    def _mbarrier_arrive_expect_tx(self, pointer: Code, nbytes: Code, *words: Code) -> None:
        barrier, _ = self._barrier(pointer)
        barrier.nbytes += self._same(nbytes) * int(self.active.sum())
        self._arrive(barrier, self._active(), int(self.active.sum()))

    def _mapa_u32(self, target: Code, pointer: Code, rank: Code, *words: Code) -> None:
        """An address of another block of the cluster: its rank stands above the place."""
        self._set(target, self._address(pointer) | np.asarray(self.value(rank)) << RANK)

    def _mbarrier_arrive_nocount(self, pointer: Code, *words: Code) -> None:
        """Threads arrive at barriers of blocks of the cluster, as `_mapa_u32` gives them."""
        places = np.broadcast_to(self.value(pointer), self.active.shape)[:, 0]
        for lane in self._active():
            block = self.shared.cluster[int(places[lane]) >> RANK]
            barrier = self._barrier_of(block, int(places[lane]) & ((1 << RANK) - 1))
            self._known(barrier)
            block.visits.append((self.lanes.first + lane, self.lanes.now))
            self._arrive(barrier, [lane], 1)

    # Fences

    def _fence_proxy(self, *words: Code) -> None:
        told = {getattr(word, "value", "") for word in words}
        if "async" in told and "global" not in told:  # a fence for shared memory, too
            self.lanes.fence(self._active())

    def _fence_mbarrier_init(self, *words: Code) -> None:
        for lane in self._active():
            for barrier in self.shared.order.made_by(self.lanes.first + lane):
                barrier.published = True

    def _wgmma_fence(self, *words: Code) -> None:
        for registers in self.registers.values():
            registers.fence()
