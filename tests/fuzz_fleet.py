"""Fuzz of a fleet's addresses and keys, and of files of results with bytes changed at random."""

import re
import tempfile
from pathlib import Path

from fuzzing import EITHER, ODD, REFUSED, mostly
from hypothesis import strategies as st

from d2ltvm import fleet
from d2ltvm.fleet import tracker

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


GROUPS = {keys: 1, addresses: 1, files: 1}
