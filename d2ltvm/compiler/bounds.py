"""Indices outside of their tensors, and threads that do not match, found before compiling."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tvm

Numbers = Any  # an int, or a NumPy array of them: one for each point that is tried

MOST_POINTS = 2**16  # points that are tried: all of them, or, of more, the corners and some others
TRUNCATED: dict[str, Callable[[Numbers, Numbers], Numbers]] = {
    "Div": lambda a, b: np.trunc(np.true_divide(a, b)).astype("int64"),
    "Mod": np.fmod,
}
BINARY: dict[str, Callable[[Numbers, Numbers], Numbers]] = {
    **dict(Add=np.add, Sub=np.subtract, Mul=np.multiply, FloorDiv=np.floor_divide),
    **dict(FloorMod=np.mod, Min=np.minimum, Max=np.maximum, **TRUNCATED),
    **dict(LT=np.less, LE=np.less_equal, GT=np.greater, GE=np.greater_equal),
    **dict(EQ=np.equal, NE=np.not_equal, And=np.logical_and, Or=np.logical_or),
}
CALLS: dict[str, Callable[..., Numbers]] = {
    "if_then_else": np.where,
    "likely": lambda value: value,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}


class _Unknown(Exception):
    """A value that depends on data, or on a variable of which nothing is known."""


def check(main: Any) -> None:
    """Raise a ValueError where a function accesses a tensor outside of its shape.

    It is one, too, where loops inside each other are bound to the same threads and do not have
    as many rounds: TVM would take one number for both.

    >>> A = tvm.te.placeholder((8,), name="A")
    >>> C = tvm.te.compute((8,), lambda i: A[i + 1], name="C")
    >>> check(tvm.te.create_prim_func([A, C]))
    Traceback (most recent call last):
        ...
    ValueError: block C reads A[v_i + 1], where the index is 8; expected 0 to 7

    There is an iteration that makes the access: none is refused that a guard prevents. One that
    depends on data is let pass, and so may be one of very many in which only few are wrong.

    Args:
        main: a PrimFunc with blocks, as a schedule has it.
    """
    _Walk().statement(main.body)


class _Walk:
    """Walks over statements and knows, at each access, what its variables can be."""

    def __init__(self) -> None:
        self.block = "main"
        self.loops: dict[Any, tuple[int, int]] = {}  # first value and number of values
        self.values: dict[Any, Any] = {}  # of variables that are expressions of others
        self.guards: tuple[tuple[Any, bool], ...] = ()
        self.threads: dict[str, int] = {}  # of the loops around: rounds, by what they are bound to
        self.analyzer = tvm.sym.Analyzer()

    def statement(self, node: Any) -> None:
        handler = getattr(self, "_do_" + type(node).__name__, None)
        if handler:
            handler(node)

    def _do_SeqStmt(self, node: Any) -> None:
        for part in node.seq:
            self.statement(part)

    def _do_For(self, node: Any) -> None:
        self._range(node.loop_var, node.min, node.extent)
        outer = self.threads
        if node.thread_binding is not None and isinstance(node.extent, tvm.tirx.IntImm):
            tag, count = str(node.thread_binding.thread_tag), int(node.extent)
            if tag.startswith("threadIdx") and self.threads.get(tag, count) != count:
                raise ValueError(
                    f"a loop of {count} is bound to {tag}, inside of one of {self.threads[tag]}; "
                    "expected loops of one length"
                )
            self.threads = self.threads | {tag: count}
        self.statement(node.body)
        self.threads = outer

    def _do_AttrStmt(self, node: Any) -> None:
        if node.attr_key == "thread_extent":
            self._range(node.node.var, 0, node.value)
        self.statement(node.body)

    def _range(self, var: Any, first: Any, count: Any) -> None:
        """What a loop's variable can be; nothing is known of it where that depends on others."""
        if all(isinstance(size, int | tvm.tirx.IntImm) for size in (first, count)):
            self.loops[var] = int(first), int(count)
            self.analyzer.bind(var, tvm.ir.Range.from_min_extent(first, count), True)

    def _do_Bind(self, node: Any) -> None:
        self.expression(node.value)
        self.values[node.var] = node.value

    def _do_SBlockRealize(self, node: Any) -> None:
        outer = self.block, self.guards
        self.guards = (*self.guards, (node.predicate, True))
        for axis, value in zip(node.block.iter_vars, node.iter_values, strict=True):
            self.values[axis.var] = value
            self.analyzer.bind(axis.var, axis.dom, True)
        self.block = node.block.name_hint
        if node.block.init is not None:
            self.statement(node.block.init)
        self.statement(node.block.body)
        self.block, self.guards = outer

    def _do_IfThenElse(self, node: Any) -> None:
        self.expression(node.condition)
        self._under(node.condition, True, lambda: self.statement(node.then_case))
        if node.else_case is not None:
            self._under(node.condition, False, lambda: self.statement(node.else_case))

    def _under(self, condition: Any, met: bool, visit: Callable[[], None]) -> None:
        outer = self.guards
        self.guards = (*outer, (condition, met))
        visit()
        self.guards = outer

    def _do_BufferStore(self, node: Any) -> None:
        self.expression(node.value)
        for index in node.indices:
            self.expression(index)
        self._access("writes", node.buffer, node.indices)

    def _do_Evaluate(self, node: Any) -> None:
        self.expression(node.value)

    def expression(self, node: Any) -> None:
        """The loads in an expression, each under the conditions that it is worked out."""
        kind, name = type(node).__name__, _call(node)
        if kind == "TensorLoad":
            for index in node.indices:
                self.expression(index)
            self._access("reads", node.source, node.indices)
        elif kind == "Select" or name == "if_then_else":
            condition, then, other = (
                node.args if name else (node.condition, node.true_value, node.false_value)
            )
            self.expression(condition)
            self._under(condition, True, lambda: self.expression(then))
            self._under(condition, False, lambda: self.expression(other))
        elif kind in ("And", "Or"):
            self.expression(node.a)
            self._under(node.a, kind == "And", lambda: self.expression(node.b))
        else:
            for child in _children(node):
                self.expression(child)

    def _access(self, verb: str, tensor: Any, indices: Any) -> None:
        for index, size in zip(indices, tensor.shape, strict=True):
            if isinstance(size, tvm.tirx.IntImm) and not self._inside(index, int(size)):
                at = self._outside(index, int(size))
                if at is not None:
                    text = " ".join(", ".join(str(i) for i in indices).split())
                    raise ValueError(
                        f"block {self.block} {verb} {tensor.name}[{text}], where the index is "
                        f"{at}; expected 0 to {int(size) - 1}"
                    )

    def _inside(self, index: Any, size: int) -> bool:
        """Whether it is so whatever the variables are: nearly always, and quickly seen."""
        bound = self.analyzer.const_int_bound(index)
        return bool(bound.min_value >= 0 and bound.max_value < size)

    def _outside(self, index: Any, size: int) -> int | None:
        """A value of the index that lies outside, in an iteration that makes the access."""
        conditions = [condition for condition, _ in self.guards]
        try:
            loops = list(dict.fromkeys(self._variables([index, *conditions])))
            points = _points(tuple(self.loops[loop] for loop in loops))
            known = dict(zip(loops, points, strict=True))
            met: Numbers = np.True_
            for condition, expected in self.guards:
                met = met & (np.asarray(self._value(condition, known)) == expected)
            value = np.asarray(self._value(index, known))
        except (_Unknown, KeyError):
            return None
        wrong = np.broadcast_arrays(value, met & ((value < 0) | (value >= size)))
        found = wrong[0][wrong[1]]
        return int(found.flat[0]) if found.size else None

    def _variables(self, expressions: list[Any]) -> Iterator[Any]:
        """The loops that decide about some expressions."""
        for node in expressions:
            if isinstance(node, tvm.ir.Var):
                if node in self.values:
                    yield from self._variables([self.values[node]])
                else:
                    yield node
            else:
                yield from self._variables(list(_children(node)))

    def _value(self, node: Any, known: dict[Any, Numbers]) -> Numbers:
        kind, name = type(node).__name__, _call(node)
        if isinstance(node, tvm.ir.Var):
            if node not in known:  # several guards ask for it
                known[node] = self._value(self.values[node], known)
            return known[node]
        if kind == "IntImm":
            return int(node.value)
        if kind == "Not":
            return np.logical_not(self._value(node.a, known))
        if kind == "Cast" and str(node.ty.dtype).startswith(("int", "uint", "bool")):
            return self._value(node.value, known)
        parts = [self._value(child, known) for child in _children(node)]
        if kind in BINARY:
            return BINARY[kind](*parts)
        if kind == "Select" or name in CALLS:
            return CALLS[name or "if_then_else"](*parts)
        raise _Unknown


@functools.lru_cache(4)  # a kernel asks for the same loops again and again
def _points(ranges: tuple[tuple[int, int], ...]) -> tuple[Numbers, ...]:
    """Values for some loops: all of them together, or the corners and random ones."""
    if any(count < 1 for _, count in ranges):
        raise _Unknown  # such a loop does nothing
    counts = [count for _, count in ranges]
    if math.prod(counts) <= MOST_POINTS:
        grid = np.indices(counts).reshape(len(counts), -1)
        return tuple(first + numbers for (first, _), numbers in zip(ranges, grid, strict=True))
    rng = np.random.default_rng(0)
    few = [rng.integers(first, first + count, MOST_POINTS) for first, count in ranges]
    # In half of them each loop is at one of its ends, or next to it.
    ends = [
        first + np.clip(rng.choice([0, 1, count - 2, count - 1], MOST_POINTS), 0, count - 1)
        for first, count in ranges
    ]
    return tuple(np.concatenate([*pair]) for pair in zip(few, ends, strict=True))


def _call(node: Any) -> str:
    """The name of what is called, without its dialect; '' where nothing is."""
    return str(node.op.name).rpartition(".")[2] if type(node).__name__ == "Call" else ""


def _children(node: Any) -> list[Any]:
    """The expressions directly below one."""
    kind = type(node).__name__
    if kind == "TensorLoad":
        raise _Unknown
    if kind == "Call":
        return [arg for arg in node.args if isinstance(arg, tvm.ir.Expr)]
    fields = ("condition", "true_value", "false_value", "a", "b", "value", "base", "stride")
    children = (getattr(node, field, None) for field in fields)
    return [child for child in children if isinstance(child, tvm.ir.Expr)]
