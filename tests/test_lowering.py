"""What is lowered: tensors that share a name, and schedules that a target cannot have."""

import numpy as np
import pytest
import tvm
from tvm import te

import d2ltvm
from d2ltvm import schedules
from d2ltvm.compiler import lowering, names

GPUS = ("opencl", "sm_80")


def bound(sch, *blocks, nt=64):
    """All loops of a block as one, over blocks and threads."""
    for name in blocks:
        block, tx = sch.split(sch.fuse(*sch.get_loops(sch.get_sblock(name))[:3]), [None, nt])
        sch.bind(block, "blockIdx.x")
        sch.bind(tx, "threadIdx.x")
    return sch


def difference(first="placeholder", second="placeholder", between="D", last="C"):
    """(X - Y) * 2 in two stages, of tensors with these names."""
    X, Y = te.placeholder((1000,), name=first), te.placeholder((1000,), name=second)
    D = te.compute((1000,), lambda i: X[i] - Y[i], name=between)
    return d2ltvm.schedule([X, Y, te.compute((1000,), lambda i: D[i] * 2.0, name=last)])


NAMES = (
    ("placeholder", "placeholder", "D", "C"),
    ("A", "B", "A", "C"),
    ("A", "B", "D", "B"),
    ("A", "A", "A_1", "A_1"),
)


@pytest.mark.quick(5)
@pytest.mark.parametrize("target", ["opencl", "llvm", "emulate"])
@pytest.mark.parametrize("same", NAMES, ids=str)
def test_tensors_of_one_name_are_told_apart(same, target):
    x, y, z = d2ltvm.get_abc(1000)
    before = x.copy(), y.copy()
    sch = difference(*same)
    if target != "llvm":
        functions = [b.name_hint for b in lowering.find(sch.mod["main"].body, "SBlock")][1:]
        bound(sch, *functions)
    if target == "emulate":
        sch.compute_inline(sch.get_sblock(functions[0]))
        d2ltvm.emulate(sch, x, y, z)
    else:
        d2ltvm.build(sch, target)(x, y, z)
    assert np.array_equal(z, (x - y) * 2)
    assert np.array_equal(x, before[0]) and np.array_equal(y, before[1])


def test_traffic_counts_tensors_of_one_name_apart():
    A, B = te.placeholder((1024,)), te.placeholder((1024,))
    C = te.compute((1024,), lambda i: A[i] + B[i], name="C")
    found = d2ltvm.traffic(bound(d2ltvm.schedule([A, B, C]), "C"))
    assert found.total("read") == (64, 256)
    assert [t.tensor for t in found] == ["placeholder", "placeholder_1", "C"]


def test_tensors_with_names_of_their_own_are_left_alone():
    mod = schedules.vectorized(1024).mod
    assert names.distinct(mod) is mod


def only_the_last_bound():
    return bound(d2ltvm.schedule(d2ltvm.conv(4, 3, 8, 8, 3, 3, 1, 1)[:3]), "Y")


def only_the_first_bound():
    return bound(d2ltvm.schedule(d2ltvm.conv(4, 3, 8, 8, 3, 3, 1, 1)[:3]), "PaddedX")


def shared_copy_left_outside():
    sch = d2ltvm.schedule(d2ltvm.vector_copy(64))
    sch.cache_read(sch.get_sblock("C"), 0, "shared")
    return bound(sch, "C", nt=8)


def shared_copy_bound_outside():
    sch = shared_copy_left_outside()
    return bound(sch, "A_shared", nt=8)


def rows_around(tags=("blockIdx.x", "threadIdx.x")):
    A = te.placeholder((5, 64), name="A")
    sch = d2ltvm.schedule([A, te.compute((5, 64), lambda i, j: A[i, j] + 1.0, name="C")])
    _, j = sch.get_loops(sch.get_sblock("C"))
    for loop, tag in zip(sch.split(j, [None, 8])[2 - len(tags) :], tags, strict=True):
        sch.bind(loop, tag)
    return sch


def sums_around():
    k, A = te.reduce_axis((0, 5), "r"), te.placeholder((64,), name="A")
    sch = d2ltvm.schedule([A, te.compute((64,), lambda i: te.sum(A[i], axis=k), name="C")])
    i, r = sch.get_loops(sch.get_sblock("C"))
    sch.reorder(r, i)
    sch.bind(i, "threadIdx.x")
    return sch


UNBOUND = (
    (only_the_last_bound, "the stage that writes PaddedX is bound to no thread"),
    (only_the_first_bound, "the stage that writes Y is bound to no thread"),
    (shared_copy_left_outside, "the stage that writes A_shared is bound to no thread"),
    (shared_copy_bound_outside, "A_shared is in scope 'shared' and lies outside of all kernels"),
    (rows_around, "loop i is bound to no thread and lies around loops that are"),
    (lambda: rows_around(("threadIdx.x",)), "loop i is bound to no thread"),
    (sums_around, "loop r is bound to no thread"),
)


@pytest.mark.quick(3)
@pytest.mark.parametrize(("make", "message"), UNBOUND, ids=[m for _, m in UNBOUND])
def test_what_is_left_unbound_beside_a_bound_nest_is_named(make, message):
    for target in GPUS:
        with pytest.raises(ValueError, match=message):
            d2ltvm.build(make(), target)
    for function in (d2ltvm.traffic, lambda sch: d2ltvm.report(sch, "H200")):
        with pytest.raises(ValueError, match=message):
            function(make())
    with pytest.raises(ValueError, match=message):
        d2ltvm.emulate(make())


@pytest.mark.parametrize("function", [d2ltvm.build, d2ltvm.traffic, d2ltvm.emulate])
def test_what_is_no_schedule(function):
    expected = "expected a Schedule, a PrimFunc, or an IRModule with a PrimFunc named main"
    for sch in (None, "sch", 7):
        with pytest.raises(TypeError, match=f"sch is a {type(sch).__name__}; {expected}"):
            function(sch)
    with pytest.raises(TypeError, match=r"sch is a tuple; .* d2ltvm.schedule\(tensors\) makes one"):
        function(d2ltvm.vector_add(8))
    main = te.create_prim_func(list(d2ltvm.vector_add(8)))
    with pytest.raises(ValueError, match=f"sch is a module of other; {expected}"):
        function(tvm.IRModule({"other": main}))
    with pytest.raises(ValueError, match=f"sch is a module of nothing; {expected}"):
        function(tvm.IRModule({}))


@pytest.mark.parametrize("target", [*GPUS, "llvm"])
def test_a_shape_that_is_not_known(target):
    n = te.var("n")
    A = te.placeholder((n, 4), name="A")
    sch = d2ltvm.schedule([A, te.compute((n, 4), lambda *i: A(*i) + 1.0, name="C")])
    with pytest.raises(ValueError, match=r"A has shape \(n, 4\); expected integers"):
        d2ltvm.build(sch if target == "llvm" else bound(sch, "C"), target)


def test_a_gpu_schedule_on_a_cpu():
    with pytest.raises(ValueError, match=r"loop i_0 is bound to 'blockIdx\.x', which a CPU lacks"):
        d2ltvm.build(schedules.one_thread_each(100), "llvm")


@pytest.mark.quick(2)
@pytest.mark.parametrize("width", [2, 3, 4, 8])
def test_vectors_that_opencl_has(width):
    sch = schedules.vectorized(100 * width, nt=8, width=width)
    a, b, _ = d2ltvm.get_abc(100 * width)
    assert d2ltvm.check(d2ltvm.build(sch, "opencl"), (a, b), np.add) <= 2**-24


def test_vectors_that_end_the_process_are_refused():
    """PoCL's compiler aborts where the processor has AVX-512."""
    with pytest.raises(
        ValueError, match="is a vector of 64 bytes; expected at most 32, since PoCL"
    ):
        d2ltvm.build(schedules.vectorized(1600, nt=8, width=16), "opencl")


@pytest.mark.parametrize("width", [5, 32])
def test_vectors_that_opencl_lacks(width):
    with pytest.raises(ValueError, match=f"is a vector of {width} elements; expected one of 2, 3"):
        d2ltvm.build(schedules.vectorized(100 * width, nt=8, width=width), "opencl")


@pytest.mark.parametrize("kib", [48, 48.25, 64, 128])
@pytest.mark.parametrize("target", ["opencl", "sm_90"])
def test_static_shared_memory_has_one_limit_everywhere(kib, target):
    n = int(kib * 256)
    A = te.placeholder((n,), name="A")
    sch = d2ltvm.schedule([A, te.compute((n,), lambda i: A[n - 1 - i], name="C")])
    out = sch.get_sblock("C")
    copy = sch.cache_read(out, 0, "shared")
    block, tx = sch.split(sch.get_loops(out)[0], [1, n])
    sch.bind(block, "blockIdx.x")
    sch.bind(sch.split(tx, [None, 64])[1], "threadIdx.x")
    sch.compute_at(copy, block)
    sch.bind(sch.split(sch.get_loops(copy)[-1], [None, 64])[1], "threadIdx.x")
    if kib == 48:
        d2ltvm.build(sch, target)
        return
    with pytest.raises(ValueError, match=f"takes {4 * n:,} bytes of .*expected at most 49,152"):
        d2ltvm.build(sch, target)
