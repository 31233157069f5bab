"""The threads of a block on NumPy arrays: the statements and expressions of a scheduled kernel.

All threads of a block go through the kernel's code in step, as arrays with an entry for each
thread. That is slow, and meant for small sizes. Since threads are in step, a missing barrier is not
noticed. Registers and shared memory hold NaN until something is written into them.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from d2ltvm.analysis import accesses
from d2ltvm.analysis.emulator import arithmetic
from d2ltvm.analysis.emulator.arithmetic import Array, Value
from d2ltvm.compute.ops import Shape

Code = Any  # a `nodes.Mirror` of a statement or of an expression
WARP = 32
SHUFFLES = {  # from what lane, of `width` neighbours, each lane takes a value; else its own
    "tvm_warp_shuffle": lambda lane, by, width: lane // width * width + by % width,
    "tvm_warp_shuffle_up": lambda lane, by, _: lane - by,
    "tvm_warp_shuffle_down": lambda lane, by, _: lane + by,
    "tvm_warp_shuffle_xor": lambda lane, by, _: lane ^ by,
}


class Block:
    """The threads of one block. Values have the shape (threads, lanes of a vector)."""

    def __init__(self, memory: dict[int, Array], shape: Shape, block: Shape) -> None:
        self.memory = memory  # arrays by the hash of the IR's variable
        self.thread = np.arange(int(np.prod(shape)), dtype=np.int32)[:, None]
        self.active = np.ones(self.thread.shape, bool)
        x, y, _ = shape
        places = self.thread % x, self.thread // x % y, self.thread // (x * y)
        self.special: dict[str, Value] = {
            f"threadIdx.{a}": p for a, p in zip("xyz", places, strict=True)
        }
        self.special.update({f"blockIdx.{a}": b for a, b in zip("xyz", block, strict=True)})
        self.values: dict[int, Value] = {}

    def run(self, node: Code) -> None:
        """Execute a statement."""
        getattr(self, f"_run_{node.type_name}", self._unknown)(node)

    def _unknown(self, node: Code) -> Any:
        raise NotImplementedError(
            f"cannot emulate a {node.type_name}: {accesses.short(node.original)}"
        )

    def _run_SeqStmt(self, node: Code) -> None:
        for part in node.seq:
            self.run(part)

    def _run_AttrStmt(self, node: Code) -> None:
        if node.attr_key == "thread_extent":
            self.values[hash(node.node.var)] = self.special[node.node.thread_tag]
        self.run(node.body)

    def _run_AllocBuffer(self, node: Code) -> None:
        buffer = node.buffer
        size, scope = int(np.prod([int(n) for n in buffer.shape])), buffer.scope()
        kind, lanes = buffer.held
        if scope.startswith("wmma."):
            shape = [len(self.thread), size // 256 * 8]  # a lane's eight elements of each fragment
        else:
            shape = [len(self.thread), size * lanes] if scope == "local" else [size * lanes]
        memory = np.empty(shape, kind)
        memory.view(np.uint8)[...] = 0xFF  # NaN, read as any kind of float
        self.memory[hash(buffer)] = memory

    def _run_DeclBuffer(self, node: Code) -> None:
        self.memory[hash(node.buffer)] = self._memory(node.data).view(node.buffer.held[0])

    def _run_Bind(self, node: Code) -> None:
        self.values[hash(node.var)] = self._kept(node.value)

    def _kept(self, node: Code) -> Value:
        """A value that stays as it is when the registers change that it comes from."""
        value = self.value(node)
        return value.copy() if isinstance(value, np.ndarray) else value

    def _run_For(self, node: Code) -> None:
        first, many = self._alike(node.min), self._alike(node.extent)
        rounds = int(np.max(arithmetic.spread(many, self.active.shape)[self.active]))
        step = 1 if node.step is None else self._alike(node.step)
        for k in range(rounds if step == 1 else -(-rounds // step)):
            self.values[hash(node.loop_var)] = first + k * step
            if isinstance(many, int):  # as many for all that are active
                self.run(node.body)
            else:
                self._run_where(np.less(k * step, many), node.body)

    def _alike(self, node: Code) -> Value:
        """An int where all active threads have the same value; else a value for each."""
        value = self.value(node)
        if isinstance(value, int):
            return value
        found = arithmetic.spread(value, self.active.shape)[self.active]
        return int(found[0]) if (found == found[0]).all() else value

    def _run_While(self, node: Code) -> None:
        kept = self.active
        while True:
            self.active = self.active & np.asarray(self.value(node.condition), bool)
            if not self.active.any():
                break
            self.run(node.body)
        self.active = kept

    def _run_IfThenElse(self, node: Code) -> None:
        met = np.asarray(self.value(node.condition), bool)
        self._run_where(met, node.then_case)
        if node.else_case is not None:
            self._run_where(~met, node.else_case)

    def _run_where(self, lanes: Value, node: Code) -> None:
        """Execute a statement for some of the active threads, where there are any."""
        kept, self.active = self.active, self.active & lanes
        if self.active.any():
            self.run(node)
        self.active = kept

    @contextlib.contextmanager
    def _only(self, lanes: Value) -> Iterator[None]:
        kept, self.active = self.active, self.active & lanes
        yield
        self.active = kept

    def _run_BufferStore(self, node: Code) -> None:
        memory, index, value = self._place(node.buffer, node.indices, self.value(node.value))
        memory[index] = value

    def _run_Evaluate(self, node: Code) -> None:
        name = node.value.operation
        if name == "tvm_storage_sync" or not name:  # without a name, a value that nobody needs
            return
        if not self.active.all() or len(self.thread) % WARP:
            raise NotImplementedError(f"{name} where not all threads of its warps take part")
        getattr(self, f"_{name}", lambda *_: self._unknown(node))(*node.value.args)

    def value(self, node: Code) -> Value:
        """An expression's value for each thread: a number, or (threads, lanes of a vector)."""
        kind = node.type_name
        if kind == "IntImm":
            return node.number
        if kind in ("And", "Or"):
            return self._both(node, kind == "And")
        if kind in arithmetic.BINARY:
            result = arithmetic.BINARY[kind](self.value(node.a), self.value(node.b))
            return result if type(result) is not int else arithmetic.wrapped(result, node.element)
        if kind == "Call":
            return self._called(node)
        return getattr(self, f"_value_{kind}", self._unknown)(node)

    def _value_FloatImm(self, node: Code) -> Value:
        return np.dtype(node.element).type(node.value)

    def _value_Var(self, node: Code) -> Value:
        if hash(node) not in self.values:
            raise NotImplementedError(f"cannot emulate {node.name}, a variable of the host")
        return self.values[hash(node)]

    def _value_TensorLoad(self, node: Code) -> Value:
        memory, index, _ = self._place(node.source, node.indices)
        return memory[index].reshape(len(self.thread), -1)

    def _value_Ramp(self, node: Code) -> Value:
        each = np.arange(int(node.lanes), dtype=node.element)
        return np.asarray(self.value(node.base)).reshape(-1, 1) + self.value(node.stride) * each

    def _value_Broadcast(self, node: Code) -> Value:
        return self.value(node.value)

    def _value_Shuffle(self, node: Code) -> Value:
        vectors = [
            arithmetic.spread(self.value(v), (len(self.thread), v.lanes_of_type))
            for v in node.vectors
        ]
        return np.concatenate(vectors, axis=1)[:, [int(k) for k in node.indices]]

    def _value_Cast(self, node: Code) -> Value:
        return arithmetic.cast(self.value(node.value), node.element)

    def _value_Not(self, node: Code) -> Value:
        return np.logical_not(self.value(node.a))

    def _value_BitwiseNot(self, node: Code) -> Value:
        return ~self.value(node.a)

    def _value_Select(self, node: Code) -> Value:
        return self._choice(node.condition, node.true_value, node.false_value)

    def _both(self, node: Code, wanted: bool) -> Value:
        """`a and b`, or `a or b`: as in C, b is worked out only where it matters."""
        first = np.asarray(self.value(node.a), bool)
        with self._only(first == wanted):
            second = np.asarray(self.value(node.b), bool)
        return np.where(first == wanted, second, first)

    def _choice(self, condition: Code, first: Code, second: Code) -> Value:
        met = np.asarray(self.value(condition), bool)
        with self._only(met):
            then = self.value(first)
        with self._only(~met):
            return np.where(met, then, self.value(second)).astype(first.element, copy=False)

    def _called(self, node: Code) -> Value:
        name = node.operation
        if name == "if_then_else":
            return self._choice(*node.args)
        if name == "tvm_warp_activemask":
            return np.uint32(0xFFFFFFFF)
        if name in SHUFFLES:
            return self._shuffled(SHUFFLES[name], *node.args[1:4])
        if name == "reinterpret":
            return np.asarray(self.value(node.args[0])).view(node.element)
        if name not in arithmetic.FUNCTIONS:
            return self._unknown(node)
        return arithmetic.call(name, *(self.value(argument) for argument in node.args))

    def _shuffled(self, source: Any, value: Code, by: Code, width: Code) -> Value:
        """What lanes of a warp give each other; from outside of its `width` lanes none comes."""
        if len(self.thread) % WARP:
            raise NotImplementedError(f"a shuffle in a block of {len(self.thread)} threads")
        values = arithmetic.spread(self.value(value), self.thread.shape)
        lane, width = self.thread % WARP, int(width)
        other = source(lane, self.value(by), width)
        inside = other // width == lane // width
        return values[:, 0][np.where(inside, self.thread - lane + other, self.thread)]

    def _place(self, buffer: Code, indices: Code, value: Value = None) -> tuple[Any, Any, Value]:
        """The array behind a buffer, and where in it; of a store, for active threads alone."""
        memory, index = self.memory[hash(buffer)], self.value(indices[0])
        many, lanes = memory.shape[-1], buffer.held[1]
        if (
            value is None
            and memory.ndim == 2
            and isinstance(index, int)
            and 0 <= index < many // lanes
        ):
            # A register of each thread.
            return memory, (slice(None), slice(index * lanes, (index + 1) * lanes)), None
        index = arithmetic.spread(index, (len(self.thread), indices[0].lanes_of_type))
        if lanes > 1:  # a buffer of vectors
            index = (index[:, :, None] * lanes + np.arange(lanes)).reshape(len(index), -1)
        thread = arithmetic.spread(self.thread, index.shape)
        active = arithmetic.spread(self.active, index.shape)
        if value is None:  # what is not asked for may be out of range
            index = np.where(active, index, 0)
        else:
            value = arithmetic.spread(value, index.shape)[active]
            index, thread = index[active], thread[active]
        for end in (index.min(initial=0), index.max(initial=0)):
            if not 0 <= end < many:
                raise IndexError(f"{buffer.name} is accessed at {end}; it has {many} elements")
        return memory, ((thread, index) if memory.ndim == 2 else index), value

    def _memory(self, pointer: Code) -> Array:
        """The array that a pointer of the IR means: a parameter, or `buffer.data`."""
        return self.memory[hash(pointer.args[0] if hasattr(pointer, "args") else pointer)]

    def _pointer(self, call: Code) -> tuple[Array, Array]:
        """Array and first element, for each thread, of `tvm_access_ptr`."""
        _, data, offset, *_ = call.args
        return self._memory(data), arithmetic.spread(self.value(offset), self.thread.shape)
