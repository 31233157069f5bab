"""What kernels for Hopper do alike: load a tile, multiply a slot of the ring, the epilogue."""

from typing import Any

import tvm
from tvm.backend.cuda.tile_primitive.tma_utils import SwizzleMode
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.layout import ComposeLayout, S, TileLayout

from d2ltvm.compiler import frames, parsing
from d2ltvm.compiler.launches import DEPENDENT
from d2ltvm.hopper.planning import (
    DEPTH,
    ROWS,
)

# Every kernel comes here before it is parsed.
frames.read_late()
parsing.parse_quickly()

# Of a descriptor. Source: PTX ISA, "Matrix Descriptor Format" of wgmma.
UNIT = 16  # bytes, in which it counts
UNUSED = 1  # its leading offset, which has no effect in swizzled rows along which the sum runs
EIGHT_ROWS = 8 * 128 // UNIT  # its stride: from eight rows of 128 bytes to the next eight
NEXT_COLUMNS = 64 * 128 // UNIT  # its leading offset where the sum runs down: 64 columns on
SWIZZLES = {  # TVM's numbers, by the float16 of a row, which are 32, 64 or 128 bytes
    16: SwizzleMode.SWIZZLE_32B_ATOM.value,
    32: SwizzleMode.SWIZZLE_64B_ATOM.value,
    64: SwizzleMode.SWIZZLE_128B_ATOM.value,
}
SWIZZLE_128B = SWIZZLES[64]

# Immediates of wgmma, one for A and one for B. Source: PTX ISA, "wgmma.mma_async".
AS_IT_IS = 1  # imm-scale: the factor of a matrix; -1 would change its sign
ALONG_ROWS, DOWN_COLUMNS = 0, 1  # imm-trans: which way the sum runs through a stored matrix


# From hopper/wgmma.
def shared_tile(pool: Any, shape: tuple[int, ...], dtype: str = "float16") -> Any:
    """A tile in shared memory, in rows of 128 swizzled bytes."""
    return pool.alloc(shape, dtype, align=1024, layout=swizzled_layout(shape, dtype))


# From hopper/product.
@T.inline
def wait_for_kernel_before(early=True):
    """Wait for the end of the kernel before, which may still run.

    What is above this in a kernel must not touch what that one reads or writes. The next
    kernel's blocks may start where there is room if `early`, else when all blocks have ended.
    """
    if early:
        T.ptx.griddepcontrol.launch_dependents()
    T.ptx.griddepcontrol.wait()


@T.inline
def wait_without_shared_memory():
    """As `wait_for_kernel_before`, of a kernel that has no shared memory of its own.

    A dependent launch is made with some, so it gets eight bytes.
    """
    pool = T.SMEMPool()
    pool.alloc((1,), "uint64", align=8)
    pool.commit()
    wait_for_kernel_before()


# From hopper/product.
def dependent_launch(kernel: Any) -> Any:
    """A PrimFunc whose blocks may start before the kernel launched before it has ended.

    CUDA calls this a programmatic dependent launch. The kernel has to wait by itself.
    """
    tags = ["blockIdx.x", "threadIdx.x", DEPENDENT, "tirx.use_dyn_shared_memory"]
    return kernel.with_attr("tirx.kernel_launch_params", tags)


# From hopper/tirx, hopper/feeding and hopper/wgmma.
@T.inline
def tma_load(tile, box, barrier):
    """Have TMA copy a box, zeros where it is outside, and tell a barrier."""
    Tx.copy_async(tile, box, dispatch="tma_explicit", mbar=barrier, oob="zero")


# From hopper/product.
@T.inline
def tma_store(box, tile):
    """Have TMA copy a tile to a box of a tensor, but for what is outside."""
    Tx.copy_async(box, tile, dispatch="tma_explicit")


# From hopper/wgmma.
@T.inline
def encode_descriptor(descriptor, pointer):
    """Write the descriptor of a matrix in rows of 128 swizzled bytes."""
    T.cuda.wgmma.encode_matrix_descriptor(
        T.address_of(descriptor), pointer, UNUSED, EIGHT_ROWS, SWIZZLE_128B
    )


# From hopper/wgmma.
@T.inline
def multiply(acc, matrices, stage, columns, k):
    """Begin to multiply what is in a slot; the first time, sums start at zero."""
    T.ptx.wgmma.fence.sync.aligned()
    for i in T.unroll(DEPTH // 16):
        # Descriptors count in 16 bytes: a row is 8 of them, 16 float16 are 2.
        T.ptx[f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.f16.f16"](
            *[acc[j] for j in range(columns // 2)],
            matrices[0] + T.Cast("uint64", stage * (ROWS * 8) + i * 2),
            matrices[1] + T.Cast("uint64", stage * (columns * 8) + i * 2),
            T.ptx.pred(k + i > 0), AS_IT_IS, AS_IT_IS, ALONG_ROWS, ALONG_ROWS,
        )  # fmt: skip
    T.ptx.wgmma.commit_group.sync.aligned()


# From hopper/product.
@T.inline
def release(ring, thread, last, k):
    """Wait for all products but those just begun; release the slot before."""
    T.ptx.wgmma.wait_group.sync.aligned(1)
    if thread % 128 == 0 and k > 0:
        ring.empty.arrive(last)


# From hopper/product.
@T.inline
def release_last(ring, thread, last):
    """Wait for the last products, and release their slot."""
    T.ptx.wgmma.wait_group.sync.aligned(0)
    if thread % 128 == 0:
        ring.empty.arrive(last)


def element_pointer(
    tile: Any, consumer: Any, block: Any, row: Any, column: Any, box: tuple[int, int, int]
) -> Any:
    """A pointer to an element of a tile whose 64 rows have the shape of a box."""
    if len(tile.shape) == 4:
        return tile.ptr_to([consumer, block, row, column])
    _, high, wide = box
    rows = (row // (high * wide), row // wide % high, row % wide)
    return tile.ptr_to([consumer, block, *rows, column])


# From hopper/product.
@T.inline
def registers_to_shared(acc, pair, tile, consumer, thread, h, width, box=(64, 1, 1)):
    """Round sums of a consumer to float16 and put them into its tile, swizzled.

    These are columns h * width to (h + 1) * width. Four lanes hold eight neighbours
    of a row, so that `stmatrix` stores an 8 x 8 matrix from one register of each
    lane. `box` is the shape of the tile's 64 rows.
    """
    if thread % 128 == 0:
        # TMA has read what was there before.
        T.ptx.cp.async_.bulk.wait_group.read(0)
    T.cuda.warpgroup_sync(consumer + 1)
    lane: T.let[T.int32] = thread % 32
    row: T.let[T.int32] = thread % 128 // 32 * 16 + lane % 16
    for j in T.unroll(width // 16):
        for q in T.unroll(4):
            i: T.let[T.int32] = h * (width // 2) + j * 8 + q * 2
            T.ptx["cvt.rn.f16x2.f32"](pair[q], acc[i + 1], acc[i])
        T.ptx["stmatrix.sync.aligned.m8n8.x4.shared.b16"](
            element_pointer(tile, consumer, j // 4, row, (j % 4 * 2 + lane // 16) * 8, box),
            pair[0], pair[1], pair[2], pair[3],
        )  # fmt: skip
    T.ptx.fence.proxy.async_.shared__cta()
    T.cuda.warpgroup_sync(consumer + 1)


def swizzled_layout(shape: tuple[int, ...], dtype: str = "float16") -> Any:
    """The layout of a tile in rows of 128 bytes, one behind the other, swizzled as TMA does.

    The 16 bytes at place i of row r stand at place i ^ (r % 8).
    """
    each = 128 // tvm.DataType(dtype).bits  # elements of 16 bytes
    return ComposeLayout(each.bit_length() - 1, 3, 3, TileLayout(S[tuple(shape)]))
