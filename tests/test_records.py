"""Records: what `measure` returns, stores and refuses."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import d2ltvm
from d2ltvm.bench import records
from d2ltvm.system import devices

GPU = {"name": "NVIDIA T4", "driver": "580.1", "cuda": "13.0"}


def result():
    return {
        "unit": "GB/s",
        "x": {"label": "n", "values": [1, 2]},
        "series": {"TVM": [3.5, 4.5]},
        "spread": {"TVM": [[3.0, 4.0], [4.0, 5.0]]},
        "notes": "",
    }


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "MEASUREMENTS", tmp_path)
    monkeypatch.delenv("D2LTVM_RECORD", raising=False)
    return tmp_path


@pytest.fixture
def gpu(monkeypatch):
    """A machine that believes it has a T4."""
    monkeypatch.setattr(devices, "has_cuda", lambda: True)
    monkeypatch.setattr(devices, "describe_device", lambda: GPU)


def test_without_a_gpu_nothing_runs_and_a_missing_record_is_named(folder, monkeypatch):
    monkeypatch.setattr(devices, "has_cuda", lambda: False)
    with pytest.raises(d2ltvm.MissingError, match="no record 'a/b' for nvidia-h200"):
        d2ltvm.measure("a/b", lambda: pytest.fail("ran"))


def test_with_a_gpu_it_runs_and_writes_nothing(folder, gpu):
    record = d2ltvm.measure("a/b", result)
    assert record.live and record.device == GPU and record.at("TVM", 2) == 4.5
    assert "NVIDIA T4, driver 580.1, CUDA 13.0" in record.caption and "measured" in record.caption
    assert not list(folder.rglob("*.json"))


def test_recording_stores_what_load_returns(folder, gpu, monkeypatch):
    monkeypatch.setenv("D2LTVM_RECORD", "1")
    made = [d2ltvm.measure(f"a/{name}", result) for name in ("b", "c", "b")]
    loaded = d2ltvm.load_record("a/b", "nvidia-t4")
    assert loaded.series == made[0].series and loaded.date == made[0].date and not loaded.live
    assert "recorded" in loaded.caption and loaded.software["numpy"] == np.__version__
    assert loaded.software["nvrtc"] == "13.5"  # other versions make other machine code
    stored = json.loads((folder / "nvidia-t4" / "a.json").read_text())["records"]
    assert [r["name"] for r in stored] == ["b", "c"]
    assert sorted(os.listdir(folder / "nvidia-t4")) == ["a.json", "a.lock"]


def test_only_the_records_that_are_named_are_measured(folder, gpu, monkeypatch):
    monkeypatch.setattr(records, "DEFAULT_DEVICE", "nvidia-t4")
    monkeypatch.setenv("D2LTVM_RECORD", "a/b,a/c")
    assert d2ltvm.measure("a/b", result).live and d2ltvm.measure("a/c", result).live
    monkeypatch.setenv("D2LTVM_RECORD", "a/c")
    assert not d2ltvm.measure("a/b", lambda: pytest.fail("ran")).live
    with pytest.raises(d2ltvm.MissingError, match="no record 'a/d'"):
        d2ltvm.measure("a/d", result)


def test_a_record_knows_those_of_other_devices(folder, gpu, monkeypatch):
    monkeypatch.setenv("D2LTVM_RECORD", "1")
    d2ltvm.measure("a/b", result)
    d2ltvm.measure("a/c", result)
    monkeypatch.setattr(devices, "describe_device", lambda: {**GPU, "name": "NVIDIA H100"})
    here = d2ltvm.measure("a/b", result)
    assert {name: r.name for name, r in here.elsewhere.items()} == {"NVIDIA T4": "a/b"}
    assert [*d2ltvm.load_record("a/b", "nvidia-t4").elsewhere] == ["NVIDIA H100"]
    assert d2ltvm.load_record("a/c", "nvidia-t4").elsewhere == {}


def test_a_record_with_a_side_missing_is_not_stored(folder, gpu, monkeypatch):
    monkeypatch.setenv("D2LTVM_RECORD", "1")
    with pytest.raises(d2ltvm.MissingError, match="cannot be recorded without PyTorch"):
        d2ltvm.measure("a/b", lambda: {**result(), "missing": ["PyTorch"]})
    assert not list(folder.rglob("*"))


def test_a_side_that_is_missing_has_no_numbers(folder, gpu):
    """What compares with it says nan, and goes on."""
    record = d2ltvm.measure("a/b", lambda: {**result(), "missing": ["PyTorch"]})
    assert "PyTorch" not in record.series
    assert np.isnan(record["PyTorch"]).tolist() == [True] * len(record.values)
    assert np.isnan(record.at("PyTorch", 1)) and record.at("TVM", 1) == record["TVM"][0]
    with pytest.raises(KeyError, match="expected one of a/b: TVM"):
        record["MXNet"]


def test_a_library_that_is_missing_falls_back_on_the_record(folder, gpu, monkeypatch, capsys):
    monkeypatch.setattr(records, "DEFAULT_DEVICE", "nvidia-t4")
    monkeypatch.setenv("D2LTVM_RECORD", "1")
    d2ltvm.measure("a/b", result)

    def without():
        raise d2ltvm.MissingError("no ncu", "the record", "install it")

    assert not d2ltvm.measure("a/b", without).live
    printed = capsys.readouterr()
    assert "not measured here" in printed.err and printed.out == ""


WRITER = """
import sys
from pathlib import Path
from d2ltvm.bench import records
records.MEASUREMENTS = Path(sys.argv[1])
device = {"name": "NVIDIA T4", "driver": "580.1", "cuda": "13.0"}
x = {"label": "n", "values": [1]}
for k in range(40):
    name = f"a/writer_{sys.argv[2]}_{k}"
    series = {"TVM": [float(k)]}
    records.store_record(
        records.Record(name=name, unit="µs", x=x, series=series, device=device)
    )
"""


@pytest.mark.slow
def test_three_who_write_at_once_lose_nothing(tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [
        subprocess.Popen([*command, str(k)], stderr=subprocess.PIPE, text=True) for k in range(3)
    ]
    for writer in writers:
        assert writer.communicate(timeout=120)[1] == "" and writer.returncode == 0
    stored = json.loads((tmp_path / "nvidia-t4" / "a.json").read_text())["records"]
    expected = {f"writer_{k}_{i}" for k in range(3) for i in range(40)}
    assert {record["name"] for record in stored} == expected and len(stored) == 120


def record(**changes):
    return d2ltvm.bench.Record(**{"name": "a/b", "device": GPU, **result(), **changes})


def test_text_is_stored_as_it_is(folder):
    odd = "two  spaces, [ brackets ] and {\n braces }"
    x = {"label": odd, "values": [odd, "[", "1,  2"]}
    made = record(notes=odd, x=x, series={odd: [1.0, 2.0, 3.0]}, spread={})
    records.store_record(made)
    loaded = d2ltvm.load_record("a/b", "nvidia-t4")
    assert loaded.notes == odd and loaded.x == x and loaded.at(odd, "1,  2") == 3


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_is_no_number_is_not_stored(folder, number):
    records.store_record(record())
    before = (folder / "nvidia-t4" / "a.json").read_text()
    for changes in ({"series": {"TVM": [1.0, number]}}, {"spread": {"TVM": [[number, 1.0]]}}):
        with pytest.raises(ValueError, match=f"a/b cannot be stored: a value is {number}"):
            records.store_record(record(**changes))
    assert (folder / "nvidia-t4" / "a.json").read_text() == before


def test_a_full_disk_leaves_the_older_record(folder, monkeypatch):
    records.store_record(record())
    path = folder / "nvidia-t4" / "a.json"
    before = path.read_text()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        records.store_record(record(notes="new"))
    assert path.read_text() == before
    assert sorted(os.listdir(path.parent)) == ["a.json", "a.lock"]


WHOLE = (
    '{"records": [{"name": "b", "unit": "s", "x": {"label": "n", "values": [1]}, "series": {}}]}'
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        WHOLE[:50],
        "[1, 2]",
        '{"other": 1}',
        '{"records": [1]}',
        '{"records": [{"no": 1}]}',
        '{"records": [{"name": "b"}]}',
        WHOLE.replace('"values"', '"other"'),
        WHOLE.replace('"series": {}', '"series": []'),
        WHOLE.replace('"series": {}', '"series": {"TVM": [1, 2]}'),
        WHOLE.replace('"unit"', '"of another program"'),
    ],
)
def test_a_file_that_is_cut_off_or_foreign_is_named(folder, text):
    path = folder / "nvidia-t4" / "a.json"
    path.parent.mkdir()
    path.write_text(WHOLE)
    assert d2ltvm.load_record("a/b", "nvidia-t4").unit == "s"
    path.write_text(text)
    with pytest.raises(ValueError) as caught:
        d2ltvm.load_record("a/b", "nvidia-t4")
    message = str(caught.value)
    assert message.startswith(f"{path} holds ") and "expected records" in message
    assert "\n" not in message


def test_a_foreign_file_is_not_written_over(folder):
    path = folder / "nvidia-t4" / "a.json"
    path.parent.mkdir()
    path.write_text("[1, 2]")
    with pytest.raises(ValueError, match="expected records"):
        records.store_record(record())
    assert path.read_text() == "[1, 2]"


def test_the_cpu_is_always_measured_and_never_stored(folder, monkeypatch):
    monkeypatch.setenv("D2LTVM_RECORD", "1")
    record = d2ltvm.measure("a/b", result, device="cpu")
    assert record.live and record.device["driver"] == "" and not list(folder.rglob("*"))


@pytest.mark.parametrize("name", ["a", "a/b/c", "A/b", "../b", ""])
def test_names_that_are_not_names(name):
    with pytest.raises(ValueError, match="name is"):
        d2ltvm.measure(name, result, device="cpu")


def test_an_unknown_device():
    with pytest.raises(ValueError, match="device is 'tpu'; expected 'cuda' or 'cpu'"):
        d2ltvm.measure("a/b", result, device="tpu")


def test_a_series_of_the_wrong_length_or_name():
    with pytest.raises(ValueError, match="expected 2 values"):
        d2ltvm.bench.Record(name="a/b", **{**result(), "series": {"TVM": [1.0]}})
    record = d2ltvm.bench.Record(name="a/b", **result())
    with pytest.raises(KeyError, match="expected one of a/b: TVM"):
        record["PyTorch"]
    with pytest.raises(KeyError, match=r"expected an x of a/b: \[1, 2\]"):
        record.at("TVM", 3)
