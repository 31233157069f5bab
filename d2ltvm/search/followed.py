"""One warp of a kernel, followed through its machine code: how often, and what waits for what.

The other judges take all loads of a round to be on their way together. The compiler decides that:
where a load stands behind a condition, it often makes a branch of it, and stores what was loaded
before it goes on; then each load waits for itself. And it decides what a thread has no registers
for. So this compiles a kernel, which needs no GPU, and reads what was made of it.

A warp does one instruction after the other. One whose operands are not there yet waits, and all
behind it wait too.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from d2ltvm.analysis import sass
from d2ltvm.analysis.sass import Instruction
from d2ltvm.analysis.sass_arithmetic import U32, Operands, compiled
from d2ltvm.analysis.sass_interpreter import PARAMETERS
from d2ltvm.compiler import cubin, lowering, nvrtc, sass_text
from d2ltvm.system import devices

ARCH = "sm_90"
FROM_L2, FROM_L1 = 251.0, 39.0  # cycles until a load has come. Source: gpu_in_numbers, latency, of
# 2**19 and of 2**13 elements (143 and 22 ns), at 1.755 GHz
# No record has these three; they are about what is published of Hopper and of GPUs before it.
FROM_SHARED = 29.0  # until a load from shared memory has come
PRODUCT = 33.0  # until a product of fragments is there
SPECIAL_CYCLES = 18.0  # of a special function, a conversion, what a thread asks about itself
ARITHMETIC_CYCLES = 4.0  # Source: gpu_in_numbers, fma_chains: one chain of one warp
CYCLES = {
    **{"LDG": FROM_L2, "LDL": FROM_L1, "LDS": FROM_SHARED, "LDSM": FROM_SHARED, "HMMA": PRODUCT},
    **dict.fromkeys(("MUFU", "S2R", "S2UR", "LDC", "ULDC", "I2F", "F2I"), SPECIAL_CYCLES),
}
MOST_STEPS = 400_000  # a thread is followed through so many instructions that branches depend on
_SLOT = re.compile(r"\[R1(?:\+(-?0x[0-9a-f]+))?\]$")


@dataclass(frozen=True)
class Followed:
    """What one warp of a kernel does, and how long it takes by itself.

    Attributes:
        registers: of a thread.
        local: bytes of a thread that are in memory, since there are no registers for them.
        issued: instructions.
        fragments: products of fragments, each of 16 x 8 x 16.
        shared, memory: loads and stores of shared memory, and of global memory.
        spilled: words that it loads and stores of what is in memory for want of registers.
        cycles: from its first instruction to its last, those in which it waits among them.
        far: likewise, if such words come from the L2 cache and not from L1.
    """

    registers: int
    local: int
    issued: int
    fragments: int
    shared: int
    memory: int
    spilled: int
    cycles: float
    far: float


@dataclass(frozen=True)
class GlobalLoad:
    """A load of global memory in the code of a kernel.

    Attributes:
        times: how often a warp does it.
        start, there: cycles along the code, in which each instruction stands once, until it starts
            and until its numbers are there.
    """

    times: int
    start: float
    there: float


def followed(sch: Any) -> tuple[Followed, ...]:
    """Compile a schedule for an H200, and follow one warp of each kernel.

    >>> (code,) = followed(d2ltvm.search.workload("matmul", 64).by_hand("cuda")["naive"]())
    >>> code.memory, code.local  # two loads for each of 64 products, and a store of the sum
    (129, 0)

    Raises:
        NotImplementedError: it takes too many branches, or one depends on what is not known.
    """
    code, launches = _compiled(sch)
    used, kernels = cubin.resources(code), _kernels(code)
    return tuple(
        Followed(
            registers=used[one.name].registers,
            local=used[one.name].local,
            **_followed(kernels[one.name], one),
        )
        for one in launches
    )


def loads(sch: Any) -> tuple[tuple[GlobalLoad, ...], ...]:
    """The loads of global memory in each kernel of a schedule, in the order of the code.

    >>> (found,) = loads(d2ltvm.search.workload("matmul", 64).by_hand("cuda")["naive"]())
    >>> sum(one.times for one in found)
    128

    Raises:
        NotImplementedError: it takes too many branches, or one depends on what is not known.
    """
    code, launches = _compiled(sch)
    kernels = _kernels(code)
    return tuple(_loads(kernels[one.name], one) for one in launches)


def _loads(steps: Sequence["Issued"], launch: Any) -> tuple[GlobalLoad, ...]:
    starts = itertools.accumulate(_waits(steps, CYCLES))
    each = zip(steps, _counts(steps, launch), starts, strict=True)
    return tuple(
        GlobalLoad(many, now - 1, now - 1 + FROM_L2)
        for step, many, now in each
        if step.name == "LDG"
    )


def _compiled(sch: Any) -> tuple[bytes, Any]:
    """A schedule's cubin and its launches."""
    found = lowering.lower(lowering.as_module(sch), devices.as_target(ARCH))
    return nvrtc.compile_once(found.source, ARCH), found.launches


def _kernels(code: bytes) -> dict[str, list["Issued"]]:
    """The instructions of each kernel, by its name."""
    text = cubin.disassemble(code)
    names = re.findall(r"^\.text\.(\S+):$", text, flags=re.MULTILINE)
    return {
        name: _steps(section) for name, section in zip(names, sass_text.sections(text), strict=True)
    }


@dataclass(frozen=True)
class Issued:
    """An instruction with what it reads and writes, spilled words among them, as bits of a number.

    Attributes:
        one, name: the instruction, and its opcode without suffixes.
        reads, writes: sets of names, as bits.
        goes: where the next one may stand.
        jump: where it jumps, or None.
    """

    one: Instruction
    name: str
    reads: int
    writes: int
    goes: tuple[int, ...]
    jump: int | None


def _steps(section: sass_text.Section) -> list[Issued]:
    numbers: dict[str, int] = {}

    def bits(names: Iterable[str]) -> int:
        return sum({1 << numbers.setdefault(n, len(numbers)) for n in names})

    lines = section.lines
    place, found = {line.address: k for k, line in enumerate(lines)}, []
    for k, line in enumerate(lines):
        name = line.opcode.partition(".")[0]
        target = section.target(line) if name == "BRA" else None
        one = Instruction(line.address, line.guard, line.opcode, line.operands, target)
        jump = None if target is None else place[target]
        reads, writes = _names(one)
        falls = name not in sass.JUMPS or one.guard or len(one.operands) > 1
        goes = [k + 1] if falls and k + 1 < len(lines) else []
        goes += [] if jump is None else [jump]
        found.append(Issued(one, name, bits(reads), bits(writes), tuple(goes), jump))
    return found


def _names(one: Instruction) -> tuple[set[str], set[str]]:
    """Registers, predicates and words of the stack that an instruction reads and writes."""
    name, at = one.name, one.operands
    if name == "BRA":  # its target is no operand
        asked = {at[0].removeprefix("!")} if len(at) > 1 else set()
        return (asked | ({one.guard[0]} if one.guard else set())) - {"PT", "UPT"}, set()
    reads, writes = set(one.reads()), set(one.writes())
    if name == "HMMA":  # 16 x 8 x 16: sums of four registers, factors of four and two
        writes = set(_row(at[0], 4))
        reads = {*_row(at[1], 4), *_row(at[2], 2), *_row(at[3], 4)}
    words = _words(one)
    if name in ("LDL", "STL"):
        value, slots = _row(at[0 if name == "LDL" else -1], words), _slots(one, words)
        reads.update(slots if name == "LDL" else value)
        writes = set(value if name == "LDL" else slots)
    elif name == "LDSM":
        writes = set(_row(at[0], int(one.parts[-1]) if one.parts[-1].isdigit() else 1))
    elif name in ("STS", "STG"):
        reads.update(_row(at[-1], words))
    if name in ("LDG", "STG"):  # addresses have 64 bits
        for register in re.findall(r"\[(R\d+)", " ".join(at)):
            reads.update(_row(register, 2))
    return reads - {"RZ"}, writes - {"RZ"}


def _words(one: Instruction) -> int:
    """Registers that a load or store moves; an access of less than four bytes takes one."""
    return max(1, one.width // 4)


def _row(operand: str, many: int) -> list[str]:
    """A register and those behind it."""
    found = re.match(r"[-~|]*(U?R)(?:(\d+)|Z)", operand)
    if not found or not found[2]:
        return ["RZ"] * many if found else []
    return [f"{found[1]}{int(found[2]) + k}" for k in range(many)]


def _slots(one: Instruction, words: int) -> list[str]:
    """Words of the stack at an address that is known; none elsewhere."""
    found = _SLOT.match(one.places[0])
    return [f"stack {int(found[1] or '0', 0) + 4 * k}" for k in range(words)] if found else []


def _deciding(steps: Sequence[Issued]) -> list[int]:
    """Instructions that branches depend on, and the branches."""
    live, changed = [0] * len(steps), True
    roots = [step.name in ("BRA", "EXIT") for step in steps]
    while changed:
        changed = False
        for k in reversed(range(len(steps))):
            step, after = steps[k], _after(steps, live, k)
            before = after if step.one.guard else after & ~step.writes
            if roots[k] or step.writes & after:
                before |= step.reads
            if before != live[k]:
                live[k], changed = before, True
    return [k for k, s in enumerate(steps) if roots[k] or s.writes & _after(steps, live, k)]


def _after(steps: Sequence[Issued], live: Sequence[int], k: int) -> int:
    found = 0
    for place in steps[k].goes:
        found |= live[place]
    return found


def _counts(steps: Sequence[Issued], launch: Any) -> list[int]:
    """How often a thread in the middle of the launch does each instruction.

    Raises:
        NotImplementedError: it takes too many branches, or one depends on what is not known.
    """
    kept = _deciding(steps)
    behind = np.searchsorted(kept, np.arange(len(steps) + 1))
    thread = _Thread(launch)
    changes, at, start = [0] * (len(steps) + 1), 0, 0

    def passed(last: int) -> None:
        changes[start] += 1
        changes[last + 1] -= 1

    for _ in range(MOST_STEPS):
        if behind[at] == len(kept):
            passed(len(steps) - 1)
            break
        k = kept[behind[at]]
        step, at = steps[k], k + 1
        if not thread.does(step):
            continue
        if step.name == "EXIT" or step.jump == k:
            passed(k)
            break
        if step.jump is not None:
            passed(k)
            at = start = step.jump
    else:
        raise NotImplementedError(f"{launch.name} has not ended after {MOST_STEPS:,} instructions")
    return np.cumsum(changes[:-1]).tolist()


class _Words(Operands):
    """Operands of which the most frequent are found at once: a register, or a number."""

    def __init__(self, *how: Any) -> None:
        super().__init__(*how)
        self.numbers: dict[str, Any] = {}

    def value(self, operand: str) -> Any:
        found = self.registers.get(operand)
        if found is None:
            found = self.numbers.get(operand)
        if found is None:
            found = super().value(operand)
            if operand[0] in "c0123456789":
                self.numbers[operand] = found
        return found


class _Thread:
    """The registers of one thread, in the middle of its block and of the launch."""

    def __init__(self, launch: Any) -> None:
        zero = np.zeros(1, U32)
        special = {"SR_CgaCtaId": zero, "SRZ": zero, "SR_LANEID": zero}
        for axis, block, grid in zip("XYZ", launch.block, launch.grid, strict=True):
            special[f"SR_TID.{axis}"] = np.array([(block - 1) // 2], U32)
            special[f"SR_CTAID.{axis}"] = np.array([grid // 2], U32)
        self.operands = _Words(special, PARAMETERS[ARCH[:4]], len(launch.args))
        self.name = launch.name
        self.steps: dict[int, Any] = {}
        self.stack: dict[str, Any] = {}

    def does(self, step: Issued) -> bool:
        """Do an instruction; whether its guard, and a branch's condition, hold.

        Raises:
            NotImplementedError: what it gives is not known here.
        """
        operands, one, name = self.operands, step.one, step.name
        if one.guard and not operands.predicate("!" * one.guard[1] + one.guard[0])[0]:
            return False
        if name == "BRA":
            return len(one.operands) == 1 or bool(operands.predicate(one.operands[0])[0])
        if name in ("LDL", "STL"):
            self._spill(one)
        elif step.writes:
            if one.address not in self.steps:
                self.steps[one.address] = compiled(one)
            made = self.steps[one.address]
            if made is None:
                raise self._unknown(one)
            for register, value in made(operands).items():
                kept = operands.predicates if "P" in register else operands.registers
                kept[register] = value
        return True

    def _spill(self, one: Instruction) -> None:
        words = _words(one)
        registers, slots = (
            _row(one.operands[0 if one.name == "LDL" else -1], words),
            _slots(one, words),
        )
        if one.name == "LDL" and not (slots and self.stack.keys() >= set(slots)):
            raise self._unknown(one)
        for register, slot in zip(registers, slots, strict=False):
            if one.name == "STL":
                self.stack[slot] = self.operands.value(register)
            else:
                self.operands.registers[register] = self.stack[slot]

    def _unknown(self, one: Instruction) -> NotImplementedError:
        return NotImplementedError(
            f"a branch of {self.name} depends on {one.opcode} at {one.address}"
        )


def _followed(steps: Sequence[Issued], launch: Any) -> dict[str, Any]:
    """What `Followed` says of a warp, by how often its threads do each instruction."""
    often = _counts(steps, launch)
    names = [step.name for step in steps]
    words = [_words(step.one) for step in steps]

    def total(some: Iterable[float], *kinds: str) -> Any:
        each = zip(often, names, some, strict=True)
        return sum(many * one for many, name, one in each if not kinds or name in kinds)

    ones = [1] * len(steps)
    return {
        "issued": total(ones),
        "fragments": total(ones, "HMMA"),
        "shared": total(ones, "LDS", "LDSM", "STS"),
        "memory": total(ones, "LDG", "STG", "LDGSTS"),
        "spilled": total(words, "LDL", "STL"),
        "cycles": total(_waits(steps, CYCLES)),
        "far": total(_waits(steps, {**CYCLES, "LDL": FROM_L2})),
    }


def _waits(steps: Sequence[Issued], takes: dict[str, float]) -> list[float]:
    """Cycles from one instruction to the next, along the code.

    Each waits for what it reads, then for its turn. What a loop's round leaves on its way for the
    next round is not waited for.
    """
    ready: dict[int, float] = {}  # when a register is there, by its bit
    now, found = 0.0, []
    for step in steps:
        begun = now
        now = max([now, *(ready[bit] for bit in _bits(step.reads) if bit in ready)]) + 1
        for bit in _bits(step.writes):
            ready[bit] = now - 1 + takes.get(step.name, ARITHMETIC_CYCLES)
        found.append(now - begun)
    return found


def _bits(number: int) -> Iterable[int]:
    while number:
        least = number & -number
        yield least
        number ^= least
