"""Requests by their pattern are those of kernels, and of the hardware's rules for swizzles."""

import dataclasses
import itertools

import brute
import numpy as np
import pytest
from tvm import te

import d2ltvm
from d2ltvm import layouts
from d2ltvm.analysis import coalescing, patterns, requests
from d2ltvm.schedules.loops import bind_thread, split_axis


def strided_kernel(stride, offset, width, dtype):
    """C = A[offset::stride] in groups of `width`, which a thread copies at once."""
    A = te.placeholder((64 * max(stride, 1) * width + offset,), dtype, name="A")
    C = te.compute(
        (64 * width,), lambda i: A[offset + i // width * (stride * width) + i % width], name="C"
    )
    sch = d2ltvm.schedule((A, C))
    bx, tx, v = split_axis([32, width], sch, sch.get_loops(sch.get_sblock("C"))[0])
    bind_thread(sch, (bx, tx), ("blockIdx.x", "threadIdx.x"))
    if width > 1:
        sch.vectorize(v)
    return sch


@pytest.mark.parametrize("stride, offset", [(1, 0), (2, 8), (3, 0), (8, 24), (33, 16)])
@pytest.mark.parametrize("width, dtype", [(1, "float32"), (4, "float32"), (8, "float16")])
def test_a_stride_asks_for_what_its_kernel_asks_for(stride, offset, width, dtype):
    sch = strided_kernel(stride, offset, width, dtype)
    (found,) = (r for r in requests.warp_requests(sch, "global") if r.kind == "read")
    expected = patterns.strided(stride, offset, width, np.dtype(dtype).itemsize)
    assert (found.cost, found.width) == (expected.cost, expected.width)
    assert behind_the_first(found) == behind_the_first(expected)
    assert (found.first[0] - expected.first[0]) % coalescing.LINE == 0


def behind_the_first(request):
    return {lane: byte - request.first[0] for lane, byte in request.first.items()}


def tile_kernel(columns, padding, across, each, vthreads, width, same_row):
    """C = a tile of A by way of shared memory, cut among the lanes of a warp."""
    rows = 32 // across
    A = te.placeholder((rows, columns), name="A")
    if same_row:  # every row of lanes wants row 0, and writes a result of its own
        C = te.compute((rows, columns), lambda i, j: A[0, j], name="C")
    else:
        C = te.compute((rows, columns), lambda i, j: A[i, j], name="C")
    sch = d2ltvm.schedule((A, C))
    block = sch.get_sblock("C")
    tile = sch.cache_read(block, 0, "shared")
    values = sch.cache_read(block, 0, "local")
    i, j = sch.get_loops(block)
    bx, vx, lane, x = split_axis([vthreads, across, each // vthreads], sch, j)
    sch.reorder(bx, vx, i, lane, x)
    tx = sch.fuse(i, lane)
    bind_thread(sch, (bx, vx, tx), ("blockIdx.x", "vthread.x", "threadIdx.x"))
    sch.compute_at(values, tx)
    sch.compute_at(tile, bx)
    _, thread = split_axis([32], sch, sch.get_loops(tile)[-1])
    sch.bind(thread, "threadIdx.x")
    if padding:
        sch.storage_align(tile, 0, 0, 128, columns % 128 + padding)
    if width > 1:
        sch.vectorize(split_axis([width], sch, sch.get_loops(values)[-1])[1])
    return sch


@pytest.mark.parametrize(
    "columns, padding, across, each, vthreads, width, same_row",
    [
        (32, 0, 1, 32, 1, 1, False),
        (32, 1, 1, 32, 1, 1, False),
        (32, 5, 1, 32, 1, 1, False),
        (64, 4, 8, 8, 1, 4, False),
        (64, 0, 8, 8, 2, 4, False),
        (64, 0, 8, 8, 4, 2, False),
        (32, 0, 8, 4, 1, 4, False),
        (32, 8, 4, 8, 1, 4, False),
        (128, 0, 32, 4, 1, 1, False),
        (128, 0, 32, 4, 4, 1, False),
        (128, 0, 16, 8, 1, 4, True),
        (128, 0, 16, 8, 2, 4, True),
        (128, 4, 16, 8, 2, 2, True),
    ],
)
def test_a_tile_is_asked_as_its_kernel_asks(
    columns, padding, across, each, vthreads, width, same_row
):
    state = (columns, padding, across, each, vthreads, width, same_row)
    found = next(
        r
        for r in requests.warp_requests(tile_kernel(*state), "shared")
        if (r.kind, r.tensor) == ("read", "A_shared")
    )
    expected = patterns.from_tile(*state)
    assert (found.cost, found.width) == (expected.cost, expected.width)
    assert behind_the_first(found) == behind_the_first(expected)


@pytest.mark.parametrize("span, row", [(32, 32), (64, 64), (128, 128)])
def test_a_swizzle_is_that_of_its_rows(span, row):
    i, j = np.indices((64, row // 2))
    functions = {
        32: lambda i, j: i * 16 + layouts.swizzle_32b(i, j),
        64: layouts.swizzle_64b,
        128: layouts.swizzle_128b,
    }
    there = layouts.swizzle((i * (row // 2) + j) * 2, span)
    assert (there == 2 * functions[span](i, j)).all()
    assert len(np.unique(there)) == there.size


def test_a_swizzle_leaves_lines_and_spans_as_they_are():
    byte = np.arange(8192)
    for span in (32, 64, 128):
        there = layouts.swizzle(byte, span)
        assert sorted(there) == sorted(byte)
        assert (there // span == byte // span).all() and (there % 16 == byte % 16).all()
        assert (there[:128] == byte[:128]).all()  # of the first line
        assert (layouts.swizzle(there, span) == byte).all()  # it is its own inverse
    with pytest.raises(ValueError, match="span is 16; expected 32, 64 or 128"):
        layouts.swizzle(0, 16)


@pytest.mark.parametrize("row", [32, 64, 128])
def test_eight_rows_are_without_conflict_from_the_swizzle_of_their_length_on(row):
    for order, which in itertools.product(("32", "64", "128"), range(row // 16)):
        cost = patterns.of_rows(row, order, which).cost
        assert cost == max(1, row // int(order))
        assert cost == brute_cost(patterns.of_rows(row, order, which))


def test_eight_rows_as_they_come_and_padded():
    for row, which in ((32, 1), (64, 3), (128, 7)):
        assert patterns.of_rows(row, "none", which).cost == row // 16
        assert patterns.of_rows(row, "padding", which).cost == 1
        assert patterns.of_rows(row, "none", which, "row").cost == 1
    assert patterns.of_rows(32, "padding", 0, "row").cost == 2


def brute_cost(request):
    return brute.wavefronts(request.first, request.width)[0]


def test_bytes_used_are_those_of_a_set():
    rng = np.random.default_rng(3)
    for width in (1, 2, 4, 8, 16):
        first = rng.integers(0, 200, (50, 32))
        active = rng.random((50, 32)) < rng.choice([0.1, 1], (50, 1))
        found = coalescing.bytes_used(first, active, width)
        for row, asks, number in zip(first, active, found, strict=True):
            assert number == len({b + k for b in row[asks] for k in range(width)})


def test_what_no_gpu_reads_is_refused():
    with pytest.raises(ValueError, match="stride is -1; expected at least 0"):
        patterns.strided(-1)
    with pytest.raises(ValueError, match="16 bytes is not aligned"):
        patterns.strided(1, 1, 4)
    with pytest.raises(ValueError, match="reads 32 bytes at once; expected up to 16"):
        patterns.strided(1, 0, 8)
    with pytest.raises(ValueError, match="across is 3; expected a divisor of 32"):
        patterns.from_tile(32, across=3)
    with pytest.raises(ValueError, match="each is 4; expected 1 to 2"):
        patterns.from_tile(32, across=16, each=4)
    with pytest.raises(ValueError, match="each is 4; expected a multiple"):
        patterns.from_tile(32, each=4, vthreads=2, width=4)
    with pytest.raises(ValueError, match="row is 48"):
        patterns.of_rows(48)
    with pytest.raises(ValueError, match="order is '16'"):
        patterns.of_rows(32, "16")
    with pytest.raises(ValueError, match="which is 2"):
        patterns.of_rows(32, which=2)
    with pytest.raises(ValueError, match="along is 'x'"):
        patterns.of_rows(32, along="x")


def test_a_wide_access_is_several_instructions_as_compiled():
    """TVM writes eight floats of B at once; machine code has two loads of 16 bytes."""
    sch = d2ltvm.schedules.matmul_tiled(256, 256, 256, wide=True, unroll=True)
    wide = {t: d2ltvm.warp_request(sch, t) for t in ("A_shared", "B_shared")}
    parts = {t: requests.instructions(request) for t, request in wide.items()}
    assert [p.width for p in parts["B_shared"]] == [16, 16]
    assert parts["B_shared"][1].first == {k: b + 16 for k, b in wide["B_shared"].first.items()}
    for part in (*parts["A_shared"], *parts["B_shared"]):
        everyone = np.array([[part.first[k] for k in range(32)]])
        assert part.cost == coalescing.wavefronts(everyone, everyone >= 0, 16)[0]
    loads, passes, _ = d2ltvm.traffic(sch, "sm_90").total("read", "shared")
    each = [part.cost for some in parts.values() for part in some]
    assert passes / loads == sum(each) / len(each)
    assert requests.instructions(parts["B_shared"][0]) == parts["B_shared"][:1]
    (first, second) = requests.instructions(
        d2ltvm.warp_request(d2ltvm.schedules.vectorized(1024, width=8), "A")
    )
    assert (first.cost, second.cost) == (32, 32)


def test_wider_reads_are_those_of_a_tile():
    for across, each, vthreads in ((16, 4, 1), (8, 8, 1), (8, 8, 2), (16, 8, 4)):
        tile = {"columns": 128, "padding": 4, "across": across, "each": each, "vthreads": vthreads}
        for width in (2, 4):
            if each // vthreads >= width:
                wide = patterns.wider(patterns.from_tile(**tile), 4 * width)
                assert wide == dataclasses.replace(
                    patterns.from_tile(**tile, width=width), tensor=wide.tensor
                )
    assert patterns.wider(patterns.strided(8), 16).cost == patterns.strided(2, width=4).cost
    for width, stride in ((32, 8), (16, 3)):
        with pytest.raises(ValueError, match=f"width is {width}; expected up to 16"):
            patterns.wider(patterns.strided(stride), width)


def test_words_of_lanes_are_a_request():
    sch = d2ltvm.schedules.transpose(64, pad=1)
    found = d2ltvm.warp_request(sch, "A_shared")
    assert patterns.of_words([33 * y for y in range(32)]).first == found.first
    assert patterns.of_words([5, 5, 37]).cost == 2
    for words in ([], [-1], list(range(33)), [1.5], [[1]]):
        with pytest.raises(ValueError, match=r"^words is .*; expected 1 to 32 words"):
            patterns.of_words(words)
