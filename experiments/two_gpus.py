"""Candidates a minute with one GPU of a host, and with both.

    PYTHONPATH=. python experiments/two_gpus.py --to two.json

Random schedules of a product are measured by a fleet of one server, by one of two, by two and by
one again: first with a session for each candidate, and then with sessions that go on. A run with a
candidate that fails says why, since such a rate means little. Each run also says how long it was
until the first candidate was with a server, from there to the last result, and to the end. With
--only, the candidates of these numbers are measured, and not those that are found to compile soon;
with --copies, each several times, under different ids.
"""

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from unittest import mock

import tvm

from d2ltvm import fleet
from d2ltvm.fleet import measuring
from d2ltvm.search import space, workload

SOON = 3.0  # seconds to compile a candidate


def candidates(work, kind, count):
    """So many schedules of a workload, at random, as modules."""
    found = {}
    for sch in space(work, kind).samples():
        found[f"candidate {len(found)}"] = sch.mod
        if len(found) == count:
            return found


def servers_up(kind, count, folder):
    """A fleet of so many servers, on GPUs or on the processor."""
    if kind == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(count)))
    return fleet.up(cpus=None if kind == "cuda" else count, folder=folder)


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
    """Seconds for all candidates, by so many servers, in three parts, and why some failed."""
    with (
        sessions_are(how),
        tempfile.TemporaryDirectory() as folder,
        servers_up(kind, servers, Path(folder) / "fleet") as up,
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
    return parts, sorted({result.why for result in got.values() if result.status != "ok"})


def quick(found, work, kind):
    """Those that are right and soon compiled: what the compiler takes says nothing of servers."""
    with (
        tempfile.TemporaryDirectory() as folder,
        servers_up(kind, 2, Path(folder) / "fleet") as up,
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=96)
    parser.add_argument("--only", type=int, nargs="+", help="numbers of candidates")
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--kind", default="cuda", choices=["cuda", "llvm"])
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 2, 2, 1])
    parser.add_argument("--sessions", nargs="+", default=["alone", "kept"])
    parser.add_argument("--to", default="two.json")
    options = parser.parse_args()
    work = workload("matmul", 1024 if options.kind == "cuda" else 128)
    found, rows = candidates(work, options.kind, options.count), []
    if options.only:
        found = {f"candidate {k}": found[f"candidate {k}"] for k in options.only}
    else:
        found = quick(found, work, options.kind)
    found = copies(found, options.copies)
    for how in options.sessions:
        for servers in options.servers:
            parts, why = run(found, work, options.kind, servers, how)
            told = {"sessions": how, "servers": servers, "candidates": len(found)}
            rate = 60 * len(found) / sum(parts.values())
            rows.append({**told, "a minute": rate, **parts, "failed": why})
            print(rows[-1], flush=True)
            Path(options.to).write_text(json.dumps(rows, indent=1) + "\n")
        if {1, 2} - set(options.servers):
            continue
        one, two = (
            statistics.median(
                row["a minute"] for row in rows if (row["sessions"], row["servers"]) == (how, many)
            )
            for many in (1, 2)
        )
        print(f"{how}: two servers beside one: {two / one:.2f}")


if __name__ == "__main__":
    main()
