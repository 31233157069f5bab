"""Write the skeleton of a chapter, and add it to the table of contents.

    python tools/new_chapter.py elementwise/reduce "Sums"

It has what tests/test_notebooks.py asks of a chapter; what is in <angle brackets> you write.
"""

import argparse
import re
import sys

import nbformat

import book
from d2ltvm.system import files

TOC = book.ROOT / "_toc.yml"

OPENING = """# {title}

<The question of this chapter, in two sentences, and why a reader should care.>"""

BEATS = """## <What the schedule changes>

<What it changes, as loop nest and as CUDA. Then why it should help: a prediction in numbers. Then
whether it is right, at sizes that do not divide too. Then whether it helped, beside the library and
beside the prediction.>"""

CODE = """import d2ltvm

sch = d2ltvm.schedules.vectorized(1000)
print(d2ltvm.loop_nest(sch))"""

CHECK = """import numpy as np

for n in (1024, 1000):
    kernel = d2ltvm.build(d2ltvm.schedules.vectorized(n))
    a, b, _ = d2ltvm.get_abc(n)
    print(n, d2ltvm.check(kernel, (a, b), np.add) < 1e-6)"""

EXERCISE = """### Exercise {number}

<A question whose answer the reader can compute or run.>"""

SOLUTION = "print({number})  # <the solution, run>"


def skeleton(title: str) -> nbformat.NotebookNode:
    """A notebook with a place for everything that a chapter has."""
    text, code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
    cells = [
        code(book.colab_cell(), metadata={"tags": ["remove-cell"]}),
        text(OPENING.format(title=title)),
        text(BEATS),
        code(CODE),
        code(CHECK),
        text("## Summary\n\n- <What the reader knows now, in a line each.>"),
        text("## Exercises"),
    ]
    for number in (1, 2, 3):
        cells.append(text(EXERCISE.format(number=number)))
        folded = {"tags": ["hide-cell"]}
        cells.append(code(SOLUTION.format(number=number), metadata=folded))
    return nbformat.v4.new_notebook(cells=cells)


def with_chapter(toc: str, name: str) -> str:
    """The table of contents with a chapter behind the others of its part."""
    part = name.partition("/")[0]
    others = list(re.finditer(rf"^( +- file: book/){part}/\w+\n", toc, re.M))
    if not others:
        parts = sorted(set(re.findall(r"file: book/(\w+)/", toc)))
        raise ValueError(f"part is {part!r}; expected one of {', '.join(parts)}")
    last = others[-1]
    return toc[: last.end()] + f"{last[1]}{name}\n" + toc[last.end() :]


def main(argv: list[str] | None = None) -> int:
    """Write it. Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", help="part/name, such as elementwise/reduce")
    parser.add_argument("title", help="its heading")
    options = parser.parse_args(argv)
    path = book.ROOT / "book" / f"{options.name}.ipynb"
    try:
        if not re.fullmatch(r"[a-z0-9_]+/[a-z0-9_]+", options.name):
            raise ValueError(f"name is {options.name!r}; expected part/name in small letters")
        if not options.title.strip():
            raise ValueError("title is empty; expected the chapter's heading")
        if path.exists():
            raise ValueError(f"name is {options.name!r}, which is there; expected a new one")
        toc = with_chapter(TOC.read_text(), options.name)
    except ValueError as error:
        parser.error(str(error))
    book.write(path, skeleton(options.title))
    files.write(TOC, toc)
    print(f"book/{options.name}.ipynb is there, and in _toc.yml. Write it, and then:")
    print(f"make notebooks CHAPTERS=book/{options.name}.ipynb")
    return 0


if __name__ == "__main__":
    sys.exit(main())
