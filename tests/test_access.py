"""Sectors and requests, against a count by brute force and against arithmetic."""

import numpy as np
import pytest
from tvm import te

import d2ltvm
from d2ltvm import schedules


def strided(n, stride, nt=64, dtype="float32"):
    """C[i] = A[i * stride]: each thread reads one element, `stride` apart."""
    A = te.placeholder((n * stride,), dtype, name="A")
    C = te.compute((n,), lambda i: A[i * stride], name="C")
    sch = d2ltvm.schedule([A, C])
    block, tx = sch.split(sch.get_loops(sch.get_sblock("C"))[0], [None, nt])
    sch.bind(block, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    return sch


def by_name(table):
    return {f"{t.kind} {t.tensor}": t for t in table}


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
@pytest.mark.parametrize("stride", [1, 2, 3, 5, 8, 33])
@pytest.mark.parametrize("n", [64, 100, 1000])
def test_strided_reads_by_brute_force(n, stride, dtype):
    size = np.dtype(dtype).itemsize
    warps = [range(w, min(w + 32, n)) for w in range(0, n, 32)]
    expected = sum(len({i * stride * size // 32 for i in warp}) for warp in warps)
    read = by_name(d2ltvm.sectors(strided(n, stride, dtype=dtype)))["read A"]
    assert (read.requests, read.sectors) == (len(warps), expected)


def test_continuous_touches_a_sector_a_lane_and_alternate_four_a_request():
    n = 512
    continuous = by_name(d2ltvm.sectors(schedules.continuous_parallel(n)))
    alternate = by_name(d2ltvm.sectors(schedules.alternate_parallel(n)))
    requests = n * n // 32
    for tensor in ("read B", "write C"):
        assert (continuous[tensor].requests, alternate[tensor].requests) == (requests, requests)
        # 16 neighbouring floats a thread: two sectors, of which a request touches one.
        assert continuous[tensor].sectors == 32 * requests
        assert alternate[tensor].sectors == 4 * requests


def test_a_load_that_does_not_change_in_a_loop_is_counted_once():
    table = by_name(d2ltvm.sectors(schedules.continuous_parallel(512)))
    warps = 256 * 64 // 32
    assert table["read A"].requests == warps


def test_wide_accesses_are_one_request():
    table = by_name(d2ltvm.sectors(schedules.vectorized(4096)))
    assert {(t.width, t.requests, t.sectors) for t in table.values()} == {(16, 32, 512)}


def test_the_last_warp_is_counted_as_far_as_it_goes():
    table = by_name(d2ltvm.sectors(schedules.one_thread_each(37, nt=64)))
    assert (table["write C"].requests, table["write C"].sectors) == (2, 5)


def test_large_grids_are_counted_in_chunks(monkeypatch):
    whole = d2ltvm.sectors(schedules.one_thread_each(5000, nt=96))
    monkeypatch.setattr("d2ltvm.access.CHUNK", 200)
    assert d2ltvm.sectors(schedules.one_thread_each(5000, nt=96)) == whole


def test_totals_and_table():
    table = d2ltvm.sectors(schedules.one_thread_each(1024))
    assert table.total("read") == (64, 256) and table.total("write") == (32, 128)
    assert "read A" in str(table) and "4.00" in str(table)


def test_an_index_that_depends_on_data_is_refused():
    A = te.placeholder((64,), name="A")
    P = te.placeholder((64,), "int32", name="P")
    C = te.compute((64,), lambda i: A[P[i]], name="C")
    sch = d2ltvm.schedule([A, P, C])
    sch.bind(sch.get_loops(sch.get_sblock("C"))[0], "threadIdx.x")
    with pytest.raises(NotImplementedError, match="TensorLoad"):
        d2ltvm.sectors(sch)
