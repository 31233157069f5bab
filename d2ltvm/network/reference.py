"""A network by NumPy, one node after the other, in float64: what all else is held against."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from d2ltvm.compute.convolution import Array
from d2ltvm.errors import shown
from d2ltvm.layouts import Pair
from d2ltvm.network import graph
from d2ltvm.network.graph import Network, Node
from d2ltvm.network.weights import check_weights


def run(
    network: Network, weights: Mapping[str, Array], images: Array, dtype: str = "float64"
) -> dict[str, Array]:
    """The result of each node, by its name.

    >>> net = graph.Network("small", (
    ...     graph.Input("data", size=(1, 1, 2, 2)),
    ...     graph.Activation("relu", ("data",)),
    ... ))
    >>> run(net, {}, np.array([[[[1.0, -1.0], [2.0, -3.0]]]]))["relu"]
    array([[[[1., 0.],
             [2., 0.]]]])

    Args:
        network: a `Network`, as imported or fused.
        weights: arrays by parameter's name.
        images: array of the shape of the network's input.
        dtype: in which to compute.

    Raises:
        ValueError: a weight is absent, or a shape is another one.
    """
    check_weights(network, weights)
    if np.shape(images) != network.input.size:
        raise ValueError(
            f"images has shape {shown(np.shape(images))}; expected {network.input.size}"
        )
    results = {network.input.name: np.asarray(images, dtype)}
    for node in network.nodes[1:]:
        arrays = {name: weights[name].astype(dtype) for name in _names(network, node)}
        results[node.name] = compute(node, [results[name] for name in node.inputs], arrays)
    return results


def compute(node: Node, inputs: list[Array], weights: Mapping[str, Array]) -> Array:
    """The result of one node, in the precision of its inputs."""
    x = inputs[0]
    match node:
        case graph.Conv2d():
            y = conv(x, weights[node.weight], node.stride, node.padding, node.groups)
            y = y + weights[node.bias][:, None, None] if node.bias else y
            return activate(sum(inputs[1:], y), node.activation)
        case graph.Dense():
            y = x @ weights[node.weight].T
            return activate(y + weights[node.bias] if node.bias else y, node.activation)
        case graph.BatchNorm():
            scale = weights[node.gamma] / np.sqrt(weights[node.variance] + node.epsilon)
            shift = weights[node.beta] - weights[node.mean] * scale
            return x * scale[:, None, None] + shift[:, None, None]
        case graph.Activation():
            return activate(x, node.activation)
        case graph.Add():
            return x + inputs[1]
        case graph.MaxPool2d():
            return max_pool(x, node.kernel, node.stride, node.padding)
        case graph.GlobalAvgPool():
            return x.mean(axis=(2, 3), keepdims=True)
        case graph.Flatten():
            return x.reshape(len(x), -1)
        case graph.Dropout():
            return x
    raise ValueError(f"{node.name}: {node.kind} cannot be computed")


def conv(x: Array, weight: Array, stride: Pair, padding: Pair, groups: int) -> Array:
    """Convolution of a batch, in groups, as a matrix product for each group."""
    filters, each, *kernel = weight.shape
    batch = len(x)
    windows = _windows(x, tuple(kernel), stride, padding, 0)
    height, width = windows.shape[2:4]
    # A row for each pixel, a column for each number under the window, by group.
    rows = windows.reshape(batch, groups, each, height, width, *kernel)
    rows = rows.transpose(1, 0, 3, 4, 2, 5, 6).reshape(groups, batch * height * width, -1)
    columns = weight.reshape(groups, filters // groups, -1).transpose(0, 2, 1)
    result = (rows @ columns).reshape(groups, batch, height, width, -1)
    return result.transpose(1, 0, 4, 2, 3).reshape(batch, filters, height, width)


def max_pool(x: Array, kernel: Pair, stride: Pair, padding: Pair) -> Array:
    """The largest number under each window."""
    result: Array = _windows(x, kernel, stride, padding, -np.inf).max(axis=(-2, -1))
    return result


def activate(x: Array, activation: str) -> Array:
    """relu, relu6, or nothing."""
    if not activation:
        return x
    return np.clip(x, 0, 6 if activation == "relu6" else None)


def _windows(
    x: Array, kernel: tuple[Any, ...], stride: Pair, padding: Pair, border: float
) -> Array:
    (ph, pw), (sh, sw) = padding, stride
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)), constant_values=border)
    windows = sliding_window_view(padded, kernel, (2, 3))  # type: ignore[call-overload]
    return windows[:, :, ::sh, ::sw]


def _names(network: Network, node: Node) -> list[str]:
    return list(node.parameters(*network.given(node)))
