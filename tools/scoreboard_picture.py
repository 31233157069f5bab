"""Draw the scoreboard of the records for README.md: book/_static/scoreboard.png."""

import io
import json
from typing import Any
from unittest import mock

import matplotlib

import book
from d2ltvm.bench import records, scoreboard
from d2ltvm.system import files

PICTURE = book.ROOT / "book" / "_static" / "scoreboard.png"


def rows() -> list[dict[str, Any]]:
    """The rows of the scoreboard that the book's first page shows, from their records."""
    found = []
    for work in scoreboard.in_short():
        name = work.name if isinstance(work, scoreboard.Race) else f"scoreboard/{work.key}"
        found += scoreboard.rows(work, records.load_record(name))
    return found


def content() -> str:
    """What the picture shows, as text that is kept inside of it."""
    return json.dumps({row["workload"]: round(row["ratio"], 4) for row in rows()})


def main() -> None:
    """Write the picture."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    with mock.patch.object(plt, "show"):
        scoreboard.draw(rows())
    picture = io.BytesIO()
    plt.gcf().savefig(picture, dpi=150, metadata={"Description": content()})
    files.write(PICTURE, picture.getvalue())


if __name__ == "__main__":
    book.no_arguments(__doc__)
    main()
