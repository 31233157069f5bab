"""Arithmetic on records, as the text of a chapter asks for it, and nothing else.

Whoever sends a chapter must not be able to run code through a comment that nobody sees. So an
expression is parsed, and what is not in the tables below is refused: there is no way to a function,
an attribute or a module that they do not name.
"""

import ast
import functools
import math
import operator
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from d2ltvm.bench import records
from d2ltvm.bench.records import Record
from d2ltvm.system import chips
from d2ltvm.system.chips import Chip

LONGEST = 2000  # characters of an expression
HIGHEST_BASE, HIGHEST_POWER = 1e6, 64


def power(base: Any, exponent: Any) -> Any:
    """A power that is not too large to work out."""
    if abs(base) > HIGHEST_BASE or abs(exponent) > HIGHEST_POWER:
        raise ValueError(
            f"{base}**{exponent} is too large; expected a base of at most {HIGHEST_BASE:.0f} "
            f"and an exponent of at most {HIGHEST_POWER}"
        )
    return base**exponent


def swing(values: Any) -> float:
    """How much higher the highest value is than the lowest, as a part of the lowest."""
    return float(max(values) / min(values) - 1)


def beyond(record: Record, legend: str, x: float) -> Any:
    """The values of a series where the x axis is higher than `x`."""
    return record[legend][record.values > x]


def running_means(values: Any, count: int) -> Any:
    """The means of neighbouring values, `count` at a time."""
    if not 1 <= count <= len(values):
        raise ValueError(f"count is {count}; expected 1 to {len(values)}, as many as values")
    return np.convolve(values, np.ones(count) / count, "valid")


def number_above(values: Any, limit: float) -> int:
    """How many of the values are higher than a limit."""
    return sum(1 for value in values if value > limit)


NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?")


def printed(outputs: str, words: str, which: int = 1) -> float:
    """A number that the page prints: the first one behind some words on their line, or another.

    >>> printed("2 servers: 61.2 and 62.5 a minute", "2 servers", 2)
    62.5

    Args:
        outputs: what the page prints, line by line.
        words: that stand before it, as printed; where several lines have them, all agree.
        which: 1 for the first number behind the words, 2 for the second.
    """
    behind = [line.partition(words)[2] for line in outputs.splitlines() if words in line]
    found = {tuple(NUMBER.findall(text))[which - 1 : which] for text in behind}
    if len(found) != 1 or not (number := found.pop()):
        raise ValueError(
            f"{words!r} stands before {sorted(found) or 'no number'}; expected a line of the "
            f"page's outputs with these words and {which} numbers behind them, and no other one"
        )
    return float(number[0].replace(",", ""))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "printed": printed,
    "rec": records.load_record,
    "chip": chips.chip,
    "min": min,
    "max": max,
    "abs": abs,
    "median": np.median,
    "percentile": np.percentile,
    "swing": swing,
    "beyond": beyond,
    "running_means": running_means,
    "number_above": number_above,
}
# What may be asked of a value, by its type, and which of these are called.
ATTRIBUTES: dict[type, set[str]] = {
    Record: {"at", "values", "spread"},
    Chip: {field.name for field in fields(Chip)} | {"balance"},
    np.ndarray: {"mean", "reshape"},
}
METHODS = {"at", "mean", "reshape"}
OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: power,
}
NUMBERS = (int, float, np.number, np.ndarray)


def evaluate(expression: str, outputs: str = "") -> float:
    """The number that an expression comes to.

    >>> evaluate("2**10 / max(4, 8)"), evaluate("2 * printed('FMAs')", "1,024 FMAs: 12")
    (128.0, 24.0)

    Args:
        expression: numbers, strings and tuples; `+ - * / // % **`; subscripts and slices; calls of
            `FUNCTIONS`; the `ATTRIBUTES` of what these return.
        outputs: what the page prints, for `printed`.

    Raises:
        ValueError: it holds anything else, cannot be worked out, or comes to no finite number.
        MissingError: there is no such record.
    """
    if len(expression) > LONGEST:
        raise ValueError(f"{len(expression)} characters; expected at most {LONGEST}")
    try:
        tree = ast.parse(expression, mode="eval")
        result = _value(tree.body, outputs)
        # An array of one element is a number too; NumPy 2.5 has `float` refuse it.
        result = float(result.item() if isinstance(result, np.ndarray) else result)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"not an expression: {error}") from error
    except (ArithmeticError, LookupError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if not math.isfinite(result):
        raise ValueError(f"it comes to {result}; expected a finite number")
    return result


def _value(node: ast.expr, page: str) -> Any:
    """What an expression on a page comes to, whose outputs are `page`."""
    match node:
        case ast.Constant(value=int() | float() | str()):
            return node.value
        case ast.Tuple():
            return tuple(_value(part, page) for part in node.elts)
        case ast.UnaryOp(op=ast.USub()):
            return -_number(node.operand, page)
        case ast.BinOp() if type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](_number(node.left, page), _number(node.right, page))
        case ast.Subscript():
            return _value(node.value, page)[_index(node.slice, page)]
        case ast.Attribute():
            return _attribute(node, False, page)
        case ast.Call(keywords=[]):
            return _called(node.func, page)(*(_value(argument, page) for argument in node.args))
    raise _refused(node)


def _number(node: ast.expr, page: str) -> Any:
    """The value of an operand: a number, or an array of numbers."""
    value = _value(node, page)
    if isinstance(value, NUMBERS) and np.issubdtype(np.asarray(value).dtype, np.number):
        return value
    raise ValueError(f"{ast.unparse(node)} is no number; expected one on each side of an operator")


def _index(node: ast.expr, page: str) -> Any:
    if not isinstance(node, ast.Slice):
        return _value(node, page)
    return slice(*(part and _value(part, page) for part in (node.lower, node.upper, node.step)))


def _called(node: ast.expr, page: str) -> Callable[..., Any]:
    if isinstance(node, ast.Name) and node.id in FUNCTIONS:
        function = FUNCTIONS[node.id]
        return functools.partial(printed, page) if function is printed else function
    if isinstance(node, ast.Attribute):
        found: Callable[..., Any] = _attribute(node, True, page)
        return found
    raise _refused(node)


def _attribute(node: ast.Attribute, called: bool, page: str) -> Any:
    owner = _value(node.value, page)
    if node.attr in ATTRIBUTES.get(type(owner), ()) and (node.attr in METHODS) == called:
        return getattr(owner, node.attr)
    raise _refused(node)


def _refused(node: ast.expr) -> ValueError:
    return ValueError(
        f"{ast.unparse(node)!r} is refused; expected arithmetic, rec(...), chip(...) and their "
        f"like: {', '.join(FUNCTIONS)}"
    )
