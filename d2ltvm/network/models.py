"""The networks by name, each as MXNet's Gluon model zoo has it; no MXNet is needed to load one.

`graphs/` has the graph of each, as `from_mxnet` reads it out of MXNet: one node a line, in MXNet's
names. `tools/network_graphs.py` writes these files, and a test holds them to MXNet itself.
"""

import json
from functools import cache
from importlib import resources
from typing import Any

from d2ltvm.compute.ops import Shape
from d2ltvm.errors import in_32_bits, shown
from d2ltvm.layouts import Pair
from d2ltvm.network import graph
from d2ltvm.network.graph import Network, Node

# By our name the function of mxnet.gluon.model_zoo.vision.
MODELS = {
    "resnet18": "resnet18_v1",
    "resnet50": "resnet50_v1",
    "resnet101": "resnet101_v1",
    "vgg16": "vgg16",
    "mobilenet": "mobilenet1_0",
    "mobilenet_v2": "mobilenet_v2_1_0",
}
CLASSES = 1000
SIZE = 224  # rows and columns of the images that these networks were trained with

Symbol = list[dict[str, Any]]  # a graph of MXNet: a dict for each operator


def load(name: str, batch: int = 1, size: int = SIZE) -> Network:
    """A network of the zoo, as MXNet has it: batch norms and activations are nodes of their own.

    >>> net = d2ltvm.network.load("resnet50", batch=8)
    >>> net.shapes["dense0_fwd"], len(net.nodes), net["conv0_fwd"].kernel
    ((8, 1000), 176, (7, 7))

    Args:
        name: one of `MODELS`.
        batch: number of images.
        size: their rows and columns.

    Raises:
        ValueError: there is no such network, or a number does not fit it.
    """
    if not isinstance(name, str) or name not in MODELS:
        raise ValueError(f"name is {shown(name)}; expected one of {', '.join(MODELS)}")
    batch, size = in_32_bits("batch", batch), in_32_bits("size", size)
    return from_symbol(name, stored(name), (batch, 3, size, size))


@cache
def stored(name: str) -> Symbol:
    """The graph of a network as the package has it."""
    file = resources.files("d2ltvm.network") / "graphs" / f"{name}.json"
    nodes: Symbol = json.loads(file.read_text(encoding="utf-8"))
    return nodes


def from_symbol(name: str, symbol: Symbol, size: Shape) -> Network:
    """A graph of MXNet's operators as a `Network`.

    >>> relu = {"op": "Activation", "name": "relu", "inputs": ["data"], "act_type": "relu"}
    >>> from_symbol("small", [relu], (1, 3, 8, 8)).shapes["relu"]
    (1, 3, 8, 8)

    Args:
        name: what to call it.
        symbol: operators as `from_mxnet.trimmed` has them: each a dict with 'op', 'name', 'inputs'
            and attributes, as strings.
        size: shape of the images.

    Raises:
        ValueError: an operator or an attribute is none that is known; the node is named.
    """
    nodes: list[Node] = [graph.Input("data", size=size)]
    for entry in symbol:
        if absent := [key for key in ("op", "name", "inputs") if key not in entry]:
            raise ValueError(
                f"{shown(entry)} has no {absent[0]!r}; expected 'op', 'name' and 'inputs'"
            )
        try:
            reader = _READERS[entry["op"]]
        except KeyError as error:
            known = ", ".join(_READERS)
            raise ValueError(
                f"{entry['name']}: operator {entry['op']!r} is not known; expected one of {known}"
            ) from error
        try:
            nodes += reader(entry)
        except (KeyError, ValueError, TypeError) as error:
            known = "" if "expected" in str(error) else "; expected each as MXNet writes it"
            raise ValueError(
                f"{entry['name']}: an attribute of {entry['op']} is absent or not known: "
                f"{error}{known}"
            ) from error
    return Network(name, tuple(nodes))


def _convolution(entry: dict[str, Any]) -> list[Node]:
    _only(entry, "dilate", "(1, 1)")
    _only(entry, "layout", "NCHW")
    data, weight, *bias = entry["inputs"]
    return [
        graph.Conv2d(
            entry["name"],
            (data,),
            filters=int(entry["num_filter"]),
            kernel=_pair(entry["kernel"]),
            stride=_pair(entry["stride"]),
            padding=_pair(entry["pad"]),
            groups=int(entry["num_group"]),
            weight=weight,
            bias=bias[0] if bias else "",
        )
    ]


def _batch_norm(entry: dict[str, Any]) -> list[Node]:
    _only(entry, "axis", "1")
    _only(entry, "fix_gamma", "False")
    data, gamma, beta, mean, variance = entry["inputs"]
    names = {"gamma": gamma, "beta": beta, "mean": mean, "variance": variance}
    return [graph.BatchNorm(entry["name"], (data,), **names, epsilon=float(entry["eps"]))]


def _activation(entry: dict[str, Any]) -> list[Node]:
    _only(entry, "act_type", "relu")
    return [graph.Activation(entry["name"], tuple(entry["inputs"]))]


def _clip(entry: dict[str, Any]) -> list[Node]:
    _only(entry, "a_min", "0")
    _only(entry, "a_max", "6")
    return [graph.Activation(entry["name"], tuple(entry["inputs"]), activation="relu6")]


def _add(entry: dict[str, Any]) -> list[Node]:
    return [graph.Add(entry["name"], tuple(entry["inputs"]))]


def _pooling(entry: dict[str, Any]) -> list[Node]:
    _only(entry, "layout", "NCHW")
    inputs = tuple(entry["inputs"])
    if entry["global_pool"] == "True":
        _only(entry, "pool_type", "avg")
        return [graph.GlobalAvgPool(entry["name"], inputs)]
    _only(entry, "pool_type", "max")
    _only(entry, "pooling_convention", "valid")
    kernel, stride, border = (_pair(entry[key]) for key in ("kernel", "stride", "pad"))
    return [graph.MaxPool2d(entry["name"], inputs, kernel=kernel, stride=stride, padding=border)]


def _dense(entry: dict[str, Any]) -> list[Node]:
    """MXNet's flattens by itself; here that is a node."""
    _only(entry, "flatten", "True")
    data, weight, *bias = entry["inputs"]
    name = entry["name"]
    return [
        graph.Flatten(f"{name}_flatten", (data,)),
        graph.Dense(
            name,
            (f"{name}_flatten",),
            units=int(entry["num_hidden"]),
            weight=weight,
            bias=bias[0] if bias else "",
        ),
    ]


def _flatten(entry: dict[str, Any]) -> list[Node]:
    return [graph.Flatten(entry["name"], tuple(entry["inputs"]))]


def _dropout(entry: dict[str, Any]) -> list[Node]:
    return [graph.Dropout(entry["name"], tuple(entry["inputs"]))]


_READERS = {
    "Convolution": _convolution,
    "BatchNorm": _batch_norm,
    "Activation": _activation,
    "clip": _clip,
    "elemwise_add": _add,
    "Pooling": _pooling,
    "FullyConnected": _dense,
    "Flatten": _flatten,
    "Dropout": _dropout,
}


def _only(entry: dict[str, Any], key: str, value: str) -> None:
    if entry[key] != value:
        raise ValueError(f"{key} is {entry[key]!r}; expected {value!r}")


def _pair(text: str) -> Pair:
    """'(3, 3)' as a pair of integers."""
    height, width = (int(part) for part in text.strip("()").split(","))
    return height, width
