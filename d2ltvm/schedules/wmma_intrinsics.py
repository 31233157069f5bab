"""Tensor intrinsics for CUDA's wmma: tiles of 16 x 16 in float16, sums in float32.

The same pairs as `tvm.s_tir.tensor_intrin.cuda` makes, under names of their own. To import that
module takes 15 s and more, since it reads a hundred intrinsics of other shapes and types. Each
function here gives the description and the implementation of one. Which lane holds what is wmma's
own business: a fragment is a tile of 16 x 16 in a scope of its own.
"""

from typing import Any

from tvm.script import tirx as T

Intrinsic = tuple[Any, Any]  # two PrimFuncs: a description and an implementation


def fragment(buffer: Any, stride: Any) -> Any:
    """Which of a warp's fragments begins where a buffer does, whose rows are `stride` apart."""
    row, column = buffer.elem_offset // stride // 16, buffer.elem_offset % stride // 16
    return row * (stride // 16) + column


def fill() -> Intrinsic:
    """C = 0."""

    @T.prim_func(s_tir=True)
    def description(c: T.handle) -> None:
        C = T.match_buffer(
            c, (16, 16), "float32", align=64, offset_factor=16, scope="wmma.accumulator"
        )
        with T.sblock("root"):
            T.reads()
            T.writes(C[0:16, 0:16])
            for i, j in T.grid(16, 16):
                with T.sblock("init"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = T.float32(0)

    @T.prim_func(s_tir=True)
    def implementation(c: T.handle) -> None:
        c1 = T.int32()
        c0 = T.int32()
        C = T.match_buffer(
            c, (16, 16), "float32", align=64, offset_factor=16, scope="wmma.accumulator",
            strides=[c1, c0],
        )  # fmt: skip
        with T.sblock("root"):
            T.reads()
            T.writes(C[0:16, 0:16])
            T.evaluate(
                T.tvm_fill_fragment(C.data, 16, 16, 16, fragment(C, c1), T.float32(0), dtype="void")
            )

    return description, implementation


def load_a() -> Intrinsic:
    """A tile of shared memory, with rows at any fixed distance, into a fragment of A."""
    return _load("wmma.matrix_a")


def load_b() -> Intrinsic:
    """As `load_a`, into a fragment of B."""
    return _load("wmma.matrix_b")


def _load(scope: str) -> Intrinsic:
    @T.prim_func(s_tir=True)
    def description(a: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (16, 16), "float16", align=64, offset_factor=16, scope="shared.dyn")
        C = T.match_buffer(c, (16, 16), "float16", align=64, offset_factor=16, scope=scope)
        with T.sblock("root"):
            T.reads(A[0:16, 0:16])
            T.writes(C[0:16, 0:16])
            for i, j in T.grid(16, 16):
                with T.sblock("load"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = A[vi, vj]

    @T.prim_func(s_tir=True)
    def implementation(a: T.handle, c: T.handle) -> None:
        a1 = T.int32()
        a0 = T.int32()
        c1 = T.int32()
        c0 = T.int32()
        A = T.match_buffer(
            a, (16, 16), "float16", align=64, offset_factor=16, scope="shared.dyn",
            strides=[a1, a0],
        )  # fmt: skip
        C = T.match_buffer(
            c, (16, 16), "float16", align=64, offset_factor=16, scope=scope, strides=[c1, c0]
        )
        with T.sblock("root"):
            T.reads(A[0:16, 0:16])
            T.writes(C[0:16, 0:16])
            T.evaluate(
                T.tvm_load_matrix_sync(
                    C.data, 16, 16, 16, fragment(C, c1),
                    A.access_ptr("r", ptr_type="float16"), a1, "row_major", dtype="void",
                )
            )  # fmt: skip

    return description, implementation


def sync() -> Intrinsic:
    """C += A B for 16 x 16 x 16."""

    @T.prim_func(s_tir=True)
    def description(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(
            a, (16, 16), "float16", align=64, offset_factor=16, scope="wmma.matrix_a"
        )
        B = T.match_buffer(
            b, (16, 16), "float16", align=64, offset_factor=16, scope="wmma.matrix_b"
        )
        C = T.match_buffer(
            c, (16, 16), "float32", align=64, offset_factor=16, scope="wmma.accumulator"
        )
        with T.sblock("root"):
            T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
            T.writes(C[0:16, 0:16])
            for i, j, k in T.grid(16, 16, 16):
                with T.sblock(""):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    C[vi, vj] = C[vi, vj] + T.Cast("float32", A[vi, vk]) * T.Cast(
                        "float32", B[vk, vj]
                    )

    @T.prim_func(s_tir=True)
    def implementation(a: T.handle, b: T.handle, c: T.handle) -> None:
        a1 = T.int32()
        a0 = T.int32()
        b1 = T.int32()
        b0 = T.int32()
        c1 = T.int32()
        c0 = T.int32()
        A = T.match_buffer(
            a, (16, 16), "float16", align=64, offset_factor=16, scope="wmma.matrix_a",
            strides=[a1, a0],
        )  # fmt: skip
        B = T.match_buffer(
            b, (16, 16), "float16", align=64, offset_factor=16, scope="wmma.matrix_b",
            strides=[b1, b0],
        )  # fmt: skip
        C = T.match_buffer(
            c, (16, 16), "float32", align=64, offset_factor=16, scope="wmma.accumulator",
            strides=[c1, c0],
        )  # fmt: skip
        with T.sblock("root"):
            T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
            T.writes(C[0:16, 0:16])
            T.evaluate(
                T.tvm_mma_sync(
                    C.data, fragment(C, c1), A.data, fragment(A, a1),
                    B.data, fragment(B, b1), C.data, fragment(C, c1), dtype="void",
                )
            )  # fmt: skip

    return description, implementation


def store() -> Intrinsic:
    """C to global memory."""
    return _store("global")


def store_shared() -> Intrinsic:
    """C to shared memory, from where all threads of a block write it out."""
    return _store("shared.dyn")


def _store(scope: str) -> Intrinsic:
    @T.prim_func(s_tir=True)
    def description(c: T.handle, out: T.handle) -> None:
        C = T.match_buffer(
            c, (16, 16), "float32", align=64, offset_factor=16, scope="wmma.accumulator"
        )
        Out = T.match_buffer(out, (16, 16), "float32", align=64, offset_factor=16, scope=scope)
        with T.sblock("root"):
            T.reads(C[0:16, 0:16])
            T.writes(Out[0:16, 0:16])
            for i, j in T.grid(16, 16):
                with T.sblock("store"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    Out[vi, vj] = C[vi, vj]

    @T.prim_func(s_tir=True)
    def implementation(c: T.handle, out: T.handle) -> None:
        o1 = T.int32()
        o0 = T.int32()
        c1 = T.int32()
        c0 = T.int32()
        C = T.match_buffer(
            c, (16, 16), "float32", align=64, offset_factor=16, scope="wmma.accumulator",
            strides=[c1, c0],
        )  # fmt: skip
        Out = T.match_buffer(
            out, (16, 16), "float32", align=64, offset_factor=16, scope=scope,
            strides=[o1, o0],
        )  # fmt: skip
        with T.sblock("root"):
            T.reads(C[0:16, 0:16])
            T.writes(Out[0:16, 0:16])
            T.evaluate(
                T.tvm_store_matrix_sync(
                    C.data, 16, 16, 16, fragment(C, c1),
                    Out.access_ptr("w", ptr_type="float32"), o1, "row_major", dtype="void",
                )
            )  # fmt: skip

    return description, implementation


# What `tensorize` takes, by name: to set sums to zero, to load A and B, to multiply, to store.
INTRINSICS = {
    "d2ltvm.wmma_fill": fill,
    "d2ltvm.wmma_load_a": load_a,
    "d2ltvm.wmma_load_b": load_b,
    "d2ltvm.wmma_sync": sync,
    "d2ltvm.wmma_store": store,
}
NAMES = tuple(INTRINSICS)
STORE_SHARED = "d2ltvm.wmma_store_shared"  # instead of the last, as TVM's rules store
