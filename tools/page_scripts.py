"""Write what the pages need for figures that can be touched: one script, one style sheet.

    python tools/page_scripts.py

They go into book/_static/explore, where the site takes them from; `make book` calls this. The
shaders of each kernel that runs on a reader's GPU go into book/_static/kernels, a script each.
"""

import shutil

import book
from d2ltvm.explore import kernels, scripts
from d2ltvm.system import files

FOLDER = book.ROOT / "book" / "_static" / "explore"


def main() -> None:
    """Write all of them anew."""
    FOLDER.mkdir(exist_ok=True)
    files.write(FOLDER / "explore.js", scripts.bundle("page.js"))
    shutil.copy(scripts.STYLE, FOLDER / "explore.css")
    kernels.write(FOLDER.parent / "kernels")


if __name__ == "__main__":
    book.no_arguments(__doc__)
    main()
