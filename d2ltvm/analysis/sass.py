"""The instructions of a disassembly: operands, what each reads and writes, where branches go.

What an instruction does to registers is in `sass_arithmetic`. NVIDIA names its instructions in
"CUDA Binary Utilities", and says little more; what is needed of them here was tried against kernels
whose accesses are known.
"""

import re
from dataclasses import dataclass

from d2ltvm.compiler import sass_text

# What an instruction accesses, in the order of its operands with an address. LDGSTS is cp.async: it
# copies from global to shared memory without passing through a register.
MEMORY = {
    "LDG": (("global", "read"),),
    "STG": (("global", "write"),),
    "LDS": (("shared", "read"),),
    "LDSM": (("shared", "read"),),  # ldmatrix: a lane's address is that of a row of 16 bytes
    "STS": (("shared", "write"),),
    "LDGSTS": (("shared", "write"), ("global", "read")),
}
WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}

# Instructions that order threads and move no data.
SILENT = ("BAR", "BSSY", "BSYNC", "WARPSYNC", "NOP", "YIELD", "DEPBAR", "LDGDEPBAR", "MEMBAR")
JUMPS = ("BRA", "CALL", "EXIT")
# What touches memory in ways that are not followed here.
UNKNOWN_MEMORY = ("LD", "ST", "ATOM", "ATOMG", "ATOMS", "RED", "LDL", "STL", "UTMALDG")
UNKNOWN_JUMPS = ("BRX", "JMP", "RET", "BREAK", "KILL", "UBLKCP")

_REGISTER = re.compile(r"[-~|]*(U?R(?:Z|\d+))")
_PREDICATE = re.compile(r"!?(U?P(?:T|\d))$")


@dataclass(frozen=True)
class Instruction:
    """One line of a disassembly.

    Attributes:
        address: where it stands, in bytes from the kernel's start.
        guard: (predicate, whether it is negated), or None.
        opcode: such as 'LDS.128', and `parts`, the same split at the dots.
        operands: as text.
        target: address that it may jump to, or None.
    """

    address: int
    guard: tuple[str, bool] | None
    opcode: str
    operands: tuple[str, ...]
    target: int | None

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.opcode.split("."))

    @property
    def name(self) -> str:
        """The opcode without its suffixes."""
        return self.opcode.partition(".")[0]

    @property
    def width(self) -> int:
        """Bytes at a lane's address that a load or store moves."""
        if self.name == "LDSM":
            return 16
        return next((WIDTHS[part] for part in self.parts[1:] if part in WIDTHS), 4)

    def writes(self) -> frozenset[str]:
        """Names of the registers and predicates that it sets."""
        found: set[str] = set()
        for operand in self.operands[: self._results_operands()]:
            found.update(_predicates(operand))
            if match := _REGISTER.fullmatch(operand):
                found.update(_span(match[1], self._results()))
        return frozenset(n for n in found if n not in ("PT", "UPT", "RZ", "URZ"))

    def reads(self) -> frozenset[str]:
        """Names of the registers and predicates that it depends on."""
        found: set[str] = set()
        results = self._results_operands()
        for operand in self.operands[results:]:
            found.update(_predicates(operand))
            for match in re.finditer(r"U?R(?:Z|\d+)(\.64)?", operand):
                wide = match[1] or self._wide_source(operand)
                found.update(_span(match[0].removesuffix(".64"), 2 if wide else 1))
        if self.guard:
            found.add(self.guard[0])
        if self.opcode == "P2R":
            found.update(self.packed())
        return frozenset(n for n in found if n not in ("PT", "UPT", "RZ", "URZ"))

    def packed(self) -> dict[str, int]:
        """Of P2R, which packs predicates into a register: their names, by their bits."""
        mask = int(self.operands[-1], 0)
        return {f"P{bit}": bit for bit in range(7) if mask >> bit & 1}

    @property
    def places(self) -> tuple[str, ...]:
        """Of a load or store, the operands that are addresses."""
        return tuple(operand for operand in self.operands if "[" in operand)

    def address_reads(self) -> frozenset[str]:
        """Of a load or store, the registers that make up its addresses, and its guards."""
        guards = self.operands[-1:] if self.name == "LDGSTS" else ()
        return Instruction(self.address, self.guard, "NOP", self.places + guards, None).reads()

    def _results_operands(self) -> int:
        """How many operands, from the first, are results."""
        silent = (*SILENT, *JUMPS, "LDGSTS")
        if self.name.startswith("ST") or self.name in silent or not self.operands:
            return 0
        if self.name == "PLOP3":
            return 2
        # LOP3 may say whether a bit is left in a predicate before the register.
        if self.name in ("LOP3", "ULOP3") and _PREDICATE.match(self.operands[0]):
            return 2
        others = (k for k, o in enumerate(self.operands) if k and not _PREDICATE.match(o))
        return next(others, len(self.operands))

    def _results(self) -> int:
        """How many registers the result fills."""
        if self.name in ("LDG", "LDS", "LDSM", "LDC", "ULDC"):
            return max(1, self.width // 4)
        if self.name == "CS2R":
            return 1 if "32" in self.parts else 2
        if "WIDE" in self.parts or self.name in ("DADD", "DMUL", "DFMA"):
            return 2
        return 1

    def _wide_source(self, operand: str) -> bool:
        """Whether an operand is the 64-bit addend of a wide product, or a uniform address."""
        if "WIDE" in self.parts or self.opcode.startswith(("IMAD.HI", "UIMAD.HI")):
            return operand is self.operands[-1]
        return "[" in operand and operand.lstrip().startswith("UR")


def parse(text: str) -> list[Instruction]:
    """The instructions of the first kernel in the output of `d2ltvm.compiler.disassemble`.

    Raises:
        ValueError: there is none.
    """
    section = _first(text)
    return [_instruction(line, section) for line in section.lines]


def loops(text: str) -> list[list[str]]:
    """The opcodes of each loop of a disassembly, shortest first.

    >>> listing = d2ltvm.build(matmul_coalesced(2048, 2048, 2048), "sm_80").sass()
    >>> sum(opcode.startswith("FFMA") for opcode in loops(listing)[0]) > 0
    True

    A loop is what lies between a branch backwards and where it goes.

    Args:
        text: the output of `d2ltvm.compiler.disassemble`.

    Returns:
        A list of lists of str.
    """
    section = _first(text)
    branches = [line for line in section.lines if line.opcode.startswith("BRA")]
    jumps = [(section.target(line), line.address) for line in branches]
    bodies = [
        [line.opcode for line in section.lines if first <= line.address <= last]
        for first, last in jumps
        if first is not None and first < last
    ]
    return sorted(bodies, key=len)


def _first(text: str) -> sass_text.Section:
    sections = sass_text.sections(text)
    if not sections:
        raise ValueError("text holds no kernel; expected the output of d2ltvm.compiler.disassemble")
    return sections[0]


def _instruction(line: sass_text.Line, section: sass_text.Section) -> Instruction:
    target, opcode, operands = None, line.opcode, line.operands
    name = opcode.partition(".")[0]
    if name in ("LDG", "STG", "LDGSTS") and "E" in opcode.split(
        "."
    ):  # 64-bit addresses, on sm_75 unmarked
        shared = operands[: 1 if name == "LDGSTS" else 0]
        others = (re.sub(r"\[(R\d+)(?=[+\]])", r"[\1.64", o) for o in operands[len(shared) :])
        operands = (*shared, *others)
    if name == "BRA" or opcode == "CALL.REL.NOINC":  # a call that does not return: a jump
        target = section.target(line)
        if len(operands) > 1:  # BRA P0, `(.L) or BRA !P0, ...
            raise NotImplementedError(f"cannot follow {opcode} {', '.join(operands)}")
    unknown = name in UNKNOWN_MEMORY or name in UNKNOWN_JUMPS
    if unknown or (name in ("BRA", "CALL") and target is None):
        raise NotImplementedError(f"cannot follow {opcode} {', '.join(operands)}")
    return Instruction(line.address, line.guard, opcode, operands, target)


def needed(instructions: list[Instruction]) -> list[Instruction]:
    """Those that addresses, guards and branches depend on, and the loads and stores themselves.

    Everything else, which is all arithmetic on data, has no part in what memory is asked for.
    """
    roots = {
        k: i.address_reads() if i.name in MEMORY else i.reads()
        for k, i in enumerate(instructions)
        if i.name in MEMORY or i.name in JUMPS
    }
    follow = _successors(instructions)
    reads, writes = [i.reads() for i in instructions], [i.writes() for i in instructions]
    live: list[frozenset[str]] = [frozenset()] * len(instructions)
    changed = True
    while changed:
        changed = False
        for k in reversed(range(len(instructions))):
            after = frozenset[str]().union(*(live[s] for s in follow[k]))
            kept = k in roots or writes[k] & after
            before = after if instructions[k].guard else after - writes[k]
            before = before | (roots.get(k, reads[k]) if kept else frozenset())
            if before != live[k]:
                live[k], changed = before, True
    after_each = [frozenset[str]().union(*(live[s] for s in places)) for places in follow]
    return [i for k, i in enumerate(instructions) if k in roots or writes[k] & after_each[k]]


def _successors(instructions: list[Instruction]) -> list[list[int]]:
    place = {i.address: k for k, i in enumerate(instructions)}
    follow = []
    for k, i in enumerate(instructions):
        next_ones = []
        if i.name not in JUMPS or i.guard:
            next_ones.append(k + 1)
        if i.target is not None:
            next_ones.append(place[i.target])
        follow.append([s for s in next_ones if s < len(instructions)])
    return follow


def _predicates(operand: str) -> set[str]:
    match = _PREDICATE.match(operand)
    return {match[1]} if match else set()


def _span(name: str, many: int) -> set[str]:
    """A register and those behind it."""
    if name.endswith("Z"):
        return {name}
    kind = name.rstrip("0123456789")
    number = name.removeprefix(kind)
    return {f"{kind}{int(number) + k}" for k in range(many)}
