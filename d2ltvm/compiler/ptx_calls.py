"""TVM's functions of one PTX instruction, taken apart: what a kernel in TIRx is made of.

Such a kernel calls `tvm_builtin_ptx_mbarrier_init_init_shared_b64(...)`, whose body, in the header,
is the assembler's text `mbarrier.init.shared.b64 [%0], %1;`. That is what a reader wants to see.
"""

import re
import textwrap

WIDTH = 80  # of a line; a longer instruction gets two, its name and its operands
# A function of the header: name, parameters, body.
FUNCTION = re.compile(
    r"^__forceinline__ __device__ [\w ]+ (tvm_builtin_\w+)\((.*?)\) \{\n(.*?)^\}", re.M | re.S
)
ASM = re.compile(r"asm volatile\((.*)\);", re.S)
OPERAND = re.compile(r'"[+=]?\w"\((\w+)\)')
PREDICATE = re.compile(r"\{ \.reg \.pred (\w+); setp\.ne\.b32 \1, (%\d+), 0; (.*?);? \}$")
TRY_WAIT_LOOP = re.compile(r"LAB_WAIT:\n(.*?);\n@(\w+) +bra\.uni DONE;")  # TVM's loop of try_wait
ADDRESS = re.compile(r"&\(*\(\((\w+)\*\)(\w+)\)\[(\d+)\]\)*")
BYTES = {"uint64_t": 8, "float": 4, "half": 2, "int": 4, "uint": 4, "double": 8}


def inlined(kernel: str, source: str) -> str:
    """The text of a kernel with the PTX of `source`'s header in the place of calls."""
    functions = {name: (names, body) for name, names, body in FUNCTION.findall(source)}
    if not functions:
        return kernel
    lines = []
    for line in kernel.replace("pool_buf_ptr", "pool").splitlines():
        if re.fullmatch(r" *\([^=;]*\);", line):  # a value that nobody needs
            continue
        text = line
        for name in reversed(re.findall(r"\btvm_builtin_\w+(?=\()", line)):  # the innermost first
            text = _replaced(text, name, *functions.get(name, ("", "")))
        lines += _broken(text)
    return "\n".join(lines)


def _replaced(line: str, name: str, names: str, body: str) -> str:
    """A line with what a function does in the place of its last call."""
    start = line.rindex(name)
    end = _closing(line, start + len(name))
    arguments = [_plain(part) for part in _parts(line[start + len(name) + 1 : end])]
    parameters = [part.split()[-1].lstrip("*&") for part in names.split(",")] if names else []
    if name.endswith("cvta_generic_to_shared"):
        new = arguments[0]
    elif found := ASM.search(body):
        new = _instruction(found[1], dict(zip(parameters, arguments, strict=False)))
    elif re.fullmatch(r"\s*[^;]*;\s*", body) and "return" not in body and not parameters:
        new = body.strip().rstrip(";")
    else:
        new = f"{re.sub('^tvm_builtin_(cuda_|ptx_)?', '', name)}({', '.join(arguments)})"
    return line[:start] + new + line[end + 1 :]


def _instruction(assembler: str, values: dict[str, str]) -> str:
    """An instruction of PTX with its operands; of the loop around `try_wait`, what it waits for."""
    text, _, operands = assembler.partition(" :")
    text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text)).replace("\\n", "\n")
    again = TRY_WAIT_LOOP.search(text)
    if again:
        text = again[1].rpartition(",")[0]  # without how long it may sleep
    elif predicate := PREDICATE.match(text):
        text = re.sub(rf"\b{predicate[1]}\b", predicate[2], predicate[3])
    named = OPERAND.findall(operands)

    def operand(found: re.Match[str]) -> str:
        name = named[int(found[1])]
        return values.get(name) or next(iter(values.values()))  # TVM's name for its first one

    text = re.sub(r"%(\d+)", operand, text.strip().rstrip(";"))
    return f"{text}  // until {again[2]}" if again else text


def _broken(line: str) -> list[str]:
    """A line, or an instruction that is too long for one: its name, and below it its operands."""
    text, comment, rest = line.partition("  // until ")
    if comment:
        line = f"{text};{comment}{rest.rstrip(';')}"
    margin = line[: len(line) - len(line.lstrip())]
    name, _, operands = line.strip().partition(" ")
    if len(line) <= WIDTH or not re.fullmatch(r"[a-z]\w*(\.[\w:]+)+", name):
        return [line]
    return [
        margin + name,
        *textwrap.wrap(
            operands, WIDTH, initial_indent=f"{margin}    ", subsequent_indent=f"{margin}    "
        ),
    ]


def _closing(text: str, opening: int) -> int:
    """Where the parenthesis ends that opens at a place."""
    depth = 0
    for k in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[k], 0)
        if not depth:
            return k
    return len(text)


def _parts(arguments: str) -> list[str]:
    """Arguments of a call, one by one."""
    parts, depth = [""], 0
    for sign in arguments:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(sign, 0)
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts if part.strip()]


def _plain(argument: str) -> str:
    """An argument without conversions: an address of shared memory as its byte."""
    if found := ADDRESS.search(argument):
        kind, name, index = found.groups()
        if kind in BYTES:
            return f"{name} + {BYTES[kind] * int(index)}"
    argument = re.sub(r"\(void\*\)|\(unsigned long long\)|\(uint\)", "", argument)
    while argument.startswith("(") and _closing(argument, 0) == len(argument) - 1:
        argument = argument[1:-1]
    return re.sub(r"^&\((\w+)\)$", r"&\1", argument)
