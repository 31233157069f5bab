"""How many candidates a minute the queue passes, with 1, 2, 4 and 8 servers on the processor.

    PYTHONPATH=. .venv/bin/python experiments/fleet_throughput.py --to throughput.jsonl

The first line of the file says where and with what; each further line is a number of servers.

A candidate sleeps for as long as a GPU would work, so that servers that share two cores do not
compete for them; what is left is the queue's own work. Beside each rate stands that of the model
in `d2ltvm.fleet.scaling`, whose terms are measured first, with the first number of servers. It
takes an idle machine about three minutes.
"""

import argparse
import datetime
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import tvm
from tvm.script import tirx as T

import d2ltvm
from d2ltvm import fleet
from d2ltvm.bench import records
from d2ltvm.fleet import scaling
from d2ltvm.system import devices

N = 64
ONCE = fleet.Clock(repeat=1, min_repeat_ms=0)


def sleeper(milliseconds, k):
    """A vector add that sleeps at its first element; each k is a candidate of its own."""
    micro = int(1000 * milliseconds) + k

    @T.prim_func(s_tir=True)
    def func(
        A: T.Buffer((N,), "float32"), B: T.Buffer((N,), "float32"), C: T.Buffer((N,), "float32")
    ):
        T.func_attr({"tirx.noalias": True})
        for i in range(N):
            with T.sblock("C"):
                v = T.axis.spatial(N, i)
                if v == 0:
                    T.evaluate(T.call_extern("int32", "usleep", micro))
                C[v] = A[v] + B[v]

    return tvm.IRModule({"main": func})


def run(servers, count, milliseconds):
    """Candidates a second, in a run of so many."""
    a, b, _ = d2ltvm.get_abc(N)
    candidates = {str(k): sleeper(milliseconds, k) for k in range(count)}
    with tempfile.TemporaryDirectory() as folder:
        to, start = Path(folder) / "run.jsonl", time.perf_counter()
        found = fleet.measure(
            candidates, (a, b), np.add, servers=servers, to=to, target="llvm", clock=ONCE
        )
        seconds = time.perf_counter() - start
    assert {result.status for result in found.values()} == {"ok"}
    return count / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--seconds", type=float, default=0.5, help="for which a kernel sleeps")
    parser.add_argument("--each", type=int, default=24, help="candidates for each server")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--to", default="throughput.jsonl")
    options = parser.parse_args()
    # The kernel runs three times: once to be checked, twice by the evaluator.
    sleep, terms, rows = 1000 * options.seconds / 3, None, []
    for count in options.servers:
        with fleet.up(cpus=count, folder=tempfile.mkdtemp()) as servers:
            run(servers, 2 * count, 1)  # processes start, nothing is timed
            if terms is None:
                a, b, _ = d2ltvm.get_abc(N)
                mod = sleeper(sleep, 1000)
                terms = scaling.measure_terms(
                    servers, mod, (a, b), np.add, target="llvm", clock=ONCE
                )
                print(terms)
            rates = [run(servers, options.each * count, sleep) for _ in range(options.rounds)]
        rows.append(
            {
                "servers": count,
                "rounds": [round(60 * rate, 1) for rate in rates],
                "model": round(60 * terms.rate(count), 1),
            }
        )
        print(rows[-1], flush=True)
    head = {
        "device": devices.describe_processor()["name"],
        "software": records.software(),
        "date": datetime.date.today().isoformat(),
        "terms": vars(terms),
        "seconds": options.seconds,
        "each": options.each,
    }
    lines = [json.dumps(line, ensure_ascii=False) for line in (head, *rows)]
    Path(options.to).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
