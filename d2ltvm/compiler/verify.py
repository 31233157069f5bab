"""Is it right? Kernels are held against NumPy in float64."""

import numpy as np


class WrongResultError(AssertionError):
    """A kernel's result is further from the reference than its arithmetic explains."""


def check(kernel, inputs, reference, terms=1):
    """Run a kernel and compare what it computes with a float64 reference.

    >>> d2ltvm.check(kernel, (a, b), np.add)
    5.6e-08

    Outputs are poisoned before the run: with NaN, or, for integers, with a value that is wrong at
    every element. So an element that the kernel leaves out is an error.

    Args:
        kernel: a `Kernel`.
        inputs: NumPy arrays, one for each parameter that the kernel does not write.
        reference: function of the inputs in float64 (int64 for integers) that returns the output,
            or a tuple of outputs.
        terms: how many roundings an output element goes through. A sum of two is 1, a dot product
            of length n is about 2 n.

    Returns:
        The largest error, divided by the largest magnitude in the reference: a float, 0 where
        every element is exact.

    Raises:
        WrongResultError: the error is over `terms` roundings of the output's dtype, each relative
            to the sum of magnitudes that went into the element: the reference of the inputs'
            absolute values (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1),
            or its own magnitude where that is larger, as it can be where inputs are subtracted.
            Integers must agree exactly, modulo their width.
    """
    expected = _reference(reference, inputs)
    largest = _reference(reference, [np.abs(_wide(x)) for x in inputs])
    outputs = [p for p in kernel.params if p.output]
    if len(expected) != len(outputs):
        raise ValueError(
            f"reference gives {len(expected)} outputs; the kernel writes "
            f"{', '.join(p.name for p in outputs)}"
        )
    poisoned = [_poison(p, e) for p, e in zip(outputs, expected, strict=True)]
    given, written = iter(inputs), iter(poisoned)
    kernel(*[next(written) if p.output else next(given) for p in kernel.params])
    return max(
        _compare(p.name, got, want, np.maximum(bound, np.abs(want)), terms)
        for p, got, want, bound in zip(outputs, poisoned, expected, largest, strict=True)
    )


def _reference(reference, inputs):
    result = reference(*[_wide(x) for x in inputs])
    return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]


def _wide(x):
    return x.astype("float64" if x.dtype.kind == "f" else "int64")


def _poison(param, expected):
    """An array in which no element is right yet."""
    if expected.shape != param.shape:
        raise ValueError(
            f"reference gives shape {expected.shape} for {param.name}; {param.shape} is expected"
        )
    if np.dtype(param.dtype).kind == "f":
        return np.full(param.shape, np.nan, param.dtype)
    return ~expected.astype(param.dtype)


def _compare(name, got, want, bound, terms):
    if got.dtype.kind == "f":
        tolerance = terms * float(np.finfo(got.dtype).eps) / 2 * float(np.max(bound, initial=0))
        error = np.abs(got.astype("float64") - want)
    else:
        tolerance, error = 0, (got != want.astype(got.dtype)).astype("float64")
    if not np.all(error <= tolerance):  # not (error > tolerance).any(): NaN has to fail
        at = np.unravel_index(np.argmax(np.nan_to_num(error, nan=np.inf)), error.shape)
        wrong = int(np.sum(~(error <= tolerance)))
        raise WrongResultError(
            f"{name}[{', '.join(str(i) for i in at)}] is {got[at]} and should be {want[at]}; "
            f"{wrong} of {error.size} elements are off by more than {tolerance:.1e}"
        )
    scale = float(np.max(np.abs(want), initial=0))
    return float(np.max(error, initial=0)) / (scale or 1.0)
