"""How long a candidate of any workload takes on a GPU: the third judge, with more pipes.

The second judge, `judged`, knows one kernel of float32 multiply-adds. This one adds what other
workloads need: several kernels one after the other, TensorCores, special functions, the L2 cache,
and device memory. `piped` counts, and `seconds` makes a time of it:

    >>> softmax = d2ltvm.search.workload("softmax")
    >>> 1e-5 < seconds(piped(softmax.by_hand("cuda")["held"]())) < 5e-5
    True

It takes the second judge's constants as they are. What it adds comes from data sheets, the
programming guide and the records of the chapter on the GPU in numbers; nothing is fitted to times
of the workloads that it is asked about. It was asked about 2,265 candidates of four workloads
before they ran (`measured.MORE`), and met five goals of eight. The times showed a mistake: `CACHE`
is from a copy whose time has the start of a kernel in it, and `seconds` adds this start again. And
on TensorCores the first choices were slow, since it knows neither which loads wait for each other
nor what words in memory take; `waits`, the fourth judge, reads both in the machine code. All terms
are as they were when the candidates ran; experiments/search/changed.txt has what some changes do.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm

from d2ltvm.analysis import traffic
from d2ltvm.analysis.accesses import Site
from d2ltvm.analysis.coalescing import SECTOR, WARP, Launched
from d2ltvm.search import counting, judged
from d2ltvm.search.counting import array_bytes
from d2ltvm.search.unrolled import Nest, Unrolled, of_kernel
from d2ltvm.system import chips

FRAGMENT = 16**3  # multiply-adds of a warp in one `wmma` product of 16 x 16 x 16
WMMA = 0.5  # of the TensorCores' peak on the data sheet. Hopper's white paper has twice as many
# multiply-adds a cycle as Ampere's; wmma and mma.sync are taken to do as many as on Ampere
SPECIAL_LANES = 16  # special functions of an SM a cycle. Source: CUDA C++ Programming Guide,
# "Arithmetic Instructions", of 9.0
MEMORY_RATE = 4.26e12  # bytes a second of device memory. Source: gpu_in_numbers, a copy of 2**28
# floats
CACHE = 5.19e12  # bytes a second of the L2 cache. Source: likewise, a copy of 2**22 floats
SAMPLED = 2**16  # lanes whose addresses are looked at of one load or store
SPECIAL = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "sin", "cos")
ARITHMETIC = ("Add", "Sub", "Mul", "Max", "Min", "Div")


@dataclass(frozen=True)
class Piped(Unrolled):
    """What one kernel of a schedule does; `products` stays 0, and these say what is computed.

    Attributes:
        arithmetic: float instructions of a thread; a multiplication that is added is one with it,
            and a change of the dtype is one.
        special: exponentials, divisions and the like of a thread.
        fragments: products of fragments on TensorCores, of a warp.
        fragment_floats: registers of a thread that hold fragments.
        reused: of `sectors`, those that the L1 cache still has from a loop's round before.
        nbytes: bytes of the tensors in global memory that it reads or writes.
    """

    arithmetic: int
    special: int
    fragments: int
    fragment_floats: int
    reused: int
    nbytes: int


class Worked(Nest):
    """A walk over a kernel that also counts what a thread computes.

    Attributes:
        arithmetic, special, fragments: as in `Piped`.
        tensors: bytes of the tensors in global memory, by what stands for their memory.
    """

    def __init__(self, body: Any, asked: int) -> None:
        self.arithmetic = self.special = self.fragments = 0
        self.tensors: dict[int, int] = {}
        super().__init__(body, asked)
        self.sites = _kept_in_registers(self.sites)

    def _rounds(self) -> int:
        return math.prod(self.extents[loop][1] for loop in self._loops)

    def _do_BufferStore(self, node: Any) -> None:
        self._add(node.value)
        super()._do_BufferStore(node)

    def _do_Bind(self, node: Any) -> None:
        self._add(node.value)
        super()._do_Bind(node)

    def _add(self, value: Any) -> None:
        plain, special = computed(value)
        self.arithmetic += plain * self._rounds()
        self.special += special * self._rounds()

    def _call(self, node: Any) -> None:
        if node.op.name.rpartition(".")[2] == "tvm_mma_sync":
            self.fragments += self._rounds()
        super()._call(node)

    def _site(self, buffer: Any, index: Sequence[Any], kind: str) -> None:
        if buffer.ty.storage_scope in ("", "global"):
            size = math.prod(int(n) for n in buffer.shape)
            itemsize = int(tvm.DataType(str(buffer.dtype)).itemsize)
            self.tensors[self._memory(buffer)] = size * itemsize
        super()._site(buffer, index, kind)


class Sampled(Launched):
    """A launch of which some patterns of addresses stand for all, chosen at random by a fixed seed.

    Divisions in an index make millions of patterns; to look at all takes many seconds.
    """

    def _taken_apart(self, *key: Any) -> Any:
        values, counts, *rest = super()._taken_apart(*key)
        most = max(1, SAMPLED // len(self.valid))
        if len(values) > most:
            chosen = np.random.default_rng(0).choice(len(values), most, replace=False)
            scale = counts.sum() / counts[chosen].sum()
            values, counts = values[chosen], counts[chosen] * scale
        return values, counts, *rest


def _kept_in_registers(sites: Sequence[Site]) -> list[Site]:
    """Sites without the loops in which a sum in global memory stays in a register.

    A thread that loads and stores the same place in all rounds of a loop does so once.
    """
    where = [(s.memory, s.index, s.guards, s.loops) for s in sites]
    read = {place for place, s in zip(where, sites, strict=True) if s.kind == "read"}
    write = {place for place, s in zip(where, sites, strict=True) if s.kind == "write"}
    sums = {place for place in read & write if place[1].variables}
    return [
        replace(s, loops=tuple(k for k in s.loops if k in s.variables))
        if s.scope == "global" and place in sums
        else s
        for place, s in zip(where, sites, strict=True)
    ]


def computed(node: Any) -> tuple[int, int]:
    """Float instructions of an expression, and how many of them are special functions.

    Lanes of a vector count each, since a GPU's instructions have one.

    >>> x, y = (tvm.tirx.Var(name, "float32") for name in "xy")
    >>> computed(x * y + x), computed(tvm.tirx.exp(x - y))  # a multiply-add is one
    ((1, 0), (1, 1))
    """
    kind, dtype = type(node).__name__, tvm.DataType(str(getattr(node.ty, "dtype", "int32")))
    lanes, floats = int(dtype.lanes), "float" in str(dtype)
    if kind == "TensorLoad":
        return 0, 0
    if kind == "Call":
        name = node.op.name.rpartition(".")[2]
        found = _total(node.args)
        return (found[0], found[1] + lanes) if name in SPECIAL else found
    if kind == "Div" and floats:
        plain, special = _total((node.a, node.b))
        return plain + lanes, special + lanes
    if kind == "Cast":
        plain, special = computed(node.value)
        return plain + lanes * floats, special
    parts = [
        getattr(node, k)
        for k in ("a", "b", "value", "true_value", "false_value")
        if hasattr(node, k)
    ]
    plain, special = _total(parts)
    if kind in ARITHMETIC and floats:
        fused = kind in ("Add", "Sub") and any(type(p).__name__ == "Mul" for p in parts)
        plain += 0 if fused else lanes
    return plain, special


def _total(parts: Iterable[Any]) -> tuple[int, int]:
    found = [computed(part) for part in parts if isinstance(part, tvm.ir.Expr)]
    return sum(plain for plain, _ in found), sum(special for _, special in found)


def piped(sch: Any) -> tuple[Piped, ...]:
    """Take each kernel of a schedule apart as the compiler would.

    >>> softmax = d2ltvm.search.workload("softmax")
    >>> [k.special for k in piped(softmax.by_hand("cuda")["held"]())]
    [33]

    Args:
        sch: a finished schedule for CUDA.

    Raises:
        TypeError, ValueError: it is none.
        NotImplementedError: the analyser cannot follow it.
    """
    mod, asked, kernels = counting.every_kernel(sch)
    found = []
    for launch, body in kernels:
        kernel = Worked(body, asked)
        one = of_kernel(kernel, mod, launch, body, 0, Sampled)
        fragments = sum(n for k, n in array_bytes(body).items() if k.startswith("wmma."))
        found.append(
            Piped(
                **vars(one),
                arithmetic=kernel.arithmetic,
                special=kernel.special,
                fragments=kernel.fragments,
                fragment_floats=fragments // (4 * WARP),
                reused=_reused(kernel, launch),
                nbytes=sum(kernel.tensors.values()),
            )
        )
    return tuple(found)


def _reused(kernel: Nest, launch: Any) -> int:
    """Sectors of global memory that the L1 cache has, from the loop's round before.

    That is so where the innermost loop that is left moves each lane by less than a sector.
    """
    launched, found = Sampled(kernel, launch), 0.0
    for site in traffic.executed(kernel):
        if site.kind != "read" or site.scope != "global" or not site.loops:
            continue
        step = dict(site.index.terms).get(site.loops[-1], 0) * site.itemsize
        if 0 < step < SECTOR:
            counts = dict.fromkeys(counting.MEMORY, 0)
            counting.count(counts, launched, site)
            found += counts["sectors"] * (1 - step / SECTOR)
    return round(found)


def seconds(kernels: Sequence[Piped], gpu: str = "H200") -> float:
    """How long a schedule takes by the third judge: its kernels, one after the other.

    >>> held, passes = (seconds(piped(d2ltvm.search.workload("softmax").by_hand("cuda")[name]()))
    ...                 for name in ("held", "three passes"))
    >>> held < passes
    True

    Args:
        kernels: what `piped` says of it.
        gpu: as for `d2ltvm.chip`. The constants are an H200's.
    """
    return sum(_kernel(kernel, gpu) for kernel in kernels)


def tensor_rate(chip: chips.Chip) -> float:
    """Multiply-adds that the TensorCores of an SM do in a cycle.

    >>> round(tensor_rate(d2ltvm.chip("H200")))
    946
    """
    return WMMA * chip.fp16_tensor_tflops * 1e12 / 2 / chip.sms / (chip.boost_ghz * 1e9)


def _kernel(c: Piped, gpu: str) -> float:
    """The second judge's time of one kernel with the pipes that it does not know, or its bytes'."""
    chip = chips.chip(gpu)
    blocks, warps = c.blocks, c.blocks * c.warps
    lanes = blocks * c.threads
    tensor = tensor_rate(chip)
    cache = CACHE / SECTOR / chip.sms / judged.CLOCK  # sectors of an SM a cycle
    pipe = max(
        c.special * warps * WARP / SPECIAL_LANES,
        c.fragments * warps * FRAGMENT / tensor,
        (c.sectors - c.reused) / cache,
    )
    issued = c.arithmetic + c.special + 2 * c.fragments
    known = replace(c, products=issued * lanes, sums=c.sums + c.fragment_floats)
    time = judged.seconds(known, gpu, pipe=pipe / blocks)
    return max(time, c.nbytes / MEMORY_RATE + judged.LAUNCH)
