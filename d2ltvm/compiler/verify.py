"""Is it right? Kernels are held against NumPy in float64."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from d2ltvm.errors import is_integer, shown

Array = npt.NDArray[Any]

FLOATS = ("float16", "float32", "float64")


class WrongResultError(AssertionError):
    """A kernel's result is further from the reference than its arithmetic explains."""


def check(
    kernel: Any,
    inputs: Sequence[Array],
    reference: Callable[..., Any],
    terms: int = 1,
    sums: str | None = None,
) -> float:
    """Run a kernel and compare what it computes with a float64 reference.

    >>> kernel = d2ltvm.build(d2ltvm.schedules.cpu_vector_add(1000), "llvm")
    >>> a, b, _ = d2ltvm.get_abc(1000)
    >>> d2ltvm.check(kernel, (a, b), np.add) < 1e-7
    True

    Outputs are poisoned before the run: with NaN, or, for integers, with a value that is wrong at
    every element. So an element that the kernel leaves out is an error. How far an element may be
    off is said at `compare`; the magnitude that goes into it is the reference of the inputs'
    absolute values. With one rounding each element has to be the exact value, rounded.

    Args:
        kernel: a `Kernel`.
        inputs: NumPy arrays, one for each parameter that the kernel does not write.
        reference: function of the inputs in float64 (int64 for integers) that returns the output,
            or a tuple of outputs.
        terms: how many roundings an output element goes through. A sum of two is 1, a dot product
            of length n is about 2 n.
        sums: the dtype in which the kernel adds up, such as 'float32' for outputs in float16; None
            is the output's own.

    Returns:
        The largest error, divided by the largest magnitude in the reference: a float, 0 where
        every element is exact.

    Raises:
        WrongResultError: an element is further off than its roundings explain.
        ValueError: the inputs or what the reference gives do not fit the kernel's parameters, or
            `terms` is so large that zeros would pass.
        TypeError: `reference` does not take the inputs, or `kernel` is no kernel.
    """
    if not hasattr(kernel, "params"):
        raise TypeError(f"kernel is {shown(kernel)}; expected what d2ltvm.build returns")
    check_inputs([p for p in kernel.params if not p.output], inputs)
    outputs = [p for p in kernel.params if p.output]
    expected, magnitudes = references(reference, inputs)
    if len(expected) != len(outputs):
        raise ValueError(
            f"reference gives {len(expected)} outputs; the kernel writes "
            f"{', '.join(p.name for p in outputs)}"
        )
    poisoned = [poison(p, e) for p, e in zip(outputs, expected, strict=True)]
    given, written = iter(inputs), iter(poisoned)
    kernel(*[next(written) if p.output else next(given) for p in kernel.params])
    return max(
        compare(p.name, got, want, magnitude, terms, sums)
        for p, got, want, magnitude in zip(outputs, poisoned, expected, magnitudes, strict=True)
    )


def references(
    reference: Callable[..., Any], inputs: Sequence[Array]
) -> tuple[list[Array], list[Array]]:
    """What is right, and the magnitudes that go into it, as `compare` takes them.

    >>> wants, magnitudes = references(np.add, (np.float32([1]), np.float32([-3])))
    >>> wants, magnitudes
    ([array([-2.])], [array([4.])])

    Args:
        reference, inputs: as `check` takes them.

    Returns:
        The outputs for the inputs in float64 (int64 for integers), and for their absolute values.

    Raises:
        TypeError: `reference` does not take so many arrays.
    """
    _check_arity(reference, len(inputs))
    with np.errstate(all="ignore"):  # of inf and nan, and of absolute values where no root is
        expected = _reference(reference, inputs)
        return expected, _reference(reference, [np.abs(_wide(x)) for x in inputs])


def compare(
    name: str,
    got: Array,
    want: Array,
    magnitude: Any = 0.0,
    terms: int = 1,
    sums: str | None = None,
) -> float:
    """Hold each element of a result against what its own roundings explain.

    >>> x = np.float32([1, 3, 1e8])
    >>> compare("Y", x / 7, x.astype("float64") / 7) < 2**-24
    True

    An element that `terms` roundings went into is off by at most `terms` u m. Here u is half of
    the dtype's `eps`, and m the sum of the magnitudes that were added up (Higham, Accuracy and
    Stability of Numerical Algorithms, section 3.1; Jeannerod and Rump, 2013, show it without terms
    in u squared). One rounding is that of the element itself, and m is its own magnitude: what
    cancelled before is no excuse. Where sums are wider than the output, their u counts, and one
    rounding of the result to its dtype is added. Each rounding may also lose half of the smallest
    number there is.

    Where the reference is nan or inf, or rounds to inf in the output's dtype, the element must be
    that very nan or inf. Integers must agree exactly, modulo their width.

    Args:
        name: what messages call the result.
        got: the result, a NumPy array.
        want: the reference in float64 (or integers), of the same shape.
        magnitude: the sum of magnitudes that went into each element, an array of that shape; where
            the reference's own magnitude is larger, or this is no number, or there is only one
            rounding, that counts.
        terms: how many roundings went into an element, a positive integer.
        sums: the dtype of the sums; None is the dtype of `got`.

    Returns:
        The largest error of a finite element, divided by the largest finite magnitude of `want`.

    Raises:
        WrongResultError: an element is further off, and says which is the worst.
        ValueError: a shape or `terms` is wrong, or over half of the elements could be zero and
            pass: such a comparison says nothing.
    """
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        raise ValueError(f"{name} has shape {got.shape}; expected {want.shape}, as the reference")
    if not is_integer(terms) or terms < 1:
        raise ValueError(f"terms is {shown(terms)}; expected a positive integer")
    if sums is not None and not (isinstance(sums, str) and sums in FLOATS):
        raise ValueError(f"sums is {shown(sums)}; expected one of {', '.join(FLOATS)}")
    if got.dtype.kind == "f":
        with np.errstate(all="ignore"):
            rounding = np.finfo(sums or got.dtype)
            bound = _bound(want, magnitude, min(int(terms), 2**62), rounding, got.dtype)
            _check_bound(name, want, bound, terms, sums or got.dtype)
            error = _error(got, want, bound)
    else:
        bound, error = np.zeros(want.shape), (got != want.astype(got.dtype)).astype("float64")
    _check_error(name, got, want, error, bound)
    finite = np.abs(want[np.isfinite(want)])
    return float(np.max(error, initial=0)) / (float(np.max(finite, initial=0)) or 1.0)


def _bound(want: Array, magnitude: Any, terms: int, sums: Any, dtype: Any) -> Array:
    """How far each element may be off."""
    own, out = np.abs(want), np.finfo(dtype)
    most = own
    if terms > 1:
        most = np.where(np.isfinite(magnitude), np.maximum(magnitude, own), own)
    bound = terms * (float(sums.eps) / 2 * most + float(sums.smallest_subnormal) / 2)
    if sums.eps < out.eps:
        bound = bound + float(out.eps) / 2 * own + float(out.smallest_subnormal) / 2
    return np.asarray(bound)


def _check_bound(name: str, want: Array, bound: Array, terms: int, sums: Any) -> None:
    """Zeros in place of a result have to be noticed."""
    some = np.isfinite(want) & (want != 0)
    pass_as_zero = int(np.sum(bound[some] >= np.abs(want[some])))
    if 2 * pass_as_zero > int(np.sum(some)):
        raise ValueError(
            f"terms is {terms}; after so many roundings of {np.dtype(sums).name} zeros would pass "
            f"for {pass_as_zero} of {want.size} elements of {name}; expected fewer, or sums in a "
            "wider dtype"
        )


def _error(got: Array, want: Array, bound: Array) -> Array:
    """How far each element is off: inf where it should be another nan or inf than it is."""
    got, top = got.astype("float64"), np.finfo(got.dtype)
    error = np.abs(got - want)
    # From here on numbers round to inf: half a unit behind the largest.
    over = float(top.max) * (1 + float(top.eps) / 4)
    near = np.isinf(got) & np.isfinite(want) & (np.sign(got) * want >= over - bound)
    same = (np.isnan(got) & np.isnan(want)) | (got == want) | near
    beyond = (np.abs(want) - bound >= over) & np.isfinite(got)
    error = np.where(same, 0.0, np.where(beyond | np.isnan(error), np.inf, error))
    return np.asarray(error)


def _check_error(name: str, got: Array, want: Array, error: Array, bound: Array) -> None:
    # What is off by inf is so by any bound, and that of an infinite reference is none.
    wrong = ~(error <= np.where(np.isfinite(bound), bound, 0.0))
    if wrong.any():
        far = np.where(wrong, error - np.where(np.isfinite(bound), bound, 0.0), -1.0)
        at = np.unravel_index(int(np.argmax(far)), error.shape)
        raise WrongResultError(
            f"{name}[{', '.join(str(i) for i in at)}] is {got[at]} and should be {want[at]}; "
            f"{np.sum(wrong)} of {error.size} elements are off by more than their roundings "
            f"explain, {bound[at]:.1e} there"
        )


def check_inputs(params: Sequence[Any], inputs: Sequence[Array]) -> None:
    """Refuse inputs that do not fit what a kernel reads: their number, a shape or a dtype."""
    names = ", ".join(p.name for p in params)
    if not isinstance(inputs, tuple | list) or len(inputs) != len(params):
        one = "one array" if isinstance(inputs, np.ndarray) else shown(inputs)
        got = len(inputs) if isinstance(inputs, tuple | list) else one
        raise ValueError(f"inputs is {got}; expected a tuple of {len(params)}, for {names}")
    for p, x in zip(params, inputs, strict=True):
        if not isinstance(x, np.ndarray):
            raise TypeError(f"the input {p.name} is a {type(x).__name__}; expected a NumPy array")
        if (x.shape, x.dtype.name) != (p.shape, p.dtype):
            raise ValueError(
                f"the input {p.name} is {x.dtype.name} of shape {x.shape}; "
                f"expected {p.dtype} of shape {p.shape}"
            )


def _check_arity(reference: Callable[..., Any], count: int) -> None:
    """A TypeError in one line, where `reference` does not take so many arguments."""
    if isinstance(reference, np.ufunc):  # its signature also has a place for the output
        if reference.nin != count:
            raise TypeError(f"reference takes {reference.nin} arrays; expected {count}")
        return
    try:
        inspect.signature(reference).bind(*range(count))
    except ValueError:  # one in C that has no signature
        return
    except TypeError as error:
        raise TypeError(f"reference: {error}; expected a function of {count} arrays") from None


def _reference(reference: Callable[..., Any], inputs: Sequence[Array]) -> list[Array]:
    result = reference(*[_wide(x) for x in inputs])
    return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]


def _wide(x: Array) -> Array:
    if x.dtype.kind not in "biuf":
        raise ValueError(f"an input is {x.dtype}; expected a dtype of NumPy's, such as float32")
    return x.astype("float64" if x.dtype.kind == "f" else "int64")


def poison(param: Any, expected: Array) -> Array:
    """An array for what a kernel writes, in which no element is right yet.

    >>> from d2ltvm.compiler.launches import Param
    >>> poison(Param("Y", (2,), "float32", True), np.zeros(2))
    array([nan, nan], dtype=float32)

    Args:
        param: what the kernel says of it.
        expected: what is right, of the same shape.

    Raises:
        ValueError: the shapes differ, or NumPy has no such dtype.
    """
    if expected.shape != param.shape:
        raise ValueError(
            f"reference gives shape {expected.shape} for {param.name}; expected {param.shape}"
        )
    try:
        dtype = np.dtype(param.dtype)
    except TypeError:
        raise ValueError(
            f"{param.name} is {param.dtype}; expected a dtype of NumPy's, such as float32"
        ) from None
    if dtype.kind == "f":
        return np.full(param.shape, np.nan, dtype)
    with np.errstate(all="ignore"):
        return np.asarray(~expected.astype(dtype))
