"""What is searched for: a computation of some size, its inputs, and its reference."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from d2ltvm.compute import ops
from d2ltvm.errors import shown, whole
from d2ltvm.search.computations import COMPUTATIONS, Array, Computation, prim_func


@dataclass(frozen=True)
class Workload:
    """A computation with everything that a search needs to know of it.

    Attributes:
        name: of `COMPUTATIONS`, such as 'matmul'.
        size: rows and columns of the matrices, channels, images or columns: `computation.size`.
    """

    name: str
    size: int

    @property
    def computation(self) -> Computation:
        """What it shares with the other sizes."""
        return COMPUTATIONS[self.name]

    @property
    def title(self) -> str:
        """What files call it: 'matmul-512'."""
        return f"{self.name}-{self.size}"

    @property
    def flop(self) -> int:
        """Operations, a multiplication and an addition each; 0 where bytes are what counts."""
        return self.computation.flop(self.size)

    @property
    def terms(self) -> int:
        """Roundings that an element goes through at most, for `d2ltvm.check`."""
        return self.computation.terms(self.size)

    @property
    def sums(self) -> str | None:
        """The dtype of the sums, for `d2ltvm.check`; None is that of the result."""
        return self.computation.sums

    @property
    def func(self) -> Any:
        """The computation as a PrimFunc, with nothing scheduled."""
        return prim_func(self._tensors())

    def _tensors(self) -> list[Any]:
        return self.computation.tensors(self.size)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs."""
        *inputs, _ = self._tensors()
        return tuple(tensor.op.name for tensor in inputs)

    @property
    def dtype(self) -> str:
        """The dtype of the result."""
        return str(self._tensors()[-1].dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of all inputs and of the result."""
        return sum(
            int(np.prod([int(n) for n in t.shape])) * np.dtype(str(t.dtype)).itemsize
            for t in self._tensors()
        )

    def inputs(self) -> tuple[Array, ...]:
        """Random inputs, the same at each call."""
        return tuple(self.computation.inputs(self.size))

    def reference(self, *inputs: Array) -> Array:
        """The result by NumPy, in the precision of its inputs."""
        return self.computation.reference(*inputs)

    def rate(self, seconds: float) -> str:
        """What a time means: GFLOPS, or where there are hardly any operations, GB/s.

        >>> d2ltvm.search.workload("matmul", 512).rate(0.001)
        '     268.4 GFLOPS'
        """
        if self.flop:
            return f"{self.flop / seconds / 1e9:10.1f} GFLOPS"
        return f"{self.nbytes / seconds / 1e9:10.1f} GB/s"

    def by_hand(self, kind: str) -> dict[str, Callable[[], Any]]:
        """The book's schedules of it, by name: functions, since some take a second to make.

        Args:
            kind: 'cuda' or 'llvm'.
        """
        sizes = self.computation.sizes(self.size)
        found = self.computation.by_hand.get(kind, {})
        return {name: functools.partial(func, *sizes) for name, func in found.items()}


def workload(name: str, size: int | None = None) -> Workload:
    """A `Workload` by its name.

    >>> workload("matmul", 512).title
    'matmul-512'
    >>> workload("softmax").title
    'softmax-4096'

    Args:
        name: 'matmul', the product of two square matrices, or 'conv', the convolution by channels
            of an image of 64 by 64 with windows of 3 by 3, both in float32; 'hwcn' or
            'tensorcores', the layer of the chapters on batches in float32 or in float16 on
            TensorCores; 'depthwise', a layer of MobileNetV2, or 'softmax' of 4,096 rows, both in
            float16.
        size: rows and columns, channels in and out, images or columns; None is the usual one.

    Raises:
        ValueError: `name` is another, or `size` is no positive integer, no multiple of what the
            layout asks for, or so large that an array has 2**31 elements.
    """
    if not isinstance(name, str) or name not in COMPUTATIONS:
        names = ", ".join(map(repr, COMPUTATIONS))
        raise ValueError(f"name is {shown(name)}; expected one of {names}")
    computation = COMPUTATIONS[name]
    size = whole("size", computation.usual if size is None else size)
    if size % computation.multiple:
        raise ValueError(f"size is {size}; expected a multiple of {computation.multiple}")
    for tensor in computation.tensors(size):
        ops.countable(tensor.op.name, tuple(int(n) for n in tensor.shape))
    return Workload(name, size)
