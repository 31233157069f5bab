"""Kernels of the book with one thing missing or otherwise: what `test_emulator_mutants` runs."""

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from d2ltvm.compiler.ir import find

Change = Callable[[Any], Any]


def nth(kernel: Any, name: str, n: int) -> Any:
    """The n-th statement of a kernel that calls something, such as 'wgmma_fence'."""
    return [s for s in find(kernel.body, "Evaluate") if name_of(s) == name][n]


def name_of(statement: Any) -> str:
    name = getattr(getattr(statement.value, "op", None), "name", "")
    return str(name.rpartition(".")[2])


def replaced(kernel: Any, old: Any, change: Change, times: int = 1) -> Any:
    """A kernel with another statement in the place of one, the first times that it stands there."""
    seen = []

    def visit(node: Any) -> Any:
        if not node.same_as(old):
            return node
        seen.append(node)
        return change(node) if len(seen) <= times else node

    body = tvm_ffi.structural_map(kernel.body, (type(old), visit))
    assert seen, "the statement is not there"
    return kernel.with_body(body)


def without(name: str, n: int = 0) -> Change:
    """Leaves a call out."""
    return lambda kernel: replaced(kernel, nth(kernel, name, n), lambda _: tirx.Evaluate(0))


def twice(name: str, n: int = 0) -> Change:
    """Has a call two times."""
    return lambda kernel: replaced(
        kernel, nth(kernel, name, n), lambda call: tirx.SeqStmt([call, call])
    )


def put(name: str, n: int, k: int, value: Any) -> Change:
    """Gives a call another argument number k: an integer, or what a function makes of it."""

    def change(statement: Any) -> Any:
        call = statement.value
        args = list(call.args)
        new = value(args[k]) if callable(value) else value
        args[k] = tirx.const(new, args[k].ty.dtype) if isinstance(new, int) else new
        return tirx.Evaluate(tvm.ir.Call(call.op, args, call.attrs, call.ty_args, ret_ty=call.ty))

    return lambda kernel: replaced(kernel, nth(kernel, name, n), change)


def instead(name: str, n: int, other: str, *args: str) -> Change:
    """Calls something else, in place of a call."""
    call = tvm.ir.Call(f"tirx.{other}", [tvm.ir.StringImm(arg) for arg in args], ret_ty="void")
    return lambda kernel: replaced(kernel, nth(kernel, name, n), lambda _: tirx.Evaluate(call))


def moved(name: str, n: int, to: str, m: int, before: bool = False) -> Change:
    """Moves a call behind another one, or in front of it, with the condition it stands under."""

    def change(kernel: Any) -> Any:
        what, place = branch_of(kernel, nth(kernel, name, n)), nth(kernel, to, m)
        kernel = replaced(kernel, what, lambda _: tirx.Evaluate(0))
        order = (lambda stays: [what, stays]) if before else (lambda stays: [stays, what])
        return replaced(kernel, place, lambda stays: tirx.SeqStmt(order(stays)))

    return change


def branch_of(kernel: Any, statement: Any) -> Any:
    """The `if` that holds a statement and nothing else; the statement itself, if there is none."""
    for branch in find(kernel.body, "IfThenElse"):
        if branch.then_case.same_as(statement) and branch.else_case is None:
            return branch
    return statement


def under(name: str, n: int, condition: Change) -> Change:
    """Puts a call under a condition, made of the kernel."""

    def change(kernel: Any) -> Any:
        met = condition(kernel)
        return replaced(kernel, nth(kernel, name, n), lambda call: tirx.IfThenElse(met, call, None))

    return change


def by_thread(name: str, n: int, lane: int) -> Change:
    """Has another thread of the warpgroup make a call, in place of its first one."""

    def change(kernel: Any) -> Any:
        branch = branch_of(kernel, nth(kernel, name, n))
        zero = [node for node in find(branch.condition, "IntImm") if node.value == 0][-1]
        other = tirx.const(lane, zero.ty.dtype)
        condition = tvm_ffi.structural_map(
            branch.condition, (type(zero), lambda node: other if node.same_as(zero) else node)
        )
        return replaced(
            kernel, branch, lambda _: tirx.IfThenElse(condition, branch.then_case, None)
        )

    return change


def first_thread(kernel: Any) -> Any:
    """The condition that a kernel puts TMA's stores under: thread % 128 == 0."""
    return branch_of(kernel, nth(kernel, "cp_async_bulk_wait_group", 0)).condition


def very_first_thread(kernel: Any) -> Any:
    """The condition for thread 0 of a block, of a kernel that may have none of its own."""
    thread = next(var for var in find(kernel.body, "Var") if var.name == "thread")
    return thread.equal(0)


def first_consumer(kernel: Any) -> Any:
    """A condition for the first thread behind the producer's warpgroup: thread == 128."""
    branches = find(kernel.body, "IfThenElse")
    condition = next(b.condition for b in branches if str(b.condition) == "thread == 0")
    zero = [node for node in find(condition, "IntImm") if node.value == 0][-1]
    first = tirx.const(128, zero.ty.dtype)
    return tvm_ffi.structural_map(
        condition, (type(zero), lambda node: first if node.same_as(zero) else node)
    )


def first_round(kernel: Any) -> Any:
    """The condition for the first round of a tile."""
    loops = [loop for loop in find(kernel.body, "For") if loop.loop_var.name == "k"]
    return loops[-1].loop_var.equal(0)
