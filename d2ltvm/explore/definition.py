"""What a kernel computes, as data: the page works out elements of it in double precision."""

import math
from collections.abc import Sequence
from typing import Any

from tvm import te

from d2ltvm.compute.ops import schedule

BINARY = {
    **dict(Add="+", Sub="-", Mul="*", Min="min", Max="max", FloorDiv="//", FloorMod="%"),
    **dict(LT="<", LE="<=", GT=">", GE=">=", EQ="==", NE="!=", And="and", Or="or"),
}
ROUNDED = ("+", "-", "*")


def definition(tensors: Sequence[Any]) -> dict[str, Any]:
    """A computation as JSON can say it: inputs, stages, and how many roundings an element takes.

    >>> (stage,) = definition(d2ltvm.vector_add(8))["stages"]
    >>> stage["shape"], stage["value"]
    ([8], ['+', ['at', 0, ['i', 0]], ['at', 1, ['i', 0]]])

    An expression is a number; `["i", k]`, the index k, where indices of a sum follow on those of
    the element; `["at", t, ...]`, an element of tensor t, where stages follow on inputs;
    `["if", condition, a, b]`; or an operator with two expressions.

    Args:
        tensors: te tensors, inputs before the output, as `d2ltvm.schedule` takes them.

    Returns:
        `inputs` and `stages`, each with a name and a shape; a stage is the sum of `value` over
        `reduce`. The last stage is the output. `terms` is how many roundings an element of it goes
        through at most, in whatever order it is added up.

    Raises:
        ValueError: the output is not one tensor that is computed from the others, or there is an
            expression that is not known here.
    """
    *given, result = tensors
    stages: list[Any] = []
    _visit(result, given, stages)
    every = [*given, *stages]
    numbers = {tensor: k for k, tensor in enumerate(every)}
    told = [_stage(tensor, numbers) for tensor in stages]
    roundings = [0] * len(given)
    for stage in told:
        size = math.prod(stage["reduce"])
        roundings.append(_roundings(stage["value"], roundings) + (size if size > 1 else 0))
    return {
        "inputs": [{"name": t.op.name, "shape": _shape(t)} for t in given],
        "stages": told,
        "terms": roundings[-1],
    }


def plain(tensors: Sequence[Any], threads: int = 64) -> Any:
    """The plainest schedule of a computation that a GPU can run: an element a thread.

    >>> sch = plain(d2ltvm.matmul(8, 8, 8))
    >>> [int(sch.get(loop).extent) for loop in sch.get_loops(sch.get_sblock("C"))]
    [1, 64, 8]

    Args:
        tensors: as for `definition`.
        threads: of a block.
    """
    sch = schedule(list(tensors))
    *inner, last = [b for b in sch.get_child_blocks(sch.get_sblock("root"))]
    for block in inner:
        sch.compute_inline(block)
    loops = sch.get_loops(last)[: len(tensors[-1].shape)]
    block, thread = sch.split(sch.fuse(*loops), [None, threads])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
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
    if reduces := type(body).__name__ == "Reduce":
        (body,) = body.source
    axes = {axis.var: k for k, axis in enumerate([*op.axis, *op.reduce_axis])}
    return {
        "name": op.name,
        "shape": _shape(tensor),
        "reduce": [int(axis.dom.extent) for axis in op.reduce_axis] if reduces else [],
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
    raise ValueError(f"a {kind} is in the computation; expected sums, products and conditions")


def _roundings(value: Any, of: list[int]) -> int:
    """How many roundings a value went through, when tensors went through so many as `of` says."""
    if not isinstance(value, list) or value[0] == "i":
        return 0
    if value[0] == "at":
        return of[value[1]]
    most = max(_roundings(part, of) for part in value[1:])
    return most + (value[0] in ROUNDED and not _of_indices(value))


def _of_indices(value: Any) -> bool:
    """Whether a value follows from indices alone, and so is a whole number."""
    if not isinstance(value, list):
        return isinstance(value, int)
    return value[0] == "i" or (value[0] != "at" and all(_of_indices(part) for part in value[1:]))


def _shape(tensor: Any) -> list[int]:
    return [int(size) for size in tensor.shape]
