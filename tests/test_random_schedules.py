"""Random schedules: accesses against a run thread by thread, results against NumPy and PoCL.

`D2LTVM_FUZZ=500` tries so many, and a fifth of them compiled; a plain run tries few.
"""

import os
from collections import defaultdict

import numpy as np
import pytest
import random_schedules
from test_access import as_written, by_brute_force

import d2ltvm
from d2ltvm.analysis import coalescing

pytestmark = pytest.mark.slow

MANY = int(os.environ.get("D2LTVM_FUZZ", "24"))
VARYING = "has no fixed length"  # a loop whose length differs between blocks: named, not followed
KEPT = "values kept in registers, or not needed"


def accesses(sch):
    """By brute force; None of a kernel that no GPU runs, for accesses that are not aligned."""
    try:
        return by_brute_force(sch)
    except AssertionError as error:
        assert "not aligned" in str(error) or "a vector with a stride" in str(error)
        return None


def emulated(case):
    found = np.zeros_like(case.expected)
    d2ltvm.emulate(case.sch, *case.inputs, found)
    return found


@pytest.mark.parametrize("seed", range(MANY))
def test_accesses_and_results(seed):
    case = random_schedules.case(seed)
    assert (emulated(case) == case.expected).all(), case.text
    expected = accesses(case.sch)
    if expected is None:
        with pytest.raises((ValueError, NotImplementedError), match=r"aligned|a stride"):
            as_written(case.sch)
        return
    try:
        found = as_written(case.sch)
    except NotImplementedError as error:
        assert VARYING in str(error), case.text
        pytest.skip(f"{case.text}: {error}")
    assert found == expected, case.text


VARIES = 56  # has a loop whose length is not known before


@pytest.mark.parametrize("seed", [*range(0, MANY, 4), *([VARIES] if MANY <= VARIES else [])])
def test_results_of_pocl(seed):
    case = random_schedules.case(seed)
    if case.expected.dtype == "float16":
        pytest.skip("PoCL has no float16")
    found = np.zeros_like(case.expected)
    d2ltvm.build(case.sch, "opencl")(*case.inputs, found)
    assert (found == case.expected).all(), case.text


def by_kind(counts):
    """Counts by tensor and kind, and then by width."""
    found = defaultdict(dict)
    for (tensor, scope, kind, width), row in counts:
        key = (tensor if scope == "global" else "shared", kind)
        before = found[key].get(width, (0, 0, 0, 0))
        found[key][width] = tuple(a + b for a, b in zip(before, row, strict=True))
    return dict(found)


def explained(written, made):
    """What the compiler did to the accesses of one tensor; None where that has no name."""
    requests = [sum(row[0] for row in rows.values()) for rows in (written, made)]
    if written == made:
        return "as written"
    if requests[1] < requests[0]:
        joined = max(made, default=0) > max(written, default=0)
        return "joined into wider ones" if joined else KEPT
    if max(made) < max(written):
        return "taken apart"
    return None


def compiled(sch, arch):
    """What the machine code does, by kind, with groups of lanes that never merge."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coalescing, "_pairs", lambda first, *_: np.zeros(len(first), bool))
        table = d2ltvm.traffic(sch, arch)
    return by_kind(
        (
            (t.tensor, t.scope, t.kind, t.width),
            (t.requests, t.sectors, t.wavefronts, t.conflicts),
        )
        for t in table
    )


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("seed", range(0, MANY, 5))
def test_compiled_accesses_are_those_of_the_code_or_explained(seed, arch):
    case = random_schedules.case(seed)
    if (expected := accesses(case.sch)) is None:
        return
    try:
        made = compiled(case.sch, arch)
    except NotImplementedError as error:
        pytest.skip(f"{case.text}: {error}")
    written = by_kind(expected.items())
    assert made.keys() <= written.keys(), case.text
    for key, rows in written.items():
        what = explained(rows, made.get(key, {}))
        assert what, (case.text, key, rows, made.get(key))
        assert what != KEPT or key[1] == "read" or key[0] == "shared", "a result is not stored"


def test_a_vector_that_has_a_name_is_not_the_same_in_all_lanes():
    """An index made of named vectors has a stride from lane to lane, which is refused."""
    case = random_schedules.case(455)
    assert accesses(case.sch) is None
    for arch in (None, "sm_90"):
        with pytest.raises(NotImplementedError, match="a vector access with a stride"):
            d2ltvm.traffic(case.sch, arch)
