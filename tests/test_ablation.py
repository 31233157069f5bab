"""Kernels with a part taken away: still a kernel, and what is not there is an error."""

import numpy as np
import pytest
from tvm.script import tirx as T

import d2ltvm
from d2ltvm import hopper
from d2ltvm.analysis import sass
from d2ltvm.hopper import tiles
from d2ltvm.hopper.patch import changed

pytestmark = pytest.mark.slow


@T.inline
def wait_for_all(ring, thread, last, k):
    T.ptx.wgmma.wait_group.sync.aligned(0)
    if thread % 128 == 0 and k > 0:
        ring.empty.arrive(last)


def waits_for_all_but_one(kernel):
    """Whether there is a wait that lets one group of products go on."""
    text = d2ltvm.build(kernel(256, 256, 256), "sm_90a").source
    return "wgmma.wait_group.sync.aligned 1" in text


def test_another_macro():
    slow = changed(hopper.matmul_nt, release=wait_for_all)
    assert waits_for_all_but_one(hopper.matmul_nt) and not waits_for_all_but_one(slow)
    a, b = (np.random.default_rng(k).standard_normal((100, 72)).astype("float16") for k in (0, 1))
    c = np.full((100, 100 // 8 * 8), np.nan, "float16")
    d2ltvm.emulate(slow(100, 96, 72), a, b[:96].copy(), c)
    want = a.astype("float64") @ b[:96].astype("float64").T
    assert np.abs(c - want).max() < 0.02  # half a unit of a float16 from 32 to 64


def test_another_line():
    edit = (
        "        else:\n            consumer:",
        "        if warpgroup > 0:\n            consumer:",
    )
    kernel = d2ltvm.build(changed(hopper.matmul_nt, edit)(256, 256, 256), "sm_90a")
    loop = next(x for x in sass.loops(kernel.sass()) if any(op.startswith("HGMMA") for op in x))
    assert any(op.startswith("R2UR") for op in loop)


def test_the_function_itself_stays():
    before = hopper.matmul_nt
    changed(hopper.matmul_nt, ("wait_group(0)", "wait_group(0)"), release=wait_for_all)
    assert hopper.matmul_nt is before and tiles.release is not wait_for_all


def test_errors():
    with pytest.raises(ValueError, match="edits has 'no such text'; expected text of matmul_nt"):
        changed(hopper.matmul_nt, ("no such text", ""))
    with pytest.raises(ValueError, match="names has nobody; expected a name in matmul_nt"):
        changed(hopper.matmul_nt, nobody=None)


def test_a_changed_macro():
    kept = changed(wait_for_all, ("aligned(0)", "aligned(1)"))
    same = changed(hopper.matmul_nt, release=kept)
    assert waits_for_all_but_one(same)
    with pytest.raises(ValueError, match="edits has 'no such text'; expected text of wait_for_all"):
        changed(wait_for_all, ("no such text", ""))
