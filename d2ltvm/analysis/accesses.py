"""Where a kernel touches memory: its loads and stores, with their loops and guards."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm

from d2ltvm.analysis import index_exprs
from d2ltvm.analysis.index_exprs import Sum
from d2ltvm.compiler.ir import find

TirNode = Any  # a statement or an expression of TVM's

SCOPES = {"": "global", "global": "global", "shared": "shared", "shared.dyn": "shared"}
PRIVATE = ("local",)  # registers of a thread, which are no business of the memory

# Calls that are given a pointer, and may do anything with it.
POINTERS = ("address_of", "tvm_access_ptr", "ptx_cp_async", "call_extern")
# TensorCores' work on registers of a warp.
ON_REGISTERS = ("tvm_fill_fragment", "tvm_mma_sync", "mma")


@dataclass(frozen=True)
class Site:
    """One load or store in the kernel's code.

    Attributes:
        tensor: name of the buffer, and `memory`, which two buffers of one name do not share.
        scope: 'global' or 'shared'.
        kind: 'read' or 'write'.
        itemsize: bytes of an element.
        lanes: neighbouring elements that one thread accesses at once.
        index: the first of them, counted in elements from the start of the buffer.
        guards: conditions under which it happens.
        loops: names of the loops around it, from the outside.
        epoch: which writes to the tensor, and barriers, come before it in the code: two loads of
            the same element in the same epoch give the same value.
    """

    tensor: str
    memory: int
    scope: str
    kind: str
    itemsize: int
    lanes: int
    index: Sum
    guards: tuple[Sum, ...]
    loops: tuple[str, ...]
    epoch: tuple[int, int]

    @property
    def width(self) -> int:
        """Bytes that one thread moves."""
        return self.itemsize * self.lanes

    @property
    def variables(self) -> frozenset[str]:
        """Names of all variables that decide what it touches, and whether it does."""
        return self.index.variables.union(*(guard.variables for guard in self.guards))


class SiteVisitor:
    """Walks over a kernel's statements and collects its `sites`.

    Attributes:
        sites: in the order of the code.
        extents: (first value, number of values) of each loop, by name.
        written: memory that is written inside each loop, by its name.
        barriers: names of the loops with a barrier inside.

    Args:
        body: what the kernel does.
        scattered: whether a vector whose lanes are no neighbours counts as an access of each lane,
            as CUDA's code has it, instead of being refused.
    """

    def __init__(self, body: TirNode, scattered: bool = False) -> None:
        self._scattered = scattered
        self.sites: list[Site] = []
        self.extents: dict[str, tuple[int, int]] = {}
        self.written: dict[str, set[int]] = {}
        self.barriers: set[str] = set()
        self._known: dict[
            int | str, Sum | tuple[Sum, ...]
        ] = {}  # what stands for each variable, by its hash
        self._loops: tuple[str, ...] = ()
        self._guards: tuple[Sum, ...] = ()
        self._views: dict[int, int] = {}  # of buffers that are another one's memory
        self._writes: dict[int, int] = {}
        self._syncs = 0
        self._statement(body)

    def _statement(self, node: TirNode) -> None:
        handler = getattr(self, "_do_" + type(node).__name__, None)
        if handler is None:
            raise NotImplementedError(f"cannot follow a {type(node).__name__}: {short(node)}")
        handler(node)

    def _do_SeqStmt(self, node: TirNode) -> None:
        for part in node.seq:
            self._statement(part)

    def _do_AllocBuffer(self, node: TirNode) -> None:
        pass

    def _do_DeclBuffer(self, node: TirNode) -> None:
        data = node.data.args[0] if hasattr(node.data, "args") else node.data
        self._views[hash(node.buffer)] = self._memory(data)

    def _memory(self, buffer: TirNode) -> int:
        return self._views.get(hash(buffer), hash(buffer))

    def _do_AttrStmt(self, node: TirNode) -> None:
        if node.attr_key == "thread_extent":
            self._known[hash(node.node.var)] = index_exprs.variable(node.node.thread_tag)
            if node.node.thread_tag == "threadIdx.x":
                self._lane = node.node.var
        self._statement(node.body)

    def _do_Bind(self, node: TirNode) -> None:
        self._expression(node.value)
        with contextlib.suppress(NotImplementedError):  # a float, say; who needs it complains
            lanes = int(tvm.DataType(str(node.var.ty.dtype)).lanes)
            each = self._of_lanes(node.value, lanes)
            self._known[hash(node.var)] = tuple(each) if lanes > 1 else each[0]

    def _do_IfThenElse(self, node: TirNode) -> None:
        condition = index_exprs.convert(node.condition, self._known)
        outer = self._guards
        self._guards = (*outer, *index_exprs.conjunction(condition))
        self._statement(node.then_case)
        if node.else_case is not None:
            self._guards = (*outer, _negated(condition))
            self._statement(node.else_case)
        self._guards = outer

    def _do_For(self, node: TirNode) -> None:
        parts = (node.min, node.extent, *([node.step] if node.step is not None else []))
        first, count, *step = (index_exprs.convert(e, self._known) for e in parts)
        if count.terms or any(s.terms for s in step):
            raise NotImplementedError(f"the loop over {node.loop_var.name} has no fixed length")
        every = step[0].const if step else 1
        many = -(-count.const // every)
        if many < 1:
            return
        name = f"{node.loop_var.name}#{len(self.extents)}"
        self.extents[name], self.written[name] = (0, many), set()
        place, outer = index_exprs.variable(name).times(every), self._loops
        self._known[hash(node.loop_var)] = first if many == 1 else first + place
        self._loops = outer if many == 1 else (*outer, name)
        self._statement(node.body)
        self._loops = outer

    def _do_BufferStore(self, node: TirNode) -> None:
        self._expression(node.value)
        for index in node.indices:
            self._expression(index)
        self._site(node.buffer, node.indices, "write")

    def _do_Evaluate(self, node: TirNode) -> None:
        self._expression(node.value)

    def _expression(self, node: TirNode) -> None:
        """Loads inside of an expression, each with the conditions under which it is worked out."""
        kind = type(node).__name__
        if kind == "TensorLoad":
            for index in node.indices:
                self._expression(index)
            self._site(node.source, node.indices, "read")
        elif parts := index_exprs.choice(node):
            self._choice(*parts)
        elif kind in ("And", "Or"):
            self._both(node.a, node.b, kind == "And")
        elif kind == "Call":
            self._call(node)
        else:
            for child in _children(node):
                self._expression(child)

    def _choice(self, condition: TirNode, then: TirNode, other: TirNode) -> None:
        self._expression(condition)
        if _reaches(then) or _reaches(other):
            met = index_exprs.convert(condition, self._known)
            self._where(index_exprs.conjunction(met), then)
            self._where([_negated(met)], other)

    def _where(self, guards: list[Sum], node: TirNode) -> None:
        """An expression that is worked out under conditions."""
        outer, self._guards = self._guards, (*self._guards, *guards)
        self._expression(node)
        self._guards = outer

    def _both(self, first: TirNode, second: TirNode, wanted: bool) -> None:
        """`a and b`, or `a or b`: as in C, b is worked out only where it matters."""
        self._expression(first)
        if _reaches(second):
            met = index_exprs.convert(first, self._known)
            self._where(index_exprs.conjunction(met) if wanted else [_negated(met)], second)

    def _call(self, node: TirNode) -> None:
        name = node.op.name.rpartition(".")[2]
        if name == "tvm_storage_sync":
            self.barriers.update(self._loops)
            self._syncs += 1
        elif name in ON_REGISTERS:
            return
        elif name in ("tvm_load_matrix_sync", "tvm_store_matrix_sync", "ldmatrix"):
            return self._fragment(name, list(node.args))
        elif any(name.startswith(pointer) for pointer in POINTERS) or name.startswith("ptx"):
            raise NotImplementedError(f"cannot follow {name}, which is given a pointer")
        for argument in node.args:
            if isinstance(argument, tvm.ir.Expr):
                self._expression(argument)

    def _fragment(self, name: str, args: list[TirNode]) -> None:
        """What a fragment's load or store accesses: 16 bytes a lane, or four times 8.

        `ldmatrix` says so; wmma leaves it to the compiler, which makes `ldmatrix` of its loads, and
        stores pairs of float32 where `mma.sync` leaves them.
        """
        lane = self._lane
        if name == "ldmatrix":
            return self._through(args[5], args[6], 8, "read")
        pointer, stride, layout = args[5:]
        if layout.value != "row_major":
            raise NotImplementedError(f"{name} of a matrix that is {layout.value}")
        if name == "tvm_load_matrix_sync":
            return self._through(pointer, lane % 16 * stride + lane // 16 * 8, 8, "read")
        for row in (lane // 4, lane // 4 + 8):
            for column in (lane % 4 * 2, lane % 4 * 2 + 8):
                self._through(pointer, row * stride + column, 2, "write")

    def _through(self, pointer: TirNode, place: TirNode, lanes: int, kind: str) -> None:
        """An access of neighbouring elements at a place behind a `tvm_access_ptr`."""
        _, data, offset, *_ = pointer.args
        self._site(data.args[0], [tvm.tirx.Ramp(offset + place, 1, lanes)], kind)

    def _site(self, buffer: TirNode, index: Sequence[TirNode], kind: str) -> None:
        scope = buffer.ty.storage_scope
        if scope in PRIVATE:
            return
        if scope not in SCOPES:
            raise NotImplementedError(f"{buffer.name} is in {scope!r}, which is not followed")
        if len(index) != 1:
            raise NotImplementedError(f"{buffer.name} has {len(index)} indices; one is expected")
        memory = self._memory(buffer)
        if kind == "write":
            self._writes[memory] = self._writes.get(memory, 0) + 1
            for loop in self._loops:
                self.written[loop].add(memory)
        syncs = self._syncs if SCOPES[scope] == "shared" else 0
        epoch = (self._writes.get(memory, 0), syncs)
        for first, lanes in self._spans(index[0]):
            self.sites.append(
                Site(
                    tensor=buffer.name,
                    memory=memory,
                    scope=SCOPES[scope],
                    kind=kind,
                    itemsize=_itemsize(buffer),
                    lanes=lanes,
                    index=first,
                    guards=self._guards,
                    loops=self._loops,
                    epoch=epoch,
                )
            )

    def _of_lanes(self, node: TirNode, lanes: int) -> list[Sum]:
        """What an expression is in each lane of a vector."""
        return [
            index_exprs.convert(node, {**self._known, index_exprs.LANE: index_exprs.constant(k)})
            for k in range(lanes)
        ]

    def _spans(self, index: TirNode) -> list[tuple[Sum, int]]:
        """First element and number of neighbouring elements of an access, or of several."""
        lanes = int(tvm.DataType(str(index.ty.dtype)).lanes)
        at = self._of_lanes(index, lanes)
        if all(other == at[0] for other in at):  # one element, given to all lanes
            return [(at[0], 1)]
        if all(other == at[0] + index_exprs.constant(k) for k, other in enumerate(at)):
            if lanes & (lanes - 1) and not self._scattered:
                raise NotImplementedError(f"a vector of {lanes}, which no instruction has: {index}")
            return [(at[0], lanes)]
        if self._scattered:
            return [(each, 1) for each in at]
        raise NotImplementedError(f"a vector access with a stride: {index}")


def _reaches(node: TirNode) -> bool:
    """Whether an expression loads from memory that is not a thread's own."""
    return any(load.source.ty.storage_scope not in PRIVATE for load in find(node, "TensorLoad"))


def _negated(condition: Sum) -> Sum:
    return Sum(frozenset([(index_exprs.Op("Not", (condition,)), 1)]))


def _children(node: TirNode) -> Iterator[TirNode]:
    """The expressions directly below one that is neither a load, a choice nor a call."""
    for field in ("a", "b", "value", "base", "stride"):
        child = getattr(node, field, None)
        if isinstance(child, tvm.ir.Expr):
            yield child


def _itemsize(buffer: TirNode) -> int:
    return int(tvm.DataType(str(buffer.dtype)).itemsize)


def short(node: TirNode) -> str:
    """A statement or expression as one line, cut off where it is long."""
    text = " ".join(str(node).split())
    return text if len(text) < 100 else text[:97] + "..."
