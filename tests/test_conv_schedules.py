"""Schedules of convolution: right at every shape, and clear where they cannot be."""

import functools

import pytest

import d2ltvm
from d2ltvm import schedules
from d2ltvm.compiler import lowering
from d2ltvm.schedules import conv
from d2ltvm.system import devices

# Output and input channels, image, kernel, padding, stride. Tiles divide none but the first.
SHAPES = [
    (16, 8, 16, 3, 1, 1),
    (17, 5, 21, 3, 0, 2),
    (3, 3, 63, 3, 1, 1),
    (4, 4, 7, 5, 2, 1),
    (8, 8, 6, 1, 0, 1),
    (1, 1, 1, 1, 0, 1),
]
SCHEDULES = {
    "default": schedules.default_sch,
    "spread": schedules.spread_sch,
    "spread, 3 groups": functools.partial(schedules.spread_sch, groups=3),
    "registers": schedules.register_sch,
    "registers, 3 by 2": functools.partial(schedules.register_sch, channels=3, rows=2),
    "tiling": schedules.tiling,
    "neighbours": functools.partial(
        schedules.conv_tiled, tile_c=(1, 2, 2), tile_h=(1, 2, 2), tile_w=(1, 8, 2), runs=False
    ),
    "vthread": schedules.vthread,
    "split": functools.partial(
        schedules.conv_split, channels=4, warps=2, parts=2, depth=2, lanes=8
    ),
}


def error_of(sch, shape, target=None):
    oc, ic, _, k, p, s = shape
    inputs = d2ltvm.get_conv_data(oc, ic, shape[2], k, p, s)[:2]
    return d2ltvm.check(
        d2ltvm.build(sch, target),
        inputs,
        lambda x, w: d2ltvm.conv_reference(x, w, p, s),
        2 * ic * k * k,
    )


@pytest.mark.quick(7)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_element_on_a_gpu_or_pocl(name, shape):
    assert error_of(SCHEDULES[name](*shape), shape) < 1e-6


@pytest.mark.quick(3)
@pytest.mark.parametrize("shape", [*SHAPES, (64, 48, 12, 3, 1, 1)], ids=str)
def test_every_element_on_the_cpu(shape):
    assert error_of(schedules.cpu_conv(*shape), shape, "llvm") < 1e-6


@pytest.mark.quick(7)
@pytest.mark.parametrize("shape", [*SHAPES, (64, 48, 12, 3, 1, 1)], ids=str)
@pytest.mark.parametrize("channels", [1, 6, 16])
def test_every_element_without_packing(shape, channels):
    assert error_of(schedules.cpu_direct(*shape, channels=channels), shape, "llvm") < 1e-6


def test_sums_of_the_direct_convolution_stay_in_registers():
    """Sixteen sums take as many vectors: none is loaded and stored again around its loops."""
    kernel = d2ltvm.build(schedules.cpu_direct(16, 16, 32, 3, 1, 1), "llvm")
    nest = d2ltvm.loop_nest(schedules.cpu_direct(16, 16, 32, 3, 1, 1))
    assert "for c_1 in T.unroll(16)" in nest and "T.vectorized(16)" in nest
    assert "Y_local" in nest and kernel.params[2].shape == (16, 32, 32)


def test_groups_of_channels_are_blocks():
    """One group is the default schedule; more of them are blocks of their own."""
    grids = {
        groups: d2ltvm.build(schedules.spread_sch(8, 4, 6, 3, 1, 1, groups=groups), "sm_90")
        .launches[0]
        .grid
        for groups in (1, 4, 64)
    }
    assert grids == {1: (6, 1, 1), 4: (6, 4, 1), 64: (6, 8, 1)}
    plain = d2ltvm.build(schedules.default_sch(8, 4, 6, 3, 1, 1), "sm_90")
    assert plain.launches[0].grid == (6, 1, 1)


def test_tiles_that_do_not_divide_the_kernel_are_named():
    tiles = {"tile_c": (1, 1, 1), "tile_h": (1, 1, 1), "tile_w": (1, 1, 1)}
    with pytest.raises(
        ValueError, match=r"tile_rw is \(1, 2\); expected a product that divides k = 3"
    ):
        schedules.conv_tiled(4, 4, 8, 3, 1, 1, **tiles, tile_rw=(1, 2))
    with pytest.raises(ValueError, match=r"tile_rh is \(3, 3\)"):
        schedules.conv_tiled(4, 4, 8, 3, 1, 1, **tiles, tile_rh=(3, 3))


@pytest.mark.parametrize("tile", [(0, 1, 1, 1), (1, 1, 1, 1.5)])
def test_tiles_are_positive_integers(tile):
    with pytest.raises(ValueError, match=r"a size of tile = .* is .*; expected a positive integer"):
        d2ltvm.compute.conv_in_tiles(4, 4, 8, 8, 3, 3, tile=tile)


def test_one_part_is_no_split():
    with pytest.raises(ValueError, match="parts is 1; expected two or more"):
        schedules.conv_split(4, 4, 8, 3, 1, 1, parts=1)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "options, message",
    [
        ({"warps": 8}, "2048 threads per block.*expected at most 1024"),
        (
            {"warps": 4, "rows": 8, "depth": 16},
            "bytes of shared memory per block; expected at most 232,448",
        ),
        ({"scope": "shared", "depth": 8}, "of scope 'shared' per block; expected at most 49,152"),
    ],
)
def test_too_much_for_the_chip(options, message):
    sch = schedules.conv_split(128, 128, 32, 3, 1, 1, **options)
    with pytest.raises(ValueError, match=message):
        lowering.lower(lowering.as_module(sch), devices.as_target("sm_90"))


@pytest.mark.slow
def test_conflicts_of_the_tiled_convolution_and_their_cure():
    """As an H200 counts them; the record is that of the chapter on bank conflicts."""
    tables = {
        f.__name__: d2ltvm.traffic(f(64, 64, 64, 3, 1, 1), "sm_90")
        for f in (schedules.tiling, schedules.vthread)
    }
    _, wavefronts, conflicts = tables["tiling"].total("read", "shared")
    assert (wavefronts, conflicts) == (688_128, 98_304)
    assert tables["vthread"].total("read", "shared")[2] == 0


def test_rows_of_kernels_are_apart_in_shared_memory():
    """With rows side by side, a store of neighbouring channels takes three wavefronts."""
    table = d2ltvm.traffic(schedules.conv_split(32, 32, 16, 3, 1, 1), "sm_90")
    requests, wavefronts, _ = table.total("write", "shared")
    assert wavefronts < 2 * requests and table.total("read", "shared")[2] == 0


def test_parts_that_do_not_divide_a_tile_write_it_alone():
    """What a block writes beyond its tile is overwritten when blocks run in turn, not on a GPU."""
    sch = schedules.conv_split(16, 12, 8, 3, 1, 1, 4, 2, 2, parts=3, depth=2, lanes=8)
    (write,) = [t for t in d2ltvm.traffic(sch) if (t.kind, t.scope) == ("write", "global")]
    assert write.sectors == 16 * 8 * 8 * 4 // 32


@pytest.mark.parametrize("length, most, largest", [(21, 8, 7), (12, 8, 6), (7, 6, 1), (5, 8, 5)])
def test_the_largest_divisor_of_a_loop(length, most, largest):
    sch = schedules.one_thread_each(length, nt=1)
    (loop,) = [x for x in sch.get_loops(sch.get_sblock("C")) if sch.get(x).extent == length]
    assert conv.largest_divisor(sch, loop, most) == largest
