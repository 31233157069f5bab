"""Build the site, as HTML, on all processors, with warnings as errors.

    python tools/build_site.py

`make book` calls this. What Sphinx read is kept, so that a page that did not change is not read
again. No warning is lost by that: all pages are written anew, which looks up all their references;
what was read is kept only after a build without a warning; and it is kept for the same tools,
settings, versions and bibliography. Remove `_build` to read everything anew.
"""

import functools
import gc
import hashlib
import os
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import api_page
import page_scripts
import pybtex.plugin
import sphinx_multitoc_numbering
import status
from jupyter_book.sphinx import build_sphinx

import book
from d2ltvm.system import files

BUILD = book.ROOT / "_build"
KEPT_FOR = "kept_for.txt"
# What every page follows from, beside its own source.
SETTINGS = ("_config.yml", "_toc.yml", "book/references.bib", "tools/*.py")


def settings(root: Path = book.ROOT) -> str:
    """A digest of what every page follows from: settings, tools, and what is installed."""
    parts = [path.read_bytes() for name in SETTINGS for path in sorted(root.glob(name))]
    parts += sorted(f"{d.name} {d.version}".encode() for d in metadata.distributions())
    return hashlib.sha256(b"\0".join([sys.version.encode(), *parts])).hexdigest()


def forget(build: Path, unless_for: str = "") -> None:
    """Remove the built site, and what was read, unless that is of a whole build so set."""
    shutil.rmtree(build / "html", ignore_errors=True)
    mark = build / KEPT_FOR
    if not (unless_for and mark.exists() and mark.read_text() == unless_for):
        shutil.rmtree(build, ignore_errors=True)
    mark.unlink(missing_ok=True)


def write_pages() -> None:
    """Write what is made from the package and the records; a page that stays keeps its time."""
    api_page.main()
    status.main()
    page_scripts.main()


def in_parallel(setup: Any) -> Any:
    """A setup of an extension that does not say that pages may be read by several processes.

    This one numbers headings, after all pages are read.
    """
    return lambda app: {**(setup(app) or {}), "parallel_read_safe": True}


def main() -> int:
    """Build it; 0 where nothing was warned of."""
    # Sphinx makes millions of nodes that stay; a search among them for what can go takes a fifth
    # of the time, and finds little.
    gc.set_threshold(500_000, 50, 100)
    sphinx_multitoc_numbering.setup = in_parallel(sphinx_multitoc_numbering.setup)
    pybtex.plugin.entry_points = functools.cache(pybtex.plugin.entry_points)
    kept_for = settings()
    forget(BUILD, unless_for=kept_for)
    write_pages()
    result = build_sphinx(
        book.ROOT,
        BUILD / "html",
        noconfig=True,
        path_config=book.ROOT / "_config.yml",
        confoverrides={
            "nitpicky": True,
            "external_toc_path": str(book.ROOT / "_toc.yml"),
            "latex_individualpages": False,
        },
        warningiserror=True,
        keep_going=True,
        quiet=True,
        jobs=len(os.sched_getaffinity(0)),
    )
    if result == 0:
        files.write(BUILD / KEPT_FOR, kept_for)
    return int(result != 0)


if __name__ == "__main__":
    book.no_arguments(__doc__)
    sys.exit(main())
