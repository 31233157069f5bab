"""The computations that workloads are made of: tensors, inputs, reference, the book's schedules."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import te

from d2ltvm import schedules
from d2ltvm.compute import conv_batch, convolution, data, operators_nhwc, ops, reductions

Array = npt.NDArray[Any]
Schedules = dict[str, Callable[..., Any]]

SIDE, KERNEL, PAD = 64, 3, 1  # images of 64 by 64 and windows of 3 by 3, as in the chapters
BATCH_LAYER = (512, 256, 14, 3, 1, 1)  # the layer of the chapters on batches: oc, ic, n, k, p, s
BLOCK = 16  # images and channels of a block in NHWCnc
DEPTHWISE_LAYER = (144, 56, 3, 1, 1)  # of MobileNetV2: c, n, k, p, s
SOFTMAX_ROWS = 4096  # of a softmax


@dataclass(frozen=True)
class Computation:
    """What all workloads of one name share. Each function takes the size.

    Attributes:
        says: what it is, for messages and for the command.
        size: what the size counts.
        usual: the size where none is given.
        sizes: the arguments of the book's schedules.
        tensors: te tensors, the inputs and the result.
        inputs: random arrays, the same at each call.
        reference: function of the inputs: the result by NumPy, in their precision.
        flop: operations, a multiplication and an addition each; 0 where bytes are what counts.
        terms: roundings that an element goes through at most, for `d2ltvm.check`.
        by_hand: the book's schedules by kind of device, by name.
        sums: the dtype of the sums; None is that of the result.
        tensorcores: whether the rules for a GPU are those for TensorCores.
        multiple: what the size has to be a multiple of.
    """

    says: str
    size: str
    usual: int
    sizes: Callable[[int], tuple[int, ...]]
    tensors: Callable[[int], list[Any]]
    inputs: Callable[[int], tuple[Array, ...]]
    reference: Callable[..., Array]
    flop: Callable[[int], int]
    terms: Callable[[int], int]
    by_hand: dict[str, Schedules] = field(default_factory=dict)
    sums: str | None = None
    tensorcores: bool = False
    multiple: int = 1


def _matmul() -> Computation:
    return Computation(
        says="the product of two square matrices in float32",
        size="rows and columns",
        usual=512,
        sizes=lambda n: (n, n, n),
        tensors=lambda n: list(ops.matmul(n, n, n)),
        inputs=lambda n: data.get_matmul_data(n, n, n)[:2],
        reference=lambda a, b: np.asarray(a @ b),
        flop=lambda n: 2 * n**3,
        terms=lambda n: 2 * n,
        by_hand={
            "cuda": {
                "naive": schedules.matmul_naive,
                "coalesced": schedules.matmul_coalesced,
                "shared tiles": schedules.matmul_shared,
                "register tiles": schedules.matmul_registers,
                "virtual threads": schedules.matmul_vthread,
                "warp tiles": schedules.matmul_warps,
            },
            "llvm": {"packed tiles": schedules.cpu_matmul},
        },
    )


def _conv() -> Computation:
    def tensors(n: int) -> list[Any]:
        X, K, Y, _ = convolution.conv(n, n, SIDE, SIDE, KERNEL, KERNEL, PAD, PAD)
        return [X, K, Y]

    return Computation(
        says=f"the convolution by channels of an image of {SIDE} by {SIDE} in float32",
        size="channels in and out",
        usual=64,
        sizes=lambda n: (n, n, SIDE, KERNEL, PAD, 1),
        tensors=tensors,
        inputs=lambda n: data.get_conv_data(n, n, SIDE, KERNEL, PAD, 1)[:2],
        reference=lambda x, k: convolution.conv_reference(x, k, PAD),
        flop=lambda n: round(convolution.conv_gflop(n, n, SIDE, KERNEL, PAD, 1) * 1e9),
        terms=lambda n: 2 * n * KERNEL**2,
        by_hand={
            "cuda": {
                "a row a block": schedules.default_sch,
                "spread": schedules.spread_sch,
                "registers": schedules.register_sch,
                "tiling": schedules.tiling,
                "virtual threads": schedules.vthread,
                "split sum": schedules.conv_split,
            },
            "llvm": {"direct": schedules.cpu_direct, "packed": schedules.cpu_conv},
        },
    )


def _batch(tensorcores: bool) -> Computation:
    """The layer of the chapters on batches, with threads in HWCN or with TensorCores in NHWCnc."""
    oc, ic, n, k, p, _ = BATCH_LAYER
    dtype = "float16" if tensorcores else "float32"
    define = conv_batch.conv_nhwcnc if tensorcores else conv_batch.conv_hwcn
    layout = "nhwcnc" if tensorcores else "hwcn"

    def inputs(batch: int) -> tuple[Array, ...]:
        images, kernels = data.get_conv_batch(batch, oc, ic, n, k, dtype)
        if tensorcores:
            return conv_batch.to_nhwcnc(images), conv_batch.to_hwioio(kernels)
        return conv_batch.to_hwcn(images), conv_batch.to_hwcn(kernels)

    hand: Schedules = {"tutorial": schedules.hwcn_blocks, "tiled": schedules.hwcn_tiled}
    if tensorcores:
        hand = {"wmma": schedules.wmma_tiled, "mma, swizzled": schedules.mma_tiled}
    return Computation(
        says=f"the convolution of a batch in {'float16 on TensorCores' if tensorcores else dtype}",
        size="images",
        usual=128,
        sizes=lambda batch: (batch, *BATCH_LAYER),
        tensors=lambda batch: list(define(batch, *BATCH_LAYER)[:3]),
        inputs=inputs,
        reference=lambda x, w: conv_batch.conv_in_layout(layout, x, w, p),
        flop=lambda batch: round(batch * convolution.conv_gflop(*BATCH_LAYER) * 1e9),
        terms=lambda batch: 2 * ic * k * k,
        by_hand={"cuda": hand},
        tensorcores=tensorcores,
        multiple=BLOCK if tensorcores else 1,
    )


def _depthwise() -> Computation:
    c, n, k, p, s = DEPTHWISE_LAYER

    def inputs(batch: int) -> tuple[Array, ...]:
        rng = np.random.default_rng(0)
        shapes = ((batch, n, n, c), (k, k, c))
        return tuple(rng.standard_normal(shape, "float32").astype("float16") for shape in shapes)

    plan: dict[str, Any] = {**schedules.depthwise_plan(*DEPTHWISE_LAYER)}

    return Computation(
        says="a depthwise convolution of a batch in float16, channels last",
        size="images",
        usual=32,
        sizes=lambda batch: (batch, *DEPTHWISE_LAYER),
        tensors=lambda batch: list(operators_nhwc.depthwise_nhwc(batch, *DEPTHWISE_LAYER)),
        inputs=inputs,
        reference=lambda x, w: operators_nhwc.depthwise_nhwc_reference(x, w, p, s),
        flop=lambda batch: 0,
        terms=lambda batch: 2 * k * k,
        by_hand={"cuda": {"strips": functools.partial(schedules.depthwise_strips, **plan)}},
        sums="float32",
    )


def _softmax() -> Computation:
    def inputs(cols: int) -> tuple[Array, ...]:
        # not negative: a reference of absolute values is then the reference
        return (np.abs(reductions.get_rows(SOFTMAX_ROWS, cols)),)

    def held(rows: int, cols: int) -> Any:
        return schedules.softmax_held(rows, cols, nt=max(32, min(1024, cols // 32)))

    return Computation(
        says=f"the softmax of {SOFTMAX_ROWS} rows in float16",
        size="columns",
        usual=4096,
        sizes=lambda cols: (SOFTMAX_ROWS, cols),
        tensors=lambda cols: list(reductions.softmax(SOFTMAX_ROWS, cols)),
        inputs=inputs,
        reference=reductions.softmax_reference,
        flop=lambda cols: 0,
        terms=lambda cols: cols + 64,  # 64: what the exponential and the rest have at most
        by_hand={"cuda": {"three passes": schedules.softmax_passes, "held": held}},
        sums="float32",
    )


COMPUTATIONS: dict[str, Computation] = {
    "matmul": _matmul(),
    "conv": _conv(),
    "hwcn": _batch(tensorcores=False),
    "tensorcores": _batch(tensorcores=True),
    "depthwise": _depthwise(),
    "softmax": _softmax(),
}


def prim_func(tensors: list[Any]) -> Any:
    """Tensors as a PrimFunc named `main`, with nothing scheduled."""
    return te.create_prim_func(tensors).with_attr("global_symbol", "main")
