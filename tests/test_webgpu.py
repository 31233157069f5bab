"""Schedules as WGSL: what is launched, what is adapted, and what is refused, without a browser."""

import math

import numpy as np
import pytest
import tvm
from tvm import te

import d2ltvm
from d2ltvm import schedules
from d2ltvm.compiler import cache, webgpu
from d2ltvm.compiler.ir import find


def test_a_launch_is_that_of_the_schedule():
    shader = webgpu.wgsl(schedules.matmul_shared(64, 96, 32, nt=16))
    assert shader.entry == "main_kernel"
    assert shader.grid == shader.dispatch == (6, 4, 1)
    assert shader.block == (16, 16, 1)
    assert shader.bindings == ("A", "B", "C")
    assert shader.uniform == (5,)
    assert shader.shared == 2 * 16 * 16 * 4
    assert [p.output for p in shader.params] == [False, False, True]
    assert shader.adapted == ()


def test_bindings_have_an_order_of_their_own():
    shader = webgpu.wgsl(schedules.default_sch(4, 4, 8, 3, 1, 1))
    assert [p.name for p in shader.params] == ["X", "K", "Y"]
    assert shader.bindings == ("K", "X", "Y")


@pytest.mark.parametrize(
    ("blocks", "dispatch"),
    [(65535, (65535, 1, 1)), (65536, (32768, 1, 2)), (65537, (32769, 1, 2))],
)
def test_a_long_grid_is_cut_into_pieces_that_cover_it(blocks, dispatch):
    shader = webgpu.wgsl(schedules.one_thread_each(64 * blocks, nt=64))
    assert shader.grid == (blocks, 1, 1)
    assert shader.dispatch == dispatch
    assert dispatch[0] * dispatch[2] >= blocks
    assert shader.uniform == (blocks - 1,)


def test_block_z_is_fused_and_said():
    shader = webgpu.wgsl(schedules.vthread(64, 8, 32, 3, 1, 1))
    assert shader.grid == (1, 2 * 8, 1)
    assert shader.adapted == ("the grid has blockIdx.z and blockIdx.y as one dimension",)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "shape", [(64, 5, 12, 3, 1, 1), (17, 5, 21, 3, 0, 2), (40, 3, 70, 3, 1, 1)]
)
def test_with_fused_blocks_it_computes_the_same(shape):
    def adapted(*shape):
        main, said = webgpu._without_block_z(schedules.tiling(*shape).mod["main"])
        assert said
        assert "blockIdx.z" not in {webgpu._tag(loop) for loop in find(main.body, "For")}
        return main

    d2ltvm.check_conv(adapted, [shape])


def long_vectors(n, width):
    sch = d2ltvm.schedule(d2ltvm.vector_add(n))
    bx, tx, v = sch.split(sch.get_loops(sch.get_sblock("C"))[0], [None, 32, width])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    sch.vectorize(v)
    return sch


@pytest.mark.quick(1)
@pytest.mark.parametrize("width", [5, 6, 8, 16])
def test_long_vectors_become_short_ones_that_compute_the_same(width):
    sch = long_vectors(1920, width)
    said = f"vectors of {width} elements are several of at most 4"
    assert webgpu.wgsl(sch).adapted[0] == said
    main, _ = webgpu._short_vectors(sch.mod["main"])
    vectors = [f for f in find(main.body, "For") if f.kind == tvm.tirx.ForKind.VECTORIZED]
    assert all(int(loop.extent) in (2, 3, 4) for loop in vectors)
    assert d2ltvm.check(d2ltvm.build(main), d2ltvm.get_abc(1920)[:2], np.add) <= 2**-24


def test_shared_memory_of_the_launch_and_asynchronous_copies_are_adapted_and_said():
    shader = webgpu.wgsl(schedules.matmul_warps(256, 256, 64, depth=4))
    assert "cp.async" in shader.adapted[1] and "at the launch" in shader.adapted[0]
    assert shader.shared <= webgpu.MAX_SHARED


@pytest.mark.slow
def test_a_source_that_is_too_long_has_fewer_steps_unrolled_and_says_so(monkeypatch):
    mod = webgpu.as_module(schedules.matmul_vthread(128, 128, 64))
    lengths, said = [], []
    for longest in (2**20, 2**16, 2**15, 1):
        monkeypatch.setattr(webgpu, "LONGEST_SOURCE", longest)
        shader = webgpu._compile(mod)
        lengths.append(len(shader.source))
        said.append(shader.adapted)
    assert lengths[0] > 2**16 > lengths[1] > 2**15 > lengths[2] > lengths[3] > 1
    a_loop = "a loop of 16 steps is {}, which keeps the shader short"
    assert said == [
        (),
        (a_loop.format("unrolled 4 at a time"),),
        (a_loop.format("unrolled 2 at a time"),),
        (a_loop.format("not unrolled"),),
    ]


@pytest.mark.quick(1)
@pytest.mark.parametrize("steps", [6, 4, 1])
def test_with_fewer_steps_unrolled_it_computes_the_same(steps):
    main = schedules.matmul_vthread(130, 75, 33).mod["main"]
    cut = webgpu._at_most(main, steps)
    pieces = {int(loop.extent) for loop in webgpu._outer_unrolled(cut)}
    assert pieces == ({math.gcd(16, steps)} if steps > 1 else {1})
    rng = np.random.default_rng(steps)
    inputs = [rng.standard_normal(shape, "float32") for shape in ((130, 33), (33, 75))]
    d2ltvm.check(d2ltvm.build(cut), inputs, np.matmul, terms=2 * 33)


def unbound():
    return d2ltvm.schedule(d2ltvm.vector_add(64))


def block_z_alone():
    sch = unbound()
    bz, tx = sch.split(sch.get_loops(sch.get_sblock("C"))[0], [None, 32])
    sch.bind(bz, "blockIdx.z")
    sch.bind(tx, "threadIdx.x")
    return sch


def two_kernels():
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] + 1.0, name="B")
    sch = d2ltvm.schedule([A, te.compute((64,), lambda i: B[i] * 2.0, name="C")])
    for name in "BC":
        bx, tx = sch.split(sch.get_loops(sch.get_sblock(name))[0], [None, 32])
        sch.bind(bx, "blockIdx.x")
        sch.bind(tx, "threadIdx.x")
    return sch


def halves():
    sch = d2ltvm.schedule(d2ltvm.vector_add(64, "float16"))
    sch.bind(sch.get_loops(sch.get_sblock("C"))[0], "threadIdx.x")
    return sch


REFUSED = {
    "threads": (lambda: schedules.matmul_naive(64, 64, 64), "1024 threads a block"),
    "shared": (lambda: schedules.matmul_warps(256, 256, 64), "49,664 bytes of shared memory"),
    "binding": (lambda: schedules.one_thread_each(2**25 + 1), "134,217,732 bytes of A"),
    "grid": (lambda: schedules.matmul_coalesced(65536, 1, 1, nt=1), "has grid (1, 65536, 1)"),
    "unbound": (unbound, "bound to no thread"),
    "z alone": (block_z_alone, "'blockIdx.y' right inside of it"),
    "two kernels": (two_kernels, "makes 2 kernels; expected one"),
    "float16": (halves, "A is float16; expected one of float32"),
}


@pytest.mark.quick(4)
@pytest.mark.parametrize("case", REFUSED)
def test_what_no_device_need_have_is_refused_in_one_line(case):
    make, said = REFUSED[case]
    with pytest.raises(ValueError) as error:
        webgpu.wgsl(make())
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_no_schedule_is_a_type_error():
    with pytest.raises(TypeError, match="sch is a str"):
        webgpu.wgsl("matmul")


def test_what_was_compiled_is_read_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    first = webgpu.wgsl(schedules.vectorized(4096))
    assert len(list(cache.entries())) == 1
    monkeypatch.setattr(webgpu, "_compile", lambda mod: pytest.fail("compiled again"))
    assert webgpu.wgsl(schedules.vectorized(4096)) == first
    with pytest.raises(pytest.fail.Exception):
        webgpu.wgsl(schedules.vectorized(4096, nt=64))
