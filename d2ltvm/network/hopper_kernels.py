"""Which kernels of `d2ltvm.hopper` compute a node of a network: float16, channels last.

Each class here describes a kernel by its sizes: two nodes with the same ones have equal kernels,
which are compiled once. `make` gives the PrimFunc, and `takes` the shapes of its parameters.
"""

import math
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

from d2ltvm.compute.ops import Shape
from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_costs import costs
from d2ltvm.hopper.any_layer import Layer, known_layers, ways
from d2ltvm.hopper.any_model import boxed, boxes_are_known, estimate_boxed
from d2ltvm.hopper.any_plan import Plan
from d2ltvm.hopper.depthwise import depthwise_fused
from d2ltvm.hopper.implicit_fused import conv_nhwc_fused
from d2ltvm.hopper.planning import ConvPlan, check_sms
from d2ltvm.hopper.pooling import max_pool, mean_pool
from d2ltvm.hopper.rows import RowsPlan
from d2ltvm.hopper.stem import FILTERS, StemPlan, plan_stem, stem
from d2ltvm.hopper.strips import Images, under_windows
from d2ltvm.layouts import Pair
from d2ltvm.schedules.strips import depthwise_plan

Tensor = tuple[Shape, str]  # shape and dtype

HALF, SINGLE = "float16", "float32"


class HopperKernel(Protocol):
    """What a step of a network launches."""

    @property
    def takes(self) -> tuple[Tensor, ...]:
        """Shape and dtype of each parameter; the last one is the result."""

    @property
    def seconds(self) -> float:
        """That it takes, by the model of `hopper.any_model`."""

    def make(self) -> Any:
        """The PrimFunc."""


@dataclass(frozen=True)
class AnyConv:
    """A convolution or product by `hopper.conv_any`, with what follows it in its epilogue.

    Its parameters are images, weights, bias, the residual if there is one, room for the sums of
    parts where sums are cut, and the result.

    Attributes:
        layer: sizes, and the plan, which knows of bias, residual and ReLU.
    """

    layer: Layer

    @property
    def plan(self) -> Plan:
        assert isinstance(self.layer.plan, Plan)
        return self.layer.plan

    @property
    def takes(self) -> tuple[Tensor, ...]:
        plan, conv = self.plan, self.layer.conv
        result = (conv.batch, *conv.out, conv.oc)
        return (
            (self.layer.images, HALF),
            (self.layer.weights_shape, HALF),
            ((conv.oc,), SINGLE),
            *([(result, HALF)] if plan.residual else []),
            *([(plan.partials, SINGLE)] if plan.meet else []),
            (result, plan.dtype),
        )

    @property
    def seconds(self) -> float:
        added = math.prod(self.takes[-1][0]) * 2 / costs().memory if self.plan.residual else 0.0
        return self.layer.seconds + added

    def make(self) -> Any:
        return self.layer.kernel()

    def __str__(self) -> str:
        p = self.plan
        words = [
            f"{p.pixels} x {p.channels} x {p.depth}",
            f"{p.consumers} consumers" + (" in turns" if p.pingpong else ""),
            f"{p.stages} slots",
            *(["swapped"] if p.swapped else []),
            *([f"{p.blocks_per_sm} blocks an SM"] if p.blocks_per_sm > 1 else []),
            *([f"{p.splits} parts behind {p.full} tiles"] if p.splits > 1 else []),
            *(["in clusters"] if p.distributed else []),
            *([f"clusters of {p.cluster}"] if p.cluster > 1 else []),
            *([f"bricks {p.bricks}"] if p.bricks else []),
        ]
        return ", ".join(words)


@dataclass(frozen=True)
class BoxConv:
    """A convolution with bias by `hopper.implicit_fused`, which leaves out taps in the padding."""

    conv: Conv
    relu: bool
    sms: int

    @property
    def plan(self) -> ConvPlan:
        plan = boxed(self.conv, self.sms)
        assert plan is not None
        return plan

    @property
    def takes(self) -> tuple[Tensor, ...]:
        c = self.conv
        return (
            ((c.batch, *c.size, c.ic), HALF),
            ((c.taps, c.oc, c.ic), HALF),
            ((c.oc,), SINGLE),
            ((c.batch, *c.out, c.oc), HALF),
        )

    @property
    def seconds(self) -> float:
        return estimate_boxed(self.plan)

    def make(self) -> Any:
        return conv_nhwc_fused(self.conv, self.relu, self.sms)

    def __str__(self) -> str:
        p = self.plan
        return f"boxes {p.tile} x {p.columns}" + (", on demand" if p.on_demand else "")


@dataclass(frozen=True)
class RowsConv:
    """A convolution of few channels by `hopper.conv_rows`, with a bias and an activation."""

    layer: Layer

    @property
    def takes(self) -> tuple[Tensor, ...]:
        conv = self.layer.conv
        return (
            (self.layer.images, HALF),
            (self.layer.weights_shape, HALF),
            ((conv.oc,), SINGLE),
            ((conv.batch, *conv.out, conv.oc), HALF),
        )

    @property
    def seconds(self) -> float:
        return self.layer.seconds

    def make(self) -> Any:
        return self.layer.kernel()

    def __str__(self) -> str:
        return str(self.layer.plan)


@dataclass(frozen=True)
class Depthwise:
    """A depthwise convolution with a bias and an activation: see `hopper.depthwise`."""

    images: Images
    kernel: Pair
    stride: Pair
    pad: Pair
    activation: str

    @property
    def takes(self) -> tuple[Tensor, ...]:
        channels = self.images[3]
        return (
            (self.images, HALF),
            ((*self.kernel, channels), HALF),
            ((channels,), SINGLE),
            (under_windows(self.images, self.kernel, self.stride, self.pad), HALF),
        )

    @property
    def seconds(self) -> float:
        return moved(self)

    def make(self) -> Any:
        _, h, w, channels = self.images
        told = max(h, w), max(self.kernel), max(self.pad), max(self.stride)
        plan: Any = depthwise_plan(channels, *told)
        how = self.activation, plan["strip"], plan["width"]
        return depthwise_fused(self.images, self.kernel, self.stride, self.pad, *how)

    def __str__(self) -> str:
        return "a thread for a strip of a few channels"


@dataclass(frozen=True)
class Copy:
    """The copy of images that a layer of few channels needs before its kernel."""

    layer: Layer

    @property
    def takes(self) -> tuple[Tensor, ...]:
        return ((self.layer.given, HALF), (self.layer.images, HALF))

    @property
    def seconds(self) -> float:
        return 0.0  # the kernel behind it counts what its layer takes as a whole

    def make(self) -> Any:
        return self.layer.copy()

    def __str__(self) -> str:
        return f"copy to {self.layer.images}"


@dataclass(frozen=True)
class MaxPool:
    """The largest number under a window: see `hopper.pooling`."""

    images: Images
    kernel: Pair
    stride: Pair
    pad: Pair

    @property
    def takes(self) -> tuple[Tensor, ...]:
        result = under_windows(self.images, self.kernel, self.stride, self.pad)
        return ((self.images, HALF), (result, HALF))

    @property
    def seconds(self) -> float:
        return moved(self)

    def make(self) -> Any:
        return max_pool(self.images, self.kernel, self.stride, self.pad)

    def __str__(self) -> str:
        return "a thread for 8 channels of 2 pixels"


@dataclass(frozen=True)
class MeanPool:
    """The mean of each channel of an image: see `hopper.pooling`."""

    images: Images

    @property
    def takes(self) -> tuple[Tensor, ...]:
        return ((self.images, HALF), ((self.images[0], self.images[3]), HALF))

    @property
    def seconds(self) -> float:
        return moved(self)

    def make(self) -> Any:
        return mean_pool(self.images)

    def __str__(self) -> str:
        return "a thread for 8 channels"


@dataclass(frozen=True)
class Stem:
    """The first convolution of a ResNet and the pool behind it: see `hopper.stem`."""

    images: tuple[int, int, int]
    sms: int

    @property
    def plan(self) -> StemPlan:
        return plan_stem(self.images, self.sms)

    @property
    def takes(self) -> tuple[Tensor, ...]:
        batch, *_ = self.images
        return (
            ((*self.images, 3), HALF),
            ((192, FILTERS), HALF),
            ((FILTERS,), SINGLE),
            ((batch, *self.plan.pooled, FILTERS), HALF),
        )

    @property
    def seconds(self) -> float:
        return self.plan.seconds

    def make(self) -> Any:
        return stem(self.images, self.sms)

    def __str__(self) -> str:
        return f"with its pool, {self.plan.rows} rows of it a block, 2 blocks an SM"


ConvKernel = AnyConv | BoxConv | RowsConv


def of_layer(layer: Layer) -> AnyConv | RowsConv:
    """The kernel of a layer with a bias."""
    return RowsConv(layer) if isinstance(layer.plan, RowsPlan) else AnyConv(layer)


def nbytes(tensor: Tensor) -> int:
    """Bytes of a tensor of float16 or float32."""
    shape, dtype = tensor
    return math.prod(shape) * {HALF: 2, SINGLE: 4}[dtype]


def moved(kernel: HopperKernel) -> float:
    """Seconds in which memory gives and takes all that a kernel has for parameters."""
    return sum(map(nbytes, kernel.takes)) / costs().memory


def conv_kernels(
    conv: Conv,
    activation: str,
    residual: bool,
    sms: int | None = None,
    many: int = 1,
    wide: bool = False,
    known: bool = True,
) -> list[ConvKernel]:
    """Kernels for a convolution with a bias, the fastest by the model first.

    Before them comes the kernel of a plan that was tuned on this machine, if there is one. A plan
    that was the fastest in the records is among them: it was timed without the bias.

    >>> conv = Conv(8, (7, 7), 512, 512, (3, 3), (1, 1))
    >>> best, *others = conv_kernels(conv, "relu", False, many=2)
    >>> all(best.seconds <= other.seconds for other in others)
    True

    Args:
        conv: sizes.
        activation: what follows: '' for nothing, 'relu', or 'relu6'.
        residual: whether there is something to add before that.
        sms: blocks that run at once; None for one on each SM.
        many: plans of each kind.
        wide: whether results are float32.
        known: whether to ask `any_layer.known_layers`; False for the model's choice in any case.
    """
    sms = check_sms(sms)
    told: dict[str, Any] = {"bias": True, "residual": residual, "wide": wide}
    told |= {activation: True} if activation else {}
    tuned, fastest = known_layers(conv, sms, **told) if known else (None, None)
    every = ways(conv, True, sms, 4 * many, known=False, **told)
    every = list(dict.fromkeys([fastest, *every])) if fastest else every
    found: list[ConvKernel] = []
    for _, layers in groupby(
        sorted(every, key=lambda layer: layer.way), key=lambda layer: layer.way
    ):
        found += sorted(map(of_layer, layers), key=lambda kernel: kernel.seconds)[:many]
    plain = not residual and not wide and activation != "relu6"
    if plain and boxes_are_known(conv) and boxed(conv, sms):
        found.append(BoxConv(conv, activation == "relu", sms))
    found.sort(key=lambda kernel: kernel.seconds)
    return list(dict.fromkeys([of_layer(tuned), *found])) if tuned else found
