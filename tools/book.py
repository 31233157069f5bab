"""What the tools and the tests share: where chapters are, and the first cell of each."""

import re
from pathlib import Path

import nbformat
import yaml

ROOT = Path(__file__).resolve().parent.parent

COLAB_CELL = """\
# In Colab: fetch the book, install what it needs, make the GPU usable. Elsewhere: nothing.
import sys

if "google.colab" in sys.modules:
    !test -d /content/book || git clone -q --depth 1 {url} /content/book
    !pip install -q -r /content/book/requirements-colab.txt
    sys.path.insert(0, "/content/book")
    from d2ltvm.system import colab

    colab.prepare()"""


def chapters():
    """Paths of the chapters that are notebooks, in the order of _toc.yml."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    files = [toc["root"], *(c["file"] for part in toc["parts"] for c in part["chapters"])]
    paths = (ROOT / f"{name}.ipynb" for name in files)
    return [
        path for path in paths if not (path.with_suffix(".md")).exists() and path.stem != "status"
    ]


def colab_cell():
    """Source of the first cell of every chapter, with the repository's address from _config.yml."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    return COLAB_CELL.format(url=config["repository"]["url"])


def read(path):
    """A notebook from a file."""
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    """Its code cells that hold code."""
    return [c for c in notebook.cells if c.cell_type == "code" and c.source.strip()]


def tags(cell):
    """The tags of a cell, a list."""
    return cell.metadata.get("tags", [])


def title(notebook):
    """The first heading of a notebook."""
    text = "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    return re.search(r"^# (.+)$", text, re.M).group(1)
