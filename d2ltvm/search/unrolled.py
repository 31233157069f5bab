"""What the compiler makes of a kernel's loops, worked out from its lowered form.

The first judge, `predicted`, takes every loop as unrolled. Then each index is known, each array of
a thread is in registers, and neighbours are loaded together. `unrolled` asks which loops really
are. It was written after candidates had been measured; the second judge, `judged`, uses it.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from d2ltvm.analysis import accesses, coalescing, index_exprs, traffic
from d2ltvm.analysis.accesses import Site, SiteVisitor
from d2ltvm.analysis.coalescing import Launched
from d2ltvm.analysis.index_exprs import Op, Sum
from d2ltvm.search import counting
from d2ltvm.search.counting import Counts

# Multiply-adds up to which the compiler unrolls a loop by itself (sm_90, NVRTC 13). With it, of 212
# candidates whose machine code was read, 208 have arrays in memory or not as is said here, and 164
# have as many multiply-adds in a row. Source: experiments/search/loops.txt
BY_ITSELF = 400
WIDTHS = (4, 2, 1)  # floats that a thread loads at once


@dataclass(frozen=True)
class Unrolled(Counts):
    """What a kernel does with the loops that the compiler leaves.

    `sums` are floats that a thread adds to and that are in registers.

    Attributes:
        hoisted: most floats that a thread loads before a loop, since all its rounds need them.
        local: loads and stores of a thread to its arrays that are in memory, because a loop is
            left whose number is in an index.
        local_floats: floats of these arrays.
        iterations: rounds of all loops that are left, of one thread.
        divisions: divisions, remainders and comparisons in the indices of what is loaded from
            global memory, once a warp and a load.
    """

    hoisted: int
    local: int
    local_floats: int
    iterations: int
    divisions: int


class Nest(SiteVisitor):
    """A walk over a kernel that also notes what a thread does with arrays of its own.

    Attributes:
        private: loads and stores to these arrays, in the order of the code.
        members: all loads and stores inside of each loop.
        left: the loops that the compiler leaves.
        once: the loops that it unrolls.
        by_schedule: those of them that the schedule unrolls, however long they are.
    """

    def __init__(self, body: Any, asked: int) -> None:
        self.private: list[Site] = []
        self.by_schedule: set[str] = set()
        super().__init__(body, scattered=True)
        self.sizes = {loop: many for loop, (_, many) in self.extents.items()}
        self.members: dict[str, list[Site]] = defaultdict(list)
        for site in (*self.sites, *self.private):
            for loop in site.loops:
                self.members[loop].append(site)
        read = {_place(site) for site in self.private if site.kind == "read"}
        self.added = [s for s in self.private if s.kind == "write" and _place(s) in read]
        self.once = self._once(asked)
        self.left = self.members.keys() - self.once

    def _do_For(self, node: Any) -> None:
        place = len(self.extents)
        super()._do_For(node)
        if counting.BY_SCHEDULE in node.annotations:
            self.by_schedule.update(list(self.extents)[place : place + 1])

    def _site(self, buffer: Any, index: Sequence[Any], kind: str) -> None:
        if buffer.ty.storage_scope not in accesses.PRIVATE:
            return super()._site(buffer, index, kind)
        memory = self._memory(buffer)
        for first, lanes in self._spans(index[0]):
            site = (buffer.name, memory, "local", kind, 4, lanes, first, self._guards, self._loops)
            self.private.append(Site(*site, epoch=(0, 0)))

    def _once(self, asked: int) -> set[str]:
        """Loops to be unrolled, from the inside: by TVM up to `asked`, and by the compiler."""
        inside = {
            k: {loop for s in some for loop in _behind(s, k)} for k, some in self.members.items()
        }
        added, once = set(map(id, self.added)), set[str]()
        for loop in sorted(inside, key=lambda k: len(inside[k])):
            if loop in self.barriers:
                continue
            writes = [site for site in self.members[loop] if site.kind == "write"]
            sums = [site for site in writes if id(site) in added] or writes
            steps = sum(self.product(_behind(site, loop)) for site in writes)
            size = sum(self.product(once.intersection(_behind(site, loop))) for site in sums)
            by_tvm = inside[loop] <= once and steps * self.sizes[loop] <= asked
            if loop in self.by_schedule or by_tvm or size * self.sizes[loop] <= BY_ITSELF:
                once.add(loop)
        return once

    def product(self, loops: Iterable[str]) -> int:
        """How many rounds some loops have together."""
        return math.prod(self.sizes[loop] for loop in loops)


def _place(site: Site) -> tuple[Any, ...]:
    return site.memory, site.index, site.loops


def _behind(site: Site, loop: str) -> tuple[str, ...]:
    """The loops around a load or store that are inside of one of them."""
    return site.loops[site.loops.index(loop) + 1 :]


def unrolled(sch: Any, products: int) -> Unrolled:
    """Take a kernel apart as the compiler would.

    >>> work = d2ltvm.search.workload("matmul", 2048)
    >>> found = unrolled(work.by_hand("cuda")["virtual threads"](), work.flop // 2)
    >>> found.sums, found.local, found.iterations
    (64, 0, 128)

    Args:
        sch: a finished schedule for CUDA.
        products: multiply-adds that it does.

    Raises:
        TypeError, ValueError: as for `counted`.
        NotImplementedError: the analyser cannot follow it.
    """
    mod, asked, launch, body = counting.taken_apart(sch)
    return of_kernel(Nest(body, asked), mod, launch, body, products)


def of_kernel(
    kernel: Nest, mod: Any, launch: Any, body: Any, products: int, look: Any = Launched
) -> Unrolled:
    """What is counted in one kernel, when its loops have been walked over.

    Args:
        kernel, mod, launch, body, products: as above.
        look: says what its warps ask for, `Launched` or a class like it.
    """
    known = counting.launched(mod, launch, body, kernel, products)
    launched, still = look(kernel, launch), look(kernel, launch)
    still.extents.update((loop, (0, 1)) for loop in kernel.once)
    found = dict.fromkeys(counting.MEMORY, 0)
    hoisted: dict[str, int] = defaultdict(int)
    divisions = 0
    for site in traffic.executed(kernel):
        if site.kind == "read" and site.scope == "shared":
            _load(found, hoisted, kernel, still, site)
            continue
        before = found["requests"]
        for access in counting.accesses_of(site, launched):
            counting.count(found, launched, access)
        if site.kind == "read":
            divisions += _divisions(site, kernel) * (found["requests"] - before)
    sizes = _arrays(kernel)
    memory = {site.memory for site in kernel.private if site.variables & kernel.left}
    return Unrolled(
        **known,
        **found,
        sums=sum(sizes[m] for m in {s.memory for s in kernel.added} - memory),
        hoisted=max(hoisted.values(), default=0),
        local=sum(_often(kernel, s) for s in kernel.private if s.memory in memory),
        local_floats=sum(sizes[m] for m in memory),
        iterations=sum(kernel.product(_outside(kernel, loop)) for loop in kernel.left),
        divisions=divisions,
    )


def _outside(kernel: Nest, loop: str) -> list[str]:
    """A loop that is left, and those around it."""
    loops = kernel.members[loop][0].loops
    return [k for k in loops[: loops.index(loop) + 1] if k in kernel.left]


def _load(
    found: dict[str, int], hoisted: dict[str, int], kernel: Nest, still: Launched, site: Site
) -> None:
    """Add what a load from shared memory costs, made once for each element and wide if it can be.

    In a loop that is left it is made in each round, unless no round and no loop inside changes it.
    Then it is made before the loop, and its values stay in registers.
    """
    left = [loop for loop in site.loops if loop in kernel.left]
    needed = site.variables | kernel.barriers
    depth = max(
        (k for k, j in enumerate(left, 1) if j in needed or site.memory in kernel.written[j]),
        default=0,
    )
    words = _elements(kernel, site)
    if depth < len(left):
        hoisted[left[depth]] += len(words) * site.lanes
    for lanes, starts in _joined(site, words, kernel).items():
        # All of one width cost the same; the loops that `still` has stopped stand at 0.
        index = site.index + Sum(const=starts[0] - int(_at_zero(site)))
        wide = replace(site, lanes=lanes, index=index)
        for first, active, counts in still.requests(wide, left[:depth]):
            passes, _ = coalescing.wavefronts(first, active, wide.width)
            many = counts * len(starts)
            found["shared_requests"] += int((active.any(axis=1) * many).sum())
            found["wavefronts"] += int((passes * many).sum())


def _at_zero(site: Site) -> Any:
    """The element that a load asks for where all variables are 0."""
    return index_exprs.evaluate(site.index, dict.fromkeys(site.index.variables, 0))


def _elements(kernel: Nest, site: Site) -> np.ndarray[Any, np.dtype[Any]]:
    """The different elements that a load asks for in all rounds of the unrolled loops around it."""
    loops = [loop for loop in site.loops if loop in kernel.once & site.variables]
    point: dict[Any, Any] = dict.fromkeys(site.index.variables, 0)
    point.update(zip(loops, np.indices([kernel.sizes[loop] for loop in loops]), strict=True))
    return np.unique(index_exprs.evaluate(site.index, point))


def _joined(
    site: Site, words: np.ndarray[Any, np.dtype[Any]], kernel: Nest
) -> dict[int, list[int]]:
    """First elements of loads by their width: neighbours, where all else is a multiple of it."""
    if site.lanes > 1 or site.itemsize != 4:
        return {site.lanes: words.tolist()}
    others = [c for atom, c in site.index.terms if atom not in kernel.once]
    found, rest = {}, set(words.tolist())
    for lanes in WIDTHS:
        if any(c % lanes for c in others):
            continue
        starts = [
            w for w in sorted(rest) if w % lanes == 0 and rest.issuperset(range(w, w + lanes))
        ]
        rest.difference_update(w + k for w in starts for k in range(lanes))
        if starts:
            found[lanes] = starts
    return found


def _often(kernel: Nest, site: Site) -> int:
    """How often a thread loads or stores an element of an array in memory.

    A sum is kept in a register while loops run that are inside of all that is in its index.
    """
    left = [loop for loop in site.loops if loop in kernel.left]
    depth = max((k for k, j in enumerate(left, 1) if j in site.variables), default=len(left))
    return kernel.product(left[:depth]) * kernel.product(
        loop for loop in site.loops if loop in kernel.once & site.variables
    )


def _arrays(kernel: Nest) -> dict[int, int]:
    """Floats of each array of a thread."""
    sizes: dict[int, int] = defaultdict(int)
    for site in kernel.private:
        most = sum((kernel.sizes.get(atom, 1) - 1) * c for atom, c in site.index.terms)
        sizes[site.memory] = max(sizes[site.memory], site.index.const + site.lanes + most)
    return sizes


def _divisions(site: Site, kernel: Nest) -> int:
    """Operations in an index and its conditions that change with a loop and are no sums.

    In each copy that the schedule makes of a loop's body, they are those of that copy alone.
    """
    loops, found = set(site.loops) - kernel.by_schedule, set[Op]()

    def look(part: Sum) -> None:
        for atom, _ in part.terms:
            if isinstance(atom, Op):
                if atom.variables.intersection(loops):
                    found.add(atom)
                for arg in atom.args:
                    look(arg)

    for part in (site.index, *site.guards):
        look(part)
    return len(found)
