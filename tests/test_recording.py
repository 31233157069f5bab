"""`python -m d2ltvm record`: what it runs, on what, and how it goes on when it was cut off.

Its chapters here are small notebooks; servers are on the processor.
"""

import json
import os
import pathlib
import sys

import nbformat
import pytest
import yaml

import book
from d2ltvm import __main__
from d2ltvm.bench import recording, records
from d2ltvm.fleet import leasing
from d2ltvm.system import environment

pytestmark = pytest.mark.slow
SAYS = """
import json, os, pathlib, time
begin = time.monotonic()
time.sleep(0.3)
names = ("D2LTVM_RECORD", "D2LTVM_FLEET")
said = {name: os.environ.get(name) for name in names}
said |= {"cores": len(os.sched_getaffinity(0)), "span": [begin, time.monotonic()]}
pathlib.Path("NAME.json").write_text(json.dumps(said))
"""


@pytest.fixture(autouse=True)
def alone(no_fleet_of_others):
    """No fleet is up."""


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A folder of records with some of a GPU's, as `measure` would change them."""
    monkeypatch.setattr(records, "MEASUREMENTS", tmp_path / "measurements")
    folder = tmp_path / "measurements" / "some-gpu"
    folder.mkdir(parents=True)

    def store(**values):
        entries = [{"name": n, "device": {"cuda": "13"}, "value": v} for n, v in values.items()]
        (folder / "a.json").write_text(json.dumps({"records": entries}))

    store(b=1, c=1)
    return store


def notebook(folder, name, source=SAYS):
    """A notebook of a few lines, which says what it sees."""
    path = folder / f"{name}.ipynb"
    cells = [nbformat.v4.new_code_cell(source.replace("NAME", name))]
    path.write_text(nbformat.writes(nbformat.v4.new_notebook(cells=cells)))
    return path


def log_of(tmp_path, device="Some GPU"):
    return recording.Log(tmp_path / "log.json", device)


def answered(monkeypatch, answer):
    """Chapters are not run, but answered; the list of those that were asked for."""
    asked = []

    def run(commands, show, bar):
        for name, command in commands.items():
            asked.append(name)
            show(name, answer(command))

    monkeypatch.setattr(recording, "_run_here", run)
    return asked


def right(command):
    return leasing.Ended(0, "", "", seconds=1.0)


def wrong(command):
    return leasing.Ended(1, "", "Traceback\n\x1b[0;31mValueError\x1b[0m: no such shape\n\n")


# What is chosen.


def test_the_chapters_are_those_of_the_table_of_contents():
    toc = yaml.safe_load((book.ROOT / "_toc.yml").read_text())
    names = [toc["root"], *(c["file"] for part in toc["parts"] for c in part["chapters"])]
    notebooks = [path for name in names if (path := book.ROOT / f"{name}.ipynb").is_file()]
    assert book.chapters() == notebooks
    assert recording.chosen([], None) == (environment.chapters(), None)


@pytest.mark.parametrize(
    "given", ["elementwise/vector_add", "book/elementwise/vector_add.ipynb", "vector_add.ipynb"]
)
def test_a_chapter_has_a_name_and_a_path(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    own = notebook(tmp_path, "vector_add")  # of somebody who writes a new chapter
    ((name, path),) = recording.chosen([given], None)[0].items()
    assert path == (own if name == given == "vector_add.ipynb" else environment.chapters()[name])


def test_the_chapters_that_measure_a_record_are_found():
    found, names = recording.chosen([], "vector_add/tail,conv/first,vector_add/steps")
    assert names == ("vector_add/tail", "conv/first", "vector_add/steps")
    assert len(found) == len(environment.chapters())  # no code has the first name whole
    found, _ = recording.chosen([], "vector_add/steps,conv/first")
    assert list(found) == ["elementwise/vector_add", "convolution/on_the_gpu"]
    assert list(recording.chosen(["intro"], "not/yet")[0]) == ["intro"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["vector_ad"],
            "no chapter is called 'vector_ad'; expected such as elementwise/vector_add",
        ),
        (["no.ipynb"], "no chapter is called 'no.ipynb'; expected such as"),
        (["--only", "conv/fist"], "no record is called 'conv/fist'; expected such as conv/first"),
        (["--only", ","], "--only is ','; expected names of records, with commas between"),
        (["--fleet", "127.0.0.1:1"], "no tracker answers at 127.0.0.1:1"),
        (["--fleet", "{}"], "measures on a cpu; expected one for cuda"),
        ([], "the GPU is hidden by D2LTVM_NO_CUDA; what still works: `make notebooks`"),
    ],
)
def test_what_cannot_be_recorded_is_one_line(servers, monkeypatch, capsys, options, said):
    monkeypatch.setenv("D2LTVM_NO_CUDA", "1")
    place = f"{servers.address.host}:{servers.address.port}"
    assert __main__.main(["record", *(o.format(place) for o in options)]) == 1
    out, err = capsys.readouterr()
    assert out == "" and said in err and len(err.splitlines()) == 1


def test_without_the_notebooks_it_says_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(recording.environment, "measurements", lambda: tmp_path / "a" / "b")
    assert __main__.main(["record"]) == 1
    assert "the chapters are not installed with the package; what" in capsys.readouterr().err


# How they are run.


def test_chapters_run_one_after_the_other_without_a_fleet(tmp_path, stored, capsys):
    chapters = {name: notebook(tmp_path, name) for name in ("one", "two")}
    log = log_of(tmp_path)
    assert recording.record(chapters, ("a/b",), None, log) == 1  # nobody has measured it
    said = [json.loads((tmp_path / f"{name}.json").read_text()) for name in chapters]
    assert all((s["D2LTVM_RECORD"], s["D2LTVM_FLEET"]) == ("a/b", "none") for s in said)
    assert said[0]["span"][1] < said[1]["span"][0]
    out, err = capsys.readouterr()
    assert [line.split(":")[0] for line in out.splitlines()[:2]] == ["one", "two"]
    assert err == "records that were not measured: a/b\n" and not log.path.exists()


def test_on_a_fleet_each_runs_beside_a_server(servers, tmp_path, stored, capsys):
    names = ("one", "two", "three")
    chapters = {name: notebook(tmp_path, name) for name in names}
    chapters["bad"] = notebook(tmp_path, "bad", "1 / 0")
    log = log_of(tmp_path)
    assert recording.record(chapters, None, servers, log, "llvm") == 1
    said = [json.loads((tmp_path / f"{name}.json").read_text()) for name in names]
    assert all((s["D2LTVM_RECORD"], s["D2LTVM_FLEET"]) == ("1", "none") for s in said)
    assert all(s["cores"] <= (len(os.sched_getaffinity(0)) + 1) // 2 for s in said)
    out, err = capsys.readouterr()
    assert sorted(line.split(":")[0] for line in out.splitlines()) == sorted(names)
    assert ", cpu0" in out and "bad: ZeroDivisionError: division by zero" in err
    kept = json.loads(log.path.read_text())["chapters"]
    assert {kept[name]["server"] for name in names} <= {"cpu0", "cpu1"} and set(kept) == set(names)


def test_the_command_is_one_that_the_tool_takes(monkeypatch, tmp_path, stored):
    seen = []
    chapters = {"one": notebook(tmp_path, "one")}
    answered(monkeypatch, lambda command: seen.append(command) or right(command))
    recording.record(chapters, ("a/b", "a/c"), None, log_of(tmp_path))
    tool = str(book.ROOT / "tools" / "execute.py")
    assert seen == [[sys.executable, tool, "--record", "--only", "a/b,a/c", str(chapters["one"])]]


# How it goes on.


def test_a_run_that_was_cut_off_goes_on(monkeypatch, tmp_path, stored, capsys):
    chapters = {name: notebook(tmp_path, name) for name in ("one", "two", "three")}

    def stops(command):
        if command[-1] == str(chapters["two"]):
            raise KeyboardInterrupt
        return right(command)

    answered(monkeypatch, stops)
    with pytest.raises(KeyboardInterrupt):
        recording.record(chapters, None, None, log_of(tmp_path))
    asked = answered(monkeypatch, right)
    assert recording.record(chapters, None, None, log_of(tmp_path)) == 0
    assert asked == ["two", "three"]
    assert "1 of 3 chapters were recorded before" in capsys.readouterr().out
    assert recording.record(chapters, None, None, log_of(tmp_path)) == 0  # and anew
    assert asked == ["two", "three", "one", "two", "three"]


def test_a_chapter_that_failed_is_run_again(monkeypatch, tmp_path, stored, capsys):
    chapters = {name: notebook(tmp_path, name) for name in ("one", "two")}
    bad = str(chapters["one"])
    answered(monkeypatch, lambda command: (wrong if command[-1] == bad else right)(command))
    assert recording.record(chapters, None, None, log_of(tmp_path)) == 1
    err = capsys.readouterr().err.splitlines()
    assert err[0] == "one: ValueError: no such shape"
    assert err[1].startswith("1 of 2 chapters failed: one; another run goes on with these")
    asked = answered(monkeypatch, right)
    assert recording.record(chapters, None, None, log_of(tmp_path)) == 0 and asked == ["one"]


@pytest.mark.parametrize("other", ["device", "code", "names", "versions"])
def test_what_was_recorded_otherwise_does_not_count(monkeypatch, tmp_path, stored, other):
    chapters = {"one": notebook(tmp_path, "one"), "two": notebook(tmp_path, "two")}
    answered(monkeypatch, lambda command: (wrong if "two" in command[-1] else right)(command))
    assert recording.record(chapters, None, None, log_of(tmp_path)) == 1
    asked = answered(monkeypatch, right)
    if other == "code":
        notebook(tmp_path, "one", SAYS + "\n1\n")
    if other == "versions":
        monkeypatch.setattr(records, "software", lambda: {"apache-tvm": "0.28"})
    log = log_of(tmp_path, "Other GPU" if other == "device" else "Some GPU")
    recording.record(chapters, ("a/b",) if other == "names" else None, None, log)
    assert asked == ["one", "two"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"head": 1}', "null"])
def test_a_file_that_is_no_log_is_refused(tmp_path, text):
    (tmp_path / "log.json").write_text(text)
    with pytest.raises(ValueError, match=r"log\.json is no file of `record`; expected another"):
        log_of(tmp_path)


def test_records_that_stay_as_they_were_are_named(monkeypatch, tmp_path, stored, capsys):
    source = 'measure("a/b", f)\nmeasure(\n    "a/c", f)\nmeasure("cpu/d", f)'
    chapters = {"one": notebook(tmp_path, "one", source)}
    answered(monkeypatch, lambda command: stored(b=2, c=1) or right(command))
    assert recording.record(chapters, None, None, log_of(tmp_path)) == 0
    assert capsys.readouterr().err == "records that were not measured: a/c\n"
    answered(monkeypatch, lambda command: stored(b=3, c=1) or right(command))
    assert recording.record(chapters, ("a/b",), None, log_of(tmp_path)) == 0
    assert capsys.readouterr().err == ""


def test_a_full_disk_is_one_line(monkeypatch, tmp_path, capfd):
    def full(path, text):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(recording.files, "write", full)
    monkeypatch.setattr(recording.devices, "need_cuda", lambda still: None)
    monkeypatch.setattr(recording.devices, "describe_device", lambda: {"name": "Some GPU"})
    answered(monkeypatch, right)
    given = ["record", "intro", "--fleet", "none", "--to", str(tmp_path / "log.json")]
    assert __main__.main(given) == 1
    assert "No space left on device" in capfd.readouterr().err.splitlines()[-1]


def test_a_bar_is_drawn_where_somebody_looks(monkeypatch, tmp_path, stored, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    chapters = {name: pathlib.Path(notebook(tmp_path, name)) for name in ("one", "two")}
    answered(monkeypatch, right)
    assert recording.record(chapters, None, None, log_of(tmp_path)) == 0
    err = capsys.readouterr().err
    assert "[##########          ] 1/2 one" in err and err.endswith(" " * 72 + "\r")
