"""Which lane holds what: fragments, and `ldmatrix` as the emulator executes it."""

import numpy as np
import pytest
from tvm.script import ir as I
from tvm.script import tirx as T

import d2ltvm
from d2ltvm import layouts


def loads(number, trans):
    """A kernel in which each lane writes what `ldmatrix` gives it."""
    many = 2 * number

    @I.ir_module
    class Module:
        @T.prim_func(s_tir=True)
        def main(tile_handle: T.handle, out_handle: T.handle) -> None:
            tile = T.match_buffer(tile_handle, (16, 16), "float16")
            out = T.match_buffer(out_handle, (32, 8), "float16")
            with T.sblock("root"):
                shared = T.sblock_alloc_buffer((16, 16), "float16", scope="shared.dyn")
                registers = T.sblock_alloc_buffer((8,), "float16", scope="local")
                for lane in T.thread_binding(32, thread="threadIdx.x"):
                    with T.sblock("all"):
                        T.reads(tile[0:16, 0:16])
                        T.writes(out[0:32, 0:8])
                        for k in range(8):
                            shared[lane // 2, lane % 2 * 8 + k] = tile[lane // 2, lane % 2 * 8 + k]
                        T.evaluate(
                            T.ptx_legacy.ldmatrix(
                                trans, number, ".b16", registers.data, 0,
                                shared.access_ptr("r"), lane % 16 * 16 + lane // 16 * 8,
                                dtype="float16",
                            )
                        )  # fmt: skip
                        for k in range(many):
                            out[lane, k] = registers[k]

    return Module


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_ldmatrix_as_it_is_emulated(number, trans):
    tile = np.arange(256, dtype="float16").reshape(16, 16)
    out = np.full((32, 8), -1, "float16")
    d2ltvm.emulate(loads(number, trans), tile, out)
    i, j = np.indices((8 if number == 1 else 16, 16 if number == 4 else 8))
    lane, register = layouts.ldmatrix_lane(i, j, trans)
    want = np.full((32, 8), -1, "float16")
    want[lane, register] = tile[i, j]
    assert np.array_equal(out, want) and (want >= 0).sum() == 64 * number


def test_lanes_give_the_address_of_every_row_once():
    row, column = layouts.ldmatrix_row(np.arange(32))
    assert {*zip(row.tolist(), column.tolist(), strict=True)} == {
        (i, j) for i in range(16) for j in (0, 8)
    }
    # Lane l: row l mod 8 of matrix l / 8, whose elements are in registers 2 l / 8 and the next.
    for lane in range(32):
        assert layouts.ldmatrix_lane(row[lane], column[lane])[0] == lane % 8 * 4
        assert layouts.ldmatrix_lane(row[lane], column[lane])[1] == lane // 8 * 2


def test_ldmatrix_loads_what_mma_multiplies():
    i, j = np.indices((16, 16))
    for trans, kind in ((False, "matrix_a"), (True, "matrix_b")):
        assert np.array_equal(layouts.ldmatrix_lane(i, j, trans), layouts.fragment(i, j, kind))


@pytest.mark.parametrize("kind", ["matrix_a", "matrix_b", "accumulator"])
def test_a_fragment_holds_every_element_once(kind):
    i, j = np.indices((16, 16))
    lane, register = layouts.fragment(i, j, kind)
    assert len({*zip(lane.ravel().tolist(), register.ravel().tolist(), strict=True)}) == 256
    registers = np.zeros((1, 32, 8))
    registers[0, lane, register] = i * 16 + j
    assert np.array_equal(layouts.gather(registers, kind)[0], i * 16 + j)
