"""What the kernels of the catalog compute: definitions by their sizes, and how work is counted."""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te

from d2ltvm.compute.conv_batch import conv_hwcn
from d2ltvm.compute.convolution import conv, conv_gflop
from d2ltvm.compute.ops import broadcast_add, matmul, vector_add, vector_copy

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
        terms: how many roundings an element takes, where that does not follow from the definition.
        recorded: the sizes behind a place on the x axis of the H200's records.
    """

    tensors: Callable[..., Sequence[Any]]
    label: str
    unit: str
    flop: Callable[..., float]
    moved: Callable[..., float] | None = None
    terms: int | None = None
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
        terms=3,  # a step halves the error so far: two in all, and one of the reference's factor
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
}
