"""Tensor intrinsics for `ldmatrix` and `mma.sync`: each a description and an implementation.

The description says in loops what the instruction does, and `tensorize` looks for it; the
implementation is what it puts in its place. Each function here returns both, and `register` tells
TVM of them. A fragment is a buffer of scope `warp`, with the lane as an axis; what is in which lane
is in `d2ltvm.layouts`. Sixteen columns of B or of C are two fragments, which one intrinsic deals
with.
"""

from collections.abc import Iterable

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T

from d2ltvm.layouts import lane_a, lane_b, lane_c, swizzle_32b
from d2ltvm.schedules import wmma_intrinsics
from d2ltvm.schedules.wmma_intrinsics import Intrinsic


def fill() -> Intrinsic:
    """C = 0."""

    @T.prim_func(s_tir=True)
    def description(c: T.handle) -> None:
        C = T.match_buffer(c, (2, 32, 4), "float32", align=64, offset_factor=256, scope="warp")
        with T.sblock("root"):
            T.reads()
            T.writes(C[0:2, 0:32, 0:4])
            for i, j in T.grid(16, 16):
                with T.sblock("fill"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    lane, register = T.meta_var(lane_c(vi, vj))
                    C[vj // 8, lane, register] = T.float32(0)

    # Each lane sets its own.
    @T.prim_func(s_tir=True)
    def implementation(c: T.handle) -> None:
        C = T.match_buffer(c, (2, 32, 4), "float32", align=64, offset_factor=256, scope="warp")
        with T.sblock("root"):
            T.reads()
            T.writes(C[0:2, 0:32, 0:4])
            for lane in T.thread_binding(0, 32, "threadIdx.x"):
                for half, register in T.grid(2, 4):
                    C[half, lane, register] = T.float32(0)

    return description, implementation


def load_a() -> Intrinsic:
    """A tile of 16 x 16 of shared memory, swizzled, into A's fragment."""

    @T.prim_func(s_tir=True)
    def description(shared_handle: T.handle, warp_handle: T.handle) -> None:
        shared = T.match_buffer(
            shared_handle, (16, 16), "float16", align=64, offset_factor=256, scope="shared.dyn"
        )
        warp = T.match_buffer(
            warp_handle, (32, 8), "float16", align=64, offset_factor=256, scope="warp"
        )
        with T.sblock("root"):
            T.reads(shared[0:16, 0:16])
            T.writes(warp[0:32, 0:8])
            for i, j in T.grid(16, 16):
                with T.sblock("load"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    lane, register = T.meta_var(lane_a(vi, vj))
                    warp[lane, register] = shared[vi, swizzle_32b(vi, vj)]

    # Each lane gives the address of half a row, and receives eight elements.
    @T.prim_func(s_tir=True)
    def implementation(shared_handle: T.handle, warp_handle: T.handle) -> None:
        shared = T.match_buffer(
            shared_handle, (16, 16), "float16", align=64, offset_factor=256, scope="shared.dyn"
        )
        warp = T.match_buffer(
            warp_handle, (32, 8), "float16", align=64, offset_factor=256, scope="warp"
        )
        with T.sblock("root"):
            T.reads(shared[0:16, 0:16])
            T.writes(warp[0:32, 0:8])
            for lane in T.thread_binding(0, 32, "threadIdx.x"):
                T.evaluate(
                    T.ptx_legacy.ldmatrix(
                        False, 4, ".b16", warp.data, warp.elem_offset + 8 * lane,
                        shared.access_ptr("r"),
                        lane % 16 * 16 + swizzle_32b(lane % 16, lane // 16 * 8),
                        dtype="float16",
                    )
                )  # fmt: skip

    return description, implementation


def load_b() -> Intrinsic:
    """A tile of 16 x 16 of shared memory, swizzled, into two fragments of B."""

    @T.prim_func(s_tir=True)
    def description(shared_handle: T.handle, warp_handle: T.handle) -> None:
        shared = T.match_buffer(
            shared_handle, (16, 16), "float16", align=64, offset_factor=256, scope="shared.dyn"
        )
        warp = T.match_buffer(
            warp_handle, (2, 32, 4), "float16", align=64, offset_factor=256, scope="warp"
        )
        with T.sblock("root"):
            T.reads(shared[0:16, 0:16])
            T.writes(warp[0:2, 0:32, 0:4])
            for i, j in T.grid(16, 16):
                with T.sblock("load"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    lane, register = T.meta_var(lane_b(vi, vj))
                    warp[vj // 8, lane, register] = shared[vi, swizzle_32b(vi, vj)]

    # As `ldmatrix_a`, transposed: B's fragments go down its columns.
    #
    # A lane's eight elements are four of one fragment and four of the next.
    @T.prim_func(s_tir=True)
    def implementation(shared_handle: T.handle, warp_handle: T.handle) -> None:
        shared = T.match_buffer(
            shared_handle, (16, 16), "float16", align=64, offset_factor=256, scope="shared.dyn"
        )
        warp = T.match_buffer(
            warp_handle, (2, 32, 4), "float16", align=64, offset_factor=256, scope="warp"
        )
        with T.sblock("root"):
            T.reads(shared[0:16, 0:16])
            T.writes(warp[0:2, 0:32, 0:4])
            for lane in T.thread_binding(0, 32, "threadIdx.x"):
                T.evaluate(
                    T.ptx_legacy.ldmatrix(
                        True, 4, ".b16", warp.data, warp.elem_offset + 4 * lane,
                        shared.access_ptr("r"),
                        lane % 16 * 16 + swizzle_32b(lane % 16, lane // 16 * 8),
                        dtype="float16",
                    )
                )  # fmt: skip

    return description, implementation


def mma() -> Intrinsic:
    """C += A B for 16 x 16 x 16, between registers of lanes."""

    @T.prim_func(s_tir=True)
    def description(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (32, 8), "float16", align=64, offset_factor=256, scope="warp")
        B = T.match_buffer(b, (2, 32, 4), "float16", align=64, offset_factor=256, scope="warp")
        C = T.match_buffer(c, (2, 32, 4), "float32", align=64, offset_factor=256, scope="warp")
        with T.sblock("root"):
            T.reads(C[0:2, 0:32, 0:4], A[0:32, 0:8], B[0:2, 0:32, 0:4])
            T.writes(C[0:2, 0:32, 0:4])
            for i, j, k in T.grid(16, 16, 16):
                with T.sblock("update"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    la, ra = T.meta_var(lane_a(vi, vk))
                    lb, rb = T.meta_var(lane_b(vk, vj))
                    lc, rc = T.meta_var(lane_c(vi, vj))
                    C[vj // 8, lc, rc] = C[vj // 8, lc, rc] + T.Cast("float32", A[la, ra]) * T.Cast(
                        "float32", B[vj // 8, lb, rb]
                    )

    # Two instructions, one for each half of the columns.
    @T.prim_func(s_tir=True)
    def implementation(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (32, 8), "float16", align=64, offset_factor=256, scope="warp")
        B = T.match_buffer(b, (2, 32, 4), "float16", align=64, offset_factor=256, scope="warp")
        C = T.match_buffer(c, (2, 32, 4), "float32", align=64, offset_factor=256, scope="warp")
        with T.sblock("root"):
            T.reads(C[0:2, 0:32, 0:4], A[0:32, 0:8], B[0:2, 0:32, 0:4])
            T.writes(C[0:2, 0:32, 0:4])
            for lane in T.thread_binding(0, 32, "threadIdx.x"):
                for half in T.unroll(2):
                    T.evaluate(
                        T.ptx_legacy.mma(
                            "m16n8k16", "row", "col", "fp16", "fp16", "fp32",
                            A.data, A.elem_offset + 8 * lane,
                            B.data, B.elem_offset + half * 128 + 4 * lane,
                            C.data, C.elem_offset + half * 128 + 4 * lane,
                            False, dtype="float32",
                        )
                    )  # fmt: skip

    return description, implementation


def store() -> Intrinsic:
    """C to global memory."""

    @T.prim_func(s_tir=True)
    def description(c: T.handle, out: T.handle) -> None:
        C = T.match_buffer(c, (2, 32, 4), "float32", align=64, offset_factor=256, scope="warp")
        Out = T.match_buffer(out, (16, 16), "float32", align=64, offset_factor=256, scope="global")
        with T.sblock("root"):
            T.reads(C[0:2, 0:32, 0:4])
            T.writes(Out[0:16, 0:16])
            for i, j in T.grid(16, 16):
                with T.sblock("store"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    lane, register = T.meta_var(lane_c(vi, vj))
                    Out[vi, vj] = C[vj // 8, lane, register]

    # Each lane writes its own, two neighbours at once.
    @T.prim_func(s_tir=True)
    def implementation(c: T.handle, out: T.handle) -> None:
        C = T.match_buffer(c, (2, 32, 4), "float32", align=64, offset_factor=256, scope="warp")
        Out = T.match_buffer(out, (16, 16), "float32", align=64, offset_factor=256, scope="global")
        with T.sblock("root"):
            T.reads(C[0:2, 0:32, 0:4])
            T.writes(Out[0:16, 0:16])
            for lane in T.thread_binding(0, 32, "threadIdx.x"):
                for half, lower in T.grid(2, 2):
                    for k in T.vectorized(2):
                        Out[lower * 8 + lane // 4, half * 8 + lane % 4 * 2 + k] = C[
                            half, lane, lower * 2 + k
                        ]

    return description, implementation


# What `tensorize` takes, by name: to set sums to zero, to load A and B, to multiply, to store.
INTRINSICS = {
    "d2ltvm.fill": fill,
    "d2ltvm.load_a": load_a,
    "d2ltvm.load_b": load_b,
    "d2ltvm.mma": mma,
    "d2ltvm.store": store,
}
NAMES = tuple(INTRINSICS)


def register(names: Iterable[str]) -> None:
    """Tell TVM of tensor intrinsics, those of the package among `names`, before they are used.

    TVM takes time to read each, so that a program should ask for no more than it uses.

    >>> register(NAMES)

    Args:
        names: of `NAMES`, of `wmma_intrinsics.NAMES`, `wmma_intrinsics.STORE_SHARED`, or of
            intrinsics that TVM knows already.
    """
    known = INTRINSICS | wmma_intrinsics.INTRINSICS
    known[wmma_intrinsics.STORE_SHARED] = wmma_intrinsics.store_shared
    for name in names:
        if name in known and TensorIntrin.get(name, allow_missing=True) is None:
            TensorIntrin.register(name, *known[name]())
