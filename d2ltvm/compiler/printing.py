"""Loop nests and kernel sources cut down to what a reader looks at."""

import difflib
import re
from typing import Any

import tvm

from d2ltvm.compiler.lowering import as_module
from d2ltvm.compute.ops import whole

# Lines of TVMScript that say nothing about the loops.
_NOISE = re.compile(
    r"^\s*(#.*|@[IT]\..*|class Module:|T\.func_attr\(.*|T\.reads\(.*|T\.writes\(.*|)$"
)


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


def kernel_code(source: str) -> str:
    """The kernels of a CUDA or OpenCL source, without the header TVM puts before them.

    >>> kernel = d2ltvm.build(d2ltvm.schedules.one_thread_each(1024), "sm_80")
    >>> print(d2ltvm.kernel_code(kernel.source))
    extern "C" __global__ void __launch_bounds__(256) main_kernel(...) {
    ...

    Args:
        source: the source text, as `Kernel.source` gives it.

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
    return "\n\n".join(re.sub(r"\n// Function: \w+$", "", text).strip() for text in defined)


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
