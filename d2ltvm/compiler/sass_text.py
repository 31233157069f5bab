"""The lines of a disassembly, taken apart: what `nvdisasm -c` prints, by kernels.

`nvdisasm -json` says the same, with neither addresses nor labels, in a second run of a third of a
second. The text is what readers have and what the chapters print, so that is read here too.
"""

import re
from dataclasses import dataclass, field

_SECTION = re.compile(r"^\.text\.\S+:$", flags=re.MULTILINE)
_LABEL = re.compile(r"^(\.L\w+):")
_LINE = re.compile(
    r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?)(U?P\w+) +)?([A-Z][\w.]*)(?: (.*?))?\s*(?:\(\*.*?\*\))?;"
)


@dataclass(frozen=True)
class Line:
    """One instruction.

    Attributes:
        address: where it stands, in bytes from the kernel's start.
        guard: (predicate, whether it is negated), or None.
        opcode: such as 'LDS.128'.
        operands: as text.
    """

    address: int
    guard: tuple[str, bool] | None
    opcode: str
    operands: tuple[str, ...]


@dataclass
class Section:
    """The code of one kernel: its lines, and the addresses of its labels."""

    lines: list[Line] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    def target(self, line: Line) -> int | None:
        """The address that a line's last operand names, or None."""
        return self.labels.get(line.operands[-1].strip("`()")) if line.operands else None


def sections(text: str) -> list[Section]:
    """The kernels of a disassembly, in their order."""
    return [_section(part) for part in _SECTION.split(text)[1:]]


def _section(text: str) -> Section:
    section, waiting = Section(), []
    for line in text.splitlines():
        if match := _LABEL.match(line):
            waiting.append(match[1])
        elif match := _LINE.match(line):
            address = int(match[1], 16)
            section.labels.update(dict.fromkeys(waiting, address))
            waiting = []
            guard = (match[3], bool(match[2])) if match[3] else None
            operands = tuple(o.strip() for o in (match[5] or "").split(",") if o.strip())
            section.lines.append(Line(address, guard, match[4], operands))
    return section
