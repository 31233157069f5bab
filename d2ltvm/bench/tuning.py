"""The fastest of several plans, by measuring them: what was measured once is remembered."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from d2ltvm.bench.set_bench import HOPPER, Setting, data, ours
from d2ltvm.bench.sets import Case
from d2ltvm.bench.timing import time_together
from d2ltvm.compiler import cache
from d2ltvm.hopper import any_costs, any_model, any_plan, fastest, many_plans, planner
from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_layer import Layer, from_text, to_text, ways
from d2ltvm.hopper.any_plan import Plan
from d2ltvm.system.chips import sm_count

MANY = 4  # plans of each way that are measured


def tune(
    conv: Conv,
    transposed: bool = True,
    many: int = MANY,
    setting: Setting = HOPPER,
    choose: Callable[..., list[Plan]] = planner.best,
) -> Layer:
    """How a convolution or a product is run fastest, of the plans that should be fast.

    >>> layer = tune(Conv(8, (56, 56), 64, 64, (3, 3), (1, 1)))  # doctest: +SKIP

    It takes seconds, for which several kernels are built and timed. The answer is kept in the
    cache of `python -m d2ltvm cache`, by the chip, the versions and the sizes, and is there in
    less than a millisecond the next time.

    Args:
        conv: the sizes.
        transposed: of a product, whether the second matrix is given as its transpose.
        many: plans of each way that are measured.
        setting: where kernels run.
        choose: which plans: `planner.best`, or `many_plans.varied`, of which `many_plans.MANY`
            take a minute or more, most of it to build them.
    """

    def measured() -> bytes:
        found = ways(conv, transposed, sm_count(), many, choose)
        case = Case("tuning", conv, transposed if conv.is_product else None)
        x, w = data(case)
        runs = {k: ours(layer, x, w, setting)[0] for k, layer in enumerate(found)}
        times = time_together(runs, "graph")
        return to_text(found[min(times, key=lambda k: times[k].median)]).encode()

    key: tuple[Any, ...] = (
        *(
            "a plan",
            repr(conv),
            transposed,
            many,
            choose.__name__,
            sorted(setting.device().items()),
        ),
        cache.package_versions("apache-tvm", "d2ltvm"),
        *(
            cache.file_identity(Path(str(m.__file__)))
            for m in (any_plan, any_costs, any_model, planner, many_plans)
        ),
        cache.file_identity(fastest.FILE),
    )
    return from_text(conv, cache.remember(measured, *key).decode())
