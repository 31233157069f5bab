"""The skeleton of an exercise, from its solution: what a reader begins with, and what comes out.

A solution is a folded cell with the tags `hide-cell` and `solution`; the cell before it, with text
between or not, has the tag `skeleton`, and its source is made from the solution's. In the solution

    # instead of: bx, tx = sch.split(i, [None, 128])
    bx, tx, v = sch.split(i, [None, 128, 4])
    sch.vectorize(v)
    # end

keeps what stands behind `instead of:` for the skeleton, of one or several such lines, and
`code  # instead of: other` does so for one line. Both cells are run: `d2ltvm.verdict` prints "not
yet" at the end of the one and "solved" at the end of the other. `tools/cells.py` calls this.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

import book

_INSTEAD = re.compile(r"^( *)# instead of: (.*)$")
_LINE = re.compile(r"^( *)\S.*?  # instead of: (.*)$")


def skeleton(solution: str) -> str:
    """The source of a skeleton.

    >>> print(skeleton("def f(x):\\n    return x + 1  # instead of: return x"))
    def f(x):
        return x  # your turn

    Raises:
        ValueError: nothing is instead of anything, a block has no end, or no code comes out.
    """
    lines, inside = [], False
    for line in solution.splitlines():
        if found := _INSTEAD.match(line):
            if not inside:
                lines.append(f"{found[1]}# your turn")
            inside = True
            lines.append(found[1] + found[2])
        elif inside:
            inside = line.strip() != "# end"
        elif found := _LINE.match(line):
            lines.append(f"{found[1]}{found[2]}  # your turn")
        else:
            lines.append(line)
    if inside or "# your turn" not in "\n".join(lines):
        raise ValueError(
            f"a solution begins {solution[:60]!r}; expected `# instead of: ...` in it, and `# end` "
            "behind each block of them"
        )
    text = "\n".join(lines)
    try:
        ast.parse(text)
    except SyntaxError as error:
        raise ValueError(
            f"the skeleton of {solution[:60]!r} has a wrong line, {error.text}; expected Python. "
            "The formatter breaks long lines: write `# instead of: ...` above them, `# end` below"
        ) from error
    return text


def pairs(notebook: Any) -> Iterator[tuple[Any, Any]]:
    """Skeleton and solution of each exercise of a chapter that has both.

    Raises:
        ValueError: a skeleton without a solution behind it, or a solution without a skeleton.
    """
    before = None
    for cell in notebook.cells:  # a skeleton may be empty yet
        if "skeleton" in book.tags(cell):
            if before is not None:
                raise ValueError(f"no solution behind the skeleton {before.source[:60]!r}")
            before = cell
        elif "solution" in book.tags(cell):
            if before is None or "hide-cell" not in book.tags(cell):
                raise ValueError(
                    f"the solution {cell.source[:60]!r} stands alone or is not folded; expected a "
                    "cell with the tag skeleton before it, and the tag hide-cell"
                )
            yield before, cell
            before = None
    if before is not None:
        raise ValueError(f"no solution behind the skeleton {before.source[:60]!r}")


def rewrite(notebook: Any) -> Iterator[tuple[Any, str]]:
    """Skeletons that are not their solutions', each with the source it should have."""
    for first, second in pairs(notebook):
        source = skeleton(second.source)
        if source != first.source:
            yield first, source
