"""How long a kernel's multiply-adds wait for their operands: the two banks of the register file.

The rule is read off measurements, and no document of NVIDIA's has it: registers with an even number
are in one bank and those with an odd number in the other; a bank gives a warp one register a cycle;
an operand that the multiply-add before has kept, marked `.reuse` in the machine code, is not read
again. A multiply-add of three registers then takes two cycles where two of those it has to read are
in one bank. On GPUs with 64 lanes an SM it takes two cycles in any case.

Source: Huerta, Abaie Shoushtary, Cruz and González, "Analyzing Modern NVIDIA GPU cores", 2025, for
two banks with one read a cycle each; and measured: matmul/register_banks.
"""

import re
from dataclasses import dataclass

from d2ltvm.compiler import cubin, sass_text
from d2ltvm.compiler.sass_text import Line, Section

_REGISTER = re.compile(r"-?\|?(R\d+)\|?(\.reuse)?$")


@dataclass(frozen=True)
class Loop:
    """The loop of a kernel that has most of its multiply-adds: what one round takes of a warp.

    Attributes:
        instructions: of all kinds.
        multiply_adds: FFMA among them.
        waits: cycles that these wait for operands.
    """

    instructions: int
    multiply_adds: int
    waits: int

    @property
    def share(self) -> float:
        """The part of the cycles in which a multiply-add starts, if nothing else is waited for."""
        return self.multiply_adds / (self.instructions + self.waits)


def main_loop(code: bytes | str) -> Loop:
    """The loop of a kernel with most multiply-adds.

    >>> main_loop(d2ltvm.build(d2ltvm.schedules.matmul_warps(512, 512, 512), "sm_90").cubin())
    Loop(instructions=2219, multiply_adds=2048, waits=...)

    Args:
        code: a cubin with one kernel, or its disassembly.

    Raises:
        ValueError: there are several kernels, or no loop of it multiplies.
    """
    sections = sass_text.sections(code if isinstance(code, str) else cubin.disassemble(code))
    if len(sections) != 1:
        raise ValueError(f"code has {len(sections)} kernels; expected one")
    loops = [_counted(lines) for lines in _loops(sections[0])]
    found = max(loops, key=lambda loop: (loop.multiply_adds, -loop.instructions), default=None)
    if found is None or not found.multiply_adds:
        raise ValueError("code has no loop with FFMA in it; expected a kernel that multiplies")
    return found


def _loops(section: Section) -> list[list[Line]]:
    """The lines from where a branch goes back to up to that branch, for each branch."""
    found = []
    for line in section.lines:
        target = section.target(line) if line.opcode.startswith("BRA") else None
        if target is not None and target < line.address:
            found.append([k for k in section.lines if target <= k.address <= line.address])
    return found


def _counted(lines: list[Line]) -> Loop:
    multiply_adds, waits = 0, 0
    kept: dict[int, str] = {}  # what the instruction before has kept, by place
    for line in lines:
        if not line.opcode.startswith("FFMA"):
            kept = {}
            continue
        operands = {k: _REGISTER.match(text) for k, text in enumerate(line.operands[1:])}
        places = {k: (match[1], match[2]) for k, match in operands.items() if match}
        read = {name for k, (name, _) in places.items() if kept.get(k) != name}
        odd = sum(int(name[1:]) % 2 for name in read)
        multiply_adds += 1
        waits += max(0, max(odd, len(read) - odd) - 1)
        kept = {k: name for k, (name, reuse) in places.items() if reuse}
    return Loop(len(lines), multiply_adds, waits)
