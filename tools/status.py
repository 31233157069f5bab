"""Write book/status.md: versions, when each chapter last ran and how long it took, the records."""

from collections.abc import Iterator

import book
from d2ltvm.bench import records

HEAD = """# Status

Each chapter is run from top to bottom before it is committed, and again by `pytest --nbval` before
every change is taken. This page is made from the notebooks and the records when the book is built.
"""


def main() -> None:
    """Write the page."""
    text = "\n".join([HEAD, *_chapters(), "", *_records(), ""])
    book.write_page(book.ROOT / "book" / "status.md", text)


def _chapters() -> Iterator[str]:
    yield "## Chapters\n"
    yield "| Chapter | Last run | Seconds | Python | TVM | NumPy | MXNet |"
    yield "| --- | --- | ---: | --- | --- | --- | --- |"
    for path in book.chapters():
        notebook = book.read(path)
        ran = notebook.metadata["d2ltvm"]
        link = f"[{book.title(notebook)}]({path.relative_to(book.ROOT / 'book')})"
        versions = [ran["versions"].get(p, "none") for p in ("apache-tvm", "numpy", "mxnet")]
        cells = [
            link,
            _unbroken(ran["executed"]),
            f"{ran['seconds']:.1f}",
            ran["python"],
            *versions,
        ]
        yield "| " + " | ".join(cells) + " |"


def _records() -> Iterator[str]:
    yield "## Records\n"
    yield "What was measured on a GPU, by `make record`.\n"
    yield "| Record | Device | Driver, CUDA | Date | TVM | PyTorch |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for path in sorted(records.MEASUREMENTS.glob("*/*.json")):
        for r in records.stored_records(path):
            device, software = r["device"], r["software"]
            cells = [
                f"{path.stem}/{r['name']}",
                device["name"],
                f"{device['driver']}, {device['cuda']}",
                _unbroken(r["date"]),
                software.get("apache-tvm", ""),
                software.get("torch", ""),
            ]
            yield "| " + " | ".join(cells) + " |"


def _unbroken(date: str) -> str:
    """A date that stays on one line."""
    return date.replace("-", "\N{NON-BREAKING HYPHEN}")


if __name__ == "__main__":
    book.no_arguments(__doc__)
    main()
