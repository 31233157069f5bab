"""Numbers in the text that come from records: check them, or with --fix write them anew.

A number in a Markdown cell (or in README.md) is followed by a comment with the expression it comes
from, which a reader does not see:

    the copy reaches 4.26<!--= rec("gpu_in_numbers/ceilings").at("TB/s", "copy"):.2f --> TB/s

Before the last colon stands a Python expression, in which `rec` loads a record and `chip` a data
sheet; after it, a format. A number that nobody measured is followed by the comment "given".
"""

import argparse
import re
import sys

import nbformat
import numpy as np

import book

NUMBER = re.compile(r"(?P<shown>[^\s(|*]+)<!--=\s*(?P<expression>.+?):(?P<form>[^:]*?)\s*-->")


def rec(name):
    """The stored record of that name."""
    from d2ltvm.bench import records

    return records.load_record(name)


def value(expression, form):
    """What an expression comes to, as text."""
    from d2ltvm.system import chips

    names = {"rec": rec, "chip": chips.chip, "np": np, "min": min, "max": max}
    return format(eval(expression, names), form)


def disagreements(text):
    """(shown, expected, expression) of every number in a text that is not what its record says."""
    found = []
    for match in NUMBER.finditer(text):
        expected = value(match["expression"], match["form"])
        if match["shown"] != expected:
            found.append((match["shown"], expected, match["expression"]))
    return found


def fixed(text):
    """The text with every number as its record says."""

    def replace(match):
        whole, shown = match.group(), match["shown"]
        return value(match["expression"], match["form"]) + whole[len(shown) :]

    return NUMBER.sub(replace, text)


def main(argv=None):
    """Check, or fix. Returns the exit status: 1 where something disagreed and was not mended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fix", action="store_true", help="write the numbers anew")
    fix = parser.parse_args(argv).fix
    wrong = 0
    for path in [*book.chapters(), book.ROOT / "README.md"]:
        notebook = book.read(path) if path.suffix == ".ipynb" else None
        cells = [c for c in notebook.cells if c.cell_type == "markdown"] if notebook else [None]
        for cell in cells:
            text = cell.source if cell else path.read_text()
            for shown, expected, expression in disagreements(text):
                wrong += 1
                print(f"{path.relative_to(book.ROOT)}: {shown} should be {expected}: {expression}")
            if fix and cell:
                cell.source = fixed(text)
            elif fix:
                path.write_text(fixed(text))
        if fix and notebook:
            nbformat.write(notebook, path)
    return 1 if wrong and not fix else 0


if __name__ == "__main__":
    sys.path.insert(0, str(book.ROOT))
    sys.exit(main())
