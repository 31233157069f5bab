"""The glossary: a chapter that uses a term before the one that introduces it links to it.

Likewise the primitives: a chapter that calls one in its code links to the page that shows them.
"""

import re
from typing import NamedTuple

import pytest

import book

GLOSSARY = book.ROOT / "book" / "glossary.md"
ROW = re.compile(r"^\| ([^|]+?) \| ([^|]+) \| \[([^]]+)\]\(([^)]+)\) \|$", re.M)
PRIMITIVES = "appendix/primitives.ipynb"
CHAPTERS = {path.relative_to(GLOSSARY.parent).as_posix(): path for path in book.chapters()}


class Term(NamedTuple):
    """A row of the glossary."""

    name: str
    meaning: str
    title: str
    home: str


TERMS = [Term(*row) for row in ROW.findall(GLOSSARY.read_text())]


def prose(path):
    """What a chapter says outside of its code."""
    cells = (cell.source for cell in book.read(path).cells if cell.cell_type == "markdown")
    return re.sub(r"```.*?```|`[^`]*`|<!--.*?-->", "", "\n".join(cells), flags=re.S)


def pattern(name):
    return rf"\b{re.escape(name)}(?:s|es)?\b"


def too_early(text, name):
    """Whether a text uses a term and does not link it to the glossary."""
    links = re.findall(r"\[([^]]*)\]\([^)]*glossary\.md\)", text)
    used = re.search(pattern(name), re.sub(r"\[[^]]*\]\([^)]*\)", "", text), re.I)
    return bool(used) and not any(re.search(pattern(name), link, re.I) for link in links)


def test_every_row_is_read():
    rows = [line for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")]
    tables = sum(line.startswith("| term") for line in rows)
    assert len(TERMS) == len(rows) - 2 * tables > 40
    assert len({term.name for term in TERMS}) == len(TERMS)


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.name)
def test_a_term_is_introduced_where_the_glossary_says(term):
    text = prose(CHAPTERS[term.home])
    assert f"# {term.title}\n" in f"{text}\n"
    emphasised = re.findall(r"\*+([^*\n]+)\*+|\(([A-Z]+)\)", text)
    words = [word for pair in emphasised for word in pair]
    assert any(re.search(pattern(term.name), word, re.I) for word in words)
    assert len(term.meaning) < 110 and term.meaning.endswith(".")


@pytest.mark.parametrize("path", CHAPTERS)
def test_a_chapter_uses_no_term_before_it_is_introduced(path):
    order, text = list(CHAPTERS), prose(CHAPTERS[path])
    later = [term for term in TERMS if order.index(term.home) > order.index(path)]
    assert not [term.name for term in later if too_early(text, term.name)]


def test_a_term_that_comes_too_early_is_found():
    assert too_early("A Warp waits.", "warp") and too_early("Two warps.", "warp")
    assert not too_early("It is warped.", "warp")
    assert not too_early("A [warp](../glossary.md) waits; warps do.", "warp")
    assert too_early("A [warp](../machine/other.ipynb) waits; warps do.", "warp")


def primitives():
    """What has a box on the page of the primitives: the names of its headings."""
    headings = re.findall(r"^### ([a-z_, ]+)", markdown(book.read(CHAPTERS[PRIMITIVES])), re.M)
    return {name for heading in headings for name in heading.split(", ")}


def markdown(notebook):
    """All that a chapter says between its cells, with its links."""
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def without_a_link(notebook):
    """The primitives that a chapter calls, if it links none to their page."""
    code = "\n".join(cell.source for cell in book.code_cells(notebook))
    called = primitives() & set(re.findall(r"\bsch\w*\.(\w+)\(", code))
    return set() if re.search(r"\]\([^)]*primitives\.ipynb", markdown(notebook)) else called


def test_each_primitive_has_a_box():
    assert {"split", "bind", "cache_write", "reverse_compute_at", "annotate"} <= primitives()


@pytest.mark.parametrize("path", sorted(set(CHAPTERS) - {PRIMITIVES}))
def test_a_chapter_that_calls_a_primitive_links_to_them(path):
    called = without_a_link(book.read(CHAPTERS[path]))
    assert not called, f"link the first of {sorted(called)} to its section of {PRIMITIVES}"


def test_a_chapter_without_a_link_to_the_primitives_is_found():
    chapter = book.read(CHAPTERS["start/first_kernel.ipynb"])
    assert without_a_link(chapter) == set()
    for cell in chapter.cells:
        cell.source = cell.source.replace("primitives.ipynb", "elsewhere.ipynb")
    assert without_a_link(chapter) == {"split", "bind"}
