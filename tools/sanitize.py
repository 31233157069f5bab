"""Look for races and wrong accesses in the kernels for Hopper, with NVIDIA's compute-sanitizer.

    python tools/sanitize.py            on an H100 or H200 with compute-sanitizer: run and print
    D2LTVM_RECORD=1 python tools/sanitize.py          the same, and keep the record

The record is hopper/sanitizer: errors by tool. `python tools/sanitize.py run` runs the kernels
alone, which is what the sanitizer looks at.
"""

import functools
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import d2ltvm
from d2ltvm import hopper
from d2ltvm.errors import MissingError
from d2ltvm.hopper import float32, ring
from d2ltvm.system import devices

TOOLS = ("memcheck", "racecheck", "synccheck")
CONVS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((130, 72, 40, 4, 3, 1, 1), {"sms": 3}),
    ((128, 256, 64, 4, 3, 1, 2), {}),
    ((3, 64, 64, 9, 3, 1, 1), {"tile": (2, 8, 8)}),
    ((50, 256, 64, 3, 1, 0, 1), {"sms": 2}),  # results in two parts
    ((300, 64, 64, 4, 1, 0, 1), {"sms": 4, "on_demand": True}),
]
FLOAT32: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((130, 72, 40, 4, 3, 1, 1), {"sms": 3}),
    ((3, 128, 136, 6, 3, 1, 1), {}),
]
RINGS: list[Any] = [ring.stream, ring.stream_by_threads]
PRODUCTS = [(300, 264, 136), (1000, 512, 256)]


def programs() -> Iterator[Any]:
    """The kernels, at sizes that tiles do not divide, with several tiles a block."""
    for shape, options in CONVS:
        yield hopper.conv_nhwc(*shape, **options)
    for shape, options in FLOAT32:
        yield float32.conv_float32(*shape, **options)
    for sizes in PRODUCTS:
        yield hopper.matmul_nt(*sizes, sms=3)
    for kernel in RINGS:
        yield kernel(1000, rows=48, stages=3, laps=2, sms=3)


def run() -> None:
    """Run each of them once, on ones."""
    for program in programs():
        kernel = d2ltvm.build(program)
        kernel(*(np.ones(param.shape, param.dtype) for param in kernel.params))


def count_errors(program: str, tool: str) -> int:
    """Errors that a tool of compute-sanitizer, which is `program`, finds in the kernels."""
    command = [program, "--tool", tool, sys.executable, __file__, "run"]
    output = subprocess.run(command, capture_output=True, text=True).stdout
    found = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", output)
    if found is None:
        raise RuntimeError(f"{tool} gave no summary:\n{output[-2000:]}")
    return int(found[1])


def sanitize() -> dict[str, Any]:
    """Errors that each tool finds, as `d2ltvm.measure` takes them."""
    devices.need_hopper()
    program = shutil.which("compute-sanitizer")
    if program is None:
        raise MissingError("compute-sanitizer is not there", "everything else", "CUDA's toolkit")
    with ThreadPoolExecutor() as pool:  # side by side
        errors = list(pool.map(functools.partial(count_errors, program), TOOLS))
    return {
        "unit": "errors",
        "x": {"label": "tool", "values": list(TOOLS)},
        "series": {"kernels": errors},
        "notes": f"compute-sanitizer, {len(CONVS)} float16, {len(FLOAT32)} float32 convolutions, "
        f"{len(PRODUCTS)} products, {len(RINGS)} rings",
    }


def main() -> int:
    """Print the errors by tool. Returns the exit status: 1 where there are any."""
    record = d2ltvm.measure("hopper/sanitizer", sanitize)
    for tool in TOOLS:
        print(f"{tool:10} {record.at('kernels', tool):.0f} errors")
    print(record.caption)
    return int(any(record["kernels"]))


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        run()
    else:
        sys.exit(main())
