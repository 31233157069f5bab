"""Errors of the package that no built-in exception names, and what checks ask of a value."""

from numbers import Integral
from typing import Any


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
