"""Tensors of 2^31 elements and more: offsets in 64 bits, emulated where such tensors end.

Memory that nobody has touched takes no room: NumPy's zeros of gigabytes are there at once.
"""

import functools
import math
import mmap
import re
from types import SimpleNamespace

import numpy as np
import pytest

import d2ltvm
from d2ltvm.analysis.emulator import warpgroups
from d2ltvm.bench.set_bench import exact
from d2ltvm.bench.sets import Case
from d2ltvm.compiler.verify import WrongResultError, compare
from d2ltvm.hopper import any_shape, depthwise, padding, pooling, rows, stem
from d2ltvm.hopper.any_conv import MOST_LINES, Conv, beside, product
from d2ltvm.hopper.any_plan import Plan, check, check_counts, possible
from d2ltvm.hopper.any_shape import conv_any
from d2ltvm.hopper.padding import padded, unfolded
from d2ltvm.hopper.planner import plan_any
from d2ltvm.hopper.planning import extents
from d2ltvm.hopper.rows import RowsPlan, conv_rows, rows_weights

RESULTS = Conv(256, (224, 224), 64, 256)  # 3.3e9 elements
BOTH = Conv(256, (224, 224), 176, 176, (3, 3), (1, 1))
ODD = Conv(256, (224, 224), 64, 255)
HALVES = Conv(256, (224, 224), 16, 378)  # results are 2.4e9 words of two float16
ONE = Conv(1, (16384, 16384), 16, 16, (3, 3), (1, 1))  # of one image, whose stride is 2^33 bytes
WEIGHTS = product(8, 2**20, 2**12)
NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Python names it from 3.12 on
ALL = {"bias": True, "residual": True, "relu": True}


def code(kernel):
    """The CUDA of a kernel, from its parameters on."""
    source = d2ltvm.build(kernel, "sm_90a").source
    return source[source.rindex("main_kernel(") :]


def offsets(text, name):
    """The expressions by which a tensor's elements are reached."""
    found = re.findall(rf"{name}_ptr(?:\[| \+ )(.*?);", text)
    assert found, name
    return found


@pytest.mark.parametrize(
    ("conv", "options", "names"),
    [
        (RESULTS, {"wide": True, **ALL}, ["results", "residual"]),
        (RESULTS, {"wide": True, "swapped": True, **ALL}, ["results", "residual"]),
        (ODD, ALL, ["results", "residual"]),
        (HALVES, {}, ["words"]),
        (BOTH, {"splits": 2}, ["P"]),
        (BOTH, {"splits": 2, **ALL}, ["P", "residual"]),
    ],
    ids=str,
)
def test_offsets_of_threads_are_in_64_bits(conv, options, names):
    text = code(conv_any(conv, plan=plan_any(conv, 132, columns=64, **options)))
    for name in names:
        assert all("(int64_t)" in offset for offset in offsets(text, name)), name


def sparse(shape, dtype="float16"):
    """Zeros that take room once they are written."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    lazily = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
    return np.frombuffer(mmap.mmap(-1, nbytes, lazily), dtype).reshape(shape)


@pytest.fixture
def last(monkeypatch):
    """A function that has the emulator run so many blocks of a grid alone: the last ones."""

    def run(many, kernel, *arrays):
        def blocks(grid, *others):
            return [(block, 0, 0) for block in grid[-many:]]

        monkeypatch.setattr(warpgroups, "itertools", SimpleNamespace(product=blocks))
        d2ltvm.emulate(kernel, *arrays)

    return run


EVERY = 2**28  # blocks: more than there are tiles, so that each has one
MANY = 2**25 + 5  # rows of a product


def far_end(last, conv, blocks=1, **options):
    """Compare what the last blocks compute of a layer's last tile with float64."""
    rng = np.random.default_rng(0)
    plan = plan_any(conv, EVERY, **options)
    first = (plan.across - 1) * plan.channels
    pixels = min(16, (conv.pixels - 1) % plan.pixels + 1)  # of the last tile
    x, w = sparse(plan.images), rng.standard_normal(plan.weights).astype("float16")
    end = x.reshape(-1, conv.ic)[-4 * math.prod(conv.size) - 4 * plan.pixels :]
    end[:] = rng.standard_normal(end.shape)
    y = sparse((conv.batch, *conv.out, conv.oc), plan.dtype)
    places = np.arange(conv.pixels - pixels, conv.pixels)
    want, most = exact(Case("a test", conv), x, w, places)
    given = []
    if plan.bias:
        given.append(rng.standard_normal(conv.oc).astype("float32"))
        want, most = want + given[0], most + np.abs(given[0])
    if plan.residual:
        given.append(sparse(y.shape))
        added = given[-1].reshape(-1, conv.oc)[-pixels:]
        added[:] = rng.standard_normal(added.shape)
        want, most = want + added, most + np.abs(added)
    if plan.relu:
        want = np.maximum(want, 0)
    if plan.meet:
        given.append(sparse(plan.partials, "float32"))
    last(blocks * plan.team, conv_any(conv, plan=plan), x, w, *given, y)
    found = y.reshape(-1, conv.oc)[-pixels:, first:]
    terms = 2 * conv.ic * conv.taps + 4
    compare("Y", found, want[:, first:], most[:, first:], terms, sums="float32")


IMAGES = Conv(2**13 + 1, (64, 64), 72, 8, (3, 3), (1, 1))
FAR = [
    (product(MANY, 72, 16), {"columns": 80}, 1),
    (product(MANY, 72, 16), {"columns": 16, "swapped": True}, 1),
    (product(MANY, 72, 16), {"columns": 80, "wide": True, **ALL}, 1),
    (product(MANY, 72, 16), {"columns": 16, "swapped": True, "wide": True, **ALL}, 1),
    (product(MANY, 65, 16), {"columns": 80, **ALL}, 1),
    (product(MANY, 130, 16), {"columns": 144}, 1),
    (product(MANY, 72, 16), {"columns": 80, **ALL}, 1),
    (product(2**24, 72, 32), {"columns": 80, "depth": 16, "splits": 2, **ALL}, 2),
    (product(MANY, 8, 72), {"columns": 16}, 1),
    (IMAGES, {"columns": 16}, 1),
    (Conv(2**13 + 1, (64, 64), 16, 72, (3, 3), (1, 1)), {"columns": 80, "bricks": (1, 2, 64)}, 1),
]


@pytest.mark.parametrize(("conv", "options", "blocks"), FAR, ids=str)
def test_the_last_tile_is_right(last, conv, options, blocks):
    far_end(last, conv, blocks, **options)


@pytest.mark.parametrize(("conv", "options", "blocks"), FAR[2:6], ids=str)
def test_in_32_bits_it_is_not(last, monkeypatch, conv, options, blocks):
    monkeypatch.setattr(any_shape, "extents", lambda *shape: shape)
    with pytest.raises((IndexError, WrongResultError)):
        far_end(last, conv, blocks, **options)


WORDS = Conv(40000, (128, 280), 3, 16, (3, 3), (1, 1), (2, 2))  # 2.15e9 words, and 2.87e9


def far_rows(last):
    rng = np.random.default_rng(0)
    plan = RowsPlan(WORDS, EVERY, 1, 2)
    x, y = sparse((WORDS.batch, *WORDS.size, WORDS.ic)), sparse((40000, 64, 140, 16))
    w = rng.standard_normal((9, 16, 3)).astype("float16")
    x[-1] = rng.standard_normal(x[-1].shape)
    last(1, conv_rows(plan), x, rows_weights(plan, w), y)
    places = np.arange(WORDS.pixels - 280, WORDS.pixels)
    want, most = exact(Case("a test", WORDS), x, w, places)
    compare("Y", y.reshape(-1, 16)[-280:], want, most, 2 * 27 + 4, sums="float32")


def test_the_last_rows_of_few_channels_are_right(last, monkeypatch):
    far_rows(last)
    monkeypatch.setattr(rows, "extents", lambda *shape: shape)
    with pytest.raises((IndexError, WrongResultError)):
        far_rows(last)


def far_copy(last):
    given, wanted = (2**20 + 1, 16, 16, 8), (2**20 + 1, 16, 17, 12)
    x, y = sparse(given), sparse(wanted)
    x[-1] = np.random.default_rng(0).standard_normal(given[1:])
    last(3, padded(given, wanted, (0, 0, 1, 0)), x, y)
    np.testing.assert_array_equal(y[-1, -8:, 1:, :8], x[-1, -8:])
    assert not y[-1, -8:, 0].any()
    assert not y[-1, -8:, :, 8:].any()


def far_unfolding(last):
    conv = Conv(2**20 + 1, (16, 16), 3, 16, (1, 3), (0, 1))
    x = sparse((conv.batch, *conv.size, conv.ic))
    x[-1] = np.random.default_rng(0).standard_normal((16, 16, 3))
    y = sparse((conv.batch, 16, 16, beside(conv).ic))
    last(1, unfolded(conv), x, y)
    row = np.pad(x[-1, -1], ((1, 1), (0, 0)))
    np.testing.assert_array_equal(y[-1, -1, :, :9].reshape(16, 3, 3), sliding(row))


def sliding(row):
    return np.stack([row[k : k + 3] for k in range(len(row) - 2)])


def test_the_end_of_a_copy_is_right(last, monkeypatch):
    far_unfolding(last)
    far_copy(last)
    monkeypatch.setattr(padding, "extents", lambda *shape: shape)
    with pytest.raises((IndexError, AssertionError)):
        far_copy(last)


SHORT = {  # kernels of so many images
    pooling: [
        (lambda n: pooling.max_pool((n, 64, 64, 16), (3, 3), (1, 1), (1, 1)), 2**16 + 1),
        (lambda n: pooling.mean_pool((n, 1, 1, 8)), 2**28 + 1),
    ],
    depthwise: [
        (lambda n: depthwise.depthwise_fused((n, 64, 64, 16), (3, 3), (1, 1), (1, 1)), 2**15 + 1),
    ],
    stem: [(lambda n: stem.stem((n, 8, 8), EVERY), 23_000_001)],
}
SHORT_CASES = [(module, *case) for module, cases in SHORT.items() for case in cases]
END = 4 * 64 * 16  # results at the end that are compared: the last two blocks compute them


def far_image(last, make, many):
    """Compare the end of the last of many images' result with that of this image alone."""
    rng = np.random.default_rng(0)
    one, kernel = make(1), make(many)
    x, *given, alone = (np.zeros([int(n) for n in p.shape], p.dtype) for p in one.params)
    for array in (x, *given):
        array[:] = rng.standard_normal(array.shape)
    d2ltvm.emulate(one, x, *given, alone)
    images, results = (sparse([int(n) for n in kernel.params[k].shape]) for k in (0, -1))
    images[-1] = x[0]
    last(2, kernel, images, *given, results)
    found = results[-1].ravel()[-END:]
    assert found.any()
    np.testing.assert_array_equal(found, alone.ravel()[-END:])


@pytest.mark.parametrize(("module", "make", "many"), SHORT_CASES)
def test_the_last_image_of_other_kernels_is_right(module, make, many, request, monkeypatch):
    far_image(request.getfixturevalue("last"), make, many)
    monkeypatch.undo()
    run = request.getfixturevalue("last")
    monkeypatch.setattr(module, "extents", lambda *shape: shape)
    with pytest.raises((IndexError, AssertionError, ValueError)):  # TVM may refuse it before
        far_image(run, make, many)


@pytest.mark.parametrize(
    "make",
    [
        lambda: conv_any(RESULTS, plan=plan_any(RESULTS, 132, **ALL)),
        lambda: conv_any(ONE, plan=plan_any(ONE, 132)),
        lambda: conv_any(BOTH, plan=plan_any(BOTH, 132, columns=64, splits=2)),
        lambda: conv_any(WEIGHTS, plan=plan_any(WEIGHTS, 132)),
        lambda: conv_rows(RowsPlan(WORDS, 132, 1, 2)),
        lambda: padded((2**20 + 1, 16, 16, 8), (2**20 + 1, 16, 17, 12)),
        *(functools.partial(make, many) for _, make, many in SHORT_CASES),
    ],
)
def test_the_host_compares_strides_of_large_tensors_in_64_bits(make):
    """A tensor's parameter has them by its shape: in 32 bits, one of 2^32 elements would be 0."""
    sizes = [math.prod(int(n) for n in tensor.shape) for tensor in make().params]
    types = [{str(n.ty) for n in tensor.shape} for tensor in make().params]
    assert types == [{"int64" if size >= 2**31 else "int32"} for size in sizes]
    assert max(sizes) >= 2**31


def test_only_large_tensors_have_shapes_in_64_bits():
    assert extents(2**31 - 1) == (2**31 - 1,)
    assert [(int(n), str(n.ty)) for n in extents(2**30, 2)] == [(2**30, "int64"), (2, "int64")]


@pytest.mark.parametrize(
    "sizes",
    [
        {"batch": 2**26},
        {"batch": 2**24, "size": (1, 1), "ic": 2**15},
        {"oc": 2**28},
    ],
    ids=str,
)
def test_sizes_that_do_not_fit_32_bits_or_tma_are_refused_in_a_line(sizes):
    given = {"batch": 2, "size": (9, 9), "ic": 8, "oc": 8, "kernel": (3, 3), "pad": (1, 1), **sizes}
    with pytest.raises(ValueError, match=r"expected at most 2,147,479,552 pixels and lines") as e:
        Conv(**given)
    assert "\n" not in str(e.value)


DEEP = {"depth": 16, "splits": 64}
FLOAT32 = {"numbers": "float32", "wide": True, "scale": True, "bias": True}
TILES = {"swapped": True, "consumers": 1, "columns": 16, "depth": 16, "splits": 8}
COUNTED = {  # a plan that kernels can number, and one that goes a little beyond
    "items": [Plan(product(2**30, 256, 128), 8, **TILES, full=full) for full in (587, 586)],
    "rounds of all parts": [
        Plan(product(8, 8, 16 * n), 132, **DEEP) for n in (MOST_LINES // 64, MOST_LINES // 64 + 1)
    ],
    "channels": [Plan(product(8, 8, MOST_LINES + n), 132) for n in (0, 8)],
    "lines of weights": [Plan(product(8, MOST_LINES // 2 + n, 16), 132, **FLOAT32) for n in (0, 8)],
}


@pytest.mark.parametrize("what", COUNTED)
def test_plans_beyond_32_bits_are_refused(what):
    fine, beyond = COUNTED[what]
    check_counts(fine)
    with pytest.raises(ValueError, match=rf"has [\d,]+ {what} with .*at most {MOST_LINES:,}$") as e:
        check(beyond)
    assert "\n" not in str(e.value) and not possible(beyond)


def test_strips_of_few_channels_have_numbers_in_32_bits():
    conv = Conv(MOST_LINES, (1, 8), 1, 8, (1, 8), (0, 0), (1, 8))  # each image is a strip
    blocks = 2**31 - MOST_LINES  # a block goes on so far behind its last strip
    assert RowsPlan(conv, blocks // 2 - 1, 1, 1, per_sm=2).fits
    assert not RowsPlan(conv, blocks // 2, 1, 1, per_sm=2).fits


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: pooling.max_pool((2**30, 2, 1, 8), (1, 1), (1, 1)), "pixels"),
        (lambda: pooling.max_pool((2**29, 1, 1, 8), (2, 2), (1, 1), (1, 1)), "pixels of results"),
        (lambda: pooling.max_pool((2**29, 1, 1, 32), (1, 1), (1, 1)), "strips"),
        (lambda: pooling.mean_pool((2**30, 1, 1, 16)), "strips"),
        (lambda: pooling.mean_pool((2**30, 1, 2, 8)), "pixels"),
        (lambda: depthwise.depthwise_fused((2**30, 2, 1, 8), (1, 1), (1, 1)), "pixels"),
        (lambda: depthwise.depthwise_fused((2**28, 1, 1, 64), (1, 1), (1, 1)), "strips"),
        (lambda: stem.stem((2**25, 8, 8), EVERY), "pixels"),
    ],
)
def test_other_kernels_refuse_what_they_cannot_number(make, what):
    with pytest.raises(ValueError, match=rf"makes 2,147,483,648 {what}; expected at most") as e:
        make()
    assert "\n" not in str(e.value)


def test_rows_that_do_not_fit_32_bits_are_not_laid_side_by_side():
    conv = Conv(2**28, (8, 1), 1, 8, (8, 1), (0, 0), (8, 1))
    with pytest.raises(ValueError, match=r"images of 2,147,483,648 rows; expected at most"):
        unfolded(conv)
