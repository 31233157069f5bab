"""Compute definitions: what is computed, with nothing said of how.

Each function returns tensor-expression placeholders and results, in the order in which the kernel
takes them. `d2ltvm.schedule(tensors)` turns them into a schedule.
"""

from numbers import Integral

from tvm import s_tir, te

DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")


def vector_copy(n, dtype="float32"):
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
    check_length(n)
    _check_dtype(dtype)
    A = te.placeholder((int(n),), dtype, name="A")
    return A, te.compute((int(n),), lambda i: A[i], name="C")


def vector_add(n, dtype="float32"):
    """Add two vectors.

    >>> A, B, C = d2ltvm.vector_add(1024)
    >>> C.shape
    [1024]

    Args:
        n: length, a positive integer.
        dtype: element type of all three, one of `DTYPES`.

    Returns:
        te tensors `A`, `B` and `C = A + B`, each of shape `(n,)`.

    Raises:
        ValueError: `n` is not a positive integer, or `dtype` is not one of `DTYPES`.
    """
    check_length(n)
    _check_dtype(dtype)
    shape = (int(n),)
    A = te.placeholder(shape, dtype, name="A")
    B = te.placeholder(shape, dtype, name="B")
    return A, B, te.compute(shape, lambda i: A[i] + B[i], name="C")


def broadcast_add(shape1, shape2, dtype="float32"):
    """Add two tensors whose shapes broadcast, by NumPy's rules.

    >>> A, B, C = d2ltvm.broadcast_add((3, 1), (3, 4))
    >>> C.shape
    [3, 4]

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
    shape1, shape2 = _shape("shape1", shape1), _shape("shape2", shape2)
    _check_dtype(dtype)
    A = te.placeholder(shape1, dtype, name="A")
    B = te.placeholder(shape2, dtype, name="B")

    def add(*index):
        return A(*_source_index(shape1, index)) + B(*_source_index(shape2, index))

    return A, B, te.compute(broadcast_shape(shape1, shape2), add, name="C")


def broadcast_shape(shape1, shape2):
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
    shape1, shape2 = _shape("shape1", shape1), _shape("shape2", shape2)
    rank = max(len(shape1), len(shape2))
    sizes = [(1,) * (rank - len(s)) + s for s in (shape1, shape2)]
    for dim, (a, b) in enumerate(zip(*sizes, strict=True)):
        if a != b and 1 not in (a, b):
            raise ValueError(
                f"shape1 {shape1} and shape2 {shape2} do not broadcast: dimension {dim} of the "
                f"result would be {a} and {b}; equal sizes, or one of them 1, are allowed"
            )
    return tuple(max(pair) for pair in zip(*sizes, strict=True))


def matmul(n, m, l, dtype="float32"):
    """Multiply two matrices.

    >>> A, B, C = d2ltvm.matmul(64, 32, 128)
    >>> A.shape, B.shape, C.shape
    ([64, 128], [128, 32], [64, 32])

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
    for name, size in (("n", n), ("m", m), ("l", l)):
        check_length(size, name)
    _check_dtype(dtype)
    A = te.placeholder((int(n), int(l)), dtype, name="A")
    B = te.placeholder((int(l), int(m)), dtype, name="B")
    k = te.reduce_axis((0, int(l)), name="k")
    C = te.compute((int(n), int(m)), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return A, B, C


def schedule(tensors):
    """Start a schedule for a computation.

    >>> sch = d2ltvm.schedule(d2ltvm.vector_add(1024))
    >>> sch.get_loops(sch.get_sblock("C"))
    [...]

    Args:
        tensors: the te tensors the kernel takes, inputs before outputs, as the functions of this
            module return them.

    Returns:
        `tvm.s_tir.Schedule` of a PrimFunc named `main`.
    """
    return s_tir.Schedule(te.create_prim_func(list(tensors)))


def _source_index(shape, index):
    """Where element `index` of the result stands in a tensor of `shape` that broadcasts to it."""
    index = index[len(index) - len(shape) :]
    return tuple(0 if size == 1 else i for size, i in zip(shape, index, strict=True))


def _shape(name, shape):
    """`shape` as a tuple of Python ints, or a ValueError that names the argument."""
    try:
        sizes = tuple(shape)
    except TypeError:
        sizes = (shape,)
    if not sizes or not all(isinstance(s, Integral) and s > 0 for s in sizes):
        raise ValueError(f"{name} is {shape!r}; positive integers are allowed")
    return tuple(int(s) for s in sizes)


def check_length(size, name="n"):
    """Raise a ValueError that names the argument, unless it is a positive integer."""
    if not isinstance(size, Integral) or size < 1:
        raise ValueError(f"{name} is {size!r}; a positive integer is allowed")


def _check_dtype(dtype):
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}; allowed: {', '.join(DTYPES)}")
