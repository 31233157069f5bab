"""What was compiled stays on disk, and what is on disk never makes a result wrong."""

import os
import subprocess
import sys

import pytest

from d2ltvm import schedules
from d2ltvm.__main__ import main
from d2ltvm.analysis import sass_interpreter, traffic
from d2ltvm.compiler import cache, cubin, nvrtc

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def place(monkeypatch, tmp_path):
    """A cache of this test alone."""
    folder = tmp_path / "cache"
    monkeypatch.setenv(cache.VARIABLE, str(folder))
    return folder


def never():
    raise AssertionError("it is in the cache")


def files(place):
    return sorted(place.glob("*" + cache.SUFFIX))


def test_made_once_and_found_by_all_of_its_key(place):
    assert cache.remember(lambda: b"first", "source", 1) == b"first"
    assert cache.remember(never, "source", 1) == b"first"
    assert cache.remember(lambda: b"second", "source", 2) == b"second"
    assert cache.remember(lambda: b"third", "source1") == b"third"
    assert [path.suffix for path in place.iterdir()] == [cache.SUFFIX] * 3


def test_nothing_is_kept_of_what_fails(place):
    with pytest.raises(AssertionError):
        cache.remember(never, "x")
    assert not place.exists()


@pytest.mark.parametrize(
    "spoil", [lambda b: b"", lambda b: b[:-1], lambda b: b[:40] + b"?" + b[41:], lambda b: b[:5]]
)
def test_a_corrupted_entry_is_made_again(place, spoil):
    cache.remember(lambda: b"right" * 10, "x")
    (path,) = files(place)
    path.write_bytes(spoil(path.read_bytes()))
    assert cache.remember(lambda: b"right again", "x") == b"right again"
    assert cache.remember(never, "x") == b"right again"


def test_what_was_not_used_for_longest_goes(place, monkeypatch):
    monkeypatch.setattr(cache, "LIMIT", 1000)
    for k in range(4):
        cache.remember(lambda: bytes(200), k)
        newest = max(files(place), key=lambda path: path.stat().st_ctime_ns)
        os.utime(newest, (k + 1, k + 1))
    cache.remember(never, 0)  # used again, so it stays
    cache.remember(lambda: bytes(200), 4)
    cache.remember(never, 0)
    cache.remember(never, 4)
    assert sum(path.stat().st_size for path in files(place)) <= 750
    assert cache.remember(lambda: b"made again", 1) == b"made again"


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_no_error(place):
    place.mkdir()
    place.chmod(0o500)
    assert cache.remember(lambda: b"made", "x") == b"made"
    assert cache.remember(lambda: b"made again", "x") == b"made again"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), PermissionError()])
def test_a_disk_that_takes_nothing_is_no_error(place, monkeypatch, error):
    def refuse(*arguments, **options):
        raise error

    monkeypatch.setattr(cache.os, "replace", refuse)
    assert cache.remember(lambda: b"made", "x") == b"made"
    assert cache.remember(lambda: b"made again", "x") == b"made again"
    assert list(place.iterdir()) == []


def test_a_file_in_the_place_of_the_folder_is_no_error(place):
    place.write_text("a file")
    assert cache.remember(lambda: b"made", "x") == b"made"
    assert list(cache.entries()) == []


def test_an_empty_variable_turns_it_off(place, monkeypatch, capsys):
    monkeypatch.setenv(cache.VARIABLE, "")
    assert cache.remember(lambda: b"made", "x") == b"made"
    assert cache.remember(lambda: b"made again", "x") == b"made again"
    assert main(["cache"]) == 0
    assert capsys.readouterr().out == "no cache: D2LTVM_CACHE_DIR is empty\n"


def test_the_default_is_the_users_cache_folder(monkeypatch):
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setattr(cache.platformdirs, "user_cache_dir", lambda name: f"/somewhere/{name}")
    assert str(cache.folder()) == "/somewhere/d2ltvm"


WRITER = """
import os, sys
from d2ltvm.compiler import cache
cache.LIMIT = 60_000
for k in range(300):
    wanted = str(k % 40).encode() * 1000
    assert cache.remember(lambda: wanted, k % 40) == wanted
"""


def test_processes_share_it_and_see_whole_entries(place):
    """Three at once, with so little room that each removes what others have just written."""
    running = [
        subprocess.Popen([sys.executable, "-c", WRITER], stderr=subprocess.PIPE) for _ in range(3)
    ]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    assert 0 < sum(path.stat().st_size for path in files(place)) <= 60_000
    assert [path for path in place.iterdir() if path.suffix != cache.SUFFIX] == []


def test_the_command_shows_and_clears(place, capsys):
    cache.remember(lambda: bytes(2**20), "x")
    assert main(["cache"]) == 0
    assert capsys.readouterr().out == f"{place}\n1 entries, 1.0 of 256 MiB\n"
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"removed 1 entries from {place}\n"
    assert files(place) == []


KERNEL = 'extern "C" __global__ void f(float* a) { a[threadIdx.x] += 1; }\n'


def compiled(source, *arguments):
    """As in a new process, which has nothing in memory."""
    cubin._compile.cache_clear()
    return cubin.compile_cubin(source, *arguments)


def test_a_kernel_is_compiled_once_and_disassembled_once(monkeypatch):
    made = compiled(KERNEL, "sm_80")
    sass, resources = cubin.disassemble(made), cubin.resources(made)
    monkeypatch.setattr(nvrtc, "compile_once", lambda *_: never())
    monkeypatch.setattr(cubin, "_output", lambda *_: never())
    assert compiled(KERNEL, "sm_80") == made
    assert cubin.disassemble(made) == sass
    assert cubin.resources(made) == resources
    for other in ((KERNEL, "sm_90"), (KERNEL + " ", "sm_80"), (KERNEL, "sm_80", 1)):
        with pytest.raises(AssertionError):
            compiled(*other)


def change_nvrtc(monkeypatch):
    archs = nvrtc._library()[1]
    monkeypatch.setattr(nvrtc, "_library", lambda: ((13, 99), archs))


def change_a_package(monkeypatch):
    monkeypatch.setattr(cache, "package_versions", lambda *names: ("0.0",) * len(names))


def change_the_options(monkeypatch):
    monkeypatch.setenv("TVM_CUDA_PTXAS_REG_LEVEL", "5")


def change_the_light_headers(monkeypatch):
    monkeypatch.setattr(nvrtc, "_light_headers", lambda: ("other text",))


@pytest.mark.parametrize(
    "change", [change_nvrtc, change_a_package, change_the_options, change_the_light_headers]
)
def test_another_version_compiles_anew(monkeypatch, change):
    monkeypatch.setattr(nvrtc, "compile_once", lambda *_: b"before")
    assert compiled(KERNEL, "sm_80") == b"before"
    monkeypatch.setattr(nvrtc, "compile_once", lambda *_: b"after")
    assert compiled(KERNEL, "sm_80") == b"before"
    change(monkeypatch)
    assert compiled(KERNEL, "sm_80") == b"after"
    cubin._compile.cache_clear()


def test_another_disassembler_is_asked_anew(monkeypatch, tmp_path):
    program = tmp_path / "nvdisasm"
    program.write_text("#!/bin/sh\necho one\n")
    program.chmod(0o755)
    monkeypatch.setattr(cubin.toolchain, "tool", lambda name: program)
    assert cubin.disassemble(b"\x7fELF") == "one\n"
    program.write_text("#!/bin/sh\necho another\n")
    assert cubin.disassemble(b"\x7fELF") == "another\n"


def test_machine_code_is_followed_once_and_anew_where_the_package_has_changed(monkeypatch):
    sch = schedules.one_thread_each(64)
    counted = traffic.traffic(sch, "sm_90")
    monkeypatch.setattr(sass_interpreter.Machine, "run", lambda *_: never())
    assert traffic.traffic(sch, "sm_90") == counted
    for other, arch in ((sch, "sm_80"), (schedules.one_thread_each(128), "sm_90")):
        with pytest.raises(AssertionError):
            traffic.traffic(other, arch)
    monkeypatch.setattr(cache, "hash_of_text", lambda *_: "changed")
    with pytest.raises(AssertionError):
        traffic.traffic(sch, "sm_90")
