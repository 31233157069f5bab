"""Runs the address arithmetic of a kernel's machine code, for many threads at once.

Which accesses a compiler joins, keeps in registers or drops is seen in its machine code and nowhere
else. There each address is worked out by a few dozen kinds of integer instructions. They are
executed here on NumPy arrays with an entry for each thread; arithmetic on data is left out. Neither
a GPU nor data is needed, since no address depends on data; where one does, that is an error.
"""

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from d2ltvm.analysis import sass
from d2ltvm.analysis.coalescing import LINE, WARP, Array, sectors
from d2ltvm.analysis.sass import Instruction
from d2ltvm.compiler.launches import Launch

U32, U64, S64 = np.uint32, np.uint64, np.int64
# Where a kernel's arguments begin in constant bank 0, by the beginning of the architecture's name.
PARAMETERS = {"sm_7": 0x160, "sm_8": 0x160, "sm_9": 0x210}
Names = list[str]  # registers, predicates and other operands
Found = dict[str, Array]  # results by register or predicate
Part = tuple[str, bool, int]  # of an address: a register, whether it has 64 bits, and its factor

TENSOR = 2**40  # bytes from one tensor's made-up address to the next one's
# An instruction takes about as long as its work on 5,000 lanes. What is done at most is a matter of
# seconds: 200,000 instructions of a block.
STEP, MOST_WORK = 5000, 10**9


class Place(NamedTuple):
    """The address in an operand: registers, and a constant offset in bytes."""

    registers: tuple[Part, ...]
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
        self.steps = [(_compiled(i), i.reads(), i.writes()) for i in instructions]
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
        self.parameters, self.arguments = PARAMETERS[family], launch.args
        threads = int(np.prod(launch.block))
        padded = -(-threads // WARP) * WARP
        lane = np.arange(padded)
        self.alive = np.tile(lane < threads, len(blocks))
        laneid = np.tile(lane % WARP, len(blocks)).astype(U32)
        self.zero, self.nobody = np.zeros(len(self.alive), U32), np.zeros(len(self.alive), bool)
        self.special = {"SR_CgaCtaId": self.zero, "SRZ": self.zero, "SR_LANEID": laneid}
        for k, axis in enumerate("XYZ"):
            thread, lane = lane % launch.block[k], lane // launch.block[k]
            self.special[f"SR_TID.{axis}"] = np.tile(thread, len(blocks)).astype(U32)
            self.special[f"SR_CTAID.{axis}"] = np.repeat(blocks[:, k], padded).astype(U32)
        self.registers: Found = {}
        self.predicates: Found = {}
        self.unknown: Found = {}  # lanes in which a register holds data, by register
        self.requests: dict[Any, list[Any]] = defaultdict(lambda: [0, None, None, None])
        # What a loop, or code that is unrolled, asks for again; see `_base`, `_number`, `_slower`.
        self.bases: dict[tuple[Part, ...], tuple[Array, list[Array | None], Base]] = {}
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
            active = here & (self._predicate(name) ^ negated)
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
        results = {} if step is None else step(self)
        for name in writes:
            kept = self.predicates if "P" in name else self.registers
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
            if not (most // TENSOR - 1 == tensor and 0 <= tensor < len(self.arguments)):
                raise NotImplementedError(
                    f"{instruction.opcode} at {instruction.address:#x} leaves its tensor"
                )
        return tensor, base, least % LINE

    def _base(self, registers: tuple[Part, ...], active: Array) -> Base:
        """What registers add up to. Unrolled code asks for the same ones, with many offsets."""
        arrays = [self.registers.get(name) for name, _, _ in registers]
        arrays += [self.registers.get(_next(name)) for name, wide, _ in registers if wide]
        kept = self.bases.get(registers)
        if kept and kept[0] is active and all(map(operator.is_, kept[1], arrays)):
            return kept[2]
        total = np.zeros(len(self.zero), S64)
        for name, wide, factor in registers:
            total += (self._wide(name) if wide else self.value(name)).astype(S64) * factor
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

    def value(self, operand: str) -> Array:
        """An operand's 32 bits in each thread."""
        operand = operand.removesuffix(".reuse")
        if operand.startswith("-"):
            return (U32(0) - self.value(operand[1:])).astype(U32)
        if operand.startswith("~"):
            return ~self.value(operand[1:])
        name = operand.partition(".")[0]
        if name in ("RZ", "URZ"):
            return self.zero
        if name.startswith(("R", "UR")) and name in self.registers:
            return self.registers[name]
        if name.startswith(("R", "UR")):
            return self.zero  # never set; in `unknown`, should it matter
        if operand.startswith("c["):
            return self._constant(operand)
        return np.full(len(self.zero), int(operand, 0) & 0xFFFFFFFF, U32)

    def _constant(self, operand: str) -> Array:
        at = int(operand[operand.rindex("[") + 1 : -1], 0)
        number, high = divmod(at - self.parameters, 8)
        if not 0 <= number < len(self.arguments):
            return self.zero  # of the launch itself, such as the stack's address
        word = (number + 1) * TENSOR >> (32 if high else 0)
        return np.full(len(self.zero), word & 0xFFFFFFFF, U32)

    def _wide(self, operand: str) -> Array:
        """The 64 bits of a register and the next one, of a constant, or of a number."""
        operand = operand.removesuffix(".reuse")
        if operand in ("RZ", "URZ"):
            return self.zero.astype(U64)
        if match := re.fullmatch(r"(U?R\d+)(?:\.64)?", operand):
            low, high = self.value(match[1]), self.value(_next(match[1]))
        elif operand.startswith("c["):
            at = int(operand[operand.rindex("[") + 1 : -1], 0)
            low, high = self._constant(operand), self._constant(f"c[0x0][{at + 4:#x}]")
        else:
            return np.full(len(self.zero), int(operand, 0) & 0xFFFFFFFFFFFFFFFF, U64)
        return low.astype(U64) | (high.astype(U64) << U64(32))

    def _predicate(self, operand: str) -> Array:
        name = operand.removeprefix("!")
        value = np.ones(len(self.zero), bool)
        if name not in ("PT", "UPT"):
            value = self.predicates.get(name, ~value)
        return ~value if operand.startswith("!") else value


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


def _next(register: str) -> str:
    """The register after one, with which it makes 64 bits."""
    number = register.lstrip("UR")
    return f"{register.removesuffix(number)}{int(number) + 1}" if number.isdigit() else register


def _signed(value: Array) -> Array:
    return value.astype(U32).view(np.int32).astype(S64)


def _compiled(i: Instruction) -> Callable[[Machine], Found] | None:
    """A function of the machine that gives an instruction's results by register, or None."""
    make = _INSTRUCTIONS.get(i.name)
    if make is None or i.name in sass.JUMPS or i.name in sass.MEMORY:
        return None
    results, sources, carries = _sorted_operands(i)
    return lambda machine: make(machine, i, results, sources, carries)


def _sorted_operands(i: Instruction) -> tuple[Names, Names, Names]:
    """Operands as results (registers and predicates), sources, and predicates that follow them."""
    results, rest = [i.operands[0]], list(i.operands[1:])
    while rest and re.fullmatch(r"U?P(T|\d)", rest[0]) and not i.name.endswith("SEL"):
        results.append(rest.pop(0))
    carries: Names = []
    while rest and re.fullmatch(r"!?U?P(T|\d)", rest[-1]):
        carries.insert(0, rest.pop())
    return results, rest, carries


def _named(results: Names, value: Array, carry: Array | None = None) -> Found:
    """Results by name: the register, and the first predicate, which takes the carry."""
    found = {results[0]: value.astype(U32)}
    if carry is not None and len(results) > 1:
        found[results[1]] = carry
    return found


def _pair(name: str, value: Array) -> Found:
    return {
        name: (value & U64(0xFFFFFFFF)).astype(U32),
        _next(name): (value >> U64(32)).astype(U32),
    }


def _move(m: Machine, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    return _named(results, m.value(sources[0]))


def _special(m: Machine, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    if sources[0] not in m.special:
        return {}
    value = m.special[sources[0]]
    if i.name == "CS2R" and "32" not in i.parts:
        return _pair(results[0], value.astype(U64))
    return _named(results, value)


def _load_constant(
    m: Machine, i: Instruction, results: Names, sources: Names, carries: Names
) -> Found:
    if i.width == 8:
        return _pair(results[0], m._wide(sources[0]))
    return _named(results, m.value(sources[0]))


def _multiply(m: Machine, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    a, b, c = sources
    signed = "U32" not in i.parts
    if "WIDE" in i.parts:
        x, y = (_signed(m.value(s)) if signed else m.value(s).astype(S64) for s in (a, b))
        return _pair(results[0], (x * y).astype(U64) + m._wide(c))
    if "HI" in i.parts:  # of the same 64 bits
        kind = S64 if signed else U64
        x, y = ((_signed(m.value(s)) if signed else m.value(s)).astype(kind) for s in (a, b))
        total = (x * y).astype(U64) + m._wide(c)
        return _named(results, total.view(kind) >> kind(32))
    total = m.value(a).astype(U64) * m.value(b).astype(U64) + m.value(c).astype(U64)
    for carry in carries:
        total = total + m._predicate(carry).astype(U64)
    return _named(results, total & U64(0xFFFFFFFF))


def _add(m: Machine, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    total = m.zero.astype(U64)
    for source in sources:
        if source.startswith("-"):  # as complement and one, which is how the carry comes out
            total = total + (~m.value(source[1:])).astype(U64) + U64(1)
        else:
            total = total + m.value(source).astype(U64)
    for carry in carries:
        total = total + m._predicate(carry).astype(U64)
    if len(results) > 2:
        return {}  # two carries
    return _named(results, total & U64(0xFFFFFFFF), (total >> U64(32)) > 0)


def _shift_and_add(
    m: Machine, i: Instruction, results: Names, sources: Names, carries: Names
) -> Found:
    a, b, *others = sources
    shift = U64(int(others[-1], 0))
    if a.startswith("-"):
        return {}
    low = m.value(a).astype(U64)
    if "HI" not in i.parts:
        total = ((low << shift) & U64(0xFFFFFFFF)) + m.value(b).astype(U64)
        return _named(results, total & U64(0xFFFFFFFF), (total >> U64(32)) > 0)
    wide = _signed(m.value(a)).astype(U64)
    if "SX32" not in i.parts:
        wide = low | (m.value(others[0]).astype(U64) << U64(32))
    total = ((wide << shift) >> U64(32)) + m.value(b).astype(U64)
    for carry in carries:
        total = total + m._predicate(carry).astype(U64)
    return _named(results, total & U64(0xFFFFFFFF), (total >> U64(32)) > 0)


def _shift(m: Machine, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    low, by, high = sources
    shift, signed = m.value(by).astype(U64) & U64(63), "S32" in i.parts or "S64" in i.parts
    wide = m.value(low).astype(U64) | (m.value(high).astype(U64) << U64(32))
    if "L" in i.parts:
        wide = wide << shift
    elif signed:
        wide = (wide.view(S64) >> shift.astype(S64)).view(U64)
    else:
        wide = wide >> shift
    return _named(results, (wide >> U64(32)) if "HI" in i.parts else wide & U64(0xFFFFFFFF))


def _logic(m: Machine, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    *register, a, b, c, table = sources
    value = _looked_up(table, [m.value(s) for s in (a, b, c)])
    if not register:
        return _named(results, value)
    # With a predicate before the register: whether any bit is left.
    if "PAND" in i.parts or (carries != ["!PT"] and carries != ["!UPT"]):
        return {}
    return {results[0]: value != 0, register[0]: value.astype(U32)}


def _looked_up(table: str, values: list[Array]) -> Array:
    """Bit by bit, what the table of eight bits has for the bits of three values."""
    total = np.zeros_like(values[0])
    for case in range(8):
        if int(table, 0) >> case & 1:
            a, b, c = (v if case & bit else ~v for v, bit in zip(values, (4, 2, 1), strict=True))
            total |= a & b & c
    return total


_COMPARE = {
    "LT": operator.lt, "LE": operator.le, "GT": operator.gt,
    "GE": operator.ge, "EQ": operator.eq, "NE": operator.ne,
}  # fmt: skip
_JOIN = {"AND": operator.and_, "OR": operator.or_, "XOR": operator.xor}


def _compare(m: Machine, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    if "EX" in i.parts or len(carries) != 1:
        return {}
    a, b = (m.value(s).astype(S64) if "U32" in i.parts else _signed(m.value(s)) for s in sources)
    met = next(_COMPARE[p] for p in i.parts if p in _COMPARE)(a, b)
    other = m._predicate(carries[0])
    join = next(_JOIN[p] for p in i.parts if p in _JOIN)
    found = {results[0]: join(met, other)}
    if len(results) > 1:
        found[results[1]] = join(~met, other)
    return found


def _predicate_logic(
    m: Machine, i: Instruction, results: Names, sources: Names, carries: Names
) -> Found:
    *operands, table = i.operands[2:6]
    total = _looked_up(table, [m._predicate(operand) for operand in operands])
    return {i.operands[0]: total} if i.operands[1] in ("PT", "UPT") else {}


def _pack(m: Machine, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    if i.opcode != "P2R":
        return {}
    register, mask = i.operands[2:]
    total = m.value(register) & ~U32(int(mask, 0))
    for name, bit in i.packed().items():
        total = total | (m._predicate(name).astype(U32) << U32(bit))
    return {i.operands[0]: total}


def _select(m: Machine, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    a, b = map(m.value, sources)
    return _named(results, np.where(m._predicate(carries[0]), a, b))


def _least(m: Machine, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    signed = "U32" not in i.parts
    a, b = (_signed(m.value(s)) if signed else m.value(s).astype(S64) for s in sources)
    least = np.where(m._predicate(carries[0]), np.minimum(a, b), np.maximum(a, b))
    return _named(results, least & 0xFFFFFFFF)


def _permute(m: Machine, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    """PRMT: each byte of the result is one of the eight bytes of two registers, by a digit."""
    low, digits, high = sources
    if len(i.parts) > 1 or not digits.startswith("0x"):
        return {}
    both = m.value(low).astype(U64) | (m.value(high).astype(U64) << U64(32))
    total = np.zeros_like(both)
    for k in range(4):
        digit = int(digits, 0) >> 4 * k & 0xF
        byte = both >> U64(8 * (digit & 7)) & U64(0xFF)
        if digit > 7:  # its sign, eight times
            byte = (byte >> U64(7)) * U64(0xFF)
        total |= byte << U64(8 * k)
    return _named(results, total)


def _halves(m: Machine, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    """HFMA2 with a product of zeros puts two float16 numbers into a register: a constant."""
    if not all(s.lstrip("-") == "RZ" for s in sources[:2]):
        return {}
    high, low = (int(np.float16(s).view(np.uint16)) for s in sources[2:])
    return _named(results, np.full(len(m.zero), high << 16 | low, U32))


_INSTRUCTIONS = {
    "MOV": _move, "UMOV": _move, "S2R": _special, "S2UR": _special, "CS2R": _special,
    "LDC": _load_constant, "ULDC": _load_constant, "IMAD": _multiply, "UIMAD": _multiply,
    "IADD3": _add, "UIADD3": _add, "VIADD": _add, "LEA": _shift_and_add, "ULEA": _shift_and_add,
    "SHF": _shift, "USHF": _shift, "LOP3": _logic, "ULOP3": _logic, "ISETP": _compare,
    "UISETP": _compare, "PLOP3": _predicate_logic, "SEL": _select, "USEL": _select,
    "IMNMX": _least, "VIMNMX": _least, "HFMA2": _halves, "PRMT": _permute,
    "P2R": _pack,
}  # fmt: skip
