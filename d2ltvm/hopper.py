"""Kernels for Hopper. TMA fills a ring of tiles, and two warpgroups multiply what is in it.

They are written in TIRx, thread by thread, where the rest of the book schedules loops. What both
kernels do alike stands at the end: multiplying a slot of the ring, and storing a tile.
"""

import math

import tvm
from tvm.backend.cuda.lang.pipeline import Pipeline, PipelineState, TMABar
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.layout import ComposeLayout, S, TileLayout

from d2ltvm.convolution import conv_out_size
from d2ltvm.hopper_plan import (
    DEPTH,
    ROWS,
    check_multiples,
    check_ring,
    group_size,
    plan_conv,
    tile_columns,
    tile_parts,
)
from d2ltvm.lowering import DEPENDENT

SWIZZLE_128B = 3  # in a descriptor. Source: PTX ISA, "Matrix Descriptor Format"


def one_tile(columns=64, repeats=1, blocks=1):
    """A kernel for one tile: C = A Bᵀ, with A of (64, 64) and B of (columns, 64).

    >>> kernel = d2ltvm.build(hopper.one_tile())

    A and B are float16, C is float32. One thread of a warpgroup asks TMA for A and B,
    and all multiply when they are there.

    Args:
        columns: 8 to 256, a multiple of 8.
        repeats: how often the product is added up, to see how long one takes.
        blocks: that do the same; C is (blocks, 64, columns).

    Returns:
        A PrimFunc, for `d2ltvm.build`.
    """
    if columns % 8 or not 8 <= columns <= 256:
        raise ValueError(f"columns is {columns}; a multiple of 8, up to 256, is allowed")

    @T.prim_func
    def main(a_ptr: T.handle, b_ptr: T.handle, c_ptr: T.handle):
        A = T.match_buffer(a_ptr, (64, DEPTH), "float16", align=16)
        B = T.match_buffer(b_ptr, (columns, DEPTH), "float16", align=16)
        C = T.match_buffer(c_ptr, (blocks, 64, columns), "float32", align=16)
        T.device_entry()
        block = T.cta_id([blocks])
        T.warpgroup_id([1])
        thread = T.thread_id([128])

        pool = T.SMEMPool()
        sA = shared_tile(pool, (64, DEPTH))
        sB = shared_tile(pool, (columns, DEPTH))
        arrived = TMABar(pool, 1)
        arrived.init(1)
        pool.commit()
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()

        if thread == 0:
            arrived.arrive(0, (64 + columns) * DEPTH * 2)  # bytes to come
            load(sA[:, :], A[0:64, 0:DEPTH], arrived.ptr_to([0]))
            load(sB[:, :], B[0:columns, 0:DEPTH], arrived.ptr_to([0]))
        arrived.wait(0, 0)

        acc = T.alloc_local((columns // 2,), "float32")
        matrices = T.alloc_local((2,), "uint64")
        encode(matrices[0], sA.ptr_to([0, 0]))
        encode(matrices[1], sB.ptr_to([0, 0]))
        for r in T.serial(repeats):
            multiply(acc, matrices, 0, columns, r)
        T.ptx.wgmma.wait_group.sync.aligned(0)

        # Of each 8 columns a thread has two neighbours, and those 8 rows below.
        row: T.let[T.int32] = thread // 32 * 16 + thread % 32 // 4
        column: T.let[T.int32] = thread % 4 * 2
        for j in T.unroll(columns // 8):
            for i in T.unroll(4):
                C[block, row + i // 2 * 8, column + j * 8 + i % 2] = acc[j * 4 + i]

    return main


def matmul(n, m, l, columns=None, stages=None, parts=None, sms=132):
    """A kernel for C = A Bᵀ: A is (n, l), B (m, l), C (n, m), all float16.

    >>> kernel = d2ltvm.build(hopper.matmul(4096, 4096, 4096))

    Sums are float32. One thread asks TMA for tiles of A and B, up to `stages` rounds
    ahead of the two warpgroups that multiply them; a block takes tile after tile.

    Args:
        n, m, l: positive integers; m and l are multiples of 8: rows begin at 16 bytes.
        columns: of a tile, 64, 128 or 256; None for `tile_columns`.
        stages: slots of the ring; None for as many as fit.
        parts: in which results are stored one by one; None for `tile_parts`.
        sms: blocks that run at once, which are the SMs of the chip.

    Returns:
        A PrimFunc, for `d2ltvm.build`.

    Raises:
        ValueError: a size is not as above, or shared memory is too small.
    """
    check_multiples(m=m, l=l)
    down, rounds = math.ceil(n / ROWS), math.ceil(l / DEPTH)
    columns = columns or tile_columns(down, m, sms)
    parts = parts or tile_parts(columns, rounds)
    stages = check_ring(columns, stages, parts)
    across, width = math.ceil(m / columns), columns // parts
    group = group_size(down)  # tiles below each other, which share columns of B
    tiles, nbytes = down * across, (ROWS + columns) * DEPTH * 2
    blocks = min(sms, tiles)

    @T.inline
    def locate(at, t):
        at[0] = (t // (group * across) * group + t % group) * ROWS
        at[1] = t % (group * across) // group * columns

    @T.prim_func
    def main(a_ptr: T.handle, b_ptr: T.handle, c_ptr: T.handle):
        A = T.match_buffer(a_ptr, (n, l), "float16", align=16)
        B = T.match_buffer(b_ptr, (m, l), "float16", align=16)
        C = T.match_buffer(c_ptr, (n, m), "float16", align=16)
        T.device_entry()
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1})
        block = T.cta_id([blocks])
        group_of = T.warpgroup_id([3])  # 0 fetches, 1 and 2 multiply
        thread = T.thread_id([384])

        # All shared memory comes from one pool: another variable would move it off
        # the 1024 bytes at which the pattern of a swizzle begins.
        pool = T.SMEMPool()
        sA = shared_tile(pool, (stages, ROWS, DEPTH))
        sB = shared_tile(pool, (stages, columns, DEPTH))
        sC = shared_tile(pool, (2, width // 64, 64, 64))
        ring = Pipeline(pool, stages, full="tma", empty="mbar", init_full=1, init_empty=2)
        pool.commit()
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        wait_for_kernel_before()

        at = T.alloc_local((2,), "int32")
        slot = PipelineState(stages, 0)
        tile: T.int32 = block
        # One if and else. With two ifs the compiler would not see that the threads of
        # a warpgroup agree on `slot`, and move it between registers in the inner loop.
        if group_of == 0:
            if thread == 0:
                while tile < tiles:
                    locate(at, tile)
                    y: T.let[T.int32] = at[0]
                    x: T.let[T.int32] = at[1]
                    for k in T.serial(rounds):
                        ring.empty.wait(slot.stage, slot.phase ^ 1)  # all begin empty
                        ring.full.arrive(slot.stage, nbytes)  # that will come
                        z: T.let[T.int32] = k * DEPTH
                        load(
                            sA[slot.stage, :, :],
                            A[y : y + ROWS, z : z + DEPTH],
                            ring.full.ptr_to([slot.stage]),
                        )
                        load(
                            sB[slot.stage, :, :],
                            B[x : x + columns, z : z + DEPTH],
                            ring.full.ptr_to([slot.stage]),
                        )
                        slot.advance()
                    tile = tile + blocks
        else:
            part: T.let[T.int32] = group_of - 1
            acc = T.alloc_local((columns // 2,), "float32")
            pair = T.alloc_local((4,), "uint32")
            matrices = T.alloc_local((2,), "uint64")
            encode(matrices[0], sA.ptr_to([0, part * 64, 0]))
            encode(matrices[1], sB.ptr_to([0, 0, 0]))
            last: T.int32 = 0
            while tile < tiles:
                locate(at, tile)
                for k in T.serial(rounds):
                    ring.full.wait(slot.stage, slot.phase)
                    multiply(acc, matrices, slot.stage, columns, k)
                    hand_back(ring, thread, last, k)
                    last = slot.stage
                    slot.advance()
                finish(ring, thread, last)
                for h in T.unroll(parts):
                    to_shared(acc, pair, sC, part, thread, h, width)
                    if thread % 128 == 0:
                        for j in T.unroll(width // 64):
                            y: T.let[T.int32] = at[0] + part * 64
                            x: T.let[T.int32] = at[1] + h * width + j * 64
                            store(C[y : y + 64, x : x + 64], sC[part, j, :, :])
                        T.ptx.cp.async_.bulk.commit_group()
                tile = tile + blocks
            if thread % 128 == 0:
                T.ptx.cp.async_.bulk.wait_group(0)

    return dependent_launch(main)


@T.inline
def locate(at, job, plan):
    """Where a tile lies: row, column, image, channel; its first tap and taps, twice.

    Tiles inside of the image come first, then those at its borders, which have fewer
    taps: long ones start early, and short ones fill the gaps at the end.
    """
    q: T.let[T.int32] = job // plan.each
    if q < plan.whole_y * plan.whole_x:
        at[0] = plan.first_y + q // max(1, plan.whole_x)
        at[1] = plan.first_x + q % max(1, plan.whole_x)
    elif q < plan.whole_y * plan.wide:
        beyond: T.let[T.int32] = q - plan.whole_y * plan.whole_x
        at[0] = plan.first_y + beyond // max(1, plan.wide - plan.whole_x)
        x: T.let[T.int32] = beyond % max(1, plan.wide - plan.whole_x)
        at[1] = (x + plan.first_x + plan.whole_x) % plan.wide
    else:
        at[0] = ((q // plan.wide) + plan.first_y) % plan.high
        at[1] = q % plan.wide
    at[0] = at[0] * plan.tile[1]
    at[1] = at[1] * plan.tile[2]
    r: T.let[T.int32] = job % plan.each
    at[2] = (r // (plan.group * plan.across) * plan.group + r % plan.group) * plan.tile[0]
    at[3] = r % (plan.group * plan.across) // plan.group * plan.columns
    if plan.skip:
        at[4] = T.max(0, plan.p - (at[0] + plan.tile[1] - 1) * plan.s)
        at[5] = T.min(plan.k, plan.n + plan.p - at[0] * plan.s) - at[4]
        at[6] = T.max(0, plan.p - (at[1] + plan.tile[2] - 1) * plan.s)
        at[7] = T.min(plan.k, plan.n + plan.p - at[1] * plan.s) - at[6]
    else:
        at[4] = 0
        at[5] = plan.k
        at[6] = 0
        at[7] = plan.k


def conv(batch, oc, ic, n, k, p=0, s=1, sms=132, **options):
    """A convolution kernel in NHWC, float16 with float32 sums.

    >>> kernel = d2ltvm.build(hopper.conv(256, 512, 256, 14, 3, 1))

    X is (batch, n, n, ic), W (k * k, oc, ic), Y (batch, o, o, oc). A tile of Y is a
    box of 128 pixels by some channels. For each tap and each 64 input channels TMA
    fetches the box of X under the tap, zeros where that is outside, and a tile of W.
    With tiles on demand the kernel counts them in a variable of its own, so that
    it must not run in two streams at once.

    Args:
        batch, oc, ic, n, k, p, s: as for `conv_nhwcnc`; oc and ic are multiples of 8,
            and p < k.
        sms: blocks that run at once, which are the SMs of the chip.
        options: of `hopper_plan.plan_conv`.

    Returns:
        A PrimFunc, for `d2ltvm.build`.

    Raises:
        ValueError: a size is not as above, or shared memory is too small.
    """
    plan = plan_conv(batch, oc, ic, n, k, p, s, sms, **options)
    (tn, th, tw), (hn, hh) = plan.tile, plan.half
    columns, stages, parts, width = plan.columns, plan.stages, plan.parts, plan.width
    tiles, chunks, o = plan.tiles, plan.chunks, conv_out_size(n, k, p, s)
    blocks, nbytes = min(sms, tiles), (ROWS + columns) * DEPTH * 2

    @T.prim_func
    def main(x_ptr: T.handle, w_ptr: T.handle, y_ptr: T.handle):
        X = T.match_buffer(x_ptr, (batch, n, n, ic), "float16", align=16)
        W = T.match_buffer(w_ptr, (k * k, oc, ic), "float16", align=16)
        Y = T.match_buffer(y_ptr, (batch, o, o, oc), "float16", align=16)
        inputs = T.decl_buffer((plan.batch, plan.n, plan.n, ic), "float16", data=X.data, align=16)
        results = T.decl_buffer((plan.batch, plan.o, plan.o, oc), "float16", data=Y.data, align=16)
        T.device_entry()
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1})
        block = T.cta_id([blocks])
        group_of = T.warpgroup_id([3])
        thread = T.thread_id([384])

        pool = T.SMEMPool()
        sX = shared_tile(pool, (stages, tn, th, tw, DEPTH))
        sW = shared_tile(pool, (stages, columns, DEPTH))
        sY = shared_tile(pool, (2, width // 64, hn, hh, tw, 64))
        ring = Pipeline(pool, stages, full="tma", empty="mbar", init_full=1, init_empty=2)
        job = Job(pool, tiles, blocks, plan.on_demand)
        pool.commit()
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        wait_for_kernel_before(plan.early)

        at = T.alloc_local((8,), "int32")
        slot = PipelineState(stages, 0)
        job.begin(block)
        if group_of == 0:
            if thread == 0:
                while job.tile < tiles:
                    job.ask()
                    locate(at, job.tile, plan)
                    b: T.let[T.int32] = at[2]
                    c: T.let[T.int32] = at[3]
                    for rkh in T.serial(at[5]):
                        for rkw in T.serial(at[7]):
                            for i in T.serial(chunks):
                                kh: T.let[T.int32] = at[4] + rkh
                                kw: T.let[T.int32] = at[6] + rkw
                                y: T.let[T.int32] = at[0] * s - p + kh
                                x: T.let[T.int32] = at[1] * s - p + kw
                                tap: T.let[T.int32] = kh * k + kw
                                ring.empty.wait(slot.stage, slot.phase ^ 1)
                                ring.full.arrive(slot.stage, nbytes)
                                z: T.let[T.int32] = i * DEPTH
                                load(
                                    sX[slot.stage, :, :, :, :],
                                    inputs[b : b + tn, y : y + th, x : x + tw, z : z + DEPTH],
                                    ring.full.ptr_to([slot.stage]),
                                )
                                load(
                                    sW[slot.stage, :, :],
                                    W[tap : tap + 1, c : c + columns, z : z + DEPTH],
                                    ring.full.ptr_to([slot.stage]),
                                )
                                slot.advance()
                    job.pass_on()
        else:
            part: T.let[T.int32] = group_of - 1
            acc = T.alloc_local((columns // 2,), "float32")
            pair = T.alloc_local((4,), "uint32")
            matrices = T.alloc_local((2,), "uint64")
            encode(matrices[0], sX.ptr_to([0, part * hn % tn, part * hh % th, 0, 0]))
            encode(matrices[1], sW.ptr_to([0, 0, 0]))
            last: T.int32 = 0
            while job.tile < tiles:
                locate(at, job.tile, plan)
                for i in T.serial(at[5] * at[7] * chunks):
                    ring.full.wait(slot.stage, slot.phase)
                    multiply(acc, matrices, slot.stage, columns, i)
                    hand_back(ring, thread, last, i)
                    last = slot.stage
                    slot.advance()
                finish(ring, thread, last)
                for h in T.unroll(parts):
                    to_shared(acc, pair, sY, part, thread, h, width, (hn, hh, tw))
                    if thread % 128 == 0:
                        for j in T.unroll(width // 64):
                            b: T.let[T.int32] = at[2] + part * hn % tn
                            y: T.let[T.int32] = at[0] + part * hh % th
                            x: T.let[T.int32] = at[1]
                            c: T.let[T.int32] = at[3] + h * width + j * 64
                            store(
                                results[b : b + hn, y : y + hh, x : x + tw, c : c + 64],
                                sY[part, j, :, :, :, :],
                            )
                        T.ptx.cp.async_.bulk.commit_group()
                job.take()
            if thread % 128 == 0:
                T.ptx.cp.async_.bulk.wait_group(0)

    return dependent_launch(main)


# TIRx has no variable that all blocks share, so this is CUDA. Behind its last
# value the counter is zero again: asked once for each tile, it is as it was.
NEXT_TILE = """
__device__ unsigned int tiles_asked_for;
__device__ int next_tile(int tiles) { return atomicInc(&tiles_asked_for, tiles - 1); }
"""


@T.meta_class
class Job:
    """The tile that a thread is at, and the way to the next.

    In turns, a block goes on by as many tiles as there are blocks. On demand, the
    thread that fetches asks a counter of all blocks, and passes the answer on to
    those that multiply.
    """

    def __init__(self, pool, tiles, blocks, on_demand):
        self.tiles, self.blocks, self.on_demand = tiles, blocks, on_demand
        self.tile = T.local_scalar("int32")
        self.next = T.local_scalar("int32")
        self.passed = pool.alloc((2,), "int32", align=8)
        self.queue = Pipeline(pool, 2, full="mbar", empty="mbar", init_full=1, init_empty=2 * 128)
        self.turn = PipelineState(2)

    @T.inline
    def begin(self, block):
        self.tile = block
        self.turn.init(0)

    @T.inline
    def ask(self):
        """Of the thread that fetches, long before it needs to know: what is next?"""
        if self.on_demand:
            self.next = self.blocks + T.cuda.func_call(
                "next_tile", self.tiles, source_code=NEXT_TILE, return_type="int32"
            )
        else:
            self.next = self.tile + self.blocks

    @T.inline
    def pass_on(self):
        """Of the thread that fetches: go on, and tell the others."""
        self.tile = self.next
        if self.on_demand:
            self.queue.empty.wait(self.turn.stage, self.turn.phase ^ 1)
            self.passed[self.turn.stage] = self.tile
            self.queue.full.arrive(self.turn.stage)
            self.turn.advance()

    @T.inline
    def take(self):
        """Of all threads that multiply: go on."""
        if self.on_demand:
            self.queue.full.wait(self.turn.stage, self.turn.phase)
            self.tile = self.passed[self.turn.stage]
            self.queue.empty.arrive(self.turn.stage)
            self.turn.advance()
        else:
            self.tile = self.tile + self.blocks


def shared_tile(pool, shape, dtype="float16"):
    """A tile in shared memory, in rows of 128 swizzled bytes."""
    return pool.alloc(shape, dtype, align=1024, layout=swizzled(shape, dtype))


@T.inline
def wait_for_kernel_before(early=True):
    """Wait for the end of the kernel before, which may still run.

    What is above this in a kernel must not touch what that one reads or writes. The next
    kernel's blocks may start where there is room if `early`, else when all blocks have ended.
    """
    if early:
        T.ptx.griddepcontrol.launch_dependents()
    T.ptx.griddepcontrol.wait()


def dependent_launch(kernel):
    """A PrimFunc whose blocks may start before the kernel launched before it has ended.

    CUDA calls this a programmatic dependent launch. The kernel has to wait by itself.
    """
    tags = ["blockIdx.x", "threadIdx.x", DEPENDENT, "tirx.use_dyn_shared_memory"]
    return kernel.with_attr("tirx.kernel_launch_params", tags)


@T.inline
def load(tile, box, barrier):
    """Have TMA copy a box, zeros where it is outside, and tell a barrier."""
    Tx.copy_async(tile, box, dispatch="tma_explicit", mbar=barrier, oob="zero")


@T.inline
def store(box, tile):
    """Have TMA copy a tile to a box of a tensor, but for what is outside."""
    Tx.copy_async(box, tile, dispatch="tma_explicit")


@T.inline
def encode(descriptor, pointer):
    """Write the descriptor of a matrix in rows of 128 swizzled bytes."""
    T.cuda.wgmma.encode_matrix_descriptor(T.address_of(descriptor), pointer, 1, 64, SWIZZLE_128B)


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
            T.ptx.pred(k + i > 0), 1, 1, 0, 0,
        )  # fmt: skip
    T.ptx.wgmma.commit_group.sync.aligned()


@T.inline
def hand_back(ring, thread, last, k):
    """Wait for all products but those just begun; hand back the slot before."""
    T.ptx.wgmma.wait_group.sync.aligned(1)
    if thread % 128 == 0 and k > 0:
        ring.empty.arrive(last)


@T.inline
def finish(ring, thread, last):
    """Wait for the last products, and hand back their slot."""
    T.ptx.wgmma.wait_group.sync.aligned(0)
    if thread % 128 == 0:
        ring.empty.arrive(last)


def place(tile, part, block, row, column, box):
    """A pointer to an element of a tile whose 64 rows have the shape of a box."""
    if len(tile.shape) == 4:
        return tile.ptr_to([part, block, row, column])
    _, high, wide = box
    rows = (row // (high * wide), row // wide % high, row % wide)
    return tile.ptr_to([part, block, *rows, column])


@T.inline
def to_shared(acc, pair, tile, part, thread, h, width, box=(64, 1, 1)):
    """Round sums of a warpgroup to float16 and put them into its tile, swizzled.

    These are columns h * width to (h + 1) * width. Four lanes hold eight neighbours
    of a row, so that `stmatrix` stores an 8 x 8 matrix from one register of each
    lane. `box` is the shape of the tile's 64 rows.
    """
    if thread % 128 == 0:
        # TMA has read what was there before.
        T.ptx.cp.async_.bulk.wait_group.read(0)
    T.cuda.warpgroup_sync(part + 1)
    lane: T.let[T.int32] = thread % 32
    row: T.let[T.int32] = thread % 128 // 32 * 16 + lane % 16
    for j in T.unroll(width // 16):
        for q in T.unroll(4):
            i: T.let[T.int32] = h * (width // 2) + j * 8 + q * 2
            T.ptx["cvt.rn.f16x2.f32"](pair[q], acc[i + 1], acc[i])
        T.ptx["stmatrix.sync.aligned.m8n8.x4.shared.b16"](
            place(tile, part, j // 4, row, (j % 4 * 2 + lane // 16) * 8, box),
            pair[0], pair[1], pair[2], pair[3],
        )  # fmt: skip
    T.ptx.fence.proxy.async_.shared__cta()
    T.cuda.warpgroup_sync(part + 1)


def swizzled(shape, dtype="float16"):
    """The layout of a tile in rows of 128 bytes, one behind the other, swizzled as TMA does.

    The 16 bytes at place i of row r stand at place i ^ (r % 8).
    """
    each = 128 // tvm.DataType(dtype).bits  # elements of 16 bytes
    return ComposeLayout(each.bit_length() - 1, 3, 3, TileLayout(S[tuple(shape)]))
