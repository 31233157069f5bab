"""What the tools and the tests share: where chapters are, the first cell of each, how to write one.

Whoever imports it finds the package, installed or not.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

# jsonschema, which reads notebooks, takes 2 s to import it, for a format that no notebook has.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

import nbformat  # noqa: E402
import yaml  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import d2ltvm  # noqa: E402
from d2ltvm.system import environment, files  # noqa: E402

COLAB_CELL = """\
# In Colab: fetch the book, install what it needs, make the GPU usable. Elsewhere: nothing.
import sys

if "google.colab" in sys.modules:
    !test -d /content/book || \\
        git clone -q --depth 1 -b v{version} -c advice.detachedHead=false {url} /content/book
    !pip install -q -r /content/book/requirements-colab.txt
    sys.path.insert(0, "/content/book")
    from d2ltvm.system import colab

    colab.prepare()"""


def no_arguments(doc: str | None) -> None:
    """Answer `--help` with a tool's docstring, and refuse any other argument, before it writes."""
    how = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=doc, formatter_class=how).parse_args()


def write_page(path: Path, text: str, after: float = 0) -> None:
    """Write a page, unless it says this already, and was written after that time.

    Sphinx reads again what was written again.
    """
    if not (path.exists() and path.stat().st_mtime > after and path.read_text() == text):
        files.write(path, text)


def chapters() -> list[Path]:
    """Paths of the chapters that are notebooks, in the order of _toc.yml."""
    return list(environment.chapters().values())


def colab_cell() -> str:
    """Source of the first cell of every chapter: it fetches the release that the chapter is of.

    The repository's address is that of _config.yml, the release's tag is v and the version.
    """
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    return COLAB_CELL.format(url=config["repository"]["url"], version=d2ltvm.__version__)


def read(path: str | Path) -> Any:
    """A notebook from a file."""
    return nbformat.read(path, as_version=4)


def outputs(notebook: Any) -> str:
    """What the cells of a notebook print, one behind the other."""
    every = [o for cell in notebook.cells for o in cell.get("outputs", [])]
    return "\n".join(o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in every)


def write(path: Path, notebook: Any) -> None:
    """Write a notebook into a file, whole or not at all."""
    files.write(path, nbformat.writes(notebook) + "\n")


def code_cells(notebook: Any) -> list[Any]:
    """Its code cells that hold code."""
    return [c for c in notebook.cells if c.cell_type == "code" and c.source.strip()]


def tags(cell: Any) -> list[str]:
    """The tags of a cell, a list."""
    return list(cell.metadata.get("tags", []))


def title(notebook: Any) -> str:
    """The first heading of a notebook."""
    text = "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    found = re.search(r"^# (.+)$", text, re.M)
    if found is None:
        raise ValueError("a notebook has no heading; expected one, '# Title', in its Markdown")
    return found[1]
