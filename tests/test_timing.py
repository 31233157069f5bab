"""The lock by which processes take turns with a GPU's clocks; no GPU is needed for it."""

import subprocess
import sys
import threading

import pytest

from d2ltvm.bench import timing

HOLDER = """
import filelock, sys
with filelock.FileLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.readline()
"""


TRY = "import filelock, sys; filelock.FileLock(sys.argv[1], timeout=0).acquire()"


@pytest.fixture
def lock(tmp_path, monkeypatch):
    """The path of the lock, in place of that of a GPU."""
    path = str(tmp_path / "gpu.lock")
    monkeypatch.setattr(timing, "_lock_path", lambda: path)
    return path


def test_a_second_process_waits(lock):
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDER, lock],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    entered = threading.Event()

    def wait():
        with timing.alone():
            entered.set()

    waiting = threading.Thread(target=wait)
    with other:
        assert other.stdout.readline() == "held\n"
        waiting.start()
        assert not entered.wait(0.3)
        other.stdin.write("end\n")
        other.stdin.close()
    assert entered.wait(10)
    waiting.join()


def test_who_holds_it_enters_again(lock):
    with timing.alone(), timing.alone():
        held = subprocess.run([sys.executable, "-c", TRY, lock], check=False)
    free = subprocess.run([sys.executable, "-c", TRY, lock], check=False)
    assert (held.returncode, free.returncode) == (1, 0)


def test_a_lock_that_cannot_be_had_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(timing, "_lock_path", lambda: str(tmp_path / "file" / "gpu.lock"))
    with timing.alone():
        pass
    with pytest.raises(OSError, match="of the work"), timing.alone():
        raise OSError("of the work")


def test_the_environment_says_how_many_rounds(monkeypatch):
    calls = []
    for given, record, rounds in ((None, None, 7), ("2", None, 2), ("2", "none", 2), ("2", "1", 7)):
        for name, value in (("D2LTVM_ROUNDS", given), ("D2LTVM_RECORD", record)):
            monkeypatch.delenv(name, raising=False)
            if value is not None:
                monkeypatch.setenv(name, value)
        assert timing.default_rounds() == rounds
        monkeypatch.setitem(timing._TIMERS, "host", lambda run, _: lambda: calls.append(run) or 1.0)
        timing.time_together({"one": lambda: None}, "host")
        assert len(calls) == rounds
        calls.clear()


@pytest.mark.parametrize("given", ["0", "two", "-1", "1.5"])
def test_rounds_are_a_positive_integer(given, monkeypatch):
    monkeypatch.delenv("D2LTVM_RECORD", raising=False)
    monkeypatch.setenv("D2LTVM_ROUNDS", given)
    with pytest.raises(ValueError, match=f"D2LTVM_ROUNDS is '{given}'; expected a positive"):
        timing.default_rounds()
