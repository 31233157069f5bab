"""Requests, sectors and bank conflicts, against a run thread by thread and against arithmetic."""

import functools
import time

import brute
import nasty
import numpy as np
import pytest
from tvm import te, tirx
from tvm.script import tirx as T

import d2ltvm
from d2ltvm import schedules
from d2ltvm.analysis import coalescing, index_exprs, traffic
from d2ltvm.compiler import lowering
from d2ltvm.compiler.ir import find


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


@pytest.mark.quick(12)
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


def test_what_is_looked_at_together_does_not_matter(monkeypatch):
    kernels = (functools.partial(schedules.continuous_parallel, 257), nasty.KERNELS["stencil"])
    whole = [d2ltvm.traffic(make()) for make in kernels]
    monkeypatch.setattr("d2ltvm.analysis.coalescing.MOST_ADDRESSES", 200)
    monkeypatch.setattr("d2ltvm.analysis.index_exprs.MOST_COMBINATIONS", 7)
    assert [d2ltvm.traffic(make()) for make in kernels] == whole


def as_written(sch):
    """Counts by key, of every load in every round, with groups of lanes that never merge."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traffic, "rounds", lambda site, walk: site.loops)
        patch.setattr(traffic, "executed", lambda walk: walk.sites)
        patch.setattr(
            coalescing, "_pairs", lambda first, active, distance: np.zeros(len(first), bool)
        )
        table = d2ltvm.traffic(sch)
    return {
        (t.tensor, t.scope, t.kind, t.width): (t.requests, t.sectors, t.wavefronts, t.conflicts)
        for t in table
    }


def by_brute_force(sch):
    counts = {}
    for key, requests in brute.requests(sch).items():
        if key[1] == "global":
            found = [(brute.sectors(r, key[3]), 0, 0) for r in requests]
        else:
            found = [(0, *brute.wavefronts(r, key[3])) for r in requests]
        counts[key] = (len(requests), *map(sum, zip(*found, strict=True)))
    return counts


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", nasty.KERNELS)
def test_nasty_kernels_by_brute_force(name):
    sch = nasty.KERNELS[name]()
    assert as_written(sch) == by_brute_force(sch)


BOOK = {
    "partitioned": lambda: schedules.partitioned(2500),
    "continuous": lambda: schedules.continuous_parallel(70, nt=32, nb=8),
    "alternate": lambda: schedules.alternate_parallel(70, nt=32, nb=8),
    "vectorized": lambda: schedules.bcast_vectorized(33),
    "rows": lambda: schedules.bcast_rows(37, nt=64),
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", BOOK)
def test_kernels_of_the_book_by_brute_force(name):
    sch = BOOK[name]()
    assert as_written(sch) == by_brute_force(sch)


def product(n, tile=16, step=8, each=2, vthreads=2, pad=0):
    """A matrix product with tiles in shared memory, virtual threads and a guard."""
    A, B = (te.placeholder((n, n), name=name) for name in "AB")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    sch = d2ltvm.schedule([A, B, C])
    block, threads = sch.get_sblock("C"), tile // each // vthreads
    i, j, k = sch.get_loops(block)
    bi, vi, ti, ii = sch.split(i, [None, vthreads, threads, each])
    bj, vj, tj, jj = sch.split(j, [None, vthreads, threads, each])
    ko, ki = sch.split(k, [None, step])
    sch.reorder(bi, bj, vi, vj, ti, tj, ko, ki, ii, jj)
    axes = ("blockIdx.y", "blockIdx.x", "vthread.y", "vthread.x", "threadIdx.y", "threadIdx.x")
    for loop, axis in zip((bi, bj, vi, vj, ti, tj), axes, strict=True):
        sch.bind(loop, axis)
    sch.reverse_compute_at(sch.cache_write(block, 0, "local"), tj)
    for which in (0, 1):
        copy = sch.cache_read(block, which, "shared")
        sch.compute_at(copy, ko)
        fused = sch.fuse(*sch.get_loops(copy)[-2:])
        _, ty, tx = sch.split(fused, [None, threads, threads])
        sch.bind(ty, "threadIdx.y")
        sch.bind(tx, "threadIdx.x")
        if pad:
            sch.storage_align(copy, 0, 0, 32, pad)
    sch.decompose_reduction(block, ko)
    return sch


@pytest.mark.slow
@pytest.mark.parametrize("n", [32, 21])
@pytest.mark.parametrize("pad", [0, 1])
def test_a_matrix_product_by_brute_force(n, pad):
    sch = product(n, pad=pad)
    assert as_written(sch) == by_brute_force(sch)


def test_loads_that_a_register_keeps_are_counted_once():
    table = {(t.tensor, t.kind): t for t in d2ltvm.traffic(product(32))}
    blocks, steps = 2 * 2, 4  # a block of 16 threads is one warp
    # A thread needs 4 rows of A and 4 columns of B in each of the 8 rounds of a step, whatever the
    # order of the loops, and stores 4 x 4 results.
    for tensor in ("A_shared", "B_shared"):
        assert table[tensor, "read"].requests == blocks * steps * 8 * 4
    assert table["C", "write"].requests == blocks * 16


@pytest.mark.parametrize("pad, passes", [(0, 32), (1, 1), (2, 2)])
def test_a_column_of_a_tile_takes_as_many_passes_as_rows_share_a_bank(pad, passes):
    table = {(t.tensor, t.kind): t for t in d2ltvm.traffic(nasty.transpose(64, 32, 32, pad))}
    read, write = table["tile", "read"], table["tile", "write"]
    assert read.wavefronts == passes * read.requests
    assert read.conflicts == (passes - 1) * read.requests
    assert (write.wavefronts, write.conflicts) == (write.requests, 0)


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", [name for name in nasty.KERNELS if "transpose" in name])
def test_the_transposes_are_right(name):
    kernel = d2ltvm.build(nasty.KERNELS[name]())
    (a,) = (np.random.default_rng(0).random(p.shape, p.dtype) for p in kernel.params[:1])
    error = d2ltvm.check(kernel, (a,), lambda a: a.reshape(64, 64).T.ravel())
    assert error == 0


def passes_of(words, width):
    first = np.array([words]) * 4
    return tuple(int(v[0]) for v in coalescing.wavefronts(first, np.ones((1, 32), bool), width))


def test_groups_of_lanes():
    lanes = np.arange(32)
    assert passes_of(lanes, 4) == (1, 0)
    assert passes_of(0 * lanes, 4) == (1, 0)
    assert passes_of(2 * lanes, 8) == (2, 0)
    assert passes_of(4 * lanes, 8) == (4, 2)  # lanes 0 and 8 meet in a bank
    assert passes_of(4 * lanes, 16) == (4, 0)
    assert passes_of(8 * lanes, 16) == (8, 4)


def test_loads_in_pairs_are_served_in_larger_groups():
    lanes = np.arange(32)
    assert passes_of(0 * lanes, 8) == (1, 0)
    assert passes_of(0 * lanes, 16) == (2, 0)
    assert passes_of(lanes // 2 * 2, 8) == (1, 0)  # n and n ^ 1
    assert passes_of(lanes // 4 * 4 + lanes % 2 * 2, 8) == (1, 0)  # n and n ^ 2
    assert passes_of(lanes // 16 * 2, 8) == (1, 0)
    first, everyone = np.array([0 * lanes]), np.ones((1, 32), bool)
    assert coalescing.wavefronts(first, everyone, 16, "write")[0] == 4


@pytest.mark.parametrize("width", [4, 8, 16])
def test_words_are_served_in_as_many_wavefronts_as_are_counted(width):
    rng = np.random.default_rng(width)
    for trial in range(60):
        words = rng.permutation(64)[:32] if trial % 2 else np.arange(32) // 2 * rng.integers(1, 40)
        first, active = words * width, rng.random(32) < (0.7 if trial % 3 else 2)
        if not active.any():
            continue
        served = coalescing.served(first, active, width)
        passes = coalescing.wavefronts(first[None], active[None], width)[0][0]
        asked = {int(byte) // 4 + k for byte in first[active] for k in range(width // 4)}
        assert set(served) == asked and max(served.values()) < passes
        in_one = {(wave, word % 32) for word, wave in served.items()}
        assert len(in_one) == len(served)  # a bank gives one word a wavefront
        if trial % 2:  # no word is asked for by two groups of lanes
            assert max(served.values()) + 1 == passes


def test_passes_of_two_convolutions_are_those_that_an_h200_counted():
    """Of each load in a round: bytes, and the first word of each lane. Nsight Compute counted."""
    lanes = np.arange(32)
    x, y = lanes % 16, lanes // 16
    same = [(16, 0 * lanes)] * 6
    tiling = [(16, 132 * y + 4 * x), (8, 132 * y + 4 * x + 4)]
    tiling += [(8, 132 * y + 4 * x + 66), (16, 132 * y + 4 * x + 68), *same]
    vthread = [(8, 128 * y + 2 * x + 64 * k) for k in range(8)] + same
    rounds = 192 * 128  # of the loop, and warps
    for loads, counted in ((tiling, (688_128, 98_304)), (vthread, (688_128, 0))):
        passes = np.array([passes_of(words, width) for width, words in loads])
        assert tuple(rounds * passes.sum(axis=0)) == counted


def test_a_kernel_of_a_thousand_lines_takes_less_than_two_seconds():
    sch = product(4096, tile=64, step=16, each=4, vthreads=2)
    update = sch.get_sblock("C_update")
    for loop in sch.get_loops(update)[-3:]:
        sch.annotate(loop, "pragma_auto_unroll_max_step", 4096)
        sch.annotate(loop, "pragma_unroll_explicit", 1)
    lowered = lowering.lower(lowering.as_module(sch), d2ltvm.system.as_target("sm_80"))
    (body,) = (f.body for f in lowered.device_functions.values())
    assert len(body.script().splitlines()) > 1000 and lowered.launches[0].grid == (64, 64, 1)
    start = time.process_time()
    table = traffic.of_lowered(lowered)
    assert time.process_time() - start < 2
    assert table.total("write")[0] == 4096 * 4096 // 32


def test_the_cost_does_not_grow_with_the_grid():
    _, counts = index_exprs.combinations(
        [index_exprs.Shift(index_exprs.variable("blockIdx.x").times(1024), 8)],
        {"blockIdx.x": (0, 10**6)},
    )
    assert counts.tolist() == [10**6]


def test_an_element_that_all_lanes_of_a_vector_share_is_one_access():
    # A[i] stands for four columns where n is a multiple of four, but not where rows end between.
    table = by_name(d2ltvm.sectors(schedules.bcast_vectorized(1000)))
    assert (table["read A"].width, table["read B"].width) == (4, 16)


def test_what_a_block_touches():
    sch = schedules.matmul_shared(96, 64, 32)
    found = {name: d2ltvm.touched(sch, name, block=(1, 2, 0)) for name in "AB"}
    assert found["A"].shape == (96, 32) and found["B"].shape == (32, 64)
    assert (found["A"][64:] == 1).all() and found["A"].sum() == 32 * 32
    assert (found["B"][:, 32:] == 1).all() and found["B"].sum() == 32 * 32
    written = d2ltvm.touched(sch, "C", "write", (1, 2, 0))
    assert (written[64:, 32:] == 1).all() and written.sum() == 32 * 32


@pytest.mark.slow
def test_all_blocks_together_touch_what_a_run_thread_by_thread_does():
    sch = schedules.bcast_vectorized(100)
    blocks = -(-100 * 100 // 1024)
    total = sum(d2ltvm.touched(sch, "B", block=(k, 0, 0)) for k in range(blocks))
    assert (total == 1).all()
    sch = nasty.KERNELS["stencil"]()
    total = sum(d2ltvm.touched(sch, "A", block=(k, 0, 0)) for k in range(16))
    assert total[[0, -1]].tolist() == [2, 2] and (total[1:-1] == 3).all()


@pytest.mark.parametrize("vthreads", [1, 2])
def test_owners_are_the_threads_of_the_tiles(vthreads):
    # A thread's 8 rows are in `vthreads` pieces, its 8 columns likewise; 16 threads each way.
    pieces = (vthreads, 1, 16, 8 // vthreads)
    sch = schedules.matmul_tiled(200, 256, 64, rows=pieces, columns=pieces)
    found = d2ltvm.owners(sch, "C", block=(1, 1, 0))
    row, column = np.indices(found.shape)
    part = 8 // vthreads
    expected = (row % 128 // part % 16) * 16 + column % 128 // part % 16
    assert np.array_equal(found, np.where((row >= 128) & (column >= 128), expected, -1))
    assert np.array_equal(found >= 0, d2ltvm.touched(sch, "C", "write", (1, 1, 0)) > 0)


def test_of_several_owners_it_is_the_first():
    found = d2ltvm.owners(schedules.matmul_shared(64, 64, 64), "B", "read", (1, 0, 0))
    # Thread (y, x) fetches element (y, x) of a tile: the numbers of a block of 32 by 32.
    assert np.array_equal(found[:, 32:], np.tile(np.arange(1024).reshape(32, 32), (2, 1)))
    assert (found[:, :32] == -1).all()
    same = d2ltvm.owners(schedules.matmul_naive(32, 32, 8, nt=32), "B", "read")
    assert np.array_equal(same, np.tile(np.arange(32) * 32, (8, 1)))  # all lanes of a warp ask


def test_touched_names_what_is_wrong():
    sch = schedules.one_thread_each(64)
    with pytest.raises(ValueError, match="tensor is 'D'; expected one of A, B, C"):
        d2ltvm.touched(sch, "D")
    with pytest.raises(ValueError, match="no such access to A"):
        d2ltvm.touched(sch, "A", "write")
    for block in ((5, 0, 0), (0, 0), None, (0.5, 0, 0), (-1, 0, 0)):
        with pytest.raises(ValueError, match=r"block is .* expected three integers below those of"):
            d2ltvm.touched(sch, "A", block=block)
    with pytest.raises(ValueError, match="kind is 'reads'; expected 'read' or 'write'"):
        d2ltvm.touched(sch, "A", "reads")


def test_totals_and_table():
    table = d2ltvm.sectors(schedules.one_thread_each(1024))
    assert table.total("read") == (64, 256) and table.total("write") == (32, 128)
    assert "read A" in str(table) and "4.00" in str(table)
    with pytest.raises(ValueError, match="kind is 'reads'; expected 'read' or 'write'"):
        table.total("reads")
    with pytest.raises(ValueError, match="scope is 'local'; expected 'global' or 'shared'"):
        table.total("read", "local")


@pytest.mark.parametrize("number", [1, -1, 0.5, "0"])
def test_a_request_that_is_not_there_is_named(number):
    with pytest.raises(
        ValueError, match=r"tensor is 'A', kind 'read', .*; expected one that is there: read A"
    ):
        d2ltvm.warp_request(schedules.one_thread_each(64), "A", number=number)


def shared_by_block():
    """s[x * u]: the stride between lanes is the number of the block."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((8, 32), "float32"), C: T.Buffer((8, 32), "float32")):
        for u in T.thread_binding(8, "blockIdx.x"):
            for x in T.thread_binding(32, "threadIdx.x"):
                s = T.alloc_buffer((256,), "float32", scope="shared")
                for k in range(8):
                    s[k * 32 + x] = A[u, x]
                C[u, x] = s[x * u]

    return main


def test_a_shared_index_that_depends_on_the_block():
    assert by_brute_force(shared_by_block())["s", "shared", "read", 4] == (8, 0, 13, 5)
    assert as_written(shared_by_block()) == by_brute_force(shared_by_block())
    (launched,) = traffic.launched_of(traffic.as_written(shared_by_block()))
    assert len(launched.block_classes()[0]) == 8
    for arch in ("sm_80", "sm_90"):
        assert d2ltvm.traffic(shared_by_block(), arch).total("read", "shared") == (8, 13, 5)


def test_buffers_and_loops_of_one_name_are_told_apart():
    """Two arrays `s`, two loops `k` and two values `v`, of which only one is changed."""

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
        for x in T.thread_binding(32, "threadIdx.x"):
            s = T.alloc_buffer((64,), "float32", scope="shared")
            t = T.alloc_buffer((64,), "float32", scope="shared")
            for k in range(2):
                s[k * 32 + x] = A[k * 32 + x]
            for k in range(2):
                t[x * 2 + k] = A[x * 2]
            for k in range(2):
                C[k * 32 + x] = s[x * 2 + k] + t[x]

    sch = main.with_attr("global_symbol", "main")
    lowered = traffic.as_written(sch)
    (function,) = lowered.device_functions.values()
    found = as_written(sch)
    assert found == by_brute_force(sch)
    assert len({b.buffer.name for b in find(function.body, "AllocBuffer")}) == 2


def test_a_condition_on_data_is_followed_where_it_decides_about_no_access():
    A = te.placeholder((64,), name="A")
    C = te.compute((64,), lambda i: te.if_then_else(A[i] > 0, A[i], 0.0), name="C")
    leaky = te.compute((64,), lambda i: tirx.Select(A[i] > 0, 1.0, 2.0), name="C")
    for last, counts in ((leaky, True), (C, False)):
        sch = d2ltvm.schedule([A, last])
        sch.bind(sch.get_loops(sch.get_sblock("C"))[0], "threadIdx.x")
        if counts:
            assert d2ltvm.traffic(sch).total("read") == (2, 8)
        else:
            with pytest.raises(NotImplementedError, match="cannot work out a"):
                d2ltvm.traffic(sch)


def rounds_of(many):
    A, k = te.placeholder((32,), name="A"), te.reduce_axis((0, many), name="k")
    C = te.compute((32,), lambda i: te.sum(A[(i + k) % 32], axis=k), name="C")
    sch = d2ltvm.schedule([A, C])
    sch.bind(sch.get_loops(sch.get_sblock("C"))[0], "threadIdx.x")
    return sch


@pytest.mark.parametrize("arch", [None, "sm_90"])
def test_an_access_that_is_not_aligned_is_refused(arch):
    def rows_of(words):  # C = A, by way of a tile whose rows are so many words apart
        A = te.placeholder((64, 32), name="A")
        sch = d2ltvm.schedule((A, te.compute((64, 32), lambda i, j: A[i, j], name="C")))
        tile = sch.cache_read(sch.get_sblock("C"), 0, "shared")
        block_of_rows, _ = sch.split(sch.get_loops(sch.get_sblock("C"))[0], [None, 32])
        sch.bind(block_of_rows, "blockIdx.x")
        sch.compute_at(tile, block_of_rows)
        for block in (tile, sch.get_sblock("C")):
            each = sch.fuse(*sch.get_loops(block)[1:])
            thread, lanes = sch.split(each, [None, 4])
            sch.bind(thread, "threadIdx.x")
            sch.vectorize(lanes)
        sch.storage_align(tile, 0, 0, 32, words - 32)
        return sch

    assert d2ltvm.traffic(rows_of(36), arch).total("write", "shared")[0] == 16
    with pytest.raises(ValueError, match="16 bytes at once, not aligned; expected"):
        d2ltvm.traffic(rows_of(33), arch)


def test_what_takes_too_long_is_refused(monkeypatch):
    """Ten million rounds at once; many instructions when they have been followed for a while."""
    message = "writes C in 10,000,000 rounds of its loops; machine code of up to 3,200,000"
    start = time.process_time()
    with pytest.raises(NotImplementedError, match=message):
        d2ltvm.traffic(rounds_of(10**7), "sm_90")
    assert time.process_time() - start < 5
    monkeypatch.setattr("d2ltvm.analysis.sass_interpreter.MOST_WORK", 10**7)
    with pytest.raises(NotImplementedError, match=r"^main_kernel has not ended after 1,9\d\d inst"):
        d2ltvm.traffic(rounds_of(10**4), "sm_90")


@pytest.mark.slow
def test_a_launch_of_too_many_blocks_is_refused():
    sch = schedules.one_thread_each(2**30, nt=32)
    with pytest.raises(NotImplementedError, match=r"grid of \(33554432, 1, 1\); machine code"):
        d2ltvm.traffic(sch, "sm_90")
    assert d2ltvm.traffic(sch).total("write") == (2**25, 2**27)


def test_a_variable_of_the_host_is_named():
    body = tirx.Evaluate(tirx.Var("r", "int32") + 1)
    with pytest.raises(NotImplementedError, match=r"^cannot work out r, which depends on data"):
        index_exprs.convert(body.value, {})


def test_an_index_that_depends_on_data_is_refused():
    sch = nasty.gather(64)
    with pytest.raises(NotImplementedError, match="TensorLoad"):
        d2ltvm.sectors(sch)


def test_too_many_combinations_are_refused():
    total = index_exprs.variable("a") + index_exprs.variable("b")
    third = index_exprs.Sum(
        frozenset([(index_exprs.Op("FloorDiv", (total, index_exprs.constant(3))), 1)])
    )
    with pytest.raises(NotImplementedError, match="a: 100000, b: 100000"):
        index_exprs.combinations([index_exprs.Shift(third)], {"a": (0, 10**5), "b": (0, 10**5)})


@pytest.mark.slow
def test_asynchronous_copies_are_counted_as_written_too():
    plain, pipelined = (
        by_name(d2ltvm.traffic(schedules.matmul_vthread(128, 128, 32, stages=stages)))
        for stages in (1, 2)
    )
    assert plain == pipelined
    assert plain["read A"].requests == 128 * 32 // 32


@T.prim_func(s_tir=True)
def written_between_two_loads(
    A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32"), D: T.Buffer((64,), "float32")
):
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        with T.sblock("before"):
            i = T.axis.spatial(64, tx)
            C[i] = A[i]
        with T.sblock("written"):
            i = T.axis.spatial(64, tx)
            A[63 - i] = T.float32(2)
        with T.sblock("after"):
            i = T.axis.spatial(64, tx)
            D[i] = A[i]


def test_what_was_written_since_is_loaded_again():
    (reads,) = [
        t for t in d2ltvm.traffic(written_between_two_loads) if (t.kind, t.tensor) == ("read", "A")
    ]
    assert reads.requests == 2 * 2  # by two warps: once before the write, and once after it


def test_of_a_choice_each_side_is_loaded_where_it_is_taken():
    A, B = (te.placeholder((64,), name=name) for name in "AB")
    C = te.compute((64,), lambda i: te.if_then_else(i < 32, A[i], B[i]), name="C")
    sch = d2ltvm.schedule([A, B, C])
    sch.bind(sch.get_loops(sch.get_sblock("C"))[0], "threadIdx.x")
    found = {t.tensor: t.requests for t in d2ltvm.traffic(sch) if t.kind == "read"}
    assert found == {"A": 1, "B": 1}


@pytest.mark.quick(1)
@pytest.mark.parametrize("border", [0, 1])
def test_asynchronous_copies_are_counted_in_blocks_at_the_border_as_in_others(border):
    """A block of the border copies less, and only the guards of its copies tell it apart."""
    shape = (128, 128, 8, 5, 3, border, 1)
    counts = []
    for stages in (1, 2):
        sch = schedules.hwcn_tiled(*shape, depth=8, stages=stages)
        assert ("cp_async" in d2ltvm.build(sch, "sm_90").code) == (stages == 2)
        counts.append(d2ltvm.traffic(sch, "sm_90").total("read"))
    assert counts[0] == counts[1] == d2ltvm.traffic(sch).total("read")
