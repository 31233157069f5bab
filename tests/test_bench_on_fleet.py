"""The scoreboard and sets on a fleet: a process for each part, and what comes of them."""

import argparse
import json
import sys

import pytest
from test_set_bench import CASES, beside, clock, silent  # noqa: F401 - a fixture

from d2ltvm import __main__
from d2ltvm.bench import on_fleet, scoreboard, set_bench
from d2ltvm.bench.set_bench import run_set
from d2ltvm.bench.sets import layers
from d2ltvm.fleet import leasing


@pytest.fixture(autouse=True)
def recording(monkeypatch, no_fleet_of_others):
    monkeypatch.setenv("D2LTVM_RECORD", "1")


@pytest.mark.slow
def test_two_processes_measure_a_set_into_one_file(clock, tmp_path):  # noqa: F811
    path = tmp_path / "set.json"
    setting = beside(clock)
    parts = [set_bench.part_of(CASES, f"{k}/2") for k in (1, 2)]
    assert sorted(c.title for part in parts for c in part) == sorted(c.title for c in CASES)
    other = iter(parts[1])

    def show(done, of, what):
        """Before each case of the one process, the other measures one of its own."""
        for case in [next(other, None)]:
            if case:
                run_set([case], path, setting=setting, show=silent)

    run_set(parts[0], path, setting=setting, show=show)
    kept = json.loads(path.read_text())["cases"]
    assert set(kept) == {case.title for case in CASES}
    assert not any("error" in found for found in kept.values())
    assert run_set(CASES, path, setting=setting, show=silent)["cases"] == kept


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "a/b", "1/0"])
def test_a_part_that_is_none_is_one_line(capsys, part):
    options = ["bench", "--set", "layers", "--fleet", "none", "--part", part]
    assert __main__.main(options) == 1
    assert f"--part is {part!r}; expected such as 1/2" in capsys.readouterr().err


def ended(out="", err="", code=0):
    return leasing.Ended(code, out, err)


def each(monkeypatch, answer):
    """Commands of a fleet are answered, and not run; they can be run, as the parser says."""

    def run_each(commands, servers, kind, show=lambda *_: None):
        assert kind == "cuda"
        found = {}
        for name, command in commands.items():
            assert command[:3] == [sys.executable, "-m", "d2ltvm"]
            found[name] = answer(__main__.parser().parse_args(command[3:]))
            show(name, found[name])
        return found

    monkeypatch.setattr(leasing, "run_each", run_each)


@pytest.mark.slow
def test_a_set_is_measured_in_as_many_parts_as_there_are_servers(
    servers, monkeypatch, tmp_path, capsys
):
    path = tmp_path / "set.json"
    place = f"{servers.address.host}:{servers.address.port}"
    given = ["bench", "--set", "layers", "--to", str(path), "--clock", "both", "--fleet", place]
    seen = []

    def measured(options):
        assert (options.set, options.fleet, options.clock) == ("layers", "none", "both")
        seen.append(options.part)
        kept = json.loads(path.read_text()) if path.exists() else {"cases": {}}
        for case in set_bench.part_of(layers(), options.part):
            kept["cases"][case.title] = {"error": "wrong"} if case == layers()[3] else {}
        kept |= {"device": {"name": "Some GPU"}, "date": "2026-01-01"}
        path.write_text(json.dumps(kept))
        return ended(err="")

    each(monkeypatch, measured)
    assert __main__.main(given) == 1  # one is wrong
    out, err = capsys.readouterr()
    assert seen == ["1/2", "2/2"] and "wrong" in out and "Some GPU" in out
    assert err.splitlines() == ["part 1/2: measured", "part 2/2: measured"]
    path.unlink()
    each(monkeypatch, lambda options: ended(err="a\nthere is no Hopper\n", code=1))
    assert __main__.main(given) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith(f"{len(layers())} cases were not measured: there is no Hopper")


@pytest.mark.slow
def test_lines_of_the_scoreboard_are_put_together_in_their_order(monkeypatch, servers):
    todo = scoreboard._chosen(None)
    names = [scoreboard.name_of(w) for w in todo]
    assert len(set(names)) == len(names) and "hopper/products" in names

    def measured(options):
        assert options.json and options.fleet == "none"
        if options.only == "hopper/batches":
            return ended(err="something\nlost\n", code=1)
        return ended(json.dumps([{"workload": options.only}] * 2))

    each(monkeypatch, measured)
    monkeypatch.setattr(scoreboard, "_lines", lambda some: ([{"workload": w.key} for w in some], 0))
    lines, failed = scoreboard._on_fleet(todo, servers)
    assert failed == 1
    expected = []
    for w in todo:
        name = scoreboard.name_of(w)
        if w.device == "cpu":
            expected.append({"workload": w.key})
        elif name == "hopper/batches":
            expected.append({"workload": name, "device": "cuda", "missing": "lost"})
        else:
            expected += [{"workload": name}] * 2
    assert lines == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "no/such"], "--only is 'no/such'; expected some of scoreboard/add_16k"),
        (["--fleet", "nowhere"], "the tracker is 'nowhere'; expected its host and port"),
        (["--fleet", "127.0.0.1:1"], "no tracker answers at 127.0.0.1:1"),
        (["--fleet", "{}"], "key 'cpu' measures on a cpu; expected one for cuda"),
        (["--set", "layers", "--fleet", "{}"], "key 'cpu' measures on a cpu; expected one for"),
    ],
)
def test_what_cannot_be_benched_is_one_line(servers, capsys, options, said):
    place = f"{servers.address.host}:{servers.address.port}/cpu"
    assert __main__.main(["bench", *(o.format(place) for o in options)]) == 1
    out, err = capsys.readouterr()
    assert out == "" and said in err and len(err.splitlines()) == 1


@pytest.mark.slow
def test_a_child_of_the_scoreboard_prints_its_lines(capfd, monkeypatch):
    monkeypatch.setenv("D2LTVM_NO_CUDA", "1")
    command = [*on_fleet.BENCH[3:], "--only", "hopper/float32"]
    assert __main__.main(command) == 0
    lines = json.loads(capfd.readouterr().out)
    assert lines and all("float32 conv" in line["workload"] for line in lines)


@pytest.mark.slow
def test_a_scoreboard_without_a_fleet_measures_here(monkeypatch):
    options = argparse.Namespace(json=True, set=None, only="scoreboard/cpu_add", fleet=None)
    monkeypatch.setattr(scoreboard, "_lines", lambda some: ([w.key for w in some], 0))
    assert scoreboard.main(options) == 0
