"""Blocks on an SM, against figures worked out by hand from the CUDA guide's tables."""

import numpy as np
import pytest

import d2ltvm

CASES = [
    # gpu, threads, registers, shared -> blocks, limit
    ("H200", 256, 32, 0, 8, "threads"),
    ("H200", 256, 64, 0, 4, "registers"),
    ("H200", 256, 128, 0, 2, "registers"),
    ("H200", 256, 33, 0, 6, "registers"),  # 40 a thread, 51 warps, of which 48 in equal parts
    ("H200", 96, 33, 0, 16, "registers"),  # 51 warps would be 17 blocks
    ("H200", 32, 16, 0, 32, "blocks"),
    ("H200", 128, 32, 48 * 1024, 4, "shared memory"),  # 49 KiB each of 228
    ("H200", 128, 32, 227 * 1024, 1, "shared memory"),
    ("A100", 256, 64, 40 * 1024, 4, "registers"),
    ("A100", 256, 64, 41 * 1024, 3, "shared memory"),
    ("T4", 256, 64, 0, 4, "threads"),
    ("T4", 128, 32, 32 * 1024, 2, "shared memory"),
    ("H200", 1024, 128, 0, 0, "registers"),
]


@pytest.mark.parametrize("gpu, threads, registers, shared, blocks, limit", CASES)
def test_blocks_and_what_limits_them(gpu, threads, registers, shared, blocks, limit):
    found = d2ltvm.occupancy(gpu, threads, registers, shared)
    assert (found.blocks, found.limit) == (blocks, limit)
    assert found.warps == blocks * -(-threads // 32)
    assert found.share == found.warps * 32 / d2ltvm.chip(gpu).max_threads


def test_waves():
    assert d2ltvm.occupancy("H200", 256, 64, grid=(132, 4)).waves == 1
    assert d2ltvm.occupancy("H200", 128, 128, grid=32).waves == 32 / (4 * 132)


def test_narrow_integers_of_numpy_do_not_overflow():
    found = d2ltvm.occupancy("H200", np.uint8(255), np.uint8(255), np.int16(0), np.int8(100))
    assert found == d2ltvm.occupancy("H200", 255, 255, 0, 100)
    assert found.blocks == 1 and found.waves == 100 / 132


@pytest.mark.parametrize(
    "arguments, named",
    [
        (("H200", 1025, 32), "threads is 1025"),
        (("H200", 256, 256), "registers is 256"),
        (("T4", 256, 32, 65 * 1024), "shared is 66560"),
        (("K80", 256, 32), "K80"),
        (("H200", 256.5, 32), "threads is 256.5; expected an integer, 1 to 1024 on H200"),
        (("H200", "256", 32), "threads is '256'; expected an integer"),
        (("H200", 256, 32, -1), "shared is -1; expected an integer, 0 to"),
        (("H200", 256, 32, 0, -5), "grid is -5; expected an integer, 1 or more"),
        (("H200", 256, 32, 0, (4, 0)), "grid is 0; expected an integer, 1 or more"),
        (("H200", 256, 32, 0, 1.5), "grid is 1.5; expected an integer, 1 or more"),
    ],
)
def test_bad_input_is_named(arguments, named):
    with pytest.raises(ValueError, match=named):
        d2ltvm.occupancy(*arguments)
