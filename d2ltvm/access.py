"""What a kernel does to global memory, worked out from its lowered form without running it.

The unit of global memory is a sector of 32 bytes. A warp's 32 lanes make one request for each load
or store instruction, and the request moves every sector that a lane touches, once. Both are counted
here over all the threads of a launch, from the index expressions of the kernel in hand.
"""

import math
import operator
from dataclasses import dataclass

import numpy as np
import tvm

from d2ltvm import devices, lowering

WARP = 32
SECTOR = 32  # bytes. Source: CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory"
CHUNK = 2**20  # threads looked at together, which bounds the memory it takes


@dataclass(frozen=True)
class Traffic:
    """What a launch moves between one tensor in global memory and its threads.

    Attributes:
        tensor: its name.
        kind: 'read' or 'write'.
        width: bytes that one thread moves in one access.
        requests: instructions, counted once a warp.
        sectors: 32-byte sectors that the requests touch.
    """

    tensor: str
    kind: str
    width: int
    requests: int
    sectors: int


class Table(tuple):
    """`Traffic` of every tensor, which prints as a table."""

    def total(self, kind):
        """Requests and sectors of all tensors, for 'read' or 'write'."""
        rows = [t for t in self if t.kind == kind]
        return sum(t.requests for t in rows), sum(t.sectors for t in rows)

    def __str__(self):
        lines = [f"{'':10}{'bytes':>6}{'requests':>12}{'sectors':>12}{'sectors/request':>17}"]
        for t in self:
            each = t.sectors / max(t.requests, 1)
            name = f"{t.kind} {t.tensor}"
            lines.append(f"{name:10}{t.width:>6}{t.requests:>12,}{t.sectors:>12,}{each:>17.2f}")
        return "\n".join(lines)


def sectors(sch, config=None):
    """Requests and sectors of every global tensor a schedule's kernel touches.

    >>> print(d2ltvm.sectors(alternate_parallel(2048)))
               bytes    requests     sectors  sectors/request
    read A         4     131,072     131,072             1.00
    ...

    A load whose address and guard do not change from one round of a loop to the next is counted
    once, not in every round: the compiler keeps the value in a register. Tensors are taken to start
    at a multiple of 32 bytes. Caches are not modelled: a sector that two requests touch counts
    twice.

    Args:
        sch: a schedule whose loops are bound to blocks and threads, or as for `d2ltvm.build`.
        config: options of TVM's PassContext.

    Returns:
        A `Table` of `Traffic`, by tensor and kind.

    Raises:
        NotImplementedError: the kernel holds something that is not understood here, such as an
            index that depends on data.
    """
    lowered = lowering.lower(lowering.as_module(sch), devices.as_target("sm_80"), config)
    found = {}
    for launch in lowered.launches:
        kernel = _Walk(found, launch)
        kernel.run(lowered.device_functions[launch.name].body)
    order = {p.name: k for k, p in enumerate(lowered.params)}
    rows = [Traffic(*key, *counts) for key, counts in found.items()]
    return Table(sorted(rows, key=lambda t: (t.kind, order.get(t.tensor, len(order)), t.width)))


class _Walk:
    """Executes a kernel's control flow and indices for many threads at once, as NumPy arrays.

    Attributes:
        values: what each variable is, by name: an int, or an array with one entry a thread.
        used: names of the loop variables that each `let` variable depends on.
        later: loop variables that are past their first round.
    """

    def __init__(self, found, launch):
        self.found, self.launch = found, launch
        self.values, self.used, self.later = {}, {}, set()
        self.guards = frozenset()

    def run(self, body):
        """Walk the body for all threads of the launch, in chunks of whole blocks."""
        threads, blocks = math.prod(self.launch.block), math.prod(self.launch.grid)
        step = max(1, CHUNK // threads)
        for start in range(0, blocks, step):
            count = min(step, blocks - start)
            self._place(np.arange(start, start + count), threads)
            active = np.zeros((count, self.padded), bool)
            active[:, :threads] = True
            self._statement(body, active.ravel())

    def _place(self, blocks, threads):
        """Set the block and thread indices; a block's last warp is filled up to 32 lanes."""
        self.padded = -(-threads // WARP) * WARP
        thread = np.tile(np.arange(self.padded), len(blocks))
        block = np.repeat(blocks, self.padded)
        for axis, g, b in zip("xyz", self.launch.grid, self.launch.block, strict=True):
            self.values[f"blockIdx.{axis}"], block = block % g, block // g
            self.values[f"threadIdx.{axis}"], thread = thread % b, thread // b

    def _statement(self, node, active):
        handler = getattr(self, "_do_" + type(node).__name__, None)
        if handler is None:
            raise NotImplementedError(f"cannot follow a {type(node).__name__}: {node}")
        handler(node, active)

    def _do_SeqStmt(self, node, active):
        for part in node.seq:
            self._statement(part, active)

    def _do_DeclBuffer(self, node, active):
        pass

    _do_AllocBuffer = _do_DeclBuffer

    def _do_AttrStmt(self, node, active):
        if node.attr_key == "thread_extent":
            self.values[node.node.var.name] = self.values[node.node.thread_tag]
        self._statement(node.body, active)

    def _do_Bind(self, node, active):
        self._loads(node.value, active)
        self.values[node.var.name] = self._value(node.value)
        self.used[node.var.name] = self._loops(node.value)

    def _do_IfThenElse(self, node, active):
        condition = np.broadcast_to(self._value(node.condition), active.shape)
        outer, self.guards = self.guards, self.guards | self._loops(node.condition)
        self._statement(node.then_case, active & condition)
        if node.else_case is not None:
            self._statement(node.else_case, active & ~condition)
        self.guards = outer

    def _do_For(self, node, active):
        name, start = node.loop_var.name, int(node.min)
        self.used[name] = frozenset([name])
        for k in range(start, start + int(node.extent)):
            self.values[name] = k
            if k > start:
                self.later.add(name)
            self._statement(node.body, active)
        self.later.discard(name)

    def _do_BufferStore(self, node, active):
        self._loads(node.value, active)
        self._count(node.buffer, node.indices, "write", active)

    def _do_Evaluate(self, node, active):
        self._loads(node.value, active)

    def _loads(self, expression, active):
        for load in lowering.find(expression, "TensorLoad"):
            changing = self.guards.union(*(self._loops(i) for i in load.indices))
            if self.later <= changing:
                self._count(load.source, load.indices, "read", active)

    def _loops(self, expression):
        """Names of the loop variables that an expression depends on."""
        names = (v.name for v in lowering.find(expression, "Var"))
        return frozenset().union(*(self.used.get(name, ()) for name in names))

    def _count(self, buffer, indices, kind, active):
        if buffer.ty.storage_scope not in ("", "global"):
            return
        if len(indices) != 1:
            raise NotImplementedError(f"{buffer.name} has {len(indices)} indices; one is expected")
        first, lanes = self._span(indices[0])
        size = tvm.DataType(str(buffer.dtype)).itemsize
        start = np.broadcast_to(first, active.shape) * size
        ends = np.stack([start // SECTOR, (start + lanes * size - 1) // SECTOR])
        ends = np.where(active, ends, -1).reshape(2, -1, WARP)
        touched = np.sort(np.concatenate(list(ends), axis=1), axis=1)
        new = np.diff(touched, axis=1, prepend=-1) != 0
        counts = self.found.setdefault((buffer.name, kind, lanes * size), [0, 0])
        counts[0] += int(active.reshape(-1, WARP).any(axis=1).sum())
        counts[1] += int(new.sum())

    def _span(self, index):
        """First element and number of neighbouring elements of an access."""
        kind = type(index).__name__
        if kind == "Broadcast":
            return self._value(index.value), 1
        if kind != "Ramp":
            return self._value(index), 1
        if int(self._value(index.stride)) != 1:
            raise NotImplementedError(f"a vector access with a stride: {index}")
        return self._value(index.base), int(index.lanes)

    def _value(self, expression):
        kind = type(expression).__name__
        if kind == "IntImm":
            return int(expression.value)
        if kind == "Var" and expression.name in self.values:
            return self.values[expression.name]
        if kind == "Cast":
            return self._value(expression.value)
        if kind in _BINARY:
            return _BINARY[kind](self._value(expression.a), self._value(expression.b))
        if kind == "Not":
            return np.logical_not(self._value(expression.a))
        raise NotImplementedError(f"cannot work out a {kind}: {expression}")


_BINARY = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "Min": np.minimum,
    "Max": np.maximum,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "EQ": operator.eq,
    "NE": operator.ne,
    "And": np.logical_and,
    "Or": np.logical_or,
}
