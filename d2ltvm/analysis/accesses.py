"""Where a kernel touches memory: its loads and stores, with their loops and guards."""

from dataclasses import dataclass

import tvm

from d2ltvm.analysis import index_exprs
from d2ltvm.analysis.index_exprs import Sum

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
        tensor: name of the buffer.
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
    scope: str
    kind: str
    itemsize: int
    lanes: int
    index: Sum
    guards: tuple
    loops: tuple
    epoch: tuple

    @property
    def width(self):
        """Bytes that one thread moves."""
        return self.itemsize * self.lanes

    @property
    def variables(self):
        """Names of all variables that decide what it touches, and whether it does."""
        return self.index.variables.union(*(guard.variables for guard in self.guards))


class Walk:
    """Walks over a kernel's statements and collects its `sites`.

    Attributes:
        sites: in the order of the code.
        extents: (first value, number of values) of each loop, by name.
        written: names of the buffers that are written inside each loop, by its name.
        barriers: names of the loops with a barrier inside.
    """

    def __init__(self, body):
        self.sites, self.extents, self.written, self.barriers = [], {}, {}, set()
        self._known, self._loops, self._guards = {}, (), ()
        self._writes, self._syncs = {}, 0
        self._statement(body)

    def _statement(self, node):
        handler = getattr(self, "_do_" + type(node).__name__, None)
        if handler is None:
            raise NotImplementedError(f"cannot follow a {type(node).__name__}: {short(node)}")
        handler(node)

    def _do_SeqStmt(self, node):
        for part in node.seq:
            self._statement(part)

    def _do_DeclBuffer(self, node):
        pass

    _do_AllocBuffer = _do_DeclBuffer

    def _do_AttrStmt(self, node):
        if node.attr_key == "thread_extent":
            self._known[node.node.var.name] = index_exprs.variable(node.node.thread_tag)
            if node.node.thread_tag == "threadIdx.x":
                self._lane = node.node.var
        self._statement(node.body)

    def _do_Bind(self, node):
        self._expression(node.value)
        try:
            self._known[node.var.name] = index_exprs.convert(node.value, self._known)
        except NotImplementedError:
            self._known.pop(node.var.name, None)  # a float, say; an index that needs it complains

    def _do_IfThenElse(self, node):
        condition = index_exprs.convert(node.condition, self._known)
        outer = self._guards
        self._guards = (*outer, *index_exprs.conjunction(condition))
        self._statement(node.then_case)
        if node.else_case is not None:
            self._guards = (*outer, _negated(condition))
            self._statement(node.else_case)
        self._guards = outer

    def _do_For(self, node):
        first, count = (index_exprs.convert(e, self._known) for e in (node.min, node.extent))
        if first.terms or count.terms:
            raise NotImplementedError(f"the loop over {node.loop_var.name} has no fixed length")
        name = f"{node.loop_var.name}#{len(self.extents)}"
        self.extents[name], self.written[name] = (first.const, count.const), set()
        before, outer = self._known.get(node.loop_var.name), self._loops
        only = count.const == 1
        self._known[node.loop_var.name] = first if only else index_exprs.variable(name)
        self._loops = outer if only else (*outer, name)
        self._statement(node.body)
        self._loops = outer
        if before is None:
            del self._known[node.loop_var.name]
        else:
            self._known[node.loop_var.name] = before

    def _do_BufferStore(self, node):
        self._expression(node.value)
        for index in node.indices:
            self._expression(index)
        self._site(node.buffer, node.indices, "write")

    def _do_Evaluate(self, node):
        self._expression(node.value)

    def _expression(self, node):
        """Loads inside of an expression, each with the conditions under which it is worked out."""
        kind = type(node).__name__
        if kind == "TensorLoad":
            for index in node.indices:
                self._expression(index)
            self._site(node.source, node.indices, "read")
        elif parts := index_exprs.choice(node):
            self._choice(*parts)
        elif kind == "Call":
            self._call(node)
        else:
            for child in _children(node):
                self._expression(child)

    def _choice(self, condition, then, other):
        self._expression(condition)
        outer, met = self._guards, index_exprs.convert(condition, self._known)
        self._guards = (*outer, *index_exprs.conjunction(met))
        self._expression(then)
        self._guards = (*outer, _negated(met))
        self._expression(other)
        self._guards = outer

    def _call(self, node):
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

    def _fragment(self, name, args):
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

    def _through(self, pointer, place, lanes, kind):
        """An access of neighbouring elements at a place behind a `tvm_access_ptr`."""
        _, data, offset, *_ = pointer.args
        self._site(data.args[0], [tvm.tirx.Ramp(offset + place, 1, lanes)], kind)

    def _site(self, buffer, index, kind):
        scope = buffer.ty.storage_scope
        if scope in PRIVATE:
            return
        if scope not in SCOPES:
            raise NotImplementedError(f"{buffer.name} is in {scope!r}, which is not followed")
        if len(index) != 1:
            raise NotImplementedError(f"{buffer.name} has {len(index)} indices; one is expected")
        first, lanes = self._span(index[0])
        if kind == "write":
            self._writes[buffer.name] = self._writes.get(buffer.name, 0) + 1
            for loop in self._loops:
                self.written[loop].add(buffer.name)
        syncs = self._syncs if SCOPES[scope] == "shared" else 0
        epoch = (self._writes.get(buffer.name, 0), syncs)
        self.sites.append(
            Site(
                tensor=buffer.name,
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

    def _span(self, index):
        """First element and number of neighbouring elements of an access."""
        lanes = tvm.DataType(str(index.ty.dtype)).lanes
        at = [
            index_exprs.convert(index, {**self._known, index_exprs.LANE: index_exprs.constant(k)})
            for k in range(lanes)
        ]
        if all(other == at[0] for other in at):  # one element, given to all lanes
            return at[0], 1
        if any(other != at[0] + index_exprs.constant(k) for k, other in enumerate(at)):
            raise NotImplementedError(f"a vector access with a stride: {index}")
        return at[0], lanes


def _negated(condition):
    return Sum(frozenset([(index_exprs.Op("Not", (condition,)), 1)]))


def _children(node):
    """The expressions directly below one that is neither a load, a choice nor a call."""
    for field in ("a", "b", "value", "base", "stride"):
        child = getattr(node, field, None)
        if isinstance(child, tvm.ir.Expr):
            yield child


def _itemsize(buffer):
    return tvm.DataType(str(buffer.dtype)).itemsize


def short(node):
    """A statement or expression as one line, cut off where it is long."""
    text = " ".join(str(node).split())
    return text if len(text) < 100 else text[:97] + "..."
