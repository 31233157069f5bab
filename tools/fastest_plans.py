"""Write d2ltvm/hopper/fastest.json: of each case that was timed, the fastest plan, by chip.

usage: python tools/fastest_plans.py
"""

import json
from typing import Any

import book
from d2ltvm.bench import timed_plans
from d2ltvm.bench.hopper_layers import special_cases
from d2ltvm.bench.records import stored_lines
from d2ltvm.hopper import fastest
from d2ltvm.hopper.any_model import boxed
from d2ltvm.hopper.any_plan import Plan
from d2ltvm.system import files

# By chip: its folder, and its runs. A case is looked up in the last one that has it.
RUNS = {
    "H200": ("nvidia-h200", (timed_plans.LAST, timed_plans.AGAIN)),
    "H100": ("nvidia-h100-80gb-hbm3", (timed_plans.ORDER, timed_plans.PARTS, timed_plans.FINAL)),
}

SPECIAL = "special.jsonl"  # a race of `conv_nhwc` and the kernel for any shape, by its known plan


def fastest_of(device: str, files: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """What the file has for a chip. A case in which `conv_nhwc` was fastest is left out."""
    races: dict[str, list[timed_plans.TimedPlan]] = {}
    for file in files:
        run: dict[str, list[timed_plans.TimedPlan]] = {}
        for timed in timed_plans.timed_plans(file, device):
            run.setdefault(timed.case.title, []).append(timed)
        races |= run
    found: dict[str, dict[str, Any]] = {}
    for race in races.values():
        first = min(race, key=lambda timed: timed.us)
        if isinstance(first.plan, Plan):
            name = fastest.key(first.plan.conv, first.plan.transposed)
            found[name] = fastest.kept_of(first.plan)
    return dict(sorted(found.items()))


def boxes_of(device: str) -> list[str]:
    """Layers in which `conv_nhwc` was faster than the plan of `fastest_of`, whatever the spread."""
    try:
        _, *lines = stored_lines(SPECIAL, device)
    except FileNotFoundError:
        return []
    sizes = {case.title: case for case in special_cases()}
    found = []
    for line in lines:
        case, (_, _, most), (_, least, _) = (
            sizes[line["title"]], line["burst"]["special"], line["burst"]["general"],
        )  # fmt: skip
        if case.transposed is None and most < least and boxed(case.conv, fastest.SMS):
            found.append(fastest.key(case.conv, True))
    return sorted(found)


def text() -> str:
    """The file, a case a line."""
    boxes = {chip: boxes_of(device) for chip, (device, _) in RUNS.items()}
    lines = (f"  {json.dumps(chip)}: {json.dumps(names)}" for chip, names in boxes.items())
    chips = [f'"{fastest.BOXES}": {{\n' + ",\n".join(lines) + "\n}"]
    for chip, (device, runs) in RUNS.items():
        lines = (
            f"  {json.dumps(name)}: {json.dumps(kept)}"
            for name, kept in fastest_of(device, runs).items()
        )
        chips.append(f'"{chip}": {{\n' + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(chips) + "\n}\n"


if __name__ == "__main__":
    book.no_arguments(__doc__)
    files.write(fastest.FILE, text())
