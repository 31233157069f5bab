"""Runs a scheduled kernel on NumPy arrays, its TensorCore instructions included, without any GPU.

All threads of a block go through the kernel's code in step, as arrays with an entry for each
thread. That is slow, and meant for small sizes. Since threads are in step, a missing barrier is not
noticed. Registers and shared memory hold NaN until something is written into them.
"""

import contextlib
import operator

import numpy as np
import tvm

from d2ltvm import layouts
from d2ltvm.analysis import index_exprs

_BINARY = {
    **index_exprs.OPERATIONS,
    "Add": operator.add,
    "Sub": operator.sub,
    "Div": operator.floordiv,  # these two of indices, which are not negative
    "Mod": operator.mod,
}


class Block:
    """The threads of one block. Values have the shape (threads, lanes of a vector)."""

    def __init__(self, memory, shape, block):
        self.memory = memory  # arrays by the hash of the IR's variable
        threads = int(np.prod(shape))
        if threads % 32:
            raise NotImplementedError(f"a block of {threads} threads; whole warps are emulated")
        self.thread = np.arange(threads)[:, None]
        self.active = np.ones((threads, 1), bool)
        x, y, _ = shape
        places = self.thread % x, self.thread // x % y, self.thread // (x * y)
        self.special = {f"threadIdx.{a}": p for a, p in zip("xyz", places, strict=True)}
        self.special.update({f"blockIdx.{a}": b for a, b in zip("xyz", block, strict=True)})
        self.values = {}

    def run(self, node):
        """Execute a statement."""
        getattr(self, f"_run_{type(node).__name__}", self._unknown)(node)

    def _unknown(self, node):
        raise NotImplementedError(f"cannot emulate a {type(node).__name__}: {node}")

    def _run_SeqStmt(self, node):
        for part in node.seq:
            self.run(part)

    def _run_AttrStmt(self, node):
        if node.attr_key == "thread_extent":
            self.values[hash(node.node.var)] = self.special[node.node.thread_tag]
        self.run(node.body)

    def _run_AllocBuffer(self, node):
        buffer = node.buffer
        size, scope = int(np.prod([int(n) for n in buffer.shape])), buffer.scope()
        if scope.startswith("wmma."):
            rows = (len(self.thread), size // 256 * 8)  # each lane's eight elements of a fragment
        else:
            rows = (len(self.thread), size) if scope == "local" else (size,)
        memory = np.empty(rows, str(buffer.dtype))
        memory.view(np.uint8)[...] = 0xFF  # NaN, read as any kind of float
        self.memory[hash(buffer)] = memory

    def _run_DeclBuffer(self, node):
        self.memory[hash(node.buffer)] = self._memory(node.data).view(str(node.buffer.dtype))

    def _run_Bind(self, node):
        self.values[hash(node.var)] = self.value(node.value)

    def _run_For(self, node):
        first, many = (int(np.max(self.value(e))) for e in (node.min, node.extent))
        for k in range(first, first + many):
            self.values[hash(node.loop_var)] = k
            self.run(node.body)

    def _run_IfThenElse(self, node):
        met = np.asarray(self.value(node.condition), bool)
        for case, lanes in ((node.then_case, met), (node.else_case, ~met)):
            with self._only(lanes):
                if case is not None and self.active.any():
                    self.run(case)

    @contextlib.contextmanager
    def _only(self, lanes):
        kept, self.active = self.active, self.active & lanes
        yield
        self.active = kept

    def _run_BufferStore(self, node):
        memory, index, value = self._place(node.buffer, node.indices, self.value(node.value))
        memory[index] = value

    def _run_Evaluate(self, node):
        name = getattr(getattr(node.value, "op", None), "name", "").rpartition(".")[2]
        if name != "tvm_storage_sync":
            if name and not self.active.all():
                raise NotImplementedError(f"{name} where not all threads take part")
            getattr(self, f"_{name}", self._unknown)(*getattr(node.value, "args", [node]))

    def value(self, node):
        """An expression's value for each thread: a number, or (threads, lanes of a vector)."""
        kind = type(node).__name__
        if kind in _BINARY:
            return _BINARY[kind](self.value(node.a), self.value(node.b))
        if kind == "IntImm":
            return int(node.value)
        if kind == "FloatImm":
            return np.dtype(_dtype(node)).type(node.value)
        if kind == "Var":
            return self.values[hash(node)]
        if kind == "TensorLoad":
            memory, index, _ = self._place(node.source, node.indices)
            return memory[index].reshape(len(self.thread), -1)
        if kind == "Ramp":
            steps = self.value(node.stride) * np.arange(int(node.lanes))
            return np.asarray(self.value(node.base)).reshape(-1, 1) + steps
        if kind == "Broadcast":
            return self.value(node.value)
        if kind == "Cast":
            return np.asarray(self.value(node.value)).astype(_dtype(node))
        if kind == "Not":
            return np.logical_not(self.value(node.a))
        if parts := index_exprs.choice(node):
            return self._choice(*parts)
        return self._unknown(node)

    def _choice(self, condition, first, second):
        met = np.asarray(self.value(condition), bool)
        with self._only(met):
            first = self.value(first)
        with self._only(~met):
            return np.where(met, first, self.value(second))

    def _place(self, buffer, indices, value=None):
        """The array behind a buffer, and where in it; of a store, for active threads alone."""
        memory, index = self.memory[hash(buffer)], self.value(indices[0])
        if value is None and memory.ndim == 2 and isinstance(index, int):
            return memory, (slice(None), slice(index, index + 1)), None  # a register of each thread
        index = np.broadcast_to(index, (len(self.thread), _lanes(indices[0])))
        thread = np.broadcast_to(self.thread, index.shape)
        active = np.broadcast_to(self.active, index.shape)
        if value is None:  # what is not asked for may be out of range
            index = np.where(active, index, 0)
        else:
            value = np.broadcast_to(value, index.shape)[active]
            index, thread = index[active], thread[active]
        if np.any(index < 0):
            raise IndexError(f"{buffer.name} is accessed at {index.min()}")
        return memory, ((thread, index) if memory.ndim == 2 else index), value

    def _memory(self, pointer):
        """The array that a pointer of the IR means: a parameter, or `buffer.data`."""
        return self.memory[hash(pointer.args[0] if hasattr(pointer, "args") else pointer)]

    def _pointer(self, call):
        """Array and first element, for each thread, of `tvm_access_ptr`."""
        _, data, offset, *_ = call.args
        return self._memory(data), np.broadcast_to(self.value(offset), self.thread.shape)

    # Registers of fragments: (warps, lanes, elements), with a view of a thread's row of them.

    def _registers(self, data, first, many):
        rows = self._memory(data)
        first = int(np.max(self.value(first)))
        return rows.reshape(-1, 32, rows.shape[1])[:, :, first : first + many]

    def _fragment(self, data, index):
        return self._registers(data, index * 8, 8)

    def _matrices(self, pointer, stride, layout):
        """Array and elements of a 16 by 16 matrix for each warp."""
        memory, first = self._pointer(pointer)
        row, column = np.indices((16, 16))
        if layout.value == "col_major":
            row, column = column, row
        return memory, first[::32, :, None] + row * int(self.value(stride)) + column

    def _tvm_fill_fragment(self, data, m, n, k, index, value):
        self._fragment(data, index)[...] = self.value(value)

    def _tvm_load_matrix_sync(self, data, m, n, k, index, pointer, stride, layout):
        memory, elements = self._matrices(pointer, stride, layout)
        kind = data.args[0].scope().rpartition(".")[2]
        layouts.scatter(memory[elements], self._fragment(data, index), kind)

    def _tvm_store_matrix_sync(self, data, m, n, k, index, pointer, stride, layout):
        memory, elements = self._matrices(pointer, stride, layout)
        memory[elements] = layouts.gather(self._fragment(data, index), "accumulator")

    def _tvm_mma_sync(self, d, di, a, ai, b, bi, c, ci):
        left = layouts.gather(self._fragment(a, ai), "matrix_a").astype("float32")
        right = layouts.gather(self._fragment(b, bi), "matrix_b").astype("float32")
        total = left @ right + layouts.gather(self._fragment(c, ci), "accumulator")
        layouts.scatter(total, self._fragment(d, di), "accumulator")

    def _ldmatrix(self, turned, number, kind, data, first, pointer, offset):
        memory, start = self._pointer(pointer)
        rows = (start + self.value(offset)).reshape(-1, int(number.value), 8, 1)
        matrices = memory[rows + np.arange(8)]  # warps, matrices, rows, columns
        if turned.value:
            matrices = matrices.swapaxes(2, 3)
        # A lane receives two neighbours of a row: lane 4 r + c has elements 2 c and 2 c + 1.
        parts = matrices.reshape(len(matrices), -1, 32, 2).swapaxes(1, 2)
        many = 2 * int(number.value)
        self._registers(data, first, many)[...] = parts.reshape(len(parts), 32, many)

    def _mma(self, shape, la, lb, ta, tb, tc, a, ai, b, bi, c, ci, saturate):
        left = layouts.gather(self._registers(a, ai, 8), "matrix_a").astype("float32")
        right = layouts.gather(self._registers(b, bi, 4), "matrix_b").astype("float32")
        sums = self._registers(c, ci, 4)
        layouts.scatter(left @ right + layouts.gather(sums, "accumulator"), sums, "accumulator")


def _dtype(node):
    """NumPy's name for an element of an expression's type."""
    return str(node.ty.dtype).partition("x")[0]


def _lanes(index):
    return tvm.DataType(str(index.ty.dtype)).lanes
