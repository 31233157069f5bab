"""Loop nests and kernel sources cut down to what a reader looks at."""

import ast
import difflib
import re
from dataclasses import dataclass, field
from typing import Any

import tvm

from d2ltvm.compiler import ptx_calls
from d2ltvm.compiler.lowering import as_module
from d2ltvm.errors import whole

# Lines of TVMScript that say nothing about the loops.
_NOISE = re.compile(
    r"^\s*(#.*|@[IT]\..*|class Module:|T\.func_attr\(.*|T\.reads\(.*|T\.writes\(.*|)$"
)

_LOOP = re.compile(r"for (.+) in (?:T\.)?(\w+)\((.*)\):$")
_SAID = {"parallel": "parallel", "unroll": "unrolled", "vectorized": "vectorized"}
_STORE = re.compile(r"(\w+)\[.*?\] = (.+)$")


def loop_nest(sch: Any) -> str:
    """The loops of a schedule as TVM prints them, without the lines that are the same every time.

    >>> print(d2ltvm.loop_nest(d2ltvm.schedule(d2ltvm.vector_add(1024))))
    def main(A: T.Buffer((1024,), "float32"), ...):
        for i in range(1024):
            with T.sblock("C"):
                v_i = T.axis.spatial(1024, i)
                C[v_i] = A[v_i] + B[v_i]

    Args:
        sch: a `tvm.s_tir.Schedule`, an IRModule or a PrimFunc.

    Returns:
        Text. Decorators, comments, attributes and the read and write regions are left out; nothing
        is added or changed.

    Raises:
        TypeError: `sch` is none of these.
        ValueError: the module has no PrimFunc named `main`.
    """
    mod = as_module(sch)
    text = (sch if isinstance(sch, tvm.tirx.PrimFunc) else mod).script()
    return _dedent("\n".join(line for line in text.splitlines() if not _NOISE.match(line)))


def outline(sch: Any) -> str:
    """The loops of a schedule and what they compute, without indices: how the loops lie.

    >>> print(d2ltvm.outline(d2ltvm.schedules.one_thread_each(1024)))
    for i_0 < 4 (blockIdx.x)
      for i_1 < 256 (threadIdx.x)
        C = A + B

    Args:
        sch: as for `loop_nest`.

    Returns:
        Text. Loops that are directly inside of each other share a line if they are of one kind:
        blocks, virtual threads, threads, loops of the code. Loops of one round are left out. What
        is unrolled, vectorized or parallel says so. A value that is zero outside of its tensor, as
        padding is, is written `X or 0`, and one that a sum begins with has `first` before it.

    Raises:
        TypeError, ValueError: as for `loop_nest`.
    """
    root = _Node("", "")
    open_loops = [(-1, root)]  # around a line, with their indents
    first = ""
    for line in loop_nest(sch).splitlines()[1:]:
        text = line.strip()
        indent = len(line) - len(text)
        while open_loops[-1][0] >= indent:
            open_loops.pop()
        if found := _LOOP.match(text):
            node = _Node(*_loops(*found.groups()))
            if node.text:
                open_loops[-1][1].inside.append(node)
                open_loops.append((indent, node))
        elif text == "with T.init():":
            first = "first "
        elif (found := _STORE.match(text)) and not text.startswith("v_"):
            value = f"{first}{found[1]} = {_without_indices(found[2])}"
            open_loops[-1][1].inside.append(_Node("", value))
            first = ""
    return "\n".join(line for node in root.inside for line in node.lines(""))


@dataclass
class _Node:
    """A line of an outline: loops of a kind, or a value that is stored, whose kind is ''."""

    kind: str
    text: str
    inside: list["_Node"] = field(default_factory=list)

    def lines(self, margin: str) -> list[str]:
        """Its text and that of what is inside, from a margin on."""
        if not self.kind:
            return [margin + self.text]
        inside, texts = self.inside, [self.text]
        while len(inside) == 1 and inside[0].kind == self.kind:
            texts.append(inside[0].text)
            inside = inside[0].inside
        head = f"{margin}for {', '.join(texts)}"
        return [head, *(line for node in inside for line in node.lines(margin + "  "))]


def _loops(names: str, how: str, arguments: str) -> tuple[str, str]:
    """The kind of some loops of TVMScript, and how they are written: '' if all have one round."""
    sizes = re.findall(r"(?<![\w.=])\d+", arguments.partition("thread=")[0])
    tag = re.search(r'thread="([\w.]+)"', arguments)
    said = tag[1] if tag else _SAID.get(how)
    kind = said.partition(".")[0] if said else "loop"
    each = sizes if how == "grid" else sizes[-1:] if how == "range" else sizes[:1]
    many = names.split(", ")
    if len(each) != len(many):  # no numbers: what the source says
        return kind, f"{names} of {arguments}"
    loops = (
        f"{re.sub(r'.*fused', 'fused', name)} < {size}{f' ({said})' if said else ''}"
        for name, size in zip(many, each, strict=True)
        if size != "1"
    )
    return kind, ", ".join(loops)


def _without_indices(value: str) -> str:
    """An expression of TVMScript without what stands in brackets."""
    value = re.sub(r"\[[^\[\]]*\]", "", value)
    zero = r"T\.float\d+\(0\.0\)"
    value = re.sub(rf"T\.if_then_else\(.*?, (\w+), {zero}\)", r"(\1 or 0)", value)
    value = re.sub(zero, "0", value)
    return re.sub(r"^\((\w+ or 0)\)$", r"\1", value)


# What stands in index arithmetic. Python and C rank these operators alike, and comparisons do not.
_ARITHMETIC = (
    ast.Expression, ast.BinOp, ast.Name, ast.Attribute, ast.Constant, ast.operator, ast.Load,
)  # fmt: skip


def kernel_code(source: str, short: bool = False) -> str:
    """The kernels of a CUDA or OpenCL source, without the header TVM puts before them.

    >>> kernel = d2ltvm.build(d2ltvm.schedules.one_thread_each(1024), "sm_80")
    >>> print(d2ltvm.kernel_code(kernel.source))
    extern "C" __global__ void __launch_bounds__(256) main_kernel(...) {
    ...

    Args:
        source: the source text, as `Kernel.source` gives it.
        short: leave out parentheses that change nothing, conversions of `threadIdx` and `blockIdx`
            to int, and variables that TVM declares (`cse_v1`) and does not use. In the place of
            TVM's functions, of which a kernel in TIRx has many, stands the PTX in them.

    Returns:
        Text from the first kernel's definition on.

    Raises:
        TypeError: `source` is no text.
        ValueError: there is no kernel in it.
    """
    if not isinstance(source, str):
        raise TypeError(f"source is a {type(source).__name__}; expected the source as text")
    starts = [m.start() for m in re.finditer(r'^(extern "C" __global__|__kernel) ', source, re.M)]
    if not starts:
        raise ValueError("source has no kernel; expected `__global__` or `__kernel` in it")
    bodies = [source[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)]
    # Each kernel is declared once, in a line that ends with a semicolon, before it is defined.
    defined = [text.strip() for text in bodies if not text.splitlines()[0].endswith(";")]
    text = "\n\n".join(re.sub(r"\n// Function: \w+$", "", text).strip() for text in defined)
    return _shortened(ptx_calls.inlined(text, source)) if short else text


def _shortened(text: str) -> str:
    text = _simple(re.sub(r"\(\(int\)(\w+\.[xyz])\)", r"\1", text))
    for name in reversed(re.findall(r"^ *int (\w+) = ", text, re.M)):  # one may need one before
        if len(re.findall(rf"\b{name}\b", text)) == 1:
            text = re.sub(rf"^ *int {name} = .*\n", "", text, flags=re.M)
    return text


def _simple(text: str) -> str:
    """The text with no needless parentheses inside of brackets and of other parentheses."""
    parts, depth, start = [], 0, 0
    for k, sign in enumerate(text):
        if sign in "([":
            depth += 1
            if depth == 1:
                parts.append(text[start : k + 1])
                start = k + 1
        elif sign in ")]":
            depth -= 1
            if depth == 0:
                inside = text[start:k]
                parts.append(_arithmetic(inside) or _simple(inside))
                start = k
    return "".join([*parts, text[start:]])


def _arithmetic(text: str) -> str:
    """Index arithmetic without needless parentheses; '' for text that is something else."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        return ""
    plain = all(isinstance(node, _ARITHMETIC) for node in ast.walk(tree))
    return ast.unparse(tree) if plain else ""


def difference(before: str, after: str, context: int | None = None) -> str:
    """Two texts as one: lines that have gone are marked with -, new ones with +.

    A line that has only moved to the right or left is not marked.

    >>> print(d2ltvm.difference("for i:\\n    a", "for i:\\n    b"))
      for i:
    -     a
    +     b

    Args:
        before, after: such as `loop_nest` or `kernel_code` return them.
        context: how many lines around a change are shown; all by default.

    Raises:
        TypeError: one of them is no text.
        ValueError: `context` is no integer, or negative.
    """
    for name, text in (("before", before), ("after", after)):
        if not isinstance(text, str):
            raise TypeError(f"{name} is a {type(text).__name__}; expected a text")
    if context is not None:
        context = whole("context", context, 0)
    old, new = before.splitlines(), after.splitlines()
    a, b = ([line.strip() for line in text] for text in (old, new))
    lines: list[str] = []
    for kind, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind == "equal":
            lines += [f"  {line}" for line in new[k:m]]
        else:
            lines += [f"- {line}" for line in old[i:j]] + [f"+ {line}" for line in new[k:m]]
    return "\n".join(lines if context is None else _near_changes(lines, context))


def _near_changes(lines: list[str], context: int) -> list[str]:
    """Lines with a mark, and those next to them; an ellipsis where others are left out."""
    marked = [k for k, line in enumerate(lines) if line[0] != " "]
    near = {n for k in marked for n in range(k - context, k + context + 1)}
    shown = []
    for k, line in enumerate(lines):
        if k in near:
            shown.append(line)
        elif not shown or shown[-1] != "  ...":
            shown.append("  ...")
    return shown


def _dedent(text: str) -> str:
    lines = text.splitlines()
    indent = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    return "\n".join(line[indent:].rstrip() for line in lines)
