"""What NVIDIA's compute-sanitizer is given, and what is made of its words; it does not run here."""

import sys
import time

import numpy as np
import pytest
import sanitize

import d2ltvm
from d2ltvm.bench.records import Record
from d2ltvm.errors import MissingError


@pytest.mark.slow
@pytest.mark.parametrize("group", sanitize.GROUPS)
def test_the_kernels_can_be_built(group):
    programs = list(sanitize.GROUPS[group][0]())
    assert all(d2ltvm.build(program, "sm_90a").params for program in programs)
    assert len(programs) >= 5


@pytest.fixture
def says(tmp_path):
    """A sanitizer that says something and ends with a status."""

    def make(words, status):
        path = tmp_path / "compute-sanitizer"
        path.write_text(f"#!/bin/sh\necho '{words}'\nexit {status}\n")
        path.chmod(0o755)
        return str(path)

    return make


@pytest.mark.parametrize(
    ("words", "status", "errors"),
    [
        ("========= ERROR SUMMARY: 0 errors", 0, 0),
        ("========= ERROR SUMMARY: 3 errors", 0, 3),
        ("========= ERROR SUMMARY: 3 errors", 1, 3),
        ("========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)", 0, 2),
    ],
)
def test_errors_are_counted_and_shown(says, words, status, errors, capsys):
    assert sanitize.count_errors(says(words, status), "hopper/sanitizer", "memcheck") == errors
    assert (words in capsys.readouterr().out) == bool(errors)


@pytest.mark.parametrize(
    ("words", "status"), [("", 0), ("killed", 9), ("========= ERROR SUMMARY: 0 errors", 1)]
)
def test_kernels_that_did_not_run_are_no_zero(says, words, status):
    with pytest.raises(RuntimeError, match=r"memcheck of hopper/sanitizer"):
        sanitize.count_errors(says(words, status), "hopper/sanitizer", "memcheck")


# Reports in the words of compute-sanitizer 2024 and 2025.
RUN = "========= COMPUTE-SANITIZER\n{}========= ERROR SUMMARY: {}\n"
CLEAN = RUN.format("", "0 errors")
READ = """========= Invalid __global__ read of size 4 bytes
=========     at main_kernel+0x50
=========     by thread (127,0,0) in block (0,0,0)
=========     Access to 0x7f48d88001fc is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f48d8800000 of size 508 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuLaunchKernel [0x2db19f] in libcuda.so.1
=========
"""
STORE = """========= Invalid __shared__ write of size 4 bytes
=========     at main_kernel(float *, float *)+0x100
=========     by thread (127,0,0) in block (0,0,0)
=========     Address 0x600 is out of bounds
=========
"""
FAILED = """\
========= Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to "unspecified launch failure" \
on CUDA API call to cuStreamSynchronize.
=========     Saved host backtrace up to driver entry point at error
=========
"""
DRIVER = """\
========= Program hit CUDA_ERROR_INVALID_VALUE (error 1) due to "invalid argument" on CUDA \
API call to cuGetProcAddress_v2.
=========
"""
APART = """========= Barrier error detected. Divergent thread(s) in {}
=========     at main_kernel+0x110
=========     by thread ({},0,0) in block (0,0,0)
=========
"""
WGMMA = "========= Warpgroup MMA sequence error detected. Not all warps take part.\n"
RACE = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at main_kernel+0xe0
=========     and Read access at main_kernel+0xf0 [512 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
NO_RACE = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
LIMITED = """\
========= ERROR SUMMARY: 28 errors were not printed. Use --print-limit option to adjust \
the number of printed errors
"""
WARNED = RACE.replace("Error: Race", "Warning: Race").replace(
    "(1 error, 0 warnings)", "(0 errors, 1 warning)"
)
IN_WARP = "Barrier error detected. Divergent thread(s) in warp"


@pytest.mark.parametrize(
    ("tool", "report", "status", "found"),
    [
        ("memcheck", CLEAN, 0, (0, 0, "")),
        (
            "memcheck", RUN.format(READ + FAILED, "2 errors"), 1,
            (1, 0, "Invalid __global__ read of size 4 bytes"),
        ),
        (
            "memcheck", RUN.format(READ + STORE, "2 errors"), 1,
            (2, 0, "Invalid __global__ read of size 4 bytes"),
        ),
        ("memcheck", RUN.format(DRIVER, "1 error"), 0, (0, 0, "")),  # no fault of the kernel
        ("synccheck", CLEAN, 0, (0, 0, "")),
        (
            "synccheck", RUN.format(APART.format("warp", 0) + APART.format("warp", 2), "2 errors"),
            1, (2, 0, IN_WARP),
        ),
        (
            "synccheck", RUN.format(APART.format("block.", 64), "64 errors") + LIMITED, 0,
            (1, 0, "Barrier error detected. Divergent thread(s) in block."),
        ),
        (
            "synccheck", RUN.format(WGMMA, "1 error"), 0,
            (1, 0, "Warpgroup MMA sequence error detected. Not all warps take part."),
        ),
        ("racecheck", NO_RACE, 0, (0, 0, "")),
        (
            "racecheck", RACE, 0,
            (1, 0, "Error: Race reported between Write access at main_kernel+0xe0"),
        ),
        (
            "racecheck", WARNED, 0,
            (0, 1, "Warning: Race reported between Write access at main_kernel+0xe0"),
        ),
    ],
)  # fmt: skip
def test_what_a_tool_has_found_is_read_from_its_report(tool, report, status, found):
    assert sanitize.answer(tool, report, status) == found


@pytest.mark.parametrize(
    ("report", "status", "said"),
    [
        ("", 0, "ended with 0: no word"),
        (CLEAN, 1, "ended with 1: ========= ERROR SUMMARY: 0 errors"),
        (RUN.format(FAILED, "1 error"), 1, "ended with 1: ========= ERROR SUMMARY: 1 error"),
        ("Traceback\nRuntimeError: no GPU", 1, "ended with 1: RuntimeError: no GPU"),
        ("========= COMPUTE-SANITIZER\n" + READ, 1, "ended with 1: ========="),
    ],
)
def test_a_control_that_did_not_run_gives_no_answer(report, status, said):
    assert sanitize.answer("memcheck", report, status) == (None, None, said)


CONTROLS = sanitize.controls()


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_can_be_compiled_for_hopper(name):
    kernel = d2ltvm.build(CONTROLS[name](), "sm_90a")
    assert kernel.cubin("sm_90a")[:4] == b"\x7fELF"


@pytest.mark.parametrize("name", sanitize.FAULTS["memcheck"])
def test_an_access_is_one_element_out_of_bounds(name):
    program = CONTROLS[name]()
    params = d2ltvm.build(program, "sm_90a").params
    with pytest.raises(IndexError, match=r"accessed at (\d+); it has \1 elements"):
        d2ltvm.emulate(program, *(np.ones(param.shape, param.dtype) for param in params))
    if name in sanitize.MUST["memcheck"]:  # behind it nothing else may be allocated
        (short,) = (param for param in params if 127 in param.shape)
        assert short.name == name.split(", ")[1][0] and short.nbytes % 512


@pytest.mark.parametrize("name", sanitize.MUST["synccheck"])
def test_the_machine_code_has_a_barrier_that_some_threads_reach(name):
    sass = d2ltvm.build(CONTROLS[name](), "sm_90a").sass("sm_90a")
    barriers = [line.split("*/")[1].split() for line in sass.splitlines() if "BAR.SYNC" in line]
    assert [barrier[0].lstrip("@!") for barrier in barriers] == ["P0", "BAR.SYNC.DEFER_BLOCKING"]


def test_each_tool_has_faults_that_it_must_find_and_whole_kernels():
    asked = sanitize.asked()
    assert len(set(asked)) == len(asked)
    for tool in sanitize.TOOLS:
        names = [name for of, name in asked if of == tool]
        assert sanitize.MUST[tool] and set(sanitize.MUST[tool]) <= set(sanitize.FAULTS[tool])
        assert set(sanitize.FAULTS[tool]) | {"turn_twice"} <= set(names) <= set(CONTROLS)
        assert set(sanitize.MUST[tool]).isdisjoint(sanitize.WHOLE)


def all_found():
    """Errors by control where each tool finds what it has to."""
    errors = {f"{tool}: {name}": 0 for tool, name in sanitize.asked()}
    return errors | {
        f"{tool}: {name}": 1 for tool, names in sanitize.MUST.items() for name in names
    }


def test_where_all_is_found_it_says_so():
    said, right = sanitize.verdict(all_found())
    assert right and len(said) == len(sanitize.TOOLS)
    assert said[0] == "memcheck: found all of 2 faults that it has to find."


@pytest.mark.parametrize("tool", sanitize.TOOLS)
def test_a_fault_that_is_not_found_is_told_in_a_line(tool):
    name = sanitize.MUST[tool][-1]
    errors = all_found() | {f"{tool}: {name}": 0}
    said, right = sanitize.verdict(errors)
    line = f"{tool}: NOT FOUND: {name}. Its zeros for other kernels say nothing."
    assert not right and line in said
    assert not any(line.startswith(f"{tool}: found all") for line in said)
    del errors[f"{tool}: {name}"]
    said, right = sanitize.verdict(errors)
    assert not right and line.replace("NOT FOUND", "NO ANSWER") in said


def test_an_error_in_a_whole_kernel_is_a_false_alarm():
    said, right = sanitize.verdict(all_found() | {"synccheck: turn_twice": 2})
    assert not right and "synccheck: FALSE ALARM: turn_twice, which has no fault." in said


def test_a_control_is_asked_for_by_its_name(tmp_path):
    path = tmp_path / "compute-sanitizer"
    path.write_text('#!/bin/sh\necho "$*"\n')
    path.chmod(0o755)
    command = f"--tool synccheck {sys.executable} {sanitize.__file__} run ring by threads"
    assert sanitize.ask(str(path), "synccheck", "ring by threads").said.endswith(command)


@pytest.fixture
def answered(monkeypatch):
    """Has `main` measure with answers instead of a sanitizer, which may be None."""

    def make(answers):
        def ask(program, tool, name):
            return answers(f"{tool}: {name}")

        monkeypatch.setattr(sanitize, "sanitizer", lambda: "compute-sanitizer")
        monkeypatch.setattr(sanitize, "ask", ask)
        about = {"device": {"name": "NVIDIA H100", "driver": ""}, "date": "2026-01-01"}
        monkeypatch.setattr(
            d2ltvm, "measure", lambda name, run: Record(name=name, **about, **run())
        )

    return make


def test_the_record_has_what_was_found_and_says_who_gave_no_answer(answered, capsys):
    errors, hung = all_found(), "racecheck: ring by threads, nobody waits"
    silent = sanitize.Answer(None, None, "no answer in 30 s")
    answered(lambda label: silent if label == hung else sanitize.Answer(errors[label], 0, ""))
    record = sanitize.ask_all()
    assert record["x"]["values"] == [label for label in errors if label != hung]
    assert sum(record["series"]["errors"]) == 5 and not any(record["series"]["warnings"])
    assert record["notes"].endswith(f"one launch each; {hung}: no answer in 30 s")
    capsys.readouterr()
    assert sanitize.main("hopper/controls") == 0
    out = capsys.readouterr().out
    assert "synccheck: found all of 2 faults" in out and "NOT FOUND" not in out


def test_a_tool_that_finds_nothing_is_an_error(answered, capsys):
    answered(lambda label: sanitize.Answer(int(label.startswith("racecheck")), 0, ""))
    assert sanitize.main("hopper/controls") == 1
    out = capsys.readouterr().out
    for name in sanitize.MUST["memcheck"]:
        assert f"memcheck: NOT FOUND: {name}. Its zeros" in out
    assert "racecheck: FALSE ALARM: turn_twice, which has no fault." in out


def test_a_record_that_there_is_not_is_named(capsys):
    assert sanitize.main("hopper/order") == 2
    assert "record is 'hopper/order'; expected one of hopper/san" in capsys.readouterr().err


def test_without_a_sanitizer_one_line_says_so(monkeypatch):
    monkeypatch.setattr(sanitize.devices, "need_hopper", lambda: None)
    monkeypatch.setattr(sanitize.shutil, "which", lambda name: None)
    with pytest.raises(MissingError, match="compute-sanitizer is not there"):
        sanitize.ask_all()


def test_a_control_that_hangs_is_ended_with_what_it_has_started(tmp_path):
    path, child = tmp_path / "compute-sanitizer", tmp_path / "child"
    path.write_text(f"#!/bin/sh\nsleep 60 &\necho $! > {child}\nwait\n")
    path.chmod(0o755)
    start = time.monotonic()
    found = sanitize.ask(str(path), "racecheck", "ring by threads, nobody waits", limit=0.5)
    assert found == (None, None, "no answer in 0.5 s")
    assert time.monotonic() - start < 20
    for _ in range(100):
        if not alive(int(child.read_text())):
            return
        time.sleep(0.05)
    pytest.fail("the program that it runs is still there")


def alive(pid):
    """Whether a process runs: one that has ended and that nobody has asked about does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
