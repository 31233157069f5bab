"""What a kernel computes, as data: the page works out elements of it in double precision."""

import math
from collections.abc import Sequence
from typing import Any

from tvm import te

from d2ltvm.compute.ops import schedule

REDUCE = 2  # tirx.IterVar.CommReduce, as the axes of blocks have it
BINARY = {
    **dict(Add="+", Sub="-", Mul="*", Div="/", Min="min", Max="max", FloorDiv="//", FloorMod="%"),
    **dict(LT="<", LE="<=", GT=">", GE=">=", EQ="==", NE="!=", And="and", Or="or"),
}
ROUNDED = {"+": 1, "-": 1, "*": 1, "/": 5}  # WGSL's division is off by 2.5 units in the last place
FUNCTIONS = {"exp2": "exp2", "sqrt": "sqrt", "rsqrt": "rsqrt", "fabs": "abs"}  # by TVM's name


def definition(tensors: Sequence[Any], terms: int | None = None) -> dict[str, Any]:
    """A computation as JSON can say it: inputs, stages, and how many roundings an element takes.

    >>> (stage,) = definition(d2ltvm.vector_add(8))["stages"]
    >>> stage["shape"], stage["value"]
    ([8], ['+', ['at', 0, ['i', 0]], ['at', 1, ['i', 0]]])

    An expression is a number; `["i", k]`, the index k, where indices of a sum follow on those of
    the element; `["at", t, ...]`, an element of tensor t, where stages follow on inputs;
    `["if", condition, a, b]`; `["exp2", a]`, and so for sqrt, rsqrt and abs; or an operator with
    two expressions.

    Args:
        tensors: te tensors, inputs before the output, as `d2ltvm.schedule` takes them.
        terms: how many roundings an element of the output goes through, where that does not follow
            from the expressions.

    Returns:
        `inputs` and `stages`, each with a name and a shape; a stage is the sum of `value` over
        `reduce`, or, where `by` is 'max', the largest. The last stage is the output. `terms` is how
        many roundings an element of it goes through at most, in whatever order it is added up.

    Raises:
        ValueError: the output is not one tensor that is computed from the others, or there is an
            expression that is not known here, or exp2 or a root without `terms`.
    """
    *given, result = tensors
    stages: list[Any] = []
    _visit(result, given, stages)
    every = [*given, *stages]
    numbers = {tensor: k for k, tensor in enumerate(every)}
    told = [_stage(tensor, numbers) for tensor in stages]
    return {
        "inputs": [{"name": t.op.name, "shape": _shape(t)} for t in given],
        "stages": told,
        "terms": _terms(told, len(given)) if terms is None else terms,
    }


def plain(tensors: Sequence[Any], threads: int = 64) -> Any:
    """The plainest schedule of a computation that a GPU can run: an element a thread.

    Where the elements of a row follow from sums of the row, as in softmax, it is a row a thread.

    >>> sch = plain(d2ltvm.matmul(8, 8, 8))
    >>> [int(sch.get(loop).extent) for loop in sch.get_loops(sch.get_sblock("C"))]
    [1, 64, 8]

    Args:
        tensors: as for `definition`.
        threads: of a block.
    """
    sch = schedule(list(tensors))
    *inner, last = [b for b in sch.get_child_blocks(sch.get_sblock("root"))]
    sums = [b for b in inner if any(axis.iter_type == REDUCE for axis in sch.get(b).iter_vars)]
    for block in (b for b in inner if b not in sums):
        sch.compute_inline(block)
    axes = [[a for a in sch.get(b).iter_vars if a.iter_type != REDUCE] for b in (last, *sums)]
    loops = sch.get_loops(last)[: min(map(len, axes))]
    block, thread = sch.split(sch.fuse(*loops), [None, threads])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    for block in reversed(sums):
        sch.compute_at(block, thread)
        sch.set_scope(block, 0, "local")
    return sch


def _visit(tensor: Any, given: Sequence[Any], stages: list[Any]) -> None:
    """Append a stage behind those that it reads."""
    if tensor in given or tensor in stages:
        return
    if not isinstance(tensor.op, te.ComputeOp) or len(tensor.op.body) != 1:
        raise ValueError(f"{tensor.op.name} is not computed from the others; expected all tensors")
    for source in tensor.op.input_tensors:
        _visit(source, given, stages)
    stages.append(tensor)


def _stage(tensor: Any, numbers: dict[Any, int]) -> dict[str, Any]:
    op, body = tensor.op, tensor.op.body[0]
    reduces, by = type(body).__name__ == "Reduce", {}
    if reduces:
        kind = type(body.combiner.result[0]).__name__
        if kind not in ("Add", "Max"):
            raise ValueError(f"{op.name} reduces by {kind}; expected a sum or the largest")
        by = {"by": "max"} if kind == "Max" else {}
        (body,) = body.source
    axes = {axis.var: k for k, axis in enumerate([*op.axis, *op.reduce_axis])}
    return {
        "name": op.name,
        "shape": _shape(tensor),
        "reduce": [int(axis.dom.extent) for axis in op.reduce_axis] if reduces else [],
        **by,
        "value": _expression(body, axes, numbers),
    }


def _expression(node: Any, axes: dict[Any, int], numbers: dict[Any, int]) -> Any:
    def of(*parts: Any) -> list[Any]:
        return [_expression(part, axes, numbers) for part in parts]

    kind = type(node).__name__
    if kind in BINARY:
        return [BINARY[kind], *of(node.a, node.b)]
    if kind == "Var":
        return ["i", axes[node]]
    if kind in ("IntImm", "FloatImm"):
        return node.value
    if kind == "Call":
        name = getattr(node.op, "name", "").split(".")[-1]
        if name == "tensor_load":
            return ["at", numbers[node.args[0]], *of(*node.args[1:])]
        if name == "if_then_else":
            return ["if", *of(*node.args)]
        if name in FUNCTIONS:
            return [FUNCTIONS[name], *of(*node.args)]
    raise ValueError(f"a {kind} is in the computation; expected sums, products and conditions")


def _terms(stages: list[dict[str, Any]], given: int) -> int:
    """How many roundings an element of the last stage goes through."""
    roundings = [0] * given
    for stage in stages:
        size = 1 if "by" in stage else math.prod(stage["reduce"])
        roundings.append(_roundings(stage["value"], roundings) + (size if size > 1 else 0))
    return roundings[-1]


def _roundings(value: Any, of: list[int]) -> int:
    """How many roundings a value went through, when tensors went through so many as `of` says."""
    if not isinstance(value, list) or value[0] == "i":
        return 0
    if value[0] == "at":
        return of[value[1]]
    if value[0] in ("exp2", "sqrt", "rsqrt"):
        name = value[0]
        raise ValueError(f"{name} is in the computation; expected terms, how many roundings it has")
    most = max(_roundings(part, of) for part in value[1:])
    return most + (0 if _of_indices(value) else ROUNDED.get(value[0], 0))


def _of_indices(value: Any) -> bool:
    """Whether a value follows from indices alone, and so is a whole number."""
    if not isinstance(value, list):
        return isinstance(value, int)
    return value[0] == "i" or (value[0] != "at" and all(_of_indices(part) for part in value[1:]))


def _shape(tensor: Any) -> list[int]:
    return [int(size) for size in tensor.shape]
