"""TVM's parser of TIRx, with less work for the same kernel: see `parse_quickly`."""

import functools
import re
import weakref
from types import CodeType
from typing import Any

from tvm.script.parser.core import doc, evaluator, parser

# What the parser evaluates: names of what it has evaluated before, and constants, in one of these.
SIMPLE = (int, str, type(None))


def text_of(node: Any) -> str | None:
    """The source of an expression of names and simple constants; None of any other.

    >>> from tvm.script.parser.core import doc
    >>> text_of(doc.parse("f(x, *y, z=w.s)[2]", mode="eval").body)
    'f(x, *y, z=w.s)[2]'
    >>> text_of(doc.parse("lambda x: x", mode="eval").body) is None
    True
    """
    if isinstance(node, doc.Name):
        return str(node.id)
    if isinstance(node, doc.Constant):
        return repr(node.value) if isinstance(node.value, SIMPLE) else None
    if isinstance(node, doc.Attribute):
        of = None if isinstance(node.value, doc.Constant) else text_of(node.value)
        return of and f"{of}.{node.attr}"
    if isinstance(node, doc.Subscript):
        of, place = text_of(node.value), text_of(node.slice)
        return of and place and f"{of}[{place}]"
    if isinstance(node, doc.Starred):
        of = text_of(node.value)
        return of and f"*{of}"
    if isinstance(node, doc.keyword):
        of = text_of(node.value)
        return of and (f"{node.arg}={of}" if node.arg else f"**{of}")
    if isinstance(node, doc.Call):
        of, parts = text_of(node.func), [text_of(part) for part in (*node.args, *node.keywords)]
        known = [part for part in parts if part is not None]
        return of and f"{of}({', '.join(known)})" if len(known) == len(parts) else None
    return None


@functools.lru_cache(4096)
def code_of(text: str) -> CodeType:
    return compile(text, "<ast>", "eval")


_evaluate, _assign = evaluator._eval_expr, evaluator._eval_assign
_definition = parser.ScriptMacro.get_macro_def
DEFINITIONS: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def evaluate(node: Any, values: dict[str, Any] | None) -> Any:
    """As `evaluator._eval_expr`; what was compiled once is not compiled again."""
    text = text_of(node)
    return (
        _evaluate(node, values)
        if text is None
        else eval(code_of(text), {} if values is None else values)
    )


def assign(target: Any, source: Any) -> dict[str, Any]:
    """As `evaluator._eval_assign`; a name is bound without being compiled."""
    return {target.id: source} if isinstance(target, doc.Name) else _assign(target, source)


def definition(macro: Any) -> Any:
    """As `ScriptMacro.get_macro_def`; the source is read at the first call of a macro.

    The parser changes a function inside another one; a macro that has one is read anew.
    """
    if macro not in DEFINITIONS:
        found = _definition(macro)
        if len(re.findall(r"^\s*def\s", macro.source.source, re.MULTILINE)) > 1:
            return found
        DEFINITIONS[macro] = found
    return DEFINITIONS[macro]


def parse_quickly() -> None:
    """Let TVM's parser of TIRx compile an expression once, and read a `T.inline` function once.

    It evaluates each part of an expression for itself: it makes a tree of Python's, compiles it and
    runs it, and the same few trees come again and again. A `T.inline` function is read anew
    wherever it is called. Both were more than half of the time that a kernel takes to be parsed.
    """
    evaluator._eval_expr = evaluate
    evaluator._eval_assign = assign
    parser.ScriptMacro.get_macro_def = definition
