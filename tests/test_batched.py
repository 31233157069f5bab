"""Convolution of batches: layouts there and back, and results against NumPy."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm_ffi

import d2ltvm
from d2ltvm import layouts, schedules
from d2ltvm.schedules import wmma_intrinsics

pytestmark = pytest.mark.slow

SHAPES = [  # batch, oc, ic, n, k, p, s
    (4, 3, 5, 6, 3, 1, 1),
    (2, 5, 3, 9, 3, 0, 2),
    (3, 2, 2, 7, 5, 2, 1),
    (1, 1, 1, 1, 1, 0, 1),
]


def data(batch, oc, ic, n, k, dtype="float32"):
    rng = np.random.default_rng(0)
    shapes = ((batch, ic, n, n), (oc, ic, k, k))
    return [rng.standard_normal(shape, "float32").astype(dtype) for shape in shapes]


def hwcn_reference(p, s):
    def reference(x, w):
        wanted = d2ltvm.compute.conv_batch_reference(
            d2ltvm.compute.from_hwcn(x), d2ltvm.compute.from_hwcn(w), p, s
        )
        return d2ltvm.compute.to_hwcn(wanted)

    return reference


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_hwcn(shape):
    batch, oc, ic, n, k, p, s = shape
    kernel = d2ltvm.build(d2ltvm.schedule(d2ltvm.compute.conv_hwcn(*shape)[:3]), "llvm")
    images, weights = data(batch, oc, ic, n, k)
    inputs = (d2ltvm.compute.to_hwcn(images), d2ltvm.compute.to_hwcn(weights))
    assert d2ltvm.check(kernel, inputs, hwcn_reference(p, s), 2 * ic * k * k) < 1e-6


@pytest.mark.parametrize("shape", [(4, 8, 4, 5, 3, 1, 1), (8, 4, 12, 7, 3, 0, 2)], ids=str)
def test_nhwcnc(shape):
    batch, oc, ic, n, k, p, s = shape
    tensors = d2ltvm.compute.conv_nhwcnc(*shape, block=4)[:3]
    kernel = d2ltvm.build(d2ltvm.schedule(tensors), "llvm")
    images, weights = data(batch, oc, ic, n, k, "float16")
    out = np.full(kernel.params[2].shape, np.nan, "float32")
    kernel(d2ltvm.compute.to_nhwcnc(images, 4), d2ltvm.compute.to_hwioio(weights, 4), out)
    exact = [a.astype("float64") for a in (images, weights)]
    wanted = d2ltvm.compute.conv_batch_reference(*exact, p, s)
    # Products of float16 are exact in float32; each addition may round once.
    most = d2ltvm.compute.conv_batch_reference(*map(np.abs, exact), p, s)
    error = np.abs(d2ltvm.compute.from_nhwcnc(out) - wanted)
    assert (error <= ic * k * k * np.finfo("float32").eps / 2 * most).all()


def test_layouts_there_and_back():
    images, weights = data(4, 6, 8, 5, 3)
    assert np.array_equal(d2ltvm.compute.from_hwcn(d2ltvm.compute.to_hwcn(images)), images)
    assert np.array_equal(d2ltvm.compute.from_nhwcnc(d2ltvm.compute.to_nhwcnc(images, 2)), images)
    blocks = d2ltvm.compute.to_hwioio(weights, 2)
    for o, i, y, x in ((0, 0, 0, 0), (5, 7, 2, 1), (3, 4, 1, 2)):
        assert blocks[y, x, i // 2, o // 2, i % 2, o % 2] == weights[o, i, y, x]
    assert d2ltvm.compute.to_hwcn(images)[3, 1, 7, 2] == images[2, 7, 3, 1]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: d2ltvm.compute.conv_hwcn(0, 1, 1, 3, 3), "batch is 0; expected a positive"),
        (lambda: d2ltvm.compute.conv_hwcn(1, 1, 1, 3, 5), "k is 5; expected at most n"),
        (lambda: d2ltvm.compute.conv_hwcn(1, 1, 1, 3, 3, -1), "p is -1; expected an integer"),
        (lambda: d2ltvm.compute.conv_hwcn(1, 1, 1, 3, 3, 0, 0), "s is 0; expected a positive"),
        (
            lambda: d2ltvm.compute.conv_nhwcnc(16, 17, 16, 3, 3),
            "oc is 17; expected a multiple of block",
        ),
        (
            lambda: d2ltvm.compute.conv_nhwcnc(16, 16, 16, 3, 3, block=0),
            "block is 0; expected a pos",
        ),
        (
            lambda: d2ltvm.compute.to_nhwcnc(np.zeros((3, 16, 2, 2))),
            "batch is 3; expected a multiple of block",
        ),
        (
            lambda: d2ltvm.compute.to_hwioio(np.zeros((16, 8, 3, 3))),
            "ic is 8; expected a multiple of block",
        ),
        (
            lambda: d2ltvm.compute.to_hwcn(np.zeros((3, 16))),
            r"shape \(3, 16\); expected four dimensions",
        ),
        (lambda: d2ltvm.compute.from_nhwcnc(np.zeros((3, 16))), "expected six dimensions"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("options", [{}, {"interleave": False, "stages": 1, "scope": "shared"}])
@pytest.mark.parametrize("shape", [(32, 32, 8, 4, 3, 1, 1), (32, 16, 16, 5, 3, 0, 2)], ids=str)
def test_tiled_schedule_of_hwcn(shape, options):
    batch, oc, ic, n, k, p, s = shape
    tiles = {"rows": (1, 2, 2, 4), "columns": (2, 1, 2, 4), "depth": 4}
    sch = schedules.hwcn_tiled(*shape, **tiles, **options)
    images, weights = (d2ltvm.compute.to_hwcn(a) for a in data(batch, oc, ic, n, k))
    terms = 2 * ic * k * k
    error = d2ltvm.check(d2ltvm.build(sch), (images, weights), hwcn_reference(p, s), terms)
    assert error < 1e-6


def test_sizes_that_the_tile_does_not_divide_are_named():
    for shape, message in (
        ((256, 500, 256), "oc is 500; expected a multiple of the tile, 128"),
        ((200, 512, 256), "batch is 200; expected a multiple of the tile, 128"),
        ((256, 512, 100), "ic is 100; expected a multiple of the tile, 32"),
    ):
        with pytest.raises(ValueError, match=message):
            schedules.hwcn_tiled(*shape, 14, 3, 1, 1)


def test_the_tutorial_layer_keeps_the_data_path_below_the_arithmetic():
    report = d2ltvm.report(
        schedules.hwcn_tiled(256, 512, 256, 14, 3, 1, 1),
        "H200",
        2 * 512 * 256 * 9 * 196 * 256,
    )
    conflicts = report.traffic.total("read", "shared")[2]
    assert conflicts == 0 and report.bound[0] == "FP32"
    assert report.seconds["L1 and shared"] < report.seconds["FP32"]


@pytest.mark.parametrize("shape", [(32, 32, 8, 4, 3, 1, 1), (64, 32, 16, 5, 3, 0, 2)], ids=str)
def test_the_tutorials_schedule_of_hwcn(shape):
    batch, oc, ic, n, k, p, s = shape
    sch = schedules.hwcn_blocks(*shape, tile=8, threads=4, step=4)
    images, weights = (d2ltvm.compute.to_hwcn(a) for a in data(batch, oc, ic, n, k))
    terms = 2 * ic * k * k
    error = d2ltvm.check(d2ltvm.build(sch), (images, weights), hwcn_reference(p, s), terms)
    assert error < 1e-6


WMMA, MMA = schedules.wmma_tiled, schedules.mma_tiled


def named(value):
    return getattr(value, "__name__", str(value))


TENSORIZED = [
    (WMMA, {}),
    (WMMA, {"stages": 2, "pad": 8}),
    (WMMA, {"row_of_taps": True}),
    (MMA, {"stages": 3}),
    (MMA, {"stages": 2, "ahead": False}),
]
HALF_SHAPES = [(32, 32, 32, 4, 3, 1, 1), (64, 32, 64, 5, 3, 0, 2), (32, 64, 128, 3, 1, 0, 1)]


def check_nhwcnc(run, shape, dtype="float16"):
    """Run a kernel on blocks, on poisoned output; every element against NumPy in float64."""
    batch, oc, ic, n, k, p, s = shape
    images, weights = data(batch, oc, ic, n, k, dtype)
    exact = [a.astype("float64") for a in (images, weights)]
    wanted = d2ltvm.compute.conv_batch_reference(*exact, p, s)
    out = np.full(d2ltvm.compute.to_nhwcnc(wanted).shape, np.nan, "float32")
    run(d2ltvm.compute.to_nhwcnc(images), d2ltvm.compute.to_hwioio(weights), out)
    most = d2ltvm.compute.conv_batch_reference(*map(np.abs, exact), p, s)
    roundings = ic * k * k * (1 if dtype == "float16" else 2)  # products of float16 are exact
    error = np.abs(d2ltvm.compute.from_nhwcnc(out) - wanted)
    assert (error <= roundings * np.finfo("float32").eps / 2 * most).all()


@pytest.mark.parametrize("shape", HALF_SHAPES, ids=str)
@pytest.mark.parametrize("schedule, options", TENSORIZED, ids=named)
def test_tensor_core_schedules_emulated(schedule, options, shape):
    sch = schedule(*shape, rows=(1, 2), columns=(2, 1), **options)
    check_nhwcnc(lambda *arrays: d2ltvm.emulate(sch, *arrays), shape)


@pytest.mark.skipif(not d2ltvm.has_cuda(), reason="no GPU")
@pytest.mark.parametrize("shape", HALF_SHAPES, ids=str)
@pytest.mark.parametrize("schedule, options", TENSORIZED, ids=named)
def test_tensor_core_schedules_on_the_gpu(schedule, options, shape):
    kernel = d2ltvm.build(schedule(*shape, rows=(1, 2), columns=(2, 1), **options), "cuda")
    check_nhwcnc(kernel, shape)


def test_the_tiles_before_tensorization_run_anywhere():
    shape = HALF_SHAPES[0]
    sch = WMMA(*shape, rows=(1, 2), columns=(2, 1), tensorized=False)
    kernel = d2ltvm.build(sch)
    check_nhwcnc(kernel, shape, "float32")
    assert kernel.cubin("sm_90")  # CUDA has no vector of eight floats


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_fragments_stay_in_registers(arch):
    """TVM's own pass leaves three of four arrays in local memory."""
    kernel = d2ltvm.build(MMA(256, 512, 256, 14, 3, 1, 1), arch)
    (resources,) = d2ltvm.resources(kernel.cubin(arch)).values()
    assert resources.local == 0 and resources.registers < 256


def test_wmma_compiles_for_the_first_tensor_cores_too():
    kernel = d2ltvm.build(WMMA(256, 512, 256, 14, 3, 1, 1, stages=2), "sm_75")
    assert "HMMA.1688.F32" in kernel.sass("sm_75") and "cp_async" not in kernel.code


def test_mma_is_refused_where_there_is_none():
    with pytest.raises(d2ltvm.MissingError, match="need sm_80, and this is sm_75"):
        d2ltvm.build(MMA(*HALF_SHAPES[0], rows=(1, 2), columns=(2, 1), stages=3), "sm_75")
    d2ltvm.system.devices.need_ampere("sm_80")


def test_conflicts_of_fragment_loads():
    """What an H200 counts: 57,807,851 wavefronts, 28,910,230 and 28,913,320; stores apart."""
    layer = (256, 512, 256, 14, 3, 1, 1)
    wide = {"columns": (4, 4), "stages": 4}
    for sch, wavefronts in (
        (WMMA(*layer, **wide), 57_802_752),
        (WMMA(*layer, pad=8, **wide), 28_901_376),
        (MMA(*layer), 28_901_376),
    ):
        requests, passes, conflicts = d2ltvm.traffic(sch).total("read", "shared")
        assert passes == wavefronts and conflicts == wavefronts - 4 * requests


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: MMA(16, 512, 256, 14, 3, 1, 1), "batch is 16; expected a multiple of the tile"),
        (lambda: WMMA(256, 512, 16, 14, 3, 1, 1), "ic is 16; expected a multiple of the tile, 32"),
        (lambda: WMMA(256, 512, 33, 14, 3, 1, 1), "ic is 33; expected a multiple of the tile, 32"),
        (lambda: WMMA(256, 512, 32, 14, 1, stages=2), "stages is 2; expected 1 to 1, the rounds"),
        (
            lambda: MMA(256, 512, 256, 14, 3, stages=2),
            "depth is 2, stages 2; expected 2 and 3 or more with ahead",
        ),
        (lambda: schedules.hwcn_blocks(256, 512, 100, 14, 3), "ic is 100; expected a multiple"),
    ],
)
def test_tiles_that_do_not_fit_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_emulation_names_what_it_cannot_take():
    sch = WMMA(32, 32, 32, 4, 3, 1, 1, rows=(1, 2), columns=(2, 1))
    with pytest.raises(ValueError, match="arrays are"):
        d2ltvm.emulate(sch, np.zeros(3, "float16"))


def test_a_wrong_lane_is_noticed(monkeypatch):
    """The emulation follows the instruction's registers, not the schedule's idea of them."""
    shape = HALF_SHAPES[0]
    sch = MMA(*shape, rows=(1, 2), columns=(2, 1), stages=3)
    right = layouts.lane_a
    monkeypatch.setitem(layouts.fragments._LANES, "matrix_a", lambda i, j: right(i, j ^ 2))
    layouts.fragments._fragment_places.cache_clear()
    with pytest.raises(AssertionError):
        check_nhwcnc(lambda *arrays: d2ltvm.emulate(sch, *arrays), shape)
    layouts.fragments._fragment_places.cache_clear()


def generators_of_tvm():
    """What TVM makes its CUDA intrinsics with, without the calls that make all: they take 15 s."""
    spec = importlib.util.find_spec("tvm.s_tir")
    path = Path(spec.submodule_search_locations[0]) / "tensor_intrin" / "cuda.py"
    tree = ast.parse(path.read_text())
    keep = ast.Import | ast.ImportFrom | ast.FunctionDef
    tree.body = [
        n for n in tree.body if isinstance(n, keep) and not getattr(n, "decorator_list", [])
    ]
    names = {}
    exec(compile(tree, str(path), "exec"), names)  # the parser reads the sources in that file
    return names


def test_wmma_intrinsics_are_tvms():
    tvms = generators_of_tvm()
    load = (16, 16, 16, "float16", "shared.dyn")
    pairs = {
        "d2ltvm.wmma_fill": tvms["get_wmma_fill_intrin"](16, 16, 16, "float32"),
        "d2ltvm.wmma_load_a": tvms["get_wmma_load_intrin"](*load, False, False),
        "d2ltvm.wmma_load_b": tvms["get_wmma_load_intrin"](*load, True, False),
        "d2ltvm.wmma_sync": tvms["get_wmma_sync_intrin"](16, 16, 16, "float16", "float32", False),
        "d2ltvm.wmma_store": tvms["get_wmma_store_intrin"](16, 16, 16, "float32", "global"),
    }
    assert tuple(pairs) == wmma_intrinsics.NAMES
    for name, theirs in pairs.items():
        for mine, other in zip(wmma_intrinsics.INTRINSICS[name](), theirs, strict=True):
            same = tvm_ffi.structural_equal(mine.body, other.body, map_free_vars=True)
            assert same, f"{name}\n{mine.script()}\n{other.script()}"


def test_intrinsics_are_registered_when_used_and_not_on_import():
    code = (
        "from d2ltvm.schedules import conv_batch, tensor_intrinsics, wmma_intrinsics\n"
        "from tvm.s_tir import TensorIntrin\n"
        "names = (*tensor_intrinsics.NAMES, *wmma_intrinsics.NAMES)\n"
        "known = lambda: sum(TensorIntrin.get(n, allow_missing=True) is not None for n in names)\n"
        "print(known())\n"
        "tensor_intrinsics.register(['d2ltvm.mma', 'of somebody else'])\n"
        "tensor_intrinsics.register(['d2ltvm.mma'])\n"
        "print(known())\n"
        "conv_batch.wmma_tiled(32, 32, 32, 4, 3, 1, 1, rows=(1, 2), columns=(2, 1))\n"
        "print(known())\n"
        "import sys\n"
        "print('tvm.s_tir.tensor_intrin.cuda' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1", "6", "False"]
