"""`python -m d2ltvm`: its commands, their options, and how they end."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import book
from d2ltvm import __main__

pytestmark = pytest.mark.slow


def command(*arguments, **variables):
    """The command line and environment of a process that runs a command."""
    others = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    env = {**others, "PYTHONPATH": str(book.ROOT), **variables}
    return {"args": [sys.executable, "-m", "d2ltvm", *arguments], "env": env, "text": True}


def run(*arguments, **variables):
    return subprocess.run(**command(*arguments, **variables), capture_output=True, timeout=300)


@pytest.fixture
def nothing_installed(tmp_path):
    """A path on which the packages of the book raise when they are imported."""
    for name in ("numpy", "tvm", "mxnet", "pyopencl"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} is\\nbroken')")
    return f"{tmp_path}:{book.ROOT}"


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["-h"], ["doctor", "bench", "scoreboard", "cache"]),
        (["cache", "-h"], ["--clear", "D2LTVM_CACHE_DIR"]),
        (["doctor", "-h"], ["--json", "what this machine can do"]),
        (["bench", "-h"], ["--json", "best kernel"]),
        (["record", "-h"], ["--only", "--fleet", "goes on with the chapters"]),
        (["fleet", "-h"], ["report", "--within", "--cpus"]),
        (["run", "-h"], ["--batch", "--image", "resnet50", "likeliest classes"]),
    ],
)
def test_help_tells_the_options_where_nothing_is_installed(nothing_installed, arguments, texts):
    done = run(*arguments, PYTHONPATH=nothing_installed)
    assert done.returncode == 0 and done.stderr == ""
    assert all(text in done.stdout for text in texts)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "the following arguments are required: command"),
        (["dance"], "invalid choice: 'dance'"),
        (["bench", "-x"], "unrecognized arguments: -x"),
        (["doctor", "now"], "unrecognized arguments: now"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(capsys, arguments, reason):
    with pytest.raises(SystemExit) as caught:
        __main__.main(arguments)
    assert caught.value.code == 2
    assert reason in capsys.readouterr().err.splitlines()[-1]


def test_options_reach_the_command_and_its_exit_code_comes_back(monkeypatch):
    seen = []
    module = type(sys)("d2ltvm.bench.scoreboard")
    module.main = lambda options: seen.append(options.json) or 7
    monkeypatch.setitem(sys.modules, "d2ltvm.bench.scoreboard", module)
    assert __main__.main(["bench", "--json"]) == __main__.main(["bench"]) == 7
    assert seen == [True, False]


def test_a_command_that_cannot_start_says_so(nothing_installed):
    done = run("bench", PYTHONPATH=nothing_installed)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("python -m d2ltvm: error: bench cannot start:")


def test_json_is_all_that_bench_prints_without_mxnet(tmp_path):
    """Which contender is left out is a note, and notes go to stderr."""
    (tmp_path / "mxnet.py").write_text("raise ImportError('no mxnet')")
    done = run("bench", "--json", PYTHONPATH=f"{tmp_path}:{book.ROOT}")
    rows = json.loads(done.stdout)
    assert done.returncode == 0 and "MXNet is left out" in done.stderr
    (row,) = (row for row in rows if row["workload"].startswith("vector add, 2²⁵"))
    assert row["library_value"] is None and row["ratio"] is None and row["book_value"] > 0


TIMED = """
import pathlib, runpy, sys, time
from d2ltvm.bench import timing

started = pathlib.Path(sys.argv.pop())

def wait(run, calls):
    started.touch()
    time.sleep(60)

timing._host_seconds = wait
runpy.run_module("d2ltvm", run_name="__main__", alter_sys=True)
"""


def hears_ctrl_c():
    """What a shell without job control starts in the background ignores SIGINT, children as well.

    So it would be with these tests, if such a shell ran them.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_is_one_line_and_exit_code_130(tmp_path):
    """Pressed while a contender is timed, which says when."""
    made = command("bench", str(tmp_path / "started"))
    made["args"][1:3] = ["-c", TIMED]
    made |= {"preexec_fn": hears_ctrl_c, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = subprocess.Popen(**made)
    end = time.monotonic() + 120
    while not (tmp_path / "started").exists() and time.monotonic() < end:
        assert running.poll() is None, running.stderr.read()
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "python -m d2ltvm: stopped" and "Traceback" not in err


@pytest.mark.parametrize("arguments", [["doctor"], ["doctor", "-h"], ["-h"]])
@pytest.mark.parametrize(
    ("output", "said"),
    [
        (">/dev/full", "python -m d2ltvm: [Errno 28] No space left on device\n"),
        (">&-", "python -m d2ltvm: standard output is closed\n"),
    ],
)
def test_output_that_cannot_be_written_is_one_line(nothing_installed, arguments, output, said):
    made = command(*arguments, PYTHONPATH=nothing_installed)
    line = " ".join(made.pop("args"))
    done = subprocess.run(f"{line} {output}", **made, shell=True, capture_output=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def test_a_reader_who_has_read_enough_is_no_error(nothing_installed):
    made = command("doctor", PYTHONPATH=nothing_installed)
    running = subprocess.Popen(**made, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    running.stdout.close()
    assert running.wait(timeout=120) == 1 and running.stderr.read() == ""
