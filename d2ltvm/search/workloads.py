"""What is searched for: a computation, its inputs, its reference, and the book's own schedules."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te

from d2ltvm import schedules
from d2ltvm.compute import convolution, data, ops
from d2ltvm.errors import shown

Array = np.ndarray[Any, np.dtype[Any]]
SIDE, KERNEL, PAD = 64, 3, 1  # images of 64 by 64 and windows of 3 by 3, as in the chapters


@dataclass(frozen=True)
class Workload:
    """A computation with everything that a search needs to know of it.

    Attributes:
        name: 'matmul' or 'conv'.
        size: rows and columns of the matrices, or channels in and out.
        flop: operations, a multiplication and an addition each.
        terms: roundings that an element goes through at most, for `d2ltvm.check`.
    """

    name: str
    size: int
    flop: int
    terms: int

    @property
    def title(self) -> str:
        """What files call it: 'matmul-512'."""
        return f"{self.name}-{self.size}"

    @property
    def func(self) -> Any:
        """The computation as a PrimFunc, with nothing scheduled."""
        return te.create_prim_func(self._tensors()).with_attr("global_symbol", "main")

    def _tensors(self) -> list[Any]:
        n = self.size
        if self.name == "matmul":
            return list(ops.matmul(n, n, n))
        X, K, Y, _ = convolution.conv(n, n, SIDE, SIDE, KERNEL, KERNEL, PAD, PAD)
        return [X, K, Y]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs."""
        *inputs, _ = self._tensors()
        return tuple(tensor.op.name for tensor in inputs)

    def inputs(self) -> tuple[Array, Array]:
        """Random inputs in float32, the same at each call."""
        n = self.size
        if self.name == "matmul":
            a, b, _ = data.get_matmul_data(n, n, n)
        else:
            a, b, _ = data.get_conv_data(n, n, SIDE, KERNEL, PAD, 1)
        return a, b

    def reference(self, a: Array, b: Array) -> Array:
        """The result by NumPy, in the precision of its inputs."""
        return np.asarray(a @ b) if self.name == "matmul" else convolution.conv_reference(a, b, PAD)

    def by_hand(self, kind: str) -> dict[str, Callable[[], Any]]:
        """The book's schedules of it, by name: functions, since some take a second to make.

        Args:
            kind: 'cuda' or 'llvm'.
        """
        return {
            name: functools.partial(func, *self._sizes())
            for name, func in BY_HAND[self.name, kind].items()
        }

    def _sizes(self) -> tuple[int, ...]:
        n = self.size
        return (n, n, n) if self.name == "matmul" else (n, n, SIDE, KERNEL, PAD, 1)


Schedules = dict[str, Callable[..., Any]]

BY_HAND: dict[tuple[str, str], Schedules] = {
    ("matmul", "cuda"): {
        "naive": schedules.matmul_naive,
        "coalesced": schedules.matmul_coalesced,
        "shared tiles": schedules.matmul_shared,
        "register tiles": schedules.matmul_registers,
        "virtual threads": schedules.matmul_vthread,
        "warp tiles": schedules.matmul_warps,
    },
    ("matmul", "llvm"): {"packed tiles": schedules.cpu_matmul},
    ("conv", "cuda"): {
        "a row a block": schedules.default_sch,
        "spread": schedules.spread_sch,
        "registers": schedules.register_sch,
        "tiling": schedules.tiling,
        "virtual threads": schedules.vthread,
        "split sum": schedules.conv_split,
    },
    ("conv", "llvm"): {"direct": schedules.cpu_direct, "packed": schedules.cpu_conv},
}


def workload(name: str, size: int) -> Workload:
    """A `Workload` by its name.

    >>> workload("matmul", 512).title
    'matmul-512'

    Args:
        name: 'matmul', the product of two square matrices, or 'conv', the convolution by channels
            of an image of 64 by 64 with windows of 3 by 3, all in float32.
        size: rows and columns, or channels in and out.

    Raises:
        ValueError: `name` is another, or `size` is no positive integer, or so large that an array
            has 2**31 elements.
    """
    size = ops.whole("size", size)
    if isinstance(name, str) and name == "matmul":
        ops.countable("A", (size, size))
        return Workload(name, size, 2 * size**3, 2 * size)
    if isinstance(name, str) and name == "conv":
        ops.countable("K", (size, size, KERNEL, KERNEL))
        flop = round(convolution.conv_gflop(size, size, SIDE, KERNEL, PAD, 1) * 1e9)
        return Workload(name, size, flop, 2 * size * KERNEL**2)
    raise ValueError(f"name is {shown(name)}; expected 'matmul' or 'conv'")
