"""Draw the scoreboard of the records for README.md: book/_static/scoreboard.png."""

import json
import sys
from unittest import mock

import matplotlib

import book

PICTURE = book.ROOT / "book" / "_static" / "scoreboard.png"


def rows():
    """The rows of the scoreboard that are records of a GPU."""
    from d2ltvm.bench import records, scoreboard

    chosen = [w for w in scoreboard.workloads() if w.device == "cuda"]
    return [
        row
        for w in chosen
        for row in scoreboard.rows(w, records.load_record(f"scoreboard/{w.key}"))
    ]


def content():
    """What the picture shows, as text that is kept inside of it."""
    return json.dumps({row["workload"]: round(row["ratio"], 4) for row in rows()})


def main():
    """Write the picture."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from d2ltvm.bench import scoreboard

    with mock.patch.object(plt, "show"):
        scoreboard.draw(rows())
    plt.gcf().savefig(PICTURE, dpi=150, metadata={"Description": content()})


if __name__ == "__main__":
    sys.path.insert(0, str(book.ROOT))
    main()
