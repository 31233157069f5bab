"""Fuzz of measurements and records, of comparisons, figures, clocks and the command line."""

import json
import math
import tempfile
from fractions import Fraction
from pathlib import Path

import matplotlib
import numpy as np
from fuzzing import EITHER, ODD, REFUSED, Maybe, mostly, sizes, spoiled, whole
from hypothesis import strategies as st
from matplotlib import pyplot as plt

import d2ltvm
from d2ltvm import __main__
from d2ltvm.bench import measurement, records, run, timing
from d2ltvm.compiler import verify
from d2ltvm.compiler.launches import Param

matplotlib.use("Agg")
NUMBERS = st.one_of(st.floats(-1e6, 1e6), st.integers(-5, 5), st.sampled_from([0.0, 1e-30, 1e30]))


def comparison(tally, draw):
    """`compare`, element by element in fractions."""
    dtype = draw(st.sampled_from(["float32", "float16", "float64"]))
    want = np.array(draw(st.lists(st.floats(-1000, 1000), min_size=1, max_size=4)))
    off = draw(st.sampled_from([0.0, 0.4, 0.9, 1.5, 3.0, 1e6]))
    terms = draw(st.integers(1, 9))
    eps = np.finfo(dtype).eps
    with np.errstate(all="ignore"):
        got = (want + np.abs(want) * off * terms * eps / 2).astype(dtype)
    arguments = spoiled(
        draw, {"got": st.just(got), "want": st.just(want), "terms": st.just(terms)}, most=1
    )
    got, want, terms = arguments.values()
    arrays = isinstance(got, np.ndarray) and isinstance(want, np.ndarray)
    good = arrays and got.shape == want.shape and whole(terms) and got.dtype.kind == "f"
    good = good and want.dtype.kind in "fiu"
    errors = (ValueError, TypeError, verify.WrongResultError)
    if not good:
        expected = EITHER if whole(terms, 1, math.inf) else REFUSED
        tally.judge(verify.compare, {"name": "Y", **arguments}, expected, errors, ("Y",))
        return
    tiny = Fraction(float(np.finfo(got.dtype).smallest_subnormal)) / 2
    unit = Fraction(float(np.finfo(got.dtype).eps)) / 2
    pairs = [
        (Fraction(float(g)), Fraction(float(w)))
        for g, w in zip(got.flat, want.flat, strict=True)
        if np.isfinite(g) and np.isfinite(w)
    ]
    right = len(pairs) == got.size and all(
        abs(g - w) <= int(terms) * (unit * abs(w) + tiny) * Fraction(1000001, 1000000)
        for g, w in pairs
    )
    wrong = len(pairs) == got.size and any(
        abs(g - w) > int(terms) * (unit * abs(w) + tiny) * Fraction(1000001, 1000000)
        for g, w in pairs
    )

    def error(r):
        most = max((abs(w) for _, w in pairs), default=0) or 1
        return math.isclose(
            r,
            float(max((abs(g - w) for g, w in pairs), default=0) / most),
            rel_tol=1e-6,
            abs_tol=1e-300,
        )

    tally.judge(
        verify.compare,
        {"name": "Y", **arguments},
        REFUSED if wrong else Maybe(error) if right else EITHER,
        errors,
        ("Y", "should be"),
    )


class Copier:
    """A kernel that copies its input, and spoils one element."""

    def __init__(self, shape, spoil):
        self.params = (Param("A", shape, "float32", False), Param("C", shape, "float32", True))
        self.spoil = spoil

    def __call__(self, a, c):
        c[...] = a
        if self.spoil is not None:
            c.flat[self.spoil % c.size] += 1


def checking(tally, draw):
    """`check` of a kernel that is right, or wrong in one place: never mistaken."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=2)))
    spoil = draw(st.one_of(st.none(), st.integers(0, 15)))
    a = np.random.default_rng(0).random(shape, "float32") + 1
    arguments = spoiled(
        draw,
        {
            "inputs": st.just((a,)),
            "reference": st.just(lambda x: x),
            "terms": sizes(most=9),
            "sums": st.sampled_from([None, "float32", "float64"]),
        },
        most=1,
    )
    plain = (
        arguments["inputs"] == (a,)
        if isinstance(arguments["inputs"], tuple)
        and (arguments["inputs"] and arguments["inputs"][0] is a)
        else False
    )
    plain = plain and whole(arguments["terms"]) and arguments["terms"] < 1000
    plain = (
        plain and callable(arguments["reference"]) and arguments["reference"] not in (len, object)
    )
    plain = (
        plain and arguments["sums"] in (None, "float32", "float64")
        if not isinstance(arguments["sums"], np.ndarray) and plain
        else False
    )
    tally.judge(
        d2ltvm.check,
        {"kernel": Copier(shape, spoil), **arguments},
        REFUSED if spoil is not None or not plain else lambda r: r == 0,
        (ValueError, TypeError, verify.WrongResultError),
        ("A", "C", "should be"),
    )


def as_measured(draw):
    x = draw(st.lists(sizes(most=99), min_size=1, max_size=3))
    values = st.lists(NUMBERS, min_size=len(x), max_size=len(x))
    return {
        "unit": draw(st.sampled_from(["GFLOPS", "µs"])),
        "x": {"label": "n", "values": x},
        "series": draw(st.dictionaries(st.sampled_from(["TVM", "NumPy", "TVM, host"]), values)),
    }


def measurements(tally, draw):
    """`Measurement`, and values looked up in it."""
    fields = as_measured(draw)
    broken = draw(st.sampled_from([None] * 5 + list(fields)))
    if broken:
        fields[broken] = draw(ODD)
    x, series = fields["x"], fields["series"]
    good = isinstance(fields["unit"], str) and isinstance(x, dict) and set(x) == {"label", "values"}
    good = good and isinstance(series, dict)
    good = good and all(isinstance(v, list) and len(v) == len(x["values"]) for v in series.values())
    made = tally.judge(
        d2ltvm.bench.Measurement,
        fields,
        (lambda r: r.series == series) if good else REFUSED,
        words=("values", "label"),
    )
    if made is None or not series:
        return
    legend = draw(mostly(st.sampled_from(list(series))))
    at = draw(mostly(st.sampled_from(x["values"])))
    known = isinstance(legend, str) and legend in series
    there = whole(at, -1, math.inf) and at in x["values"]

    def looked_up(r):
        return any(
            r == float(v) for v, k in zip(series[legend], x["values"], strict=True) if k == at
        )

    tally.judge(
        made.at,
        {"legend": legend, "x": at},
        looked_up if known and there else Maybe(looked_up) if known else REFUSED,
        (ValueError, TypeError, KeyError),
        ("the measurement",),
    )


def stored(tally, draw):
    """Records: what is stored comes back; a file that is none is named."""
    fields = as_measured(draw)
    name = draw(
        mostly(
            st.sampled_from(["a/b", "chapter_1/x"]),
            st.one_of(ODD, st.sampled_from(["a", "A/b", "a/b/c", "../b", "a/"])),
        )
    )
    good = isinstance(name, str) and name in ("a/b", "chapter_1/x")
    before = records.MEASUREMENTS
    with tempfile.TemporaryDirectory() as folder:
        records.MEASUREMENTS = Path(folder)
        try:
            device = {"name": "NVIDIA H200", "driver": "1", "cuda": "13"}

            def back(name):
                fresh = {
                    **fields,
                    "x": {**fields["x"], "values": list(map(int, fields["x"]["values"]))},
                }
                records.store_record(
                    records.Record(name=name, device=device, date="today", **fresh)
                )
                return d2ltvm.load_record(name)

            if draw(st.booleans()):
                tally.judge(
                    back,
                    {"name": name},
                    (
                        lambda r: (
                            r.series == {k: v for k, v in fields["series"].items()}
                            and r.name == name
                        )
                    )
                    if good
                    else REFUSED,
                )
                return
            path = Path(folder) / "nvidia-h200" / "a.json"
            path.parent.mkdir()
            path.write_text(
                draw(
                    st.sampled_from(
                        [
                            "",
                            "{",
                            "[]",
                            "{}",
                            '{"records": 1}',
                            '{"records": [1]}',
                            '{"records": [{}]}',
                            '{"records": [{"name": "b"}]}',
                            '{"records": [{"name": "b", "unit": 1}]}',
                            "null",
                            '{"records": []}',
                            '"records"',
                            '{"records": {"name": "b"}}',
                            "\x00",
                        ]
                    )
                )
            )
            tally.judge(d2ltvm.load_record, {"name": name}, REFUSED, words=("a.json",))
        finally:
            records.MEASUREMENTS = before


def as_json(tally, draw):
    """JSON: the standard library reads back what was written."""
    leaves = st.one_of(
        st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=4), st.floats()
    )
    value = draw(
        st.recursive(
            leaves,
            lambda some: st.one_of(
                st.lists(some, max_size=3), st.dictionaries(st.text(max_size=3), some, max_size=3)
            ),
            max_leaves=6,
        )
    )
    text = repr(value)
    finite = "nan" not in text and "inf" not in text
    tally.judge(
        records.as_json,
        {"value": value},
        (lambda r: json.loads(r) == value) if finite else Maybe(lambda r: "NaN" not in r or True),
    )


def clocks(tally, draw):
    """Clocks by name, and functions that are timed for a moment."""
    name = draw(
        mostly(
            st.one_of(
                st.sampled_from(["graph", "burst", "sustained", "stream", "host"]),
                st.lists(st.sampled_from(["burst", "host"]), min_size=1, max_size=2).map(tuple),
            )
        )
    )
    names = [name] if isinstance(name, str) else name
    good = (
        isinstance(names, tuple | list)
        and len(names)
        and all(isinstance(n, str) and n in measurement.CLOCKS for n in names)
    )
    what = draw(st.sampled_from(["as_clocks", "method", "time", "rounds", "over_time", "sizes"]))
    if what == "as_clocks":
        tally.judge(
            measurement.as_clocks,
            {"clock": name},
            (lambda r: r == list(names)) if good else REFUSED,
        )
    elif what == "method":
        tally.judge(
            measurement.method,
            {"clock": name},
            (lambda r: r.count("; ") >= len(names)) if good else REFUSED,
        )
    elif what == "time":
        arguments = {"runs": {}, "clock": name, "rounds": 1}
        tally.judge(timing.time_together, arguments, (lambda r: r == {}) if good else REFUSED)
    elif what == "rounds":
        rounds = draw(mostly(st.just(1), ODD.filter(lambda v: not whole(v, 8, math.inf))))
        fine = whole(rounds)

        def ordered(r):
            return r["f"].low <= r["f"].median <= r["f"].high

        empty = draw(st.sampled_from([{}, {"f": dict}])) if not fine else {}
        tally.judge(
            timing.time_together,
            {"runs": empty, "clock": "host", "rounds": rounds},
            (lambda r: r == {}) if fine else REFUSED,
        )
    elif what == "over_time":
        given = spoiled(
            draw, {"seconds": st.just(0.1), "step": st.just(0.05), "rest": st.just(0.0)}
        )
        tally.judge(timing.over_time, {"run": dict, **given}, EITHER, words=("GPU",))
    else:
        values = draw(mostly(st.lists(sizes(), max_size=3)))
        fine = (
            isinstance(values, tuple | list | range)
            and len(values)
            and all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in values)
        )
        fine = fine or (
            isinstance(values, np.ndarray)
            and values.ndim == 1
            and values.size
            and values.dtype.kind in "iu"
        )
        tally.judge(
            run.as_sizes,
            {"sizes": values},
            (lambda r: r == [int(v) for v in values]) if fine else REFUSED,
        )


def workload(tally, draw):
    """`bench_workload` under a clock that is made up."""
    seconds = draw(
        mostly(
            st.sampled_from([0.0, 1e-9, 0.5, 2.0]),
            st.sampled_from(
                [-1.0, math.nan, math.inf, None, "a", True, [1.0], np.array([1.0, 2.0])]
            ),
        )
    )
    number = isinstance(seconds, float) and 0 <= seconds < math.inf

    def asked(repeats):
        return seconds * repeats if number else seconds

    tally.judge(
        d2ltvm.bench_workload,
        {"workload": draw(mostly(st.just(asked), ODD.filter(lambda v: not callable(v))))},
        Maybe(lambda r: number and math.isclose(r, seconds, rel_tol=1e-9, abs_tol=1e-12)),
    )


def curves(tally, draw):
    """`plot`, by the lines that it draws; `bars` by their lengths."""
    count = draw(st.integers(1, 4))
    x = draw(st.lists(st.integers(1, 999), min_size=count, max_size=count, unique=True))
    y = draw(st.lists(st.floats(0.1, 1e4), min_size=count, max_size=count))
    shown = {}
    plt.close("all")
    show, plt.show = plt.show, lambda: shown.update(axes=plt.gcf().axes)
    try:
        if draw(st.booleans()):
            arguments = spoiled(
                draw,
                {
                    "X": st.just(x),
                    "Y": st.just([y]),
                    "legend": st.just(["a"]),
                    "xscale": st.sampled_from(["linear", "log"]),
                    "yscale": st.sampled_from(["linear", "log"]),
                },
                most=1,
            )
            plain = (
                arguments["X"] == x and arguments["Y"] == [y]
                if isinstance(arguments["X"], list) and isinstance(arguments["Y"], list)
                else False
            )
            plain = plain and isinstance(arguments["legend"], list) and arguments["legend"] == ["a"]
            plain = plain and all(
                isinstance(arguments[k], str) and arguments[k] in ("linear", "log")
                for k in ("xscale", "yscale")
            )

            def drawn(_):
                (line,) = shown["axes"][0].lines
                return list(line.get_xdata()) == x and list(line.get_ydata()) == y

            tally.judge(d2ltvm.plot, arguments, drawn if plain else EITHER)
        else:
            names = [f"k{k}" for k in range(count)]
            values = dict(zip(names, y, strict=True))
            arguments = spoiled(draw, {"values": st.just(values), "unit": st.just("TB/s")}, most=1)

            def long(_):
                return [p.get_width() for p in shown["axes"][0].patches] == y

            plain = arguments["values"] is values and isinstance(arguments["unit"], str)
            tally.judge(d2ltvm.figures.bars, arguments, long if plain else EITHER)
    finally:
        plt.show = show
        plt.close("all")


def command(tally, draw):
    """The command line: an exit code, and no traceback. Only what is quick is run."""
    words = ["cache", "--json", "-h", "--clear=1", "nonsense", "doctor --json", "bench -x", "", "é"]
    argv = draw(st.lists(st.sampled_from(words), max_size=2))

    def code(argv):
        import contextlib
        import io

        out, err = io.StringIO(), io.StringIO()
        out.fileno = lambda: 1
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                found = __main__.main(argv)
            except SystemExit as stop:
                found = stop.code
        return found, err.getvalue()

    right = argv in (["cache"], ["-h"]) or (argv[:1] == ["cache"] and argv[1:] in (["-h"],))
    right = right or argv[:1] == ["-h"]

    def ended(r):
        return (
            r[0] == (0 if right else 2) and "Traceback" not in r[1] and (right or "error:" in r[1])
        )

    tally.judge(code, {"*": [argv]}, ended)


GROUPS = {
    comparison: 6,
    checking: 4,
    measurements: 5,
    stored: 4,
    as_json: 4,
    clocks: 5,
    workload: 3,
    curves: 3,
    command: 3,
}
