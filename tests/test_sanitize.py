"""What NVIDIA's compute-sanitizer is given, and what is made of its words; it does not run here."""

import pytest
import sanitize

import d2ltvm


@pytest.mark.slow
@pytest.mark.parametrize("group", sanitize.GROUPS)
def test_the_kernels_can_be_built(group):
    programs = list(sanitize.GROUPS[group][0]())
    assert all(d2ltvm.build(program, "sm_90a").params for program in programs)
    assert len(programs) > 10


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
def test_errors_are_counted(says, words, status, errors):
    assert sanitize.count_errors(says(words, status), "hopper/sanitizer", "memcheck") == errors


@pytest.mark.parametrize(
    ("words", "status"), [("", 0), ("killed", 9), ("========= ERROR SUMMARY: 0 errors", 1)]
)
def test_kernels_that_did_not_run_are_no_zero(says, words, status):
    with pytest.raises(RuntimeError, match=r"memcheck of hopper/sanitizer"):
        sanitize.count_errors(says(words, status), "hopper/sanitizer", "memcheck")
