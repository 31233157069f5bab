"""Convolutions of any shape, and products of any sizes, beside float64."""

from dataclasses import replace

import numpy as np
import pytest
from on_hopper import RUN
from tvm.script import tirx as T

import d2ltvm
from d2ltvm import layouts
from d2ltvm.analysis.emulator.order import SynchronizationError
from d2ltvm.bench.set_bench import exact
from d2ltvm.bench.sets import Case
from d2ltvm.compiler.verify import WrongResultError, compare
from d2ltvm.hopper import any_costs, any_model, any_plan, any_shape, planner
from d2ltvm.hopper.any_conv import Conv, bricks_of, product
from d2ltvm.hopper.any_float32 import rounded_to_tf32
from d2ltvm.hopper.any_layer import any_layer, ways
from d2ltvm.hopper.any_plan import Plan
from d2ltvm.hopper.any_shape import conv_any
from d2ltvm.hopper.padding import padded
from d2ltvm.hopper.planner import candidates, plan_any

SMALL = Conv(2, (9, 9), 64, 72, (3, 3), (1, 1))


def computed(run, conv, transposed=True, way=None, **options):
    """What a kernel computes, and what it should, with magnitudes, of all pixels."""
    rng = np.random.default_rng(0)

    def some(*shape, dtype="float16", scale=1):
        return (scale * rng.standard_normal(shape, "float32")).astype(dtype)

    if options and way is None:
        way = "whole" if conv.ic % 8 == 0 else "padded"
    layer = any_layer(conv, transposed, way=way, **options)
    plan = layer.plan if isinstance(layer.plan, Plan) else plan_any(conv)
    given = layer.given_dtype
    x = some(conv.batch, *conv.size, conv.ic, dtype=given)
    w_shape = (conv.taps, conv.oc, conv.ic) if transposed else (1, conv.ic, conv.oc)
    w = some(*w_shape, dtype=given)
    y = np.full((conv.batch, *conv.out, conv.oc), np.nan, plan.dtype)
    bias = some(conv.oc, dtype="float32", scale=10)
    residual = some(*y.shape, scale=10)
    scale = some(conv.oc, dtype="float32", scale=3)
    images = x
    if layer.copies:
        images = np.full(layer.images, np.nan, given)
        run(layer.copy(), x, images)
    partials = np.full(plan.partials, np.nan, "float32")
    run(
        layer.kernel(),
        *(images, layer.weights(w)),
        *(
            [np.stack([scale * layer.factors(w), bias]) if plan.scale else bias]
            if plan.bias
            else []
        ),
        *([residual] if plan.residual else []),
        *([partials] if layer.partials else []),
        y,
    )
    case = Case("a test", conv, transposed if conv.is_product else None)
    want, most = exact(case, x, w, np.arange(conv.pixels))
    if plan.scale:
        want, most = want * scale.astype("float64"), most * np.abs(scale)
    if plan.bias:
        want, most = want + bias, most + np.abs(bias)
    if plan.residual:
        added = residual.reshape(want.shape).astype("float64")
        want, most = want + added, most + np.abs(added)
    if plan.relu or plan.relu6:
        want = np.maximum(want, 0)
    if plan.relu6:
        want = np.minimum(want, 6)
    return y.reshape(want.shape), want, most


def check(run, conv, transposed=True, **options):
    y, want, most = computed(run, conv, transposed, **options)
    compare("Y", y, want, most, terms=2 * conv.ic * conv.taps + 4, sums="float32")


@pytest.mark.quick(2)
@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize(
    ("conv", "options"),
    [
        (Conv(2, (9, 9), 64, 64, (3, 3), (1, 1)), {"columns": 128}),
        (Conv(2, (9, 7), 72, 40, (3, 3), (1, 1), (2, 2)), {"columns": 64}),
        (Conv(3, (5, 9), 24, 40, (3, 5), (1, 2), (2, 1), (1, 2)), {"columns": 64}),
        (Conv(3, (9, 9), 32, 40, (3, 3), (1, 0), (2, 1), (1, 2)), {"columns": 32, "depth": 32}),
        (
            Conv(1, (9, 9), 16, 40, (1, 1), (0, 0), (2, 2)),
            {"columns": 48, "depth": 16, "consumers": 1},
        ),
        (Conv(2, (9, 9), 64, 200, (3, 3), (1, 1)), {"columns": 192}),
        (SMALL, {"columns": 64, "per": 2}),
        (SMALL, {"columns": 64, "blocks_per_sm": 2}),
        (SMALL, {"columns": 64, "swapped": True}),
        (Conv(1, (1, 1), 8, 8, (3, 3), (1, 1)), {"columns": 64}),
        (Conv(1, (1, 1), 8, 8), {"columns": 16, "swapped": True}),
        (Conv(300, (1, 1), 8, 8), {"columns": 16}),
        (Conv(1, (40, 1), 8, 8, (9, 1), (4, 0), (3, 1)), {"columns": 16}),
        (Conv(2, (9, 9), 64, 3, (3, 3), (1, 1)), {"columns": 16}),
        (Conv(2, (9, 9), 64, 4, (3, 3), (1, 1)), {"columns": 32, "swapped": True}),
    ],
    ids=str,
)
def test_any_convolution(run, conv, options):
    check(run, conv, sms=2, **options)


FLOAT32_CASES = [
    (SMALL, {"columns": 64}),
    (SMALL, {"columns": 128, "consumers": 1}),
    (SMALL, {"columns": 48, "cluster": 2}),
    (SMALL, {"columns": 64, "splits": 3}),
    (SMALL, {"columns": 32, "splits": 2, "distributed": True, "sms": 24}),
    (Conv(3, (11, 7), 40, 24, (5, 3), (2, 1), (2, 2), (1, 2)), {"columns": 32}),
    (Conv(2, (9, 9), 136, 40, (3, 3), (1, 1)), {"columns": 16}),
    (Conv(1, (1, 1), 8, 8, (3, 3), (1, 1)), {"columns": 16}),
    (Conv(2, (9, 9), 13, 3, (3, 3), (1, 1)), {"columns": 16}),
    (product(130, 200, 136), {"columns": 64, "relu": True}),
    (product(300, 264, 200), {"columns": 128, "abreast": 2}),
]


@pytest.mark.quick(2)
@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize(("conv", "options"), FLOAT32_CASES, ids=str)
def test_float32_by_three_products(run, conv, options):
    check(run, conv, numbers="float32", **{"sms": 3, **options})


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize(
    ("conv", "options"),
    [*FLOAT32_CASES[:4], *FLOAT32_CASES[5:], (SMALL, {"columns": 32, "swapped": True})],
    ids=str,
)
def test_tf32(run, conv, options):
    y, want, most = computed(run, conv, numbers="tf32", **{"sms": 3, **options})
    # Images are cut off behind 11 bits, and lose less than 2^-10; weights are rounded.
    off = np.abs(y - want) / most
    assert 2**-20 < off.max() < 2**-10 + 2**-11 + conv.ic * conv.taps * 2**-23


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("numbers", ["float32", "tf32"])
def test_float32_images_of_few_channels_lie_side_by_side(run, numbers):
    conv = Conv(2, (13, 14), 3, 40, (7, 7), (3, 3), (2, 2))
    layer = any_layer(conv, way="beside", numbers=numbers)
    assert layer.copies and layer.given_dtype == "float32"
    y, want, most = computed(run, conv, way="beside", numbers=numbers, sms=4, columns=64)
    assert (np.abs(y - want) <= most * (2**-22 * 150 if numbers == "float32" else 2**-9)).all()


def test_weights_are_rounded_to_tf32():
    w = np.random.default_rng(0).standard_normal((3, 8, 8), "float32")
    kept = rounded_to_tf32(w)
    assert (kept.view("uint32") % 2**13 == 0).all()
    assert (np.abs(kept - w) <= 2**-11 * np.abs(w)).all()
    special = np.float32([np.inf, -np.inf, np.nan, 0, 2**-149, 3.4028e38])
    assert np.array_equal(
        rounded_to_tf32(special),
        np.float32([np.inf, -np.inf, np.nan, 0, 0, np.inf]),
        equal_nan=True,
    )


def test_float32_of_all_magnitudes_keeps_its_accuracy():
    """Rows of images, and channels of weights, are scaled each by itself."""
    rng = np.random.default_rng(3)
    conv = product(70, 40, 72)
    layer = any_layer(conv, sms=2, way="whole", numbers="float32", columns=32)
    x, w = (rng.standard_normal((many, 72), "float32") for many in (70, 40))
    x *= np.float32(10.0) ** rng.integers(-30, 15, (70, 1)).astype("float32")
    w *= np.float32(10.0) ** rng.integers(-6, 6, (40, 1)).astype("float32")
    x[5], x[6, :9] = 0, 0
    y = np.full((70, 1, 1, 40), np.nan, "float32")
    w = w[None]
    values = np.stack([layer.factors(w), np.zeros(40, "float32")])
    d2ltvm.emulate(layer.kernel(), x.reshape(70, 1, 1, 72), layer.weights(w), values, y)
    exact_, most = x.astype("float64") @ w[0].T.astype("float64"), np.abs(x) @ np.abs(w[0]).T
    assert (np.abs(y[:, 0, 0] - exact_) <= 2**-22 * 80 * most + 1e-40).all()
    x[7, 3] = np.inf
    d2ltvm.emulate(layer.kernel(), x.reshape(70, 1, 1, 72), layer.weights(w), values, y)
    finite = np.isfinite(y[:, 0, 0])
    assert not finite[7].any() and finite[np.arange(70) != 7].all()


@pytest.mark.parametrize(
    "options",
    [
        {"numbers": "bfloat16"},
        {"numbers": "tf32"},
        {"numbers": "tf32", "wide": True, "transposed": False},
        {"numbers": "float32", "wide": True, "scale": True, "bias": True, "swapped": True},
        {"numbers": "float32", "wide": True, "scale": True, "bias": True, "per": 2},
        {"numbers": "float32", "wide": True},
    ],
    ids=str,
)
def test_numbers_that_there_is_no_kernel_for(options):
    with pytest.raises(ValueError, match=r"^(numbers is '\w+'|scale is False); expected"):
        plan_any(SMALL, 4, columns=64, **options)


@pytest.mark.slow
@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize(
    "options",
    [
        {"columns": 64, "splits": 3},
        {"columns": 64, "splits": 4, "swapped": True},
        {"columns": 64, "splits": 2, "full": 2},
        {"columns": 128, "splits": 4, "per": 2, "consumers": 1},
    ],
    ids=str,
)
def test_sums_that_are_cut(run, options):
    check(run, SMALL, sms=4, **options)


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize(
    "options",
    [
        {"columns": 64, "splits": 2},
        {"columns": 64, "splits": 3, "swapped": True},
        {"columns": 128, "splits": 5, "per": 2, "consumers": 1},
        {"columns": 48, "splits": 4, "bias": True, "relu": True, "residual": True},
        {"columns": 64, "splits": 8, "wide": True},
    ],
    ids=str,
)
def test_parts_that_meet_in_a_cluster(run, options):
    check(run, SMALL, sms=48, distributed=True, **options)


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("transposed", [True, False])
def test_parts_of_a_product_that_meet_in_a_cluster(run, transposed):
    check(run, product(130, 200, 136), transposed, sms=16, columns=64, splits=2, distributed=True)
    check(run, product(5, 100, 264), transposed, sms=16, columns=16, splits=4, distributed=True,
          swapped=True)  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {"splits": 1},
        {"splits": 9},
        {"splits": 2, "full": 2},
        {"splits": 4, "sms": 12},
    ],
    ids=str,
)
def test_parts_meet_in_a_cluster_only_if_each_block_has_one(options):
    with pytest.raises(ValueError, match="distributed is True; expected False with"):
        plan_any(SMALL, **{"sms": 48, "columns": 64, "distributed": True, **options})


@pytest.mark.slow
@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("sms", [1, 2])
@pytest.mark.parametrize(
    "options",
    [
        {"columns": 64},
        {"columns": 64, "stages": 2},
        {"columns": 64, "per": 2},
        {"columns": 32, "swapped": True},
        {"columns": 64, "per": 2, "bias": True, "relu": True, "residual": True},
        {"columns": 64, "per": 2, "wide": True},
    ],
    ids=str,
)
def test_consumers_that_take_tiles_in_turns(run, options, sms):
    check(run, SMALL, sms=sms, pingpong=True, **options)


@pytest.mark.quick(2)
@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((130, 72, 72), {"columns": 128}),
        ((5, 200, 136), {"columns": 16, "swapped": True}),
        ((5, 200, 136), {"columns": 16, "swapped": True, "splits": 2}),
        ((1, 64, 72), {"columns": 16, "swapped": True, "splits": 2, "consumers": 1}),
        ((130, 200, 136), {"columns": 64, "per": 2, "splits": 2}),
    ],
    ids=str,
)
def test_any_product(run, sizes, options, transposed):
    check(run, product(*sizes), transposed, sms=4, **options)


@pytest.mark.slow
@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("l", [104, 101])
def test_odd_sizes_of_a_product(run, l):
    check(run, product(13, 130, l), False, sms=1, columns=16, swapped=True)
    check(run, product(101, 101, l), sms=8, columns=64, splits=2)
    check(run, product(101, 102, l), sms=8, columns=64)


@pytest.mark.quick(1)
@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize(
    ("conv", "options"),
    [
        (Conv(2, (13, 15), 3, 40, (7, 7), (3, 3), (2, 2)), {"columns": 64, "depth": 32}),
        (Conv(2, (13, 14), 3, 40, (7, 7), (3, 3), (2, 2)), {"columns": 64}),
        (Conv(2, (16, 16), 3, 40, (4, 4), (0, 0), (4, 4)), {"columns": 64, "depth": 16}),
        (Conv(2, (9, 9), 1, 40, (3, 3), (1, 1)), {"columns": 64, "depth": 32}),
        (Conv(2, (9, 9), 4, 32, (3, 3), (1, 1), (2, 2)), {"columns": 32, "depth": 16}),
    ],
    ids=str,
)
def test_few_channels_are_read_by_windows(run, conv, options):
    assert any_layer(conv, way="windows").plan.windows
    check(run, conv, sms=4, way="windows", **options)


@pytest.mark.quick(1)
@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize(
    "conv",
    [
        Conv(2, (13, 15), 3, 40, (7, 7), (3, 3), (2, 2)),
        Conv(2, (9, 9), 3, 16, (3, 3), (1, 1)),
        Conv(1, (9, 11), 5, 16, (3, 4), (1, 2), (1, 2), (2, 3)),
        Conv(1, (9, 11), 12, 16, (1, 4), (0, 2)),
    ],
    ids=str,
)
def test_few_channels_lie_side_by_side(run, conv):
    check(run, conv, sms=4, way="beside")


def test_a_way_that_is_not_open():
    with pytest.raises(ValueError, match="way is 'beside'; expected one of whole, boxes"):
        any_layer(SMALL, way="beside")
    with pytest.raises(ValueError, match="way is 'boxes'; expected another one with"):
        any_layer(SMALL, way="boxes", columns=64)
    check(d2ltvm.emulate, SMALL, sms=4, way="boxes")


@pytest.mark.slow
@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize(
    "options",
    [
        {"columns": 128},
        {"columns": 64, "per": 2},
        {"columns": 96},
        {"columns": 64, "swapped": True},
        {"columns": 64, "swapped": True, "per": 2, "consumers": 1},
        {"columns": 64, "splits": 3},
        {"columns": 64, "splits": 3, "swapped": True},
        {"columns": 64, "splits": 3, "full": 2},
        {"columns": 64, "wide": True},
        {"columns": 64, "wide": True, "swapped": True},
        {"columns": 64, "scale": True},
        {"columns": 64, "scale": True, "splits": 3, "swapped": True},
    ],
    ids=str,
)
def test_epilogues(run, options):
    check(run, SMALL, sms=3, bias=True, relu=True, residual=True, **options)


@pytest.mark.slow
def test_parts_of_an_epilogue():
    for some in (
        {"bias": True},
        {"relu": True},
        {"relu6": True, "scale": True, "bias": True},  # sums are far beyond 6
        {"bias": True, "scale": True},
        {"bias": True, "wide": True},
    ):
        check(d2ltvm.emulate, SMALL, sms=2, columns=64, **some)
    odd = Conv(2, (9, 9), 64, 71, (3, 3), (1, 1))
    check(d2ltvm.emulate, odd, sms=2, columns=64, bias=True, residual=True, wide=True)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "conv",
    [
        Conv(1, (5, 5), 64, 64, (3, 3), (1, 1)),
        Conv(1, (7, 9), 200, 24),
        Conv(2, (6, 6), 3, 16, (3, 3), (1, 1), (2, 2)),
        product(3, 72, 200),
    ],
    ids=str,
)
def test_what_is_chosen_is_right(conv):
    check(d2ltvm.emulate, conv, sms=5)


@T.inline
def exchange_at_once(acc, four, P, work, consumer, thread, plan):
    """As `exchange_parts`, of tiles whose parts have a group of columns each, but nobody waits."""
    slot: T.let[T.int32] = work.cut * plan.splits
    for g in T.unroll(plan.groups):
        for v in T.unroll(4):
            P[slot + work.part, consumer, g, thread % 128, v] = acc[g * 4 + v]
    for v in T.unroll(4):
        acc[v] = T.float32(0)
        for s in T.unroll(plan.splits):
            acc[v] = acc[v] + P[slot + s, consumer, work.part, thread % 128, v]


@pytest.mark.slow
def test_parts_that_nobody_waits_for(monkeypatch):
    """Sums of other blocks are not there yet when one goes on at once."""
    monkeypatch.setattr(any_shape, "exchange_parts", exchange_at_once)
    with pytest.raises(WrongResultError):
        check(d2ltvm.emulate, SMALL, sms=8, columns=32, splits=4)


@T.inline
def exchange_in_cluster_at_once(acc, four, sums, work, consumer, thread, plan):
    """As `exchange_in_cluster`, of two parts with a group of columns each, but nobody waits."""
    place = T.alloc_local((1,), "uint32")
    for g in T.unroll(plan.groups):
        for v in T.unroll(4):
            sums[0, consumer, g, thread % 128, v] = acc[g * 4 + v]
    for v in T.unroll(4):
        acc[v] = T.float32(0)
    for s in T.unroll(plan.splits):
        T.ptx["mapa.shared::cluster.u32"](
            place[0],
            T.cuda.cvta_generic_to_shared(sums.ptr_to([0, consumer, 0, 0, 0])),
            T.Cast("uint32", s),
        )
        T.ptx["ld.shared::cluster.v4.f32"](
            four[0], four[1], four[2], four[3],
            place[0] + T.Cast("uint32", (work.part * 128 + thread % 128) * 16),
        )  # fmt: skip
        for v in T.unroll(4):
            acc[v] = acc[v] + four[v]


def test_parts_of_a_cluster_that_nobody_waits_for(monkeypatch):
    """The sums of another block are read when nothing says that they have been written."""
    monkeypatch.setattr(any_shape, "exchange_in_cluster", exchange_in_cluster_at_once)
    with pytest.raises(SynchronizationError, match=r"a thread reads byte .*, which is empty"):
        check(d2ltvm.emulate, SMALL, sms=48, columns=32, splits=4, distributed=True)


def test_more_parts_than_blocks_would_wait_for_ever():
    with pytest.raises(ValueError, match=r"splits is 3; expected 1 to 2, as many as blocks"):
        plan_any(SMALL, 2, columns=64, splits=3)


def test_more_parts_than_rounds_would_have_no_sums():
    with pytest.raises(ValueError, match=r"splits is 3; expected 1 to 2, as many as rounds"):
        plan_any(product(64, 64, 128), 8, columns=64, splits=3)


@pytest.mark.slow
@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize(
    "options",
    [
        {"columns": 64},
        {"columns": 64, "per": 2, "pingpong": True},
        {"columns": 128, "swapped": True},
        {"columns": 64, "stages": 2, "bias": True, "relu": True, "residual": True},
    ],
    ids=str,
)
def test_clusters(run, options):
    for sms in (2, 5):
        check(run, SMALL, sms=sms, cluster=2, **options)


@pytest.mark.slow
@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("transposed", [True, False])
def test_clusters_of_a_product(run, transposed):
    check(run, product(300, 136, 72), transposed, sms=4, columns=128, cluster=2)


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("transposed", [True, False])
def test_clusters_whose_tiles_are_cut(run, transposed):
    told = {"sms": 8, "columns": 128, "cluster": 2}
    check(run, product(300, 136, 264), transposed, splits=2, **told)
    check(run, product(500, 520, 136), transposed, splits=2, full=8, **told)


def test_clusters_fetch_whole_boxes():
    """A matrix that is not transposed comes in columns of 64: 192 are no two halves of them."""
    with pytest.raises(ValueError, match=r"cluster is 2; expected 1 with tiles of 192 channels"):
        plan_any(product(300, 192, 72), 4, transposed=False, columns=192, cluster=2)
    with pytest.raises(
        ValueError, match="cluster is 16 and abreast 1; expected together at most 8"
    ):
        plan_any(product(300, 256, 72), 132, columns=256, cluster=16)
    for transposed in (True, False):
        found = candidates(product(5000, 5000, 5000), 132, transposed=transposed)
        assert any(plan.cluster > 1 for plan in found)
        for plan in found:
            any_plan.check(plan)


@pytest.mark.slow
@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize(
    "conv",
    [
        Conv(3, (9, 11), 64, 72, (3, 3), (1, 1)),
        Conv(2, (9, 13), 64, 72, (3, 3), (1, 1), (2, 2)),
        Conv(1, (20, 20), 32, 24, (3, 3), (2, 2), (1, 2), (2, 2)),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "options",
    [
        {"columns": 64, "bias": True, "relu": True},
        {"columns": 64, "per": 2, "pingpong": True},
        {"columns": 128, "swapped": True},
        {"columns": 64, "cluster": 2},
    ],
    ids=str,
)
def test_tiles_that_are_boxes(run, conv, options):
    pixels = plan_any(conv, 4, **options).pixels
    check(run, conv, sms=4, bricks=bricks_of(conv, pixels), **options)


@pytest.mark.slow
@pytest.mark.parametrize("bricks", [(1, 2, 64), (1, 1, 128), (64, 2, 1)])
def test_long_boxes(bricks):
    check(d2ltvm.emulate, SMALL, sms=4, columns=64, bricks=bricks)


@T.inline
def release_at_home(ring, thread, last, r, rank, plan):
    """As if both blocks of a cluster were as far as this one."""
    T.ptx.wgmma.wait_group.sync.aligned(1)
    if thread % 128 == 0 and r > 0:
        ring.empty.arrive(last)
        ring.empty.arrive(last)


@T.inline
def release_last_at_home(ring, thread, last, rank, plan):
    T.ptx.wgmma.wait_group.sync.aligned(0)
    if thread % 128 == 0:
        ring.empty.arrive(last)
        ring.empty.arrive(last)


@pytest.mark.slow
def test_a_slot_that_another_block_still_reads(monkeypatch):
    """Blocks that only ask their own consumers write into what the other's multiply."""
    monkeypatch.setattr(any_shape, "release_slot", release_at_home)
    monkeypatch.setattr(any_shape, "release_last_slot", release_last_at_home)
    with pytest.raises((WrongResultError, SynchronizationError)):
        check(d2ltvm.emulate, SMALL, sms=2, columns=64, cluster=2, stages=2)


def test_what_does_not_go_together():
    with pytest.raises(ValueError, match=r"bricks is \(1, 8, 16\); expected None with splits = 2"):
        plan_any(SMALL, 4, columns=64, splits=2, bricks=(1, 8, 16))
    with pytest.raises(ValueError, match="splits is 3; expected 1 to 2, as many as blocks, or"):
        plan_any(SMALL, 4, columns=64, splits=3, cluster=2)
    with pytest.raises(ValueError, match="bias is False; expected True with a residual"):
        conv_any(SMALL, 4, residual=True)
    with pytest.raises(ValueError, match="bias is False; expected True with a scale"):
        conv_any(SMALL, 4, scale=True)
    with pytest.raises(ValueError, match="pingpong is True; expected False with consumers = 1"):
        plan_any(SMALL, 2, columns=64, consumers=1, pingpong=True)


@pytest.mark.slow
def test_the_emulator_notices_that():
    plan = plan_any(SMALL, 4, columns=64, splits=3)
    object.__setattr__(plan, "sms", 2)
    arrays = [
        np.zeros(shape, dtype)
        for shape, dtype in (
            (plan.images, "float16"),
            ((9, 72, 64), "float16"),
            (plan.partials, "float32"),
            ((2, 9, 9, 72), "float16"),
        )
    ]
    with pytest.raises(SynchronizationError, match="for the other parts of tile"):
        d2ltvm.emulate(conv_any(SMALL, plan=plan), *arrays)


def test_a_copy_with_zeros_around():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 5, 5, 3)).astype("float16")
    y = np.full((2, 5, 8, 4), np.nan, "float16")
    d2ltvm.emulate(padded(x.shape, y.shape, (0, 0, 1, 0)), x, y)
    want = np.zeros_like(y)
    want[:, :, 1:6, :3] = x
    np.testing.assert_array_equal(y, want)
    with pytest.raises(ValueError, match="expected four axes"):
        padded((2, 2), (2, 4))
    with pytest.raises(ValueError, match="a multiple of 4 elements"):
        padded((1, 1, 1, 2), (1, 1, 1, 3))


def test_walks_are_what_they_were():
    walk = layouts.Walk((2, 5, 7, 8), (560, 112, 16), (-1, -2), (-3, -4), (1, 2), 8, 16)
    assert layouts.Walk.of(walk.arguments) == walk


def test_im2col():
    """Pixels of a convolution, tap by tap, are those of NumPy's windows."""
    conv = Conv(2, (5, 7), 8, 8, (3, 2), (1, 2), (2, 1), (1, 3))
    plan = plan_any(conv, 1, columns=16, depth=16)
    x = np.arange(2 * 5 * 7 * 8, dtype="float16").reshape(2, 5, 7, 8)
    wide = np.pad(x, ((0, 0), (1, 1), (2, 2), (0, 0)))
    (high, broad), many = conv.out, conv.pixels
    for kh in range(3):
        for kw in range(2):
            want = wide[:, kh : kh + 2 * high - 1 : 2, 3 * kw : 3 * kw + broad].reshape(many, 8)
            got = layouts.im2col(x.reshape(-1), plan.walk, (0, -1, -2, 0), (kh, 3 * kw))
            np.testing.assert_array_equal(got[:many, :8], want)
            assert not got[many:].any() and not got[:, 8:].any()


def test_planning():
    conv = Conv(8, (56, 56), 64, 64, (3, 3), (1, 1))
    plans = planner.candidates(conv, 132)
    assert len(set(plans)) == len(plans) > 10
    assert any(plan.pingpong for plan in plans) and not any(plan.bricks for plan in plans)
    chosen = plan_any(conv, 132)
    assert any_model.estimate(chosen) == min(map(any_model.estimate, plans))
    assert any_model.estimate(chosen) > conv.nbytes / any_costs.costs().memory
    few = plan_any(product(16, 4096, 4096), 132)
    assert few.pixels <= 64 and few.blocks > 100


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"batch": 0}, "batch is 0; expected a positive integer"),
        ({"size": 9}, "size is 9; expected rows and columns"),
        ({"pad": (0, -1)}, "pad is -1; expected an integer of at least 0"),
        ({"kernel": (12, 3)}, r"kernel is \(12, 3\); expected one that fits into \(9, 9\)"),
        ({"groups": 2}, "groups is 2; expected 1: there is no kernel for groups"),
        ({"stride": (9, 9)}, r"stride is \(9, 9\), .* TMA takes strides up to 8"),
        ({"batch": 2**26}, "expected at most 2,147,479,552 pixels and lines"),
    ],
)
def test_sizes_that_there_is_no_kernel_for(sizes, reason):
    given = {"batch": 2, "size": (9, 9), "ic": 8, "oc": 8, "kernel": (3, 3), "pad": (1, 1), **sizes}
    with pytest.raises(ValueError, match=reason):
        Conv(**given)


@pytest.mark.quick(2)
@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize(
    "options",
    [
        {"columns": 64, "abreast": 2},
        {"columns": 64, "abreast": 2, "cluster": 2},
        {"columns": 32, "abreast": 4, "swapped": True},
        {"columns": 64, "abreast": 2, "per": 2, "pingpong": True},
        {"columns": 64, "abreast": 2, "splits": 2},
    ],
    ids=str,
)
def test_blocks_that_share_images(run, options):
    check(run, product(300, 264, 200), sms=8, **options)


@pytest.mark.parametrize("run", RUN)
def test_blocks_that_share_images_of_a_matrix_as_it_is(run):
    check(run, product(300, 264, 200), False, sms=8, columns=64, abreast=2)


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("swapped", [False, True])
def test_results_in_parts(run, swapped):
    check(run, product(300, 264, 72), sms=4, columns=256, parts=2, swapped=swapped)


def test_sharing_that_is_not_possible():
    with pytest.raises(ValueError, match="abreast is 2; expected 1 but for products"):
        plan_any(SMALL, 4, columns=64, abreast=2)
    with pytest.raises(ValueError, match="splits is 2; expected 1 with clusters of 4 blocks"):
        plan_any(product(300, 264, 264), 8, columns=64, abreast=4, splits=2)
    with pytest.raises(ValueError, match="parts is 3; expected a divisor of 4"):
        plan_any(product(300, 264, 264), 8, columns=256, parts=3)


def test_clusters_of_four_do_not_fill_a_gpu():
    """132 SMs have room for 30 of them: more would be a second wave."""
    plan = plan_any(product(100000, 256, 64), 132, columns=64, cluster=2, abreast=2)
    assert (plan.lanes, plan.blocks) == (30, 120)
    assert plan_any(product(100000, 256, 64), 132, columns=64, cluster=2).lanes == 66


def test_tiles_fill_a_wave():
    """1736 rows are 14 tiles of 128; nine tiles of 208 columns beside each other make 126."""
    plans = candidates(product(1736, 1736, 1736), 132)
    assert {p.tiles for p in plans if (p.swapped, p.rows, p.columns) == (False, 128, 208)} == {
        126, 63, 70, 35, 42  # of one block, of pairs, of four
    }  # fmt: skip


def test_neighbours_share_the_larger_operand():
    """Blocks that are numbered one behind the other: where that gained on an H100, and lost."""
    conv = product(10000, 10000, 10000)
    assert Plan(conv, 132, columns=64, group=9).across > 8
    assert any_plan.group_of(Plan(conv, 132, columns=64)) == 1  # 128 pixels, 64 channels
    assert any_plan.group_of(Plan(conv, 132, columns=256)) == 32  # 128 pixels, 256 channels
    few = Plan(product(4096, 512, 4096), 132, columns=256)  # two tiles along channels
    assert any_plan.group_of(few) == 1
    assert any_plan.group_of(Plan(product(256, 4096, 64), 132, columns=128)) == 2


@pytest.mark.parametrize("group", [1, 2, 5])
def test_groups_of_tiles_that_are_alike_and_that_are_not(group):
    """Five tiles below each other: groups of two leave one over."""
    sizes = product(600, 136, 72)
    check(d2ltvm.emulate, sizes, sms=3, columns=64, stages=2, group=group)


@pytest.mark.parametrize("splits", [2, 3])
def test_a_part_keeps_its_own_share(splits):
    """Of a tile's sums in memory, the share that a part adds up itself is not written."""
    plan = plan_any(SMALL, 8, columns=32, splits=splits)
    x, w = np.ones((2, 9, 9, 64), "float16"), np.ones((9, 72, 64), "float16")
    sums = np.full(plan.partials, np.nan, "float32")
    y = np.full((2, 9, 9, 72), np.nan, "float16")
    d2ltvm.emulate(conv_any(SMALL, plan=plan), x, w, sums, y)
    for slot, written in enumerate(~np.isnan(sums).any((1, 3, 4))):
        first = slot % splits * plan.span
        kept = np.isin(np.arange(plan.groups), np.arange(first, first + plan.span))
        np.testing.assert_array_equal(written, ~kept)


def test_what_limits_a_round():
    """Limits that are near each other add up; one that is far below does not count."""
    assert any_model.near(100, 100) > 1.1 * any_model.near(100, 50) > 100
    turned, plain = (
        any_model.shared_cycles(Plan(product(4096, 4096, 4096), 132, True, transposed=transposed))
        for transposed in (False, True)
    )
    ratio = any_costs.costs().turned
    assert (turned > plain) == (ratio > 1)
    plan = Plan(product(4096, 4096, 4096), 132, columns=128)
    half = any_model.crossbar_cycles(replace(plan, cluster=2))
    assert half == 0.75 * any_model.crossbar_cycles(plan)  # of 256 lines a block asks for 192


def test_an_exchange_leaves_out_a_parts_own_share():
    plan = Plan(SMALL, 8, columns=64, splits=2)
    fixed = any_costs.costs().exchange
    two, four = (
        any_model.exchange_cycles(replace(plan, splits=splits)) - fixed for splits in (2, 4)
    )
    assert four == pytest.approx(1.5 * two)


def test_boxes_of_unaligned_channels_are_offered_last():
    found = ways(Conv(32, (56, 56), 144, 24), sms=132, known=False)
    assert "boxes" in [layer.way for layer in found]
    assert found[-1].way == "boxes"
