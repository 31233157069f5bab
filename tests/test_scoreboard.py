"""The scoreboard, from records and from measurements."""

import argparse
import json
import math

import pytest

import d2ltvm
from d2ltvm.bench import scoreboard

pytestmark = pytest.mark.slow

JSON, TABLE = (
    argparse.Namespace(json=one, set=None, only=None, fleet="none") for one in (True, False)
)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(d2ltvm.system.devices, "has_cuda", lambda: False)


def gpu_benchmarks():
    return [w for w in scoreboard.benchmarks() if w.device == "cuda"]


def test_a_row_holds_both_sides_and_their_ratio(no_gpu):
    for benchmark in [*gpu_benchmarks(), *scoreboard.races()]:
        record = scoreboard.run(benchmark)
        rows = scoreboard.rows(benchmark, record)
        assert len(rows) == len(record.x["values"])
        race = isinstance(benchmark, scoreboard.Race)
        for row in rows:
            assert ("sustained" in row) == race
            for sides in (row, row["sustained"]) if race else (row,):
                ratio = sides["book_value"] / sides["library_value"]
                assert sides["ratio"] == pytest.approx(1 / ratio if row["unit"] == "µs" else ratio)
            assert "NVIDIA" in row["measured"]


def test_sustained_is_what_was_recorded_so(no_gpu):
    race = next(r for r in scoreboard.races() if r.name == "hopper/products")
    record = scoreboard.run(race)
    for row, n in zip(scoreboard.rows(race, record), record.values, strict=True):
        assert row["book_value"] == record.at("TVM", n)
        assert row["sustained"]["book_value"] == record.at("TVM, sustained", n)
        assert row["sustained"]["library_value"] == record.at("cuBLAS, sustained", n)


def test_a_missing_library_is_none_and_not_here(no_gpu):
    race = next(r for r in scoreboard.races() if r.name == "hopper/products")
    record = scoreboard.run(race)
    for legend in ("cuBLAS", "cuBLAS, sustained"):
        del record.series[legend]
    record.missing = ("cuBLAS", "cuBLAS, sustained")
    rows = scoreboard.rows(race, record)
    for row in rows:
        for sides in (row, row["sustained"]):
            assert sides["library_value"] is None and sides["ratio"] is None
            assert sides["book_value"] > 0
    assert scoreboard.table(rows).count("not here") == 2 * len(rows)


def test_races_measure_by_both_clocks(monkeypatch):
    asked = []
    for bench in ("bench_layers", "bench_batches", "bench_matmul_nt", "bench_float32"):
        monkeypatch.setattr(
            scoreboard.hopper_layers, bench, lambda *args, clock: asked.append(clock)
        )
    for race in scoreboard.races():
        race.measure()
    assert asked == [("burst", "sustained")] * len(scoreboard.races())


def test_json_and_table_show_the_same(no_gpu, monkeypatch, capsys):
    monkeypatch.setattr(scoreboard, "benchmarks", gpu_benchmarks_of(scoreboard.benchmarks()))
    assert scoreboard.main(JSON) == 0
    rows = json.loads(capsys.readouterr().out)
    assert scoreboard.main(TABLE) == 0
    table = capsys.readouterr().out
    for row in rows:
        (line,) = (x for x in table.splitlines() if x.startswith(f"{row['workload']:39}"))
        assert f"{row['ratio']:.2f}" in line
        if "sustained" in row:
            assert line.split()[-1] == f"{row['sustained']['ratio']:.2f}"


def test_what_the_first_page_shows_is_of_gpus_and_says_its_source(no_gpu, monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        scoreboard, "bars", lambda values, *args, **more: drawn.update(more, v=values)
    )
    rows = [r for w in scoreboard.in_short() for r in scoreboard.rows(w, scoreboard.run(w))]
    assert {row["device"] for row in rows} == {"cuda"}
    scoreboard.draw(rows)
    assert list(drawn["v"].values()) == [row["ratio"] for row in rows]
    assert len({row["measured"] for row in rows}) == 2  # of two days, which are one source
    first, last = sorted({row["measured"] for row in rows})
    assert drawn["note"] == f"{first} to {last.split()[-1]}"
    assert not any("[" in name for name in drawn["v"])
    late, _ = drawn["points"]
    assert list(late.values()) == [r["sustained"]["ratio"] for r in rows if "sustained" in r]


def test_where_sources_differ_in_more_than_the_day_each_bar_has_the_number_of_its_own(monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        scoreboard, "bars", lambda values, *args, **more: drawn.update(more, v=values)
    )
    row = {"workload": "add", "library": "PyTorch", "ratio": 1.0, "unit": "GB/s"}
    sides = {"library_value": 1.0, "book_value": 1.0}
    made = ["T4; recorded 2026-01-02", "H200; recorded 2026-01-01", "T4; recorded 2026-01-01"]
    rows = [{**row, **sides, "workload": f"add {k}", "measured": m} for k, m in enumerate(made)]
    scoreboard.draw(rows)
    notes = ["[1] T4; recorded 2026-01-01 to 2026-01-02", "[2] H200; recorded 2026-01-01"]
    assert drawn["note"].splitlines() == notes
    assert [name[-3:] for name in drawn["v"]] == ["[1]", "[2]", "[1]"]
    text = scoreboard.table(rows).splitlines()
    assert text[-2:] == notes and [line[-3:] for line in text[1:4]] == ["[1]", "[2]", "[1]"]


def gpu_benchmarks_of(benchmarks):
    chosen = [w for w in benchmarks if w.device == "cuda"]
    return lambda: chosen


def test_a_workload_without_a_record_is_a_line_and_not_an_end(no_gpu, monkeypatch, capsys):
    def missing(benchmark):
        raise d2ltvm.MissingError("no record of it", "the rest", "make record")

    monkeypatch.setattr(scoreboard, "run", missing)
    assert scoreboard.main(TABLE) == 0
    count = len(scoreboard.benchmarks()) + len(scoreboard.races())
    assert capsys.readouterr().out.count("no record of it") == count


def test_a_record_that_cannot_be_read_is_a_line_and_an_exit_code(no_gpu, monkeypatch, capsys):
    run = scoreboard.run

    def broken(benchmark):
        if benchmark.title.startswith("float16 conv"):
            raise ValueError("hopper.json holds nothing; expected records")
        return run(benchmark)

    monkeypatch.setattr(scoreboard, "benchmarks", gpu_benchmarks_of(scoreboard.benchmarks()))
    monkeypatch.setattr(scoreboard, "run", broken)
    assert scoreboard.main(JSON) == 1
    lines = json.loads(capsys.readouterr().out)
    assert [row.get("missing") for row in lines].count(
        "hopper.json holds nothing; expected records"
    ) == 1
    assert len(lines) > 10


def test_what_a_library_prints_is_not_among_the_json(no_gpu, monkeypatch, capsys):
    def noisy(benchmark):
        print("a note")
        raise d2ltvm.MissingError("no record of it", "the rest", "make record")

    monkeypatch.setattr(scoreboard, "run", noisy)
    assert scoreboard.main(JSON) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) and "a note" in printed.err


def test_the_figures_that_the_book_promises_are_in_the_records():
    """Elementwise kernels against PyTorch on one H200, both sides in the same run."""
    add = d2ltvm.load_record("vector_add/bandwidth")
    ratio = add["twice four"] / add["PyTorch"]
    large = add.values >= 2**20
    assert add.values[0] == 2**10 and add.values[-1] == 2**28
    assert (ratio >= 0.97).all() and (ratio[large] >= 0.99).all()
    assert min(add.at("twice four", 2**26), add.at("twice four", 2**28)) >= 4.2
    broadcast = d2ltvm.load_record("broadcast_add/bandwidth")
    for n in (2048, 4096, 8192, 16384):
        best = broadcast.at("wide, two rows", n)
        assert best >= 1.4 * broadcast.at("PyTorch", n)
        assert n < 8192 or best >= 0.95 * broadcast.at("copy of B", n)
    product = d2ltvm.load_record("matmul/sizes")
    assert list(product.values) == [2048, 4096, 8192]
    assert (product["warp tiles"] >= 0.9 * product["cuBLAS"]).all()
    ratios = []
    for c in (16, 32, 64, 128, 256):
        race = d2ltvm.load_record(f"conv/best_{c}")
        best = min(time[0] for name, time in race.series.items() if name != "cuDNN")
        ratios.append(race.at("cuDNN", c) / best)
    assert min(ratios) >= 0.7 and math.prod(ratios) >= 0.9 ** len(ratios)
    layer = d2ltvm.load_record("hopper/layer")
    for ending, times in (("", 1.10), (", sustained", 1.08)):
        assert layer["cuDNN" + ending][0] >= times * layer["taps left out" + ending][0]
    small, resnet, product, batches = (
        d2ltvm.load_record(f"hopper/{name}")
        for name in ("resnet_1x1", "resnet_3x3", "products", "batches")
    )
    for ending in ("", ", sustained"):
        cudnn, ours = "cuDNN" + ending, "TVM" + ending
        assert (small[cudnn] >= 0.95 * small[ours]).all()
        ratios = resnet[cudnn] / resnet[ours]
        assert ratios.min() >= 1 and math.prod(ratios) >= 1.05 ** len(ratios)
        assert (product[ours] >= product["cuBLAS" + ending]).all()
        assert (batches[cudnn] >= 0.9 * batches[ours]).all()
    exact = d2ltvm.load_record("hopper/float32")
    assert exact["TVM"][0] <= 900
    errors = d2ltvm.load_record("hopper/float32_errors")
    assert (errors["TVM"] <= errors["cuDNN"]).all()
