"""Files are written whole, or not at all."""

import os
import stat
import subprocess
import sys

import pytest

from d2ltvm.system import files


def test_text_and_bytes_are_written_as_they_are(tmp_path):
    for content, held in (("µ\r\nx", "µ\r\nx".encode()), (b"\xff\x00", b"\xff\x00")):
        files.write(tmp_path / "a", content)
        assert (tmp_path / "a").read_bytes() == held
    assert os.listdir(tmp_path) == ["a"]


def test_where_writing_fails_the_older_file_stays(tmp_path, monkeypatch):
    path = tmp_path / "a"
    files.write(path, "old")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a"]


def test_a_file_keeps_its_mode_and_a_link_stays_a_link(tmp_path):
    path, link = tmp_path / "a", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    files.write(link, "new")
    assert link.is_symlink() and path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_new_file_has_the_mode_that_the_user_asks_for(tmp_path):
    before = os.umask(0o027)
    try:
        files.write(tmp_path / "a", "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


NOWHERE = "/proc/none"  # where nobody can make a folder, not even root


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A home of one's own, and none of the variables that say where caches are."""
    for name in ("XDG_CACHE_HOME", "POCL_CACHE_DIR"):
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return monkeypatch


def test_caches_stay_where_they_can_be_written(places, tmp_path):
    assert files.use_writable_caches() is None and "XDG_CACHE_HOME" not in os.environ
    places.setenv("POCL_CACHE_DIR", str(tmp_path / "pocl"))
    assert files.use_writable_caches() is None
    assert os.environ["POCL_CACHE_DIR"] == str(tmp_path / "pocl")


@pytest.mark.parametrize("home", [NOWHERE, "relative"])
def test_caches_move_where_home_cannot_be_written(places, home):
    places.setenv("HOME", home)
    folder = files.use_writable_caches()
    assert folder.is_dir() and os.environ["XDG_CACHE_HOME"] == str(folder)
    assert "POCL_CACHE_DIR" not in os.environ
    assert files.use_writable_caches() is None  # it has been mended


@pytest.mark.parametrize("told", [NOWHERE, ""])
def test_a_cache_of_pocl_that_cannot_be_written_moves_alone(places, told):
    places.setenv("POCL_CACHE_DIR", told)
    folder = files.use_writable_caches()
    assert os.environ["POCL_CACHE_DIR"] == str(folder) and "XDG_CACHE_HOME" not in os.environ


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [{"HOME": NOWHERE}, {"HOME": NOWHERE, "POCL_CACHE_DIR": "{}"}, {"POCL_CACHE_DIR": NOWHERE}],
)
def test_kernels_run_where_home_cannot_be_written(opencl, variables, tmp_path):
    """Their compiler and pyopencl keep them in a cache; the temporary one goes with the process."""
    script = """
import d2ltvm
kernel = d2ltvm.build(d2ltvm.schedules.one_thread_each(1000), "opencl")
a, b, c = d2ltvm.get_abc(1000)
kernel(a, b, c)
print((c == a + b).all())"""
    env = {k: v for k, v in os.environ.items() if k not in ("XDG_CACHE_HOME", "POCL_CACHE_DIR")}
    env |= {name: value.format(tmp_path / "pocl") for name, value in variables.items()}
    env["TMPDIR"] = str(tmp_path)
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr
    assert not list(tmp_path.glob("d2ltvm-*"))
