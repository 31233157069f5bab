"""Runs the address arithmetic of a kernel's machine code, for many threads at once.

Which accesses a compiler joins, keeps in registers or drops is seen in its machine code and nowhere
else. There each address is worked out by a few dozen kinds of integer instructions. They are
executed here on NumPy arrays with an entry for each thread; arithmetic on data is left out. Neither
a GPU nor data is needed, since no address depends on data; where one does, that is an error.
"""

import operator
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from d2ltvm.analysis import sass
from d2ltvm.analysis.coalescing import LINE, WARP, Array, sectors
from d2ltvm.analysis.sass import Instruction
from d2ltvm.analysis.sass_arithmetic import S64, TENSOR, U32, Found, Operands, compiled
from d2ltvm.compiler.launches import Launch
from d2ltvm.layouts.arrays import rounded_up

# Where a kernel's arguments begin in constant bank 0, by the beginning of the architecture's name.
PARAMETERS = {"sm_7": 0x160, "sm_8": 0x160, "sm_9": 0x210}
# Of an address: a register, whether it has 64 bits, and its factor.
AddressPart = tuple[str, bool, int]

# An instruction takes about as long as its work on 5,000 lanes. What is done at most is a matter of
# seconds: 200,000 instructions of a block.
STEP, MOST_WORK = 5000, 10**9


class Place(NamedTuple):
    """The address in an operand: registers, and a constant offset in bytes."""

    registers: tuple[AddressPart, ...]
    offset: int


@dataclass(frozen=True)
class Base:
    """What the registers of an address add up to in each lane.

    Attributes:
        least, most: among the active lanes.
        relative: what each lane has beyond `least`; 0 in lanes that are not active.
        number: of `relative`, which equal ones share.
    """

    least: int
    most: int
    relative: Array
    number: int

    def first(self, shift: int, active: Array) -> Array:
        """First bytes where the least lane's is `shift`; 0 in lanes that are not active."""
        return np.where(active, self.relative + shift, 0)


class Machine:
    """Some blocks of a launch, ready to run.

    Args:
        instructions: those of `sass.needed`.
        launch: the `launches.Launch`.
        blocks: an array with blockIdx.x, .y and .z in a row for each block to run.
        arch: such as 'sm_90', which decides where arguments are passed.
    """

    def __init__(
        self, instructions: list[Instruction], launch: Launch, blocks: Array, arch: str
    ) -> None:
        family = arch[:4]
        if family not in PARAMETERS or len(arch.rstrip("af")) != 5:
            known = ", ".join(f"{name}x" for name in PARAMETERS)
            raise NotImplementedError(f"machine code of {arch}; that of {known} is followed")
        self.code, self.name, self.work = instructions, launch.name, 0
        # What a step needs is looked up once: a loop comes back to it thousands of times.
        self.steps = [(compiled(i), i.reads(), i.writes()) for i in instructions]
        self.memory = {
            k: (
                [
                    (*access, _place(place))
                    for access, place in zip(sass.MEMORY[i.name], i.places, strict=True)
                ],
                i.address_reads(),
            )
            for k, i in enumerate(instructions)
            if i.name in sass.MEMORY
        }
        self.ends = {k for k, i in enumerate(instructions) if i.name == "EXIT"}
        addresses = [i.address for i in instructions]
        self.jump = {
            k: int(np.searchsorted(addresses, i.target))
            for k, i in enumerate(instructions)
            if i.target is not None
        }
        threads = int(np.prod(launch.block))
        padded = rounded_up(threads, WARP)
        lane = np.arange(padded)
        self.alive = np.tile(lane < threads, len(blocks))
        laneid = np.tile(lane % WARP, len(blocks)).astype(U32)
        zero, self.nobody = np.zeros(len(self.alive), U32), np.zeros(len(self.alive), bool)
        special = {"SR_CgaCtaId": zero, "SRZ": zero, "SR_LANEID": laneid}
        for k, axis in enumerate("XYZ"):
            thread, lane = lane % launch.block[k], lane // launch.block[k]
            special[f"SR_TID.{axis}"] = np.tile(thread, len(blocks)).astype(U32)
            special[f"SR_CTAID.{axis}"] = np.repeat(blocks[:, k], padded).astype(U32)
        self.operands = Operands(special, PARAMETERS[family], len(launch.args))
        self.unknown: Found = {}  # lanes in which a register holds data, by register
        self.requests: dict[Any, list[Any]] = defaultdict(lambda: [0, None, None, None])
        # What a loop, or code that is unrolled, asks for again; see `_base`, `_number`, `_slower`.
        self.bases: dict[tuple[AddressPart, ...], tuple[Array, list[Array | None], Base]] = {}
        self.numbers: dict[tuple[Any, bytes], int] = {}
        self.numbered: tuple[Array | None, int] = (None, 0)
        self.slower: dict[tuple[int, ...], Array] = {}

    def run(self, most: int = MOST_WORK) -> list[tuple[Any, ...]]:
        """Run to the end.

        Args:
            most: work after which it is given up; `work` says how much it was.

        Returns:
            For each kind of access and pattern of addresses: the scope, 'read' or 'write', the
            tensor's number (None in shared memory), bytes a lane, first bytes and active lanes, of
            shape (warps, 32), wavefronts that each warp takes beside those of the banks, and how
            often it happened.

        Raises:
            NotImplementedError: an address depends on data, or it is too much work.
        """
        where = np.zeros(len(self.alive), np.int64)
        k: int | None = 0  # where all threads are that have not ended; None while they are apart
        while self.work <= most:
            self.work += STEP + len(where)
            at = int(where[self.alive].min()) if k is None else k
            here = self.alive & (where == at) if k is None else self.alive
            jumps, ends = self._step(at, here)
            if ends is not self.nobody:
                self.alive = self.alive & ~ends
                if not self.alive.any():
                    return self._found()
            if k is None or jumps.any():
                if k is not None:
                    where[:] = at
                where[here] = at + 1
                where[jumps] = self.jump.get(at, at + 1)
                rest = where[self.alive]
                k = int(rest[0]) if (rest == rest[0]).all() else None
            else:
                k = at + 1
        steps = self.work // (STEP + len(where))
        raise NotImplementedError(
            f"{self.name} has not ended after {steps:,} instructions of its machine code; "
            "without an architecture, accesses are counted as they are written"
        )

    def _step(self, k: int, here: Array) -> tuple[Array, Array]:
        """Execute an instruction; which threads jump, and which end."""
        instruction, nobody = self.code[k], self.nobody
        active = here
        if instruction.guard:
            name, negated = instruction.guard
            self._check(instruction, [name], here)
            active = here & (self.operands.predicate(name) ^ negated)
        if k in self.ends:
            return nobody, active
        if k in self.jump:
            return active, nobody
        if k in self.memory:
            self._request(k, instruction, active)
        else:
            self._execute(k, active)
        return nobody, nobody

    def _found(self) -> list[tuple[Any, ...]]:
        return [(*key[:4], *entry[1:], entry[0]) for key, entry in self.requests.items()]

    def _execute(self, k: int, active: Array) -> None:
        step, reads, writes = self.steps[k]
        tainted = [self.unknown[n] for n in reads if n in self.unknown]
        results = {} if step is None else step(self.operands)
        for name in writes:
            kept = self.operands.predicates if "P" in name else self.operands.registers
            if name in results:
                value, old = results[name], kept.get(name)
                if old is not None and active is not self.alive:
                    value = np.where(active, value, old)
                kept[name] = value
            if tainted or name not in results or name in self.unknown:
                taint = active & (name not in results)
                for lanes in tainted:
                    taint = taint | (lanes & active)
                self._taint(name, taint, active)

    def _taint(self, name: str, taint: Array, active: Array) -> None:
        lanes = taint
        if active is not self.alive and name in self.unknown:
            lanes = taint | (self.unknown[name] & ~active)
        if lanes.any():
            self.unknown[name] = lanes
        else:
            self.unknown.pop(name, None)

    def _check(self, instruction: Instruction, names: Iterable[str], active: Array) -> None:
        for name in names:
            if name in self.unknown and (self.unknown[name] & active).any():
                raise NotImplementedError(
                    f"{name} of {instruction.opcode} {', '.join(instruction.operands)} at "
                    f"{instruction.address:#x} depends on data, or on an instruction not followed"
                )

    def _request(self, k: int, instruction: Instruction, active: Array) -> None:
        if not active.any():
            return
        places, reads = self.memory[k]
        self._check(instruction, reads, active)
        found = [
            (scope, kind, *self._first(scope, place, instruction, active))
            for scope, kind, place in places
        ]
        lanes = self._number(active)
        slower = self._slower(instruction, found, active, lanes)
        for scope, kind, tensor, base, shift in found:
            more = slower if scope == "shared" else 0
            key = (scope, kind, tensor, instruction.width)
            entry = self.requests[(*key, base.number, shift, lanes, _bytes(more))]
            entry[0] += 1
            if entry[1] is None:
                first = base.first(shift, active)
                entry[1:] = first.reshape(-1, WARP), active.reshape(-1, WARP), more
        for name in self.steps[k][2]:
            self._taint(name, active, active)  # what it loads is data

    def _first(
        self, scope: str, place: Place, instruction: Instruction, active: Array
    ) -> tuple[int | None, Base, int]:
        """The number of the tensor, the lanes' addresses, and where in a line the least begins."""
        base, tensor = self._base(place.registers, active), None
        least, most = base.least + place.offset, base.most + place.offset
        if scope == "global":
            tensor = least // TENSOR - 1
            if not (most // TENSOR - 1 == tensor and 0 <= tensor < self.operands.arguments):
                raise NotImplementedError(
                    f"{instruction.opcode} at {instruction.address:#x} leaves its tensor"
                )
        return tensor, base, least % LINE

    def _base(self, registers: tuple[AddressPart, ...], active: Array) -> Base:
        """What registers add up to. Unrolled code asks for the same ones, with many offsets."""
        operands = self.operands
        arrays = [array for name, wide, _ in registers for array in operands.set_in(name, wide)]
        kept = self.bases.get(registers)
        if kept and kept[0] is active and all(map(operator.is_, kept[1], arrays)):
            return kept[2]
        total = np.zeros(len(active), S64)
        for name, wide, factor in registers:
            total += (operands.wide(name) if wide else operands.value(name)).astype(S64) * factor
        some = total[active]
        least, most = int(some.min()), int(some.max())
        relative = np.where(active, total - least, 0)
        base = Base(least, most, relative, self._number(relative))
        self.bases[registers] = (active, arrays, base)
        return base

    def _number(self, array: Array) -> int:
        """A number that arrays share only if they are equal, and of one type."""
        if self.numbered[0] is not array:
            key = (array.dtype, array.tobytes())
            self.numbered = (array, self.numbers.setdefault(key, len(self.numbers)))
        return self.numbered[1]

    def _slower(
        self, instruction: Instruction, found: list[Any], active: Array, lanes: int
    ) -> Array | int:
        """Wavefronts that cp.async needs beside those of its store, in each warp; 0 for others.

        A copy that goes through the L1 cache takes one for each line after the first. No document
        says so; it is what an H200 counts (tools/validate_access.py).
        """
        if len(found) < 2 or "BYPASS" in instruction.parts:
            return 0
        base, shift = next(where for scope, _, _, *where in found if scope == "global")
        key = (base.number, shift, lanes, instruction.width)
        if key not in self.slower:
            first = base.first(shift, active).reshape(-1, WARP)
            lines = sectors(first, active.reshape(-1, WARP), instruction.width, LINE)
            self.slower[key] = np.maximum(lines - 1, 0)
        return self.slower[key]


def _bytes(value: Array | int) -> bytes:
    return np.asarray(value).tobytes()


def _place(operand: str) -> Place:
    """The address in an operand such as [R2.64+UR4+-0x10] or [R7.X4+0x100]."""
    text = operand[operand.rindex("[") + 1 : operand.rindex("]")]
    registers, offset = [], 0
    for part in text.split("+"):
        name, _, suffix = part.partition(".")
        if not name.startswith(("R", "UR")):
            offset += int(name, 0)
            continue
        wide = suffix == "64" or (name.startswith("UR") and ".64" in text)
        registers.append((name, wide, int(suffix[1:]) if suffix.startswith("X") else 1))
    return Place(tuple(registers), offset)
