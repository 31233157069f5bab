"""What schedules are given, held to what it may be before TVM sees it."""

import functools
import inspect
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from d2ltvm.errors import INT32_MAX, in_32_bits, shown, whole

P = ParamSpec("P")
R = TypeVar("R")

# How many pieces a loop is split into at each level, from the outermost on.
Factors: TypeAlias = Sequence[int]
Tags: TypeAlias = Sequence[str]

FROM_ZERO = ("p", "ph", "pw", "align", "pad")  # what may be nothing
TAGS = [f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx", "vthread") for axis in "xyz"]
SCOPES = ("global", "shared", "shared.dyn", "local")
DTYPES = ("float16", "float32")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """A schedule's function that refuses what is no size, no tile and no flag, each in one line.

    What an argument may be follows from its type: an `int` is a positive integer (those of
    `FROM_ZERO` may be 0), `Factors` are several, as many as the default has. What TVM refuses all
    the same is a ValueError in one line, with TVM's own error behind it.

    >>> d2ltvm.schedules.one_thread_each(1024, nt=0)
    Traceback (most recent call last):
        ...
    ValueError: nt is 0; expected a positive integer
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checking(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            bound.arguments[name] = _argument(signature.parameters[name], value)
        _as_many(bound.arguments)
        try:
            return function(*bound.args, **bound.kwargs)
        except Exception as error:
            if (reason := _reason(error)) is None:
                raise
            given = ", ".join(f"{k} = {shown(v, 24)}" for k, v in bound.arguments.items())
            raise ValueError(
                f"{function.__name__} of {given}: TVM refuses it, {shown(reason, 160)}; expected "
                "other sizes or tiles"
            ) from error

    return checking


def _argument(parameter: inspect.Parameter, value: Any) -> Any:
    """An argument as the function gets it, or an error that names it."""
    name, kind = parameter.name, parameter.annotation
    if kind is int:
        return in_32_bits(name, value, 0 if name in FROM_ZERO else 1)
    if kind is bool and not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} is {shown(value)}; expected True or False")
    if kind is str:
        known = DTYPES if name == "dtype" else SCOPES
        if not (isinstance(value, str) and value in known):
            raise ValueError(f"{name} is {shown(value)}; expected one of {', '.join(known)}")
    if kind == Factors:
        return _factors(parameter, value)
    if kind == Tags:
        return _tags(name, value)
    if kind in (Schedule, LoopRV) and not isinstance(value, kind):
        raise TypeError(f"{name} is a {type(value).__name__}; expected a {kind.__name__} of TVM's")
    return value


def _factors(parameter: inspect.Parameter, value: Any) -> tuple[int, ...]:
    """Several positive integers."""
    name, default = parameter.name, parameter.default
    count = len(default) if isinstance(default, tuple) else None
    wanted = f"{count or 'some'} positive integers"
    if not isinstance(value, list | tuple) or (count and len(value) != count):
        raise ValueError(f"{name} is {shown(value)}; expected {wanted}")
    factors = tuple(whole(f"one of {name} = {shown(value)}", size) for size in value)
    if math.prod(factors) > INT32_MAX:
        raise ValueError(f"{name} is {shown(value)}; expected a product under 2**31")
    return factors


def _tags(name: str, value: Any) -> list[str]:
    """What loops are bound to."""
    if not isinstance(value, list | tuple) or not all(tag in TAGS for tag in value):
        raise ValueError(f"{name} is {shown(value)}; expected some of {', '.join(TAGS)}")
    return list(value)


def _as_many(arguments: dict[str, Any]) -> None:
    """A ValueError unless there is a tag for each axis."""
    axes, tags = arguments.get("axes", ()), arguments.get("tags", ())
    if len(axes) != len(tags):
        raise ValueError(f"tags is {shown(tags)}; expected {len(axes)}, one for each axis")


def _reason(error: Exception) -> str | None:
    """What TVM says is wrong, in its own words; None where the error is not one of TVM's."""
    text = str(error)
    if found := re.search(r"Error message: (.*)", text):
        return found[1]
    if found := re.match(r"Check failed: \(.*?\) is false: (.*)", text):
        return found[1]
    tvms = type(error).__module__.startswith("tvm") or type(error).__name__ == "InternalError"
    return text.splitlines()[0] if text and (tvms or "wrong type. Expected" in text) else None
