"""Write the package's schedules and kernels into the chapters that define them.

    python tools/cells.py

The package is the source. Above each function that a chapter defines a comment says which chapter
that is, `# From elementwise/vector_add.`, and the chapter has a cell tagged `schedules` with the
same function. This tool writes the function's text into the cell: without types, without what only
the linter reads, in a page's width, and with `d2ltvm.` or `d2ltvm.compute.` in front of what a
reader finds there and the chapter does not import by itself. Whatever else is in the cell stays.

It also writes the skeletons of exercises, from their solutions: see skeletons.py.
"""

import ast
import functools
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import skeletons

import book
import d2ltvm
from d2ltvm.errors import MissingError

FOLDERS = ("schedules", "hopper")
FROM = re.compile(r"# From (.+)\.")
ROOMS = ("compute", "compiler", "system")  # whose names a chapter reaches through `d2ltvm`
CHECKS = re.compile(r"^@(checked|with_plain_arguments)\n", re.M)  # of arguments, by their types
Definition = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Function:
    """A function or class of the package: its text, and the chapters it is from."""

    text: str
    imported: frozenset[str]
    chapters: tuple[str, ...]


def definitions(source: str) -> list[tuple[str, int, int]]:
    """Name, first line and line behind the last of the functions and classes of a source."""
    return [
        (node.name, min(n.lineno for n in (node, *node.decorator_list)) - 1, node.end_lineno or 0)
        for node in ast.parse(source).body
        if isinstance(node, Definition)
    ]


@functools.cache
def package() -> dict[str, list[Function]]:
    """The functions and classes of the package's schedules and kernels, by name."""
    found: dict[str, list[Function]] = {}
    for folder in FOLDERS:
        for path in sorted((book.ROOT / "d2ltvm" / folder).glob("*.py")):
            source = path.read_text()
            lines = source.splitlines()
            for name, start, end in definitions(source):
                comment = FROM.fullmatch(lines[start - 1]) if start else None
                chapters = tuple(re.split(", | and ", comment[1])) if comment else ()
                text = "\n".join(lines[start:end])
                function = Function(text, imports(source), chapters)
                found.setdefault(name, []).append(function)
    return found


def imports(source: str) -> frozenset[str]:
    """The names that a module takes from elsewhere in the package."""
    return frozenset(
        alias.asname or alias.name
        for node in ast.parse(source).body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("d2ltvm")
        for alias in node.names
    )


def bound(notebook: Any) -> set[str]:
    """The names that a chapter imports or defines by itself, in any cell but the first."""
    names: set[str] = set()
    for cell in book.code_cells(notebook)[1:]:
        for node in ast.parse(cell.source).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names |= {alias.asname or alias.name for alias in node.names}
            elif isinstance(node, Definition):
                names.add(node.name)
    return names


@functools.cache
def homes() -> dict[str, str]:
    """What stands in front of the names of the reader's namespace and of some of its rooms."""
    found = {name: f"d2ltvm.{room}." for room in ROOMS for name in dir(getattr(d2ltvm, room))}
    return found | dict.fromkeys(dir(d2ltvm), "d2ltvm.")


def for_a_reader(function: Function, at_hand: set[str]) -> str:
    """The text of a function as a chapter shows it that has some names at hand."""
    reached = {name: home for name, home in homes().items() if name in function.imported - at_hand}
    source = untyped(function.text)
    lines = [line.encode() for line in source.splitlines()]  # offsets of ast are in bytes
    places = {
        (node.lineno - 1, node.col_offset, reached[node.id])
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Name) and node.id in reached
    }
    for line, column, home in sorted(places, reverse=True):
        lines[line] = lines[line][:column] + home.encode() + lines[line][column:]
    text = re.sub(r" *# noqa.*", "", b"\n".join(lines).decode())
    ruff = str(Path(sys.executable).with_name("ruff"))
    command = [ruff, "format", "--config", str(book.ROOT / "book/ruff.toml"), "-"]
    try:
        done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True)
    except FileNotFoundError as error:
        raise MissingError("ruff is not installed", "every chapter", "pip install ruff") from error
    return done.stdout.rstrip("\n")


def untyped(text: str) -> str:
    """The text of a function without types: a chapter is easier to read, and Python asks for none.

    A function that TVM reads, with a decorator such as `@T.prim_func`, keeps its types, which are
    part of the kernel.
    """
    text = CHECKS.sub("", text)
    source, tree = text.encode(), ast.parse(text)
    starts = [0, *itertools.accumulate(len(line) + 1 for line in source.split(b"\n"))]
    for start, end, new in sorted(cuts(tree), reverse=True):
        first, last = (starts[line - 1] + column for line, column in (start, end))
        source = source[:first] + new + source[last:]
    # A comma behind the last parameter would keep each of them on a line of its own.
    one_each = re.compile(rb"(def \w+\([^()]*[^(),\s]),(\s*\):\n)")
    return (one_each.sub(rb"\1\2", source) if source != text.encode() else source).decode()


def cuts(tree: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int], bytes]]:
    """Where the types of a source begin and end, and what takes their place."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            if any(ast.unparse(d).startswith("T.") for d in node.decorator_list):
                continue
            yield from signature(node)
        yield from cuts(node)


def signature(
    function: ast.FunctionDef,
) -> Iterator[tuple[tuple[int, int], tuple[int, int], bytes]]:
    """As `cuts`, of one function's parameters and of what it returns."""
    every = function.args
    plain = [*every.posonlyargs, *every.args]
    defaults = [None] * (len(plain) - len(every.defaults)) + every.defaults + every.kw_defaults
    named = [*plain, *every.kwonlyargs]
    values = dict(zip((argument.arg for argument in named), defaults, strict=True))
    for argument in filter(None, (*named, every.vararg, every.kwarg)):
        if kind := argument.annotation:
            start = argument.lineno, argument.col_offset + len(argument.arg.encode())
            value = values.get(argument.arg)
            end = (value.lineno, value.col_offset) if value else _end(kind)
            yield start, end, b"=" if value else b""
    if kind := function.returns:  # from the " -> " on
        yield (kind.lineno, kind.col_offset - len(" -> ")), _end(kind), b""


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0


def rewritten(source: str, at_hand: set[str]) -> str:
    """The source of a cell with the package's text of each function in it.

    Raises:
        ValueError: the package has no such function with a comment above it, or several.
    """
    lines = source.splitlines()
    for name, start, end in reversed(definitions(source)):
        found = [function for function in package().get(name, ()) if function.chapters]
        if len(found) != 1:
            raise ValueError(
                f"{name} is {len(found)} times in the package; expected one function in "
                "d2ltvm/schedules or d2ltvm/hopper with `# From part/chapter.` above it"
            )
        lines[start:end] = for_a_reader(found[0], at_hand).splitlines()
    return "\n".join(lines)


def rewrite(notebook: Any) -> Iterator[tuple[Any, str]]:
    """Cells of a chapter that differ from the package, each with the source it should have."""
    at_hand = bound(notebook)
    for cell in cells(notebook):
        source = rewritten(cell.source, at_hand)
        if source != cell.source:
            yield cell, source


def cells(notebook: Any) -> list[Any]:
    """Cells of a chapter that define what the package has."""
    return [cell for cell in book.code_cells(notebook) if "schedules" in book.tags(cell)]


def chapter_name(path: Path) -> str:
    """How comments name a chapter: 'elementwise/vector_add'."""
    return path.relative_to(book.ROOT / "book").with_suffix("").as_posix()


def main() -> None:
    """Rewrite what differs, and say which chapters that were."""
    for path in book.chapters():
        notebook = book.read(path)
        changes = [*rewrite(notebook), *skeletons.rewrite(notebook)]
        for cell, source in changes:
            cell.source = source
        if changes:
            book.write(path, notebook)
            print(f"{path.relative_to(book.ROOT)}: {len(changes)} cells; now `make notebooks`")


if __name__ == "__main__":
    book.no_arguments(__doc__)
    main()
