"""How many threads TVM and MXNet start on the processor."""

import os
from pathlib import Path


def cores(folder: str | Path = "/sys/devices/system/cpu") -> int:
    """Processor cores that this process may run on; hardware threads of one core count once.

    Args:
        folder: where Linux says which hardware threads share a core.

    Returns:
        Their number, an int.
    """
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    found: set[str | int] = set()
    for cpu in os.sched_getaffinity(0):
        try:
            found.add(_siblings(folder, cpu))
        except OSError:
            found.add(cpu)
    return len(found)


def use_all_cores() -> None:
    """Let TVM and OpenMP, which MXNet uses, start a thread for each core, unless told otherwise.

    Both take half of what the system calls processors, in the belief that two of them are one core.
    Of a virtual machine's processors that is often wrong. They read it when their threads start,
    and not later: `build` says it before a kernel for 'llvm' is compiled, and `libraries.mxnet`
    before the import.
    """
    number = str(cores())
    for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, number)


def _siblings(folder: str | Path, cpu: int) -> str:
    """Which hardware threads share the core of one, as Linux says it."""
    with open(f"{folder}/cpu{cpu}/topology/thread_siblings_list") as file:
        return file.read()
