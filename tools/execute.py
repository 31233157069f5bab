"""Run chapters and keep their outputs.

    python tools/execute.py                          every chapter, in order
    python tools/execute.py book/intro.ipynb         one
    python tools/execute.py --record                 on a GPU: write book/measurements instead
    python tools/execute.py --record --only a/b,a/c  the same, of these records alone
    python tools/execute.py --stamp                  run nothing: write the first cells anew

`python -m d2ltvm record` calls it with --record, once for each chapter, and says what it is at.

A notebook is written when all of it ran, and not before. One that cannot be run is named, and those
behind it are run.
"""

import argparse
import datetime
import os
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import book

# The live part of a figure that can be touched: it stands for a process that has ended.
VIEW = "application/vnd.jupyter.widget-view+json"
VERSIONS = ("apache-tvm", "apache-tvm-ffi", "numpy", "mxnet", "matplotlib")


def main(argv: list[str] | None = None) -> int:
    """Run what the command line says. Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("chapters", nargs="*", type=Path, help="paths; all by default")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--record", action="store_true", help="write records, not notebooks")
    what.add_argument(
        "--stamp", action="store_true", help="write the first cells anew, run nothing"
    )
    parser.add_argument("--only", metavar="NAMES", help="records to write; all by default")
    options = parser.parse_args(argv)
    if options.only and not options.record:
        parser.error("--only says which records are written; expected --record with it")
    # The notebooks' own processes find the package without its being installed.
    paths = [str(book.ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if options.record:
        os.environ["D2LTVM_RECORD"] = options.only or "1"
    failed = 0
    for path in options.chapters or book.chapters():
        try:
            stamp_file(path) if options.stamp else execute(path, keep=not options.record)
        except CellExecutionError as error:  # which shows the cell and what it raised
            failed += 1
            print(f"{path}: {error}", file=sys.stderr)
        except Exception as error:  # no such file, no notebook, a kernel that died, a full disk
            failed += 1
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"{path}: {reason}", file=sys.stderr)
    return 1 if failed else 0


def execute(path: Path, keep: bool) -> None:
    """Run a notebook, write it where it is to be kept, and say how long it took."""
    start = time.perf_counter()
    notebook = run(path)
    seconds = time.perf_counter() - start
    if keep:
        write(notebook, path, seconds)
    print(f"{path}: {seconds:.1f} s", flush=True)


def stamp_file(path: Path) -> None:
    """Write the first cell of a notebook anew, and leave the rest of the file as it is."""
    notebook = book.read(path)
    before = nbformat.writes(notebook)
    stamp(notebook)
    if nbformat.writes(notebook) != before:
        book.write(path, notebook)
        print(f"{path}: stamped")


def run(path: Path) -> Any:
    """The notebook at `path` with its first cell stamped and every cell run, in its own folder."""
    notebook = book.read(path)
    stamp(notebook)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    client = NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": str(Path(path).resolve().parent)}},
        record_timing=False,
        coalesce_streams=True,  # how a stream was cut is chance
    )
    return client.execute()


def stamp(notebook: Any) -> None:
    """Put the Colab cell first."""
    first = notebook.cells[0]
    if "remove-cell" not in book.tags(first):
        first = nbformat.v4.new_code_cell(metadata={"tags": ["remove-cell"]})
        notebook.cells.insert(0, first)
    first.source = book.colab_cell()


def write(notebook: Any, path: Path, seconds: float) -> None:
    """Write a notebook that ran, with nothing in it that changes from run to run for no reason."""
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:03}"
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(VIEW, None)
    notebook.metadata = nbformat.NotebookNode(
        kernelspec={"display_name": "Python 3", "language": "python", "name": "python3"},
        language_info={"name": "python"},
        d2ltvm={
            "executed": datetime.date.today().isoformat(),
            "seconds": round(seconds, 1),
            "python": ".".join(str(part) for part in sys.version_info[:3]),
            "versions": {p: version for p in VERSIONS if (version := _version(p))},
        },
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    nbformat.validate(notebook)
    book.write(path, notebook)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
