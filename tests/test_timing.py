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
