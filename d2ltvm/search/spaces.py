"""The space that MetaSchedule searches: sketches, who made them, samples, and mutations.

A *sketch* is a schedule whose tile sizes are not decided yet. Rules make sketches of a computation.
A *sample* is a sketch with all its decisions made, and a mutation moves one of them.
"""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm.s_tir.meta_schedule as ms
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import _ffi_api
from tvm.s_tir.meta_schedule.logging import get_logging_func
from tvm.s_tir.schedule import Trace

from d2ltvm.errors import in_32_bits, is_integer, shown, whole
from d2ltvm.search import tensorcores
from d2ltvm.search.workloads import Workload
from d2ltvm.system import chips, threads

KINDS = ("cuda", "llvm")
STATIC_SHARED = 48 * 1024  # bytes of a block's shared memory whose size the source says

_LOGGER = logging.getLogger("d2ltvm.search")
_LOGGER.setLevel(logging.ERROR)  # of what MetaSchedule says to it


def target(kind: str, gpu: str = "H200", cores: int = 2, dynamic: bool = False) -> Any:
    """The target that rules, checks and builds of a search are for.

    >>> target("cuda").arch
    'sm_90'

    Args:
        kind: 'cuda' or 'llvm'.
        gpu: a GPU by its name, as for `d2ltvm.chip`, for 'cuda'.
        cores: how many cores a loop that runs in parallel is for, for 'llvm'.
        dynamic: whether shared memory is of scope `shared.dyn`, all that a block can have, for
            'cuda'.

    Raises:
        ValueError: `kind` or `gpu` is something else.
    """
    if kind == "llvm":
        return tvm.target.Target({"kind": "llvm", "num-cores": cores, "mcpu": _processor()})
    if kind != "cuda":
        raise ValueError(f"kind is {shown(kind)}; expected 'cuda' or 'llvm'")
    chip = chips.chip(gpu)
    shared = chip.shared_block_kib * 1024 if dynamic else STATIC_SHARED
    limits = {"max_threads_per_block": 1024, "max_shared_memory_per_block": shared}
    config = {"kind": "cuda", "arch": chip.capability, "thread_warp_size": 32, **limits}
    return tvm.target.Target(config, host="llvm")


def _processor() -> str:
    from tvm.target import codegen

    return str(codegen.llvm_get_system_cpu())


@dataclass
class Space:
    """All schedules that can come of a computation by a set of rules.

    Attributes:
        workload: the computation.
        kind: 'cuda' or 'llvm'.
        context: MetaSchedule's `TuneContext`, which knows the rules.
        sketches: schedules, each with decisions that are one random sample.
    """

    workload: Workload
    kind: str
    context: Any
    sketches: list[Any]

    def sample(self, sketch: int, seed: int) -> Schedule | None:
        """A schedule with all decisions of a sketch made at random; None where it is refused.

        What is refused asks for more threads, virtual threads or shared memory than a GPU has.

        Args:
            sketch: its number.
            seed: a positive integer, the same one for the same schedule.

        Raises:
            ValueError: there is no such sketch, or `seed` is none.
        """
        if not is_integer(sketch) or not 0 <= sketch < len(self.sketches):
            raise ValueError(
                f"sketch is {shown(sketch)}; expected its number, 0 to {len(self.sketches) - 1}"
            )
        trace = Trace(self.sketches[sketch].trace.insts, {})
        return self.finished(trace, seed)

    def finished(self, trace: Any, seed: int = 1) -> Schedule | None:
        """The schedule of a trace, with MetaSchedule's last steps; None where these refuse it.

        The last steps (its post-processors) share copies out among threads, vectorise, unroll, put
        the zeros of a sum into a loop of their own, and ask whether a GPU has room for it.
        """
        sch = Schedule(self.context.mod, seed=in_32_bits("seed", seed), error_render_level="none")
        try:
            trace.apply_to_schedule(sch, remove_postproc=True)
        except Exception:  # TVM's own kinds: a decision that this trace cannot have
            return None
        sch.enter_postproc()
        done = all(step.apply(sch) for step in self.context.space_generator.postprocs)
        return sch if done else None

    def samples(self, seed: int = 1) -> Iterator[Schedule]:
        """Samples that are not refused, without an end, from all sketches in turn.

        Of some spaces a GPU has room for one sample in a hundred. So all cores sample at once; the
        order is that of the seeds, whoever is first.
        """
        many = threads.cores()

        def one(number: int) -> Schedule | None:
            return self.sample(number % len(self.sketches), number)

        while True:
            with ThreadPoolExecutor(many) as pool:
                found = list(pool.map(one, range(seed, seed + many)))
            yield from (sch for sch in found if sch is not None)
            seed += many

    def mutate(self, sch: Any, rng: np.random.Generator) -> Schedule | None:
        """A schedule with one decision moved; None where the last steps refuse what comes of it.

        MetaSchedule's own mutators do the same. They take the decision from a table that is sorted
        by addresses in memory, so that a seed does not repeat what they do. This one does.

        Args:
            sch: a schedule of this space.
            rng: NumPy's generator of random numbers, which says what is moved.
        """
        decisions = decided(sch.trace)
        inst, value = decisions[int(rng.integers(len(decisions)))]
        seed = int(rng.integers(1, 2**31 - 1))
        kind = str(inst.kind.name)
        if kind == "SamplePerfectTile":
            moved = moved_factor([int(v) for v in value], int(inst.attrs[1]), rng)
            trace = sch.trace.with_decision(inst, moved, remove_postproc=True)
        elif kind == "SampleCategorical":
            others = [k for k in range(len(inst.attrs[0])) if k != int(value)]
            chosen = others[int(rng.integers(len(others)))] if others else int(value)
            trace = sch.trace.with_decision(inst, chosen, remove_postproc=True)
        else:  # where a block is computed: drawn again
            rest = {i: v for i, v in sch.trace.decisions.items() if not i.same_as(inst)}
            trace = Trace(sch.trace.insts, rest)
        return self.finished(trace, seed)


def decided(trace: Any) -> list[tuple[Any, Any]]:
    """The instructions of a trace that decide something, in their order, with their decisions.

    >>> found = space(d2ltvm.search.workload("matmul", 64), "llvm")
    >>> [str(inst.kind.name) for inst, _ in decided(found.sketches[0].trace)]
    ['SamplePerfectTile', 'SamplePerfectTile', 'SamplePerfectTile', 'SampleCategorical']
    """
    decisions = trace.decisions
    return [(inst, decisions[inst]) for inst in trace.insts if inst in decisions]


def moved_factor(tile: list[int], most: int, rng: np.random.Generator) -> list[int]:
    """A tile's sizes with a factor of one of them given to another; their product stays.

    >>> moved_factor([8, 1, 4], 64, np.random.default_rng(1))
    [1, 8, 4]

    Args:
        tile: sizes, of which the last is at most `most`.
        most: see there.
        rng: says which, and how much.

    Raises:
        ValueError: a size, or `most`, is no positive integer.
    """
    if not isinstance(tile, list | tuple) or not tile:
        raise ValueError(f"tile is {shown(tile)}; expected positive integers")
    tile = [whole(f"one of tile = {shown(tile)}", size) for size in tile]
    most = whole("most", most)
    moves = [
        (x, y, factor)
        for x, size in enumerate(tile)
        for factor in range(2, size + 1)
        if size % factor == 0
        for y in range(len(tile))
        if y != x and (y < len(tile) - 1 or tile[y] * factor <= most)
    ]
    if not moves:
        return tile
    x, y, factor = moves[int(rng.integers(len(moves)))]
    return [
        size // factor if k == x else size * factor if k == y else size
        for k, size in enumerate(tile)
    ]


def space(work: Workload, kind: str = "cuda", generator: Any = None, seed: int = 1) -> Space:
    """The space of a computation, by MetaSchedule's rules for a target or by ones of your own.

    >>> found = space(d2ltvm.search.workload("matmul", 512), "llvm")
    >>> len(found.sketches)
    3

    TVM's own `TuneContext(...)` first imports the tensor intrinsics of all targets, ten seconds to
    half a minute of work. None is needed here, so the context is made without.

    Args:
        work: a `Workload`.
        kind: 'cuda' or 'llvm'.
        generator: a `SpaceGenerator` of MetaSchedule's, or a function of a schedule, as
            `d2ltvm.search.book_space` makes one; None is `PostOrderApply` with TVM's rules. A
            list of these has the sketches of all, in its order.
        seed: of the random decisions that sketches come with, an integer from 1 to 2**31 - 1.

    Raises:
        ValueError: `kind` or `seed` is something else, or the list is empty.
    """
    seed = in_32_bits("seed", seed)
    goal, rules = target(kind), {"sch_rules": kind, "postprocs": kind, "mutator_probs": kind}
    if kind == "cuda" and work.computation.tensorcores:
        goal, rules = target(kind, dynamic=True), tensorcores.rules()
    context = new_context(work.func, goal, _made(generator, rules), seed=seed)
    return Space(work, kind, context, list(context.generate_design_space()))


def _made(generator: Any, rules: dict[str, Any]) -> Any:
    """What `space` was given, as a `SpaceGenerator`."""
    if generator is None:
        return ms.space_generator.PostOrderApply(**rules)
    if isinstance(generator, list | tuple):
        if not generator:
            raise ValueError("generator is an empty list; expected one generator or more")
        return ms.space_generator.SpaceGeneratorUnion(
            [_made(one, rules) for one in generator], **rules
        )
    if isinstance(generator, ms.SpaceGenerator):
        return generator
    return ms.space_generator.ScheduleFn(generator, **rules)


def new_context(
    func: Any, goal: Any, generator: Any, strategy: Any = None, seed: int = 1, threads: int = 2
) -> Any:
    """A `TuneContext` of MetaSchedule, without the import of all tensor intrinsics."""
    context = ms.TuneContext.__new__(ms.TuneContext)
    mod = tvm.IRModule({"main": func.with_attr("tirx.noalias", True)})
    log = get_logging_func(_LOGGER)
    context.__init_handle_by_constructor__(
        _ffi_api.TuneContext, mod, goal, generator, strategy, "main", threads, seed, log
    )
    _ffi_api.TuneContextInitialize(context)
    return context
