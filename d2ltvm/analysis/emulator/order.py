"""What is ordered before what in shared memory, by PTX's rules: not by who happened to run first.

Every thread knows up to when it knows of each other one. A barrier takes what those know that
arrive (release), and gives it to those that wait (acquire); what is asynchronous is known of when
somebody has waited for its end. These are vector clocks. An access to shared memory is right if
its thread knows of the earlier accesses there, however late all of them were.

Source of the rules: PTX ISA, "Memory Consistency Model" (base causality order), "Async Proxy", and
the sections of `fence`, `wgmma.fence` and `cp.async.bulk.wait_group`.

- Ordinary loads and stores are of the generic proxy; TMA and wgmma are of the async proxy.
  "Accessing the same memory location across multiple proxies needs a cross-proxy fence." PTX does
  not say which thread is to issue it: of alias fences it says "along the base causality path",
  and so it is here. CUTLASS has it in the writing threads, in front of the barrier: such a path.
- When TMA or wgmma end, "an implicit generic-async proxy fence" follows. Who has waited for them
  needs no other one.
- What a thread has read and TMA overwrites takes that fence, too: a read is an access. Without
  one, base causality order leads from the read to the copy, but it is not "proxy-preserved", and
  only that keeps a read from seeing a later write. (PTX's axioms do not say what fence.proxy.async
  adds: its prose does, and its example of clusterlaunchcontrol.try_cancel has a fence there.)
  CUTLASS has both: a fence where its epilogue hands back what threads have read
  (sm90_epilogue_tma_warpspecialized.hpp), none where its main loop does
  (sm90_mma_tma_gmma_rs_warpspecialized.hpp). Triton adds one (ProxyFenceInsertion.cpp).
- mbarrier.init is an ordinary store. CUTLASS has fence.mbarrier_init behind it, and CUDA's
  guide fence.proxy.async, before TMA may use the barrier. Newer versions of PTX say that TMA uses
  it by the generic proxy, so that neither is needed. Here it takes one of the two.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from d2ltvm.analysis.emulator.arithmetic import Array

WARPGROUP = 128  # threads
WORD = 4  # bytes of shared memory of which is known together who used them
BARRIERS = 128  # of a block, at most
PLAIN, FENCED = 0, 1  # rows of what is known: at all, and with a proxy fence on the way
NEVER = 2**31 - 1  # of what has not ended
TOLD = "a barrier between them (a sync, or an mbarrier's arrive and wait)"

Lane = int
Known = Array  # (2, agents): up to when, plain and fenced
Words = Any  # a slice or an array of words


class SynchronizationError(RuntimeError):
    """Warpgroups wait for what never comes, or a kernel ends before its copies have."""


class OrderError(SynchronizationError):
    """Nothing in the kernel orders two accesses, even if they came in the right order."""


class Order:
    """Of a cluster of blocks: who has known what when, and what has been done to shared memory.

    Agents are its threads; each warpgroup as a whole; and what is asynchronous: the kernel before,
    of each warpgroup its products and its stores, of each barrier the copies that it is told of.

    Args:
        groups: warpgroups.
        blocks: of the cluster.
    """

    def __init__(self, groups: int, blocks: int = 1) -> None:
        self.threads, self.groups = WARPGROUP * groups, groups
        self._free = self.threads + groups
        self._size = self._free + 1 + 2 * groups + 2 * BARRIERS * blocks
        self.kinds = ["thread"] * self.threads + ["threads"] * groups
        self.kernel_before = self.new_agent("kernel")
        # Of each record: who did something, and when. The first stands for nobody.
        self.agent, self.time = np.zeros((2, 1024), np.int32)
        self._records = 1
        self._barriers: dict[Any, BarrierOrder] = {}
        self.syncs = [self.nothing(), self.nothing()]  # of the whole cluster, in turns
        self.faults: list[str] = []

    def nothing(self) -> Known:
        """What one knows that knows nothing."""
        return np.zeros((2, self._size), np.int32)

    def new_agent(self, kind: str) -> int:
        if self._free == self._size:
            raise NotImplementedError(f"a block with more than {BARRIERS} barriers")
        self._free += 1
        self.kinds.append(kind)
        return self._free - 1

    def new_record(self, agents: Sequence[int] | Array, time: int) -> int:
        """The number of the first of new records."""
        first, self._records = self._records, self._records + len(agents)
        if self._records > len(self.agent):
            self.agent, self.time = (
                np.resize(old, 2 * len(old) + len(agents)) for old in (self.agent, self.time)
            )
        self.agent[first : self._records] = agents
        self.time[first : self._records] = time
        return first

    def of(self, barrier: Any) -> "BarrierOrder":
        """What is known of a `shared.Barrier`."""
        if barrier not in self._barriers:
            self._barriers[barrier] = BarrierOrder(self)
        return self._barriers[barrier]

    def made_by(self, thread: int) -> Iterable["BarrierOrder"]:
        """The barriers that a thread has initialized."""
        return (b for b in self._barriers.values() if b.maker == thread)

    def count_warpgroups(self, known: Known) -> Known:
        """The same, with what is known of warpgroups as a whole: as much as of the last thread."""
        each = known[:, : self.threads].reshape(-1, self.groups, WARPGROUP)
        known[:, self.threads : self.threads + self.groups] = each.min(axis=2)
        return known

    def unknown(self, records: Array, known: Array) -> int | None:
        """The first of some records that is later than what is known; None if none is."""
        low = records.min()
        if low == records.max():  # most often one has done all
            return None if known[self.agent[low]] >= self.time[low] else int(low)
        late = known[self.agent[records]] < self.time[records]
        return int(records[late][0]) if late.any() else None

    def report(self, later: str, where: int, was: str, record: int, known: Known) -> None:
        """Keep in mind that something is not ordered behind a record: what is missing."""
        agent = self.agent[record]
        kind = self.kinds[agent]
        earlier = EARLIER[kind].format(was)
        missing = MISSING.get(kind, TOLD)
        if known[PLAIN, agent] >= self.time[record]:
            missing = "fence.proxy.async between them"
        self.fault(f"{later} byte {where} of shared memory, {earlier}; missing: {missing}")

    def fault(self, message: str) -> None:
        """Keep in mind what is wrong. The kernel goes on: what comes of it can be seen, too."""
        self.faults.append(message)


READS = ("wgmma reads", "TMA stores", "a thread reads")
EARLIER = {
    "thread": "which a thread has {}",
    "threads": "which threads have {}",
    "copies": "which TMA brings",
    "cp.async": "which cp.async brings",
    "products": "which wgmma reads",
    "stores": "which TMA stores",
}
MISSING = {
    "copies": "a wait at the mbarrier of that copy",
    "cp.async": "a wait at the mbarrier of that copy",
    "products": "wgmma.wait_group, and then a barrier if others go on",
    "stores": "cp.async.bulk.wait_group.read by the thread that stores, and then a barrier",
}


class BarrierOrder:
    """What an mbarrier knows: from those that arrive in this phase, and from phases that ended.

    Who waits sees that a phase ended, and so everything behind that arrived in it or earlier:
    arrivals are one chain of atomic operations on the barrier.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self.pending, self.done = order.nothing(), order.nothing()
        self.copies, self.slow = order.new_agent("copies"), order.new_agent("cp.async")
        self.maker, self.made = -1, 0  # the thread that has initialized it, and when
        self.published = False  # by fence.mbarrier_init
        self.familiar: set[Lanes] = set()  # warpgroups that know of its initialization

    def take(self, known: Known) -> None:
        np.maximum(self.pending, known, out=self.pending)

    def settle(self, phases: int) -> None:
        """So many phases have ended: whoever waits for the last one knows all of them."""
        if self.done[FENCED, self.copies] == phases:
            return
        self.done = np.maximum(self.done, self.pending)  # who has seen the one before keeps it
        self.done[:, self.copies] = phases  # a fence comes with the end of each
        self.done[PLAIN, self.slow] = phases  # cp.async is of the generic proxy


class Lanes:
    """What the threads of a warpgroup know.

    Most of it they have in common. What single ones know beyond that is kept for each of these;
    that a thread knows of itself goes without saying.
    """

    def __init__(self, order: Order, number: int) -> None:
        self.order, self.number, self.first = order, number, WARPGROUP * number
        self.own = slice(self.first, self.first + WARPGROUP)
        self.now = 1
        self.common = order.nothing()
        self.more: dict[Lane, Known] = {}
        self.fenced = np.zeros(WARPGROUP, np.int32)  # until when a thread's accesses are
        self.products, self.stores = order.new_agent("products"), order.new_agent("stores")
        self._record, self._recorded = 0, 0

    def knows(self, lane: Lane) -> Known:
        """What a thread knows."""
        known = self.more.get(lane, self.common).copy()
        known[PLAIN, self.first + lane] = self.now
        known[FENCED, self.first + lane] = self.fenced[lane]
        return self.order.count_warpgroups(known)

    def single_ones_know(self, lanes: list[Lane]) -> Array:
        """What some threads of `more` know without a fence, a row for each."""
        rows = np.array([self.more[lane][PLAIN] for lane in lanes])
        rows[range(len(lanes)), [self.first + lane for lane in lanes]] = self.now
        return self.order.count_warpgroups(rows)

    def all_know(self) -> Known:
        """What each of the threads knows."""
        return self.order.count_warpgroups(self.common)

    def tell(self, lanes: list[Lane]) -> Known:
        """What threads know together. What they do from now on is not in it."""
        if len(lanes) == WARPGROUP:
            known = self.common.copy()
            for more in self.more.values():
                np.maximum(known, more, out=known)
            known[PLAIN, self.own], known[FENCED, self.own] = self.now, self.fenced
        else:
            known = self.knows(lanes[0])
            for lane in lanes[1:]:
                np.maximum(known, self.knows(lane), out=known)
        self.now += 1
        return known

    def learn(self, lanes: list[Lane], known: Known) -> None:
        """Threads know what somebody has told, too."""
        for mine in self._rows(lanes):
            np.maximum(mine, known, out=mine)

    def _rows(self, lanes: list[Lane]) -> list[Known]:
        """What threads know, to be changed."""
        if len(lanes) == WARPGROUP:
            return [self.common, *self.more.values()]
        return [self.more.setdefault(lane, self.common.copy()) for lane in lanes]

    def sync(self) -> None:
        """All know what one knows."""
        self.common = self.tell(ALL)
        self.more.clear()

    def fence(self, lanes: list[Lane]) -> None:
        """fence.proxy.async: all that threads know of, they know for both proxies."""
        for mine in self._rows(lanes):
            np.maximum(mine[FENCED], mine[PLAIN], out=mine[FENCED])
        self.fenced[lanes] = self.now
        self.now += 1

    def have_waited_for(self, lanes: list[Lane], agent: int) -> bool:
        """Whether each of some threads knows that something has ended, which ends once."""
        return all(self.more.get(lane, self.common)[PLAIN, agent] for lane in lanes)

    def ended(self, lanes: list[Lane], agent: int, time: int) -> None:
        """Threads have waited for something asynchronous; its end is a fence, too."""
        for mine in self._rows(lanes):
            mine[:, agent] = np.maximum(mine[:, agent], time)

    def record(self) -> int:
        """Of what thread 0 does now; the others follow, and then all together."""
        if self._recorded != self.now:
            group = self.order.threads + self.number
            agents = np.append(np.arange(self.own.start, self.own.stop), group)
            self._record, self._recorded = self.order.new_record(agents, self.now), self.now
        return self._record


ALL = list(range(WARPGROUP))


class Shadow:
    """Who was the last to write each word of a block's shared memory, and who has read it since.

    Of readers there is a table for each warpgroup and kind: its threads, products and stores.
    """

    def __init__(self, order: Order, nbytes: int) -> None:
        self.order = order
        self.written = np.zeros(-(-nbytes // WORD), np.int32)
        self._read: dict[tuple[Lanes, str], Array] = {}

    def _readers(self, lanes: Lanes, kind: str) -> Array:
        if (lanes, kind) not in self._read:
            self._read[lanes, kind] = np.zeros_like(self.written)
        return self._read[lanes, kind]

    def read_by_products(self, lanes: Lanes, words: Array, record: int) -> None:
        """wgmma, which all threads of a warpgroup begin: each has to know what it reads."""
        self._look("wgmma reads", self.written, words, lanes.all_know(), "written", FENCED)
        self._readers(lanes, "products")[words] = record

    def read_by_store(self, lanes: Lanes, lane: Lane, words: slice, record: int) -> None:
        """TMA, to store it, as a thread has asked."""
        self._look("TMA stores", self.written, words, lanes.knows(lane), "written", FENCED)
        self._readers(lanes, "stores")[words] = record

    def written_by_copy(self, known: Known, words: slice, record: int) -> None:
        """TMA, which overwrites it, as a thread has asked that knows so much."""
        self._look("TMA overwrites", self.written, words, known, "written", FENCED)
        for readers in self._read.values():
            self._look("TMA overwrites", readers, words, known, "read", FENCED)
            readers[words] = 0
        self.written[words] = record

    def _look(
        self, later: str, table: Array, words: Words, known: Known, was: str, proxy: int
    ) -> None:
        records = table[words]
        if was == "written" and later in READS and records.min() == 0:
            self._look_for_writers(later, records, words)
        late = self.order.unknown(records, known[proxy])
        if late is not None:
            not_even_plain = self.order.unknown(records, known[PLAIN])
            late = late if not_even_plain is None else not_even_plain  # a barrier, then a fence
            where = _byte(words, records == late)
            self.order.report(later, where, was, late, known)

    def _look_for_writers(self, later: str, records: Array, words: Words) -> None:
        """Somebody reads, and has to find what somebody has written."""
        where = _byte(words, records == 0)
        missing = "a wait for a copy or a store"
        self.order.fault(
            f"{later} byte {where} of shared memory, which is empty; missing: {missing}"
        )

    def read_by_threads(self, lanes: Lanes, lane: Array, words: Array) -> None:
        """Ordinary loads: word k by lane k."""
        self._look_threads("a thread reads", self.written, lanes, lane, words, "written")
        self._note(self._readers(lanes, "threads"), lanes, lane, words)

    def written_by_threads(self, lanes: Lanes, lane: Array, words: Array) -> None:
        """Ordinary stores: word k by lane k."""
        later = "a thread overwrites"
        self._look_threads(later, self.written, lanes, lane, words, "written")
        for readers in self._read.values():
            self._look_threads(later, readers, lanes, lane, words, "read")
            readers[words] = 0
        self.written[words] = 0
        self._note(self.written, lanes, lane, words)

    def written_by_cp_async(self, lanes: Lanes, lane: Array, words: Array, record: int) -> None:
        """cp.async, for each thread: as its stores, but for when they are there."""
        self.written_by_threads(lanes, lane, words)
        self.written[words] = record

    def _look_threads(
        self, later: str, table: Array, lanes: Lanes, lane: Array, words: Array, was: str
    ) -> None:
        records, order = table[words], self.order
        if later in READS and records.min() == 0:
            self._look_for_writers(later, records, words)
        agent, time = order.agent[records], order.time[records]
        late = lanes.all_know()[PLAIN, agent] < time
        late &= agent != lanes.first + lane  # what comes before in its program, a thread knows
        if ones := sorted(set(lane[late].tolist()) & lanes.more.keys()):
            row = np.full(WARPGROUP, -1)
            row[ones] = range(len(ones))
            late &= (row[lane] < 0) | (lanes.single_ones_know(ones)[row[lane], agent] < time)
        if late.any():
            k = int(late.argmax())
            known = lanes.knows(int(lane[k]))
            order.report(later, _byte(words, late), was, int(records[k]), known)

    def _note(self, table: Array, lanes: Lanes, lane: Array, words: Array) -> None:
        """Write down threads; where several have used a word, the warpgroup as a whole."""
        first = lanes.record()
        before, table[words] = table[words], first + lane
        several = table[words] != first + lane
        several |= (before != 0) & (self.order.agent[before] != lanes.first + lane)
        table[words[several]] = first + WARPGROUP


def _byte(words: Words, marked: Array) -> int:
    """Where the first of some words begins that are marked."""
    place = int(marked.argmax())
    return WORD * (words.start + place if isinstance(words, slice) else int(words[place]))
