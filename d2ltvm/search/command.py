"""`python -m d2ltvm search matmul --size 512 --trials 64`: search, keep, print what is found."""

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from d2ltvm.errors import MissingError
from d2ltvm.fleet import FleetError, choosing
from d2ltvm.fleet.measuring import Servers, address_of
from d2ltvm.search import judged
from d2ltvm.search.book import book_space
from d2ltvm.search.on_fleet import FleetBench
from d2ltvm.search.spaces import space
from d2ltvm.search.text import as_text
from d2ltvm.search.tune import Bench, Trial, foretold, prediction, search
from d2ltvm.search.workloads import Workload, workload
from d2ltvm.system import devices

GPU = "H200"  # whose time is predicted where nothing is measured


def main(options: argparse.Namespace) -> int:
    """Returns the exit status: 1 where the search cannot be made here."""
    try:
        return _searched(options)
    except (FleetError, MissingError, ValueError, OSError) as error:
        return _failed(str(error))


def _searched(options: argparse.Namespace) -> int:
    work = workload(options.workload, options.size)
    if options.trials < 1:
        raise ValueError(f"--trials is {options.trials}; expected 1 or more")
    kind, folder = options.target, Path(options.to or f"search-{work.title}-{options.target}")
    servers, generator = choosing.choose(kind, options.fleet), None
    if options.sketch != "rules":
        book = book_space(work.name, kind)
        generator = book if options.sketch == "book" else [book, None]
    if servers is None and (kind, options.model) == ("cuda", "analyser") and not devices.has_cuda():
        return _foretold(work, options.trials, options.seed, generator)
    if servers is not None:
        print(f"measuring on the fleet of {address_of(servers)}", file=sys.stderr)
    trials = search(
        work, kind, options.trials, options.seed, folder, generator, options.model, servers=servers
    )
    for trial in trials:
        if trial.why:
            print(f"candidate {trial.number} was bad, {trial.why}", file=sys.stderr)
    if all(trial.why for trial in trials):
        return _failed("all candidates were bad" if trials else "no candidate was found")
    best = min(trials, key=lambda trial: trial.seconds)
    print(summary(work, kind, trials, best, servers, folder))
    print(as_text(best.sch))
    print(f"\nkept in {folder}", file=sys.stderr)
    return 0


def _foretold(work: Workload, trials: int, seed: int, generator: Any) -> int:
    """Print what the analyser likes best, where there is nothing to measure with."""
    tested = [name for name in judged.FITTED if name != "both"]
    print(f"there is no GPU: times are predicted for an {GPU}", file=sys.stderr)
    if work.name not in tested:
        print(f"such predictions were tested on {' and '.join(tested)} alone", file=sys.stderr)
    found = foretold(work, trials, seed, generator, gpu=GPU)
    if not found:
        return _failed("no candidate was found")
    rows = {"found": found[0].cost}
    for name, schedule in work.by_hand("cuda").items():
        rows[f"by hand: {name}"] = prediction(schedule(), work, GPU)
    wide = max(map(len, rows))
    print(f"{work.title}: the best candidate by the analyser, for an {GPU}; nothing was measured")
    for name, seconds in rows.items():
        told = f"{seconds * 1e3:10.3f} ms" if seconds < math.inf else "no prediction"
        print(f"{name:{wide}} {told}")
    print(f"\n{as_text(found[0].sch)}")
    return 0


def summary(
    work: Workload,
    kind: str,
    trials: list[Trial],
    best: Trial,
    servers: Servers | None = None,
    folder: Path | None = None,
) -> str:
    """What was found, beside the schedules of the book, which are timed now and where it was."""
    others: dict[str, Any] = {
        f"by hand: {name}": schedule() for name, schedule in work.by_hand(kind).items()
    }
    if kind == "llvm":
        others["as it is, nothing scheduled"] = space(work, kind).context.mod
    rows: dict[str, float | str] = {"found": best.seconds}

    def tell(name: str, seconds: list[float], _error: float, why: str) -> None:
        rows[name] = why or seconds[len(seconds) // 2]

    bench = Bench(work, kind) if servers is None else FleetBench(work, kind, servers, folder)
    for name, schedule in others.items():
        bench.all({name: schedule}, tell)
    wide = max(map(len, rows))
    bad = sum(bool(trial.why) for trial in trials)
    lines = [
        f"{work.title}: {len(trials)} trials{f', {bad} of them bad' if bad else ''}, the best was "
        f"number {best.number}"
    ]
    lines += [
        f"{name:{wide}} {found}"
        if isinstance(found, str)
        else f"{name:{wide}} {found * 1e3:10.3f} ms {work.rate(found)}"
        for name, found in rows.items()
    ]
    return "\n".join([*lines, ""])


def _failed(reason: str) -> int:
    print(f"python -m d2ltvm search: {reason}", file=sys.stderr)
    return 1
