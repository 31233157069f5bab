"""Look for races and wrong accesses in the kernels for Hopper, with NVIDIA's compute-sanitizer.

    python tools/sanitize.py            on an H100 or H200 with compute-sanitizer: run and print
    python tools/sanitize.py hopper/controls          the same, of this record alone
    D2LTVM_RECORD=1 python tools/sanitize.py          the same, and keep the records

The records are hopper/sanitizer, any_shape/sanitizer, any_shape/sanitizer_float32 and
any_shape/sanitizer_rows, errors by tool in the kernels of the book, in those for any shape and in
those for few channels, and hopper/controls: what each tool
finds in kernels with a fault that we put there, beside the whole ones. A tool's zeros mean
something only if it finds the faults of its kind: where it misses one of those in `MUST`, a line
says so. The sanitizer looks at `python tools/sanitize.py run NAME`, the kernels of a record alone,
or one of the controls.
"""

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

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
# cuda-bindings asks the driver for functions by name, and takes no for an answer. Left to itself,
# memcheck counts each of these as an error.
OPTIONS = {"memcheck": ("--report-api-errors", "no")}
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
FEW = Conv(2, (13, 14), 3, 40, (7, 7), (3, 3), (2, 2))  # channels of images
# Kernels for any shape, of these kinds: how tiles lie, how sums are cut and where their parts meet,
# who shares what, who takes turns, what an epilogue adds, and how pixels are fetched.
ANY: list[tuple[Conv, dict[str, Any]]] = [
    (LAYER, {"sms": 2, "columns": 64}),
    (LAYER, {"sms": 2, "columns": 32, "swapped": True}),
    (Conv(3, (11, 7), 40, 24, (5, 3), (2, 1), (2, 2), (1, 2)), {"sms": 2, "columns": 32}),
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
    (LAYER, {"sms": 2, "columns": 64, "bricks": (2, 8, 8)}),
    (LAYER, {"sms": 2, "columns": 128, "swapped": True, "bricks": (1, 8, 16)}),
    (FEW, {"way": "windows", "sms": 4, "columns": 64, "depth": 32}),
    (FEW, {"way": "windows", "sms": 4, "columns": 64}),
]  # fmt: skip
ANY_FLOAT32: list[tuple[Conv, dict[str, Any]]] = [
    (LAYER, {"sms": 2, "columns": 64, "numbers": "float32"}),
    (LAYER, {"sms": 4, "columns": 64, "numbers": "float32", "splits": 4}),
    (LAYER, {"sms": 2, "columns": 64, "numbers": "float32", "cluster": 2, "consumers": 1}),
    (product(300, 264, 136), {"sms": 2, "columns": 64, "numbers": "float32", "abreast": 2}),
    (LAYER, {"sms": 2, "columns": 64, "numbers": "tf32"}),
]

ROWS: list[tuple[Conv, dict[str, Any]]] = [
    (Conv(3, (9, 24), 3, 64, (3, 3), (1, 1)), {"sms": 2, "way": "rows", "bias": True}),
    (Conv(2, (20, 40), 3, 64, (7, 7), (3, 3), (2, 2)), {"sms": 1, "way": "rows"}),
    (Conv(5, (11, 16), 3, 24, (3, 3), (1, 1), (2, 2)), {"sms": 1, "way": "rows"}),
    (Conv(2, (13, 8), 1, 16, (5, 5), (2, 2)), {"sms": 3, "way": "rows", "relu": True}),
    (Conv(1, (35, 40), 4, 128, (4, 4), (0, 0), (4, 4)), {"sms": 2, "way": "rows"}),
]


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


def any_programs(kinds: list[tuple[Conv, dict[str, Any]]]) -> Iterator[Any]:
    """The kernels for any shape."""
    for conv, options in kinds:
        given = dict(options)
        way, transposed = given.pop("way", "whole"), given.pop("transposed", True)
        yield any_layer(conv, transposed, way=way, **given).kernel()


GROUPS: dict[str, tuple[Callable[[], Iterator[Any]], str]] = {
    "hopper/sanitizer": (
        programs,
        f"{len(CONVS)} float16, {len(FLOAT32)} float32 convolutions, {len(PRODUCTS)} products, "
        f"{len(RINGS)} rings",
    ),
    "any_shape/sanitizer": (
        functools.partial(any_programs, ANY),
        f"{len(ANY)} kernels for any shape",
    ),
    "any_shape/sanitizer_float32": (
        functools.partial(any_programs, ANY_FLOAT32),
        f"{len(ANY_FLOAT32)} kernels for any shape of float32",
    ),
    "any_shape/sanitizer_rows": (
        functools.partial(any_programs, ROWS),
        f"{len(ROWS)} kernels for few channels",
    ),
}


WHOLE: dict[str, tuple[Callable[..., Any], dict[str, int]]] = {
    "turn_twice": (ordered.turn_twice, {}),
    "double_boxes": (ordered.double_boxes, {"n": 5}),
    "copy_boxes": (ordered.copy_boxes, {"n": 5}),
    "add_product": (ordered.add_product, {}),
    "ring": (ring.stream, STREAM),
    "ring by threads": (ring.stream_by_threads, STREAM),
}
SYNC, FENCE = "T.cuda.cta_sync()", "T.ptx.fence.proxy.async_.shared__cta()"
WAITING, GAP = "T.ptx.cp.async_.bulk.wait_group.read(0)", "\n" + " " * 12
WRITE = "tile[thread] = A[thread]\n"
ADD = "add_slot(sums, eight, tile, slot.stage, thread, rows)"
ARRIVE = "ring.empty.arrive(slot.stage)"
# Of 128 numbers there is room for 127, so that the last access is one number behind an allocation
# that ends in the middle of 512 bytes: what is allocated next does not begin there.
SHORT_A = ("(a_ptr, (THREADS,)", "(a_ptr, (THREADS - 1,)")
SHORT_C = ("(c_ptr, (2, THREADS)", "(c_ptr, (2, THREADS - 1)")


def _if(condition: str, statement: str) -> str:
    return f"if {condition}:{GAP}{statement}"


def _barrier_only(condition: str) -> list[tuple[str, str]]:
    """Some threads alone go to the first barrier; the others meet them at the second."""
    before = WRITE + " " * 8
    return [(before + SYNC, before + _if(condition, SYNC))]


# By tool and name: a whole kernel, and what is changed in it.
FAULTS: dict[str, dict[str, tuple[str, list[tuple[str, str]]]]] = {
    "memcheck": {
        "turn_twice, A a number too short": ("turn_twice", [SHORT_A]),
        "turn_twice, C a number too short": ("turn_twice", [SHORT_C]),
        "turn_twice, a number behind A": ("turn_twice", [("= A[thread]", "= A[thread + 1]")]),
        "turn_twice, a number behind the tile": (
            "turn_twice", [("tile[thread] =", "tile[thread + 1] =")]),
    },
    "racecheck": {
        "turn_twice, no barrier": ("turn_twice", [(WRITE + " " * 8 + SYNC + "\n", WRITE)]),
        "double_boxes, nobody waits for TMA": ("double_boxes", [(WAITING, "pass")]),
        "double_boxes, no barrier behind the store": (
            "double_boxes", [(WAITING + GAP + SYNC, WAITING)]),
        "double_boxes, no barrier before the store": (
            "double_boxes", [(FENCE + GAP + SYNC, FENCE)]),
        "double_boxes, no fence": ("double_boxes", [(FENCE, "pass")]),
        "copy_boxes, nobody waits for TMA": ("copy_boxes", [("full.wait(0, r % 2)", "pass")]),
        "copy_boxes, no barrier behind the reads": ("copy_boxes", [(FENCE + GAP + SYNC, FENCE)]),
        "copy_boxes, no fence": ("copy_boxes", [(FENCE, "pass")]),
        "add_product, no barrier": ("add_product", [(FENCE + "\n        " + SYNC, FENCE)]),
        "ring, given back before it is read": (
            "ring", [(ADD, ARRIVE), (ARRIVE + "  # each thread, when it has read", ADD)]),
        "ring by threads, nobody waits": (
            "ring by threads", [("ring.full.wait(slot.stage, slot.phase)", "pass")]),
    },
    "synccheck": {
        "turn_twice, a barrier for every other thread": (
            "turn_twice", _barrier_only("thread % 2 == 0")),
        "turn_twice, a barrier for two warps of four": (
            "turn_twice", _barrier_only("thread < 64")),
        "add_product, wgmma by two warps of four": (
            "add_product", [("one_wgmma(sums", _if("thread < 64", "one_wgmma(sums"))]),
        "copy_boxes, nobody waits for TMA": ("copy_boxes", [("full.wait(0, r % 2)", "pass")]),
    },
}  # fmt: skip
# What NVIDIA's manual says that a tool finds. Of the other faults we ask whether it does.
MUST: dict[str, tuple[str, ...]] = {
    "memcheck": ("turn_twice, A a number too short", "turn_twice, C a number too short"),
    "racecheck": ("turn_twice, no barrier",),
    "synccheck": (
        "turn_twice, a barrier for every other thread",
        "turn_twice, a barrier for two warps of four",
    ),
}
# How a report of a fault begins. Memcheck also counts what the driver answers to the program, such
# as a launch that failed: that is no fault of a kernel.
REPORT = {
    "memcheck": r"Invalid __\w+__ .+",
    "racecheck": r"(?:Error|Warning): (?:Race|Potential).*",
    "synccheck": r"(?:Barrier|Warpgroup MMA sequence) error detected.*",
}
SUMMARY = r"(?:ERROR|RACECHECK) SUMMARY: (\d+)"
REPORTED = 4000  # characters of a tool's reports of errors that are shown
LIMIT = 30  # seconds for a control: some wait for what never comes


class Answer(NamedTuple):
    """What a tool says of a control: errors and warnings, None without an answer; and its words."""

    errors: int | None
    warnings: int | None
    said: str


def controls() -> Mapping[str, Callable[[], Any]]:
    """Functions that make the kernels of hopper/order, and some with a fault, by name."""

    def make(kernel: str, edits: list[tuple[str, str]]) -> Any:
        function, given = WHOLE[kernel]
        return (changed(function, *edits) if edits else function)(**given)

    every = {name: (name, list[tuple[str, str]]()) for name in WHOLE}
    for faults in FAULTS.values():
        every |= faults
    return {name: functools.partial(make, *which) for name, which in every.items()}


def asked() -> list[tuple[str, str]]:
    """Which tool looks at which control: at its own faults, and at the whole kernels of these."""
    return [
        (tool, name)
        for tool, faults in FAULTS.items()
        for name in (*dict.fromkeys(kernel for kernel, _ in faults.values()), *faults)
    ]


def run(name: str) -> None:
    """Run each of the kernels of a record once, on ones; or one of the controls."""
    for program in GROUPS[name][0]() if name in GROUPS else [controls()[name]()]:
        kernel = d2ltvm.build(program)
        kernel(*(np.ones(param.shape, param.dtype) for param in kernel.params))


def command_of(program: str, tool: str, name: str) -> list[str]:
    """What has a tool of compute-sanitizer, which is `program`, look at `run` of a name."""
    return [program, "--tool", tool, *OPTIONS.get(tool, ()), sys.executable, __file__, "run", name]


def count_errors(program: str, group: str, tool: str) -> int:
    """Errors that a tool of compute-sanitizer, which is `program`, finds in a record's kernels."""
    command = command_of(program, tool, group)
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(SUMMARY, done.stdout)
    # Kernels that did not run have no errors either.
    if found is None or (done.returncode and not int(found[1])):
        raise RuntimeError(f"{tool} of {group}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    if int(found[1]):  # a count alone does not say where
        print(f"{tool} of {group}:\n{done.stdout[:REPORTED]}", flush=True)
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


def answer(tool: str, output: str, status: int) -> Answer:
    """What a tool has found in a control, from its report and the status it ended with."""
    summary = re.search(SUMMARY, output)
    reports = re.findall(rf"^=+ +({REPORT[tool]})", output, re.MULTILINE)
    hazards = re.search(r"hazards? displayed \((\d+) errors?, (\d+) warnings?\)", output)
    errors, warnings = map(int, hazards.groups()) if hazards else (len(reports), 0)
    if summary is None or (status and not errors):  # a kernel that did not run has no errors
        lines = output.strip().splitlines() or ["no word"]
        return Answer(None, None, f"ended with {status}: {lines[-1]}")
    return Answer(errors, warnings, reports[0].strip() if reports else "")


def ask(program: str, tool: str, name: str, limit: float = LIMIT) -> Answer:
    """Have a tool of compute-sanitizer, which is `program`, look at a control."""
    command = command_of(program, tool, name)
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the program that it runs, too
            return Answer(None, None, f"no answer in {limit:g} s")
    return answer(tool, output, process.returncode)


def ask_all() -> dict[str, Any]:
    """What the tools find in the controls, as `d2ltvm.measure` takes it."""
    program = sanitizer()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = list(pool.map(lambda which: ask(program, *which), asked()))
    given: list[tuple[str, Answer]] = []
    without: list[tuple[str, Answer]] = []
    for (tool, name), found in zip(asked(), answers, strict=True):
        label = f"{tool}: {name}"
        print(f"{label:60} {found.said or 'nothing found'}")
        (without if found.errors is None else given).append((label, found))
    notes = ["compute-sanitizer, one launch each"]
    notes += [f"{label}: {found.said}" for label, found in without]
    return {
        "unit": "errors",
        "x": {"label": "control", "values": [label for label, _ in given]},
        "series": {
            "errors": [found.errors for _, found in given],
            "warnings": [found.warnings for _, found in given],
        },
        "notes": "; ".join(notes),
    }


def verdict(errors: Mapping[str, float]) -> tuple[list[str], bool]:
    """What the controls say of each tool, and whether it is what has to be.

    Args:
        errors: by tool and name of a control, as 'memcheck: turn_twice'; those that gave an answer.
    """
    said, right = [], True
    for tool in TOOLS:
        labels = {name: f"{tool}: {name}" for of, name in asked() if of == tool}
        missed = [name for name in MUST[tool] if not errors.get(labels[name])]
        alarms = [name for name in labels if name in WHOLE and errors.get(labels[name])]
        for name in missed:
            what = "NOT FOUND" if labels[name] in errors else "NO ANSWER"
            said.append(f"{tool}: {what}: {name}. Its zeros for other kernels say nothing.")
        said += [f"{tool}: FALSE ALARM: {name}, which has no fault." for name in alarms]
        if not missed:
            said.append(f"{tool}: found all of {len(MUST[tool])} faults that it has to find.")
        right &= not missed and not alarms
    return said, right


def main(only: str | None = None) -> int:
    """Print the errors by tool, of one record or of all.

    Returns 1 where kernels have any, and where a tool misses a fault that it has to find.
    """
    if only not in (None, "hopper/controls", *GROUPS):
        names = ", ".join([*GROUPS, "hopper/controls"])
        print(f"record is {only!r}; expected one of {names}", file=sys.stderr)
        return 2
    status = 0
    for group in GROUPS if only is None else {only} & set(GROUPS):
        record = d2ltvm.measure(group, functools.partial(sanitize, group))
        for tool in TOOLS:
            print(f"{tool:10} {record.at('kernels', tool):.0f} errors")
        print(record.caption)
        status |= any(record["kernels"])
    if only in (None, "hopper/controls"):
        record = d2ltvm.measure("hopper/controls", ask_all)
        errors = {label: record.at("errors", label) for label in record.x["values"]}
        for label, number in errors.items():
            print(f"{label:60} {number:.0f} errors")
        said, right = verdict(errors)
        print(record.caption, record.notes, *said, sep="\n")
        status |= not right
    return status


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2])
    else:
        try:
            sys.exit(main(*sys.argv[1:2]))
        except MissingError as error:
            sys.exit(str(error))
