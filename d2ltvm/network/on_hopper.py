"""A fused network as launches on an H100 or H200: float16, channels last, node after node.

`program` turns a `Network` without batch norms and its weights into a `Program`: a step for each
kernel, with the values that it reads and writes. Values share memory where their lives do not
overlap. All kernels are dependent launches: the blocks of one may begin while the one before
ends, and wait for its end (griddepcontrol.wait) before they touch any tensor. A kernel ends behind
its wait, so that all kernels before have ended by then too, and what they wrote can be seen; memory
can be used again by the next step but one without a further fence.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from d2ltvm.hopper.any_conv import Conv, product
from d2ltvm.hopper.planning import check_sms
from d2ltvm.hopper.stem import stem_weights
from d2ltvm.layouts.arrays import rounded_up
from d2ltvm.network import graph
from d2ltvm.network.graph import Network, Node
from d2ltvm.network.hopper_kernels import (
    AnyConv,
    ConvKernel,
    Copy,
    Depthwise,
    HopperKernel,
    MaxPool,
    MeanPool,
    RowsConv,
    Stem,
    conv_kernels,
    nbytes,
)
from d2ltvm.network.measured_kernels import measured_kernel
from d2ltvm.network.weights import check_weights

Array = npt.NDArray[Any]
ROOM = "partial sums"  # the name of what all kernels share that cut sums
# Images from which on the kernels that won races are taken. With one image ResNet-50 as a whole was
# slower with them than with the model's, on an H200: `waterfall.jsonl` there.
RACED = 2
ALIGNMENT = 256  # bytes: each value in shared memory begins at a multiple, as cudaMalloc's do


@dataclass(frozen=True)
class Step:
    """A launch.

    Attributes:
        node: the name of the node whose result this makes, or a part of it.
        kernel: what is launched.
        reads: names of values, one for each parameter of the kernel but the last.
        writes: the name of the result.
        flop: multiplications and additions that it makes.
        others: other kernels that compute the same, with the same parameters, for a race.
    """

    node: str
    kernel: HopperKernel
    reads: tuple[str, ...]
    writes: str
    flop: int = 0
    others: tuple[HopperKernel, ...] = ()


@dataclass(frozen=True)
class Program:
    """The launches of a network.

    Attributes:
        steps: in order.
        constants: weights and biases as kernels take them, by name.
        given: the name of the images, (batch, height, width, channels) of float16.
        result: the name of the result of the last step.
    """

    steps: tuple[Step, ...]
    constants: dict[str, Array]
    given: str
    result: str

    @property
    def kernels(self) -> list[HopperKernel]:
        """Each kernel once, in the order of their first launches."""
        return list(dict.fromkeys(step.kernel for step in self.steps))

    @property
    def lives(self) -> dict[str, tuple[int, int]]:
        """The steps that write and last read each value, by its name; of the images, 0 at first."""
        lives: dict[str, tuple[int, int]] = {}
        for number, step in enumerate(self.steps):
            for name in (*step.reads, step.writes):
                if name not in self.constants:
                    lives[name] = (lives.get(name, (number, 0))[0], number)
        # What goes in and comes out is the caller's.
        for name in (self.given, self.result):
            lives[name] = (0, len(self.steps))
        if ROOM in lives:
            lives[ROOM] = (0, len(self.steps))
        return lives

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each value."""
        sizes: dict[str, int] = {}
        for step in self.steps:
            for name, tensor in zip((*step.reads, step.writes), step.kernel.takes, strict=True):
                if name not in self.constants:
                    sizes[name] = max(sizes.get(name, 0), nbytes(tensor))
        return sizes

    def places(self) -> tuple[dict[str, int], int]:
        """Where each value begins in one piece of memory, and how long that is, in bytes.

        Large values are placed first, each as low as those leave room that live at the same time.
        """
        lives, sizes = self.lives, self.sizes
        placed: dict[str, int] = {}
        for name in sorted(sizes, key=lambda name: -sizes[name]):
            begin, end = lives[name]
            taken = sorted(
                (place, place + sizes[other])
                for other, place in placed.items()
                if lives[other][0] <= end and begin <= lives[other][1]
            )
            place = 0
            for low, high in taken:
                if place + sizes[name] <= low:
                    break
                place = max(place, rounded_up(high, ALIGNMENT))
            placed[name] = place
        return placed, max(placed[name] + sizes[name] for name in placed)

    def bind(
        self, memory: Callable[[str, tuple[int, ...], str], Any], constants: Mapping[str, Any]
    ) -> list[tuple[Step, tuple[Any, ...]]]:
        """Each step with its arguments.

        Args:
            memory: a function of a value's name, a shape and a dtype that returns this value,
                so seen; as `numpy_memory` makes one.
            constants: those of the program, where kernels can read them.
        """
        return [
            (
                step,
                tuple(
                    constants[name] if name in constants else memory(name, *tensor)
                    for name, tensor in zip(
                        (*step.reads, step.writes), step.kernel.takes, strict=True
                    )
                ),
            )
            for step in self.steps
        ]

    def with_kernels(self, chosen: Mapping[HopperKernel, HopperKernel]) -> "Program":
        """The same with other kernels, by those in whose place they come."""
        steps = tuple(
            replace(step, kernel=kernel, reads=_reads(step, kernel))
            for step in self.steps
            for kernel in [chosen.get(step.kernel, step.kernel)]
        )
        return replace(self, steps=steps)


def _reads(step: Step, kernel: HopperKernel) -> tuple[str, ...]:
    """What a step reads with another kernel, which may have room for partial sums or not."""
    names = tuple(name for name in step.reads if name != ROOM)
    return (*names, ROOM) if len(kernel.takes) > len(names) + 1 else names


def numpy_memory(program: Program) -> Callable[[str, tuple[int, ...], str], Array]:
    """Values of a program as NumPy arrays that share one piece of memory, filled with NaN."""
    placed, size = program.places()
    memory = np.full(size, 0xFF, np.uint8)

    def value(name: str, shape: tuple[int, ...], dtype: str) -> Array:
        first = placed[name]
        return memory[first : first + nbytes((shape, dtype))].view(dtype).reshape(shape)

    return value


def run(program: Program, images: Array, execute: Callable[..., None]) -> Array:
    """The result of a program for some images, by a function that runs a PrimFunc on arrays.

    >>> run(program(network, weights), images, d2ltvm.emulate).shape  # doctest: +SKIP
    (1, 1000)

    Args:
        program: what `program` makes.
        images: (batch, height, width, channels), float16.
        execute: such as `d2ltvm.emulate`, or `d2ltvm.run_anywhere`.
    """
    memory = numpy_memory(program)
    memory(program.given, images.shape, "float16")[...] = images
    result = None
    for step, arrays in program.bind(memory, program.constants):
        execute(step.kernel.make(), *arrays)
        result = arrays[-1]
    assert result is not None
    return result.copy()


def program(
    network: Network,
    weights: Mapping[str, Array],
    sms: int | None = None,
    many: int = 1,
    fused_stem: bool = True,
    measured: bool = True,
) -> Program:
    """The launches of a network that is fused.

    A convolution of two or more images has the kernel that won a race of its sizes on this GPU, if
    there was one (see `measured_kernels`); or the one of the plan that `bench.tuning.tune` found on
    this machine; or the one that should be fastest by the model.

    Args:
        network: of `Conv2d`, `Dense`, `MaxPool2d`, `GlobalAvgPool` and `Flatten`: see `graph`.
        weights: arrays by the names of its parameters, float32.
        sms: blocks that run at once; None for one on each SM.
        many: of the kernels of each kind that a step is given for a race.
        fused_stem: whether the first convolution and the max pool of a ResNet are one launch.
        measured: False for the model's choice in any case.

    Raises:
        ValueError: a weight is absent or has another shape, a node is of another kind, or there is
            no kernel for it: groups of two or more channels, or other than a multiple of 8
            channels, of what has a thread for 8 or fewer.
    """
    check_weights(network, weights)
    found = _Steps(network, weights, check_sms(sms), many, fused_stem, measured)
    for node in network.nodes[1:]:
        found.add(node)
    last = found.steps[-1].writes
    return Program(tuple(found.steps), found.constants, network.input.name, last)


class _Steps:
    """Steps and constants, as they are found node by node."""

    def __init__(
        self,
        network: Network,
        weights: Mapping[str, Array],
        sms: int,
        many: int,
        fused_stem: bool,
        measured: bool,
    ) -> None:
        self.network, self.weights = network, weights
        self.fused_stem, self.measured = fused_stem, measured
        self.sms, self.many = sms, many
        self.steps: list[Step] = []
        self.constants: dict[str, Array] = {}
        self.names = {network.input.name: network.input.name}  # of values, by node
        self.images: dict[str, tuple[int, ...]] = {}  # shapes in NCHW that were flattened
        self.last = _computed_last(network)

    def add(self, node: Node) -> None:
        shapes = self.network.given(node)
        match node:
            case graph.Conv2d() if self.fused_stem and _is_stem(self.network, node):
                self._stem(node, shapes[0])
            case graph.Conv2d() if 1 < node.groups == shapes[0][1] == node.filters:
                self._depthwise(node, shapes[0])
            case graph.Conv2d():
                self._conv(node, shapes[0])
            case graph.Dense():
                self._dense(node, shapes[0])
            case graph.MaxPool2d() if node.name in self.names:
                pass  # the stem has made it
            case graph.MaxPool2d():
                kernel = MaxPool(_nhwc(shapes[0]), node.kernel, node.stride, node.padding)
                self._step(node, kernel)
            case graph.GlobalAvgPool():
                self._step(node, MeanPool(_nhwc(shapes[0])))
            case graph.Flatten():
                self.names[node.name] = self.names[node.inputs[0]]
                self.images[self.names[node.name]] = shapes[0]
            case _:
                raise ValueError(
                    f"{node.name} is a {node.kind}; expected a network after fold_batch_norms and "
                    "fuse"
                )

    def _step(self, node: Node, kernel: HopperKernel) -> None:
        _check_channels(node, self.network.given(node)[0][1])
        self.steps.append(Step(node.name, kernel, (self.names[node.inputs[0]],), node.name))
        self.names[node.name] = node.name

    def _stem(self, node: graph.Conv2d, shape: tuple[int, ...]) -> None:
        (pool,) = self.network.readers(node.name)
        batch, height, width, _ = _nhwc(shape)
        packed = stem_weights(self.weights[node.weight].transpose(2, 3, 0, 1).astype("float16"))
        self._with_weights(node, Stem((batch, height, width), self.sms), packed, shape, pool.name)

    def _depthwise(self, node: graph.Conv2d, shape: tuple[int, ...]) -> None:
        if node.residual:
            raise ValueError(f"{node.name}: adds {node.residual}; expected no addition with groups")
        _check_channels(node, shape[1])
        told = (node.kernel, node.stride, node.padding, node.activation)
        packed = self.weights[node.weight][:, 0].transpose(1, 2, 0).astype("float16")
        self._with_weights(node, Depthwise(_nhwc(shape), *told), packed, shape, node.name)

    def _with_weights(
        self, node: graph.Conv2d, kernel: HopperKernel, packed: Array, shape: tuple[int, ...],
        writes: str,
    ) -> None:  # fmt: skip
        """A step that takes images, weights in the kernel's form, and a bias."""
        names = [f"{node.name}, weight", f"{node.name}, bias"]
        self.constants[names[0]] = np.ascontiguousarray(packed)
        self.constants[names[1]] = self._bias(node)
        flop = 2 * node.multiply_adds(shape)
        reads = (self.names[node.inputs[0]], *names)
        self.steps.append(Step(node.name, kernel, reads, writes, flop))
        self.names[writes] = writes

    def _bias(self, node: graph.Conv2d | graph.Dense) -> Array:
        """The biases of a node, or zeros, in float32."""
        filters = node.filters if isinstance(node, graph.Conv2d) else node.units
        return (self.weights[node.bias] if node.bias else np.zeros(filters)).astype("float32")

    def _conv(self, node: graph.Conv2d, shape: tuple[int, ...]) -> None:
        if node.groups > 1:
            raise ValueError(
                f"{node.name}: groups is {node.groups}; expected 1, or one for each channel"
            )
        batch, channels, *size = shape
        conv = Conv(
            batch, (size[0], size[1]), channels, node.filters, node.kernel, node.padding,
            node.stride,
        )  # fmt: skip
        weight = self.weights[node.weight].transpose(2, 3, 0, 1)
        taps = weight.reshape(conv.taps, node.filters, channels)
        self._product(node, conv, taps, [self.names[name] for name in node.inputs])

    def _dense(self, node: graph.Dense, shape: tuple[int, ...]) -> None:
        name = self.names[node.inputs[0]]
        weight = self.weights[node.weight]
        if name in self.images:  # its columns are those of images with channels last here
            _, c, h, w = self.images[name]
            weight = weight.reshape(-1, c, h, w).transpose(0, 2, 3, 1).reshape(len(weight), -1)
        conv = product(shape[0], node.units, shape[1])
        self._product(node, conv, weight[None], [name])

    def _product(
        self,
        node: graph.Conv2d | graph.Dense,
        conv: Conv,
        weight: Array,
        inputs: list[str],
    ) -> None:
        wide = node.name == self.last
        kernels = self._kernels(conv, node.activation, len(inputs) > 1, wide)
        kernel = kernels[0]
        layer = kernel.layer if isinstance(kernel, AnyConv | RowsConv) else None
        if layer and layer.copies:
            copied = f"{node.name}, copied"
            self.steps.append(Step(node.name, Copy(layer), (inputs[0],), copied))
            inputs = [copied, *inputs[1:]]
        kernels = [other for other in kernels if _same(other, kernel)]
        names = [f"{node.name}, weight", f"{node.name}, bias"]
        packed = weight.astype("float16")
        self.constants[names[0]] = layer.weights(packed) if layer else packed
        self.constants[names[0]] = np.ascontiguousarray(self.constants[names[0]])
        self.constants[names[1]] = self._bias(node)
        step = Step(node.name, kernel, (inputs[0], *names, *inputs[1:]), node.name, conv.flop)
        others = tuple(dict.fromkeys(other for other in kernels if other != kernel))
        self.steps.append(replace(step, reads=_reads(step, kernel), others=others))
        self.names[node.name] = node.name

    def _kernels(self, conv: Conv, activation: str, residual: bool, wide: bool) -> list[ConvKernel]:
        """Kernels for a convolution: first the one to take, then others for a race."""
        won = None
        # No race had a ReLU6.
        if self.measured and conv.batch >= RACED and activation != "relu6":
            won = measured_kernel(conv, activation == "relu", residual, self.sms, wide=wide)
        if won and self.many == 1:
            return [won]
        kernels = conv_kernels(
            conv, activation, residual, self.sms, self.many, wide=wide, known=self.measured
        )
        return [won, *kernels] if won else kernels


def _check_channels(node: Node, channels: int) -> None:
    """Refuse what threads with 8 channels each cannot share."""
    if channels % 8:
        raise ValueError(f"{node.name}: gets {channels} channels; expected a multiple of 8")


def _computed_last(network: Network) -> str:
    """The name of the node that computes what a network gives: flattening computes nothing."""
    node = network.output
    while isinstance(node, graph.Flatten):
        node = network[node.inputs[0]]
    return node.name


def _is_stem(network: Network, node: graph.Conv2d) -> bool:
    """Whether a convolution, with the pool behind it, is what `hopper.stem` computes."""
    given, readers = network.given(node), network.readers(node.name)
    if len(readers) != 1 or not isinstance(pool := readers[0], graph.MaxPool2d):
        return False
    pooled = (pool.kernel, pool.stride, pool.padding) == ((3, 3), (2, 2), (1, 1))
    conv = (node.kernel, node.stride, node.padding) == ((7, 7), (2, 2), (3, 3))
    shape = (given[0][1], node.filters, given[0][3] % 8) == (3, 64, 0)
    return pooled and conv and shape and bool(node.bias) and node.activation == "relu"


def _same(one: ConvKernel, other: ConvKernel) -> bool:
    """Whether two kernels take images and weights of the same shapes."""
    return one.takes[:2] == other.takes[:2]


def _nhwc(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    batch, channels, height, width = shape
    return batch, height, width, channels
