"""Networks in TVM's virtual machine, beside NumPy, by TVM's operators and by kernels of ours."""

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.support import cc

import d2ltvm.network.model as compiling
from d2ltvm.compiler import cache
from d2ltvm.figures import draw_storages
from d2ltvm.network import (
    Network,
    NodeKernel,
    compile_network,
    fold_batch_norms,
    fuse,
    graph,
    load,
    memory_plan,
    pack_weights,
    packed_kernels,
    random_weights,
    reference,
    to_relax,
)

NORM = {"gamma": "g", "beta": "b", "mean": "m", "variance": "v", "epsilon": 1e-5}


def all_kinds(batch=2, size=9):
    """A small network with every kind of node."""
    nodes = (
        graph.Input("data", size=(batch, 3, size, size + 2)),
        graph.Conv2d("c", ("data",), filters=16, kernel=(3, 3), stride=(2, 1), padding=(1, 1),
                     weight="wc", bias="bc"),
        graph.BatchNorm("n", ("c",), **NORM),
        graph.Activation("r", ("n",)),
        graph.MaxPool2d("p", ("r",), kernel=(3, 2), stride=(1, 2), padding=(1, 1)),
        graph.Conv2d("d", ("p",), filters=16, kernel=(3, 3), padding=(1, 1), groups=16,
                     weight="wd"),
        graph.Activation("r6", ("d",), activation="relu6"),
        graph.Conv2d("e", ("r6",), filters=16, kernel=(1, 1), weight="we"),
        graph.Add("s", ("e", "p")),
        graph.Activation("rs", ("s",)),
        graph.Conv2d("f", ("rs",), filters=24, kernel=(1, 1), stride=(2, 2), weight="wf",
                     bias="bf"),
        graph.GlobalAvgPool("q", ("f",)),
        graph.Flatten("flat", ("q",)),
        graph.Dropout("drop", ("flat",)),
        graph.Dense("x", ("drop",), units=10, weight="wx", bias="bx"),
        graph.Activation("rx", ("x",)),
    )  # fmt: skip
    return Network("all kinds", nodes)


def data(net):
    rng = np.random.default_rng(3)
    weights = {n: rng.standard_normal(s).astype("float32") for n, s in net.parameters.items()}
    if "v" in weights:
        weights["v"] = np.abs(weights["v"]) + 0.5
    return weights, rng.standard_normal(net.input.size).astype("float32")


def relative(result, expected):
    return np.abs(result - expected).max() / np.abs(expected).max()


# float32 keeps 24 bits; sums of up to 432 terms and 15 steps leave an error of some 1e-6.
@pytest.mark.slow
def test_every_node_in_relax_is_what_numpy_says():
    net = all_kinds()
    weights, images = data(net)
    expected = reference.run(net, weights, images)
    results = compile_network(net, weights, every=True)(images)
    assert list(results) == [node.name for node in net.nodes[1:]]
    for name, result in results.items():
        assert result.shape == net.shapes[name] and relative(result, expected[name]) < 1e-5, name


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "size", "lanes"), [(2, 9, 8), (1, 12, 16), (1, 5, 8)])
def test_packed_kernels_compute_the_fused_network(batch, size, lanes):
    net = fuse(fold_batch_norms(all_kinds(batch, size)))
    weights, images = data(net)
    packed = pack_weights(net, weights, lanes)
    model = compile_network(net, packed, packed_kernels(net, lanes))
    expected = reference.run(net, weights, images)[net.output.name]
    assert relative(model(images), expected) < 1e-5


@pytest.mark.slow
def test_a_kernel_of_ones_own_takes_inputs_parameters_and_the_result():
    """An own residual convolution 1x1, once as a TIR function, once as one of Python."""
    net = fuse(fold_batch_norms(all_kinds()))
    weights, images = data(net)
    node, shape = net["e"], net.shapes["e"]
    assert (node.inputs, node.activation) == (("d", "p"), "relu")
    X, R = (te.placeholder(net.shapes[name], name=name) for name in node.inputs)
    W = te.placeholder(net.parameters["we"], name="W")
    c = te.reduce_axis((0, 16), "c")
    S = te.compute(shape, lambda n, o, i, j: te.sum(X[n, c, i, j] * W[o, c, 0, 0], axis=c))
    Y = te.compute(shape, lambda *i: te.max(S(*i) + R(*i), 0.0))
    calls = []

    @tvm.register_global_func("d2ltvm.tests.own", override=True)
    def own(x, r, w, y):
        calls.append(y.shape)
        total = np.einsum("ncij,ocuv->noij", x.numpy(), w.numpy()) + r.numpy()
        y.copyfrom(np.maximum(total, 0))

    expected = reference.run(net, weights, images)[net.output.name]
    for function in (te.create_prim_func([X, R, W, Y]), "d2ltvm.tests.own"):
        model = compile_network(net, weights, {"e": NodeKernel(function)})
        assert relative(model(images), expected) < 1e-5
    assert calls == [shape]


@pytest.mark.slow
def test_seconds_belong_to_layers():
    net = all_kinds()
    weights, images = data(net)
    seconds = compile_network(net, weights).seconds_by_layer(images, rounds=2)
    assert {"c", "d", "e", "f", "x"} <= set(seconds) and min(seconds.values()) > 0


def test_results_share_memory():
    net = fuse(fold_batch_norms(load("resnet18", size=64)))
    plan = memory_plan(to_relax(net))
    largest = sorted((result.nbytes for result in plan.results), reverse=True)
    assert plan.before == sum(4 * int(np.prod(net.shapes[n.name])) for n in net.nodes[1:-1]
                              if n.kind != "Flatten")  # fmt: skip
    # Two results are there at once, three where one is added: never fewer bytes than that.
    assert sum(largest[:2]) <= plan.after < plan.before / 2
    assert all(result.nbytes <= plan.storages[result.storage] for result in plan.results)
    draw_storages(plan.results, plan.storages)  # it raises where two need a storage at once


def test_a_residual_is_kept_until_it_is_added():
    nodes = [graph.Input("data", size=(1, 8, 9, 9))]
    for name, source in (("a", "data"), ("b", "a"), ("c", "b")):
        nodes.append(graph.Activation(name, (source,), activation="relu"))
    nodes += [graph.Add("sum", ("c", "a")), graph.Activation("out", ("sum",), activation="relu")]
    alone = {
        node.name: NodeKernel(f"tests.{node.name}") for node in nodes[1:]
    }  # none joins another
    plan = memory_plan(to_relax(graph.Network("residual", tuple(nodes)), alone))
    assert [result.last for result in plan.results] == [3, 2, 3, 4]  # a, b, c and their sum


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda net, w: (net, {}), "c: weight 'wc' is missing; expected shape"),
        (lambda net, w: (net, w | {"bx": np.zeros(3, "float32")}), "x: weight 'bx' has shape"),
        (lambda net, w: (net, w, {"zz": NodeKernel("f")}),
         "kernels has 'zz'; expected names of nodes"),
        (lambda net, w: (net, w, {"c": NodeKernel("f", parameters={"wc": ((4, 4), "float16")})}),
         "c: weight 'wc' is float32 of shape .*; expected float16 of shape"),
        (lambda net, w: (net, {k: v for k, v in w.items() if k != "wc"},
                         {"c": NodeKernel("f", parameters={"wc": ((4, 4), "float16")})}),
         "c: weight 'wc' is missing; expected float16 of shape"),
        (lambda net, w: (net, w, {"c": NodeKernel("f", ((2, 4, 5, 11, 4), "float32"))}),
         "n: Relax cannot compute it: "),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled_is_one_line(change, message):
    net = all_kinds()
    with pytest.raises(ValueError, match=message) as raised:
        compile_network(*change(net, data(net)[0]))
    assert "\n" not in str(raised.value)


def test_weights_that_cannot_be_packed_are_named_with_their_node():
    net = fuse(fold_batch_norms(all_kinds()))
    weights = dict(data(net)[0])
    del weights["wd"]
    with pytest.raises(ValueError, match="d: weight 'wd' is missing; expected shape"):
        pack_weights(net, weights)


TWICE = Network(
    "twice",
    (
        graph.Input("data", size=(1, 2, 3, 3)),
        graph.Add("s", ("data", "data")),
        graph.Conv2d("c", ("s",), filters=2, kernel=(1, 1), weight="w"),
    ),
)


@pytest.fixture
def compilations(monkeypatch, tmp_path):
    """The modules that were compiled; with a cache of this test alone."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    seen, real = [], compiling._compile
    monkeypatch.setattr(compiling, "_compile", lambda *given: seen.append(given) or real(*given))
    return seen


def test_what_is_kept_is_compiled_once_for_all_weights(compilations):
    images = np.ones((1, 2, 3, 3), "float32")
    for factor in (1, 3):  # weights are in no library
        kept = compile_network(TWICE, {"w": np.full((2, 2, 1, 1), factor, "float32")}, keep=True)
        np.testing.assert_array_equal(kept(images), np.full((1, 2, 3, 3), 4 * factor))
        assert "c" in kept.seconds_by_layer(images, rounds=1)
    assert len(compilations) == len(list(cache.entries())) == 1
    compile_network(TWICE, {"w": np.ones((2, 2, 1, 1), "float32")})
    assert len(compilations) == 2, "unless told, nothing is taken from the disk"


@pytest.mark.parametrize(
    "change",
    [
        lambda: {"network": TWICE.at(batch=2)},
        lambda: {"every": True},
        lambda: {"target": tvm.target.Target({"kind": "llvm", "mcpu": "x86-64"})},
    ],
)
def test_another_network_size_or_target_is_compiled_anew(compilations, change):
    given = {"network": TWICE, "weights": {"w": np.ones((2, 2, 1, 1), "float32")}, "keep": True}
    compile_network(**given)
    compile_network(**{**given, **change()})
    assert len(compilations) == 2


def test_other_versions_and_constants_have_other_keys(monkeypatch):
    target = compiling.devices.as_target("llvm")
    numbers = [np.zeros((64, 64), "float32"), np.eye(64, dtype="float32")]
    keys = {compiling._key(_with_constant(array), target) for array in numbers for _ in range(2)}
    assert len(keys) == 2, "the same for the same numbers, and another for others"
    monkeypatch.setattr(cache, "package_versions", lambda *_: ("another",))
    assert compiling._key(_with_constant(numbers[0]), target) not in keys


def _with_constant(array):
    builder = tvm.relax.BlockBuilder()
    x = tvm.relax.Var("x", tvm.relax.TensorType(array.shape, "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(tvm.relax.op.add(x, tvm.relax.const(array))))
    return builder.finalize()


@pytest.mark.parametrize("without", ["a cache", "a linker", "a linker that works", "a library"])
def test_what_cannot_be_kept_runs_all_the_same(compilations, monkeypatch, without):
    if without == "a cache":
        monkeypatch.setenv(cache.VARIABLE, "")
    elif without == "a linker":
        monkeypatch.setattr(cc, "get_cc", lambda: None)
    elif without == "a linker that works":
        monkeypatch.setattr(cc, "get_cc", lambda: "/bin/false")
    else:
        monkeypatch.setattr(cache, "remember", lambda make, *key: b"no library")
    kept = compile_network(TWICE, {"w": np.ones((2, 2, 1, 1), "float32")}, keep=True)
    assert kept(np.ones((1, 2, 3, 3), "float32")).max() == 4
    assert compilations and not list(cache.entries())


@pytest.mark.parametrize("images", [np.zeros((1, 3, 9, 11), "float32"), np.zeros((2, 3, 9, 11))])
def test_images_of_another_shape_or_dtype_are_refused(images):
    net = Network("small", (graph.Input("data", size=(2, 3, 9, 11)), graph.Add("s", ("data",) * 2)))
    with pytest.raises(
        ValueError, match=r"images has shape .*; expected \(2, 3, 9, 11\) and float"
    ):
        compile_network(net, {})(images)


def test_packed_kernels_are_for_fused_networks():
    net = load("resnet18", size=32)
    with pytest.raises(ValueError, match="batchnorm0_fwd: is a BatchNorm; expected a network of"):
        packed_kernels(net)
    grouped = graph.Conv2d("c", ("data",), filters=4, kernel=(1, 1), groups=2, weight="w")
    pool = graph.MaxPool2d("p", ("data",), kernel=(2, 2), stride=(2, 2))
    for node, message in (
        (grouped, "c: groups is 2; expected 1 or all"),
        (pool, "p: reads the images; expected a convolution first"),
    ):
        with pytest.raises(ValueError, match=message):
            packed_kernels(Network("small", (graph.Input("data", size=(1, 4, 8, 8)), node)))


@pytest.mark.parametrize("groups", [1, 16])
def test_packed_kernels_read_images_of_many_channels(groups):
    node = graph.Conv2d("c", ("data",), filters=16, kernel=(3, 3), groups=groups, weight="w")
    net = Network("small", (graph.Input("data", size=(1, 16, 6, 7)), node))
    weights, images = data(net)
    flat = Network("flat", (*net.nodes, graph.Flatten("f", ("c",))))
    model = compile_network(flat, pack_weights(flat, weights), packed_kernels(flat))
    assert relative(model(images), reference.run(flat, weights, images)["f"]) < 1e-5


@pytest.mark.slow
def test_resnet18_packed_and_by_tvm_name_the_same_classes():
    from d2ltvm.network import prepare, random_images

    net = load("resnet18", batch=2, size=32)
    weights, images = random_weights(net), random_images(2, 32)
    fused, numbers = prepare(net, weights)
    expected = reference.run(net, weights, images)[net.output.name]
    for model in (
        compile_network(fused, numbers),
        compile_network(fused, pack_weights(fused, numbers), packed_kernels(fused)),
    ):
        assert relative(model(images), expected) < 1e-5
        assert (model(images).argmax(axis=1) == expected.argmax(axis=1)).all()
