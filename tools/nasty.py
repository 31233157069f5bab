"""Small kernels with awkward memory accesses, on which the access analyser is tried.

`KERNELS` holds functions that make them, by name. Tests count their accesses thread by thread, and
`tools/validate_access.py` holds the analyser against the hardware's counters.
"""

import functools

from tvm import te
from tvm.script import tirx as T

import d2ltvm


def _bound(tensors, block, *split):
    """A schedule of the last tensor's loops: the innermost split into blocks and threads."""
    sch = d2ltvm.schedule(tensors)
    loop = sch.fuse(*sch.get_loops(sch.get_sblock(tensors[-1].name)))
    bx, tx, *rest = sch.split(loop, [None, block, *split])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    for part in rest:
        sch.vectorize(part)
    return sch


def strided(n, stride, dtype="float32", block=64):
    """C[i] = A[stride · i]."""
    A = te.placeholder((n * stride,), dtype, name="A")
    return _bound([A, te.compute((n,), lambda i: A[i * stride], name="C")], block)


def shifted(n, by, dtype="float32", block=64):
    """C[i] = A[i + by]: a start that is not aligned."""
    A = te.placeholder((n + by,), dtype, name="A")
    return _bound([A, te.compute((n,), lambda i: A[i + by], name="C")], block)


def wide(n, lanes, dtype="float32", block=64):
    """C[i] = A[i], several elements in one access."""
    A = te.placeholder((n,), dtype, name="A")
    return _bound([A, te.compute((n,), lambda i: A[i], name="C")], block, lanes)


def stencil(n, block=64):
    """C[i] = A[i-1] + A[i] + A[i+1], zero outside."""
    A = te.placeholder((n,), name="A")

    def at(i):
        return te.if_then_else(te.all(i >= 0, i < n), A[i], 0.0)

    return _bound([A, te.compute((n,), lambda i: at(i - 1) + at(i) + at(i + 1), name="C")], block)


def row_and_column(n, ny, nx):
    """C[i, j] = A[i] + B[j], in blocks of ny by nx threads."""
    A, B = (te.placeholder((n,), name=name) for name in "AB")
    C = te.compute((n, n), lambda i, j: A[i] + B[j], name="C")
    sch = d2ltvm.schedule([A, B, C])
    i, j = sch.get_loops(sch.get_sblock("C"))
    by, ty = sch.split(i, [None, ny])
    bx, tx = sch.split(j, [None, nx])
    sch.reorder(by, bx, ty, tx)
    for loop, name in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y")):
        sch.bind(loop, name)
    sch.bind(tx, "threadIdx.x")
    return sch


def transpose(n, ny, nx, pad=0, swizzle=False, dtype="float32"):
    """C = Aᵀ through a tile of ny by nx in shared memory, rows `pad` apart, or swizzled."""
    row, elements = nx + pad, n * n

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((elements,), dtype), C: T.Buffer((elements,), dtype)):
        T.func_attr({"tirx.noalias": True, "sizes": [elements, row, ny, nx, n]})
        for by in T.thread_binding(n // ny, thread="blockIdx.y"):
            for bx in T.thread_binding(n // nx, thread="blockIdx.x"):
                tile = T.sblock_alloc_buffer((ny * row,), dtype, scope="shared")
                for ty in T.thread_binding(ny, thread="threadIdx.y"):
                    for tx in T.thread_binding(nx, thread="threadIdx.x"):
                        with T.sblock("in"):
                            y, x, u, v = T.axis.remap("SSSS", [ty, tx, by, bx])
                            to = T.meta_var(y * row + _column(x, y, swizzle))
                            tile[to] = A[(u * ny + y) * n + v * nx + x]
                for ty in T.thread_binding(ny, thread="threadIdx.y"):
                    for tx in T.thread_binding(nx, thread="threadIdx.x"):
                        with T.sblock("out"):
                            y, x, u, v = T.axis.remap("SSSS", [ty, tx, by, bx])
                            at = T.meta_var((y * nx + x) // ny)
                            down = T.meta_var((y * nx + x) % ny)
                            source = T.meta_var(down * row + _column(at, down, swizzle))
                            C[(v * nx + at) * n + u * ny + down] = tile[source]

    return main


def _column(x, y, swizzle):
    return x ^ y if swizzle else x


def shared_stride(stride, dtype="float32", lanes=1, block=64):
    """Each thread reads shared memory `stride` accesses apart."""
    words = block * stride * lanes
    out = block * lanes

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((words,), dtype), C: T.Buffer((out,), dtype)):
        T.func_attr({"tirx.noalias": True, "sizes": [words, out, stride, lanes]})
        for _ in T.thread_binding(1, thread="blockIdx.x"):
            held = T.sblock_alloc_buffer((words,), dtype, scope="shared")
            for tx in T.thread_binding(block, thread="threadIdx.x"):
                for k in range(stride):
                    for v in T.vectorized(lanes):
                        with T.sblock("in"):
                            i = T.axis.spatial(words, (k * block + tx) * lanes + v)
                            held[i] = A[i]
            for tx in T.thread_binding(block, thread="threadIdx.x"):
                for v in T.vectorized(lanes):
                    with T.sblock("out"):
                        i, u = T.axis.remap("SS", [tx, v])
                        C[i * lanes + u] = held[i * stride * lanes + u]

    return main


# Which of its warp's 32 places a lane reads: places that lanes share, in several manners.
PATTERNS = {
    "lanes n and n ^ 1 agree": lambda lane: lane // 2,
    "lanes n and n ^ 2 agree": lambda lane: lane // 4 * 2 + lane % 2,
    "lanes n and n ^ 4 agree": lambda lane: lane // 8 * 4 + lane % 4,
    "lanes n and n ^ 8 agree": lambda lane: lane // 16 * 8 + lane % 8,
    "half of the lanes agree in pairs": lambda lane: (
        (lane // 16) * lane + (1 - lane // 16) * (lane // 2)
    ),
    "quads agree": lambda lane: lane // 4,
    "pairs, every other place": lambda lane: lane // 2 * 2,
    "a block of 4 by 8": lambda lane: lane % 8,
    "reversed": lambda lane: 31 - lane,
}


def shared_pattern(pattern, lanes, write=False, block=64):
    """Each thread reads, or writes, `lanes` floats of shared memory at a place of `PATTERNS`."""
    words, place = block * lanes, PATTERNS[pattern]

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((words,), "float32"), C: T.Buffer((words,), "float32")):
        T.func_attr({"tirx.noalias": True, "sizes": [words, lanes], "pattern": pattern})
        for _ in T.thread_binding(1, thread="blockIdx.x"):
            held = T.sblock_alloc_buffer((words,), "float32", scope="shared")
            for tx in T.thread_binding(block, thread="threadIdx.x"):
                for v in T.vectorized(lanes):
                    with T.sblock("in"):
                        t, u = T.axis.remap("SS", [tx, v])
                        to = T.meta_var(t // 32 * 32 + place(t % 32) if write else t)
                        held[to * lanes + u] = A[t * lanes + u]
            for tx in T.thread_binding(block, thread="threadIdx.x"):
                for v in T.vectorized(lanes):
                    with T.sblock("out"):
                        t, u = T.axis.remap("SS", [tx, v])
                        at = T.meta_var(t if write else t // 32 * 32 + place(t % 32))
                        C[t * lanes + u] = held[at * lanes + u]

    return main


def gather(n):
    """C[i] = A[P[i]]: an address that depends on data, which the analyser has to refuse."""
    A, P = te.placeholder((n,), name="A"), te.placeholder((n,), "int32", name="P")
    return _bound([A, P, te.compute((n,), lambda i: A[P[i]], name="C")], n)


def _kernels():
    """The kernels, as functions without arguments by name."""
    make = functools.partial
    for s, dtype in ((1, "float32"), (2, "float16"), (3, "float64"), (5, "float32"), (48, "int8")):
        yield f"stride {s}, {dtype}", make(strided, 1000, s, dtype)
    for by, dtype in ((1, "float32"), (3, "float16"), (7, "float64")):
        yield f"shift {by}, {dtype}", make(shifted, 1000, by, dtype)
    yield "wide 4", make(wide, 4096, 4)
    yield "wide 8, float16", make(wide, 4096, 8, "float16")
    yield "wide 4, odd", make(wide, 1003, 4)
    yield "partial warps", make(strided, 1000, 1, block=40)
    yield "stencil", make(stencil, 1000)
    for ny, nx in ((8, 8), (4, 16), (1, 32)):
        yield f"row and column, {ny} x {nx}", make(row_and_column, 100, ny, nx)
    for pad in (0, 1, 2):
        yield f"transpose 32 x 32, pad {pad}", make(transpose, 64, 32, 32, pad)
    yield "transpose 32 x 32, swizzled", make(transpose, 64, 32, 32, swizzle=True)
    yield "transpose 8 x 8", make(transpose, 64, 8, 8)
    yield "transpose 4 x 16", make(transpose, 64, 4, 16)
    yield "transpose 16 x 16, float64", make(transpose, 64, 16, 16, dtype="float64")
    for s in (1, 2, 3, 4, 8, 17, 32, 33, 48):
        yield f"shared stride {s}", make(shared_stride, s)
    for s in (1, 2, 3):
        yield f"shared stride {s}, 8 bytes", make(shared_stride, s, lanes=2)
        yield f"shared stride {s}, 16 bytes", make(shared_stride, s, lanes=4)
    for pattern in PATTERNS:
        for lanes in (1, 2, 4):
            yield f"{pattern}, {4 * lanes} bytes", make(shared_pattern, pattern, lanes)
    for pattern in ("lanes n and n ^ 1 agree", "lanes n and n ^ 2 agree", "reversed"):
        for lanes in (2, 4):
            name = f"{pattern}, {4 * lanes} bytes written"
            yield name, make(shared_pattern, pattern, lanes, write=True)
    yield "shared stride 1, float16", make(shared_stride, 1, "float16")
    yield "shared stride 2, float64", make(shared_stride, 2, "float64")


KERNELS = dict(_kernels())
