"""The doctor on this machine, on broken ones, and the command line."""

import argparse
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from d2ltvm.errors import MissingError
from d2ltvm.system import colab, doctor, environment, toolchain
from d2ltvm.system.doctor import Check

pytestmark = pytest.mark.slow

ROOT = doctor.ROOT
NAMES = ["Python", "NumPy", "TVM", "NVIDIA GPU", "OpenCL", "NVRTC", "SASS tools", "MXNet"]
NAMES += ["PyTorch", "Book tools", "Records"]


def run(*arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "d2ltvm", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def broken_packages(tmp_path):
    """A path on which every package of the book raises, or kills the process, when imported."""
    for name in ("numpy", "mxnet", "pyopencl", "cuda", "torch"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} is\\nbroken')")
    (tmp_path / "tvm.py").write_text("import os; os.abort()")
    return tmp_path


def test_this_machine(device):
    done = run("doctor", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    checks = {check["name"]: check for check in found["checks"]}
    assert list(checks) == NAMES
    assert found["usable"] is True and found["runs_on"] in ("cuda", "opencl")
    import numpy

    assert checks["NumPy"] == {
        "name": "NumPy", "state": "ok", "detail": numpy.__version__, "still": "", "command": "",
    }  # fmt: skip
    assert checks["NVRTC"]["state"] == checks["SASS tools"]["state"] == "ok"
    for check in found["checks"]:
        if check["state"] in ("missing", "broken"):
            assert check["still"] and check["command"], check


def test_with_every_package_broken_there_is_a_report_and_no_traceback(broken_packages):
    done = run("doctor", PYTHONPATH=f"{broken_packages}:{ROOT}", COLUMNS="100")
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert all(name in done.stdout for name in NAMES)
    assert "ImportError: numpy is broken" in done.stdout
    assert "ended with code -6" in done.stdout  # TVM, which aborts
    assert done.stdout.splitlines()[-1].startswith("The notebooks cannot run here until NumPy and")


def test_with_nothing_installed(tmp_path):
    venv.create(tmp_path, symlinks=True)
    done = subprocess.run(
        [tmp_path / "bin" / "python", "-m", "d2ltvm", "doctor", "--json"],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1 and not done.stderr, done.stderr
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert list(checks) == NAMES
    for name in ("NumPy", "TVM", "OpenCL", "NVRTC", "MXNet", "PyTorch", "Book tools"):
        assert checks[name]["state"] == "missing", checks[name]
        assert checks[name]["command"].startswith("pip install ")


def test_what_raises_becomes_a_line():
    def raises(name):
        raise ValueError("in\ntwo lines")

    def lacks(name):
        raise MissingError("no thing", "the rest", "pip install thing")

    assert doctor._guarded(("A", raises)).detail == "ValueError: in two lines"
    assert doctor._guarded(("A", raises)).state == "broken"
    expected = Check("B", "missing", "no thing", "the rest", "pip install thing")
    assert doctor._guarded(("B", lacks)) == expected


def test_probe_tells_errors_crashes_and_what_is_missing(monkeypatch):
    assert doctor._probe("print('noise'); answer = dict(a=1)") == {"a": 1}
    assert doctor._probe("import no_such_module")["error"].startswith("ModuleNotFoundError")
    assert doctor._probe("import os; os._exit(3)")["error"].endswith("ended with code 3")
    assert doctor._probe("raise SystemExit(0)")["error"].startswith("SystemExit")
    missing = "from d2ltvm.errors import MissingError; raise MissingError('a', 'b', 'c')"
    found = doctor._probe(missing)
    assert (found["missing"], found["still"], found["command"]) == ("a", "b", "c")
    monkeypatch.setattr(doctor, "PROBE_SECONDS", 1)
    assert doctor._probe("import time; time.sleep(9)") == {"error": "no answer in 1 s"}


@pytest.mark.parametrize(
    ("gpu", "seen", "state", "detail", "command"),
    [
        ((None, "", None), {}, "missing", "no NVIDIA driver", "a machine with an NVIDIA GPU"),
        (
            ((580, 159, 4), "NVIDIA H200", (9, 0)),
            {"seen": True, "capability": "9.0", "cuda": "13.0"},
            "ok",
            "NVIDIA H200, driver 580.159.04, CUDA 13.0, compute capability 9.0",
            "",
        ),
        (
            ((550, 54, 15), "Tesla T4", (7, 5)),
            {"seen": False},
            "missing",
            "Tesla T4, driver 550.54.15; CUDA 13 wants 580",
            "cuda-compat-13-0",
        ),
        (
            ((550, 54, 15), "NVIDIA GeForce RTX 4090", (8, 9)),
            {"seen": False},
            "missing",
            "data-centre GPUs",
            "nvidia-driver-580",
        ),
        (
            ((580, 82, 7), "Tesla T4", (7, 5)),
            {"error": "ImportError: no tvm"},
            "broken",
            "Tesla T4, driver 580.82.07: ImportError: no tvm",
            "pip install -r requirements.txt",
        ),
    ],
)
def test_gpu(monkeypatch, gpu, seen, state, detail, command):
    monkeypatch.delenv("D2LTVM_NO_CUDA", raising=False)
    monkeypatch.setattr(colab, "find_gpu", lambda: gpu)
    monkeypatch.setattr(doctor, "_probe", lambda code: seen)
    check = doctor._gpu("NVIDIA GPU")
    assert check.state == state
    assert detail in check.detail and command in check.command


def test_a_hidden_gpu_is_said_to_be_hidden(monkeypatch):
    monkeypatch.setenv("D2LTVM_NO_CUDA", "1")
    monkeypatch.setattr(colab, "find_gpu", lambda: ((580, 82, 7), "Tesla T4", (7, 5)))
    check = doctor._gpu("NVIDIA GPU")
    assert check.state == "missing" and check.command == "unset D2LTVM_NO_CUDA"


@pytest.mark.parametrize(
    ("states", "usable", "runs_on"),
    [
        ({}, True, "opencl"),
        ({"NVIDIA GPU": "ok"}, True, "cuda"),
        ({"OpenCL": "missing"}, True, None),
        ({"MXNet": "broken", "Python": "warn"}, True, "opencl"),
        ({"TVM": "warn"}, True, "opencl"),
        ({"TVM": "broken"}, False, None),
        ({"NumPy": "missing", "NVIDIA GPU": "ok"}, False, None),
    ],
)
def test_verdict(monkeypatch, capsys, states, usable, runs_on):
    states = {"NVIDIA GPU": "missing", **states}
    checks = [Check(name, states.get(name, "ok"), "detail") for name in NAMES]
    assert doctor.usable(checks) is usable
    assert doctor.runs_on(checks) == runs_on
    monkeypatch.setattr(doctor, "report", lambda: checks)
    assert doctor.main(argparse.Namespace(json=False)) == (0 if usable else 1)
    assert capsys.readouterr().out.splitlines()[-1] == doctor._verdict(checks)
    doctor.main(argparse.Namespace(json=True))
    assert json.loads(capsys.readouterr().out)["runs_on"] == runs_on


def test_a_forbidden_combination_is_broken(monkeypatch):
    versions = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.15.post2"}
    monkeypatch.setattr(environment, "installed", lambda: versions)
    monkeypatch.setattr(doctor, "_probe", lambda code: {"version": "0.27"})
    check = doctor._tvm("TVM")
    assert check.state == "broken" and "crashes Schedule.tensorize" in check.detail
    versions.update({"apache-tvm-ffi": "0.1.14.post1", "mxnet": "1.9.1", "numpy": "2.5.2"})
    assert doctor._tvm("TVM").state == "ok"  # kernels run without MXNet


def test_a_home_that_cannot_be_written_is_said(opencl):
    done = run("doctor", "--json", HOME="/proc/none", XDG_CACHE_HOME="", POCL_CACHE_DIR="")
    opencl = next(c for c in json.loads(done.stdout)["checks"] if c["name"] == "OpenCL")
    assert opencl["state"] == "ok"
    assert opencl["detail"].endswith(
        "caches are temporary, since the usual folder cannot be written"
    )


def test_records_are_counted(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "measurements", lambda: tmp_path)
    assert doctor._records("Records").state == "missing"
    folder = tmp_path / "nvidia-h200"
    folder.mkdir(parents=True)
    (folder / "one.json").write_text('{"records": [{}, {}]}')
    (folder / "two.json").write_text('{"records": [{}]}')
    assert doctor._records("Records") == Check("Records", "ok", "3 of nvidia-h200")
    for text in ("", '{"records": [', "[1]", "{}"):
        (folder / "two.json").write_text(text)
        broken = doctor._guarded(("Records", doctor._records))
        assert broken.state == "broken" and str(folder / "two.json") in broken.detail


def test_sass_tools_from_a_toolkit_are_told_apart(monkeypatch):
    monkeypatch.setattr(toolchain, "tool", lambda name: Path("/opt/cuda/bin") / name)
    assert "nvdisasm from /opt/cuda/bin/nvdisasm" in doctor._sass("SASS tools").detail


def test_table_is_aligned_and_as_wide_as_it_may_be():
    words = "word " * 40
    checks = [Check(name, "missing", words, words, "a command " * 12) for name in NAMES]
    lines = doctor.table(checks, 80).splitlines()
    commands = [line for line in lines if "to get it:" in line]
    assert len(commands) == len(NAMES) and all(len(c) > 80 for c in commands)  # never broken
    assert max(len(line) for line in lines if line not in commands) <= 80
    assert len({line.index("still works:") for line in lines if "still works:" in line}) == 1
