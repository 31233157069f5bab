"""Fuzz of schedules, of `build` and of kernels: every result against NumPy, by emulation mostly."""

import functools
import math

import numpy as np
import tvm
from fuzz_compute import direct, positions
from fuzzing import EITHER, ODD, REFUSED, Maybe, mostly, sizes, spoiled, whole
from hypothesis import strategies as st
from tvm import te

import d2ltvm
from d2ltvm import schedules

SMALL = ODD.filter(lambda v: not whole(v, 2**11))
LARGE = 64  # from which a size is no longer one that a schedule here is meant for
THREADS = st.sampled_from([1, 2, 3, 8, 16, 32, 33])
WIDTH = st.sampled_from([1, 2, 4])
VECTOR = {
    "copy_unrolled": {"nt": THREADS, "width": WIDTH, "steps": sizes(most=3)},
    "one_thread_each": {"nt": THREADS},
    "vectorized": {"nt": THREADS, "width": WIDTH},
    "unrolled": {"nt": THREADS, "width": WIDTH, "steps": sizes(most=3)},
    "partitioned": {"nt": THREADS, "width": WIDTH, "steps": sizes(most=3)},
    "cpu_vector_add": {"chunks": sizes(most=5), "width": WIDTH},
}
BROADCAST = {
    "continuous_parallel": {"nt": THREADS, "nb": sizes(most=9)},
    "alternate_parallel": {"nt": THREADS, "nb": sizes(most=9)},
    "bcast_vectorized": {"nt": THREADS, "width": WIDTH},
    "bcast_rows": {"nt": THREADS, "width": WIDTH, "rows": sizes(most=3)},
    "cpu_bcast_add": {"chunks": sizes(most=5), "width": WIDTH},
}
PIECES = st.tuples(sizes(most=2), st.just(1), sizes(most=4), sizes(most=3))
WARPS = st.tuples(st.just(1), st.just(1), st.sampled_from([2, 4]), st.just(4))
PRODUCT = {
    "matmul_naive": {"nt": sizes(most=9)},
    "matmul_coalesced": {"nt": sizes(most=9)},
    "matmul_shared": {"nt": sizes(most=9)},
    "matmul_registers": {
        "lanes": sizes(most=5), "each": sizes(most=4), "depth": sizes(most=5),
    },
    "matmul_tiled": {
        "rows": PIECES, "columns": PIECES, "depth": sizes(most=5), "align": st.sampled_from([0, 4]),
        "unroll": st.booleans(), "stages": sizes(most=2),
    },
    "matmul_vthread": {"depth": st.sampled_from([4, 8])},
    "matmul_warps": {"depth": st.just(16)},
    "cpu_matmul": {
        "rows": st.sampled_from([8, 16]), "columns": st.sampled_from([8, 16]),
        "depth": sizes(most=9), "height": st.sampled_from([2, 4, 8]),
        "width": st.sampled_from([4, 8]),
    },
}  # fmt: skip
TILE = st.tuples(sizes(most=2), sizes(most=3), sizes(most=3))
CONV = {
    "default_sch": {},
    "cpu_conv": {"toc": sizes(most=9), "tic": sizes(most=5), "rows": sizes(most=4),
                 "width": sizes(most=4)},
    "tiling": {},
    "vthread": {},
    "conv_tiled": {"tile_c": TILE, "tile_h": TILE, "tile_w": TILE,
                   "tile_rc": st.tuples(sizes(most=2), sizes(most=2))},
    "conv_split": {"channels": sizes(most=4), "rows": sizes(most=3), "warps": sizes(most=2),
                   "parts": sizes(2, 3), "depth": sizes(most=2), "lanes": sizes(most=8)},
}  # fmt: skip


def executed(schedule, arrays, out):
    """What a schedule computes: emulated, or by LLVM where it is one for the CPU."""
    found = np.full_like(out, np.nan)
    if "thread_binding" in schedule.mod.script():
        d2ltvm.emulate(schedule, *arrays, found)
    else:
        d2ltvm.build(schedule, "llvm")(*arrays, found)
    return found


FLAGS = ("unroll", "tensorized")
FROM_ZERO = ("p", "align")
FACTORS = ("rows", "columns", "tile_c", "tile_h", "tile_w", "tile_rc")
TILED = ("matmul_tiled", "conv_tiled", "hwcn_tiled", "wmma_tiled")  # whose rows are factors


def are_arguments(function, arguments):
    """Whether arguments are of the kinds that a schedule's function takes."""

    def fine(name, value):
        if name in FLAGS:
            return isinstance(value, bool | np.bool_)
        if name in FACTORS and function in TILED:
            return isinstance(value, tuple | list) and bool(value) and all(map(whole, value))
        return whole(value, 0 if name in FROM_ZERO else 1)

    return all(fine(name, value) for name, value in arguments.items())


def scheduled(tally, draw, table, first, reference):
    """A schedule of `table` with drawn parameters: its result, or a refusal in one line."""
    name = draw(st.sampled_from(sorted(table)))
    arguments = spoiled(draw, {**first, **table[name]}, odd=SMALL)
    # Whether TVM can do with such a tile is its own to say; that sizes are sizes is ours.
    expected = EITHER if are_arguments(name, arguments) else REFUSED
    made = tally.judge(getattr(schedules, name), arguments, expected)
    if made is None:
        return
    arrays, want, terms = reference(arguments)
    if math.prod(want.shape) * terms > 20000:
        return

    def run():
        return executed(made, arrays, want.astype("float32"))

    def right(result):
        return np.allclose(result, want, rtol=1e-5, atol=1e-6 * terms)

    run.__name__ = f"run {name}({arguments})"
    # A spoiled size, such as a stride of 255, may want more shared memory than any GPU has.
    small = not any(whole(value, LARGE) for value in arguments.values())
    tally.judge(run, {}, right if small else Maybe(right), words=("main_kernel", *arguments))


def vector(tally, draw):
    def reference(arguments):
        a, b, _ = d2ltvm.get_abc(int(arguments["n"]))
        return (a, b), a + b, 1

    table = {k: v for k, v in VECTOR.items() if k != "copy_unrolled"}
    scheduled(tally, draw, table, {"n": sizes(most=200)}, reference)


def copy(tally, draw):
    def reference(arguments):
        a = d2ltvm.get_abc(int(arguments["n"]))[0]
        return (a,), a, 1

    table = {"copy_unrolled": VECTOR["copy_unrolled"]}
    scheduled(tally, draw, table, {"n": sizes(most=200)}, reference)


def broadcast(tally, draw):
    def reference(arguments):
        a, b, _ = d2ltvm.bcast_data(int(arguments["n"]))
        return (a, b), a + b, 1

    scheduled(tally, draw, BROADCAST, {"n": sizes(most=20)}, reference)


def product(tally, draw):
    def reference(arguments):
        n, m, l = (int(arguments[k]) for k in "nml")
        a, b, _ = d2ltvm.get_matmul_data(n, m, l)
        return (a, b), a.astype("float64") @ b, l

    first = {"n": sizes(most=12), "m": sizes(most=12), "l": sizes(most=12)}
    scheduled(tally, draw, PRODUCT, first, reference)


def conv(tally, draw):
    def reference(arguments):
        oc, ic, n, k, p, s = (int(arguments[key]) for key in ("oc", "ic", "n", "k", "p", "s"))
        x, w, _ = d2ltvm.get_conv_data(oc, ic, n, k, p, s)
        return (x, w), direct(x.astype("float64"), w, (p, p), (s, s)), ic * k * k

    first = {"oc": sizes(most=4), "ic": sizes(most=4), "n": sizes(3, 6), "k": sizes(most=3),
             "p": sizes(0, 1), "s": sizes(most=2)}  # fmt: skip
    scheduled(tally, draw, CONV, first, reference)


BATCHED = {
    "hwcn_blocks": {"tile": st.sampled_from([4, 8]), "threads": sizes(most=2),
                    "step": st.sampled_from([1, 2, 4]), "vthreads": sizes(most=2)},
    "hwcn_tiled": {"rows": WARPS, "columns": WARPS, "depth": st.sampled_from([1, 2, 4]),
                   "stages": sizes(most=3)},
    "wmma_tiled": {"rows": st.just((1, 1)), "columns": st.just((1, 1)), "depth": st.just(1),
                   "stages": sizes(most=3), "tensorized": st.just(False)},
}  # fmt: skip


def batched(tally, draw):
    """Only whether arguments are refused: results take seconds, and have tests of their own."""
    name = draw(st.sampled_from(sorted(BATCHED)))
    first = {"batch": st.sampled_from([8, 16, 32]), "oc": st.sampled_from([8, 16, 32]),
             "ic": st.sampled_from([4, 8, 16]), "n": sizes(3, 5), "k": sizes(most=3),
             "p": sizes(0, 1), "s": sizes(most=2)}  # fmt: skip
    arguments = spoiled(draw, {**first, **BATCHED[name]}, odd=SMALL)
    good = are_arguments(name, arguments)
    good = good and positions(*(arguments[k] for k in ("n", "k", "p", "s")))
    tally.judge(getattr(schedules, name), arguments, EITHER if good else REFUSED)


KERNELS = {
    "vector add": (functools.partial(schedules.cpu_vector_add, 24), ((24,),) * 3),
    "product": (functools.partial(schedules.cpu_matmul, 5, 6, 7, 8, 8, 4, 4, 4),
                ((5, 7), (7, 6), (5, 6))),
}  # fmt: skip


@functools.cache
def built(name, target="llvm"):
    return d2ltvm.build(KERNELS[name][0](), target)


def arrays(draw, shape):
    """An array of a shape, or one that is not as a kernel wants it."""
    good = np.ones(shape, "float32")
    if draw(st.sampled_from([True] * 9 + [False])):
        return good
    strange = [
        *(good.astype(kind) for kind in ("float64", "int32", ">f4", object)),
        *(good[:-1], good[..., None], good.T.copy().T, good[::-1], good.reshape(-1)),
        *(np.ones((*shape, 2), "float32")[..., 0], np.broadcast_to(np.float32(1), shape)),
        *(tvm.runtime.tensor(good), good.tolist(), np.zeros((1, 1)), good.astype("float16")),
        np.ma.masked_array(good, good > 0),
    ]
    return draw(st.one_of(st.sampled_from(strange), ODD))


def call(tally, draw):
    """A kernel on arrays, right or not: they come out as NumPy has it, or are left as they were."""
    name = draw(st.sampled_from(sorted(KERNELS)))
    shapes, kernel = KERNELS[name][1], built(name)
    given = [arrays(draw, shape) for shape in shapes]
    if draw(st.integers(0, 9)) == 0:
        given = given[: draw(st.integers(0, 2))] or [*given, given[0]]
    given = [g.copy() if isinstance(g, np.ndarray) and g.flags.writeable else g for g in given]
    plain = len(given) == 3 and all(
        type(g) is np.ndarray and g.shape == shape and g.dtype == "float32" and g.dtype.isnative
        and g.flags.c_contiguous for g, shape in zip(given, shapes, strict=True)
    )  # fmt: skip
    plain = plain and given[2].flags.writeable
    way = draw(st.sampled_from(["__call__", "bind"]))

    def run(*arrays):
        getattr(kernel, way)(*arrays)
        return arrays[-1]

    want = 2.0 if name == "vector add" else 7.0

    def computed(result):
        return way == "bind" or (np.asarray(result) == want).all()

    expected = computed if plain else Maybe(computed)
    tally.judge(run, {"*": given}, expected, words=("A", "B", "C", "arrays"))


def build(tally, draw):
    """`build`, `loop_nest`, `traffic`, `report` and `emulate` of what is a schedule, or none."""
    good = schedules.cpu_vector_add(8)
    bound = schedules.one_thread_each(64, 32)
    things = [good, bound, good.mod, good.mod["main"], tvm.IRModule(), d2ltvm.vector_add(8),
              d2ltvm.schedule(d2ltvm.matmul(3, 4, 5)), te.placeholder((3,)), str(good.mod),
              schedules.one_thread_each]  # fmt: skip
    sch = draw(mostly(st.sampled_from(things)))
    target = draw(mostly(
        st.sampled_from(["llvm", "llvm", "sm_80", "sm_90", "sm_9", "sm_80x", "cuda", "rocm", "gpu",
                         tvm.target.Target("llvm"), "opencl -device=x"]),
    ))  # fmt: skip
    name = draw(st.sampled_from(["build", "loop_nest", "traffic", "sectors", "as_target"]))
    is_schedule = isinstance(sch, tvm.s_tir.Schedule | tvm.IRModule | tvm.tirx.PrimFunc)
    is_schedule = is_schedule and sch is not things[4]
    if name == "build":
        if isinstance(target, str) and target == "opencl":
            return
        tally.judge(d2ltvm.build, {"sch": sch, "target": target},
                    EITHER if is_schedule else REFUSED, words=("loop",))  # fmt: skip
    elif name == "as_target":
        named = target is None or isinstance(target, tvm.target.Target)
        named = named or (isinstance(target, str) and target in ("llvm", "sm_80", "sm_90", "cuda"))
        tally.judge(
            d2ltvm.system.as_target,
            {"target": target},
            EITHER if named else REFUSED,
            words=("GPU",),
        )
    else:
        tally.judge(getattr(d2ltvm, name), {"sch": sch}, EITHER if is_schedule else REFUSED,
                    (ValueError, TypeError, NotImplementedError), words=("loop",))  # fmt: skip


SOURCES = st.one_of(
    st.text(max_size=60), st.binary(max_size=40), ODD,
    st.sampled_from(["__global__", 'extern "C" __global__ void f() {}', "__kernel void f() {}",
                     "\x7fELF", b"\x7fELF", b"\x7fELF" + bytes(100), "FADD R1, R2 ;"]),
)  # fmt: skip


def texts(tally, draw):
    """Functions of source, of machine code and of its text."""
    from d2ltvm.compiler import cubin

    name, argument = draw(st.sampled_from([
        ("kernel_code", "source"), ("disassemble", "cubin"), ("resources", "cubin"),
        ("instructions", "sass"), ("compile_cubin", "arch"), ("compile_cubin", "source"),
    ]))  # fmt: skip
    value = draw(SOURCES)
    arguments = {argument: value}
    if name == "compile_cubin":
        if argument == "source" and isinstance(value, str):
            return  # compiled, which takes seconds
        arguments = {"source": "", **arguments} if argument == "arch" else {"source": value}
    kernel = isinstance(value, str) and value.startswith(("extern", "__kernel"))
    expected = {
        "kernel_code": EITHER if kernel else REFUSED,
        "instructions": (lambda r: sum(r.values()) >= 0) if isinstance(value, str) else REFUSED,
    }.get(name, REFUSED)
    if name == "instructions" and isinstance(value, str):
        expected = EITHER
    tally.judge(getattr(cubin, name, d2ltvm.kernel_code), arguments, expected,
                words=("source", "nvdisasm", "cuobjdump"))  # fmt: skip


def splits(tally, draw):
    """`split_axis` and `bind_thread`: lengths as asked, or a refusal."""
    few = st.lists(mostly(sizes(most=8), SMALL), max_size=3)
    factors = draw(mostly(st.one_of(st.lists(sizes(most=8), max_size=3), few)))
    n = draw(st.integers(1, 50))
    sch = d2ltvm.schedule(d2ltvm.vector_add(n))
    (axis,) = sch.get_loops(sch.get_sblock("C"))
    good = isinstance(factors, tuple | list) and all(map(whole, factors))
    good = good and math.prod(map(int, factors)) < 2**31

    def lengths(loops):
        found = [int(sch.get(loop).extent) for loop in loops]
        return found[1:] == list(factors) and found[0] == -(-n // math.prod(map(int, factors)))

    made = tally.judge(
        d2ltvm.split_axis, {"factors": factors, "sch": sch, "axis": axis},
        lengths if good else REFUSED,
    )  # fmt: skip
    if made is None:
        return
    tags = draw(mostly(
        st.lists(st.sampled_from(["blockIdx.x", "threadIdx.x", "threadIdx.y", "vthread.x", "warp",
                                  "threadIdx"]), min_size=len(made), max_size=len(made)),
    ))  # fmt: skip
    known = isinstance(tags, tuple | list) and len(tags) == len(made) and all(
        t in ("blockIdx.x", "threadIdx.x", "threadIdx.y", "vthread.x") for t in tags)  # fmt: skip
    tally.judge(d2ltvm.bind_thread, {"sch": sch, "axes": made, "tags": tags},
                EITHER if known else REFUSED)  # fmt: skip


GROUPS = {
    vector: 8, copy: 2, broadcast: 6, product: 6, conv: 4, batched: 3, call: 8, build: 6, texts: 5,
    splits: 5,
}  # fmt: skip
