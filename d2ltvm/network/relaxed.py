"""A network as a module of Relax, TVM's language of graphs, and its way to TVM's virtual machine.

`to_relax` writes down the graph; all else is TVM's own: operators become loops (LegalizeOps), loops
fuse (FuseOps, FuseTIR), results share memory (StaticPlanBlockMemory), and a virtual machine calls
what comes of it, node by node.

A node can be given to a kernel of one's own, a `NodeKernel`: its function is called with the
results of `node.inputs`, then the parameters in the order of `node.parameters`, then the array for
its result. That is a TIR function (`call_tir`), or the name of a function that is registered with
TVM (`call_dps_packed`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm import relax

from d2ltvm.compute.ops import Shape
from d2ltvm.network import graph
from d2ltvm.network.graph import Network, Node

Form = tuple[Shape, str]  # how an array lies in memory: shape and dtype

_OPAQUE = 8  # what FuseOps leaves alone; it would take a kernel with a schedule apart


@dataclass(frozen=True)
class NodeKernel:
    """What computes a node in place of TVM's operators, and the form in which it has its arrays.

    Attributes:
        function: a TIR function, or the name of a function that is registered with TVM. It takes
            the node's inputs, its parameters and its result, in this order.
        result: shape and dtype of the result; None for the node's own shape, in float32.
        parameters: shape and dtype of parameters that it wants in another form than the network
            has them, by name. `compile_network` is handed the arrays in this form.
    """

    function: Any
    result: Form | None = None
    parameters: Mapping[str, Form] = field(default_factory=dict)


def to_relax(
    network: Network, kernels: Mapping[str, NodeKernel] | None = None, every: bool = False
) -> Any:
    """The module of Relax that computes a network.

    >>> net = graph.Network("small", (
    ...     graph.Input("data", size=(1, 3, 8, 8)),
    ...     graph.Conv2d("conv", ("data",), filters=4, kernel=(3, 3), weight="w"),
    ... ))
    >>> print(to_relax(net)["main"].script())  # doctest: +SKIP

    Args:
        network: a `Network`, as imported or fused.
        kernels: by name of a node what computes it; TVM does it for the others.
        every: whether the results of all nodes come back, and not of the last alone.

    Returns:
        An IRModule. Its function `main` takes the images and then the parameters, in the order of
        `network.parameters`. Each variable has the name of its node.

    Raises:
        ValueError: `kernels` names a node that is not there, or a node gets a form that its
            operator cannot take.
    """
    kernels = kernels or {}
    if absent := set(kernels) - set(network.shapes):
        raise ValueError(f"kernels has {min(absent)!r}; expected names of nodes of {network.name}")
    builder = relax.BlockBuilder()
    arguments = {network.input.name: _variable(network.input.name, network.input.size)}
    forms = {k: v for kernel in kernels.values() for k, v in kernel.parameters.items()}
    for name, shape in network.parameters.items():
        arguments[name] = _variable(name, *forms.get(name, (shape, "float32")))
    values = {network.input.name: arguments[network.input.name]}
    # The first argument is the input, all others are parameters: so LiftTransformParams is told.
    with builder.function("main", list(arguments.values()), {"num_input": 1}):
        with builder.dataflow():
            for node in network.nodes[1:]:
                inputs = [values[name] for name in node.inputs]
                used = [arguments[name] for name in node.parameters(*network.given(node))]
                try:
                    if kernel := kernels.get(node.name):
                        call = _own(builder, network, node, kernel, [*inputs, *used])
                    else:
                        call = _operators(builder, node, inputs, used)
                    values[node.name] = builder.emit(call, node.name)
                except (ValueError, TypeError, RuntimeError) as error:
                    line = (str(error).strip().splitlines() or [type(error).__name__])[-1]
                    raise ValueError(f"{node.name}: Relax cannot compute it: {line}") from error
            last = [values[node.name] for node in network.nodes[1:]]
            results = builder.emit_output(relax.Tuple(last) if every else last[-1])
        builder.emit_func_output(results)
    return builder.finalize()


def _variable(name: str, shape: Shape, dtype: str = "float32") -> Any:
    return relax.Var(name, relax.TensorType(shape, dtype))


def _own(
    builder: Any, network: Network, node: Node, kernel: NodeKernel, arguments: list[Any]
) -> Any:
    """The call of a kernel of one's own."""
    shape, dtype = kernel.result or (network.shapes[node.name], "float32")
    result = relax.TensorType(shape, dtype)
    if isinstance(kernel.function, str):
        return relax.call_dps_packed(kernel.function, relax.Tuple(arguments), result)
    function = kernel.function.without_attr("global_symbol").with_attr("op_pattern", _OPAQUE)
    return relax.call_tir(builder.add_func(function, node.name), arguments, result)


def _operators(builder: Any, node: Node, inputs: list[Any], parameters: list[Any]) -> Any:
    """What computes a node by operators of Relax."""
    op, nn = relax.op, relax.op.nn
    x = inputs[0]
    match node:
        case graph.Conv2d():
            weight, *bias = parameters
            y = nn.conv2d(x, weight, node.stride, node.padding, groups=node.groups)
            if bias:
                y = op.add(builder.emit(y), op.reshape(bias[0], (1, node.filters, 1, 1)))
            for summand in inputs[1:]:
                y = op.add(builder.emit(y), summand)
            return _activated(builder, y, node.activation)
        case graph.Dense():
            weight, *bias = parameters
            y = op.matmul(x, builder.emit(op.permute_dims(weight)))
            y = op.add(builder.emit(y), bias[0]) if bias else y
            return _activated(builder, y, node.activation)
        case graph.BatchNorm():
            both = nn.batch_norm(x, *parameters, axis=1, epsilon=node.epsilon, training=False)
            return relax.TupleGetItem(builder.emit(both), 0)
        case graph.Activation():
            return _activated(builder, x, node.activation)
        case graph.Add():
            return op.add(x, inputs[1])
        case graph.MaxPool2d():
            return nn.max_pool2d(x, node.kernel, node.stride, node.padding)
        case graph.GlobalAvgPool():
            return op.mean(x, axis=[2, 3], keepdims=True)
        case graph.Flatten():
            return op.reshape(x, (x.ty.shape[0], -1))
        case graph.Dropout():
            return x
    raise ValueError(f"{node.kind} is not known")


def _activated(builder: Any, x: Any, activation: str) -> Any:
    if not activation:
        return x
    y = relax.op.nn.relu(builder.emit(x) if not isinstance(x, relax.Var) else x)
    if activation == "relu6":
        y = relax.op.minimum(builder.emit(y), relax.const(6.0, "float32"))
    return y
