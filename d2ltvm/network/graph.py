"""A network as a graph of nodes: what each computes, from which others, in which shape.

A `Network` is a tuple of nodes, each after the nodes that it reads. A node has a name, the names of
its inputs, and what its kind needs; it has no arrays. Shapes follow from the first node, the
`Input`, so that the same nodes are a network for any number and size of images. Arrays stand in a
dict by the parameter's name, the `weights`, which is handed on beside the network.

    >>> net = Network("small", (
    ...     Input("data", size=(1, 3, 8, 8)),
    ...     Conv2d("conv", ("data",), filters=16, kernel=(3, 3), padding=(1, 1), weight="w"),
    ...     Activation("relu", ("conv",)),
    ... ))
    >>> net.shapes["relu"], net.parameters
    ((1, 16, 8, 8), {'w': (16, 3, 3, 3)})

There are two forms of the same network. As imported, each step is a node of its own: `Conv2d`,
`BatchNorm`, `Activation`, `Add`. After `fold_batch_norms` and `fuse`, batch norms are gone, and a
`Conv2d` does what followed it as well:

    y = activation(conv(x, weight) + bias + residual)

where `bias`, `residual` and `activation` may be absent. `x` is `inputs[0]`, and `residual`, of the
shape of `y`, is `inputs[1]`. A `Dense` has `bias` and `activation` likewise. A kernel that runs
networks therefore has to know `Conv2d`, `Dense`, `MaxPool2d`, `GlobalAvgPool` and `Flatten`.

Images are (batch, channels, height, width) and kernels (filters, channels / groups, height, width),
float32, whatever a kernel makes of them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from d2ltvm.compute.convolution import conv_out_size
from d2ltvm.compute.operators import check_activation
from d2ltvm.compute.ops import Shape
from d2ltvm.errors import shown, whole
from d2ltvm.layouts import Pair


@dataclass(frozen=True)
class Node:
    """A step of a network. Each kind below is one, with what it needs as further fields.

    Attributes:
        name: its own, and the name of its result.
        inputs: the names of the nodes that it reads.
        result: the node of the imported network whose result this one has, where `fuse` or
            `fold_batch_norms` put several into one; '' where it is its own.
    """

    name: str
    inputs: tuple[str, ...] = ()
    result: str = field(default="", kw_only=True)

    @property
    def kind(self) -> str:
        """The name of the class, such as 'Conv2d'."""
        return type(self).__name__

    @property
    def of(self) -> str:
        """The name under which the imported network has this result."""
        return self.result or self.name

    def shape(self, *inputs: Shape) -> Shape:
        """The shape of the result by those of the inputs.

        Raises:
            ValueError: the node cannot take these.
        """
        raise NotImplementedError

    def parameters(self, *inputs: Shape) -> dict[str, Shape]:
        """The shapes of the arrays that it needs, by their names, for inputs of these shapes."""
        return {}

    def multiply_adds(self, *inputs: Shape) -> int:
        """Multiplications with an addition each, of convolutions and dense layers; of others 0."""
        return 0


@dataclass(frozen=True)
class Input(Node):
    """What the network is given: images of shape (batch, channels, height, width)."""

    size: Shape = field(default=(), kw_only=True)

    def shape(self, *inputs: Shape) -> Shape:
        if inputs or len(self.size) != 4:
            raise ValueError(f"size is {shown(self.size)}; expected four integers, and no inputs")
        batch, channels, height, width = (whole("a number of size", n) for n in self.size)
        return batch, channels, height, width


@dataclass(frozen=True, kw_only=True)
class Conv2d(Node):
    """Convolution, and what follows it: bias, an addition, an activation.

    Attributes:
        filters: channels of the result.
        kernel: height and width.
        stride: down and across.
        padding: rows of zeros above and below, columns of zeros left and right.
        groups: the channels fall into so many groups, each with filters of its own; 1 for all in
            one, as many as there are channels for a depthwise convolution.
        weight: name of the parameter of shape (filters, channels / groups, height, width).
        bias: name of one of shape (filters,), or ''.
        activation: one of `compute.operators.ACTIVATIONS`.
    """

    filters: int
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    groups: int = 1
    weight: str
    bias: str = ""
    activation: str = ""

    @property
    def residual(self) -> str:
        """The name of the node whose result is added, or ''."""
        return self.inputs[1] if len(self.inputs) == 2 else ""

    def shape(self, *inputs: Shape) -> Shape:
        check_activation(self.activation)
        filters, groups = whole("filters", self.filters), whole("groups", self.groups)
        batch, channels, *image = _images(inputs[0])
        if channels % groups or filters % groups:
            raise ValueError(
                f"groups is {groups}; expected a divisor of {channels} channels and of {filters} "
                "filters"
            )
        sizes = zip(image, self.kernel, self.padding, self.stride, strict=True)
        result = (batch, filters, *(conv_out_size(*size) for size in sizes))
        if len(inputs) > 2 or any(shape != result for shape in inputs[1:]):
            raise ValueError(
                f"adds {list(inputs[1:])}; expected one input of its result's {result}"
            )
        return result

    def parameters(self, *inputs: Shape) -> dict[str, Shape]:
        weight = {self.weight: (self.filters, inputs[0][1] // self.groups, *self.kernel)}
        return weight | ({self.bias: (self.filters,)} if self.bias else {})

    def multiply_adds(self, *inputs: Shape) -> int:
        each = inputs[0][1] // self.groups * math.prod(self.kernel)
        return math.prod(self.shape(*inputs)) * each


@dataclass(frozen=True, kw_only=True)
class BatchNorm(Node):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, by channel, with running statistics.

    Attributes:
        gamma, beta, mean, variance: names of parameters of shape (channels,).
        epsilon: float.
    """

    gamma: str
    beta: str
    mean: str
    variance: str
    epsilon: float

    def shape(self, *inputs: Shape) -> Shape:
        (shape,) = inputs
        return _images(shape)

    def parameters(self, *inputs: Shape) -> dict[str, Shape]:
        names = (self.gamma, self.beta, self.mean, self.variance)
        return {name: (inputs[0][1],) for name in names}


@dataclass(frozen=True)
class Activation(Node):
    """relu, max(x, 0), or relu6, which is 6 at most."""

    activation: str = field(default="relu", kw_only=True)

    def shape(self, *inputs: Shape) -> Shape:
        (shape,) = inputs
        check_activation(self.activation)
        return shape


@dataclass(frozen=True)
class Add(Node):
    """The sum of two results of the same shape."""

    def shape(self, *inputs: Shape) -> Shape:
        if len(inputs) != 2 or inputs[0] != inputs[1]:
            raise ValueError(f"adds {list(inputs)}; expected two inputs of the same shape")
        return inputs[0]


@dataclass(frozen=True, kw_only=True)
class MaxPool2d(Node):
    """The largest number under a window; of the border's rows and columns none counts."""

    kernel: Pair
    stride: Pair
    padding: Pair = (0, 0)

    def shape(self, *inputs: Shape) -> Shape:
        (shape,) = inputs
        batch, channels, *image = _images(shape)
        if any(p >= k for p, k in zip(self.padding, self.kernel, strict=True)):
            raise ValueError(f"padding is {self.padding}; expected less than the {self.kernel}")
        sizes = zip(image, self.kernel, self.padding, self.stride, strict=True)
        return batch, channels, *(conv_out_size(*size) for size in sizes)


@dataclass(frozen=True)
class GlobalAvgPool(Node):
    """The mean of each channel; the result has height and width 1."""

    def shape(self, *inputs: Shape) -> Shape:
        (shape,) = inputs
        return *_images(shape)[:2], 1, 1


@dataclass(frozen=True)
class Flatten(Node):
    """All of an image in one row: (batch, everything else)."""

    def shape(self, *inputs: Shape) -> Shape:
        (shape,) = inputs
        return shape[0], math.prod(shape[1:])


@dataclass(frozen=True)
class Dropout(Node):
    """Nothing: dropout is for training."""

    def shape(self, *inputs: Shape) -> Shape:
        (shape,) = inputs
        return shape


@dataclass(frozen=True, kw_only=True)
class Dense(Node):
    """x times the transposed weight, plus bias, and an activation.

    Attributes:
        units: columns of the result.
        weight: name of the parameter of shape (units, columns of x).
        bias: name of one of shape (units,), or ''.
        activation: one of `compute.operators.ACTIVATIONS`.
    """

    units: int
    weight: str
    bias: str = ""
    activation: str = ""

    def shape(self, *inputs: Shape) -> Shape:
        (shape,) = inputs
        check_activation(self.activation)
        if len(shape) != 2:
            raise ValueError(f"gets shape {shape}; expected (batch, columns)")
        return shape[0], whole("units", self.units)

    def parameters(self, *inputs: Shape) -> dict[str, Shape]:
        weight = {self.weight: (self.units, inputs[0][1])}
        return weight | ({self.bias: (self.units,)} if self.bias else {})

    def multiply_adds(self, *inputs: Shape) -> int:
        return math.prod(inputs[0]) * self.units


@dataclass(frozen=True)
class Network:
    """Nodes, each after its inputs, with the shapes that follow. The last is the result.

    >>> net = Network("none", (Input("data", size=(2, 3, 32, 32)), Flatten("flat", ("data",))))
    >>> net.shapes["flat"], net["flat"].kind, net.at(batch=5).shapes["flat"]
    ((2, 3072), 'Flatten', (5, 3072))

    Attributes:
        name: what it is called.
        nodes: a tuple; the first one is the only `Input`.
        shapes: the shape of each node's result, by its name.
        parameters: the shape of each array that the nodes need, by its name.

    Raises:
        ValueError: a node reads one that does not come before it, cannot take the shapes that it
            gets, or has a name that another has. The message begins with the node's name.
    """

    name: str
    nodes: tuple[Node, ...]
    shapes: dict[str, Shape] = field(init=False, repr=False, compare=False)
    parameters: dict[str, Shape] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shapes: dict[str, Shape] = {}
        parameters: dict[str, Shape] = {}
        if not self.nodes or not isinstance(self.nodes[0], Input):
            raise ValueError(f"{self.name} has nodes {shown(self.nodes)}; expected an Input first")
        for number, node in enumerate(self.nodes):
            if node.name in shapes or (number and isinstance(node, Input)):
                raise ValueError(f"{node.name}: expected one Input, and each name once")
            if absent := [name for name in node.inputs if name not in shapes]:
                raise ValueError(
                    f"{node.name}: reads {absent[0]!r}, which no node before it is; expected one "
                    "of those"
                )
            given = [shapes[name] for name in node.inputs]
            try:
                if not given and number:
                    raise ValueError("has no inputs; expected the names of nodes")
                shapes[node.name] = node.shape(*given)
                needs = node.parameters(*given)
            except ValueError as error:
                raise ValueError(f"{node.name}: {_one_line(error)}") from error
            for name, shape in needs.items():
                if parameters.setdefault(name, shape) != shape:
                    raise ValueError(f"{node.name}: {name} is {parameters[name]} to another node")
        object.__setattr__(self, "shapes", shapes)
        object.__setattr__(self, "parameters", parameters)

    def __getitem__(self, name: str) -> Node:
        """The node of a name.

        Raises:
            KeyError: there is none.
        """
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(f"{self.name} has no node {name!r}")

    @property
    def output(self) -> Node:
        """The last node."""
        return self.nodes[-1]

    @property
    def input(self) -> Input:
        """The first one."""
        first = self.nodes[0]
        assert isinstance(first, Input)
        return first

    def given(self, node: Node) -> list[Shape]:
        """The shapes that a node gets."""
        return [self.shapes[name] for name in node.inputs]

    def readers(self, name: str) -> list[Node]:
        """The nodes that read the result of this one."""
        return [node for node in self.nodes if name in node.inputs]

    def multiply_adds(self) -> dict[str, int]:
        """Multiplications with an addition each, of the nodes that have some, by name."""
        counts = {node.name: node.multiply_adds(*self.given(node)) for node in self.nodes}
        return {name: count for name, count in counts.items() if count}

    def at(self, batch: int | None = None, size: int | None = None) -> "Network":
        """The same nodes for so many images, of so many rows and columns."""
        old_batch, channels, height, width = self.input.size
        new = (batch or old_batch, channels, size or height, size or width)
        return Network(self.name, (replace(self.input, size=new), *self.nodes[1:]))

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)


def _images(shape: Shape) -> Shape:
    if len(shape) != 4:
        raise ValueError(f"gets shape {shape}; expected (batch, channels, height, width)")
    return shape


def _one_line(error: ValueError) -> str:
    return " ".join(str(error).split())
