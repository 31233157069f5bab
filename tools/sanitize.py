"""Look for races and wrong accesses in the kernels for Hopper, with NVIDIA's compute-sanitizer.

    python tools/sanitize.py            on an H100 or H200 with compute-sanitizer: run and print
    python tools/sanitize.py any_shape/sanitizer      the same, of this record alone
    D2LTVM_RECORD=1 python tools/sanitize.py          the same, and keep the records

The records are hopper/sanitizer and any_shape/sanitizer, errors by tool in the kernels of the book
and in those for any shape, and hopper/racecheck: what racecheck finds in kernels that lack a
barrier, a wait or a fence, beside the whole ones. The sanitizer looks at `python tools/sanitize.py
run NAME`, the kernels of a record alone, or one of those that lack something.
"""

import functools
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import d2ltvm
from d2ltvm import hopper
from d2ltvm.errors import MissingError
from d2ltvm.hopper import float32, ordered, ring
from d2ltvm.hopper.any_conv import Conv, product
from d2ltvm.hopper.any_layer import any_layer
from d2ltvm.hopper.patch import changed
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
STREAM = {"n": 1000, "rows": 48, "stages": 3, "laps": 2, "sms": 3}
PRODUCTS = [(300, 264, 136), (1000, 512, 256)]
LAYER = Conv(2, (9, 9), 64, 72, (3, 3), (1, 1))
# Kernels for any shape, of these kinds: how tiles lie, how sums are cut and where their parts meet,
# who shares what, who takes turns, and what an epilogue adds.
ANY: list[tuple[Conv, dict[str, Any]]] = [
    (LAYER, {"sms": 2, "columns": 64}),
    (LAYER, {"sms": 2, "columns": 32, "swapped": True}),
    (Conv(3, (11, 7), 40, 24, (5, 3), (2, 1), (2, 2), (1, 2)), {"sms": 2, "columns": 24}),
    (LAYER, {"sms": 4, "columns": 64, "splits": 4, "swapped": True}),
    (LAYER, {"sms": 4, "columns": 64, "splits": 2, "full": 2}),
    (LAYER, {"sms": 48, "columns": 64, "splits": 2, "distributed": True}),
    (LAYER, {"sms": 48, "columns": 64, "splits": 8, "distributed": True, "wide": True}),
    (LAYER, {"sms": 2, "columns": 64, "pingpong": True}),
    (LAYER, {"sms": 1, "columns": 32, "pingpong": True, "swapped": True}),
    (LAYER, {"sms": 2, "columns": 64, "cluster": 2}),
    (LAYER, {"sms": 2, "columns": 64, "scale": True, "bias": True, "relu": True,
             "residual": True}),
    (product(130, 200, 136), {"sms": 2, "columns": 64, "transposed": False}),
    (product(600, 264, 136), {"sms": 4, "columns": 128, "abreast": 2}),
]  # fmt: skip


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


def any_programs() -> Iterator[Any]:
    """The kernels for any shape."""
    for conv, options in ANY:
        given = dict(options)
        yield any_layer(conv, given.pop("transposed", True), way="whole", **given).kernel()


GROUPS: dict[str, tuple[Callable[[], Iterator[Any]], str]] = {
    "hopper/sanitizer": (
        programs,
        f"{len(CONVS)} float16, {len(FLOAT32)} float32 convolutions, {len(PRODUCTS)} products, "
        f"{len(RINGS)} rings",
    ),
    "any_shape/sanitizer": (any_programs, f"{len(ANY)} kernels for any shape"),
}


def controls() -> Mapping[str, Callable[[], Any]]:
    """Functions that make the kernels of hopper/order, and some that lack something, by name."""
    sync, fence = "T.cuda.cta_sync()", "T.ptx.fence.proxy.async_.shared__cta()"
    waiting, gap = "T.ptx.cp.async_.bulk.wait_group.read(0)", "\n" + " " * 12
    write = "tile[thread] = A[thread]\n"
    add = "add_slot(sums, eight, tile, slot.stage, thread, rows)"
    arrive = "ring.empty.arrive(slot.stage)"
    whole: dict[str, tuple[Callable[..., Any], dict[str, int]]] = {
        "turn_twice": (ordered.turn_twice, {}),
        "double_boxes": (ordered.double_boxes, {"n": 5}),
        "copy_boxes": (ordered.copy_boxes, {"n": 5}),
        "add_product": (ordered.add_product, {}),
        "ring": (ring.stream, STREAM),
        "ring by threads": (ring.stream_by_threads, STREAM),
    }
    lacking: dict[str, tuple[str, list[tuple[str, str]]]] = {
        "turn_twice, no barrier": ("turn_twice", [(write + " " * 8 + sync + "\n", write)]),
        "double_boxes, nobody waits for TMA": ("double_boxes", [(waiting, "pass")]),
        "double_boxes, no barrier behind the store": (
            "double_boxes", [(waiting + gap + sync, waiting)]),
        "double_boxes, no barrier before the store": (
            "double_boxes", [(fence + gap + sync, fence)]),
        "double_boxes, no fence": ("double_boxes", [(fence, "pass")]),
        "copy_boxes, nobody waits for TMA": ("copy_boxes", [("full.wait(0, r % 2)", "pass")]),
        "copy_boxes, no barrier behind the reads": ("copy_boxes", [(fence + gap + sync, fence)]),
        "copy_boxes, no fence": ("copy_boxes", [(fence, "pass")]),
        "add_product, no barrier": ("add_product", [(fence + "\n        " + sync, fence)]),
        "ring, given back before it is read": (
            "ring", [(add, arrive), (arrive + "  # each thread, when it has read", add)]),
        "ring by threads, nobody waits": (
            "ring by threads", [("ring.full.wait(slot.stage, slot.phase)", "pass")]),
    }  # fmt: skip

    def make(kernel: str, edits: list[tuple[str, str]]) -> Any:
        function, given = whole[kernel]
        return (changed(function, *edits) if edits else function)(**given)

    every = {name: (name, list[tuple[str, str]]()) for name in whole} | lacking
    return {name: functools.partial(make, *which) for name, which in every.items()}


def run(name: str) -> None:
    """Run each of the kernels of a record once, on ones; or one of the controls."""
    for program in GROUPS[name][0]() if name in GROUPS else [controls()[name]()]:
        kernel = d2ltvm.build(program)
        kernel(*(np.ones(param.shape, param.dtype) for param in kernel.params))


def count_errors(program: str, group: str, tool: str) -> int:
    """Errors that a tool of compute-sanitizer, which is `program`, finds in a record's kernels."""
    command = [program, "--tool", tool, sys.executable, __file__, "run", group]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", done.stdout)
    # Kernels that did not run have no errors either.
    if found is None or (done.returncode and not int(found[1])):
        raise RuntimeError(f"{tool} of {group}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return int(found[1])


def sanitizer() -> str:
    """The path of compute-sanitizer, on a machine with a Hopper."""
    devices.need_hopper()
    program = shutil.which("compute-sanitizer")
    if program is None:
        raise MissingError("compute-sanitizer is not there", "everything else", "CUDA's toolkit")
    return program


def sanitize(group: str) -> dict[str, Any]:
    """Errors that each tool finds in the kernels of a record, as `d2ltvm.measure` takes them."""
    program = sanitizer()
    with ThreadPoolExecutor() as pool:  # side by side
        errors = list(pool.map(functools.partial(count_errors, program, group), TOOLS))
    return {
        "unit": "errors",
        "x": {"label": "tool", "values": list(TOOLS)},
        "series": {"kernels": errors},
        "notes": f"compute-sanitizer, {GROUPS[group][1]}",
    }


def find_races(program: str, name: str) -> list[int]:
    """Errors and warnings of racecheck in one of the controls."""
    command = [program, "--tool", "racecheck", sys.executable, __file__, "run", name]
    output = subprocess.run(command, capture_output=True, text=True).stdout
    found = re.search(r"SUMMARY: \d+ hazards? displayed \((\d+) errors?, (\d+) warnings?\)", output)
    if found is None:
        raise RuntimeError(f"racecheck gave no summary of {name}:\n{output[-2000:]}")
    return [int(number) for number in found.groups()]


def racecheck() -> dict[str, Any]:
    """What racecheck finds in each of the controls, as `d2ltvm.measure` takes it."""
    names = list(controls())
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(functools.partial(find_races, sanitizer()), names))
    errors, warnings = (list(each) for each in zip(*found, strict=True))
    return {
        "unit": "hazards",
        "x": {"label": "kernel", "values": names},
        "series": {"errors": errors, "warnings": warnings},
        "notes": "compute-sanitizer's racecheck, one launch each",
    }


def main(only: str | None = None) -> int:
    """Print the errors by tool, of one record or of all. Returns 1 where kernels have any."""
    status = 0
    for group in [only] if only else GROUPS:
        record = d2ltvm.measure(group, functools.partial(sanitize, group))
        for tool in TOOLS:
            print(f"{tool:10} {record.at('kernels', tool):.0f} errors")
        print(record.caption)
        status |= any(record["kernels"])
    if not only:
        control = d2ltvm.measure("hopper/racecheck", racecheck)
        for name in control.values:
            print(f"{name:44} {control.at('errors', name):.0f} errors")
    return status


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2])
    else:
        sys.exit(main(*sys.argv[1:2]))
