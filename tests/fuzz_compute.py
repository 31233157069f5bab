"""Fuzz of `d2ltvm.compute`: definitions, data and references, against NumPy and plain loops."""

import itertools
import math

import numpy as np
from fuzzing import ODD, REFUSED, all_whole, mostly, sizes, spoiled, whole
from hypothesis import strategies as st
from tvm import te

import d2ltvm
from d2ltvm.compute import ops

DTYPES = st.sampled_from(ops.DTYPES)
SHAPES = st.lists(st.sampled_from([1, 1, 2, 3, 5]), min_size=1, max_size=4).map(tuple)
CONV = {"oc": sizes(most=6), "ic": sizes(most=6), "n": sizes(3, 9), "k": sizes(most=3)}
BORDER = {"p": sizes(0, 3), "s": sizes(most=3)}


def shape_of(tensor):
    return tuple(int(size) for size in tensor.shape)


def positions(n, k, p, s, most=2**31 - 1):
    """Places of a kernel on an image, by counting them; None where it is no convolution."""
    if not (whole(n, 1, most) and whole(k, 1, most) and whole(p, 0, most) and whole(s, 1, most)):
        return None
    most, step = int(n) + 2 * int(p) - int(k), int(s)
    if most > 2**60:
        return most // step + 1  # too many to count
    return len(range(0, most + 1, step)) or None


def is_shape(shape):
    several = isinstance(shape, tuple | list) or (isinstance(shape, np.ndarray) and shape.ndim)
    sizes = list(shape) if several else [shape]
    return bool(sizes) and all(map(whole, sizes)) and math.prod(map(int, sizes)) < 2**31


def out_size(tally, draw):
    arguments = spoiled(draw, {"n": sizes(), "k": sizes(most=9), **BORDER})
    count = positions(**arguments, most=math.inf)
    tally.judge(
        d2ltvm.conv_out_size, arguments,
        REFUSED if count is None else lambda r: type(r) is int and r == count,
    )  # fmt: skip


def gflop(tally, draw):
    arguments = spoiled(draw, {**CONV, "n": sizes(3, 600), **BORDER})
    oc, ic, n, k, p, s = arguments.values()
    channels = whole(oc, 1, math.inf) and whole(ic, 1, math.inf)
    on = positions(n, k, p, s, math.inf) if channels else None
    operations = on and 2 * int(oc) * int(ic) * on**2 * int(k) ** 2
    tally.judge(
        d2ltvm.conv_gflop, arguments,
        REFUSED if on is None else lambda r: math.isclose(r * 1e9, operations, rel_tol=1e-12),
    )  # fmt: skip


def broadcast(tally, draw):
    arguments = spoiled(draw, {"shape1": SHAPES, "shape2": SHAPES})
    function = draw(
        st.sampled_from([ops.broadcast_shape, d2ltvm.broadcast_add, d2ltvm.get_bcast_data])
    )
    shapes = [np.atleast_1d(s) if whole(s) else s for s in arguments.values()]
    expected = REFUSED
    if all(map(is_shape, shapes)):
        try:
            result = np.broadcast_shapes(*(tuple(map(int, s)) for s in shapes))
        except ValueError:
            result = None
        if result is not None and math.prod(result) < 2**31:
            wanted = [*(tuple(map(int, s)) for s in shapes), result]

            def expected(r):
                return (
                    r == result
                    if function is ops.broadcast_shape
                    else ([shape_of(t) for t in r] == wanted)
                )

    tally.judge(function, arguments, expected)


def definitions(tally, draw):
    """Vector and matrix definitions: names, shapes, types; some are run by TVM's own code."""
    name = draw(st.sampled_from(["vector_copy", "vector_add", "matmul"]))
    names = ("n", "m", "l") if name == "matmul" else ("n",)
    arguments = spoiled(draw, {**{n: sizes() for n in names}, "dtype": DTYPES})
    dtype, given = arguments["dtype"], [arguments[n] for n in names]
    good = all(map(whole, given)) and isinstance(dtype, str) and dtype in ops.DTYPES
    good = good and all(int(a) * int(b) < 2**31 for a, b in itertools.combinations(given, 2))
    shapes = {1: [(0,)] * 3, 3: [(0, 2), (2, 1), (0, 1)]}[len(names)]
    shapes = shapes[: 2 if name == "vector_copy" else 3]

    def expected(tensors):
        assert all(str(t.dtype) == dtype for t in tensors)
        return [shape_of(t) for t in tensors] == [
            tuple(int(given[k]) for k in shape) for shape in shapes
        ]

    tensors = tally.judge(getattr(d2ltvm.compute, name), arguments, expected if good else REFUSED)
    if tensors and max(map(int, given)) <= 40 and draw(st.integers(0, 3)) == 0:
        rng = np.random.default_rng(0)
        inputs = [rng.integers(-9, 9, shape_of(t)).astype(dtype) for t in tensors[:-1]]
        run = {"vector_copy": np.copy, "vector_add": np.add, "matmul": np.matmul}[name]
        wanted = run(*(x.astype("int64") if dtype != "float16" else x for x in inputs))
        computed(tally, tensors, inputs, wanted.astype(dtype))


def computed(tally, tensors, inputs, wanted):
    """Builds a definition for the CPU without any schedule, and runs it."""

    def as_defined():
        found = np.full_like(wanted, 77)
        d2ltvm.build(d2ltvm.schedule(list(tensors)), "llvm")(*inputs, found)
        return found

    tally.judge(
        as_defined, {},
        lambda r: np.array_equal(r, wanted, equal_nan=True),
    )  # fmt: skip


def direct(x, w, p, s):
    """A convolution by its definition, pixel by pixel: x (ic, n, m), p and s for rows, columns."""
    (ph, pw), (sh, sw) = p, s
    x = np.pad(x, ((0, 0), (ph, ph), (pw, pw)))
    kh, kw = w.shape[2:]
    rows = range(0, x.shape[1] - kh + 1, sh)
    columns = range(0, x.shape[2] - kw + 1, sw)
    out = [[[(x[:, i : i + kh, j : j + kw] * o).sum() for j in columns] for i in rows] for o in w]
    return np.array(out)


def conv(tally, draw):
    """Definitions of one image's convolution, by their shapes, and run."""
    name = draw(st.sampled_from(["conv", "conv_in_tiles", "conv_pack"]))
    valid = {
        "oc": sizes(most=6), "ic": sizes(most=6), "nh": sizes(3, 8), "nw": sizes(3, 8),
        "kh": sizes(most=3), "kw": sizes(most=3), "ph": sizes(0, 2), "pw": sizes(0, 2),
    }  # fmt: skip
    if name == "conv_pack":
        valid |= {"toc": sizes(most=2), "tic": sizes(most=2)}
    valid |= {"sh": sizes(most=3), "sw": sizes(most=3)}
    if name == "conv_in_tiles":
        valid["tile"] = st.tuples(*[sizes(most=4)] * 4)
    arguments = spoiled(draw, valid)
    oc, ic, nh, nw, kh, kw, ph, pw = list(arguments.values())[:8]
    sh, sw = arguments["sh"], arguments["sw"]
    oh, ow = positions(nh, kh, ph, sh), positions(nw, kw, pw, sw)
    good = whole(oc) and whole(ic) and oh and ow
    if name == "conv_in_tiles":
        tile = arguments["tile"]
        good = good and isinstance(tile, tuple | list) and len(tile) == 4 and all(map(whole, tile))
    if name == "conv_pack":
        for block, channels in (("toc", oc), ("tic", ic)):
            good = good and whole(arguments[block]) and int(channels) % int(arguments[block]) == 0
    numbers = [*arguments.values()][:-1] if name == "conv_in_tiles" else arguments.values()
    large = good and max([*map(int, numbers), *(tile if name == "conv_in_tiles" else ())]) > 2**10
    if large:
        return

    def expected(r):
        return [shape_of(t) for t in r[:3]] == [(ic, nh, nw), (oc, ic, kh, kw), (oc, oh, ow)]

    tensors = tally.judge(getattr(d2ltvm.compute, name), arguments, expected if good else REFUSED)
    if tensors and draw(st.integers(0, 3)) == 0:
        rng = np.random.default_rng(1)
        x, w = (rng.integers(-4, 5, shape_of(t)).astype("float32") for t in tensors[:2])
        wanted = direct(x, w, (int(ph), int(pw)), (int(sh), int(sw))).astype("float32")
        computed(tally, tensors[:3], (x, w), wanted)


def conv_batch(tally, draw):
    """Definitions of a batch's convolution, run on what the functions that pack make of NCHW."""
    name = draw(st.sampled_from(["conv_hwcn", "conv_nhwcnc"]))
    valid = {"batch": sizes(most=4), **CONV, **BORDER}
    if name == "conv_nhwcnc":
        valid |= {"block": sizes(most=2), "dtype": st.just("float32")}
    arguments = spoiled(draw, valid)
    batch, oc, ic, n, k, p, s = list(arguments.values())[:7]
    block = arguments.get("block", 1)
    good = whole(batch) and whole(oc) and whole(ic) and positions(n, k, p, s) and whole(block)
    good = good and not any(int(c) % int(block) for c in (batch, oc, ic))
    good = good and arguments.get("dtype", "float32") in ("float32",)
    if good and max(map(int, (batch, oc, ic, n, k, p, s, block))) > 2**10:
        return

    def expected(r):
        o, pixels = positions(n, k, p, s), shape_of(r[2])
        return math.prod(pixels) == int(batch) * int(oc) * o * o

    tensors = tally.judge(getattr(d2ltvm.compute, name), arguments, expected if good else REFUSED)
    if tensors and draw(st.integers(0, 3)) == 0:
        rng = np.random.default_rng(2)
        n, k, p, s, b = map(int, (n, k, p, s, block))
        x = rng.integers(-4, 5, (batch, ic, n, n)).astype("float32")
        w = rng.integers(-4, 5, (oc, ic, k, k)).astype("float32")
        want = np.stack([direct(image, w, (p, p), (s, s)) for image in x]).astype("float32")
        if name == "conv_hwcn":
            inputs, want = (
                [d2ltvm.compute.to_hwcn(x), d2ltvm.compute.to_hwcn(w)],
                want.transpose(2, 3, 1, 0),
            )
        else:
            inputs = [d2ltvm.compute.to_nhwcnc(x, b), d2ltvm.compute.to_hwioio(w, b)]
            want = d2ltvm.compute.to_nhwcnc(want, b)
        computed(tally, tensors[:3], inputs, np.ascontiguousarray(want))


def border(tally, draw):
    tensor = st.sampled_from(
        [te.placeholder(shape, dtype, name="X") for shape in ((4,), (2, 3), (2, 1, 4), (1, 2, 2, 2))
         for dtype in ("float32", "int8")]
    )  # fmt: skip
    value = st.sampled_from([0, 1, -1.5, 100])
    arguments = spoiled(
        draw, {"X": tensor, "ph": sizes(0, 3), "pw": sizes(0, 3), "val": value}, most=1
    )
    X, ph, pw, val = arguments.values()
    good = isinstance(X, te.Tensor) and len(X.shape) >= 2 and whole(ph, 0) and whole(pw, 0)
    number = isinstance(val, int | float | np.integer | np.floating)
    good = good and number and not isinstance(val, bool)
    good = good and (X.dtype == "float32" or (float(val).is_integer() and -128 <= val < 128))
    # A float's border may be infinite, as that of a maximum is; but not by overflow.
    good = good and not (math.isfinite(val) and abs(val) > 3e38)
    if good and max(ph, pw) > 2**20:
        return
    tensors = tally.judge(
        d2ltvm.padding, arguments,
        (lambda r: shape_of(r)[-2:] == (shape_of(X)[-2] + 2 * ph, shape_of(X)[-1] + 2 * pw))
        if good else REFUSED,
    )  # fmt: skip
    if tensors is not None and draw(st.integers(0, 3)) == 0:
        x = np.arange(math.prod(shape_of(X))).reshape(shape_of(X)).astype(str(X.dtype))
        around = [(0, 0)] * (x.ndim - 2) + [(int(ph),) * 2, (int(pw),) * 2]
        wanted = np.pad(x, around, constant_values=np.asarray(val, x.dtype))
        computed(tally, (X, tensors), (x,), wanted)


def data(tally, draw):
    """Data: shapes, float32, the same twice, and NaN where a result is to stand."""
    name = draw(st.sampled_from(["get_abc", "get_matmul_data", "get_conv_data", "get_conv_batch",
                                 "square_matrices", "bcast_data"]))  # fmt: skip
    valid = {
        "get_abc": {"shape": st.one_of(sizes(), SHAPES)},
        "get_matmul_data": {"n": sizes(), "m": sizes(), "l": sizes()},
        "get_conv_data": {**CONV, **BORDER},
        "get_conv_batch": {"batch": sizes(most=4), **CONV, "dtype": st.just("float16")},
        "square_matrices": {"n": sizes()}, "bcast_data": {"n": sizes()},
    }[name]  # fmt: skip
    arguments = spoiled(draw, valid, odd=ODD.filter(lambda v: not whole(v, 2**15)))
    a = arguments
    if name == "get_abc":
        good = is_shape(a["shape"])
        shape = good and tuple(map(int, np.atleast_1d(a["shape"])))
        wanted = [shape] * 3
    elif name == "get_conv_data":
        good = (
            whole(a["oc"])
            and whole(a["ic"])
            and positions(a["n"], a["k"], a["p"], a["s"], math.inf)
        )
        wanted = [(a["ic"], a["n"], a["n"]), (a["oc"], a["ic"], a["k"], a["k"]),
                  (a["oc"], good, good)]  # fmt: skip
    elif name == "get_conv_batch":
        good = all_whole({k: v for k, v in a.items() if k != "dtype"})
        good = good and isinstance(a["dtype"], str) and a["dtype"] in ops.DTYPES
        wanted = [(a["batch"], a["ic"], a["n"], a["n"]), (a["oc"], a["ic"], a["k"], a["k"])]
    else:
        good = all_whole(a)
        n, m, l = a.get("n"), a.get("m", a.get("n")), a.get("l", a.get("n"))
        wanted = [(n, 1), (n, n), (n, n)] if name == "bcast_data" else [(n, l), (l, m), (n, m)]

    good = good and all(math.prod(map(int, shape)) < 2**31 for shape in wanted)

    def expected(arrays):
        again = getattr(d2ltvm.compute, name)(**a)
        assert [x.shape for x in arrays] == [tuple(map(int, s)) for s in wanted]
        assert all(np.array_equal(x, y, equal_nan=True) for x, y in zip(arrays, again, strict=True))
        if name != "get_conv_batch":
            assert all(x.dtype == "float32" for x in arrays) and np.isnan(arrays[2]).all()
        return np.isfinite(arrays[0]).all() and np.isfinite(arrays[1]).all()

    tally.judge(getattr(d2ltvm.compute, name), a, expected if good else REFUSED)


ARRAYS = st.sampled_from(
    [np.arange(math.prod(shape)).reshape(shape).astype("float32") % 7
     for shape in ((2, 5, 4), (3, 2, 2, 3), (3, 2, 1, 1), (2, 3, 6, 6), (1, 2, 3, 3), (4, 4),
                   (0, 5, 5), (2, 2, 0, 3), (1, 2, 3, 2, 2, 2), (3, 2, 9, 9))]
)  # fmt: skip


def reference(tally, draw):
    """conv_reference and conv_batch_reference against a convolution by its definition."""
    batched = draw(st.booleans())
    names = ("images", "kernels") if batched else ("x", "k")
    pair = sizes(0, 2) if batched else st.one_of(sizes(0, 2), st.tuples(sizes(0, 2), sizes(0, 2)))
    step = sizes(most=3) if batched else st.one_of(sizes(most=3), st.tuples(*[sizes(most=3)] * 2))
    channels, size, k = draw(st.integers(1, 3)), draw(st.integers(2, 6)), draw(st.integers(1, 3))
    rng = np.random.default_rng(3)
    x = rng.integers(-4, 5, (*((2,) if batched else ()), channels, size, size + 1)).astype(
        "float32"
    )
    w = rng.integers(-4, 5, (2, channels, k, draw(st.integers(1, 3)))).astype("float32")
    if draw(st.booleans()):
        x = x[..., ::-1]  # not contiguous
    odd = st.one_of(ODD, ARRAYS)
    arguments = spoiled(
        draw, {names[0]: st.just(x), names[1]: st.just(w), "p": pair, "s": step}, odd=odd
    )
    x, w, p, s = arguments.values()
    pairs = []
    for value, least in ((p, 0), (s, 1)):
        two = (
            tuple(value)
            if isinstance(value, tuple | list | np.ndarray) and np.ndim(value) == 1
            else (value,) * 2
        )
        pairs.append(two if len(two) == 2 and all(whole(v, least, math.inf) for v in two) else None)
    good = isinstance(x, np.ndarray) and isinstance(w, np.ndarray) and all(pairs)
    good = good and (x.ndim, w.ndim) == (3 + batched, 4) and x.shape[-3] == w.shape[1]
    good = good and x.dtype.kind in "fiu" and w.dtype.kind in "fiu"
    good = (
        good
        and all(x.shape)
        and all(w.shape)
        and all(
            positions(n, k, a, b, math.inf)
            for n, k, a, b in zip(x.shape[-2:], w.shape[2:], *pairs, strict=True)
        )
    )
    if good and 50 < max(*pairs[0]) < 2**31:
        return  # memory
    good = good and max(*pairs[0]) < 2**31

    def expected(r):
        two = [tuple(map(int, pair)) for pair in pairs]
        want = np.stack([direct(i, w, *two) for i in x]) if batched else direct(x, w, *two)
        return r.shape == want.shape and np.array_equal(r, want)

    function = d2ltvm.compute.conv_batch_reference if batched else d2ltvm.conv_reference
    tally.judge(function, arguments, expected if good else REFUSED)


def layout(tally, draw):
    """Packing, element by element, and back."""
    blocked = ("to_nhwcnc", "to_hwioio")
    name = draw(st.sampled_from(["to_hwcn", "from_hwcn", *blocked, "from_nhwcnc"]))
    named = {"to_nhwcnc": "images", "to_hwioio": "kernels", "from_nhwcnc": "blocks"}
    array = named.get(name, "array")
    valid = {array: ARRAYS, **({"block": sizes(most=3)} if name in blocked else {})}
    arguments = spoiled(draw, valid, most=1)
    x, block = arguments[array], arguments.get("block", 1)
    good = isinstance(x, np.ndarray) and x.ndim == (6 if name == "from_nhwcnc" else 4)
    good = (
        good
        and whole(block)
        and (
            name[:4] == "from" or name == "to_hwcn" or not any(n % int(block) for n in x.shape[:2])
        )
    )

    def expected(r):
        b = int(block)
        for at in np.ndindex(x.shape):
            if name in ("to_hwcn", "from_hwcn"):
                a, c, d, e = at
                there = (d, e, c, a) if name == "to_hwcn" else (e, d, a, c)
            elif name == "to_nhwcnc":
                i, c, y, z = at
                there = (i // b, y, z, c // b, i % b, c % b)
            elif name == "to_hwioio":
                o, c, y, z = at
                there = (y, z, c // b, o // b, c % b, o % b)
            else:
                i, y, z, c, n, m = at
                there = (i * x.shape[4] + n, c * x.shape[5] + m, y, z)
            assert r[there] == x[at]
        return r.size == x.size

    tally.judge(getattr(d2ltvm.compute, name), arguments, expected if good else REFUSED)


def start(tally, draw):
    """`schedule`: of tensors, and of what is none."""
    A, B, C = d2ltvm.vector_add(5)
    tensors = draw(mostly(
        st.sampled_from([(A, B, C), [A, B, C], (A, C), (C,), (C, A, B), (A, B), (A, A, C), (A,), A,
                         iter((A, B, C)), (A, B, None), {"A": A}, ((A, B), C)]),
    ))  # fmt: skip
    good = isinstance(tensors, tuple | list) and bool(tensors)
    good = good and all(isinstance(t, te.Tensor) for t in tensors)
    good = good and len(tensors) == 3 and {*tensors} == {A, B, C}
    tally.judge(
        d2ltvm.schedule, {"tensors": tensors},
        (lambda r: [b.name for b in r.mod["main"].params] == [t.op.name for t in tensors])
        if good else REFUSED,
    )  # fmt: skip


GROUPS = {
    out_size: 6, gflop: 4, broadcast: 8, definitions: 8, conv: 8, conv_batch: 6, border: 4, data: 8,
    reference: 8, layout: 5, start: 3,
}  # fmt: skip
