"""The processor of this machine, and a name for it where it is newer than PoCL.

PoCL 3.0, the newest on PyPI, asks its LLVM 14 for the processor's name. For one of a later year,
such as Zen 5, LLVM says 'generic', which its own compiler then refuses, so that no kernel compiles
(https://github.com/pocl/pocl/issues/1049). No option and no variable names another. So the name is
replaced where PoCL keeps it, by the level of x86-64 that the processor has.
"""

import ctypes
import itertools
import os
import re
import struct
from pathlib import Path
from typing import Any

REFUSED = b"generic"
FIRST_BYTES = 1024  # of PoCL's description of a device: both names are within
# Levels that LLVM knows, and what each has that those before it lack, as in /proc/cpuinfo. From the
# x86-64 psABI, https://gitlab.com/x86-psABIs/x86-64-ABI, table 3.1.
LEVELS = {
    "x86-64": set[str](),
    "x86-64-v2": {"cx16", "popcnt", "ssse3", "sse4_1", "sse4_2"},
    "x86-64-v3": {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "abm"},
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}
_kept: list[Any] = []  # names that PoCL points to


def level(flags: set[str]) -> str:
    """The highest level of x86-64 that a processor has.

    >>> level({"cx16", "popcnt", "ssse3", "sse4_1", "sse4_2", "avx"})
    'x86-64-v2'

    Args:
        flags: what it can do, as in /proc/cpuinfo.
    """
    has = itertools.takewhile(lambda name: LEVELS[name] <= flags, LEVELS)
    return list(has)[-1]


def cpuinfo(field: str) -> str:
    """What /proc/cpuinfo says of the first processor, such as its 'model name'; '' if nothing."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    found = re.search(rf"^{field}\s*:\s*(.+)", text, re.MULTILINE)
    return found[1] if found else ""


def name_for_pocl(address: int) -> str | None:
    """Give PoCL a name for a processor that it does not know.

    Args:
        address: of PoCL's description of a device, `pyopencl.Device.int_ptr`.

    Returns:
        The name that it has now; None where nothing had to be done, or where the description is not
        laid out as expected: the name stands behind that of the triple, 'x86_64-…'.
    """
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY)  # an error, where a read would be a crash
    except OSError:
        return None
    try:
        words = struct.unpack(f"<{FIRST_BYTES // 8}Q", os.pread(memory, FIRST_BYTES, address))
        for k, (triple, name) in enumerate(itertools.pairwise(words)):
            if _text(memory, name) == REFUSED and _text(memory, triple).startswith(b"x86_64-"):
                known = level(set(cpuinfo("flags").split()))
                _kept.append(ctypes.create_string_buffer(known.encode()))
                place = ctypes.c_uint64.from_address(address + 8 * (k + 1))
                place.value = ctypes.addressof(_kept[-1])
                return known
    except (OSError, struct.error):
        pass
    finally:
        os.close(memory)
    return None


def _text(memory: int, address: int) -> bytes:
    """The first characters at an address, up to a zero; none where nothing can be read."""
    if not 4096 <= address < 1 << 47:
        return b""
    try:
        return os.pread(memory, 16, address).split(b"\0")[0]
    except OSError:
        return b""
