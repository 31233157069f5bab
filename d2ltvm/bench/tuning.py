"""The fastest of several plans, by measuring them: what was measured once is remembered."""

from collections.abc import Callable

from d2ltvm.bench.set_bench import HOPPER, CaseSetting, data, ours
from d2ltvm.bench.sets import Case
from d2ltvm.bench.timing import time_together
from d2ltvm.hopper import planner, tuned
from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_layer import Layer, layer_of, to_text, ways
from d2ltvm.hopper.any_plan import Plan
from d2ltvm.hopper.fastest import fastest_known
from d2ltvm.system.chips import sm_count

PLANS_PER_WAY = 4  # plans of each way that are measured


def tune(
    conv: Conv,
    transposed: bool = True,
    many: int = PLANS_PER_WAY,
    setting: CaseSetting = HOPPER,
    choose: Callable[..., list[Plan]] = planner.best,
) -> Layer:
    """How a convolution or a product is run fastest, of the plans that should be fast.

    >>> layer = tune(Conv(8, (56, 56), 64, 64, (3, 3), (1, 1)))  # doctest: +SKIP

    It takes seconds, for which several kernels are built and timed. The answer is kept in the
    cache of `python -m d2ltvm cache`, by the GPU, the versions and the sizes. `hopper.any_layer`
    and `network.on_hopper.program` find it there, and so does the next call, in a few milliseconds.
    Where the same sizes are tuned again with other arguments, the plan that was kept takes part.

    Args:
        conv: the sizes.
        transposed: of a product, whether the second matrix is given as its transpose.
        many: plans of each way that are measured.
        setting: where kernels run.
        choose: which plans: `planner.best`, or `many_plans.varied`, of which `many_plans.MANY`
            take a minute or more, most of it to build them.
    """
    device, sms, race = setting.device(), sm_count(), f"{choose.__name__} {many}"
    record = tuned.kept(conv, transposed, device)
    before = layer_of(record, conv, sms, transposed) if record else None
    if record and before and race in record.races:
        return before
    known = fastest_known(conv, sms, transposed=transposed)
    first = (before, Layer(conv, known) if known else None)
    others = ways(conv, transposed, sms, many, choose, known=False)
    found = list(dict.fromkeys(layer for layer in (*first, *others) if layer))
    case = Case("tuning", conv, transposed if conv.is_product else None)
    x, w = data(case)
    runs = {k: ours(layer, x, w, setting)[0] for k, layer in enumerate(found)}
    times = time_together(runs, "graph")
    fastest = found[min(times, key=lambda k: times[k].median)]
    races = {race} | (record.races if record and before else set())
    tuned.keep(tuned.TuningRecord(to_text(fastest), frozenset(races)), conv, transposed, device)
    return fastest
