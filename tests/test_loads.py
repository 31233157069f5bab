"""Loads with a cache operator: the same kernel but for what the L1 cache keeps."""

import re

import pytest

import d2ltvm
from d2ltvm import schedules
from d2ltvm.compiler.loads import with_loads


def test_two_kernels_differ_in_the_operator_alone():
    sch = schedules.tiling(32, 8, 64, 3, 1, 1)
    code = {op: d2ltvm.build(with_loads(sch, op), "sm_90").sass() for op in ("ca", "cg")}
    loads = {op: set(re.findall(r"LDG[.\w]*", text)) for op, text in code.items()}
    assert loads == {"ca": {"LDG.E.STRONG.SM"}, "cg": {"LDG.E.STRONG.GPU"}}
    plain = [
        re.sub(r"/\*[0-9a-fx]*\*/", "", text).replace(*loads[op], "LDG")
        for op, text in code.items()
    ]
    assert plain[0] == plain[1]


def test_the_schedule_stays_as_it_is():
    sch = schedules.one_thread_each(1024)
    before = sch.mod.script()
    with_loads(sch, "cg")
    assert sch.mod.script() == before


def test_another_operator_is_refused():
    with pytest.raises(ValueError, match="operator is 'cs'; expected 'ca' or 'cg'"):
        with_loads(schedules.one_thread_each(64), "cs")
