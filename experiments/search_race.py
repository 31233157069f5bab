"""Searches for six workloads at once on the GPUs of a host, then a race of what they found.

    PYTHONPATH=. python experiments/search_race.py search --trials 96 --to found
    D2LTVM_RECORD=1 PYTHONPATH=. python experiments/search_race.py race --to found

All searches share one fleet, which gives a GPU to one candidate at a time; who waits for a GPU
proposes and compiles meanwhile. The race is run afterwards, with nothing else on the GPU.
"""

import argparse
import dataclasses
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

from d2ltvm import fleet
from d2ltvm.bench.records import measure
from d2ltvm.fleet import choosing
from d2ltvm.fleet.task import LIMITS
from d2ltvm.search import races, space, workload
from d2ltvm.search import search as run_search
from d2ltvm.search.book import SKETCHES, book_space
from d2ltvm.search.computations import COMPUTATIONS
from d2ltvm.search.database import opened, replayed

SIZES = {"matmul": 2048}  # others than the usual ones
BUILD = 15  # seconds to compile a candidate: some are unrolled so far that it takes a minute
STOP = 20  # seconds after which a search that was told to stop is killed


def titles(kind):
    """Which searches there are: a workload, and what it begins with."""
    for name in COMPUTATIONS:
        yield name, "rules"
        if name == "hwcn" and (name, kind) in SKETCHES:  # of the others, experiments/search tells
            yield name, "book"


def search(options):
    """All searches at once; one that is not over in time is stopped, and keeps what it has."""
    to = Path(options.to)
    to.mkdir(parents=True, exist_ok=True)
    cpus = None if options.kind == "cuda" else 2
    with fleet.up(cpus=cpus, folder=to / "fleet") as up:
        where = f"{up.address.host}:{up.address.port}/{up.address.key}"
        running, start = {}, time.monotonic()
        for name, sketch in titles(options.kind):
            if options.only and name not in options.only.split(","):
                continue
            size = options.size or workload(name, SIZES.get(name)).size
            folder = str(to / f"{name}-{sketch}")
            told = ["one", "--only", name, "--sketch", sketch, "--to", folder, "--fleet", where]
            told += ["--size", str(size), "--trials", str(options.trials), "--kind", options.kind]
            with open(f"{folder}.log", "w") as log:
                command = [sys.executable, __file__, *told]
                running[name, sketch] = subprocess.Popen(command, stdout=log, stderr=log)
        for key, process in running.items():
            left = max(1, options.seconds - (time.monotonic() - start))
            try:
                process.wait(left)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait(STOP)
            print(*key, process.returncode, round(time.monotonic() - start), flush=True)


def one(options):
    """One of them, in a process of its own."""
    work = workload(options.only, options.size)
    generator = book_space(work.name, options.kind) if options.sketch == "book" else None
    limits = dataclasses.replace(LIMITS, build=BUILD)
    servers = choosing.choose(options.kind, options.fleet)
    told = {"generator": generator, "servers": servers, "limits": limits}
    found = run_search(work, options.kind, options.trials, folder=Path(options.to), **told)
    print(len(found), [trial.why for trial in found if trial.why])


def race(options):
    """What the searches found, the book's schedules and the library, each workload in one run."""
    for name in options.only.split(",") if options.only else COMPUTATIONS:
        found = {}
        work = workload(name, options.size or SIZES.get(name))
        for sketch in ("rules", "book"):
            folder = Path(options.to) / f"{name}-{sketch}"
            if not (folder / "records.jsonl").exists():
                continue
            generator = book_space(name) if sketch == "book" else None
            place = space(work, "cuda", generator)  # first: it registers what traces tensorize by
            best, _ = min(replayed(opened(folder), place), key=lambda pair: pair[1])
            found[races.BY_BOOK if sketch == "book" else races.BY_RULES] = best
            calls, moments = races.trials(folder)
            measure(f"race/{name}_{sketch}_calls", lambda calls=calls: calls)
            measure(f"race/{name}_{sketch}_moments", lambda moments=moments: moments)
        if not found:
            continue
        try:
            print(name, measure(f"race/{name}", lambda w=work, f=found: races.race(w, f)).series)
        except Exception:  # the others are raced all the same
            traceback.print_exc()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["search", "one", "race"])
    parser.add_argument("--trials", type=int, default=96)
    parser.add_argument("--seconds", type=float, default=480, help="for all searches together")
    parser.add_argument("--kind", default="cuda", choices=["cuda", "llvm"])
    parser.add_argument("--size", type=int, help="of all workloads, to try this out")
    parser.add_argument("--only", help="names of workloads, with commas between")
    parser.add_argument("--sketch", choices=["rules", "book"], default="rules")
    parser.add_argument("--fleet")
    parser.add_argument("--to", default="found")
    options = parser.parse_args()
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    {"search": search, "one": one, "race": race}[options.what](options)


if __name__ == "__main__":
    main()
