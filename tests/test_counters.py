"""Hardware counters, read from what stands in for Nsight Compute."""

import sys

import numpy as np
import pytest

import d2ltvm
from d2ltvm import schedules
from d2ltvm.analysis import counters

CSV = """==PROF== Connected to process 1
"ID","Kernel Name","a.sum","b.sum"
"","","sector",""
"0","main_kernel","1,024","2.5"
"1","main_kernel","1","0"
"""


def ncu(folder, monkeypatch, text, code=0):
    """A program `ncu` that says something and, like it, does not care what it runs."""
    program = folder / "ncu"
    program.write_text(f"#!{sys.executable}\nprint({text!r}, end='')\nraise SystemExit({code})\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_the_counts_of_each_launch(tmp_path, monkeypatch):
    ncu(tmp_path, monkeypatch, CSV)
    rows = counters.profile(["true"], ["a.sum", "b.sum"])
    assert rows == [
        ("main_kernel", {"a.sum": 1024.0, "b.sum": 2.5}),
        ("main_kernel", {"a.sum": 1.0, "b.sum": 0.0}),
    ]


def test_counts_are_summed_over_launches(tmp_path, monkeypatch):
    ncu(tmp_path, monkeypatch, CSV)
    monkeypatch.setattr("d2ltvm.system.devices.as_target", lambda target: None)
    inputs = [np.zeros(64, "float32")] * 2
    found = d2ltvm.hardware_counters(
        schedules.one_thread_each(64), inputs, {"first": "a.sum", "second": "b.sum"}
    )
    assert found == {"first": 1025.0, "second": 2.5}


@pytest.mark.parametrize("text, code", [("ERR_NVGPUCTRPERM\n", 1), ("no table\n", 0)])
def test_counters_that_may_not_be_read(tmp_path, monkeypatch, text, code):
    ncu(tmp_path, monkeypatch, text, code)
    with pytest.raises(d2ltvm.MissingError, match=rf"read no counters \({text.strip()}\)"):
        counters.profile(["true"], ["a.sum"])


def test_without_nsight_compute(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda *arguments, **options: None)
    with pytest.raises(d2ltvm.MissingError, match=r"Nsight Compute \(ncu\) is not installed"):
        counters.profile(["true"], ["a.sum"])
