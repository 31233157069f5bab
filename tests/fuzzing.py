"""What the fuzz of `test_fuzz` takes: odd values, a verdict on each call, and a count of verdicts.

A call is right where an oracle accepts what it returns, or where it was to be refused and was, in
one clear line. Anything else is a `Fault`: a wrong result, an error that does not help, a hang, or
memory without bounds.
"""

import contextlib
import decimal
import faulthandler
import fractions
import math
import os
import re
import resource
import signal
from collections import Counter
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, configuration, given, settings
from hypothesis import strategies as st
from tvm import te

from d2ltvm import MissingError

# Tables of Unicode, which take a process 3 s to make; of inputs it keeps none (`database=None`).
configuration.set_hypothesis_home_dir(Path(__file__).parent.parent / ".pytest_cache" / "hypothesis")

TOTAL = 1200  # inputs of a plain run; up to here they are the same every time
INPUTS = int(os.environ.get("D2LTVM_FUZZ_INPUTS", TOTAL))
SURVEY = os.environ.get("D2LTVM_FUZZ_SURVEY")  # count faults, and go on
SECONDS, MEMORY = 60, 4 << 30  # of one call; seconds also where much else runs

REFUSED = object()  # what an oracle expects where a call is to be refused


class Maybe:
    """A clear error, or a result that is accepted: which of the two is not this test's to say."""

    def __init__(self, accepts=lambda result: True):
        self.accepts = accepts

    def __call__(self, result):
        return self.accepts(result)


EITHER = Maybe()

ODD = st.one_of(
    st.sampled_from([0, -1, 1, 2, 3, 7, 2**31 - 1, 2**31, 2**32, 2**63, 2**64, -(2**63), 10**30]),
    st.sampled_from([0.0, 1.0, 0.5, -1.5, math.nan, math.inf, -math.inf, 1e308]),
    st.sampled_from([True, False, None, "", "8", "n", "two\nlines", b"8", 1 + 1j, ...]),
    st.sampled_from([fractions.Fraction(3), decimal.Decimal(2), range(3), len, object]),
    st.builds(lambda make: make(), st.sampled_from([list, dict, tuple, set, object])),
    st.sampled_from([[1], [2, 3], (2, 3), (1, 1, 1, 1), [0], {"a": 1}, [None], ["a"], [[1, 2]]]),
    st.sampled_from(
        [np.int8(3), np.uint8(255), np.int32(-5), np.int64(5), np.bool_(True), np.float32(2)]
    ),
    st.builds(
        lambda make: make(),
        st.sampled_from(
            [
                lambda: np.array(3),
                lambda: np.array([]),
                lambda: np.array([1, 2]),
                lambda: np.zeros((20, 20)),
                lambda: np.full((2, 2), np.nan, "float32")[:, ::2],
                lambda: np.array(["a", None], dtype=object),
                lambda: te.placeholder((2,), name="T"),
                lambda: te.var("v"),
            ]
        ),
    ),
)


class Fault(AssertionError):
    """What a call did that it should not do: its `kind`, and in words."""

    def __init__(self, kind, call, what):
        super().__init__(f"{kind}: {call}: {what}")
        self.kind = kind


class Hang(BaseException):
    """A call that took too long; no function of the package catches it."""


class Tally(Counter):
    """How many calls had which outcome: right, clear, unclear, wrong, hang, memory."""

    def __init__(self):
        super().__init__()
        self.faults = []

    def judge(self, function, arguments, expected, raises=(ValueError, TypeError), words=()):
        """Call a function, and hold what happens against what is expected.

        Args:
            function: it is called with `arguments` by name; those of the key '*' by position.
            arguments: a dict.
            expected: REFUSED; or a function of the result, which returns whether it is right, or
                fails; in a `Maybe` where it may be refused too.
            raises: what may be raised, a tuple. A MissingError always may.
            words: what else than an argument a message may name.
        """
        call = f"{getattr(function, '__name__', function)}({_shown(arguments)})"
        named = dict(arguments)
        positional = named.pop("*", ())
        try:
            with bounded():
                result = function(*positional, **named)
        except Hang:
            return self._fault("hang", call, f"took over {SECONDS} s")
        except MemoryError as error:
            return self._fault("memory", call, f"{type(error).__name__}: {error}")
        except Exception as error:
            reason = unclear(error, {**named, **dict.fromkeys(words)}, raises, positional)
            if reason:
                return self._fault("unclear", call, f"{reason}: {type(error).__name__}: {error}")
            if expected is not REFUSED and not isinstance(expected, Maybe):
                return self._fault("wrong", call, f"refuses what it should take: {error}")
            self["clear"] += 1
            return None
        if expected is REFUSED:
            return self._fault("wrong", call, f"takes it, and returns {_shown(result)}")
        try:
            accepted = bool(expected(result))
        except Exception as error:
            return self._fault("wrong", call, f"returns {_shown(result)}: {error!r}")
        if not accepted:
            return self._fault("wrong", call, f"returns {_shown(result)}")
        self["right"] += 1
        return result

    def _fault(self, kind, call, what):
        self[kind] += 1
        fault = Fault(kind, call, what)
        self.faults.append(fault)
        if not SURVEY:
            raise fault


def unclear(error, arguments, raises=(ValueError, TypeError), positional=()):
    """Why an error does not help; '' where it does.

    It has to be of a kind that is documented; one line, and not a long one; it names an argument,
    or the value of one; and it says what was expected, or how to get what is missing.
    """
    text = str(error)
    if type(error).__module__.startswith("tvm") or not isinstance(error, (*raises, MissingError)):
        return f"a {type(error).__name__}, which is not documented"
    if not text.strip():
        return "an empty message"
    if len(text.splitlines()) > 1:
        return "several lines"
    if len(text) > 400:
        return f"{len(text)} characters"
    values = [_short(v) for v in (*arguments.values(), *positional)]
    named = any(re.search(rf"\b{re.escape(name)}\b", text) for name in arguments)
    if not named and not any(value and value in text for value in values):
        return "names neither an argument nor a value"
    advice = "expected" in text or re.search(r": (bind|move) |should be", text)
    if not advice and not isinstance(error, MissingError):
        return "does not say what was expected"
    return ""


@contextlib.contextmanager
def bounded():
    """A call that may take neither long nor much memory; one that never returns ends the test."""

    def stop(*_):
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    # In C no signal is handled. Half a minute more: on a busy machine a signal may come late.
    faulthandler.dump_traceback_later(4 * SECONDS + 30, exit=True)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, before)


def run(group, inputs):
    """Draw inputs for a group of functions and judge every call; a `Tally`."""
    tally = Tally()

    @settings(
        max_examples=inputs, derandomize=INPUTS <= TOTAL, database=None, deadline=None,
        suppress_health_check=list(HealthCheck), print_blob=False,
    )  # fmt: skip
    @given(st.data())
    def one(data):
        group(tally, data.draw)

    one()
    return tally


def sizes(least=1, most=40):
    """Integers, Python's mostly."""
    plain = st.integers(least, most)
    narrow = [t for t in (np.int8, np.uint8, np.int32, np.int64) if most <= np.iinfo(t).max]
    return st.one_of(
        plain, plain, plain, st.builds(lambda n, t: t(n), plain, st.sampled_from(narrow))
    )


def mostly(strategy, odd=ODD):
    """What a strategy draws, three times of four, and else something odd."""
    return st.sampled_from([strategy] * 3 + [odd]).flatmap(lambda some: some)


def spoiled(draw, valid, most=2, odd=ODD):
    """Arguments: those of `valid`, and often one or two of them something else."""
    arguments = {name: draw(strategy) for name, strategy in valid.items()}
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, most]))):
        arguments[draw(st.sampled_from(sorted(valid)))] = draw(odd)
    return arguments


def whole(value, least=1, most=2**31 - 1):
    """Whether a value is an integer in a range, as the package documents it."""
    kinds = int | np.integer
    return isinstance(value, kinds) and not isinstance(value, bool) and least <= int(value) <= most


def all_whole(arguments, **least):
    """Whether all arguments are; `least` has what is not 1, by name."""
    return all(whole(value, least.get(name, 1)) for name, value in arguments.items())


def _shown(value):
    if isinstance(value, dict):
        return ", ".join(f"{name}={_shown(v)}" for name, v in value.items())
    text = " ".join(repr(value).split())
    return text if len(text) < 200 else text[:197] + "..."


def _short(value):
    """What of a value a message has to show, at least."""
    return " ".join(repr(value).split())[:20] if isinstance(value, int | float | str) else ""
