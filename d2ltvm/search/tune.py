"""A search that measures: propose, build, check, time, learn, and again.

MetaSchedule's own `tune_tir` hands builds to worker processes, each of which first imports the
tensor intrinsics of all targets and is stopped before it has. Here all is done in one process, or
built in processes that need no intrinsics and measured by the servers of a fleet.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from d2ltvm.bench.progress import progress
from d2ltvm.bench.timing import time_together
from d2ltvm.compiler.kernel import build
from d2ltvm.compiler.verify import compare
from d2ltvm.errors import in_32_bits, shown, whole
from d2ltvm.fleet.measuring import Servers
from d2ltvm.fleet.task import LIMITS, Limits
from d2ltvm.search.computations import Array
from d2ltvm.search.database import Kept
from d2ltvm.search.evolution import Candidate, evolve, identity
from d2ltvm.search.judged import predict
from d2ltvm.search.learned import Ridge, features
from d2ltvm.search.on_fleet import FleetBench, TellResult
from d2ltvm.search.spaces import Space, space
from d2ltvm.search.workloads import Workload
from d2ltvm.system import chips

BATCH = 8  # candidates that are measured between two fits of the model
CURIOUS = 2  # of these, at random
CANDIDATE = " candidate "  # between a workload's title and a number, in names
SLOW = 0.03  # seconds of a call, from which on three calls are three rounds


@dataclass(frozen=True)
class Trial:
    """A candidate that was measured.

    Attributes:
        number: from 1.
        sch: its schedule.
        seconds: of a call, the median of three rounds; infinite where it was bad.
        at: seconds since the search began.
        error: its largest error, by the largest magnitude of the result.
        why: what went wrong, as 'crash: …'; '' for a good one. Only a fleet survives bad ones.
    """

    number: int
    sch: Any
    seconds: float
    at: float
    error: float
    why: str = ""


class Bench:
    """Builds, checks and times schedules of a workload on this machine.

    Args:
        work: the workload.
        kind: 'llvm' or 'cuda'.
    """

    device = None  # this machine's
    batch = BATCH

    def __init__(self, work: Workload, kind: str) -> None:
        self.work, self.kind = work, kind
        inputs = work.inputs()
        self.inputs = dict(zip(work.names, inputs, strict=True))
        self.dtype = work.dtype
        wide = [x.astype("float64") for x in inputs]
        self.want = work.reference(*wide)
        self.magnitude = work.reference(*map(np.abs, wide))

    def __call__(self, sch: Any) -> tuple[list[float], float]:
        """Seconds of a call in three rounds, sorted, and the error of the result.

        Raises:
            WrongResultError: the result is wrong.
        """
        run, error = self.checked(sch)
        return self._timed(run), error

    def checked(self, sch: Any) -> tuple[Callable[[], Any], float]:
        """A launch of a schedule that is right, and the error of its result.

        Raises:
            WrongResultError: the result is wrong.
        """
        kernel, work = build(sch, self.kind), self.work
        out = np.full(self.want.shape, np.nan, self.dtype)
        arrays = [out if p.output else self.inputs[p.name] for p in kernel.params]
        kernel(*arrays)
        error = compare("the result", out, self.want, self.magnitude, work.terms, work.sums)
        return kernel.bind(*arrays), error

    def all(self, schedules: Mapping[str, Any], tell: TellResult) -> None:
        """Measure schedules one after the other; `tell` is called as each is known."""
        for name, sch in schedules.items():
            seconds, error = self(sch)
            tell(name, seconds, error, "")

    def _timed(self, run: Callable[[], Any]) -> list[float]:
        if self.kind == "llvm":
            rounds = []
            for _ in range(3):
                start = time.perf_counter()
                run()
                rounds.append(time.perf_counter() - start)
            if min(rounds) > SLOW:
                return sorted(rounds)
        timing = time_together({"it": run}, "host" if self.kind == "llvm" else "graph", 3)["it"]
        return [timing.low, timing.median, timing.high]


def search(
    work: Workload,
    kind: str = "llvm",
    trials: int = 64,
    seed: int = 1,
    folder: Path | None = None,
    generator: Any = None,
    model: str = "learned",
    show: Callable[[int, int, str], None] = progress,
    servers: Servers | None = None,
    limits: Limits = LIMITS,
) -> list[Trial]:
    """Search for a fast schedule by measuring candidates, on this machine or on a fleet.

    >>> found = search(d2ltvm.search.workload("matmul", 64), "llvm", trials=2)
    >>> len(found), all(trial.error < 1e-6 for trial in found)
    (2, True)

    Args:
        work: a `Workload`.
        kind: 'llvm', the processor, or 'cuda', the GPU.
        trials: how many candidates are measured, those that `folder` has among them.
        seed: of what is proposed. What is measured decides what is proposed next, so that two runs
            agree in their first batch alone.
        folder: where records are kept; a search that was cut off goes on from there. None: nowhere.
        generator: as for `space`.
        model: who chooses among what evolution proposes: 'learned' (ridge regression of what was
            measured), 'random', or for 'cuda' 'analyser'.
        show: told the progress.
        servers: a `d2ltvm.fleet.Fleet`, or the `Address` of one, whose servers run, check and time
            the candidates; None is this process. A candidate that hangs, crashes or computes
            something else is a trial with a reason, and the search goes on.
        limits: of a fleet: seconds that each step may take.

    Returns:
        A list of `Trial`, in the order in which they were measured.

    Raises:
        MissingError: this machine lacks the device.
        FleetError: there is no server for that kind, or none is left.
        WrongResultError: a candidate of this process computes something else.
        ValueError: an argument is none of these, or as for `Kept`.
    """
    trials, seed = whole("trials", trials), in_32_bits("seed", seed)
    if not isinstance(model, str) or model not in MODELS:
        raise ValueError(f"model is {shown(model)}; expected {', '.join(MODELS)}")
    place = space(work, kind, generator, seed=seed)
    bench: Bench | FleetBench = (
        Bench(work, kind) if servers is None else FleetBench(work, kind, servers, folder, limits)
    )
    kept = Kept(folder, place, seed, bench.device) if folder else None
    start = time.perf_counter()
    done = [
        Trial(k, sch, seconds, 0.0, 0.0)
        for k, (sch, seconds) in enumerate(kept.records() if kept else [], 1)
    ][:trials]
    seen = {identity(trial.sch) for trial in done}

    def tell(name: str, seconds: list[float], error: float, why: str) -> None:
        sch, at = batch[name], time.perf_counter() - start
        if kept and not why:
            kept.add(sch, seconds)
        middle = float("inf") if why else seconds[len(seconds) // 2]
        done.append(Trial(len(done) + 1, sch, middle, at, error, why))
        show(len(done), trials, f"best {min(t.seconds for t in done) * 1e3:.3f} ms")

    while len(done) < trials:
        rng = np.random.default_rng((seed, len(done)))
        many = min(max(BATCH, bench.batch), trials - len(done))
        found = proposed(place, model, done, seen, rng, many, generator)
        if not found:
            break  # the space has no more
        seen.update(map(identity, found))
        batch = {f"{work.title}{CANDIDATE}{len(done) + k}": s for k, s in enumerate(found, 1)}
        bench.all(batch, tell)
    return done


def foretold(
    work: Workload,
    trials: int = 64,
    seed: int = 1,
    generator: Any = None,
    show: Callable[[int, int, str], None] = progress,
    gpu: str = "H200",
) -> list[Candidate]:
    """Search for a schedule for a GPU with the analyser alone: no device, and nothing measured.

    >>> best, *_ = foretold(d2ltvm.search.workload("matmul", 256), trials=4)
    >>> 0 < best.cost < 1
    True

    Args:
        work: a `Workload`.
        trials: how many candidates are judged.
        seed: of what is proposed; the same one for the same candidates.
        generator: as for `space`. The book's schedules among the sketches begin as they are.
        show: told the progress.
        gpu: whose time is predicted; the analyser's constants are an H200's.

    Returns:
        Candidates of the last generation, the best first; `cost` is their predicted seconds.

    Raises:
        ValueError: an argument is none of these.
    """
    trials, seed, gpu = whole("trials", trials), in_32_bits("seed", seed), chips.chip(gpu).name
    place, known = space(work, "cuda", generator, seed=seed), dict[int, float]()

    def score(some: Sequence[Any]) -> list[float]:
        costs = []
        for sch in some:
            if (name := identity(sch)) not in known:
                known[name] = prediction(sch, work, gpu)
            costs.append(known[name])
            show(len(known), trials, f"best {min(known.values()) * 1e3:.3f} ms")
        return costs

    population = min(2 * BATCH, trials)
    start = _as_they_are(place) if generator is not None else []
    generations = trials // population - 1
    *_, last = evolve(place, score, population, generations, seed, start[:population])
    return last


def prediction(sch: Any, work: Workload, gpu: str = "H200") -> float:
    """Seconds by the second judge; infinite for what it does not take: several kernels."""
    try:
        return predict(sch, work, gpu, "second")
    except ValueError:
        return float("inf")


def _as_they_are(place: Space) -> list[Any]:
    """The sketches with the decisions that they come with: the book's numbers for its own."""
    return [sch for s in place.sketches if (sch := place.finished(s.trace)) is not None]


def proposed(
    place: Space,
    model: str,
    done: Sequence[Trial],
    seen: set[int],
    rng: np.random.Generator,
    many: int,
    generator: Any = None,
) -> list[Any]:
    """The candidates to measure next: the model's first choices, and some at random."""
    done = [trial for trial in done if not trial.why]
    ranked = sorted(done, key=lambda t: t.seconds)[:16]
    start = [t.sch for t in ranked]
    if not done and generator is not None:  # a schedule of the book begins as it is
        start = _as_they_are(place)
    score = MODELS[model](place, done, rng)
    learned = len(done) >= BATCH
    many_more, generations = (max(48, 2 * many), 3) if learned else (2 * many + len(start), 0)
    *_, last = evolve(place, score, many_more, generations, int(rng.integers(2**30)), start)
    fresh = [c.sch for c in last if identity(c.sch) not in seen]
    first = start[:1] if not done else []
    curious = [fresh[k] for k in rng.permutation(len(fresh))[:CURIOUS]]
    batch = {identity(sch): sch for sch in [*first, *fresh[: many - CURIOUS], *curious, *fresh]}
    return list(batch.values())[:many]


def _learned(place: Space, done: Sequence[Trial], rng: np.random.Generator) -> Any:
    if len(done) < BATCH:
        return _random(place, done, rng)
    model = Ridge().fit(features(place, [t.sch for t in done]), np.array([t.seconds for t in done]))
    return lambda some: model.predict(features(place, some))


def _random(_place: Space, _done: Sequence[Trial], rng: np.random.Generator) -> Any:
    return lambda some: rng.random(len(some))


def _analyser(place: Space, _done: Sequence[Trial], _rng: np.random.Generator) -> Any:
    return lambda some: [prediction(sch, place.workload) for sch in some]


MODELS: dict[str, Callable[..., Any]] = {
    "learned": _learned,
    "random": _random,
    "analyser": _analyser,
}


def curve(trials: Sequence[Trial]) -> tuple[Array, Array, Array]:
    """The best time so far: trials, seconds since the beginning, and the best seconds of a call."""
    numbers, at = (np.array([getattr(t, name) for t in trials]) for name in ("number", "at"))
    return numbers, at, np.minimum.accumulate([t.seconds for t in trials])
