"""Numbers in the text that come from records: check them, or with --fix write them anew.

A number in a Markdown cell (or in README.md) is followed by a comment with the expression it comes
from, which a reader does not see:

    the copy reaches 4.26<!--= rec("gpu_in_numbers/ceilings").at("TB/s", "copy"):.2f --> TB/s

Before the last colon stands an expression, as tools/expressions.py takes it: `rec` loads a record,
`chip` a data sheet, and `printed` has a number of the page's own outputs. After it stands a format.
A number that nobody measured is followed by the comment "given".
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import expressions

import book
from d2ltvm.errors import MissingError
from d2ltvm.system import files

START = "<!--="
NUMBER = re.compile(r"(?P<shown>[^\s(|*]+)<!--=\s*(?P<expression>.+?):(?P<form>[^:]*?)\s*-->")
LONG = 4  # digits
FORM = re.compile(r"\+?,?\.\d[f%]")


def value(expression: str, form: str, outputs: str = "") -> str:
    """What an expression comes to, as text.

    >>> value("2 / 3", ".1%")
    '66.7%'

    Raises:
        ValueError: it cannot be worked out, or the format is not that of a number; the message
            begins with the expression.
        MissingError: there is no such record.
    """
    try:
        if not FORM.fullmatch(form):
            raise ValueError(f"the format is {form!r}; expected one such as '.2f', ',.0f' or '.1%'")
        return format(expressions.evaluate(expression, outputs), form)
    except ValueError as error:
        raise ValueError(f"{expression}: {error}") from error


def disagreements(text: str, outputs: str = "") -> list[tuple[str, str, str]]:
    """(shown, expected, expression) of every number in a text that is not what its record says.

    Args:
        text: Markdown.
        outputs: what the page prints.

    Raises:
        ValueError, MissingError: as for `value`; or a comment that is not as above.
    """
    if text.count(START) != len(NUMBER.findall(text)):
        whole = {match.end("shown") for match in NUMBER.finditer(text)}
        at = next(m.start() for m in re.finditer(START, text) if m.start() not in whole)
        comment = text[at : at + 60].splitlines()[0]
        raise ValueError(f"{comment}: expected 'number<!--= expression:format -->' on one line")
    found = []
    for match in NUMBER.finditer(text):
        expected = value(match["expression"], match["form"], outputs)
        if match["shown"] != expected:
            found.append((match["shown"], expected, match["expression"]))
    return found


def copied(text: str, page: str) -> Iterator[str]:
    """Long numbers in a text's expressions that the page neither computes with nor prints.

    Nobody would notice if they changed. What picks a value of a record does not count.

    >>> list(copied("0.45<!--= 1234.5 / 2751:.2f -->", "of 2,751 instructions"))
    ['1234.5']

    Args:
        text: Markdown.
        page: the page's code, and what it prints.
    """
    there = {_digits(number) for number in expressions.NUMBER.findall(page)}
    for match in NUMBER.finditer(text):
        tree = ast.parse(match["expression"], mode="eval")
        calls = (call for call in ast.walk(tree) if isinstance(call, ast.Call))
        picked = [n for c in calls if isinstance(c.func, ast.Attribute) for n in ast.walk(c)]
        for node in ast.walk(tree):
            number = node.value if isinstance(node, ast.Constant) and node not in picked else ""
            if isinstance(number, int | float) and not _of_two(number):
                digits = _digits(str(number))
                if len(digits) >= LONG and digits not in there:
                    yield str(number)


def _of_two(number: float) -> bool:
    """Whether it is a power of two, or one less: sizes, and their last element."""
    return number in (2**k - less for k in range(40) for less in (0, 1))


def _digits(number: str) -> str:
    """Those that count: 1,024 and 1.024e3 are the same number but for its unit."""
    return re.sub(r"[eE].*|\D", "", number).strip("0")


def fixed(text: str, outputs: str = "") -> str:
    """The text with every number as its record says."""

    def replace(match: re.Match[str]) -> str:
        whole, shown = match.group(), match["shown"]
        return value(match["expression"], match["form"], outputs) + whole[len(shown) :]

    return NUMBER.sub(replace, text)


def main(argv: list[str] | None = None) -> int:
    """Check, or fix. Returns the exit status: 1 where something is wrong and was not mended."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fix", action="store_true", help="write the numbers anew")
    fix = parser.parse_args(argv).fix
    wrong = 0
    for path in [*book.chapters(), book.ROOT / "README.md"]:
        name = path.relative_to(book.ROOT)
        try:
            outputs = outputs_of(path)
            found = [line for text in texts(path) for line in disagreements(text, outputs)]
            if found and fix:
                rewrite(path)
        except (ValueError, MissingError, OSError) as error:
            wrong += 1
            print(f"{name}: {error}", file=sys.stderr)
            continue
        wrong += 0 if fix else len(found)
        for shown, expected, expression in found:
            print(f"{name}: {shown} should be {expected}: {expression}")
    return 1 if wrong else 0


def texts(path: Path) -> Iterator[str]:
    """The Markdown of a chapter, cell by cell, or of a file."""
    if path.suffix != ".ipynb":
        yield path.read_text()
        return
    yield from (c.source for c in book.read(path).cells if c.cell_type == "markdown")


def outputs_of(path: Path) -> str:
    """What a chapter prints; of another file, nothing."""
    return book.outputs(book.read(path)) if path.suffix == ".ipynb" else ""


def rewrite(path: Path) -> None:
    """Write a chapter, or a file, with the numbers that its records say."""
    if path.suffix != ".ipynb":
        files.write(path, fixed(path.read_text()))
        return
    notebook = book.read(path)
    outputs = book.outputs(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = fixed(cell.source, outputs)
    book.write(path, notebook)


if __name__ == "__main__":
    sys.exit(main())
