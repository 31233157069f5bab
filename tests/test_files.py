"""Files are written whole, or not at all."""

import os
import stat

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
