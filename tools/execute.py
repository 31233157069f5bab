"""Run chapters and keep their outputs, or, with --record, measure and keep the records.

    python tools/execute.py                          every chapter, in order
    python tools/execute.py book/intro.ipynb         one
    python tools/execute.py --record                 on a GPU: write book/measurements instead

A notebook is written when all of it ran, and not before.
"""

import argparse
import datetime
import os
import sys
import time
from importlib import metadata
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import book

VERSIONS = ("apache-tvm", "apache-tvm-ffi", "numpy", "mxnet", "matplotlib")


def main(argv=None):
    """Run what the command line says. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chapters", nargs="*", type=Path, help="paths; all by default")
    parser.add_argument("--record", action="store_true", help="write records, not notebooks")
    options = parser.parse_args(argv)
    # The notebooks' own processes find the package without its being installed.
    paths = [str(book.ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if options.record:
        os.environ["D2LTVM_RECORD"] = "1"
    failed = []
    for path in options.chapters or book.chapters():
        start = time.perf_counter()
        try:
            notebook = run(path)
        except CellExecutionError as error:
            failed.append(path)
            print(f"{path}: {error}", file=sys.stderr)
            continue
        seconds = time.perf_counter() - start
        if not options.record:
            write(notebook, path, seconds)
        print(f"{path}: {seconds:.1f} s", flush=True)
    return 1 if failed else 0


def run(path):
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
    )
    return client.execute()


def stamp(notebook):
    """Put the Colab cell first."""
    first = notebook.cells[0]
    if "remove-cell" not in book.tags(first):
        first = nbformat.v4.new_code_cell(metadata={"tags": ["remove-cell"]})
        notebook.cells.insert(0, first)
    first.source = book.colab_cell()


def write(notebook, path, seconds):
    """Write a notebook that ran, with nothing in it that changes from run to run for no reason."""
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:03}"
        if cell.cell_type == "code":
            cell.outputs = merged(cell.outputs)
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
    partial = Path(path).with_suffix(".partial")
    nbformat.write(notebook, partial)
    partial.replace(path)


def merged(outputs):
    """Outputs with neighbouring pieces of one stream joined: how they were cut is chance."""
    kept = []
    for output in outputs:
        last = kept[-1] if kept else None
        if (
            last is not None
            and output.output_type == last.output_type == "stream"
            and output.name == last.name
        ):
            last.text += output.text
        else:
            kept.append(output)
    return kept


def _version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
