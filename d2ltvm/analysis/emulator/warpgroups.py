"""Runs a kernel of TMA, barriers and wgmma on NumPy arrays, without a GPU.

Each warpgroup goes through the kernel by itself, its 128 threads in step; one runs at a time, until
it has to wait. Whatever is asynchronous happens at the worst moment that the kernel allows. A tile
that TMA or cp.async is asked for holds NaN at once, and arrives when nobody can go on without it.
Products and stores read shared memory when somebody waits for them, not before. So a kernel that
forgets to wait computes something else here, every time, and barriers that do not match are named.
So is a dependent launch that reaches for tensors before it has waited for the kernel before.

What is in the right order here only by luck is noticed, too. `order` keeps account of who knows
what: a missing fence, or a missing barrier, even between the threads of one warpgroup, is an
`OrderError` at the end. `registers` does the same for the sums of wgmma.

Not noticed: how blocks use tensors together, but for parts of a tile; where threads meet that have
gone different ways within a warp; and scopes: an mbarrier is as good for a cluster as for a block.
"""

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import tvm_ffi

from d2ltvm import layouts
from d2ltvm.analysis.emulator import nodes
from d2ltvm.analysis.emulator.arithmetic import Array, Value, spread
from d2ltvm.analysis.emulator.block import Block, Node, Shape
from d2ltvm.analysis.emulator.order import (
    ALL,
    FENCED,
    NEVER,
    PLAIN,
    WORD,
    Known,
    Lane,
    Lanes,
    Order,
    OrderError,
    SynchronizationError,
)
from d2ltvm.analysis.emulator.parts import PartsOrder
from d2ltvm.analysis.emulator.registers import Sums
from d2ltvm.analysis.emulator.shared import (
    Awaited,
    Barrier,
    Copy,
    Counter,
    Parts,
    Ready,
    Shared,
    Turns,
)
from d2ltvm.compiler.ir import find
from d2ltvm.compiler.launches import Lowered

THREADS = 128  # of a warpgroup
IGNORED = ("setmaxnreg",)
SAME = ("cvta_generic_to_shared", "reinterpret")  # another type for the same pointer
BEHIND_REGISTERS = 15  # arguments of wgmma: descriptors, predicate, and how it is called
BEHIND_SUMS = 17  # the same where the first matrix is in four registers
# How a descriptor says rows of so many swizzled bytes. Source: PTX ISA, "Matrix Descriptor Format".
SWIZZLED = {128: 1, 64: 2, 32: 3}
PRODUCTS = ("wgmma_f16_ss", "wgmma_f16_rs")  # of matrices in shared memory; of one in registers
PARTS = ("publish_part", "await_parts", "leave_parts")  # of a tile whose sums are cut

Work = Callable[[], None]
Buffer = int  # the hash of where it lies


class Program(NamedTuple):
    """What all warpgroups run.

    Attributes:
        function: the kernel.
        arguments: of calls in it, by their nodes, when they have been looked at.
        sums: the buffers that wgmma sums up in.
        many: warpgroups of a block.
    """

    function: Node
    arguments: dict[int, list[Node]]
    sums: frozenset[Buffer]
    many: int


class Pointer(NamedTuple):
    """An array, and for each thread an element of it."""

    memory: Array
    index: Value


def run(lowered: Lowered, arrays: dict[str, Array]) -> None:
    """Run a `launches.Lowered` of a TIRx kernel; `arrays` by the names of its parameters.

    Raises:
        SynchronizationError: nobody can go on, or not everything that was begun is waited for.
        OrderError: something came in the right order only by luck.
        NotImplementedError: the kernel holds something that is not emulated.
    """
    (launch,) = lowered.launches
    function = nodes.mirror(lowered.device_functions[launch.name])
    threads = launch.block[0]
    if threads % THREADS or launch.block[1:] != (1, 1):
        raise NotImplementedError(f"a block of {launch.block}; whole warpgroups are emulated")
    calls = [call for call in find(function.original.body, "Call") if hasattr(call.op, "name")]
    program = Program(function, {}, _sums(calls), threads // THREADS)
    counter, parts = Counter(), Parts()
    blocks = list(itertools.product(*map(range, launch.grid)))
    together = len(blocks) if _waits_for_blocks(calls) else launch.cluster
    memory = {
        hash(param): arrays[name].reshape(-1)
        for param, name in zip(function.params, launch.args, strict=True)
        if name in arrays
    }
    for first in range(0, len(blocks), together):
        some = blocks[first : first + together]
        shares = [
            Shared(launch.shared, lowered.tensor_maps, arrays, counter, launch.dependent, parts, o)
            for o in _orders(len(some), launch.cluster, program.many)
        ]
        for k, shared in enumerate(shares):
            shared.cluster = shares[k // launch.cluster * launch.cluster :][: launch.cluster]
        _run_together(program, memory, some, shares)
    if counter.count:
        raise SynchronizationError(f"the kernel leaves its counter of tiles at {counter.count}")
    if any(parts.done.values()):
        raise SynchronizationError(f"the kernel leaves its counters of parts at {parts.done}")


def _orders(blocks: int, cluster: int, many: int) -> list[Order]:
    """One for each block; those of a cluster have one together."""
    orders = [Order(many * cluster, cluster) for _ in range(0, blocks, cluster)]
    return [orders[k // cluster] for k in range(blocks)]


def _run_together(
    program: "Program", memory: dict[int, Array], blocks: list[Shape], shares: list[Shared]
) -> None:
    """Run blocks that may wait for each other."""
    many = program.many
    turns = Turns(many * len(blocks), functools.partial(_deliver, shares))
    groups = [
        Warpgroup(k, dict(memory), block, shared, turns, program, b * many)
        for b, (block, shared) in enumerate(zip(blocks, shares, strict=True))
        for k in range(many)
    ]
    faults = [shared.order.faults for shared in shares]
    try:
        turns.run([functools.partial(group.run, program.function.body) for group in groups])
        left = sum(len(s.copies) for s in shares) + sum(group.left() for group in groups)
        if left:
            raise SynchronizationError(f"the kernel ends while {left} copies or products last")
        for shared in shares:
            shared.end()
    except SynchronizationError as error:
        if any(faults):  # which may be why
            raise SynchronizationError(f"{error}; before that, {_first(faults)}") from error
        raise
    except Exception as error:
        if any(faults):
            raise OrderError(_first(faults)) from error
        raise
    if any(faults):
        raise OrderError(_first(faults))


def _first(faults: list[list[str]]) -> str:
    return next(fault for some in faults for fault in some)


def _deliver(shares: list[Shared]) -> bool:
    """Let the oldest copy of some block arrive; False where none is under way."""
    return any(shared.deliver() for shared in shares)


def _sums(calls: list[Any]) -> frozenset[Buffer]:
    """The buffers that wgmma sums up in."""
    products = (call for call in calls if call.op.name.endswith(PRODUCTS))
    return frozenset(tvm_ffi.Object.__hash__(call.args[0].source) for call in products)


def _waits_for_blocks(calls: list[Any]) -> bool:
    """Whether blocks of a kernel wait for each other, so that they have to run together."""
    named = (call.args[0].value for call in calls if call.op.name.endswith("func_call"))
    return any(name == "await_parts" for name in named)


class Warpgroup(Block):
    """A warpgroup of a block: 128 threads in step."""

    def __init__(
        self,
        number: int,
        memory: dict[int, Array],
        block: Shape,
        shared: Shared,
        turns: Turns,
        program: Program,
        before: int = 0,
    ) -> None:
        """So many warpgroups of other blocks come `before` in the turns."""
        super().__init__(memory, (THREADS, 1, 1), block)
        self.special["threadIdx.x"] = self.thread + THREADS * number
        self.before, self.many = before, program.many
        rank = block[0] % len(shared.cluster)  # in the cluster
        self.special["clusterCtaIdx.x"] = rank
        self.number, self.shared, self.turns, self.program = number, shared, turns, program
        self.tensors = frozenset(memory)
        # Since the last commit; and groups of them.
        self.begun: list[Work] = []
        self.products: deque[list[Work]] = deque()
        self.begun_stores: list[Work] = []
        self.stores: deque[list[Work]] = deque()
        self.begun_copies: list[Copy] = []  # by cp.async, of which no barrier is told yet
        self.alone = not shared.dependent  # it knows that the kernel before has ended
        # Who knows what: see `order`.
        self.lanes = Lanes(shared.order, rank * self.many + number)
        shared.lanes.append(self.lanes)
        self.parts = PartsOrder(self.lanes)
        self.sums: dict[int, Sums] = {}
        self.copies: list[int] = []  # records of cp.async, of which no barrier is told yet
        self.committed = {"products": 0, "stores": 0}  # groups
        self.finished = 0  # of products
        self.storer: Lane | None = None  # the thread that asks TMA to store

    def left(self) -> int:
        """Copies and products that have been begun and not waited for."""
        begun = len(self.begun) + len(self.begun_stores) + len(self.begun_copies)
        return begun + sum(map(len, self.products)) + sum(map(len, self.stores))

    def _active(self) -> list[Lane]:
        """The threads that take part."""
        return ALL if self.active.all() else np.flatnonzero(self.active).tolist()

    def _wait(self, ready: Ready, what: object) -> None:
        self.turns.wait(self.before + self.number, ready, what)

    def _same(self, node: Node) -> int:
        """The value that an expression has in all active threads."""
        return self._one(self.value(node), node)

    def _address(self, node: Node) -> int:
        """The byte of shared memory that a pointer means in all active threads."""
        pointer = self.value(node)
        return self._one(pointer.index, node) * int(pointer.memory.itemsize)

    def _one(self, values: Value, node: Node) -> int:
        """The number that all active threads have as the value of `node`."""
        if isinstance(values, int):
            return values
        values = spread(values, self.active.shape)[self.active]
        if np.any(values != values[0]):
            raise NotImplementedError(f"{node} is not the same in all threads of a warpgroup")
        return int(values[0])

    def _barrier(self, node: Node) -> tuple[Barrier, int]:
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

    def _fault(self, what: str, missing: str) -> None:
        self.shared.order.fault(f"{what}; missing: {missing}")

    # Statements

    def _run_AllocBuffer(self, node: Node) -> None:
        buffer = node.buffer
        if buffer.scope() == "shared.dyn":
            self.memory[hash(buffer)] = self.shared.memory
            return
        super()._run_AllocBuffer(node)
        if tvm_ffi.Object.__hash__(buffer.original) in self.program.sums:
            size = self.memory[hash(buffer)].shape[1]
            self.sums[hash(buffer)] = Sums(self.shared.order, size)

    def _run_Evaluate(self, node: Node) -> None:
        name = node.value.operation
        if name and name not in IGNORED:  # without a name it is a value that nobody needs
            if (
                hash(node) not in self.program.arguments
            ):  # a round comes back to it, and wgmma has 140
                self.program.arguments[hash(node)] = list(node.value.args)
            arguments = self.program.arguments[hash(node)]
            getattr(self, f"_{name}", lambda *_: self._unknown(node))(*arguments)

    # Memory

    def _place(self, buffer: Node, indices: Node, value: Value = None) -> tuple[Any, Any, Value]:
        place = super()._place(buffer, indices, value)
        memory, index, stored = place
        if memory.ndim == 2:  # registers
            if hash(buffer) in self.sums:
                self.sums[hash(buffer)].touch(index[1], self.finished)
        elif memory.base is self.shared.memory:
            self._use_shared(memory, index, stored is not None)
        else:
            self._use_tensor(buffer, memory, stored is not None)
        return place

    def _use_shared(self, memory: Array, index: Array, stored: bool) -> None:
        """Active threads load from shared memory, or store there."""
        words, lane = index * memory.itemsize // WORD, self.active[:, 0].nonzero()[0]
        if not stored and len(lane) < THREADS:
            words = words[lane]
        lane = np.repeat(lane, words.size // len(lane))
        shadow = self.shared.shadow
        use = shadow.written_by_threads if stored else shadow.read_by_threads
        use(self.lanes, lane, words.reshape(-1))

    def _use_tensor(self, buffer: Node, memory: Array, stored: bool) -> None:
        """Active threads load from a tensor, or store there."""
        if not self.alone:
            self._reach(f"{buffer.name} is used")
        if stored:
            self.parts.store(memory, self._active())
        else:
            self.parts.load(memory, self._active())

    # Expressions

    def value(self, node: Node) -> Value:
        name = node.operation
        if name in SAME:
            return self.value(node.args[0])
        if name == "address_of":
            (what,) = node.args
            if not hasattr(what, "indices"):
                return what.name  # TMA's map of a tensor
            return Pointer(self.memory[hash(what.source)], self.value(what.indices[0]))
        if name == "thread_rank":
            return self.special["threadIdx.x"]
        if name == "clock64":
            return self.shared.look_at_clock()
        if name == "func_call":
            return self._call(*node.args)
        if name == "mov_sreg":
            return self._special_register(*node.args)
        if name == "tvm_warp_shuffle":
            _, value, lane, *_ = node.args
            values = spread(self.value(value), self.thread.shape).reshape(-1, 32)
            return np.repeat(values[:, self._same(lane)], 32)[:, None]
        return super().value(node)

    def _func_call(self, *arguments: Node) -> None:
        self._call(*arguments)

    def _call(self, name: Node, *arguments: Node) -> int:
        """A function that is written in CUDA, behind the arguments: one that kernels have."""
        if name.value in PARTS:
            return self._parts(name.value, *arguments[:-1])
        if name.value != "next_tile" or self.active.sum() != 1:
            raise NotImplementedError(f"{name} in {self.active.sum()} threads")
        self._reach("the counter of tiles")
        return self.shared.counter.next_tile(self._same(arguments[0]))

    def _parts(self, name: str, *arguments: Node) -> int:
        """Between blocks that compute parts of one tile."""
        if name == "publish_part":
            self.parts.publish(self._active())
            return 0
        if self.active.sum() != 1:
            raise NotImplementedError(f"{name} in {self.active.sum()} threads")
        self._reach("the counter of parts")
        tile, parts = (self._same(argument) for argument in arguments)
        shared, (lane,) = self.shared.parts, self._active()
        if name == "await_parts":
            self.parts.count(lane)
        shared.count(tile, parts)
        if name == "await_parts":
            self._wait(lambda: shared.done[tile] >= parts, f"the other parts of tile {tile}")
            self.parts.wait(lane)
        return 0

    def _special_register(self, bits: Node, register: Node) -> np.int32:
        """Each block has an SM of its own here, of the same number."""
        if register.value != "smid":
            raise NotImplementedError(f"the special register {register}")
        return np.int32(self.special["blockIdx.x"])

    # The kernel before

    def _griddepcontrol(self, action: Node, *words: Node) -> None:
        if action.value == "wait":
            self.alone = True

    def _reach(self, what: str) -> None:
        """Of all that other kernels may use, too: not while the one before may still run."""
        if not self.alone:
            raise SynchronizationError(f"{what} before griddepcontrol.wait")

    # Barriers

    def _cta_sync(self) -> None:
        self._sync([self.shared], self.shared.syncs, "the whole block")

    def _cluster_sync(self) -> None:
        self._sync(self.shared.cluster, self.shared.order.syncs, "the whole cluster")

    def _sync(self, blocks: list[Shared], told: list[Known], what: str) -> None:
        """Wait until all warpgroups of blocks have synchronized as often as this one."""
        self.shared.synced[self.number] = mine = self.shared.synced.get(self.number, 0) + 1
        everyone = range(self.many)
        here = told[mine % 2]  # the next time may begin before all have gone on from this one
        np.maximum(here, self.lanes.tell(ALL), out=here)
        self._wait(lambda: all(b.synced.get(k, 0) >= mine for b in blocks for k in everyone), what)
        self.lanes.learn(ALL, here)

    def _warpgroup_sync(self, number: Node) -> None:
        if not self.active.all():
            raise NotImplementedError("warpgroup_sync where not all threads take part")
        self.shared.name_sync(self._same(number), self.lanes)
        self.lanes.sync()

    def _mbarrier_init(self, pointer: Node, count: Node, *words: Node) -> None:
        self.shared.barriers[self._address(pointer)] = barrier = Barrier(self._same(count))
        b, (lane, *_) = self.shared.order.of(barrier), self._active()
        b.maker, b.made = self.lanes.first + lane, self.lanes.now

    def _mbarrier_wait(self, pointer: Node, parity: Node) -> None:
        (barrier, address), parity = self._barrier(pointer), self._same(parity)
        order, seen = self.shared.order.of(barrier), self.shared.order.nothing()

        def ready() -> bool:
            nonlocal seen
            seen = order.done  # not what comes before these threads go on: they may be faster
            return barrier.phase != parity

        self._wait(ready, Awaited(barrier, address, parity))
        self.lanes.learn(self._active(), seen)

    def _mbarrier_arrive(self, pointer: Node, count: Node, *words: Node) -> None:
        barrier, _ = self._barrier(pointer)
        self._arrive(barrier, self._active(), self._same(count) * int(self.active.sum()))

    def _arrive(self, barrier: Barrier, lanes: list[Lane], many: int) -> None:
        """Threads arrive, and tell the barrier what they know."""
        self.shared.order.of(barrier).take(self.lanes.tell(lanes))
        barrier.arrive(many)
        self.shared.settle(barrier)

    def _mbarrier_arrive_expect_tx(self, pointer: Node, nbytes: Node, *words: Node) -> None:
        barrier, _ = self._barrier(pointer)
        barrier.nbytes += self._same(nbytes) * int(self.active.sum())
        self._arrive(barrier, self._active(), int(self.active.sum()))

    def _mapa_u32(self, target: Node, pointer: Node, rank: Node, *words: Node) -> None:
        """An address of another block of the cluster: which one stands above the 24 lowest bits."""
        self._set(target, self._address(pointer) | np.asarray(self.value(rank)) << 24)

    def _mbarrier_arrive_nocount(self, pointer: Node, *words: Node) -> None:
        """Threads arrive at barriers of blocks of the cluster, as `_mapa_u32` gives them."""
        places = np.broadcast_to(self.value(pointer), self.active.shape)[:, 0]
        for lane in self._active():
            block = self.shared.cluster[int(places[lane]) >> 24]
            barrier = self._barrier_of(block, int(places[lane]) & 0xFFFFFF)
            self._known(barrier)
            block.visits.append((self.lanes.first + lane, self.lanes.now))
            self._arrive(barrier, [lane], 1)

    # Fences

    def _fence_proxy(self, *words: Node) -> None:
        told = {getattr(word, "value", "") for word in words}
        if "async" in told and "global" not in told:  # a fence for shared memory, too
            self.lanes.fence(self._active())

    def _fence_mbarrier_init(self, *words: Node) -> None:
        for lane in self._active():
            for barrier in self.shared.order.made_by(self.lanes.first + lane):
                barrier.published = True

    def _wgmma_fence(self, *words: Node) -> None:
        for sums in self.sums.values():
            sums.fence()

    # TMA

    def _corner(self, coordinates: Iterable[Node]) -> tuple[int, ...]:
        """Where a box begins, the outermost dimension first."""
        if self.active.sum() != 1:
            raise NotImplementedError(f"{self.active.sum()} threads ask TMA; one is emulated")
        self._reach("TMA is asked")
        return tuple(self._same(c) for c in coordinates)[::-1]

    def _cp_async_bulk_tensor_g2s_cluster(self, pointer: Node, name: Node, *args: Node) -> None:
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
        self, pointer: Node, name: Node, *args: Node
    ) -> None:
        name = self.value(name)
        barrier, _ = self._barrier(args[4])
        corner = self._corner(args[:4])
        self._known(barrier, FENCED)
        column, row = (self._same(offset) for offset in args[5:7])
        known = self.lanes.knows(*self._active())
        self.shared.walk(self._address(pointer), name, corner, (row, column), barrier, known)

    # cp.async

    def _cp_async_cg_src_size(
        self, target: Node, source: Node, nbytes: Node, present: Node, *words: Node
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
        self.begun_copies.append((memory, place + each, values))
        record = self.shared.order.new_record([0], NEVER)
        spots: Array = (place * memory.itemsize // WORD + np.arange(16 // WORD)).reshape(-1)
        lane = np.repeat(np.flatnonzero(active), 16 // WORD)
        self.shared.shadow.written_by_cp_async(self.lanes, lane, spots, record)
        self.copies.append(record)

    def _cp_async_mbarrier_arrive(self, pointer: Node, *words: Node) -> None:
        """When all that the active threads have begun is there, they arrive at a barrier."""
        begun, records = self.begun_copies, self.copies
        self.begun_copies, self.copies = [], []
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

    def _cp_async_wait_all(self, *words: Node) -> None:
        if self.begun_copies:
            raise NotImplementedError("cp.async that no barrier is told of")

    def _cp_async_bulk_tensor_s2g(self, name: Node, *args: Node) -> None:
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

    def _group_record(self, kind: str, agent: int) -> int:
        """The record of what is begun now, and committed next."""
        return self.shared.order.new_record([agent], self.committed[kind] + 1)

    def _cp_async_bulk_commit_group(self, *words: Node) -> None:
        self.stores.append(self.begun_stores)
        self.begun_stores = []
        self.committed["stores"] += 1

    def _cp_async_bulk_wait_group(self, most: Node, *words: Node) -> None:
        if self.storer in self._active():  # groups are of the thread that asks
            _finish(self.stores, self._same(most))
            ended = self.committed["stores"] - self._same(most)
            self.lanes.ended([self.storer], self.lanes.stores, ended)

    # TensorCores

    def _wgmma_encode_matrix_descriptor(
        self, descriptor: Node, pointer: Node, leading: Node, stride: Node, swizzle: Node
    ) -> None:
        span = {1: 32, 2: 64, 3: 128}.get(self._same(swizzle), 0)  # TVM's numbers
        if not span:
            raise NotImplementedError("a descriptor of a matrix not in swizzled rows")
        steps = self._same(leading) << 16 | self._same(stride) << 32
        pointer = self.value(pointer)
        start = spread(pointer.index, self.thread.shape) * pointer.memory.itemsize
        memory, index = self.value(descriptor)
        encoded = start.astype("uint64") >> np.uint64(4) | np.uint64(steps)
        memory[self.thread, index] = encoded | np.uint64(SWIZZLED[span] << 62)

    def _wgmma_f16_ss(self, *args: Node) -> None:
        many = len(args) - BEHIND_REGISTERS
        first = self._same(args[0].indices[0])
        sums = self.memory[hash(args[0].source)][:, first : first + many]
        a, b, add = args[many : many + 3]
        sides = [
            layouts.Matrix.of(self._same(matrix), bool(self._same(turned)))
            for matrix, turned in zip((a, b), args[many + 5 : many + 7], strict=True)
        ]
        memory, keep = self.shared.memory.view("float16"), bool(self._same(add))
        self._reads(sides, slice(first, first + many), args[0].source)

        def multiply() -> None:
            if not keep:
                sums[...] = 0
            layouts.multiply(sums, memory, *sides)

        self.begun.append(multiply)

    def _wgmma_f16_rs(self, *args: Node) -> None:
        """The first matrix is in registers, as threads have them when they begin the product."""
        many = len(args) - BEHIND_SUMS
        first = self._same(args[0].indices[0])
        sums = self.memory[hash(args[0].source)][:, first : first + many]
        pairs = [spread(self.value(x), self.thread.shape)[:, 0] for x in args[many : many + 4]]
        left = layouts.rows_of(np.stack(pairs, axis=1).astype("uint32").view("float16"))
        b, add = args[many + 4 : many + 6]
        side = layouts.Matrix.of(self._same(b), bool(self._same(args[many + 8])))
        memory, keep = self.shared.memory.view("float16"), bool(self._same(add))
        self._reads([side], slice(first, first + many), args[0].source)

        def multiply() -> None:
            if not keep:
                sums[...] = 0
            layouts.multiply_rows(sums, left, memory, side)

        self.begun.append(multiply)

    def _reads(self, sides: list[layouts.Matrix], columns: slice, sums: Node) -> None:
        """What a product uses, from now until somebody has waited for it."""
        if hash(sums) in self.sums:
            self.sums[hash(sums)].multiply(columns, self.committed["products"] + 1)
        record = self._group_record("products", self.lanes.products)
        rows = (64, 2 * (columns.stop - columns.start))
        for many, side in zip(rows[-len(sides) :], sides, strict=True):
            words = layouts.words(many, side)
            self.shared.shadow.read_by_products(self.lanes, words, record)

    def _wgmma_commit_group(self, *words: Node) -> None:
        self.products.append(self.begun)
        self.begun = []
        self.committed["products"] += 1

    def _wgmma_wait_group(self, most: Node, *words: Node) -> None:
        _finish(self.products, self._same(most))
        self.finished = max(self.finished, self.committed["products"] - self._same(most))
        self.lanes.ended(self._active(), self.lanes.products, self.finished)

    # Results

    def _set(self, target: Node, value: Node) -> None:
        """Write to a register, given as the load of it."""
        memory, index, value = self._place(target.source, target.indices, value)
        memory[index] = value

    def _add(self, target: Node, a: Node, b: Node, *words: Node) -> None:
        if [word.value for word in words if word.value] != ["rn", "f32"]:
            raise NotImplementedError(f"add, but of float32: {words}")
        self._set(target, self.value(a) + self.value(b))

    def _max(self, target: Node, a: Node, b: Node, *words: Node) -> None:
        if [word.value for word in words if word.value] != ["f16x2"]:
            raise NotImplementedError(f"max, but of two float16: {words}")
        pairs = [spread(self.value(x), self.thread.shape).astype("uint32") for x in (a, b)]
        left, right = (pair.view("float16") for pair in pairs)
        self._set(target, np.fmax(left, right).view("uint32"))

    def _cvt_f16x2_f32(self, target: Node, high: Node, low: Node, *words: Node) -> None:
        if [word.value for word in words if word.value] != ["rn", "f16x2", "f32"]:
            raise NotImplementedError(f"cvt, but of two float32 to float16, rounded: {words}")
        halves = [spread(self.value(x), self.thread.shape).astype("float16") for x in (low, high)]
        pair = np.concatenate(halves, axis=1).view("uint32")
        self._set(target, pair)

    def _stmatrix(self, pointer: Node, *args: Node) -> None:
        words = [a.value for a in args[4:] if a.value]
        active = self.active.reshape(-1, 32)
        warps = active[:, 0].nonzero()[0]  # whole ones
        if np.any(active != active[:, :1]) or not {"m8n8", "x4"} < set(words):
            raise NotImplementedError("stmatrix, but of four matrices and by whole warps")
        memory, index = self.value(pointer)
        # Lane 8 m + r has the address of row r of matrix m, and of each matrix two neighbours.
        rows = spread(index, self.thread.shape).reshape(-1, 4, 8, 1)[warps]
        pairs = np.stack([self.value(x)[:, 0] for x in args[:4]], axis=1).astype("uint32")
        values = pairs.view("float16").reshape(-1, 8, 4, 4, 2)  # warps, rows, lanes, matrices
        values = values.transpose(0, 3, 1, 2, 4).reshape(-1, 4, 8, 8)[warps]
        if "trans" in words:
            values = values.swapaxes(2, 3)
        memory[rows + np.arange(8)] = values
        # Of what is stored, a word is from one lane: of row r, from lanes 4 r to 4 r + 3.
        words = rows * memory.itemsize // WORD + np.arange(4)
        lane = 32 * warps[:, None, None, None] + np.arange(32).reshape(8, 4)
        lane = np.broadcast_to(lane, words.shape).reshape(-1)
        self.shared.shadow.written_by_threads(self.lanes, lane, words.reshape(-1))


def _finish(groups: deque[list[Work]], most: int) -> None:
    """Do what has been begun in the oldest groups until `most` are left."""
    while len(groups) > most:
        for work in groups.popleft():
            work()
