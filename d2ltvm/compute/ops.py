"""Compute definitions: what is computed, with nothing said of how.

Each function returns tensor-expression placeholders and results, in the order in which the kernel
takes them. `d2ltvm.schedule(tensors)` turns them into a schedule.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from tvm import s_tir, te

from d2ltvm.errors import INT32_MAX, is_integer, shown, whole

Shape = tuple[int, ...]

DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")


def vector_copy(n: int, dtype: str = "float32") -> tuple[Any, Any]:
    """Copy a vector.

    >>> A, C = d2ltvm.vector_copy(1024)

    Args:
        n: length, a positive integer.
        dtype: element type of both, one of `DTYPES`.

    Returns:
        te tensors `A` and `C = A`, each of shape `(n,)`.

    Raises:
        ValueError: `n` is not a positive integer, or `dtype` is not one of `DTYPES`.
    """
    n = whole("n", n)
    A = placeholder((n,), dtype, "A")
    return A, te.compute((n,), lambda i: A[i], name="C")


def vector_add(n: int, dtype: str = "float32") -> tuple[Any, Any, Any]:
    """Add two vectors.

    >>> A, B, C = d2ltvm.vector_add(1024)
    >>> C.shape
    (1024,)

    Args:
        n: length, a positive integer.
        dtype: element type of all three, one of `DTYPES`.

    Returns:
        te tensors `A`, `B` and `C = A + B`, each of shape `(n,)`.

    Raises:
        ValueError: `n` is not a positive integer, or `dtype` is not one of `DTYPES`.
    """
    shape = (whole("n", n),)
    A, B = (placeholder(shape, dtype, name) for name in "AB")
    return A, B, te.compute(shape, lambda i: A[i] + B[i], name="C")


def broadcast_add(
    shape1: Iterable[int], shape2: Iterable[int], dtype: str = "float32"
) -> tuple[Any, Any, Any]:
    """Add two tensors whose shapes broadcast, by NumPy's rules.

    >>> A, B, C = d2ltvm.broadcast_add((3, 1), (3, 4))
    >>> C.shape
    (3, 4)

    Shapes are aligned at their last dimension; a dimension of 1, or one that is not there, repeats.

    Args:
        shape1: shape of `A`, a tuple of positive integers, of any length from 1.
        shape2: shape of `B`, likewise.
        dtype: element type of all three, one of `DTYPES`.

    Returns:
        te tensors `A`, `B` and `C = A + B`; `C` has the broadcast shape.

    Raises:
        ValueError: the shapes do not broadcast, have a size that is not a positive integer, or
            `dtype` is not one of `DTYPES`.
    """
    one, two = as_shape("shape1", shape1), as_shape("shape2", shape2)
    A, B = placeholder(one, dtype, "A"), placeholder(two, dtype, "B")

    def add(*index: Any) -> Any:
        return A(*_source_index(one, index)) + B(*_source_index(two, index))

    return A, B, te.compute(countable("C", broadcast_shape(one, two)), add, name="C")


def broadcast_shape(shape1: Iterable[int], shape2: Iterable[int]) -> Shape:
    """Shape of the sum of two tensors, by NumPy's broadcasting rules.

    >>> broadcast_shape((3, 1), (2, 1, 4))
    (2, 3, 4)

    Args:
        shape1: a tuple of positive integers.
        shape2: likewise.

    Returns:
        The broadcast shape, a tuple of int.

    Raises:
        ValueError: in some dimension the sizes differ and neither is 1.
    """
    one, two = as_shape("shape1", shape1), as_shape("shape2", shape2)
    rank = max(len(one), len(two))
    sizes = [(1,) * (rank - len(s)) + s for s in (one, two)]
    for dim, (a, b) in enumerate(zip(*sizes, strict=True)):
        if a != b and 1 not in (a, b):
            raise ValueError(
                f"shape1 {one} and shape2 {two} do not broadcast: dimension {dim} of the "
                f"result would be {a} and {b}; expected equal sizes, or one of them 1"
            )
    return tuple(max(pair) for pair in zip(*sizes, strict=True))


def matmul(n: int, m: int, l: int, dtype: str = "float32") -> tuple[Any, Any, Any]:
    """Multiply two matrices.

    >>> A, B, C = d2ltvm.matmul(64, 32, 128)
    >>> A.shape, B.shape, C.shape
    ((64, 128), (128, 32), (64, 32))

    Args:
        n: rows of `A` and of `C`, a positive integer.
        m: columns of `B` and of `C`.
        l: columns of `A` and rows of `B`, over which the products are added up.
        dtype: element type of all three, one of `DTYPES`.

    Returns:
        te tensors `A` of shape `(n, l)`, `B` of shape `(l, m)` and `C = A B` of shape `(n, m)`.

    Raises:
        ValueError: a size is not a positive integer, or `dtype` is not one of `DTYPES`.
    """
    n, m, l = (whole(name, size) for name, size in (("n", n), ("m", m), ("l", l)))
    A, B = placeholder((n, l), dtype, "A"), placeholder((l, m), dtype, "B")
    k = te.reduce_axis((0, l), name="k")
    C = te.compute(countable("C", (n, m)), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return A, B, C


def schedule(tensors: Iterable[Any]) -> Any:
    """Start a schedule for a computation.

    >>> sch = d2ltvm.schedule(d2ltvm.vector_add(1024))
    >>> len(sch.get_loops(sch.get_sblock("C")))
    1

    Args:
        tensors: the te tensors the kernel takes, inputs before outputs, as the functions of this
            module return them.

    Returns:
        `tvm.s_tir.Schedule` of a PrimFunc named `main`.

    Raises:
        TypeError: `tensors` is not a list or tuple of te tensors.
        ValueError: none of them is computed, one is there twice, or an input is missing.
    """
    # A single tensor can be iterated over without an end.
    if not isinstance(tensors, list | tuple):
        raise TypeError(f"tensors is a {type(tensors).__name__}; expected a tuple of te tensors")
    for k, tensor in enumerate(tensors):
        if not isinstance(tensor, te.Tensor):
            raise TypeError(f"tensors[{k}] is a {type(tensor).__name__}; expected a te tensor")
    _check_complete(list(tensors))
    return s_tir.Schedule(te.create_prim_func(list(tensors)))


def _check_complete(tensors: list[Any]) -> None:
    """A ValueError unless something is computed, of inputs that are there, each once."""
    given = [tensor.op.name for tensor in tensors]
    if len(set(tensors)) < len(tensors):
        raise ValueError(f"tensors is {shown(given)}; expected each tensor once")
    if all(isinstance(tensor.op, te.PlaceholderOp) for tensor in tensors):
        raise ValueError(f"tensors is {shown(given)}; expected one that is computed among them")
    missing, found = [], list(tensors)
    while found:
        inputs = [t for t in found.pop().op.input_tensors if t not in tensors]
        missing += [t.op.name for t in inputs if isinstance(t.op, te.PlaceholderOp)]
        found += inputs
    if missing:
        raise ValueError(
            f"tensors is {shown(given)}; expected {', '.join(dict.fromkeys(missing))} too, "
            "which the result is computed from"
        )


def _source_index(shape: Shape, index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Where element `index` of the result stands in a tensor of `shape` that broadcasts to it."""
    index = index[len(index) - len(shape) :]
    return tuple(0 if size == 1 else i for size, i in zip(shape, index, strict=True))


def as_shape(name: str, shape: Any) -> Shape:
    """`shape` as a tuple of Python ints, or a ValueError that names the argument."""
    # A te tensor can be iterated over, and has no end.
    sizes = tuple(shape) if several(shape) else (shape,)
    if not sizes or not all(is_integer(s) and s >= 1 for s in sizes):
        raise ValueError(f"{name} is {shown(shape)}; expected positive integers")
    return countable(name, tuple(int(s) for s in sizes))


def wholes(name: str, value: Any, count: int, least: int = 1) -> Shape:
    """So many integers as Python ints, or a ValueError that names the argument."""
    fine = several(value) and len(value) == count
    if not fine or not all(is_integer(v) and least <= v < 2**31 for v in value):
        raise ValueError(f"{name} is {shown(value)}; expected {count} integers from {least}")
    return tuple(int(v) for v in value)


def several(value: Any) -> bool:
    """Whether a value has elements, an end, and an order."""
    return isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and value.ndim > 0)


def countable(name: str, shape: Shape) -> Shape:
    """A shape as it is, or a ValueError where TVM cannot count its elements."""
    if (elements := math.prod(shape)) > INT32_MAX:
        raise ValueError(f"{name} of shape {shape} has {elements:,} elements; expected under 2**31")
    return shape


def placeholder(shape: Shape, dtype: str, name: str) -> Any:
    """A te tensor that is given, of a shape and a dtype that are held to what they may be."""
    return te.placeholder(countable(name, shape), check_dtype(dtype), name=name)


def check_dtype(dtype: str) -> str:
    """An element type as it is, or a ValueError where it is not one of `DTYPES`."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"dtype is {shown(dtype)}; expected one of {', '.join(DTYPES)}")
    return dtype
