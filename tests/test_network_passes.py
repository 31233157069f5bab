"""Folding and fusing keep what a network computes."""

import numpy as np
import pytest

from d2ltvm.network import (
    Network,
    bytes_moved,
    fold_batch_norms,
    fold_weights,
    fuse,
    graph,
    load,
    prepare,
    random_images,
    random_weights,
    reference,
)

NORM = {"gamma": "g", "beta": "b", "mean": "m", "variance": "v", "epsilon": 1e-5}


def network(*nodes):
    return Network("small", (graph.Input("data", size=(1, 2, 4, 4)), *nodes))


def conv(name, source, **fields):
    return graph.Conv2d(name, (source,), filters=2, kernel=(1, 1), weight=f"w-{name}", **fields)


def same_results(net, other, weights, other_weights):
    """Every node of the other network has the result of the node that it stands for."""
    images = np.random.default_rng(0).standard_normal(net.input.size)
    before = reference.run(net, weights, images)
    after = reference.run(other, other_weights, images)
    for node in other:
        largest = np.abs(before[node.of]).max()
        np.testing.assert_allclose(after[node.name], before[node.of], atol=1e-9 * largest)
    np.testing.assert_allclose(
        after[other.output.name], before[net.output.name], rtol=1e-7, atol=1e-9 * largest
    )


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "mobilenet", "mobilenet_v2"])
def test_a_folded_and_a_fused_network_compute_the_same(name):
    net = load(name, batch=2, size=32)
    weights = random_weights(net)
    folded, numbers = fold_batch_norms(net), fold_weights(net, weights, "float64")
    same_results(net, folded, weights, numbers)
    same_results(net, fuse(folded), weights, numbers)
    assert {node.kind for node in fuse(folded)} <= {
        "Input", "Conv2d", "Dense", "MaxPool2d", "GlobalAvgPool", "Flatten"
    }  # fmt: skip


def test_folding_one_channel_by_hand():
    net = network(conv("c", "data", bias="c"), graph.BatchNorm("n", ("c",), **NORM))
    filters = np.array([[1.0, 2.0], [3.0, 4.0]]).reshape(2, 2, 1, 1)
    weights = {"w-c": filters, "c": np.array([1.0, 5.0])}
    weights |= {"g": np.array([2.0, 1.0]), "b": np.array([7.0, 0.0]), "m": np.array([3.0, 5.0])}
    weights["v"] = np.array([4.0, 1.0]) - 1e-5  # so that the roots are 2 and 1
    folded = fold_weights(net, weights, "float64")
    np.testing.assert_allclose(folded["w-c"].reshape(2, 2), [[1, 2], [3, 4]])
    np.testing.assert_allclose(folded["c"], [(1 - 3) * 1 + 7, 0])


@pytest.mark.slow
def test_float32_weights_are_rounded_once():
    net = load("resnet18", size=32)
    weights = random_weights(net)
    exact, rounded = fold_weights(net, weights, "float64"), fold_weights(net, weights)
    for name, array in rounded.items():
        np.testing.assert_array_equal(array, exact[name].astype("float32"))


@pytest.mark.parametrize(
    "nodes",
    [
        # another node reads the convolution
        (conv("c", "data"), graph.BatchNorm("n", ("c",), **NORM), graph.Add("s", ("c", "n"))),
        # no convolution before it
        (graph.BatchNorm("n", ("data",), **NORM),),
        # an activation between
        (conv("c", "data", activation="relu"), graph.BatchNorm("n", ("c",), **NORM)),
    ],
)
def test_a_batch_norm_that_cannot_fold_stays(nodes):
    net = network(*nodes)
    weights = {name: np.random.default_rng(1).random(s) for name, s in net.parameters.items()}
    folded = fold_batch_norms(net)
    assert folded["n"].kind == "BatchNorm"
    same_results(net, fuse(folded), weights, fold_weights(net, weights, "float64"))


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        # a result with two readers has to be written
        ((conv("c", "data"), graph.Activation("r", ("c",)), graph.Add("s", ("c", "r"))),
         ["data", "c", "r", "s"]),
        # the same result twice
        ((conv("c", "data"), graph.Add("s", ("c", "c"))), ["data", "c", "s"]),
        # the later convolution takes the addition, and the activation behind it
        ((conv("a", "data"), conv("b", "a"), graph.Add("s", ("b", "data")),
          graph.Activation("r", ("s",))), ["data", "a", "b"]),
        ((conv("a", "data"), conv("b", "data"), graph.Add("s", ("b", "a"))), ["data", "a", "b"]),
        # a second addition finds the place taken
        ((conv("a", "data"), graph.Add("s", ("a", "data")), graph.Add("t", ("s", "data"))),
         ["data", "a", "t"]),
        # a summand that is computed after the convolution
        ((conv("a", "data"), graph.Activation("r", ("data",)), graph.Add("s", ("a", "r"))),
         ["data", "a", "r", "s"]),
        # two activations
        ((conv("a", "data"), graph.Activation("r", ("a",)),
          graph.Activation("t", ("r",), activation="relu6")), ["data", "a", "t"]),
        ((graph.Flatten("f", ("data",)), graph.Flatten("g", ("f",)), graph.Dropout("d", ("g",)),
          graph.Dense("x", ("d",), units=3, weight="u"), graph.Activation("r", ("x",))),
         ["data", "f", "x"]),
    ],
)  # fmt: skip
def test_what_fuses_and_what_does_not(nodes, left):
    net = network(*nodes)
    weights = {
        name: np.random.default_rng(2).standard_normal(s) for name, s in net.parameters.items()
    }
    assert [node.name for node in fuse(net)] == left
    same_results(net, fuse(net), weights, weights)


@pytest.mark.slow
def test_fusing_writes_and_reads_less_and_computes_as_much():
    net = load("resnet50")
    fused, weights = prepare(net.at(size=32), random_weights(net.at(size=32)))
    assert len([n for n in fused if isinstance(n, graph.Conv2d) and n.residual]) == 16
    assert fused.at(size=224).multiply_adds() == net.multiply_adds()
    before, after = bytes_moved(net), bytes_moved(fused.at(size=224))
    # A convolution with a residual reads one result more; what it took on is no step any more.
    gone = sum(before[node.name] for node in net if node.name in set(before) - set(after))
    more = sum(after[name] - before[name] for name in after)
    assert sum(after.values()) == sum(before.values()) - gone + more and gone > 8 * more
    assert weights["dense0_weight"].dtype == np.float32


def test_images_of_eight_classes_keep_them():
    net = load("mobilenet_v2", batch=8, size=64)
    weights, images = random_weights(net), random_images(8, 64)
    fused, numbers = prepare(net, weights)
    before = reference.run(net, weights, images)[net.output.name]
    after = reference.run(fused, numbers, images)[fused.output.name]
    assert (before.argmax(axis=1) == after.argmax(axis=1)).all()


def test_the_result_stays_the_last_where_others_are_needed_by_nothing():
    nodes = (
        graph.Input("data", size=(1, 2, 4, 4)),
        graph.Conv2d("conv", ("data",), filters=2, kernel=(1, 1), weight="w"),
        graph.Add("unread", ("data", "data")),
        graph.Activation("relu", ("conv",)),
        graph.Dropout("last", ("relu",)),
    )
    folded = (
        *nodes[:3],
        graph.BatchNorm(
            "norm", ("conv",), gamma="g", beta="b", mean="m", variance="v", epsilon=1e-3
        ),
    )
    for some in (nodes, folded):
        net = graph.Network("some", some)
        weights = random_weights(net)
        images = np.random.default_rng(0).normal(size=net.input.size)
        want = reference.run(net, weights, images)[net.output.name]
        fused, own = prepare(net, weights)
        assert [node.name for node in fused] == ["data", "conv"]
        np.testing.assert_allclose(reference.run(fused, own, images)["conv"], want, rtol=1e-5)
