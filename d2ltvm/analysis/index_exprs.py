"""Index expressions as sums, and their values for the threads of a launch.

An index is `constant + Σ coefficient · atom`, where an atom is a variable or an operation that does
not distribute over sums, such as a division. In this form what blocks and loops add to an address
comes apart from what threads add. That matters because a launch repeats itself: most blocks and
rounds of loops shift all addresses alike, and need to be looked at once.
"""

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Extents = Mapping[str, tuple[int, int]]  # first value and number of values, by name
MOST_COMBINATIONS = 2**20  # of blocks and rounds, looked at together, which bounds the memory
MOST_ROUNDS = 2**27  # combinations of variables that an index divides: beyond it takes minutes


@dataclass(frozen=True)
class Sum:
    """`const + Σ coefficient · atom`; `terms` is a frozenset of (atom, coefficient)."""

    terms: frozenset[tuple[Any, int]] = frozenset()
    const: int = 0

    @functools.cached_property
    def variables(self) -> frozenset[str]:
        """Names of the variables that it depends on."""
        return frozenset().union(*(_variables(atom) for atom, _ in self.terms))

    def __add__(self, other: "Sum") -> "Sum":
        terms = dict(self.terms)
        for atom, coefficient in other.terms:
            terms[atom] = terms.get(atom, 0) + coefficient
        return Sum(frozenset((a, c) for a, c in terms.items() if c), self.const + other.const)

    def times(self, factor: int) -> "Sum":
        """The sum times an int."""
        if factor == 0:
            return Sum()
        return Sum(frozenset((a, c * factor) for a, c in self.terms), self.const * factor)


@dataclass(frozen=True)
class Op:
    """An operation on sums that is not one: `name` is a key of `OPERATIONS`."""

    name: str
    args: tuple[Sum, ...]

    @functools.cached_property
    def variables(self) -> frozenset[str]:
        """Names of the variables that it depends on."""
        return frozenset().union(*(arg.variables for arg in self.args))


OPERATIONS: dict[str, Callable[..., Any]] = {
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "Mul": operator.mul,
    "Min": np.minimum,
    "Max": np.maximum,
    "RShift": operator.rshift,
    "LShift": operator.lshift,
    "BitwiseAnd": operator.and_,
    "BitwiseOr": operator.or_,
    "BitwiseXor": operator.xor,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "EQ": operator.eq,
    "NE": operator.ne,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Not": np.logical_not,
    "Select": np.where,
}
COMPARISONS = ("LT", "LE", "GT", "GE", "EQ", "NE")


def constant(value: Any) -> Sum:
    """A sum that is a number."""
    return Sum(const=int(value))


def variable(name: str) -> Sum:
    """A sum that is a variable."""
    return Sum(frozenset([(name, 1)]))


Environment = Mapping[int | str, Sum | tuple[Sum, ...]]
LANE = "lane of a vector"  # what stands for its number in the environment of `convert`


def convert(expression: Any, environment: Environment) -> Sum:
    """A TVM expression as a `Sum`.

    Args:
        expression: an integer or a condition of TVM's.
        environment: the `Sum` that stands for each variable, by its hash; one for each lane of a
            vector.

    Raises:
        NotImplementedError: the expression holds something else, such as a load.
    """
    kind = type(expression).__name__
    if kind in ("IntImm", "Bool"):
        return constant(expression.value)
    if kind == "Var":
        if hash(expression) not in environment:
            raise NotImplementedError(
                f"cannot work out {expression.name}, which depends on data or on the host"
            )
        known = environment[hash(expression)]
        return known[_lane(environment).const] if isinstance(known, tuple) else known
    if kind in ("Cast", "Broadcast"):
        return convert(expression.value, environment)
    if kind == "Ramp":  # a vector of indices, of which the environment says which one is meant
        base, stride = (convert(e, environment) for e in (expression.base, expression.stride))
        return base + _apply("Mul", [stride, _lane(environment)])
    if parts := choice(expression):
        return _apply("Select", [convert(part, environment) for part in parts])
    if kind == "Not":
        return _apply("Not", [convert(expression.a, environment)])
    if hasattr(expression, "a") and hasattr(expression, "b"):
        a, b = convert(expression.a, environment), convert(expression.b, environment)
        if kind == "Add":
            return a + b
        if kind == "Sub":
            return a + b.times(-1)
        if kind in OPERATIONS:
            return _apply(kind, [a, b])
    raise NotImplementedError(f"cannot work out a {kind}: {' '.join(str(expression).split())}")


def _lane(environment: Environment) -> Sum:
    lane = environment.get(LANE, constant(0))
    return lane if isinstance(lane, Sum) else lane[0]


def choice(expression: Any) -> tuple[Any, Any, Any] | None:
    """Condition and both results of a choice between two values; None for anything else."""
    kind = type(expression).__name__
    if kind == "Select":
        return expression.condition, expression.true_value, expression.false_value
    if kind == "Call" and expression.op.name.endswith("if_then_else"):
        return tuple(expression.args)
    return None


def _apply(name: str, args: list[Sum]) -> Sum:
    """An operation on sums, as a sum: worked out, distributed, or as an atom."""
    if all(not arg.terms for arg in args):
        return constant(OPERATIONS[name](*(arg.const for arg in args)))
    if name == "Mul" and any(not arg.terms for arg in args):
        factor, other = sorted(args, key=lambda arg: len(arg.terms))
        return other.times(factor.const)
    if name == "LShift" and not args[1].terms:
        return args[0].times(2 ** args[1].const)
    if name in COMPARISONS:  # a < b as a - b < 0, so that both sides come together
        args = [args[0] + args[1].times(-1), Sum()]
    return Sum(frozenset([(Op(name, tuple(args)), 1)]))


def conjunction(condition: Sum) -> list[Sum]:
    """The conditions that hold where this one does: `a and b` taken apart."""
    if len(condition.terms) == 1 and condition.const == 0:
        ((atom, coefficient),) = condition.terms
        if coefficient == 1 and isinstance(atom, Op) and atom.name == "And":
            return [part for arg in atom.args for part in conjunction(arg)]
    return [condition]


@dataclass(frozen=True)
class Shift:
    """What blocks and loops add inside an expression of the threads.

    `modulus` and `limits` say how much of it is needed: its remainder, where `modulus` is not 0;
    and whether it lies between the limits, where there are any.
    """

    outer: Sum
    modulus: int = 0
    limits: tuple[int, int] | None = None

    def value(self, point: Mapping[Any, Any]) -> Any:
        """As much of it as is needed, for arrays by the names of its variables."""
        value = evaluate(self.outer, point)
        if self.modulus:
            value = value % self.modulus
        return np.clip(value, *self.limits) if self.limits else value


def take_apart(
    expression: Sum,
    inner: Mapping[str, Array],
    shifts: list[Shift],
    modulus: int = 0,
    compared: bool = False,
) -> Sum:
    """The expression with its outer parts replaced by references to `shifts`.

    Args:
        expression: a `Sum`.
        inner: values of the variables of the threads, by name; all other variables are outer.
        shifts: a list of `Shift`, which is added to.
        modulus: where only the expression's remainder matters, of what; else 0.
        compared: whether it is only compared with 0.

    Returns:
        A `Sum` in the variables of the threads and in integers, which stand for `shifts[k]`.
    """
    outer = Sum()
    terms: dict[Any, int] = {}
    for atom, coefficient in expression.terms:
        if not _variables(atom) & inner.keys():
            outer += Sum(frozenset([(atom, coefficient)]))
        elif isinstance(atom, str) or atom.variables <= inner.keys():
            terms[atom] = terms.get(atom, 0) + coefficient
        else:
            first, *others = atom.args
            if atom.name == "FloorDiv" and not others[0].terms:
                # ⌊(o + t) / c⌋ = ⌊o / c⌋ + ⌊(o mod c + t) / c⌋
                whole = _apply("FloorDiv", [_outer(first, inner), *others])
                outer += whole.times(coefficient)
            deep = take_apart(first, inner, shifts, _modulus(atom), atom.name in COMPARISONS)
            rest = (take_apart(arg, inner, shifts) for arg in others)
            atom = Op(atom.name, (deep, *rest))
            terms[atom] = terms.get(atom, 0) + coefficient
            compared = False  # what is in it varies from shift to shift
    if outer.terms:
        limits = (
            _limits(Sum(frozenset(terms.items()), expression.const), inner) if compared else None
        )
        shift = Shift(outer, modulus, limits)
        if shift not in shifts:
            shifts.append(shift)
        terms[shifts.index(shift)] = 1
    return Sum(frozenset(terms.items()), expression.const)


def _outer(expression: Sum, inner: Mapping[str, Array]) -> Sum:
    """The part of a sum that depends on no variable of the threads."""
    terms = ((a, c) for a, c in expression.terms if not _variables(a) & inner.keys())
    return Sum(frozenset(terms))


def _limits(expression: Sum, values: Mapping[str, Array]) -> tuple[int, int]:
    """Beyond what an addend decides a comparison of the expression with 0 for every thread."""
    value = evaluate(expression, values)
    return -int(np.max(value)) - 1, -int(np.min(value)) + 1


def _modulus(atom: Op) -> int:
    """Of what number only the remainder matters of the first argument's outer part, or 0."""
    if atom.name in ("FloorMod", "FloorDiv") and not atom.args[1].terms:
        return abs(atom.args[1].const)
    if atom.name == "BitwiseAnd" and not atom.args[1].terms:
        mask = atom.args[1].const
        return mask + 1 if mask > 0 and mask & (mask + 1) == 0 else 0
    return 0


def evaluate(expression: Sum, values: Mapping[Any, Any]) -> Any:
    """The expression's value, for ints or arrays by atom: a variable's name or a shift's number."""
    total = expression.const
    for atom, coefficient in expression.terms:
        if isinstance(atom, Op):
            value = OPERATIONS[atom.name](*(evaluate(arg, values) for arg in atom.args))
        else:
            value = values[atom]
        total = total + coefficient * value
    return total


def in_blocks(shift: Shift, blocks: Mapping[str, Array], extents: Extents) -> list[Shift]:
    """What of a shift depends on the block alone: a list of `Shift`.

    Args:
        shift: a `Shift`.
        blocks: names of the blocks' variables.
        extents: (first value, number of values) of each variable, by name.
    """
    own: dict[Any, int] = {}
    others: dict[Any, int] = {}
    mixed: set[str] = set()
    for atom, coefficient in shift.outer.terms:
        names = _variables(atom)
        if names <= blocks.keys():
            own[atom] = coefficient
        elif not names & blocks.keys():
            others[atom] = coefficient
        else:
            mixed |= names & blocks.keys()
    found = [Shift(variable(name)) for name in sorted(mixed)]
    if own:
        limits = None
        if shift.limits and not mixed and all(isinstance(a, str) for a in others):
            ends = [
                sorted(c * k for k in (extents[a][0], sum(extents[a]) - 1))
                for a, c in others.items()
            ]
            low, high = (sum(pair[k] for pair in ends) for k in (0, 1))
            limits = shift.limits[0] - high, shift.limits[1] - low
        found.append(Shift(Sum(frozenset(own.items())), shift.modulus, limits))
    return found


def combinations(shifts: Sequence[Shift], extents: Extents) -> tuple[Array, Array]:
    """How often each combination of the shifts' values occurs over all blocks and rounds.

    Args:
        shifts: a list of `Shift`.
        extents: (first value, number of values) of each outer variable, by name.

    Returns:
        values: an array with a row for each combination and a column for each shift.
        counts: how many times each occurs. Variables that no shift depends on are not in it.
    """
    values, counts = np.zeros((1, len(shifts)), np.int64), np.ones(1, np.int64)
    for group in _groups(shifts):
        added = _contributions(group, shifts, extents)
        many = max(1, MOST_COMBINATIONS // len(added[0]))
        parts = []
        for k in range(0, len(values), many):
            rows = _reduced(values[k : k + many, None] + added[0], shifts)
            times = np.outer(counts[k : k + many], added[1])
            parts.append(_unique(rows.reshape(-1, len(shifts)), times.ravel()))
        values, counts = _unique(*(np.concatenate(p) for p in zip(*parts, strict=True)))
    for k, shift in enumerate(shifts):
        if shift.limits:
            values[:, k] = np.clip(values[:, k], *shift.limits)
    return _unique(values, counts)


def _groups(shifts: Sequence[Shift]) -> list[set[str]]:
    """The outer variables, in sets that occur together in an atom and cannot be kept apart."""
    groups: list[set[str]] = []
    for shift in shifts:
        for atom, _ in shift.outer.terms:
            together = set(_variables(atom))
            apart = [g for g in groups if not g & together]
            groups = [*apart, together.union(*(g for g in groups if g & together))]
    return groups


def _contributions(
    group: set[str], shifts: Sequence[Shift], extents: Extents
) -> tuple[Array, Array]:
    """What every combination of the group's variables adds to each shift, and how often."""
    names = sorted(group)
    first, sizes = zip(*(extents[name] for name in names), strict=True)
    many = math.prod(sizes)
    if many > MOST_ROUNDS:
        shown = ", ".join(f"{n.partition('#')[0]}: {k}" for n, k in zip(names, sizes, strict=True))
        raise NotImplementedError(f"too many combinations of what an index divides ({shown})")
    parts = []
    for start in range(0, many, MOST_COMBINATIONS):
        numbers = np.unravel_index(np.arange(start, min(start + MOST_COMBINATIONS, many)), sizes)
        point = {n: k + low for n, k, low in zip(names, numbers, first, strict=True)}
        rows = np.zeros((len(numbers[0]), len(shifts)), np.int64)
        for k, shift in enumerate(shifts):
            terms = frozenset((a, c) for a, c in shift.outer.terms if _variables(a) <= group)
            rows[:, k] = evaluate(Sum(terms), point)
        parts.append(_unique(_reduced(rows, shifts), np.ones(len(rows), np.int64)))
    return _unique(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _reduced(values: Array, shifts: Sequence[Shift]) -> Array:
    for k, shift in enumerate(shifts):
        if shift.modulus:
            values[..., k] %= shift.modulus
    return values


def _unique(values: Array, counts: Array) -> tuple[Array, Array]:
    if values.shape[1] == 0:
        return values[:1], counts.sum(keepdims=True)
    low = values.min(axis=0)
    span = values.max(axis=0) - low + 1
    if math.prod(map(int, span)) < 2**62:  # one number for a row is quicker to sort
        weights = np.cumprod(np.concatenate([[1], span[:-1]]))
        found = np.unique((values - low) @ weights, return_index=True, return_inverse=True)
    else:
        found = np.unique(values, axis=0, return_index=True, return_inverse=True)
    _, first, which = found
    total = np.zeros(len(first), np.int64)
    np.add.at(total, which.ravel(), counts)
    return values[first], total


def _variables(atom: str | Op) -> frozenset[str]:
    return frozenset([atom]) if isinstance(atom, str) else atom.variables
