"""A warpgroup's 128 threads in step: what they read and write, and what each of them knows.

The instructions are in `barriers`, `copies`, `products` and `results`.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tvm_ffi

from d2ltvm.analysis.emulator.arithmetic import Array, Value, spread
from d2ltvm.analysis.emulator.block import Block, Code
from d2ltvm.analysis.emulator.order import (
    ALL,
    WARPGROUP,
    WORD,
    Lane,
    Lanes,
    SynchronizationError,
)
from d2ltvm.analysis.emulator.parts import PartsOrder
from d2ltvm.analysis.emulator.registers import Registers
from d2ltvm.analysis.emulator.shared import BegunCopy, Ready, Shared, Turns
from d2ltvm.compute.ops import Shape

IGNORED = ("setmaxnreg",)
SAME = ("cvta_generic_to_shared", "reinterpret")  # another type for the same pointer
PARTS = ("await_parts", "leave_parts")  # of a tile whose sums are cut

Pending = Callable[[], None]
Buffer = int  # the hash of where it lies


class EmulatedKernel(NamedTuple):
    """What all warpgroups run.

    Attributes:
        function: the kernel.
        arguments: of calls in it, by their nodes, when they have been looked at.
        registers: the buffers that wgmma sums up in, or reads a matrix from.
        many: warpgroups of a block.
    """

    function: Code
    arguments: dict[int, list[Code]]
    registers: frozenset[Buffer]
    many: int


class Pointer(NamedTuple):
    """An array, and for each thread an element of it."""

    memory: Array
    index: Value


class Threads(Block):
    """A warpgroup of a block, without the instructions that are Hopper's."""

    def __init__(
        self,
        number: int,
        memory: dict[int, Array],
        block: Shape,
        shared: Shared,
        turns: Turns,
        program: EmulatedKernel,
        before: int = 0,
    ) -> None:
        """So many warpgroups of other blocks come `before` in the turns."""
        super().__init__(memory, (WARPGROUP, 1, 1), block)
        self.special["threadIdx.x"] = self.thread + WARPGROUP * number
        self.before, self.many = before, program.many
        rank = block[0] % len(shared.cluster)  # in the cluster
        self.special["clusterCtaIdx.x"] = rank
        self.number, self.shared, self.turns, self.program = number, shared, turns, program
        self.tensors = frozenset(memory)
        # Since the last commit; and groups of them.
        self.begun: list[Pending] = []
        self.products: deque[list[Pending]] = deque()
        self.begun_stores: list[Pending] = []
        self.stores: deque[list[Pending]] = deque()
        # By cp.async, of which no barrier is told yet: who, what, and the record of it.
        self.begun_copies: list[tuple[Array, BegunCopy, int]] = []
        self.alone = not shared.dependent  # all of it knows that the kernel before has ended
        # Who knows what: see `order`.
        self.lanes = Lanes(shared.order, rank * self.many + number)
        shared.lanes.append(self.lanes)
        self.parts = PartsOrder(self.lanes)
        self.registers: dict[int, Registers] = {}
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

    def _same(self, node: Code) -> int:
        """The value that an expression has in all active threads."""
        return self._one(self.value(node), node)

    def _address(self, node: Code) -> int:
        """The byte of shared memory that a pointer means in all active threads."""
        pointer = self.value(node)
        return self._one(pointer.index, node) * int(pointer.memory.itemsize)

    def _one(self, values: Value, node: Code) -> int:
        """The number that all active threads have as the value of `node`."""
        if isinstance(values, int):
            return values
        values = spread(values, self.active.shape)[self.active]
        if (values != values[0]).any():
            raise NotImplementedError(f"{node} is not the same in all threads of a warpgroup")
        return int(values[0])

    def _fault(self, what: str, missing: str) -> None:
        self.shared.order.fault(f"{what}; missing: {missing}")

    def _group_record(self, kind: str, agent: int) -> int:
        """The record of what is begun now, and committed next."""
        return self.shared.order.new_record([agent], self.committed[kind] + 1)

    # Statements

    def _run_AllocBuffer(self, node: Code) -> None:
        buffer = node.buffer
        if buffer.scope() == "shared.dyn":
            self.memory[hash(buffer)] = self.shared.memory
            return
        super()._run_AllocBuffer(node)
        if tvm_ffi.Object.__hash__(buffer.original) in self.program.registers:
            size = self.memory[hash(buffer)].shape[1]
            self.registers[hash(buffer)] = Registers(self.shared.order, size)

    def _run_Evaluate(self, node: Code) -> None:
        name = node.value.operation
        if name and name not in IGNORED:  # without a name it is a value that nobody needs
            if (
                hash(node) not in self.program.arguments
            ):  # a round comes back to it, and wgmma has 140
                self.program.arguments[hash(node)] = list(node.value.args)
            arguments = self.program.arguments[hash(node)]
            getattr(self, f"_{name}", lambda *_: self._unknown(node))(*arguments)

    # Memory

    def _place(self, buffer: Code, indices: Code, value: Value = None) -> tuple[Any, Any, Value]:
        place = super()._place(buffer, indices, value)
        memory, index, stored = place
        if memory.ndim == 2:  # registers
            if hash(buffer) in self.registers:
                self.registers[hash(buffer)].touch(index[1], self.finished)
        elif memory.base is self.shared.memory:
            self._use_shared(memory, index, stored is not None)
        else:
            self._use_tensor(buffer, memory, stored is not None)
        return place

    def _use_shared(self, memory: Array, index: Array, stored: bool) -> None:
        """Active threads load from shared memory, or store there."""
        words, lane = index * memory.itemsize // WORD, self.active[:, 0].nonzero()[0]
        if not stored and len(lane) < WARPGROUP:
            words = words[lane]
        lane = np.repeat(lane, words.size // len(lane))
        shadow = self.shared.shadow
        use = shadow.written_by_threads if stored else shadow.read_by_threads
        use(self.lanes, lane, words.reshape(-1))

    def _use_tensor(self, buffer: Code, memory: Array, stored: bool) -> None:
        """Active threads load from a tensor, or store there."""
        if not self.alone:
            self._reach(f"{buffer.name} is used")
        if stored:
            self.parts.store(memory, self._active())
        else:
            self.parts.load(memory, self._active())

    def _set(self, target: Code, value: Code) -> None:
        """Write to a register, given as the load of it."""
        memory, index, value = self._place(target.source, target.indices, value)
        memory[index] = value

    # Expressions

    def value(self, node: Code) -> Value:
        name = node.operation
        if not name:  # most expressions call nothing
            return super().value(node)
        if name in SAME:
            value = self.value(node.args[0])
            of_pointer = isinstance(value, Pointer | str)  # or a map of TMA, by its name
            return value if of_pointer else np.asarray(value).view(node.element)
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

    def _func_call(self, *arguments: Code) -> None:
        self._call(*arguments)

    def _call(self, name: Code, *arguments: Code) -> int:
        """A function that is written in CUDA, behind the arguments: one that kernels have."""
        if name.value in PARTS:
            return self._parts(name.value, *arguments[:-1])
        if name.value != "next_tile" or self.active.sum() != 1:
            raise NotImplementedError(f"{name} in {self.active.sum()} threads")
        self._reach("the counter of tiles")
        return self.shared.counter.next_tile(self._same(arguments[0]))

    def _parts(self, name: str, *arguments: Code) -> int:
        """Between blocks that compute parts of one tile."""
        if self.active.sum() != 1:
            raise NotImplementedError(f"{name} in {self.active.sum()} threads")
        self._reach("the counter of parts")
        tile, parts = (self._same(argument) for argument in arguments)
        shared, (lane,) = self.shared.parts, self._active()
        if name == "await_parts":
            self.parts.count(lane)
        else:
            self.parts.leave()
        shared.count(tile, parts)
        if name == "await_parts":
            self._wait(lambda: shared.done[tile] >= parts, f"the other parts of tile {tile}")
            self.parts.wait(lane)
        return 0

    def _special_register(self, bits: Code, register: Code) -> np.int32:
        """Each block has an SM of its own here, of the same number."""
        if register.value != "smid":
            raise NotImplementedError(f"the special register {register}")
        return np.int32(self.special["blockIdx.x"])

    # The kernel before

    def _griddepcontrol(self, action: Code, *words: Code) -> None:
        if action.value == "wait":
            self.lanes.ended(self._active(), self.shared.order.kernel_before, 1)

    def _reach(self, what: str) -> None:
        """Of all that other kernels may use, too: not while the one before may still run."""
        before = self.shared.order.kernel_before
        self.alone = self.alone or self.lanes.have_waited_for(ALL, before)
        if not self.alone and not self.lanes.have_waited_for(self._active(), before):
            some = any(self.lanes.have_waited_for([lane], before) for lane in ALL)
            whose = " by each thread, or by one and then a barrier" if some else ""
            raise SynchronizationError(f"{what} before griddepcontrol.wait{whose}")


def finish(groups: deque[list[Pending]], most: int) -> None:
    """Do what has been begun in the oldest groups until `most` are left."""
    while len(groups) > most:
        for work in groups.popleft():
            work()
