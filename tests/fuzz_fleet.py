"""Fuzz of a fleet's addresses and keys, and of files of results with bytes changed at random."""

import functools
import itertools
import math
import re
import tempfile
from pathlib import Path

import numpy as np
from fuzzing import EITHER, ODD, REFUSED, mostly, sizes, spoiled, whole
from hypothesis import strategies as st

import d2ltvm
from d2ltvm import fleet, schedules
from d2ltvm.fleet import choosing, nvml, scaling, tracker

TEXTS = st.one_of(st.text(max_size=6), st.sampled_from(["h200", "a-b_c.1", "a b", "a:b", "é", ""]))


def keys(tally, draw):
    """A key is kept as it is, where TVM's messages can carry it."""
    key = draw(mostly(TEXTS))
    good = isinstance(key, str) and re.fullmatch("[A-Za-z0-9_.-]+", key)
    tally.judge(tracker.as_key, {"key": key}, (lambda r: r == key) if good else REFUSED)


def addresses(tally, draw):
    """A host and a port, from text."""
    host = draw(st.sampled_from(["h", "127.0.0.1", "", "a:b"]))
    port = str(draw(st.one_of(st.integers(-1, 70000), ODD)))
    good = host != "" and port.isdecimal() and 0 < int(port) < 65536
    tally.judge(
        fleet.Address.of,
        {"text": f"{host}:{port}", "key": "cpu"},
        (lambda r: (r.host, r.port) == (host, int(port)))
        if good
        else EITHER
        if ":" in port
        else REFUSED,
    )


def files(tally, draw):
    """A file that is cut somewhere has the results of its whole lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        with fleet.Database(path) as database:
            for k in range(3):
                database.append(fleet.Result(str(k), f"candidate {k}", "ok", (1e-6,)))
        text = path.read_bytes()
        length = draw(st.integers(0, len(text)))
        path.write_bytes(text[:length])
        whole = max(0, text[:length].count(b"\n") - 1)

        def read(path):
            with fleet.Database(path) as database:
                return list(database.results)

        tally.judge(read, {"path": path}, lambda r: r == [str(k) for k in range(whole)])


def numbers(value, least=0.0, above=False):
    """Whether a value is a number that is at least, or above, another."""
    kinds = int | float | np.integer | np.floating
    fine = isinstance(value, kinds) and not isinstance(value, bool) and not math.isnan(value)
    return fine and (value > least if above else value >= least)


def settings(tally, draw):
    """`Clock`, `Limits` and the terms of the model: numbers, or a refusal."""
    name = draw(st.sampled_from(["Clock", "Limits", "Terms"]))
    if name == "Clock":
        a = spoiled(draw, {"repeat": sizes(), "number": sizes(), "min_repeat_ms": sizes(0)})
        good = whole(a["repeat"], 1, math.inf) and whole(a["number"], 1, math.inf)
        good = good and whole(a["min_repeat_ms"], 0, math.inf)
        return tally.judge(fleet.Clock, a, (lambda r: vars(r) == a) if good else REFUSED)
    some = st.sampled_from([0.5, 1, 20.0])
    if name == "Limits":
        a = spoiled(draw, {key: some for key in ("build", "wait", "connect", "run")})
        good = all(map(numbers, a.values()))
        return tally.judge(fleet.Limits, a, (lambda r: vars(r) == a) if good else REFUSED)
    parts = ("session", "build", "client", "request", "queue", "line")
    a = spoiled(draw, {**dict.fromkeys(parts, some), "cores": sizes(), "servers": sizes()})
    good = all(numbers(a[key], above=True) and a[key] < math.inf for key in parts)
    good = good and whole(a["cores"], 1, math.inf) and whole(a["servers"], 1, math.inf)
    servers = a.pop("servers")

    def rate(servers, **terms):
        return scaling.Terms(**terms).rate(servers)

    def slowest(r):
        return math.isclose(r, min(servers / a["session"], a["cores"] / (a["build"] + a["client"]),
                                   *(1 / a[key] for key in parts[3:])))  # fmt: skip

    return tally.judge(rate, {"servers": servers, **a}, slowest if good else REFUSED)


def arguments(tally, draw):
    """What `up`, `choose` and `measure` refuse before any process begins."""
    name = draw(st.sampled_from(["up", "choose", "measure"]))
    with tempfile.TemporaryDirectory() as folder:
        if name == "up":
            a = {"cpus": draw(ODD.filter(lambda v: v is not None)), "port": draw(sizes(0, 60000))}
            if draw(st.booleans()) or whole(a["cpus"], 1, 1024):
                a = {"cpus": 1, "port": draw(ODD.filter(lambda v: not whole(v, 0, 65000)))}
            function = functools.partial(fleet.up, folder=folder)
            return tally.judge(function, a, REFUSED)
        if name == "choose":
            told = draw(st.sampled_from(["none", "h:1/cpu", "h/cpu", "h:0/a", "h:1/a b", ":5/x"]))
            a = {"kind": draw(mostly(st.sampled_from(["llvm", "cuda"]))), "told": told}
            good = isinstance(a["kind"], str) and a["kind"] in ("llvm", "cuda")
            return tally.judge(
                functools.partial(choosing.choose, folder=folder), a,
                EITHER if good and told in ("none", "h:1/cpu") else REFUSED,
                words=("tracker", "key"),
            )  # fmt: skip
        x, y, _ = d2ltvm.get_abc(8)
        sch = schedules.cpu_vector_add(8)
        a = {"candidates": {"a": sch}, "inputs": (x, y), "target": "llvm", "builders": 1,
             "terms": 1}  # fmt: skip
        spoilt = draw(st.sampled_from(sorted(a)))
        wrong = {
            "candidates": [{}, [sch], {"a": sch, "b": None}, None, {"a": d2ltvm.vector_add(8)}],
            "inputs": [(x,), (x, y, y), (x, y[:4]), (x, y.astype("int32")), (x, None)],
            "target": ["sm_9", 5, "rocm"], "builders": [0, -1, 2.0, True],
            "terms": [0, -1, "a", 1.5],
        }[spoilt]  # fmt: skip
        a[spoilt] = draw(st.sampled_from(wrong))
        function = functools.partial(
            fleet.measure, reference=np.add, servers=fleet.Address("127.0.0.1", 1, "cpu"),
            to=f"{folder}/run.jsonl",
        )  # fmt: skip
        return tally.judge(
            function, a, REFUSED, words=("A", "B", "candidate", "sch", "the candidate", "arrays")
        )


def gpus(tally, draw):
    """Which GPUs CUDA_VISIBLE_DEVICES names: those of its words up to the first wrong one."""
    found = [nvml.Gpu("A", "GPU-1f"), nvml.Gpu("B", "GPU-2e"), nvml.Gpu("C", "GPU-2f")]
    names = draw(st.lists(st.sampled_from(["0", "1", "2", "3", "GPU-1", "GPU-2", "x", "-1"]),
                          max_size=3))  # fmt: skip
    known = {"0": 0, "1": 1, "2": 2, "GPU-1": 0}
    right = list(itertools.takewhile(known.__contains__, names))
    tally.judge(nvml.visible, {"found": found, "chosen": ",".join(names)},
                lambda r: r == [found[known[name]] for name in right])  # fmt: skip


GROUPS = {keys: 1, addresses: 1, files: 1, settings: 2, arguments: 3, gpus: 1}
