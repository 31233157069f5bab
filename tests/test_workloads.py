"""The six workloads of a search: what they compute, their spaces, and the book's schedules."""

import itertools

import numpy as np
import pytest

import d2ltvm
from d2ltvm import __main__ as command
from d2ltvm.compiler.lowering import as_module, parameters
from d2ltvm.compute import conv_batch, data, reductions
from d2ltvm.search import book_space, measured, races, space, workload
from d2ltvm.search.computations import BATCH_LAYER, COMPUTATIONS
from d2ltvm.search.evolution import identity
from d2ltvm.search.tune import BATCH, Bench, Trial, proposed

GOOD = {"matmul": 64, "conv": 8, "hwcn": 2, "tensorcores": 16, "depthwise": 1, "softmax": 32}


def kinds(sch):
    return [str(inst.kind.name) for inst in sch.trace.insts]


def test_the_command_knows_all_workloads():
    assert tuple(COMPUTATIONS) == command.SEARCHED == tuple(races.LIBRARIES) == tuple(GOOD)


def test_the_command_tells_the_usual_sizes(capsys):
    with pytest.raises(SystemExit):
        command.main(["search", "-h"])
    said = " ".join(capsys.readouterr().out.split())
    for name, computation in COMPUTATIONS.items():
        assert str(computation.usual) in said, name


@pytest.mark.parametrize("name, size", [("hwcn", 2), ("tensorcores", 16)])
def test_a_batch_is_the_convolution_of_its_images(name, size):
    oc, ic, n, k, p, s = BATCH_LAYER
    x, w = workload(name, size).inputs()
    images, kernels = data.get_conv_batch(size, oc, ic, n, k, str(x.dtype))
    some = images[:2].astype("float64")
    want = conv_batch.conv_batch_reference(some, kernels.astype("float64"), p, s)
    found = workload(name, size).reference(x.astype("float64"), w.astype("float64"))
    back = {"hwcn": conv_batch.from_hwcn, "tensorcores": conv_batch.from_nhwcnc}[name]
    np.testing.assert_allclose(back(found)[:2], want, rtol=1e-12, atol=1e-9)


def test_a_layout_that_is_none():
    with pytest.raises(ValueError, match="layout is 'nchw'; expected 'hwcn' or 'nhwcnc'"):
        conv_batch.conv_in_layout("nchw", np.ones((1, 1, 1, 1)), np.ones((1, 1, 1, 1)))


def test_the_inputs_of_a_softmax_are_not_negative():
    work = workload("softmax", 32)
    (x,) = work.inputs()
    assert (x >= 0).all() and x.shape == (4096, 32) and work.nbytes == 2 * x.nbytes
    want = work.reference(x.astype("float64"))
    assert np.array_equal(want, reductions.softmax_reference(np.abs(x).astype("float64")))
    assert work.rate(1e-6).endswith("GB/s") and workload("conv", 8).rate(1e-6).endswith("GFLOPS")


@pytest.mark.parametrize("name", ["hwcn", "depthwise", "softmax"])
def test_a_sample_is_right_on_a_processor(name):
    work = workload(name, GOOD[name])
    bench = Bench(work, "llvm")
    _, error = bench.checked(next(space(work, "llvm").samples()))
    assert 0 < error < (1e-5 if bench.work.dtype == "float32" else 1e-3)


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_the_books_schedules_are_of_the_workload(name):
    work = workload(name)
    tensors = {str(t.op.name): [int(n) for n in t.shape] for t in work._tensors()}
    for hand, make in work.by_hand("cuda").items():
        found = {p.name: list(p.shape) for p in parameters(as_module(make()))}
        assert list(found.values()) == list(tensors.values()), hand


def test_the_sketch_of_the_batch_is_the_books_schedule_in_any_number_of_images():
    for size in (1, 3, 6):
        work = workload("hwcn", size)
        found = space(work, "cuda", book_space("hwcn"))
        assert found.finished(found.sketches[0].trace) is not None
    kernel = d2ltvm.build(found.finished(found.sketches[0].trace))
    assert d2ltvm.check(kernel, work.inputs(), work.reference, work.terms) < 1e-5


def test_tensorcore_samples_compile_since_storage_is_not_rewritten():
    found = list(itertools.islice(space(workload("tensorcores"), "cuda").samples(), 4))
    refused = 0
    for sch in found:
        assert "nvcuda::wmma::mma_sync" in d2ltvm.build(sch, "sm_90").source
        try:
            d2ltvm.build(sch, "sm_90", {"tirx.disable_storage_rewrite": False})
        except Exception as error:
            assert "element type must match" in str(error)
            refused += 1
    assert refused  # of TVM as it is; when it refuses none any more, `lower` needs no option


@pytest.mark.slow
def test_the_rules_for_tensorcores_are_tvms():
    import tvm.s_tir.meta_schedule as ms
    import tvm.s_tir.tensor_intrin.cuda  # noqa: F401

    from d2ltvm.search import spaces, tensorcores

    work, name = workload("tensorcores"), tensorcores.TVMS
    rules = {"sch_rules": name, "postprocs": name, "mutator_probs": name}
    theirs = ms.space_generator.PostOrderApply(**rules)
    goal = spaces.target("cuda", dynamic=True)
    context = spaces.new_context(work.func, goal, theirs)
    (ours,) = space(work, "cuda").sketches
    assert kinds(ours) in [kinds(sketch) for sketch in context.generate_design_space()]


@pytest.mark.parametrize(
    "name, size, message",
    [
        ("gemm", 64, "name is 'gemm'; expected one of 'matmul', 'conv', 'hwcn'"),
        ("tensorcores", 17, "size is 17; expected a multiple of 16"),
        ("softmax", 0, "size is 0; expected"),
        ("hwcn", 10**6, "X of shape .* has 50,176,000,000 elements"),
    ],
)
def test_workloads_that_are_none(name, size, message):
    with pytest.raises(ValueError, match=message):
        workload(name, size)


def test_samples_come_in_the_order_of_their_seeds():
    found = space(workload("matmul", 64), "cuda")
    one_by_one = (found.sample(seed % len(found.sketches), seed) for seed in itertools.count(5))
    want = itertools.islice((identity(sch) for sch in one_by_one if sch is not None), 4)
    assert list(want) == [identity(sch) for sch in itertools.islice(found.samples(5), 4)]


@pytest.mark.parametrize("good", [1, BATCH - 1, BATCH, 3 * BATCH])
def test_a_search_goes_on_where_some_of_the_first_were_bad(good):
    place = space(workload("matmul", 64), "llvm")
    some = list(itertools.islice(place.samples(3), good + 1))
    trials = [
        Trial(k, sch, 1e-3 * k, 0.0, 0.0, "" if k <= good else "crash: it was")
        for k, sch in enumerate(some, 1)
    ]
    seen = set(map(identity, some))
    found = proposed(place, "learned", trials, seen, np.random.default_rng(1), 2)
    assert len(found) == 2 and not seen & set(map(identity, found))


def refused(name, size, key):
    """Why a candidate that a GPU has tried is not compiled; '' where it is."""
    work = workload(name, size)
    (one,) = (c for c in measured.gathered(work) if c.key.startswith(key))
    try:
        d2ltvm.build(measured.remade(one, space(work, "cuda")), "sm_90")
    except ValueError as error:
        return str(error)
    return ""


def test_an_asynchronous_copy_of_elements_that_are_apart_is_refused():
    said = "an asynchronous copy of A to A_shared is of 4 elements that lie 2048 apart; expected"
    assert refused("matmul", 2048, "f31a7f9446eb").startswith(said)
    assert refused("matmul", 2048, "6e84c6da18a4") == ""
    three = next(
        c
        for c in measured.gathered(workload("conv", 128))
        if c.key.startswith("f398279b5732")  # vectors of three are loaded one by one
    )
    sch = measured.remade(three, space(workload("conv", 128), "cuda"))
    with pytest.raises(NotImplementedError, match="a vector of 3, which no instruction has"):
        d2ltvm.traffic(sch)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, size", [("matmul", 2048), ("conv", 64), ("matmul", 1536), ("conv", 128)]
)
def test_all_candidates_that_ended_on_a_gpu_are_refused(name, size):
    found = measured.failures(workload(name, size))
    assert found
    assert all("apart; expected neighbours" in refused(name, size, key) for key in found)
