"""Kernels for Hopper: choices, errors, machine code and index maps anywhere; results on one."""

import functools
import itertools

import numpy as np
import pytest
import tvm
from on_hopper import RUN, needs_hopper
from tvm.script import tirx as T

import d2ltvm
from d2ltvm import hopper, layouts
from d2ltvm.analysis import sass
from d2ltvm.hopper import implicit, planning, tiles

pytestmark = pytest.mark.slow

LAYER = (256, 512, 256, 14, 3, 1, 1)

# Sizes that tiles divide and that they do not; borders, strides, kernels; few and many images.
CONVS = [
    ((128, 256, 64, 5, 3, 1, 1), {}),
    ((130, 72, 40, 5, 3, 1, 1), {"columns": 64}),
    ((100, 136, 96, 7, 3, 1, 2), {"tile": (128, 1, 1), "columns": 128}),
    ((128, 256, 64, 6, 1, 0, 1), {"columns": 256, "parts": 4}),
    ((128, 64, 64, 7, 1, 0, 2), {}),
    ((33, 200, 72, 4, 5, 2, 1), {"columns": 256, "stages": 2}),
    ((40, 64, 64, 6, 3, 0, 1), {"skip": False}),
    ((3, 128, 64, 9, 3, 1, 1), {"tile": (2, 8, 8)}),
    ((1, 64, 64, 14, 3, 1, 1), {"tile": (1, 8, 16)}),
    ((64, 64, 64, 8, 3, 1, 1), {"tile": (32, 2, 2), "sms": 7}),
    ((2, 8, 8, 1, 1, 0, 1), {}),
    ((50, 72, 40, 4, 1, 0, 1), {"sms": 3, "on_demand": True}),
    ((130, 72, 40, 5, 3, 1, 1), {"sms": 2, "on_demand": True}),
]
PRODUCTS = [(256, 512, 256), (1000, 264, 136), (1, 8, 8), (129, 64, 72), (4096, 128, 64)]


def half(shape, seed, scale=1.0):
    values = np.random.default_rng(seed).standard_normal(shape, "float32") * scale
    return values.astype("float16")


def assert_rounded(got, want, most, terms):
    """Products of float16 are exact in float32; `terms` sums are not, nor is the last rounding.

    TensorCores cut sums off where float32 rounds them: an error of eps instead of eps / 2.
    """
    bound = terms * np.finfo("float32").eps * most + np.finfo("float16").eps / 2 * np.abs(want)
    assert (np.abs(got - want) <= bound + 2**-25).all()  # half of the smallest float16


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("shape, options", CONVS, ids=str)
def test_convolution(run, shape, options):
    batch, oc, ic, n, k, p, s = shape
    x, w = half((batch, n, n, ic), 0), half((oc, ic, k, k), 1, (ic * k * k) ** -0.5)
    o = d2ltvm.conv_out_size(n, k, p, s)
    y = np.full((batch, o, o, oc), np.nan, "float16")
    taps = np.ascontiguousarray(w.transpose(2, 3, 0, 1).reshape(k * k, oc, ic))
    run(hopper.conv_nhwc(*shape, **options), x, taps, y)
    exact = [a.astype("float64") for a in (x.transpose(0, 3, 1, 2), w)]
    want = d2ltvm.compute.conv_batch_reference(*exact, p, s).transpose(0, 2, 3, 1)
    most = d2ltvm.compute.conv_batch_reference(*map(np.abs, exact), p, s).transpose(0, 2, 3, 1)
    assert_rounded(y, want, most, ic * k * k)


@pytest.mark.parametrize("where", [pytest.param("gpu", marks=needs_hopper), "emulated"])
def test_tiles_on_demand_are_counted_anew(where):
    """One kernel several times: each launch leaves the counter as it found it."""
    program = hopper.conv_nhwc(300, 64, 64, 4, 1, sms=7, on_demand=True)
    run = d2ltvm.build(program) if where == "gpu" else functools.partial(d2ltvm.emulate, program)
    x, w = half((300, 4, 4, 64), 0), half((1, 64, 64), 1, 0.125)
    exact = x.astype("float64") @ w[0].astype("float64").T
    for _ in range(3):
        y = np.full(x.shape, np.nan, "float16")
        run(x, w, y)
        assert np.abs(y - exact).max() < 2**-8  # half a unit of a float16 from 8 to 16


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("shape", PRODUCTS, ids=str)
def test_product(run, shape):
    n, m, l = shape
    a, b = half((n, l), 0), half((m, l), 1, l**-0.5)
    c = np.full((n, m), np.nan, "float16")
    run(hopper.matmul_nt(n, m, l), a, b, c)
    x, y = a.astype("float64"), b.astype("float64")
    assert_rounded(c, x @ y.T, np.abs(x) @ np.abs(y).T, l)


@pytest.mark.parametrize("run", RUN)
@pytest.mark.parametrize("columns", [8, 64, 136, 256])
def test_one_tile(run, columns):
    a, b = half((64, 64), 0), half((columns, 64), 1)
    c = np.full((2, 64, columns), np.nan, "float32")
    run(hopper.one_tile(columns, repeats=3, blocks=2), a, b, c)
    x, y = a.astype("float64"), b.astype("float64")
    bound = 3 * 64 * np.finfo("float32").eps * 3 * (np.abs(x) @ np.abs(y).T)
    assert (np.abs(c - 3 * (x @ y.T)) <= bound).all()


@pytest.mark.parametrize("columns", [8, 64, 136, 256])
def test_one_tile_followed_without_a_gpu(columns):
    """What TMA, swizzling and wgmma do to places, put together, is a product."""
    a, b = half((64, 64), 0), half((columns, 64), 1)
    shared = [layouts.tiles(layouts.box(x, (0, 0), x.shape)) for x in (a, b)]
    registers = np.zeros((128, columns // 2), "float32")
    for k in range(4):  # a descriptor is moved by 32 bytes
        layouts.wgmma(registers, *shared, k * 16, k * 16)
    thread, register = layouts.accumulator(*np.indices((64, columns)))
    x, y = a.astype("float64"), b.astype("float64")
    bound = 64 * np.finfo("float32").eps * (np.abs(x) @ np.abs(y).T)
    assert (np.abs(registers[thread, register] - x @ y.T) <= bound).all()


def test_the_layout_of_shared_tiles_is_the_swizzle():
    layout = tiles.swizzled_layout((2, 16, 64))
    for index in np.ndindex(2, 16, 64):
        (place,) = layout.apply(*index, shape=[2, 16, 64]).values()
        row = index[0] * 16 + index[1]
        assert int(place) == layouts.swizzle_128b(row, index[2])


def test_boxes_are_zero_outside_and_stored_inside():
    image = np.arange(1.0, 13).reshape(3, 4)
    assert layouts.box(image, (-1, 2), (2, 4)).tolist() == [[0, 0, 0, 0], [3, 4, 0, 0]]
    assert layouts.box(image, (5, 0), (1, 2)).tolist() == [[0, 0]]
    layouts.put(image, (-1, 2), np.full((2, 4), -1.0))
    assert image[0].tolist() == [1, 2, -1, -1] and image[1:].min() == 5
    for corner in ((3, 0), (0, 9), (-2, 0), (0, -4), (0, -5), (-4, 1)):  # wholly outside
        layouts.put(image, corner, np.full((2, 4), -7.0))
    assert image.min() == -1


def located(plan):
    """What the kernel's own `locate` says of each tile, run on the processor."""

    @T.prim_func
    def main(out_ptr: T.handle):
        out = T.match_buffer(out_ptr, (plan.tiles, 8), "int32")
        tile = implicit.ConvTile()
        for index in T.serial(plan.tiles):
            implicit.locate(tile, index, plan)
            out[index, 0] = tile.row
            out[index, 1] = tile.column
            out[index, 2] = tile.image
            out[index, 3] = tile.channel
            out[index, 4] = tile.first_kh
            out[index, 5] = tile.taps_h
            out[index, 6] = tile.first_kw
            out[index, 7] = tile.taps_w

    tensor = tvm.runtime.tensor(np.full((plan.tiles, 8), -1, "int32"))
    tvm.compile(tvm.IRModule({"main": main}), target="llvm", tir_pipeline="tirx")(tensor)
    return tensor.numpy()


PLANS = [(shape, {k: v for k, v in options.items() if k != "sms"}) for shape, options in CONVS]


@pytest.mark.parametrize(
    "shape, options", [*PLANS, (LAYER, {}), ((5, 64, 64, 30, 3, 0, 1), {})], ids=str
)
def test_every_tile_is_located_once_with_its_taps(shape, options):
    oc, k, p, s = shape[1], *shape[4:]
    plan = planning.plan_conv(shape, **options)
    (tn, th, tw), places = plan.tile, located(plan)
    corners = itertools.product(
        range(0, plan.shape.o, th),
        range(0, plan.shape.o, tw),
        range(0, plan.shape.batch, tn),
        range(0, oc, plan.columns),
    )
    assert sorted(map(tuple, places[:, :4].tolist())) == sorted(corners)

    def needed(first, size):
        inside = [
            tap
            for tap in range(k)
            if any(0 <= y * s - p + tap < plan.shape.n for y in range(first, first + size))
        ]
        return (min(inside), len(inside)) if plan.skip else (0, k)

    for y, x, _, _, *taps in places.tolist():
        assert tuple(taps) == (*needed(y, th), *needed(x, tw))
    whole = plan.whole_y * plan.whole_x * plan.each
    assert (places[:whole, [5, 7]] == k).all()


@pytest.mark.parametrize("shape, options", PLANS, ids=str)
def test_the_plan_computes_the_convolution(shape, options):
    """Boxes under each tap, multiplied and stored as the kernel does, in NumPy."""
    batch, oc, ic, n, k, p, s = shape
    plan = planning.plan_conv(shape, **options)
    images, kernels = half((batch, ic, n, n), 0), half((oc, ic, k, k), 1)
    exact = [a.astype("float64") for a in (images, kernels)]
    x = exact[0].transpose(0, 2, 3, 1).reshape(plan.shape.batch, plan.shape.n, plan.shape.n, ic)
    w = exact[1].transpose(2, 3, 0, 1).reshape(k * k, oc, ic)
    y = np.full((plan.shape.batch, plan.shape.o, plan.shape.o, oc), np.nan)
    for row, column, image, channel, kh, taps_h, kw, taps_w in located(plan).tolist():
        sums = np.zeros((128, plan.columns))
        for tap_h, tap_w in itertools.product(range(kh, kh + taps_h), range(kw, kw + taps_w)):
            corner = (image, row * s - p + tap_h, column * s - p + tap_w, 0)
            rows = layouts.box(x, corner, (*plan.tile, ic)).reshape(128, ic)
            columns = (1, plan.columns, ic)
            (matrix,) = layouts.box(w, (tap_h * k + tap_w, channel, 0), columns)
            sums += rows @ matrix.T
        corner = (image, row, column, channel)
        layouts.put(y, corner, sums.reshape(*plan.tile, plan.columns))
    want = d2ltvm.compute.conv_batch_reference(*exact, p, s).transpose(0, 2, 3, 1)
    assert np.allclose(y.reshape(want.shape), want, rtol=1e-12, atol=1e-9)


def innermost(text):
    return next(loop for loop in sass.loops(text) if any(o.startswith("HGMMA") for o in loop))


@pytest.mark.parametrize(
    "kernel",
    [
        lambda: hopper.conv_nhwc(*LAYER),
        lambda: hopper.conv_nhwc(256, 64, 64, 56, 3, 1),
        lambda: hopper.conv_nhwc(1, 512, 256, 14, 3, 1),
        lambda: hopper.conv_nhwc(256, 128, 256, 56, 1),
        lambda: hopper.matmul_nt(4096, 4096, 4096),
    ],
    ids=["layer", "64 channels", "one image", "on demand", "product"],
)
def test_machine_code(kernel):
    """No register is spilled; nothing moves between kinds of registers where it multiplies."""
    built = d2ltvm.build(kernel(), "sm_90a")
    (resources,) = d2ltvm.resources(built.cubin()).values()
    assert resources.local == 0 and resources.registers <= 168  # of 65,536 for 384 threads
    assert built.launches[0].shared <= planning.SHARED_PER_BLOCK
    names = [opcode.partition(".")[0] for opcode in innermost(built.sass())]
    assert names.count("HGMMA") >= 4 and "R2UR" not in names and "STL" not in names


def test_the_launch():
    built = d2ltvm.build(hopper.conv_nhwc(1, 64, 64, 14, 3, 1), "sm_90a")
    (launch,) = built.launches
    assert launch.grid == (2, 1, 1) and launch.block == (384, 1, 1) and launch.dependent
    assert [p.shape for p in built.params] == [(1, 14, 14, 64), (9, 64, 64), (1, 14, 14, 64)]
    assert [p.output for p in built.params] == [False, False, True]


@pytest.mark.parametrize("columns, early", [(64, False), (128, True)])
def test_who_waits_for_the_kernel_before(columns, early):
    """All do, before anything is fetched; the next one may start early behind wide tiles."""
    text = d2ltvm.build(hopper.conv_nhwc(1, 128, 64, 14, 3, 1, columns=columns), "sm_90a").sass()
    opcodes = [line.split()[1] for line in text.splitlines() if "*/  " in line]
    assert opcodes.index("ACQBULK") < opcodes.index("UTMALDG.4D")
    assert opcodes[: opcodes.index("ACQBULK")].count("PREEXIT") == opcodes.count("PREEXIT") == early


@needs_hopper
def test_a_chain_of_dependent_launches():
    """Each product reads what the one before wrote, with no time between them."""
    n, many = 2048, 40
    a, b = half((n, n), 0), half((n, n), 1, n**-0.5)
    kernel = d2ltvm.build(hopper.matmul_nt(n, n, n))
    want = a
    for _ in range(many):
        c = np.full((n, n), np.nan, "float16")
        kernel(want, b, c)  # copies to and from the GPU keep these launches apart
        want = c
    x, w, y = kernel.upload([a, b, np.full((n, n), np.nan, "float16")])
    for _ in range(many // 2):
        kernel(x, w, y)
        kernel(y, w, x)
    assert np.array_equal(x.numpy(), want) and np.isfinite(want).all()


def test_what_is_on_demand():
    """Where memory sets the time, and blocks have many tiles."""
    for layer, expected in (
        ((256, 128, 256, 56, 1, 0, 1), True),
        ((256, 1024, 256, 14, 1, 0, 1), False),  # 204 flop/byte
        ((8, 128, 256, 56, 1, 0, 1), False),  # a tile or two for a block
        ((256, 64, 64, 56, 3, 1, 1), False),
    ):
        assert planning.plan_conv(layer).on_demand == expected
        assert planning.plan_conv(layer, on_demand=not expected).on_demand == (not expected)
    # On a chip with more SMs there are too few tiles for each.
    assert not planning.plan_conv((256, 128, 256, 56, 1), sms=1000).on_demand


@pytest.mark.parametrize(
    "layer", [(3, 8, 16, 6, 1, 0, 1), (3, 8, 16, 6, 1, 0, 2), (2, 8, 8, 5, 3, 1, 2)], ids=str
)
def test_flop_per_byte(layer):
    """Counted one by one, from what each tap touches."""
    batch, oc, ic, n, k, p, s = layer
    o = d2ltvm.conv_out_size(n, k, p, s)
    touched = {y * s - p + tap for y in range(o) for tap in range(k)} & set(range(n))
    elements = batch * (len(touched) ** 2 * ic + o * o * oc) + k * k * oc * ic
    flop = sum(2 for _ in np.ndindex(batch, oc, ic, o, o, k, k))
    assert planning.flop_per_byte(layer) == pytest.approx(flop / (2 * elements))


@pytest.mark.parametrize("down, group", [(1, 1), (16, 16), (17, 1), (20, 10), (34, 2), (96, 16)])
def test_tiles_in_a_group_divide_those_below_each_other(down, group):
    assert planning.group_size(down) == group


def test_choices():
    # Two waves of 256 columns take longer than three of 128.
    assert planning.tile_columns(196 // 4, 512, 132) in (64, 128)
    assert planning.tile_columns(98, 512, 132) == 128
    assert planning.tile_columns(392, 512, 132) == 256
    assert planning.tile_columns(1000, 64, 132) == 64
    assert planning.tile_pixels(256, 14, 1) == (128, 1, 1)
    assert planning.tile_pixels(1, 14, 1) == (1, 8, 16)
    assert planning.tile_pixels(8, 14, 1) == (8, 1, 16)
    assert planning.tile_pixels(8, 14, 2) == (128, 1, 1)
    for batch, o in ((1, 1), (1, 2), (2, 3), (5, 100)):
        tile = planning.tile_pixels(batch, o, 1)
        assert (
            np.prod(tile) == 128
            and planning.check_pixels(tile, planning.ConvShape(batch, 8, 8, o, 1)) == tile
        )


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: hopper.matmul_nt(0, 64, 64), "n is 0; expected a positive integer"),
        (lambda: hopper.matmul_nt(2.5, 64, 64), "n is 2.5; expected a positive integer"),
        (lambda: hopper.matmul_nt(64, 60, 64), "m is 60; expected a positive multiple of 8"),
        (lambda: hopper.matmul_nt(64, -8, 64), "m is -8; expected a positive multiple of 8"),
        (lambda: hopper.matmul_nt(64, 64, 4), "l is 4; expected a positive multiple of 8"),
        (lambda: hopper.matmul_nt(64, 64, 64.0), "l is 64.0; expected a positive multiple of 8"),
        (lambda: hopper.matmul_nt(64, 64, 64, sms=-5), "sms is -5; expected a positive integer"),
        (lambda: hopper.matmul_nt(64, 64, 64, columns=96), "columns is 96; expected 64, 128 or"),
        (lambda: hopper.matmul_nt(64, 64, 64, columns=0), "columns is 0; expected 64, 128 or 256"),
        (lambda: hopper.matmul_nt(64, 64, 64, 256, 4, 1), "stages is 4; expected 2 to 3 with"),
        (lambda: hopper.matmul_nt(64, 64, 64, stages=2.5), "stages is 2.5; expected 2 to"),
        (lambda: hopper.matmul_nt(64, 64, 64, 128, parts=4), "parts is 4; expected a divisor of 2"),
        (lambda: hopper.matmul_nt(64, 64, 64, 128, parts=0), "parts is 0; expected a divisor of 2"),
        (lambda: hopper.one_tile(12), "columns is 12; expected a positive multiple of 8"),
        (lambda: hopper.one_tile(264), "columns is 264; expected a multiple of 8, up to 256"),
        (lambda: hopper.one_tile(repeats=0), "repeats is 0; expected a positive integer"),
        (lambda: hopper.one_tile(blocks=1.5), "blocks is 1.5; expected a positive integer"),
        (lambda: hopper.conv_nhwc(0, 64, 64, 14, 3), "batch is 0; expected a positive integer"),
        (lambda: hopper.conv_nhwc(256, 500, 256, 14, 3), "oc is 500; expected a positive multiple"),
        (lambda: hopper.conv_nhwc(256, 512, 3, 14, 3), "ic is 3; expected a positive multiple"),
        (lambda: hopper.conv_nhwc(256, 512, 256, 0, 3), "n is 0; expected a positive integer"),
        (lambda: hopper.conv_nhwc(256, 512, 256, 14, 0), "k is 0; expected a positive integer"),
        (lambda: hopper.conv_nhwc(256, 512, 256, 14, 3, 3), "p is 3; expected 0 to 2 with k = 3"),
        (lambda: hopper.conv_nhwc(256, 512, 256, 14, 3, -1), "p is -1; expected 0 to 2 with k = 3"),
        (lambda: hopper.conv_nhwc(256, 512, 256, 14, 3, 1, 0), "s is 0; expected a positive"),
        (lambda: hopper.conv_nhwc(256, 512, 256, 2, 3), "k is 3; .*at most"),
        (lambda: hopper.conv_nhwc(*LAYER, sms=0), "sms is 0; expected a positive integer"),
        (
            lambda: hopper.conv_nhwc(*LAYER, tile=(64, 1, 1)),
            r"tile is \(64, 1, 1\); expected images",
        ),
        (lambda: hopper.conv_nhwc(*LAYER, tile=(1, 1, 128)), r"tile is \(1, 1, 128\); expected im"),
        (lambda: hopper.conv_nhwc(*LAYER, tile=(128, 1)), r"tile is \(128, 1\); expected images"),
        (
            lambda: hopper.conv_nhwc(*LAYER[:6], 2, tile=(64, 2, 1)),
            r"tile is \(64, 2, 1\); expected \(128, 1, 1\) with s = 2",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_other_gpus():
    kernel = hopper.one_tile()
    with pytest.raises(d2ltvm.MissingError, match=r"which only Hopper has.*sm_90a"):
        d2ltvm.build(kernel, "sm_80")
    with pytest.raises(d2ltvm.MissingError, match="which only Hopper has"):
        d2ltvm.build(kernel, "llvm")
    with pytest.raises(ValueError, match="arch is 'sm_80'; expected 'sm_90a'"):
        d2ltvm.build(kernel, "sm_90a").cubin("sm_80")
