"""Networks: the graph, its weights, and NumPy beside MXNet."""

import numpy as np
import pytest

from d2ltvm.bench import libraries
from d2ltvm.network import (
    MODELS,
    Network,
    from_mxnet,
    graph,
    load,
    models,
    random_images,
    random_weights,
    reference,
)
from d2ltvm.network.weights import check_weights, uniform

SMALL = ("resnet18", "resnet50", "mobilenet", "mobilenet_v2")


def needs_mxnet():
    try:
        libraries.mxnet()
    except libraries.MissingError as error:
        pytest.skip(str(error))


def small(*nodes, size=(2, 4, 6, 6)):
    return Network("small", (graph.Input("data", size=size), *nodes))


def conv(**fields):
    return graph.Conv2d(
        "conv", ("data",), **{"filters": 8, "kernel": (3, 3), "weight": "w"} | fields
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_stored_graph_is_the_one_of_mxnet(name):
    needs_mxnet()
    assert models.stored(name) == from_mxnet.trimmed(from_mxnet.symbol(name))


# Published numbers of multiply-adds count the same convolutions and dense layers. Sources: tables 1
# of He et al. 2016 (without the two layers' biases), 4 of Howard et al. 2017, 4 of Sandler 2018.
@pytest.mark.parametrize(
    ("name", "giga"),
    [
        ("resnet18", 1.8),
        ("resnet50", 3.8),
        ("resnet101", 7.6),
        ("mobilenet", 0.569),
        ("mobilenet_v2", 0.300),
    ],
)
def test_multiply_adds_are_those_of_the_papers(name, giga):
    assert sum(load(name).multiply_adds().values()) / 1e9 == pytest.approx(giga, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_numpy_and_mxnet_agree_layer_by_layer(name):
    needs_mxnet()
    net, images = load(name, batch=2, size=32), random_images(2, 32)
    weights = random_weights(net)
    ours = reference.run(net, weights, images)
    theirs = from_mxnet.run(net, weights, images)
    assert len(theirs) == len(models.stored(name))
    for node, result in theirs.items():
        largest = np.abs(ours[node]).max()
        assert np.abs(result - ours[node]).max() < 1e-4 * largest, node


def test_shapes_follow_the_images():
    net = load("resnet50", batch=8)
    assert net.shapes["pool0_fwd"] == (8, 64, 56, 56)
    assert net.at(size=96).shapes["stage4_activation2"] == (8, 2048, 3, 3)
    assert net.parameters == net.at(batch=1).parameters


def test_weights_follow_from_seed_and_name():
    net = load("resnet18", size=32)
    first, again, other = random_weights(net), random_weights(net), random_weights(net, seed=1)
    for name, array in first.items():
        assert array.dtype == np.float32 and array.shape == net.parameters[name]
        np.testing.assert_array_equal(array, again[name])
        assert (array != other[name]).any()
    assert first["batchnorm0_running_var"].min() > 0
    # Three numbers that no release of NumPy and no machine may change.
    steps = uniform("a", (3,), 0, 1).astype("float64") * 2**24
    assert steps.tolist() == [10408302, 16576540, 4235480]


def test_centred_weights_have_the_mean_0_and_keep_their_range():
    rows = uniform("b", (5, 1001), -2, 2, centred=True).astype("float64")
    assert np.abs(rows.mean(axis=1)).max() < 1e-6 and np.abs(rows).max() < 2.2
    assert rows.var() == pytest.approx(4 / 3, rel=0.05)


def test_images_have_classes_of_their_own_and_numbers_stay_moderate():
    net, images = load("resnet18", batch=8, size=64), random_images(8, 64)
    results = reference.run(net, random_weights(net), images)
    assert len(set(results[net.output.name].argmax(axis=1))) > 3
    assert max(np.abs(result).max() for result in results.values()) < 100


def by_definition(x, weight, stride, padding, groups):
    """A convolution, number by number."""
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    filters, each, *kernel = weight.shape
    rows, columns = ((n - k) // s + 1 for n, k, s in zip(x.shape[2:], kernel, stride, strict=True))
    y = np.zeros((len(x), filters, rows, columns))
    for b, f, i, j in np.ndindex(y.shape):
        first = f // (filters // groups) * each
        h, w = i * stride[0], j * stride[1]
        under = x[b, first : first + each, h : h + kernel[0], w : w + kernel[1]]
        y[b, f, i, j] = (under * weight[f]).sum()
    return y


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "groups"),
    [
        ((3, 3), (1, 1), (1, 1), 1),
        ((1, 1), (2, 2), (0, 0), 1),
        ((3, 2), (2, 1), (0, 1), 2),
        ((3, 3), (1, 2), (2, 1), 4),
    ],
)
def test_the_reference_convolves_by_the_definition(kernel, stride, padding, groups):
    node = conv(kernel=kernel, stride=stride, padding=padding, groups=groups, bias="b")
    net = small(node, size=(2, 4, 7, 6))
    x = np.random.default_rng(0).standard_normal(net.input.size)
    weights = {n: np.random.default_rng(1).standard_normal(s) for n, s in net.parameters.items()}
    expected = by_definition(x, weights["w"], stride, padding, groups)
    expected += weights["b"][:, None, None]
    result = reference.run(net, weights, x)["conv"]
    assert net.shapes["conv"] == result.shape
    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((graph.Activation("a", ("b",)),), "a: reads 'b', which no node before it is"),
        ((graph.Activation("a", ()),), "a: has no inputs"),
        ((graph.Activation("a", ("data",), activation="gelu"),), "a: activation is 'gelu'"),
        ((conv(groups=3),), "conv: groups is 3; expected a divisor of 4 channels"),
        ((conv(kernel=(9, 9)),), "conv: k is 9; expected at most"),
        ((conv(), graph.Add("sum", ("data", "conv"))), "sum: adds"),
        ((conv(), graph.Activation("conv", ("conv",))), "conv: expected one Input, and each name"),
        ((graph.Dense("d", ("data",), units=3, weight="w"),), "d: gets shape"),
        ((graph.Flatten("f", ("data",)), conv(), graph.Dense("d", ("f",), units=3, weight="w")),
         "d: w is (8, 4, 3, 3) to another node"),
        ((graph.MaxPool2d("m", ("data",), kernel=(2, 2), stride=(2, 2), padding=(2, 2)),),
         "m: padding is (2, 2)"),
    ],
)  # fmt: skip
def test_a_wrong_graph_is_one_line_that_names_the_node(nodes, message):
    with pytest.raises(ValueError) as raised:
        small(*nodes)
    assert str(raised.value).startswith(message) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"op": "Deconvolution"}, "x: operator 'Deconvolution' is not known; expected one of Conv"),
        ({"op": "Activation", "act_type": "tanh"}, "x: .* act_type is 'tanh'; expected 'relu'"),
        ({"op": "Activation"}, "x: an attribute of Activation is absent"),
        ({"op": "clip", "a_min": "-1", "a_max": "6"}, "x: .* a_min is '-1'; expected '0'"),
    ],
)
def test_an_operator_that_is_not_known_is_named(entry, message):
    with pytest.raises(ValueError, match=message):
        models.from_symbol("small", [{"name": "x", "inputs": ["data"], **entry}], (1, 3, 8, 8))


def test_a_weight_that_is_absent_or_of_another_shape_is_named():
    net = small(conv())
    with pytest.raises(ValueError, match="conv: weight 'w' is missing; expected shape"):
        check_weights(net, {})
    with pytest.raises(ValueError, match=r"conv: weight 'w' has shape \(8, 4\); expected"):
        check_weights(net, {"w": np.zeros((8, 4))})


@pytest.mark.parametrize("name", ["resnet51", "", None, 3])
def test_a_network_that_is_not_there_is_one_line(name):
    with pytest.raises(ValueError, match="expected one of resnet18, resnet50"):
        load(name)
