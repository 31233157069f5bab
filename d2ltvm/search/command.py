"""`python -m d2ltvm search matmul --size 512 --trials 64`: search, keep, print what is found."""

import argparse
import sys
from pathlib import Path
from typing import Any

from d2ltvm.errors import MissingError
from d2ltvm.search.spaces import space
from d2ltvm.search.text import as_text
from d2ltvm.search.tune import Bench, Trial, search
from d2ltvm.search.workloads import Workload, workload

SIZES = {"matmul": 512, "conv": 64}  # where none is given


def main(options: argparse.Namespace) -> int:
    """Returns the exit status: 1 where the search cannot be made here."""
    try:
        size = SIZES[options.workload] if options.size is None else options.size
        work = workload(options.workload, size)
        if options.trials < 1:
            raise ValueError(f"--trials is {options.trials}; expected 1 or more")
        folder = Path(options.to or f"search-{work.title}-{options.target}")
        trials = search(
            work, options.target, options.trials, options.seed, folder, model=options.model
        )
    except (MissingError, ValueError) as error:
        print(f"python -m d2ltvm search: {error}", file=sys.stderr)
        return 1
    if not trials:
        print("python -m d2ltvm search: no candidate was found", file=sys.stderr)
        return 1
    best = min(trials, key=lambda trial: trial.seconds)
    print(summary(work, options.target, trials, best))
    print(as_text(best.sch))
    print(f"\nkept in {folder}", file=sys.stderr)
    return 0


def summary(work: Workload, kind: str, trials: list[Trial], best: Trial) -> str:
    """What was found, beside the schedules of the book, which are timed now too."""
    bench = Bench(work, kind)
    rows: dict[str, Any] = {"found": best.seconds}
    for name, schedule in work.by_hand(kind).items():
        rows[f"by hand: {name}"] = bench(schedule())[0][1]
    if kind == "llvm":
        rows["as it is, nothing scheduled"] = bench(space(work, kind).context.mod)[0][1]
    wide = max(map(len, rows))
    lines = [f"{work.title}: {len(trials)} trials, the best was number {best.number}"]
    lines += [
        f"{name:{wide}} {seconds * 1e3:10.3f} ms {work.flop / seconds / 1e9:10.1f} GFLOPS"
        for name, seconds in rows.items()
    ]
    return "\n".join([*lines, ""])
