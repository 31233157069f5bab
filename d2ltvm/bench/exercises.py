"""What says whether an exercise is solved, or whether what a page claims holds."""

from collections.abc import Callable, Mapping

import numpy as np

from d2ltvm.analysis.emulator.order import SynchronizationError
from d2ltvm.compiler.verify import WrongResultError
from d2ltvm.errors import MissingError, shown

Condition = bool | np.bool_ | Callable[[], bool | np.bool_]


def verdict(conditions: Mapping[str, Condition]) -> None:
    """Print whether all of some conditions hold, or the first one that does not.

    >>> d2ltvm.verdict({"right at n = 5": True, "fewer than 100 sectors": lambda: 64 < 100})
    solved: all 2 hold
    >>> d2ltvm.verdict({"right at n = 5": True, "fewer than 100 sectors": 128 < 100})
    not yet: fewer than 100 sectors
    >>> d2ltvm.verdict({"it runs": lambda: int("seven")})
    invalid literal for int() with base 10: 'seven'
    not yet: it runs

    Args:
        conditions: what has to hold, in words, with whether it does; or with a function without
            arguments that says so, which is called only if all before it hold. What is wrong with
            a kernel, its result or this machine is printed, and the condition does not hold.

    Raises:
        ValueError: there are no conditions, or one is neither a truth value nor such a function.
    """
    if not isinstance(conditions, Mapping) or not conditions:
        raise ValueError(f"conditions is {shown(conditions)}; expected truth values by what holds")
    for words, condition in conditions.items():
        holds = _asked(condition) if callable(condition) else condition
        if not isinstance(words, str) or not isinstance(holds, bool | np.bool_):
            raise ValueError(f"{shown(words)} is {shown(holds)}; expected True or False, by words")
        if not holds:
            print(f"not yet: {words}")
            return
    print(f"solved: all {len(conditions)} hold" if len(conditions) > 1 else "solved: it holds")


def _asked(condition: Callable[[], bool | np.bool_]) -> bool | np.bool_:
    """Whether a condition holds; what the package says to a mistake, in one line, is a no."""
    try:
        return condition()
    except (
        ValueError,
        NotImplementedError,
        MissingError,
        WrongResultError,
        SynchronizationError,
    ) as error:
        print((str(error).splitlines() or [type(error).__name__])[0])
        return False
