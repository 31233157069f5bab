"""Fuzz of the search: spaces and samples, models, ranks and predictions, against plain loops."""

import functools
import math

import numpy as np
import tvm
from fuzzing import EITHER, ODD, REFUSED, Maybe, mostly, sizes, spoiled, whole
from hypothesis import strategies as st

import d2ltvm
from d2ltvm import schedules, search
from d2ltvm.search import predicted
from d2ltvm.search.book import SKETCHES
from d2ltvm.search.computations import COMPUTATIONS
from d2ltvm.search.learned import Ridge
from d2ltvm.search.ranking import ranks

NUMBERS = st.lists(st.one_of(st.integers(0, 5), st.floats(-3, 3, width=16)), max_size=7)
WELL = st.lists(st.sampled_from([0.5, 1.0, 1.0, 2.0, 3.0]), min_size=2, max_size=7)
NAMES = st.sampled_from(list(COMPUTATIONS))
KINDS = st.sampled_from(["cuda", "llvm"])


def are_numbers(values):
    """Whether they are numbers in a row, none of them NaN."""
    if (
        not isinstance(values, list | tuple | range | np.ndarray)
        or np.ndim(np.array(values, object)) != 1
    ):
        return False
    kinds = int | float | np.integer | np.floating
    fine = all(isinstance(v, kinds) and not isinstance(v, bool) for v in values)
    return fine and all(abs(v) < 2**63 for v in values)


def by_loops(values):
    """Ranks by counting, equal ones shared."""
    return [sum(v < w for v in values) + (sum(v == w for v in values) - 1) / 2 for w in values]


def order(tally, draw):
    """`ranks`, `rank_correlation` and `regret`."""
    name = draw(st.sampled_from(["ranks", "rank_correlation", "regret"]))
    if name == "ranks":
        values = draw(mostly(NUMBERS))
        good = are_numbers(values) and len(values)
        return tally.judge(
            ranks, {"values": values},
            (lambda r: r.tolist() == by_loops(values)) if good
            else EITHER if isinstance(values, range) or len(np.shape(values)) == 1 else REFUSED,
        )  # fmt: skip
    one = draw(mostly(WELL))
    count = len(one) if isinstance(one, list) and draw(st.integers(0, 4)) else 3
    other = draw(mostly(st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=count, max_size=count)))
    good = are_numbers(one) and are_numbers(other) and len(one) == len(other)
    if name == "rank_correlation":
        good = good and len(set(one)) > 1 and len(set(other)) > 1

        def expected(r):
            return math.isclose(r, np.corrcoef(by_loops(one), by_loops(other))[0, 1], abs_tol=1e-9)

        return tally.judge(
            search.rank_correlation, {"one": one, "other": other}, expected if good else REFUSED
        )
    top = draw(mostly(sizes(most=5)))
    good = good and len(one) and min(other) > 0 and whole(top, 1, math.inf)

    def costs(r):
        first = sorted(range(len(one)), key=lambda k: one[k])[: int(top)]
        return math.isclose(r, min(other[k] for k in first) / min(other))

    return tally.judge(
        search.regret, {"predicted": one, "measured": other, "top": top},
        costs if good else REFUSED,
    )  # fmt: skip


def factors(tally, draw):
    """A moved factor keeps the product, the number of pieces and the limit."""
    tile = draw(mostly(st.lists(sizes(most=12), min_size=1, max_size=4)))
    most = draw(mostly(sizes(most=16)))
    good = isinstance(tile, list | tuple) and bool(tile) and all(map(whole, tile))
    good = good and whole(most, 1, math.inf)
    if good and max(tile) > 2**12:
        return

    def expected(r):
        assert math.prod(map(int, r)) == math.prod(map(int, tile)) and len(r) == len(tile)
        return r[-1] <= max(int(most), int(tile[-1]))

    tally.judge(
        search.moved_factor, {"tile": tile, "most": most, "rng": np.random.default_rng(1)},
        expected if good else REFUSED,
    )  # fmt: skip


def workloads(tally, draw):
    """`workload` and `book_space`: names, sizes, or a refusal."""
    a = {"name": draw(mostly(NAMES)), "size": draw(mostly(sizes(most=40)))}
    good = isinstance(a["name"], str) and a["name"] in COMPUTATIONS
    if draw(st.booleans()):
        kind = draw(mostly(KINDS))
        there = good and isinstance(kind, str) and kind in ("cuda", "llvm")
        there = there and (a["name"], kind) in SKETCHES
        return tally.judge(
            search.book_space, {"name": a["name"], "kind": kind}, callable if there else REFUSED
        )
    good = good and whole(a["size"], 1, 15000)
    good = good and (a["name"] != "tensorcores" or int(a["size"]) % 16 == 0)
    flop = good and {
        "matmul": 2 * int(a["size"]) ** 3,
        "conv": 2 * int(a["size"]) ** 2 * 9 * 64**2,
        "depthwise": 0,
        "softmax": 0,
    }.get(a["name"], 2 * int(a["size"]) * 256 * 512 * 9 * 14**2)
    return tally.judge(
        search.workload, a,
        (lambda r: math.isclose(r.flop, flop) and r.size == a["size"]) if good
        else EITHER if whole(a["size"]) else REFUSED,
    )  # fmt: skip


@functools.cache
def space(kind="llvm"):
    return search.space(search.workload("matmul", 64), kind)


def spaces(tally, draw):
    """`space`, samples and mutations: right products, or a refusal."""
    if draw(st.integers(0, 3)) == 0:
        a = spoiled(draw, {"kind": KINDS, "seed": sizes(1, 99)})
        good = isinstance(a["kind"], str) and a["kind"] in ("cuda", "llvm") and whole(a["seed"])
        work = search.workload("matmul", 64)
        return tally.judge(
            functools.partial(search.space, work), a,
            (lambda r: len(r.sketches) > 0) if good else REFUSED,
        )  # fmt: skip
    found = space()
    a = spoiled(draw, {"sketch": sizes(0, 2), "seed": sizes(1, 99)})
    good = whole(a["sketch"], 0, 2) and whole(a["seed"])
    sch = tally.judge(found.sample, a, Maybe(lambda r: True) if good else REFUSED)
    if sch is None or draw(st.integers(0, 5)):
        return None
    rng = np.random.default_rng(draw(sizes(0, 99)))
    moved = found.mutate(sch, rng) or sch
    x, y = found.workload.inputs()

    def run():
        result = np.full((64, 64), np.nan, "float32")
        d2ltvm.build(moved, "llvm")(x, y, result)
        return result

    return tally.judge(run, {}, lambda r: np.allclose(r, x @ y, rtol=1e-4, atol=1e-4))


COUNTED = {
    "blocks": sizes(most=500), "threads": sizes(most=1024), "products": sizes(0, 10**6),
    "shared": sizes(0, 10**5), "sums": sizes(0, 300), "shared_requests": sizes(0, 1000),
    "requests": sizes(0, 1000), "wavefronts": sizes(0, 1000), "lines": sizes(0, 1000),
    "sectors": sizes(0, 1000), "rounds": sizes(0, 50), "stages": sizes(most=3),
    "unroll": sizes(0, 512), "body": sizes(0, 1000),
}  # fmt: skip


def predictions(tally, draw):
    """`seconds` of counts, and `counted` and `predict` of what is a schedule, or none."""
    if draw(st.booleans()):
        a = spoiled(draw, COUNTED)
        gpu = draw(st.sampled_from(["H200", "H100", "A100", "X9", None, 5]))
        least = {name: 0 for name in COUNTED if name not in ("blocks", "threads", "stages")}
        good = all(whole(v, least.get(k, 1), math.inf) for k, v in a.items())
        known = isinstance(gpu, str) and gpu != "X9"

        def timed(gpu, **counts):
            return predicted.seconds(predicted.Counted(**counts), gpu)

        return tally.judge(
            timed,
            {"gpu": gpu, **a},
            (lambda r: r > 0) if good and known else REFUSED,
            words=("name",),
        )
    things = [
        schedules.matmul_shared(32, 32, 32),
        schedules.cpu_vector_add(8),
        d2ltvm.schedule(d2ltvm.matmul(3, 4, 5)),
        d2ltvm.vector_add(8),
        space().sketches[0],
    ]
    a = {"sch": draw(mostly(st.sampled_from(things))), "products": draw(mostly(sizes(0, 10**5)))}
    fine = whole(a["products"], 0, math.inf)
    tally.judge(
        search.counted, a,
        (lambda r: r.blocks >= 1) if a["sch"] is things[0] and fine
        else EITHER if fine and hasattr(a["sch"], "mod") else REFUSED,
        words=("loop", "kernel", "main"),
    )  # fmt: skip
    traced = isinstance(a["sch"], tvm.s_tir.Schedule)
    tally.judge(search.as_text, {"sch": a["sch"]},
                (lambda r: r.startswith("def apply")) if traced else REFUSED)  # fmt: skip


def learned(tally, draw):
    """`Ridge`: refuses what is no data, and puts what it has seen in order."""
    many = draw(st.integers(2, 6))
    x = np.arange(many, dtype=float)[:, None] * [1.0, 2.0]
    a = {"x": draw(mostly(st.just(x))), "seconds": draw(mostly(st.just(np.exp(np.arange(many)))))}
    strength = draw(mostly(st.sampled_from([1e-6, 0.1, 10])))
    good = a["x"] is x and isinstance(a["seconds"], np.ndarray) and a["seconds"].shape == (many,)
    number = isinstance(strength, int | float | np.integer | np.floating)
    good = good and number and not isinstance(strength, bool) and 0 < strength < math.inf

    def fitted(strength, x, seconds):
        return Ridge(strength).fit(x, seconds).predict(x)

    expected = Maybe(lambda r: r.shape == (len(a["x"]),) and np.isfinite(r).all())
    if (
        good
        and strength < 100
        and a["seconds"].dtype == float
        and np.allclose(np.diff(np.log(a["seconds"])), 1)
    ):
        expected = lambda r: (np.diff(r) > 0).all()  # noqa: E731
    tally.judge(fitted, {"strength": strength, **a}, expected)


def searches(tally, draw):
    """What `search` and `evolve` refuse before anything is measured, and small evolutions."""
    if draw(st.booleans()):
        a = {"trials": draw(ODD), "seed": draw(mostly(sizes(1, 9))),
             "model": draw(mostly(st.just("random")))}  # fmt: skip
        good = whole(a["trials"]) and whole(a["seed"]) and a["model"] == "random"
        if not isinstance(a["model"], np.ndarray) and not good:
            work = search.workload("matmul", 64)
            tally.judge(functools.partial(search.search, work), a, REFUSED)
        return
    a = spoiled(draw, {"population": sizes(most=3), "generations": sizes(0, 1),
                       "seed": sizes(0, 9), "fresh": st.sampled_from([0, 0.5, 1])})  # fmt: skip
    good = whole(a["population"]) and whole(a["generations"], 0) and whole(a["seed"], 0, math.inf)
    share = a["fresh"]
    number = isinstance(share, int | float | np.integer | np.floating)
    good = good and number and not isinstance(share, bool) and 0 <= share <= 1
    if good and max(a["population"], a["generations"]) > 10:
        return

    def evolved(**options):
        return list(search.evolve(space(), lambda some: [1.0] * len(some), **options))

    tally.judge(evolved, a, (lambda r: len(r) == a["generations"] + 1) if good else REFUSED)


GROUPS = {
    order: 6, factors: 3, workloads: 4, spaces: 3, predictions: 3, learned: 3, searches: 2,
}  # fmt: skip
