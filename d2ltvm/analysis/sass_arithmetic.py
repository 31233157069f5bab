"""What each instruction of address arithmetic does, on arrays with an entry for each thread."""

import operator
import re
from collections.abc import Callable

import numpy as np

from d2ltvm.analysis import sass
from d2ltvm.analysis.coalescing import Array
from d2ltvm.analysis.sass import Instruction

U32, U64, S64 = np.uint32, np.uint64, np.int64
Names = list[str]  # registers, predicates and other operands
Found = dict[str, Array]  # results by register or predicate
TENSOR = 2**40  # bytes from one tensor's made-up address to the next one's


def next_register(register: str) -> str:
    """The register after one, with which it makes 64 bits."""
    number = register.lstrip("UR")
    return f"{register.removesuffix(number)}{int(number) + 1}" if number.isdigit() else register


class Operands:
    """What the operands of instructions hold, in each thread.

    >>> operands = Operands({"SRZ": np.zeros(2, U32)}, parameters=0x210, arguments=1)
    >>> operands.registers["R0"] = np.array([7, 9], U32)
    >>> operands.value("-R0").view(np.int32), hex(operands.wide("c[0x0][0x210]")[0])
    (array([-7, -9], dtype=int32), '0x10000000000')

    Args:
        special: arrays by the names of registers that nothing writes, "SRZ" among them.
        parameters: where arguments begin in constant bank 0.
        arguments: of the launch, tensors all.
    """

    def __init__(self, special: Found, parameters: int, arguments: int) -> None:
        self.special, self.parameters, self.arguments = special, parameters, arguments
        self.zero = special["SRZ"]
        self.registers: Found = {}
        self.predicates: Found = {}

    def set_in(self, name: str, wide: bool) -> list[Array | None]:
        """The array that a register holds, and where 64 bits are meant the next one's; or None."""
        names = (name, next_register(name)) if wide else (name,)
        return [self.registers.get(each) for each in names]

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
        if not 0 <= number < self.arguments:
            return self.zero  # of the launch itself, such as the stack's address
        word = (number + 1) * TENSOR >> (32 if high else 0)
        return np.full(len(self.zero), word & 0xFFFFFFFF, U32)

    def wide(self, operand: str) -> Array:
        """The 64 bits of a register and the next one, of a constant, or of a number."""
        operand = operand.removesuffix(".reuse")
        if operand in ("RZ", "URZ"):
            return self.zero.astype(U64)
        if match := re.fullmatch(r"(U?R\d+)(?:\.64)?", operand):
            low, high = self.value(match[1]), self.value(next_register(match[1]))
        elif operand.startswith("c["):
            at = int(operand[operand.rindex("[") + 1 : -1], 0)
            low, high = self._constant(operand), self._constant(f"c[0x0][{at + 4:#x}]")
        else:
            return np.full(len(self.zero), int(operand, 0) & 0xFFFFFFFFFFFFFFFF, U64)
        return low.astype(U64) | (high.astype(U64) << U64(32))

    def predicate(self, operand: str) -> Array:
        """A predicate in each thread, or its opposite."""
        name = operand.removeprefix("!")
        value = np.ones(len(self.zero), bool)
        if name not in ("PT", "UPT"):
            value = self.predicates.get(name, ~value)
        return ~value if operand.startswith("!") else value


def _signed(value: Array) -> Array:
    return value.astype(U32).view(np.int32).astype(S64)


def compiled(i: Instruction) -> Callable[[Operands], Found] | None:
    """A function of the operands that gives an instruction's results by register, or None."""
    make = _INSTRUCTIONS.get(i.name)
    if make is None or i.name in sass.JUMPS or i.name in sass.MEMORY:
        return None
    results, sources, carries = _sorted_operands(i)
    return lambda operands: make(operands, i, results, sources, carries)


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
        next_register(name): (value >> U64(32)).astype(U32),
    }


def _move(m: Operands, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    return _named(results, m.value(sources[0]))


def _special(m: Operands, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    if sources[0] not in m.special:
        return {}
    value = m.special[sources[0]]
    if i.name == "CS2R" and "32" not in i.parts:
        return _pair(results[0], value.astype(U64))
    return _named(results, value)


def _load_constant(
    m: Operands, i: Instruction, results: Names, sources: Names, carries: Names
) -> Found:
    if i.width == 8:
        return _pair(results[0], m.wide(sources[0]))
    return _named(results, m.value(sources[0]))


def _multiply(m: Operands, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    a, b, c = sources
    signed = "U32" not in i.parts
    if "WIDE" in i.parts:
        x, y = (_signed(m.value(s)) if signed else m.value(s).astype(S64) for s in (a, b))
        return _pair(results[0], (x * y).astype(U64) + m.wide(c))
    if "HI" in i.parts:  # of the same 64 bits
        kind = S64 if signed else U64
        x, y = ((_signed(m.value(s)) if signed else m.value(s)).astype(kind) for s in (a, b))
        total = (x * y).astype(U64) + m.wide(c)
        return _named(results, total.view(kind) >> kind(32))
    total = m.value(a).astype(U64) * m.value(b).astype(U64) + m.value(c).astype(U64)
    for carry in carries:
        total = total + m.predicate(carry).astype(U64)
    return _named(results, total & U64(0xFFFFFFFF))


def _add(m: Operands, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    total = m.zero.astype(U64)
    for source in sources:
        if source.startswith("-"):  # as complement and one, which is how the carry comes out
            total = total + (~m.value(source[1:])).astype(U64) + U64(1)
        else:
            total = total + m.value(source).astype(U64)
    for carry in carries:
        total = total + m.predicate(carry).astype(U64)
    if len(results) > 2:
        return {}  # two carries
    return _named(results, total & U64(0xFFFFFFFF), (total >> U64(32)) > 0)


def _shift_and_add(
    m: Operands, i: Instruction, results: Names, sources: Names, carries: Names
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
        total = total + m.predicate(carry).astype(U64)
    return _named(results, total & U64(0xFFFFFFFF), (total >> U64(32)) > 0)


def _shift(m: Operands, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
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


def _logic(m: Operands, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
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


def _compare(m: Operands, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    if "EX" in i.parts or len(carries) != 1:
        return {}
    a, b = (m.value(s).astype(S64) if "U32" in i.parts else _signed(m.value(s)) for s in sources)
    met = next(_COMPARE[p] for p in i.parts if p in _COMPARE)(a, b)
    other = m.predicate(carries[0])
    join = next(_JOIN[p] for p in i.parts if p in _JOIN)
    found = {results[0]: join(met, other)}
    if len(results) > 1:
        found[results[1]] = join(~met, other)
    return found


def _predicate_logic(
    m: Operands, i: Instruction, results: Names, sources: Names, carries: Names
) -> Found:
    *operands, table = i.operands[2:6]
    total = _looked_up(table, [m.predicate(operand) for operand in operands])
    return {i.operands[0]: total} if i.operands[1] in ("PT", "UPT") else {}


def _pack(m: Operands, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    if i.opcode != "P2R":
        return {}
    register, mask = i.operands[2:]
    total = m.value(register) & ~U32(int(mask, 0))
    for name, bit in i.packed().items():
        total = total | (m.predicate(name).astype(U32) << U32(bit))
    return {i.operands[0]: total}


def _select(m: Operands, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    a, b = map(m.value, sources)
    return _named(results, np.where(m.predicate(carries[0]), a, b))


def _least(m: Operands, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
    signed = "U32" not in i.parts
    a, b = (_signed(m.value(s)) if signed else m.value(s).astype(S64) for s in sources)
    least = np.where(m.predicate(carries[0]), np.minimum(a, b), np.maximum(a, b))
    return _named(results, least & 0xFFFFFFFF)


def _permute(m: Operands, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
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


def _halves(m: Operands, i: Instruction, results: Names, sources: Names, carries: Names) -> Found:
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
