"""Indices outside of their tensors are refused before anything runs; guarded ones are not."""

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.script import tirx as T

import d2ltvm
from d2ltvm.compiler import bounds

N = 1000


def one_each(tensors, block="C", nt=64):
    sch = d2ltvm.schedule(tensors)
    bx, tx = sch.split(sch.fuse(*sch.get_loops(sch.get_sblock(block))), [None, nt])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    return sch


def reading(index, shape=(N,)):
    A = te.placeholder(shape, name="A")
    return one_each([A, te.compute(shape, lambda *i: index(A, *i), name="C")])


OUTSIDE = {
    "one behind": (lambda A, i: A[i + 1], N),
    "one before": (lambda A, i: A[i - 1], -1),
    "far": (lambda A, i: A[i + 10**6], 10**6),
    "far before": (lambda A, i: A[i * 4096 - 2**30], -(2**30)),
    "guard that is too weak": (lambda A, i: te.if_then_else(i <= N - 1, A[i + 1], 0.0), N),
    "guard of the other side": (lambda A, i: te.if_then_else(i > 0, A[i + 1], 0.0), N),
    "else": (lambda A, i: te.if_then_else(i < N - 1, 0.0, A[i + 1]), N),
    "and": (lambda A, i: te.if_then_else(te.all(i > 0, A[i + 1] > 0), 1.0, 0.0), N),
    "rest": (lambda A, i: A[tvm.tirx.floormod(i, 7) + N - 6], N),
}


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("function", [d2ltvm.build, d2ltvm.traffic, d2ltvm.emulate])
def test_an_index_outside_is_named_before_anything_runs(name, function):
    index, value = OUTSIDE[name]
    message = rf"block C reads A\[.*\], where the index is {value}; expected 0 to {N - 1}"
    arrays = d2ltvm.get_abc(N)[::2] if function is d2ltvm.emulate else ()
    with pytest.raises(ValueError, match=message):
        function(reading(index), *arrays)


def test_the_next_row_is_outside_too():
    with pytest.raises(ValueError, match=r"reads A\[v_i0, v_i1 \+ 1\], where the index is 30; exp"):
        d2ltvm.build(reading(lambda A, i, j: A[i, j + 1], (20, 30)))


def test_large_loops_are_tried_at_their_ends():
    with pytest.raises(ValueError, match=r"reads A\[.*\], where the index is .*; expected 0 to"):
        d2ltvm.build(reading(lambda A, i, j: A[i, j + 1], (5000, 7000)))


@pytest.mark.parametrize("target", ["opencl", "llvm"])
def test_a_write_outside_is_refused(target):
    @T.prim_func(s_tir=True)
    def shifted(A: T.Buffer((N,), "float32"), C: T.Buffer((N,), "float32")):
        for i in range(N):
            with T.sblock("C"):
                v_i = T.axis.spatial(N, i)
                C[v_i + 8] = A[v_i]

    sch = tvm.s_tir.Schedule(shifted)
    if target == "opencl":
        bx, tx = sch.split(sch.get_loops(sch.get_sblock("C"))[0], [None, 64])
        sch.bind(bx, "blockIdx.x")
        sch.bind(tx, "threadIdx.x")
    with pytest.raises(ValueError, match=r"block C writes C\[v_i \+ 8\], where the index is 1000"):
        d2ltvm.build(sch, target)


INSIDE = {
    "backwards": (lambda A, i: A[N - 1 - i], lambda a: a[::-1]),
    "around": (lambda A, i: A[tvm.tirx.floormod(i + 1, N)], lambda a: np.roll(a, -1)),
    "guarded": (
        lambda A, i: te.if_then_else(i < N - 1, A[i + 1], 0.0),
        lambda a: np.append(a[1:], 0),
    ),
    "selected": (
        lambda A, i: tvm.tirx.Select(i < N - 1, A[i + 1], 0.0),
        lambda a: np.append(a[1:], 0),
    ),
    "both sides": (
        lambda A, i: te.if_then_else(te.all(i >= 3, i < N - 5), A[i - 3] + A[i + 5], 0.0),
        lambda a: np.concatenate([np.zeros(3), a[:-8] + a[8:], np.zeros(5)]),
    ),
    "or": (
        lambda A, i: te.if_then_else(te.any(i == N - 1, A[i] > A[i]), 0.0, A[te.min(i + 1, N - 1)]),
        lambda a: np.append(a[1:], 0),
    ),
    "clamped": (lambda A, i: A[te.max(i - 1, 0)], lambda a: np.append(a[:1], a[:-1])),
    "even ones": (
        lambda A, i: te.if_then_else(tvm.tirx.floormod(i, 2) == 0, A[i + 1], A[i - 1]),
        lambda a: a.reshape(-1, 2)[:, ::-1].ravel(),
    ),
    "of data": (
        lambda A, i: te.if_then_else(A[i] > 0, A[te.max(i - 1, 0)], 0.0),
        lambda a: np.where(a > 0, np.append(a[:1], a[:-1]), 0),
    ),
}


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", INSIDE)
def test_what_a_guard_keeps_inside_is_built_and_right(name):
    index, reference = INSIDE[name]
    x = d2ltvm.get_abc(N)[0]
    d2ltvm.check(d2ltvm.build(reading(index)), (x,), reference)


def test_an_index_that_depends_on_data_is_let_pass():
    A, J = te.placeholder((N,), name="A"), te.placeholder((N,), "int32", name="J")
    C = te.compute((N,), lambda i: A[J[i]], name="C")
    x, j = d2ltvm.get_abc(N)[0], np.random.default_rng(0).permutation(N).astype("int32")
    d2ltvm.check(d2ltvm.build(one_each([A, J, C])), (x, j), lambda a, j: a[j])


@pytest.mark.parametrize(
    ("name", "c"), [("FloorDiv", -2), ("FloorMod", 1), ("Div", -1), ("Mod", -2), ("Min", -5)]
)
def test_operators_mean_what_they_mean_in_tvm(name, c):
    walk = bounds._Walk()
    a, b = tvm.tirx.Var("a", "int32"), tvm.tirx.Var("b", "int32")
    node = getattr(tvm.tirx, name)(a, b)
    assert walk._value(node, {a: np.array([-5]), b: np.array([3])}) == [c]


@pytest.mark.parametrize("inner", [4, 8, 16])
def test_a_copy_is_shared_out_among_the_threads_that_there_are(inner):
    A = te.placeholder((64,), name="A")
    sch = d2ltvm.schedule([A, te.compute((64,), lambda i: A[63 - i], name="C")])
    copy = sch.cache_read(sch.get_sblock("C"), 0, "shared")
    bx, tx = sch.split(sch.get_loops(sch.get_sblock("C"))[0], [None, 8])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    sch.compute_at(copy, tx)
    sch.bind(sch.split(sch.get_loops(copy)[-1], [None, inner])[1], "threadIdx.x")
    if inner == 8:
        d2ltvm.check(d2ltvm.build(sch), (d2ltvm.get_abc(64)[0],), lambda a: a[::-1])
        return
    words = f"a loop of {inner} is bound to threadIdx.x, inside of one of 8; expected"
    with pytest.raises(ValueError, match=words):
        d2ltvm.build(sch)
