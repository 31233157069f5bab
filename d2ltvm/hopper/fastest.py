"""Plans of known layers and products: each was the fastest of those that were timed.

A model chooses among plans it never ran. For sizes that were measured there is no need to: the file
beside this module has the fastest plan of each, by chip; and the layers in which `conv_nhwc`, whose
plan is a `ConvPlan`, was faster still. tools/fastest_plans.py writes it from the records in
book/measurements.
"""

import functools
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_costs import fitted
from d2ltvm.hopper.any_plan import Plan, fits, possible, with_stages

FILE = Path(__file__).with_name("fastest.json")
BOXES = "boxes"  # of the file: by chip, the layers in which `conv_nhwc` was fastest
SMS = 132  # of the GPUs that were measured
NOT_KEPT = ("conv", "sms", "windows", "transposed", "stages", "group", "room", "parts")


def fastest_known(
    conv: Conv, sms: int, chip: str | None = None, transposed: bool = True, **options: Any
) -> Plan | None:
    """The plan that was fastest of many, if the sizes were measured; else None.

    >>> fastest_known(Conv(32, (28, 28), 512, 512), 132, "H100").conv.ic
    512
    >>> fastest_known(Conv(31, (27, 29), 512, 512), 132, "H100") is None
    True

    Args:
        conv: what is computed.
        sms: blocks that run at once.
        chip: 'H100' or 'H200'; None for this machine's GPU, as `any_costs.fitted`.
        transposed: of a product, as for `Plan`.
        options: of `Plan`, that say what else is computed: `bias` and the like. The plan was timed
            without them. If it has no room for them, the answer is None.
    """
    kept = _of(chip or fitted()).get(key(conv, transposed)) if sms == SMS else None
    if kept is None:
        return None
    plan = with_stages(Plan(conv, sms, transposed=transposed, **kept, **options))
    return plan if plan.stages >= 2 and fits(plan) and possible(plan) else None


def boxes_won(conv: Conv, sms: int, chip: str | None = None) -> bool:
    """Whether `conv_nhwc` was timed beside the plan of `fastest_known`, and was faster.

    >>> boxes_won(Conv(256, (7, 7), 512, 512, (3, 3), (1, 1)), 132, "H200")
    True

    Args:
        conv, sms, chip: as for `fastest_known`.
    """
    return sms == SMS and key(conv, True) in _of(BOXES).get(chip or fitted(), ())


def key(conv: Conv, transposed: bool) -> str:
    """A name for the sizes, short.

    >>> key(Conv(32, (28, 28), 512, 512), True)
    '32 28 28 512 512 1 1 0 0 1 1 1 1'
    """
    pairs = (conv.kernel, conv.pad, conv.stride, conv.dilation)
    sizes = (conv.batch, *conv.size, conv.ic, conv.oc, *(n for pair in pairs for n in pair))
    return " ".join(map(str, sizes)) + ("" if transposed else " as it is")


def kept_of(plan: Plan) -> dict[str, Any]:
    """What the file has of a plan: what is not as in `Plan`, and does not follow from the rest."""
    defaults = {f.name: f.default for f in fields(Plan) if f.name not in NOT_KEPT}
    return {name: getattr(plan, name) for name in defaults if getattr(plan, name) != defaults[name]}


@functools.cache
def _of(chip: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text()).get(chip, {})
    return found
