"""What the kernels of the catalog compute: definitions by their sizes, and how work is counted."""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from d2ltvm.compute.conv_batch import conv_hwcn
from d2ltvm.compute.convolution import conv, conv_gflop, conv_out_size
from d2ltvm.compute.operators import batch_norm, depthwise_conv, pool
from d2ltvm.compute.operators_nhwc import batch_norm_nhwc, depthwise_nhwc, pool_nhwc
from d2ltvm.compute.ops import broadcast_add, matmul, vector_add, vector_copy
from d2ltvm.compute.reductions import layer_norm, row_sum, softmax
from d2ltvm.explore.definition import definition

Size = tuple[int, ...]


@dataclass(frozen=True)
class Operation:
    """What is computed, as a function of sizes that have names.

    Attributes:
        tensors: from the sizes to te tensors, inputs before the output.
        label: what a size is called, with the names in braces.
        unit: what its speed is given in: 'GB/s' or 'GFLOPS'.
        flop: how many operations there are, by the sizes.
        moved: how many bytes; each tensor once, where it is None.
        terms: how many roundings an element takes, by the sizes, where that does not follow from
            the definition.
        relative: whether the error is in proportion to the result itself: nothing cancels in it.
        magnitudes: te tensors as `tensors` has them, of which the output is what the terms of an
            element come to in magnitude: where a difference or a root is not the last thing done,
            the computation on magnitudes does not say that.
        positive: names of the inputs of which there is a root.
        recorded: the sizes behind a place on the x axis of the H200's records.
    """

    tensors: Callable[..., Sequence[Any]]
    label: str
    unit: str
    flop: Callable[..., float]
    moved: Callable[..., float] | None = None
    terms: Callable[..., int] | None = None
    relative: bool = False
    magnitudes: Callable[..., Sequence[Any]] | None = None
    positive: tuple[str, ...] = ()
    recorded: Callable[[Any], Size] = lambda x: (x,)

    def named(self, size: Size, options: dict[str, Any]) -> dict[str, Any]:
        """The sizes by name; a schedule's options that are sizes too go with them."""
        names = inspect.signature(self.tensors).parameters
        own = {key: value for key, value in options.items() if key in names}
        rest = [name for name in names if name not in own]
        return dict(zip(rest, size, strict=True)) | own

    def bytes(self, **sizes: Any) -> float:
        """Bytes that have to move at least."""
        if self.moved:
            return self.moved(**sizes)
        return sum(4 * math.prod(map(int, t.shape)) for t in self.tensors(**sizes))

    def definition(self, **sizes: Any) -> dict[str, Any]:
        """What it computes, as data, and how far a result may be off."""
        terms = self.terms(**sizes) if self.terms else None
        told = definition(self.tensors(**sizes), terms)
        for given in told["inputs"]:
            given |= {"positive": True} if given["name"] in self.positive else {}
        return {**told, "relative": True} if self.relative else told


def transposed(n: int) -> tuple[Any, Any]:
    """A matrix transposed, as memory/seeing_memory does it."""
    A = te.placeholder((n, n), name="A")
    return A, te.compute((n, n), lambda i, j: A[j, i], name="C")


def every(n: int, stride: int) -> tuple[Any, Any]:
    """Every `stride`-th element of a vector."""
    A = te.placeholder((n * stride,), name="A")
    return A, te.compute((n,), lambda i: A[i * stride], name="C")


def halved(blocks: int, threads: int, chains: int, steps: int) -> tuple[Any, Any]:
    """What y = y / 2 + x comes to after some steps."""
    A = te.placeholder((blocks * threads * chains,), name="A")
    return A, te.compute(A.shape, lambda i: A[i] * (2 - 0.5**steps), name="C")


def column_and_matrix(n: int) -> Sequence[Any]:
    """The broadcast add of the book."""
    return broadcast_add((n, 1), (n, n))


def image(oc: int, ic: int, n: int, k: int, p: int, s: int) -> Sequence[Any]:
    """A convolution of a square image."""
    return conv(oc, ic, n, n, k, k, p, p, s, s)[:3]


def images(batch: int, oc: int, ic: int, n: int, k: int, p: int, s: int) -> Sequence[Any]:
    """A convolution of a batch of images, in HWCN."""
    return conv_hwcn(batch, oc, ic, n, k, p, s)[:3]


def depthwise(batch: int, c: int, n: int, k: int, p: int, s: int) -> Sequence[Any]:
    """A depthwise convolution with the channels last."""
    return depthwise_nhwc(batch, c, n, k, p, s, "float32")


def pooling(batch: int, c: int, n: int, k: int, p: int, s: int) -> Sequence[Any]:
    """A max pooling with the channels last."""
    return pool_nhwc("max", batch, c, n, k, p, s, "float32")


def row_sums(rows: int, cols: int) -> Sequence[Any]:
    """Sums of the rows of a matrix."""
    return row_sum(rows, cols, "float32")


def softmax_rows(rows: int, cols: int) -> Sequence[Any]:
    """Softmax of the rows of a matrix."""
    return softmax(rows, cols, "float32")


def layer_norm_rows(rows: int, cols: int) -> Sequence[Any]:
    """Layer norm of the rows of a matrix."""
    return layer_norm(rows, cols, "float32")


def layer_norm_magnitudes(rows: int, cols: int, eps: float = 1e-5) -> Sequence[Any]:
    """What a layer norm adds up, in magnitude: a number and the mean, scaled, and beta."""
    X, G, B, _ = layer_norm_rows(rows, cols)
    share = tirx.const(1 / cols, "float32")
    a, k, j = (te.reduce_axis((0, cols), name=name) for name in "akj")
    A = te.compute((rows,), lambda i: te.sum(te.abs(X[i, a]) * share, axis=a), name="A")
    M = te.compute((rows,), lambda i: te.sum(X[i, k] * share, axis=k), name="M")
    D = te.compute(
        (rows,),
        lambda i: te.sum((X[i, j] - M[i]) * (X[i, j] - M[i]) * share, axis=j),
        name="D",
    )
    R = te.compute((rows,), lambda i: te.rsqrt(D[i] + tirx.const(eps, "float32")), name="R")

    def element(i: Any, c: Any) -> Any:
        return (te.abs(X[i, c]) + A[i]) * R[i] * te.abs(G[c]) + te.abs(B[c])

    return X, G, B, te.compute((rows, cols), element, name="Y")


def depthwise_image(c: int, n: int, k: int, p: int, s: int) -> Sequence[Any]:
    """A depthwise convolution of a square image."""
    return depthwise_conv(c, n, n, k, k, p, p, s, s)[:3]


def pooled_image(c: int, n: int, k: int, p: int, s: int) -> Sequence[Any]:
    """A max pooling of a square image."""
    return pool("max", c, n, n, k, k, p, p, s, s)[:2]


def normed_pixels(pixels: int, c: int) -> Sequence[Any]:
    """A batch norm with the channels last, and a ReLU behind it."""
    return batch_norm_nhwc(pixels, c, relu=True, dtype="float32")


def batch_norm_magnitudes(tensors: Sequence[Any], eps: float = 1e-5) -> Sequence[Any]:
    """What a batch norm adds up, in magnitude, whichever way its channels lie."""
    X, Mean, Var, Gamma, Beta, Y = tensors

    def element(*index: Any) -> Any:
        channel = index[-1:] if len(index) == 2 else (index[0], 0, 0)
        sizes = te.abs(X[index]) + te.abs(Mean[channel])
        root = te.sqrt(Var[channel] + tirx.const(eps, "float32"))
        return sizes / root * te.abs(Gamma[channel]) + te.abs(Beta[channel])

    return *tensors[:-1], te.compute(Y.shape, element, name="Y")


ROWS_LABEL = "{rows:,} rows of {cols:,}"
IMAGE_LABEL = "{c:,} channels, {n} × {n}"
VARIANCES = ("Var",)
# A difference or a sum with eps, a root of 9 (WGSL has it as 1 / inverseSqrt), a division of 5, two
# products and two sums: at most so many for any element of a batch norm, in whichever order.
NORMED = 20

OPERATIONS = {
    "copy": Operation(lambda n: vector_copy(n), "n = {n:,}", "GB/s", lambda n: 0),
    "every": Operation(
        every, "n = {n:,}", "GB/s", lambda n, stride: 0, moved=lambda n, stride: 8 * n
    ),
    "transpose": Operation(transposed, "n = {n:,}", "GB/s", lambda n: 0),
    "add": Operation(lambda n: vector_add(n), "n = {n:,}", "GB/s", lambda n: n),
    "broadcast": Operation(column_and_matrix, "n = {n:,}", "GB/s", lambda n: n * n),
    "multiply-add": Operation(
        halved,
        "{blocks:,} blocks of {threads} threads, {steps:,} steps",
        "GFLOPS",
        lambda blocks, threads, chains, steps: 2 * blocks * threads * chains * steps,
        # A step halves the error so far: two in all, and one of the reference's factor.
        terms=lambda **_: 3,
    ),
    "product": Operation(
        lambda n, m, l: matmul(n, m, l),
        "n = {n:,}",
        "GFLOPS",
        lambda n, m, l: 2 * n * m * l,
        recorded=lambda n: (n, n, n),
    ),
    "convolution": Operation(
        image,
        "{ic} to {oc} channels, {n} × {n}",
        "GFLOPS",
        lambda **shape: 1e9 * conv_gflop(**shape),
        recorded=lambda c: (c, c, 64, 3, 1, 1),
    ),
    "batch": Operation(
        images,
        "{batch} images, {ic} to {oc} channels, {n} × {n}",
        "GFLOPS",
        lambda batch, **shape: 1e9 * batch * conv_gflop(**shape),
        recorded=lambda batch: (batch, 512, 256, 14, 3, 1, 1),
    ),
    "depthwise": Operation(
        depthwise,
        "{batch} images, {c} channels, {n} × {n}",
        "GB/s",
        lambda batch, c, n, k, p, s: 2 * k * k * batch * c * conv_out_size(n, k, p, s) ** 2,
    ),
    "pooling": Operation(
        pooling, "{batch} images, {c} channels, {n} × {n}", "GB/s", lambda **shape: 0
    ),
    "row sum": Operation(row_sums, ROWS_LABEL, "GB/s", lambda rows, cols: rows * cols),
    # A difference, two products, a power and a sum for each element.
    "softmax": Operation(
        softmax_rows,
        ROWS_LABEL,
        "GB/s",
        lambda rows, cols: 5 * rows * cols,
        # Of numbers from -1 to 1, a power is off by at most 24 roundings: 18 are exp2's own, which
        # WGSL has as 3 + 2|x| units in the last place, and 6 its exponent's. A result has one of
        # them, and another in its sum. That has up to five more, each with a product, where it
        # follows the largest number in four steps. The rest: the sum's own, a division, a product.
        terms=lambda rows, cols: cols + 7 * 25 + 6,
        relative=True,
    ),
    "layer norm": Operation(
        layer_norm_rows,
        ROWS_LABEL,
        "GB/s",
        # A sum for the mean; a difference, a product and a sum for the variance; and a difference,
        # two products and a sum for the result.
        lambda rows, cols: 8 * rows * cols,
        # Of numbers from -1 to 1, whose mean magnitude is below their deviation. The mean goes
        # through as many roundings as there are columns, and 2. The variance has as many of its
        # own, and twice those of the mean; a root halves them. The rest: roots, a division, and
        # what a result itself takes.
        terms=lambda rows, cols: cols + 2 + 3 * (cols + 2) // 2 + 24,
        magnitudes=layer_norm_magnitudes,
    ),
    "depthwise, channels first": Operation(
        depthwise_image,
        IMAGE_LABEL,
        "GB/s",
        lambda c, n, k, p, s: 2 * k * k * c * conv_out_size(n, k, p, s) ** 2,
    ),
    "pooling, channels first": Operation(pooled_image, IMAGE_LABEL, "GB/s", lambda **shape: 0),
    "batch norm, channels first": Operation(
        lambda c, n: batch_norm(c, n),
        IMAGE_LABEL,
        "GB/s",
        lambda c, n: 4 * c * n * n,
        terms=lambda **_: NORMED,
        magnitudes=lambda c, n: batch_norm_magnitudes(batch_norm(c, n)),
        positive=VARIANCES,
    ),
    "batch norm": Operation(
        normed_pixels,
        "{pixels:,} pixels of {c} channels",
        "GB/s",
        lambda pixels, c: 2 * pixels * c,
        terms=lambda **_: NORMED,
        magnitudes=lambda pixels, c: batch_norm_magnitudes(normed_pixels(pixels, c)),
        positive=VARIANCES,
    ),
}
