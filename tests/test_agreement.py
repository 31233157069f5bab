"""Two servers of a kind: with what clock and power each measured, and whether their times agree."""

import json
import types

import numpy as np
import pytest

import d2ltvm
from d2ltvm import fleet
from d2ltvm.__main__ import main
from d2ltvm.fleet import agreement, database, nvml, server, session, tracker

ONE, TWO = "GPU-4f0c", "GPU-91bd"


def result(k, seconds, gpu=ONE, **others):
    told = {"server": "gpu0 at 127.0.0.1:9191", "device": "NVIDIA H200", "gpu": gpu, **others}
    return fleet.Result(f"id{k}", f"candidate {k}", others.pop("status", "ok"), seconds, **told)


def written(path, results):
    with fleet.Database(path) as file:
        for one in results:
            file.append(one)
    return path


def both(ratios):
    """The same candidates by two GPUs; the second takes so many times as long."""
    first = [result(k, (1e-6, 1.01e-6, 1.02e-6)) for k in range(len(ratios))]
    second = [result(k, (r * 1.01e-6,) * 3, TWO) for k, r in enumerate(ratios)]
    return first, second


def test_ratios_are_of_medians_and_the_spread_of_one_is_beside_them():
    ratios = (1.0, 1.02, 0.96, 1.04)
    (found,) = fleet.agreements([one for some in both(ratios) for one in some])
    assert (found.first, found.second) == (ONE, TWO)
    assert list(found.ratios) == [f"candidate {k}" for k in range(4)]
    assert np.allclose(list(found.ratios.values()), ratios)
    assert found.median == pytest.approx(1.01)
    assert found.quartiles == pytest.approx(tuple(np.percentile(ratios, [25, 75])))
    assert found.furthest == "candidate 2"  # 1 / 0.96 is further from 1 than 1.04
    assert all(own == pytest.approx(0.02 / 1.01) for own in found.own.values())
    assert found.agree and found.apart == []


def test_those_that_are_apart_are_named_the_furthest_first():
    results = [one for some in both((1.03, 0.9, 1.08)) for one in some]
    (found,) = fleet.agreements(results, within=0.05)
    assert not found.agree and found.apart == ["candidate 1", "candidate 2"]
    (found,) = fleet.agreements(results, within=0.12)
    assert found.agree


def test_a_ratio_at_the_limit_agrees_and_order_does_not_matter():
    results = [result(0, (1.0,)), result(0, (1.25,), TWO)]
    assert fleet.agreements(results, within=0.25)[0].agree
    assert fleet.agreements(results[::-1], within=0.25)[0].ratios == {"candidate 0": 1.25}
    assert not fleet.agreements(results, within=0.2499)[0].agree


def test_all_times_of_a_gpu_count_whatever_its_server_is_called():
    first, second = both((1.0, 1.0))
    again = [result(0, (3e-6,) * 3, server="gpu1 at 127.0.0.1:1")]  # in another round
    (found,) = fleet.agreements([*first, *second, *again])
    assert found.ratios["candidate 0"] == pytest.approx(1.01 / np.median([1, 1.01, 1.02, 3, 3, 3]))
    assert found.own["candidate 0"] == pytest.approx(2 / 2.01)
    assert [u.count for u in agreement.used([*first, *second, *again])] == [3, 2]


def test_candidates_of_one_name_are_told_apart():
    results = [fleet.Result(k, "same", "ok", (1e-6,), gpu=g) for g in (ONE, TWO) for k in "ab"]
    assert set(fleet.agreements(results)[0].ratios) == {"same, a", "same, b"}


def test_only_good_results_of_both_count_and_each_two_servers_are_compared():
    first, second = both((1.0, 1.0))
    bad = fleet.Result("id1", "candidate 1", "crash", gpu="GPU-third")
    third = result(0, (1e-6,), "GPU-third")
    found = fleet.agreements([*first, *second[1:], bad, third])
    assert [(f.first, f.second, list(f.ratios)) for f in found] == [
        (ONE, TWO, ["candidate 1"]),
        (ONE, "GPU-third", ["candidate 0"]),
    ]
    assert fleet.agreements(first) == [] and fleet.agreements([]) == []


@pytest.mark.parametrize("within", [0, -1, float("nan"), "a", None, True])
def test_within_is_a_number_above_zero(within):
    with pytest.raises((ValueError, TypeError), match="within is "):
        fleet.agreements([], within=within)


def test_two_kinds_are_not_compared():
    results = [result(0, (1e-6,)), result(0, (1e-6,), TWO, device="NVIDIA H100")]
    with pytest.raises(ValueError, match="'NVIDIA H200' and 'NVIDIA H100'; expected two of a kind"):
        fleet.agreements(results)


# Clock and power, from the reader to the report.


class Reader:
    """Stands in for NVML: clocks and powers, one pair after the other, the last for ever."""

    def __init__(self, *pairs):
        self.pairs, self.reads = pairs, 0

    def nvmlDeviceGetHandleByUUID(self, uuid, handle):
        return 0

    def nvmlDeviceGetClockInfo(self, handle, kind, clock):
        self.now = self.pairs[min(self.reads, len(self.pairs) - 1)]
        self.reads += 1
        clock._obj.value = self.now[0]
        return 0

    def nvmlDeviceGetPowerUsage(self, handle, power):
        power._obj.value = int(1e3 * self.now[1])
        return 0


class Remote:
    """Stands in for a connection: what the server has registered, called here."""

    def __init__(self, sampler):
        self.functions = {
            server.WATCH: sampler.start,
            server.WATCHED: lambda: json.dumps(sampler.stop()),
        }

    def get_function(self, name):
        return self.functions[name]


def timed(reader, monkeypatch, gpu, reads=3):
    """What a session finds of a kernel that runs until the reader was asked so often."""
    monkeypatch.setattr(nvml, "_library", lambda _: reader)
    monkeypatch.setattr(nvml, "PERIOD", 0.001)

    def evaluator(*tensors):
        while reader and reader.reads < reads:
            pass
        return types.SimpleNamespace(results=[2e-6, 3e-6])

    one = session.Session(tracker.Address("h", 1, "k"))
    one.remote = Remote(nvml.Sampler(gpu))
    one.server = {"name": "gpu0", "at": "h:9191", "device": "NVIDIA H200", "gpu": gpu}
    module = types.SimpleNamespace(time_evaluator=lambda *_: evaluator)
    return one.timed(module, None, fleet.Clock(), [])


def test_clock_and_power_of_each_measurement_are_kept_and_reported(monkeypatch, tmp_path, capsys):
    paths = []
    for gpu, clock, power in ((ONE, 1980, 400.5), (TWO, 1755, 690.0)):
        results = []
        for k in range(3):
            found = timed(Reader((clock + 15 * (k - 1), power)), monkeypatch, gpu)
            found["seconds"] = tuple(found["seconds"])
            results.append(fleet.Result(f"id{k}", f"candidate {k}", "ok", **found))
        paths.append(written(tmp_path / f"{gpu}.jsonl", results))
    lines = [json.loads(line) for line in paths[1].read_text().splitlines()[1:]]
    assert [(one["clock_mhz"], one["power_w"], one["gpu"]) for one in lines] == [
        (1740, 690.0, TWO),
        (1755, 690.0, TWO),
        (1770, 690.0, TWO),
    ]
    assert main(["fleet", "report", *map(str, paths)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1].split() == [ONE, "NVIDIA", "H200", "3", "1980", "400.5"]
    assert out[2].split() == [TWO, "NVIDIA", "H200", "3", "1755", "690.0"]
    assert any(line.split() == ["candidate", "1", "1.0000", "40.00%"] for line in out)
    assert out[-1] == "within 5.0%: they agree"


def test_a_median_is_taken_over_a_measurement(monkeypatch):
    found = timed(Reader((1980, 300), (1700, 500), (1600, 650), (1600, 650)), monkeypatch, ONE, 4)
    assert 1600 <= found["clock_mhz"] <= 1700 and 500 <= found["power_w"] <= 650


@pytest.mark.parametrize("gpu", [ONE, ""])
def test_without_nvml_they_are_null(monkeypatch, tmp_path, capsys, gpu):
    found = timed(None, monkeypatch, gpu)
    found["seconds"] = tuple(found["seconds"])
    path = written(tmp_path / "run.jsonl", [fleet.Result("id", "one", "ok", **found)])
    line = json.loads(path.read_text().splitlines()[1])
    assert line["clock_mhz"] is None and line["power_w"] is None
    assert main(["fleet", "report", str(path)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1].split()[-2:] == ["-", "-"]
    assert out[-1] == "no candidate was measured by two servers"


@pytest.mark.slow
def test_a_report_of_servers_on_the_processor(servers, tmp_path, capsys):
    a, b, _ = d2ltvm.get_abc(1000)
    mod = d2ltvm.schedules.cpu_vector_add(1000)
    paths = [tmp_path / f"{k}.jsonl" for k in range(2)]
    for path in paths:
        told = {"servers": servers, "to": path, "target": "llvm"}
        fleet.measure({"add": mod}, (a, b), np.add, **told, builders=1)
    assert main(["fleet", "report", *map(str, paths), "--within", "900"]) == 0
    out = capsys.readouterr().out
    assert "cpu" in out.splitlines()[1] and "  -" in out.splitlines()[1]


# What files may hold.


def test_a_file_that_is_being_written_can_be_reported(tmp_path, capsys):
    first, second = both((1.0, 1.2))
    path = tmp_path / "one.jsonl"
    written(tmp_path / "two.jsonl", second)
    with fleet.Database(path) as file:
        for one in first:
            file.append(one)
        with path.open("ab") as end:
            end.write(b'{"id": "id9", "na')
        assert main(["fleet", "report", str(path), str(tmp_path / "two.jsonl")]) == 0
    assert path.read_bytes().endswith(b'"na')  # it is the writer's to cut
    out = capsys.readouterr().out.splitlines()
    assert out[-2].endswith("furthest 1.2000, candidate 1")
    assert out[-1] == "within 5.0%: they do not agree: 1 of 2 are further apart, candidate 1"


def test_failures_are_counted(tmp_path):
    results = [result(0, (1e-6,)), fleet.Result("b", "bad", "crash")]
    assert "1 results are of candidates that failed" in agreement.report(results)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report"], "report has no files; expected those of results, as run.jsonl"),
        (["status", "a.jsonl"], "status takes no files; expected `report` with them"),
        (["report", "{}/none.jsonl"], "No such file or directory"),
        (["report", "{}/empty.jsonl"], "empty.jsonl is no file of a fleet's results"),
        (["report", "{}/old.jsonl"], "old.jsonl is no file of a fleet's results"),
        (["report", "{}/a.jsonl", "{}/b.jsonl"], "measured by different versions: "),
        (["report", "{}/a.jsonl", "--within", "0"], "within is 0.0; expected a number above"),
    ],
)
def test_what_cannot_be_reported_is_one_line(tmp_path, capsys, arguments, said):
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "old.jsonl").write_text('{"d2ltvm fleet": 2, "versions": {}}\n')
    for name, version in (("a", "1"), ("b", "2")):
        head = {"d2ltvm fleet": database.FORMAT, "versions": {"tvm": version}}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(head) + "\n")
    assert main(["fleet", *(one.format(tmp_path) for one in arguments)]) == 1
    out, err = capsys.readouterr()
    assert out == "" and said in err and len(err.splitlines()) == 1
