"""Evolution: keep the candidates that a cost model likes, mutate them, and keep the better ones.

MetaSchedule's `EvolutionarySearch` does the same, with more candidates and in C++. This one fits a
page, repeats by its seed, and works without a device where the cost model does.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm.s_tir import Schedule

from d2ltvm.errors import as_number, shown, whole
from d2ltvm.search.spaces import Space

Score = Callable[[Sequence[Schedule]], Sequence[float]]


@dataclass(frozen=True)
class Candidate:
    """A schedule with what a cost model says of it.

    Attributes:
        sch: the schedule.
        cost: the model's; less is better.
        origin: 'sample', 'mutation', or the name of a sketch that it began as.
        generation: 0 for those that evolution begins with.
    """

    sch: Any
    cost: float
    origin: str
    generation: int


def evolve(
    space: Space,
    score: Score,
    population: int = 32,
    generations: int = 4,
    seed: int = 1,
    start: Sequence[Schedule] = (),
    fresh: float = 0.2,
) -> Iterator[list[Candidate]]:
    """Evolve schedules of a space; each generation is yielded as it is known, the best first.

    >>> found = d2ltvm.search.space(d2ltvm.search.workload("matmul", 64), "llvm")
    >>> *_, last = evolve(found, lambda some: [len(str(s.mod)) for s in some], 4, 2)
    >>> len(last), last[0].cost <= last[-1].cost
    (4, True)

    Args:
        space: where to search.
        score: a cost model: costs of several schedules, of which less is better.
        population: how many schedules a generation has.
        generations: how many follow the first.
        seed: of all that is random.
        start: schedules of this space to begin with; the rest are samples.
        fresh: the share of samples among the new ones of a generation, from 0 to 1.

    Raises:
        ValueError: a number is not as above, when the first generation is asked for.
    """
    population, generations = whole("population", population), whole("generations", generations, 0)
    seed = whole("seed", seed, 0)
    if not 0 <= as_number("fresh", fresh) <= 1:
        raise ValueError(f"fresh is {shown(fresh)}; expected a number from 0 to 1")
    rng = np.random.default_rng(seed)
    seen: set[int] = set()
    samples = space.samples(int(rng.integers(1, 2**30)))

    def made(many: int, parents: Sequence[Candidate]) -> Iterator[tuple[Schedule, str]]:
        chances = _chances(parents)
        for _ in range(20 * many):  # a small space may have no more
            from_sample = not parents or rng.random() < fresh
            if from_sample:
                sch = next(samples)
            else:
                sch = space.mutate(parents[int(rng.choice(len(parents), p=chances))].sch, rng)
            if sch is not None and (key := identity(sch)) not in seen:
                seen.add(key)
                yield sch, "sample" if from_sample else "mutation"
                many -= 1
                if not many:
                    return

    first = [(sch, "start") for sch in start][:population]
    seen.update(identity(sch) for sch, _ in first)
    if len(first) < population:
        first += made(population - len(first), ())
    alive = _scored(first, score, 0)
    yield alive
    for generation in range(1, generations + 1):
        new = _scored(list(made(population, alive)), score, generation)
        alive = sorted([*alive, *new], key=lambda c: c.cost)[:population]
        yield alive


def identity(sch: Any) -> int:
    """A number that two schedules share if their loop nests are the same."""
    return int(tvm_ffi.structural_hash(sch.mod))


def _scored(made: Sequence[tuple[Any, str]], score: Score, generation: int) -> list[Candidate]:
    costs = score([sch for sch, _ in made]) if made else []
    found = [
        Candidate(sch, float(cost), origin, generation)
        for (sch, origin), cost in zip(made, costs, strict=True)
    ]
    return sorted(found, key=lambda c: c.cost)


def _chances(parents: Sequence[Candidate]) -> Any:
    """The better half has most of the children: by rank, each a little more than the next."""
    ranks = np.arange(len(parents), 0, -1, dtype=float)
    return ranks / ranks.sum() if len(parents) else None
