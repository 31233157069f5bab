"""What becomes of a graph before it runs: batch norms fold, and what follows a convolution fuses.

A batch norm multiplies each channel by a number and adds another one. The convolution before it can
do both: its weights are multiplied, its bias takes what is added {cite}`jacob2018`. `fuse` then
gives convolutions and dense layers what follows them: the addition of another result, the
activation. A kernel does it on numbers that it has in registers, and the graph has fewer results to
write and to read again.

    >>> net = d2ltvm.network.load("resnet50")
    >>> fused = fuse(fold_batch_norms(net))
    >>> len(net.nodes), len(fused.nodes)
    (176, 58)
    >>> node = fused["stage1_conv3_fwd"]
    >>> node.activation, node.residual, node.result
    ('relu', 'stage1_conv2_fwd', 'stage1_activation0')
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from d2ltvm.compute.convolution import Array
from d2ltvm.network.graph import (
    Activation,
    Add,
    BatchNorm,
    Conv2d,
    Dense,
    Dropout,
    Flatten,
    Network,
    Node,
)
from d2ltvm.network.weights import Weights, check_weights


def fold_batch_norms(network: Network) -> Network:
    """The network without the batch norms that directly follow a convolution.

    The convolution has a bias then; `fold_weights` makes its numbers. A batch norm stays where
    others read what the convolution gives as well, or use its weights. What the result does not
    need is gone.
    """
    norms = _foldable(network)
    folded = {norm.name: name for name, norm in norms.items()}
    nodes: list[Node] = []
    for node in network:
        inputs = tuple(folded.get(name, name) for name in node.inputs)
        if node.name in norms:
            assert isinstance(node, Conv2d)
            bias, result = _bias(node), norms[node.name].of
            nodes.append(replace(node, inputs=inputs, bias=bias, result=result))
        elif node.name not in folded:
            nodes.append(replace(node, inputs=inputs))
    output = folded.get(network.output.name, network.output.name)
    return Network(network.name, _needed({node.name: node for node in nodes}, output))


def fold_weights(network: Network, weights: Mapping[str, Array], dtype: str = "float32") -> Weights:
    """The weights of `fold_batch_norms(network)`.

    By channel: with scale = gamma / sqrt(variance + epsilon), the new weight is weight * scale, and
    the new bias (bias - mean) * scale + beta. That is computed in float64, and rounded once.

    Args:
        network: as imported.
        weights: its arrays.
        dtype: of the new arrays.

    Raises:
        ValueError: a weight is absent, or has another shape.
    """
    check_weights(network, weights)
    norms = _foldable(network)
    wide = {name: np.asarray(array, "float64") for name, array in weights.items()}
    result = {name: wide[name] for name in fold_batch_norms(network).parameters if name in wide}
    for name, norm in norms.items():
        node = network[name]
        assert isinstance(node, Conv2d)
        scale = wide[norm.gamma] / np.sqrt(wide[norm.variance] + norm.epsilon)
        before = wide[node.bias] if node.bias else 0.0
        result[node.weight] = wide[node.weight] * scale[:, None, None, None]
        result[_bias(node)] = (before - wide[norm.mean]) * scale + wide[norm.beta]
    return {name: array.astype(dtype) for name, array in result.items()}


def fuse(network: Network) -> Network:
    """The network whose convolutions and dense layers do what follows them, as one node each.

    Dropout, and a second flattening, do nothing and are gone. So is what the result does not need.

    An addition goes to the later one of two convolutions, whose other summand is there by then.
    What a convolution gives has to have no other reader: it is never written.
    """
    readers = Counter(name for node in network for name in node.inputs)
    nodes: dict[str, Node] = {}
    stands: dict[str, str] = {}  # by a name of the old network the name in the new one

    def free(name: str) -> Node | None:
        """The node behind a name of the old network, if it may still take something on."""
        node = nodes[stands[name]]
        if isinstance(node, Conv2d | Dense) and not node.activation and readers[name] == 1:
            return node
        return None

    for old in network:
        node = replace(old, inputs=tuple(stands[name] for name in old.inputs))
        takes: Node | None = None
        if isinstance(old, Activation) and (before := free(old.inputs[0])):
            takes = replace(before, activation=old.activation, result=old.of)  # type: ignore[call-arg]
        elif isinstance(old, Add):
            summands = [free(name) for name in old.inputs]
            convs = [n for n in summands if isinstance(n, Conv2d) and not n.residual]
            if convs and node.inputs[0] != node.inputs[1]:
                later = max(convs, key=lambda n: list(nodes).index(n.name))
                (other,) = (name for name in node.inputs if name != later.name)
                if list(nodes).index(other) < list(nodes).index(later.name):
                    takes = replace(later, inputs=(*later.inputs, other), result=old.of)
        flat = isinstance(old, Flatten) and len(network.shapes[old.inputs[0]]) == 2
        if flat or isinstance(old, Dropout):
            stands[old.name] = node.inputs[0]
            continue
        nodes[(takes or node).name] = takes or node
        stands[old.name] = (takes or node).name
    return Network(network.name, _needed(nodes, stands[network.output.name]))


def _needed(nodes: Mapping[str, Node], output: str) -> tuple[Node, ...]:
    """The first node, and those that a result follows from, in their order: it is the last."""
    needed = {output, next(iter(nodes))}
    for node in reversed(list(nodes.values())):
        if node.name in needed:
            needed.update(node.inputs)
    return tuple(node for node in nodes.values() if node.name in needed)


def prepare(network: Network, weights: Mapping[str, Array]) -> tuple[Network, Weights]:
    """A network as it is run: folded and fused, and its weights.

    >>> net = d2ltvm.network.load("resnet18", size=32)
    >>> fused, weights = prepare(net, d2ltvm.network.random_weights(net))
    >>> len(fused.nodes), sorted(weights) == sorted(fused.parameters)
    (25, True)
    """
    return fuse(fold_batch_norms(network)), fold_weights(network, weights)


def bytes_moved(network: Network, itemsize: int = 4) -> dict[str, int]:
    """Bytes that each node reads and writes, by its name, if nothing stays on the chip between two.

    A node reads its inputs and its parameters once and writes its result once. `Input`, and
    `Flatten` and `Dropout`, which are other names for the same numbers, move nothing.

    >>> net = d2ltvm.network.load("resnet50")
    >>> bytes_moved(net)["relu0_fwd"] == 2 * 4 * 64 * 112 * 112
    True

    Args:
        network: a `Network`.
        itemsize: bytes of a number.
    """
    moved = {}
    for node in network.nodes[1:]:
        given = network.given(node)
        shapes = [*given, *node.parameters(*given).values(), network.shapes[node.name]]
        free = node.kind in ("Flatten", "Dropout")
        moved[node.name] = 0 if free else itemsize * sum(int(np.prod(shape)) for shape in shapes)
    return moved


def _foldable(network: Network) -> dict[str, BatchNorm]:
    """By the name of a convolution the batch norm that it can take on."""
    users = Counter(name for n in network for name in n.parameters(*network.given(n)))
    found: dict[str, BatchNorm] = {}
    for node in network:
        if not isinstance(node, Conv2d) or node.activation or node.residual:
            continue
        readers = network.readers(node.name)
        alone = all(users[name] == 1 for name in (node.weight, node.bias) if name)
        if len(readers) == 1 and isinstance(readers[0], BatchNorm) and alone:
            found[node.name] = readers[0]
    return found


def _bias(node: Conv2d) -> str:
    return node.bias or f"{node.name}_bias"
