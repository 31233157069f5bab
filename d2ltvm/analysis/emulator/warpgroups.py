"""Runs a kernel of TMA, barriers and wgmma on NumPy arrays, without a GPU.

Each warpgroup goes through the kernel by itself, its 128 threads in step; one runs at a time, until
it has to wait. Whatever is asynchronous happens at the worst moment that the kernel allows. A tile
that TMA or cp.async is asked for holds NaN at once, and arrives when nobody can go on without it.
Products and stores read shared memory when somebody waits for them, not before. So a kernel that
forgets to wait computes something else here, every time, and barriers that do not match are named.
So is a dependent launch that asks for copies before it has waited for the kernel before.

Not noticed: a missing fence, a missing barrier between the threads of one warpgroup, or a tensor
that is read or written without a copy before that wait.
"""

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from d2ltvm import layouts
from d2ltvm.analysis.emulator.arithmetic import Array, Value
from d2ltvm.analysis.emulator.block import Block, Node, Shape, operation
from d2ltvm.analysis.emulator.shared import (
    Barrier,
    Copy,
    Counter,
    Ready,
    Shared,
    SynchronizationError,
    Turns,
)
from d2ltvm.compiler.launches import Lowered

THREADS = 128  # of a warpgroup
IGNORED = ("setmaxnreg", "fence_proxy", "wgmma_fence")
SAME = ("cvta_generic_to_shared", "reinterpret")  # another type for the same pointer
BEHIND_REGISTERS = 15  # arguments of wgmma: descriptors, predicate, and how it is called
# How a descriptor says rows of 128 swizzled bytes. Source: PTX ISA, "Matrix Descriptor Format".
SWIZZLED = 1

Work = Callable[[], None]


class Pointer(NamedTuple):
    """An array, and for each thread an element of it."""

    memory: Array
    index: Value


def run(lowered: Lowered, arrays: dict[str, Array]) -> None:
    """Run a `launches.Lowered` of a TIRx kernel; `arrays` by the names of its parameters.

    Raises:
        SynchronizationError: nobody can go on, or not everything that was begun is waited for.
        NotImplementedError: the kernel holds something that is not emulated.
    """
    (launch,) = lowered.launches
    function = lowered.device_functions[launch.name]
    threads = launch.block[0]
    if threads % THREADS or launch.block[1:] != (1, 1):
        raise NotImplementedError(f"a block of {launch.block}; whole warpgroups are emulated")
    arguments: dict[int, list[Node]] = {}  # of calls in the code, for all blocks
    counter = Counter()
    for block in itertools.product(*map(range, launch.grid)):
        shared = Shared(launch.shared, lowered.tensor_maps, arrays, counter, launch.dependent)
        memory = {
            hash(param): arrays[name].reshape(-1)
            for param, name in zip(function.params, launch.args, strict=True)
            if name in arrays
        }
        turns = Turns(threads // THREADS, shared.deliver)
        groups = [
            Warpgroup(k, dict(memory), block, shared, turns, arguments) for k in range(turns.many)
        ]
        turns.run([functools.partial(group.run, function.body) for group in groups])
        left = len(shared.copies) + sum(group.left() for group in groups)
        if left:
            raise SynchronizationError(f"the kernel ends while {left} copies or products last")
    if counter.count:
        raise SynchronizationError(f"the kernel leaves its counter of tiles at {counter.count}")


class Warpgroup(Block):
    """A warpgroup of a block: 128 threads in step."""

    def __init__(
        self,
        number: int,
        memory: dict[int, Array],
        block: Shape,
        shared: Shared,
        turns: Turns,
        arguments: dict[int, list[Node]],
    ) -> None:
        super().__init__(memory, (THREADS, 1, 1), block)
        self.special["threadIdx.x"] = self.thread + THREADS * number
        self.number, self.shared, self.turns, self.arguments = number, shared, turns, arguments
        # Since the last commit; and groups of them.
        self.begun: list[Work] = []
        self.products: deque[list[Work]] = deque()
        self.begun_stores: list[Work] = []
        self.stores: deque[list[Work]] = deque()
        self.begun_copies: list[Copy] = []  # by cp.async, of which no barrier is told yet
        self.alone = not shared.dependent  # it knows that the kernel before has ended

    def left(self) -> int:
        """Copies and products that have been begun and not waited for."""
        begun = len(self.begun) + len(self.begun_stores) + len(self.begun_copies)
        return begun + sum(map(len, self.products)) + sum(map(len, self.stores))

    def _wait(self, ready: Ready, what: str) -> None:
        self.turns.wait(self.number, ready, what)

    def _same(self, node: Node) -> int:
        """The value that an expression has in all active threads."""
        return self._one(self.value(node), node)

    def _address(self, node: Node) -> int:
        """The byte of shared memory that a pointer means in all active threads."""
        pointer = self.value(node)
        return self._one(pointer.index, node) * int(pointer.memory.itemsize)

    def _one(self, values: Value, node: Node) -> int:
        """The number that all active threads have as the value of `node`."""
        values = np.broadcast_to(values, self.active.shape)[self.active]
        if np.any(values != values[0]):
            raise NotImplementedError(f"{node} is not the same in all threads of a warpgroup")
        return int(values[0])

    def _barrier(self, node: Node) -> tuple[Barrier, int]:
        address = self._address(node)
        if address not in self.shared.barriers:
            raise SynchronizationError(f"at byte {address} of shared memory there is no barrier")
        return self.shared.barriers[address], address

    # Statements

    def _run_AllocBuffer(self, node: Node) -> None:
        if node.buffer.scope() == "shared.dyn":
            self.memory[hash(node.buffer)] = self.shared.memory
        else:
            super()._run_AllocBuffer(node)

    def _run_Evaluate(self, node: Node) -> None:
        name = operation(node.value)
        if name and name not in IGNORED:  # without a name it is a value that nobody needs
            if hash(node) not in self.arguments:  # a round comes back to it, and wgmma has 140
                self.arguments[hash(node)] = list(node.value.args)
            arguments = self.arguments[hash(node)]
            getattr(self, f"_{name}", lambda *_: self._unknown(node))(*arguments)

    # Expressions

    def value(self, node: Node) -> Value:
        name = operation(node)
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
            values = np.broadcast_to(self.value(value), self.thread.shape).reshape(-1, 32)
            return np.repeat(values[:, self._same(lane)], 32)[:, None]
        return super().value(node)

    def _call(self, name: Node, *arguments: Node) -> int:
        """A function that is written in CUDA, behind the arguments: the one that kernels have."""
        if name.value != "next_tile" or self.active.sum() != 1:
            raise NotImplementedError(f"{name} in {self.active.sum()} threads")
        self._reach("the counter of tiles")
        return self.shared.counter.next_tile(self._same(arguments[0]))

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
        synced = self.shared.synced
        synced[self.number] = mine = synced.get(self.number, 0) + 1
        everyone = range(self.turns.many)
        self._wait(lambda: all(synced.get(k, 0) >= mine for k in everyone), "the whole block")

    def _warpgroup_sync(self, number: Node) -> None:
        if not self.active.all():
            raise NotImplementedError("warpgroup_sync where not all threads take part")

    def _mbarrier_init(self, pointer: Node, count: Node, *words: Node) -> None:
        self.shared.barriers[self._address(pointer)] = Barrier(self._same(count))

    def _mbarrier_wait(self, pointer: Node, parity: Node) -> None:
        (barrier, address), parity = self._barrier(pointer), self._same(parity)
        what = f"barrier {address}, parity {parity}"
        self._wait(lambda: barrier.phase != parity, what)

    def _mbarrier_arrive(self, pointer: Node, count: Node, *words: Node) -> None:
        self._barrier(pointer)[0].arrive(self._same(count) * int(self.active.sum()))

    def _mbarrier_arrive_expect_tx(self, pointer: Node, nbytes: Node, *words: Node) -> None:
        barrier, _ = self._barrier(pointer)
        barrier.nbytes += self._same(nbytes) * int(self.active.sum())
        barrier.arrive(int(self.active.sum()))

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
        barrier, _ = self._barrier(args[rank])
        self.shared.fetch(self._address(pointer), name, self._corner(args[:rank]), barrier)

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
            np.broadcast_to(x, shape)[active]
            for x in (first, start, np.asarray(self.value(present)) // memory.itemsize)
        )
        there = each < many
        values = np.where(there, tensor[np.where(there, at + each, 0)], tensor.dtype.type(0))
        memory.view(np.uint8).reshape(len(memory), -1)[place + each] = 0xFF
        self.begun_copies.append((memory, place + each, values))

    def _cp_async_mbarrier_arrive(self, pointer: Node, *words: Node) -> None:
        """When all that the active threads have begun is there, they arrive at a barrier."""
        begun, self.begun_copies = self.begun_copies, []
        barrier, many = self._barrier(pointer)[0], int(self.active.sum())
        self.shared.copies.append((begun, lambda: barrier.arrive(many)))

    def _cp_async_wait_all(self, *words: Node) -> None:
        if self.begun_copies:
            raise NotImplementedError("cp.async that no barrier is told of")

    def _cp_async_bulk_tensor_s2g(self, name: Node, *args: Node) -> None:
        name = self.value(name)
        rank = len(self.shared.maps[name].box)
        store = self._address(args[rank]), name, self._corner(args[:rank])
        self.begun_stores.append(lambda: self.shared.store(*store))

    def _cp_async_bulk_commit_group(self, *words: Node) -> None:
        self.stores.append(self.begun_stores)
        self.begun_stores = []

    def _cp_async_bulk_wait_group(self, most: Node, *words: Node) -> None:
        _finish(self.stores, self._same(most))

    # TensorCores

    def _wgmma_encode_matrix_descriptor(
        self, descriptor: Node, pointer: Node, leading: Node, stride: Node, swizzle: Node
    ) -> None:
        if [self._same(x) for x in (leading, stride, swizzle)] != [1, 64, 3]:
            raise NotImplementedError("a descriptor of a matrix not in rows of 128 swizzled bytes")
        pointer = self.value(pointer)
        start = np.broadcast_to(pointer.index, self.thread.shape) * pointer.memory.itemsize
        memory, index = self.value(descriptor)
        encoded = start.astype("uint64") >> np.uint64(4) | np.uint64(1 << 16 | 64 << 32)
        memory[self.thread, index] = encoded | np.uint64(SWIZZLED << 62)

    def _wgmma_f16_ss(self, *args: Node) -> None:
        many = len(args) - BEHIND_REGISTERS
        first = self._same(args[0].indices[0])
        sums = self.memory[hash(args[0].source)][:, first : first + many]
        a, b, add = args[many : many + 3]
        # Descriptors count in 16 bytes, of which a float16 is an eighth.
        starts = [(self._same(matrix) & 0x3FFF) * 8 for matrix in (a, b)]
        memory, keep = self.shared.memory.view("float16"), bool(self._same(add))

        def multiply() -> None:
            if not keep:
                sums[...] = 0
            layouts.wgmma(sums, memory, memory, *starts)

        self.begun.append(multiply)

    def _wgmma_commit_group(self, *words: Node) -> None:
        self.products.append(self.begun)
        self.begun = []

    def _wgmma_wait_group(self, most: Node, *words: Node) -> None:
        _finish(self.products, self._same(most))

    # Results

    def _set(self, target: Node, value: Node) -> None:
        """Write to a register, given as the load of it."""
        memory, index, value = self._place(target.source, target.indices, value)
        memory[index] = value

    def _add(self, target: Node, a: Node, b: Node, *words: Node) -> None:
        if [word.value for word in words if word.value] != ["rn", "f32"]:
            raise NotImplementedError(f"add, but of float32: {words}")
        self._set(target, self.value(a) + self.value(b))

    def _cvt_f16x2_f32(self, target: Node, high: Node, low: Node, *words: Node) -> None:
        halves = [
            np.broadcast_to(self.value(x), self.thread.shape).astype("float16") for x in (low, high)
        ]
        pair = np.concatenate(halves, axis=1).view("uint32")
        self._set(target, pair)

    def _stmatrix(self, pointer: Node, *args: Node) -> None:
        if not self.active.all() or [a.value for a in args[6:8]] != ["m8n8", "x4"]:
            raise NotImplementedError("stmatrix, but of four matrices and by all threads")
        memory, index = self.value(pointer)
        # Lane 8 m + r has the address of row r of matrix m, and of each matrix two neighbours.
        rows = np.broadcast_to(index, self.thread.shape).reshape(-1, 4, 8, 1)
        pairs = np.stack([self.value(x)[:, 0] for x in args[:4]], axis=1).astype("uint32")
        values = pairs.view("float16").reshape(-1, 8, 4, 4, 2)  # warps, rows, lanes, matrices
        values = values.transpose(0, 3, 1, 2, 4).reshape(-1, 4, 8, 8)
        memory[rows + np.arange(8)] = values


def _finish(groups: deque[list[Work]], most: int) -> None:
    """Do what has been begun in the oldest groups until `most` are left."""
    while len(groups) > most:
        for work in groups.popleft():
            work()
