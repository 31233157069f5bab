"""Candidates a minute with one GPU of a host and with both, and whether the two GPUs agree.

    PYTHONPATH=. python experiments/two_gpus.py --seconds 200 --to two

Random schedules of a product are measured. First those are found that are right and compile soon;
with --only, their numbers are told.

Do the GPUs agree? Each of the two gets a fleet of its own, and they measure the same candidates in
turns, in --rounds rounds, each into a file: gpu0-1.jsonl is of the first round on the first GPU.
`python -m d2ltvm fleet report` reads these files; what it says is in agreement.txt, and as numbers
in agreement.json.

How many candidates a minute? They are measured by a fleet of one server and by one of two, with
sessions that go on, or, by --sessions, with a session for each candidate. rates.json has a row a
run: how long it was until the first candidate was with a server, from there to the last result, and
to the end; clock and power of each GPU; and why candidates failed, since such a rate means little.
With --copies, each candidate is measured several times, under different ids; with --seconds, as
often as the time that is left allows.
"""

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from unittest import mock

import tvm

from d2ltvm import fleet
from d2ltvm.fleet import agreement, database, measuring
from d2ltvm.search import space, workload

SOON = 3.0  # seconds to compile a candidate
MOST_COPIES = 17  # copies of a candidate
AROUND = 5.0  # seconds of a run beside those: until its first candidate is built, and a fleet's end


def candidates(work, kind, count):
    """So many schedules of a workload, at random, as modules."""
    found = {}
    for sch in space(work, kind).samples():
        found[f"candidate {len(found)}"] = sch.mod
        if len(found) == count:
            return found


def servers_up(kind, numbers, folder):
    """A fleet of a server for each of some GPUs, or of as many on the processor."""
    if kind == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, numbers))
    return fleet.up(cpus=None if kind == "cuda" else len(numbers), folder=folder)


def measured(found, work, kind, up, to, **more):
    """What the servers of a fleet find of some candidates, by name."""
    target = "sm_90" if kind == "cuda" else "llvm"
    told = {"servers": up, "to": to, "target": target, "terms": work.terms, **more}
    return fleet.measure(found, work.inputs(), work.reference, **told)


@contextlib.contextmanager
def sessions_are(how):
    """Have all candidates begin sessions of their own ('alone'), or not ('kept')."""
    begin = measuring._Run._begin_session

    def alone(run, worker, candidate):
        candidate.alone = True
        begin(run, worker, candidate)

    with mock.patch.object(measuring._Run, "_begin_session", alone if how == "alone" else begin):
        yield


@contextlib.contextmanager
def watched():
    """When candidates come to servers, and when they have results: two lists, filled meanwhile."""
    serving, kept = [], []
    hear, keep = measuring._Run._measured, measuring._Run._keep

    def heard(run, worker, candidate, message):
        if message.kind == "serving":
            serving.append(time.perf_counter())
        hear(run, worker, candidate, message)

    def have(run, *told, **found):
        keep(run, *told, **found)
        kept.append(time.perf_counter())

    with (
        mock.patch.object(measuring._Run, "_measured", heard),
        mock.patch.object(measuring._Run, "_keep", have),
    ):
        yield serving, kept


def run(found, work, kind, servers, how):
    """Seconds for all candidates, by so many servers, in three parts, and the results."""
    with (
        sessions_are(how),
        tempfile.TemporaryDirectory() as folder,
        servers_up(kind, range(servers), Path(folder) / "fleet") as up,
    ):
        warm = dict(list(found.items())[: 2 * servers])
        measured(warm, work, kind, up, f"{folder}/warm.jsonl")
        with watched() as (serving, kept):
            start = time.perf_counter()
            got = measured(found, work, kind, up, f"{folder}/run.jsonl")
            end = time.perf_counter()
    parts = {
        "before": serving[0] - start,
        "between": kept[-1] - serving[0],
        "after": end - kept[-1],
    }
    return parts, list(got.values())


def quick(found, work, kind):
    """Those that are right and soon compiled: what the compiler takes says nothing of servers."""
    with (
        tempfile.TemporaryDirectory() as folder,
        servers_up(kind, range(2), Path(folder) / "fleet") as up,
    ):
        got = measured(found, work, kind, up, f"{folder}/all.jsonl", limits=fleet.Limits(build=15))
    for name, result in got.items():
        print(name, result.status, result.build_s, result.session_s, result.why, flush=True)
    return {
        name: mod
        for name, mod in found.items()
        if 0 < got[name].build_s < SOON and got[name].status == "ok"
    }


def copies(found, count):
    """Each candidate so many times, as candidates of their own."""
    return {
        f"{name}, {k}": tvm.IRModule({"main": mod["main"].with_attr("copy", k)})
        for k in range(count)
        for name, mod in found.items()
    }


def compared(found, work, kind, rounds, to):
    """Have two GPUs measure the same candidates in turns.

    Returns the seconds of a server for a candidate, and of a fleet until it is warm.
    """
    files, took, start = [], [], time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ups:
        both = [ups.enter_context(servers_up(kind, [k], Path(folder) / str(k))) for k in (0, 1)]
        for k, up in enumerate(both):  # the first candidate waits until its GPU is opened
            measured(dict(list(found.items())[:2]), work, kind, up, f"{folder}/warm{k}.jsonl")
        up = (time.perf_counter() - start) / 2
        for number in range(rounds):
            for k in (0, 1) if number % 2 else (1, 0):
                files.append(to / f"gpu{k}-{number + 1}.jsonl")
                with watched() as (serving, kept):
                    measured(found, work, kind, both[k], files[-1])
                took.append((kept[-1] - serving[0]) / len(found))
                print(files[-1].name, flush=True)
                Path(f"{files[-1]}.lock").unlink(missing_ok=True)
    results = database.read(files)
    text = agreement.report(results)
    (to / "agreement.txt").write_text(text + "\n")
    print(text, flush=True)
    told = [
        {**asdict(each), "median": each.median, "quartiles": each.quartiles, "agree": each.agree}
        for each in fleet.agreements(results)
    ]
    servers = [asdict(used) for used in agreement.used(results)]
    numbers = {"servers": servers, "agreements": told}
    (to / "agreement.json").write_text(json.dumps(numbers, indent=1) + "\n")
    return statistics.median(took), up


def copies_for(seconds, each, candidates, servers, up):
    """How many copies of each candidate can be measured by fleets of so many servers, one by one.

    `each` is the seconds that a server takes for one; a fleet needs `up` seconds before its run.
    """
    if not servers:
        return 1
    left = seconds - len(servers) * up
    return min(MOST_COPIES, max(1, int(left / (each * candidates * sum(1 / s for s in servers)))))


def rates(found, work, kind, options, to):
    """Candidates a minute by so many servers, and by two beside one."""
    rows = []
    for how in options.sessions:
        for servers in options.servers:
            parts, results = run(found, work, kind, servers, how)
            told = {"sessions": how, "servers": servers, "candidates": len(found)}
            rate = 60 * len(found) / sum(parts.values())
            used = [asdict(one) for one in agreement.used(results)]
            why = sorted({result.why for result in results if result.status != "ok"})
            rows.append({**told, "a minute": rate, **parts, "by": used, "failed": why})
            print(rows[-1], flush=True)
            (to / "rates.json").write_text(json.dumps(rows, indent=1) + "\n")
        if {1, 2} - set(options.servers):
            continue
        one, two = (
            statistics.median(
                row["a minute"] for row in rows if (row["sessions"], row["servers"]) == (how, many)
            )
            for many in (1, 2)
        )
        print(f"{how}: two servers beside one: {two / one:.2f}", flush=True)


def main():
    start = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--only", type=int, nargs="+", help="numbers of candidates")
    parser.add_argument("--rounds", type=int, default=3, help="on each GPU; 0 compares nothing")
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="for all, in place of --copies")
    parser.add_argument("--kind", default="cuda", choices=["cuda", "llvm"])
    parser.add_argument("--servers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--sessions", nargs="+", default=["kept"])
    parser.add_argument("--to", type=Path, default=Path("two"), help="a folder")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    if any(options.to.iterdir()):
        parser.error(f"--to is {options.to}; expected an empty folder: results are not mixed")
    work = workload("matmul", 1024 if options.kind == "cuda" else 128)
    found = candidates(work, options.kind, options.count)
    if options.only:
        found = {f"candidate {k}": found[f"candidate {k}"] for k in options.only}
    else:
        found = quick(found, work, options.kind)
    each, up = 0.5, 10.0  # where nobody has measured them
    if options.rounds:
        each, up = compared(found, work, options.kind, options.rounds, options.to)
    if options.seconds:
        left = options.seconds - (time.perf_counter() - start)
        runs = options.servers * len(options.sessions)
        options.copies = copies_for(left, each, len(found), runs, up + AROUND)
        print(f"{left:.0f} s are left: {options.copies} copies of {len(found)}", flush=True)
    rates(copies(found, options.copies), work, options.kind, options, options.to)
    print(f"{time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
