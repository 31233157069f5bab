"""What tiles cost, held against the kernels that have them: their buffers and their accesses."""

import math

import numpy as np
import pytest

import d2ltvm
from d2ltvm import schedules
from d2ltvm.analysis import tiling
from d2ltvm.compiler import lowering
from d2ltvm.compiler.ir import find
from d2ltvm.system import devices

PRODUCTS = [
    ((32, 32, 16), (1, 1, 4, 2), (1, 1, 8, 1), 8),
    ((50, 37, 21), (1, 2, 4, 2), (1, 1, 8, 4), 4),
    ((64, 96, 33), (2, 1, 8, 2), (2, 2, 4, 2), 16),
    ((20, 40, 8), (1, 4, 2, 1), (1, 1, 16, 2), 8),
]
CONVS = [
    ((8, 4, 12, 3, 1, 1), (1, 2, 4), (1, 2, 2), (1, 4, 2), 1),
    ((10, 3, 11, 3, 1, 1), (1, 2, 2), (2, 1, 2), (2, 4, 1), 1),
    ((5, 6, 9, 3, 0, 2), (1, 4, 1), (1, 2, 2), (1, 3, 2), 2),
    ((4, 4, 7, 5, 2, 1), (2, 2, 1), (1, 1, 3), (1, 4, 1), 4),
    ((6, 2, 8, 1, 0, 1), (1, 2, 3), (1, 2, 1), (1, 8, 1), 1),
]


def product(shape, rows, columns, depth):
    return schedules.matmul_tiled(*shape, rows, columns, depth)


def conv(shape, c, h, w, depth):
    k = shape[3]
    return schedules.conv_tiled(*shape, c, h, w, tile_rc=(depth, 1), tile_rw=(1, k))


def moved(sch, reads, write):
    """Bytes that all blocks read and write, block by block, each element once a round."""
    (launch,) = d2ltvm.build(sch, "sm_90").launches
    total = 0
    for block in np.ndindex(*launch.grid):
        total += sum(d2ltvm.touched(sch, name, block=block).sum() for name in reads)
        total += d2ltvm.touched(sch, write, "write", block=block).sum()
    return launch, 4 * int(total)


def buffers(sch, scope):
    """Elements of the kernel's buffers, by name."""
    lowered = lowering.lower(lowering.as_module(sch), devices.as_target("sm_90"))
    (kernel,) = lowered.device_functions.values()
    found = [node.buffer for node in find(kernel.body, "AllocBuffer")]
    return {b.name: math.prod(map(int, b.shape)) for b in found if b.scope() == scope}


@pytest.mark.slow
@pytest.mark.parametrize("case", PRODUCTS)
def test_a_product_takes_what_its_tiles_say(case):
    shape, rows, columns, _ = case
    sch, tiles = product(*case), tiling.product_tiling(*case)
    launch, total = moved(sch, "AB", "C")
    assert (tiles.blocks, tiles.threads) == (math.prod(launch.grid), math.prod(launch.block))
    assert tiles.moved == total and tiles.flop == 2 * math.prod(shape)
    local, shared = buffers(sch, "local"), buffers(sch, "shared")
    (sums,) = [name for name in local if name.startswith("C")]
    assert tiles.sums == local.pop(sums)
    assert tiles.operands == sum(local.values())
    assert tiles.shared == 4 * sum(shared.values())
    found = tiling.tiles_of(sch)
    assert (found.shape, found.rows, found.columns) == (shape[:2], rows, columns)
    assert found.stages == 1


@pytest.mark.slow
@pytest.mark.parametrize("case", CONVS)
def test_a_convolution_takes_what_its_tiles_say(case):
    sch, tiles = conv(*case), tiling.conv_tiling(*case)
    launch, total = moved(sch, "XK", "Y")
    assert (tiles.blocks, tiles.threads) == (math.prod(launch.grid), math.prod(launch.block))
    assert tiles.moved == total
    assert tiles.flop == pytest.approx(1e9 * d2ltvm.conv_gflop(*case[0]))
    local, shared = buffers(sch, "local"), buffers(sch, "shared")
    assert tiles.sums == local.pop("Sums_local")
    assert tiles.operands == sum(local.values())
    assert tiles.shared == 4 * sum(shared.values())


@pytest.mark.slow
def test_the_books_kernels_take_what_its_chapters_say():
    tiles = tiling.product_tiling((2048,) * 3, (1, 1, 16, 8), (1, 1, 16, 8), 16)
    table = d2ltvm.traffic(schedules.matmul_tiled(2048, 2048, 2048), "sm_90")
    assert tiles.moved == 32 * table.total("read")[1] + 4 * 2048**2
    warps = tiling.tiles_of(schedules.matmul_warps(256, 256, 64))
    assert warps == tiling.Tiles((256, 256), (4, 2, 4, 4), (2, 4, 8, 4), 2)


def test_what_has_no_tiles_is_refused():
    with pytest.raises(ValueError, match="Y has 3 dimensions; expected a product's, 2"):
        tiling.tiles_of(schedules.tiling(8, 4, 8, 3, 1, 1), "Y")
    with pytest.raises(ValueError, match=r"rows is \(1, 0, 4, 1\); expected 4 positive integers"):
        tiling.product_tiling((8, 8, 8), (1, 0, 4, 1), (1, 1, 4, 1), 8)
    with pytest.raises(ValueError, match=r"tile is \(1, 2\); expected 3 positive integers"):
        tiling.conv_tiling((8, 4, 8, 3, 1, 1), (1, 2), (1, 2, 2), (1, 4, 2))
