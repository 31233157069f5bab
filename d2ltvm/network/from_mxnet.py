"""The networks as MXNet has them: their graphs, and what MXNet computes with given weights."""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from d2ltvm.bench.libraries import mxnet
from d2ltvm.compute.convolution import Array
from d2ltvm.errors import shown
from d2ltvm.network.graph import Network
from d2ltvm.network.models import MODELS, Symbol, stored
from d2ltvm.system import environment

PREFIX = "net_"  # without one, MXNet numbers the layers of all networks of a process through
# Attributes that say how to train, or how MXNet computes, and not what.
_UNUSED = ("momentum", "use_global_stats", "p", "axes", "cudnn_off", "cudnn_tune", "workspace")


def symbol(name: str) -> Any:
    """A network of MXNet's model zoo, as one of its symbols; parameters' names begin with `PREFIX`.

    Raises:
        ValueError: `name` is not one of `models.MODELS`.
        MissingError: MXNet is not there.
    """
    if name not in MODELS:
        raise ValueError(f"name is {shown(name)}; expected one of {', '.join(MODELS)}")
    mx = mxnet()
    from mxnet.gluon.model_zoo import vision

    return getattr(vision, MODELS[name])(prefix=PREFIX)(mx.sym.var("data"))


def trimmed(symbol: Any) -> Symbol:
    """The operators of a symbol, without what does not say what is computed.

    Returns:
        A dict for each, with 'op', 'name', 'inputs' (names) and its attributes, strings.
    """
    nodes = json.loads(symbol.tojson())["nodes"]
    names = [node["name"].removeprefix(PREFIX) for node in nodes]
    operators: Symbol = []
    for node, name in zip(nodes, names, strict=True):
        if node["op"] != "null":
            inputs = [names[number] for number, *_ in node["inputs"]]
            attributes = {k: v for k, v in node.get("attrs", {}).items() if k not in _UNUSED}
            operators.append({"op": node["op"], "name": name, "inputs": inputs, **attributes})
    return operators


def as_text(operators: Symbol) -> str:
    """Operators as JSON, one a line."""
    lines = ",\n".join(json.dumps(operator) for operator in operators)
    return f"[\n{lines}\n]\n"


def run(network: Network, weights: Mapping[str, Array], images: Array) -> dict[str, Array]:
    """What MXNet computes on the CPU, in float32: the result of each operator, by its name.

    Args:
        network: as `models.load` has it, of whatever batch and size.
        weights: the array of each of its parameters, by name.
        images: array of the shape of the network's input.

    Raises:
        MissingError: MXNet is not there.
    """
    mx, whole = mxnet(), symbol(network.name)
    wanted = [entry["name"] for entry in stored(network.name)]
    inside = whole.get_internals()
    outputs = {n: n.removesuffix("_output").removeprefix(PREFIX) for n in inside.list_outputs()}
    picked = [full for full, name in outputs.items() if name in wanted and full.endswith("_output")]
    group = mx.sym.Group([inside[full] for full in picked])
    with _fusing("default"):  # which fuses nothing: a fused one's inner results are not seen
        bound = _bound(mx, group, weights, images)
    results = [array.asnumpy() for array in bound.forward(is_train=False)]
    return {outputs[full]: result for full, result in zip(picked, results, strict=True)}


def runner(network: Network, weights: Mapping[str, Array], images: Array) -> Any:
    """A function without arguments that runs all of the network by MXNet and returns the result.

    MXNet fuses convolutions with what follows them, by oneDNN, as it does for its users.

    Args:
        network, weights, images: as for `run`.

    Raises:
        MissingError: MXNet is not there.
    """
    with _fusing("MKLDNN"):
        bound = _bound(mxnet(), symbol(network.name), weights, images)
    return lambda: bound.forward(is_train=False)[0].asnumpy()


def _fusing(backend: str) -> AbstractContextManager[None]:
    """Meanwhile MXNet fuses operators by this backend, and does not say so at each network."""
    return environment.variables({"MXNET_SUBGRAPH_BACKEND": backend, "MXNET_SUBGRAPH_VERBOSE": "0"})


def _bound(mx: Any, symbol: Any, weights: Mapping[str, Array], images: Array) -> Any:
    """An MXNet executor whose parameters and input are set."""
    arrays = {"data": images} | {PREFIX + name: array for name, array in weights.items()}
    names, states = symbol.list_arguments(), symbol.list_auxiliary_states()
    given = {name: mx.nd.array(arrays[name], dtype="float32") for name in names + states}
    return symbol.bind(
        mx.cpu(),
        args={name: given[name] for name in names},
        aux_states={name: given[name] for name in states},
        grad_req="null",
    )
