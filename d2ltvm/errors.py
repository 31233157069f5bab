"""Errors: what no built-in exception names, and checks of a value, each an error in one line."""

from numbers import Integral, Rational, Real
from typing import Any

# Elements of a tensor whose shape is of Python's integers: TVM counts them in 32 bits, and wraps
# around. `hopper.planning.extents` makes shapes that it counts in 64.
INT32_MAX = 2**31 - 1


def shown(value: Any, most: int = 60) -> str:
    """A value on one line, and cut off where it is long, for a message.

    >>> shown([1, 2])
    '[1, 2]'

    Args:
        value: anything.
        most: how many characters at most.
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def is_integer(value: Any) -> bool:
    """Whether a value is an integer, of Python or of NumPy; True and False are none.

    >>> is_integer(2), is_integer(2.0), is_integer(True)
    (True, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool)


def whole(name: str, value: Any, least: int = 1) -> int:
    """`value` as a Python int, whatever integer it is: NumPy's narrow ones would wrap around.

    >>> whole("n", 0)
    Traceback (most recent call last):
        ...
    ValueError: n is 0; expected a positive integer

    Raises:
        ValueError: it is no integer, or is under `least`; says so by `name`.
    """
    if not is_integer(value) or value < least:
        expected = "a positive integer" if least == 1 else f"an integer from {least}"
        raise ValueError(f"{name} is {shown(value)}; expected {expected}")
    return int(value)


def in_32_bits(name: str, value: Any, least: int = 1) -> int:
    """`whole`, of what TVM counts with.

    >>> in_32_bits("n", 2**31)
    Traceback (most recent call last):
        ...
    ValueError: n is 2147483648; expected an integer under 2**31
    """
    number = whole(name, value, least)
    if number > INT32_MAX:
        raise ValueError(f"{name} is {shown(value)}; expected an integer under 2**31")
    return number


def is_number(value: Any) -> bool:
    """Whether a value is an integer or a float, of Python or of NumPy; True and False are none.

    >>> is_number(2), is_number(0.5), is_number(True), is_number("2")
    (True, True, False, False)
    """
    # NumPy's floats are among `Real`, and so need no import here; fractions are, too.
    return is_integer(value) or (isinstance(value, Real) and not isinstance(value, Rational))


def as_number(name: str, value: Any) -> float:
    """`value` as a Python float, or a ValueError where it is no number.

    >>> as_number("limit", 2)
    2.0
    """
    if not is_number(value):
        raise ValueError(f"{name} is {shown(value)}; expected a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is {shown(value)}; expected one that a float holds") from None


def above_zero(name: str, value: Any) -> float:
    """`value` as a Python float, or a ValueError that names it where it is not above zero.

    >>> above_zero("limit", 0)
    Traceback (most recent call last):
        ...
    ValueError: limit is 0; expected a number above zero
    """
    number = as_number(name, value)
    if not 0 < number < float("inf"):
        raise ValueError(f"{name} is {shown(value)}; expected a number above zero")
    return number


class MissingError(RuntimeError):
    """Something this machine lacks: a GPU, a driver, a package.

    >>> str(MissingError("no OpenCL device", "CUDA source", "pip install pyopencl"))
    'no OpenCL device; what still works: CUDA source; to get it: pip install pyopencl'

    Args:
        missing: what is not there.
        still: what works without it.
        command: the command that installs it, or the step that does.
    """

    def __init__(self, missing: str, still: str, command: str):
        super().__init__(f"{missing}; what still works: {still}; to get it: {command}")
        self.missing, self.still, self.command = missing, still, command

    def __reduce__(self) -> tuple[Any, ...]:  # it comes out of other processes, too
        return type(self), (self.missing, self.still, self.command)
