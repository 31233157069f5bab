"""Fuzz of the operators and reductions: definitions, data, references and schedules, by loops."""

import itertools
import math

import numpy as np
from fuzz_compute import computed, is_shape, positions, shape_of
from fuzz_schedules import THREADS, executed
from fuzzing import EITHER, ODD, REFUSED, Maybe, sizes, spoiled, whole
from hypothesis import strategies as st

import d2ltvm
from d2ltvm import compute, schedules
from d2ltvm.bench import rows

FLOATS = st.sampled_from(["float16", "float32"])
KIND = st.sampled_from(["max", "avg"])
WINDOW = {"n": sizes(3, 8), "k": sizes(most=3), "p": sizes(0, 2), "s": sizes(most=3)}
SIDES = {"nh": sizes(3, 8), "nw": sizes(3, 8), "kh": sizes(most=3), "kw": sizes(most=3),
         "ph": sizes(0, 2), "pw": sizes(0, 2),
         "sh": sizes(most=3), "sw": sizes(most=3)}  # fmt: skip
SMALL = ODD.filter(lambda v: not whole(v, 2**11))
LARGEST = 2**10  # above, a definition is not drawn: it would be right, and take long


def is_float(dtype):
    return isinstance(dtype, str) and dtype in ("float16", "float32")


def is_kind(pool_type):
    return isinstance(pool_type, str) and pool_type in ("max", "avg")


def is_between(value, low, high):
    number = isinstance(value, int | float | np.integer | np.floating)
    return number and not isinstance(value, bool) and low < value < high


def windows(x, kh, kw, sh, sw):
    """The numbers under each window of images (…, height, width), by loops."""
    high, wide = (
        (n - k) // s + 1 for n, k, s in zip(x.shape[-2:], (kh, kw), (sh, sw), strict=True)
    )
    found = np.empty((*x.shape[:-2], high, wide, kh, kw), x.dtype)
    for i, j in itertools.product(range(high), range(wide)):
        found[..., i, j, :, :] = x[..., i * sh : i * sh + kh, j * sw : j * sw + kw]
    return found


def bordered(x, ph, pw, value):
    around = [(0, 0)] * (x.ndim - 2) + [(ph, ph), (pw, pw)]
    return np.pad(x, around, constant_values=value)


def pooled(kind, x, kh, kw, ph, pw, sh, sw):
    under = windows(bordered(x, ph, pw, -np.inf if kind == "max" else 0), kh, kw, sh, sw)
    return under.max((-2, -1)) if kind == "max" else under.mean((-2, -1))


def depthwise(x, w, ph, pw, sh, sw):
    under = windows(bordered(x, ph, pw, 0), *w.shape[-2:], sh, sw)
    return (under * w[:, 0, None, None]).sum((-2, -1))


def normed(x, mean, var, gamma, beta, eps):
    return (x - mean) / np.sqrt(var + eps) * gamma + beta


def numbers(shape, seed=0):
    return np.random.default_rng(seed).integers(-8, 9, shape).astype("float32")


def close(run, want, terms=64):
    """Builds nothing: what `computed` compares exactly, where numbers are whole; else nearly."""
    return np.allclose(run, want, rtol=2e-6 * terms, atol=1e-6 * terms)


def windows_defined(tally, draw):
    """`depthwise_conv` and `pool`, by their shapes, and run as they are."""
    name = draw(st.sampled_from(["depthwise_conv", "pool"]))
    first = {"ic": sizes(most=5)} if name[0] == "d" else {"pool_type": KIND, "c": sizes(most=5)}
    arguments = spoiled(draw, {**first, **SIDES})
    a = dict(arguments)
    pool_type, c = a.pop("pool_type", None), a.pop("ic" if name[0] == "d" else "c")
    out = [positions(*(a[x + y] for x in "nkps")) for y in "hw"]
    good = whole(c) and all(out) and (name[0] == "d" or is_kind(pool_type))
    if good and name == "pool":
        good = a["ph"] < a["kh"] and a["pw"] < a["kw"]
    if good and max(map(int, (c, *a.values()))) > LARGEST:
        return
    shape = good and (int(c), *out)
    tensors = tally.judge(
        getattr(d2ltvm, name), arguments,
        (lambda r: shape_of(r[2 if name[0] == "d" else 1]) == shape) if good else REFUSED,
    )  # fmt: skip
    if tensors and draw(st.integers(0, 3)) == 0:
        a = {key: int(value) for key, value in a.items()}
        x = numbers((int(c), a["nh"], a["nw"]))
        order = ("ph", "pw", "sh", "sw")
        if name == "pool":
            want = pooled(pool_type, x, a["kh"], a["kw"], *(a[key] for key in order))
            inputs, tensors = (x,), tensors[:2]
        else:
            w = numbers((int(c), 1, a["kh"], a["kw"]), 1)
            want, inputs, tensors = depthwise(x, w, *(a[k] for k in order)), (x, w), tensors[:3]
        computed(tally, tensors, inputs, want.astype("float32"))


NHWC = {
    "depthwise_nhwc": {"batch": sizes(most=3), "c": sizes(most=9), **WINDOW, "dtype": FLOATS},
    "pool_nhwc": {"pool_type": KIND, "batch": sizes(most=3), "c": sizes(most=9), **WINDOW,
                  "dtype": FLOATS},
    "global_pool_nhwc": {"batch": sizes(most=3), "c": sizes(most=9), "n": sizes(most=8),
                         "dtype": FLOATS},
}  # fmt: skip


def channels_last(tally, draw):
    """The same of batches with the channels last."""
    name = draw(st.sampled_from(sorted(NHWC)))
    a = spoiled(draw, NHWC[name])
    good = whole(a["batch"]) and whole(a["c"]) and is_float(a["dtype"])
    sized = (a["n"], a.get("k", 1), a.get("p", 0), a.get("s", 1))
    on = positions(*sized)
    good = good and on and (name != "pool_nhwc" or (is_kind(a["pool_type"]) and a["p"] < a["k"]))
    if good and max(map(int, (a["batch"], a["c"], *sized))) > LARGEST:
        return
    if good:
        batch, c, n, k, p, s = map(int, (a["batch"], a["c"], *sized))
        shape = (batch, c) if name[0] == "g" else (batch, on, on, c)
    tensors = tally.judge(
        getattr(compute, name), a, (lambda r: shape_of(r[-1]) == shape) if good else REFUSED
    )
    if tensors and a["dtype"] == "float32" and draw(st.integers(0, 3)) == 0:
        x = numbers((batch, n, n, c))
        images = x.transpose(0, 3, 1, 2)
        if name[0] == "g":
            return run_nearly(tally, tensors, (x,), images.mean((2, 3)))
        if name[0] == "d":
            w = numbers((k, k, c), 1)
            want = np.stack(
                [depthwise(i, w.transpose(2, 0, 1)[:, None], p, p, s, s) for i in images]
            )
            computed(tally, tensors, (x, w), np.ascontiguousarray(want.transpose(0, 2, 3, 1)))
        else:
            want = pooled(a["pool_type"], images, k, k, p, p, s, s)
            run_nearly(tally, tensors, (x,), want.transpose(0, 2, 3, 1))


def run_nearly(tally, tensors, inputs, want):
    """Runs a definition on the CPU; results are those of NumPy but for roundings."""

    def as_defined():
        found = np.full(want.shape, np.nan, "float32")
        d2ltvm.build(d2ltvm.schedule(list(tensors)), "llvm")(*inputs, found)
        return found

    tally.judge(as_defined, {}, lambda r: close(r, want))


def norms(tally, draw):
    """`batch_norm`, `batch_norm_nhwc` and `layer_norm`."""
    name = draw(st.sampled_from(["batch_norm", "batch_norm_nhwc", "layer_norm"]))
    eps = st.sampled_from([1e-5, 1e-3, 0.5])
    valid = {
        "batch_norm": {"c": sizes(most=5), "n": sizes(most=6), "eps": eps},
        "batch_norm_nhwc": {"pixels": sizes(most=9), "c": sizes(most=9), "eps": eps,
                            "relu": st.booleans(), "dtype": FLOATS},
        "layer_norm": {"rows": sizes(most=6), "cols": sizes(2, 20), "dtype": FLOATS, "eps": eps},
    }[name]  # fmt: skip
    a = spoiled(draw, valid)
    counts = [v for k, v in a.items() if k not in ("eps", "relu", "dtype")]
    good = all(map(whole, counts)) and is_float(a.get("dtype", "float32"))
    good = good and is_between(a["eps"], 0, math.inf if name == "layer_norm" else 1)
    good = good and isinstance(a.get("relu", True), bool | np.bool_)
    if good and max(map(int, counts)) > LARGEST:
        return
    first, second = map(int, counts) if good else (0, 0)
    shape = (first, second, second) if name == "batch_norm" else (first, second)
    function = getattr(compute, name)
    tensors = tally.judge(
        function, a, (lambda r: shape_of(r[-1]) == shape_of(r[0]) == shape) if good else REFUSED
    )
    if not tensors or a.get("dtype", "float32") != "float32" or draw(st.integers(0, 3)):
        return
    x, eps = numbers(shape), float(a["eps"])
    if name == "layer_norm":
        gamma, beta = numbers(second, 1), numbers(second, 2)
        mean, var = x.mean(1, keepdims=True), x.var(1, keepdims=True)
        return run_nearly(tally, tensors, (x, gamma, beta), normed(x, mean, var, gamma, beta, eps))
    vector = (first, 1, 1) if name == "batch_norm" else (second,)
    mean, var, gamma, beta = (numbers(vector, k) for k in range(1, 5))
    want = normed(x, mean, np.abs(var), gamma, beta, eps)
    if a.get("relu"):
        want = np.maximum(want, 0)
    scale = float(np.abs(gamma).max() / np.sqrt(eps)) + 1
    inputs = (x, mean, np.abs(var), gamma, beta)

    def as_defined():
        found = np.full(shape, np.nan, "float32")
        d2ltvm.build(d2ltvm.schedule(list(tensors)), "llvm")(*inputs, found)
        return found

    tally.judge(as_defined, {}, lambda r: np.allclose(r, want, rtol=1e-5, atol=1e-4 * scale))


def row_definitions(tally, draw):
    """`row_sum` and `softmax`."""
    name = draw(st.sampled_from(["row_sum", "softmax"]))
    valid = {"rows": sizes(most=6), "cols": sizes(most=20), "dtype": FLOATS}
    if name == "row_sum":
        valid["multiple"] = sizes(most=8)
    a = spoiled(draw, valid)
    counts = (a["rows"], a["cols"], a.get("multiple", 1))
    good = all(map(whole, counts)) and is_float(a["dtype"])
    if good and max(map(int, counts)) > LARGEST:
        return
    shape = good and (int(a["rows"]), int(a["cols"]))
    result = shape and (shape[:1] if name == "row_sum" else shape)
    tensors = tally.judge(
        getattr(d2ltvm, name), a, (lambda r: shape_of(r[-1]) == result) if good else REFUSED
    )
    if tensors and a["dtype"] == "float32" and draw(st.integers(0, 3)) == 0:
        x = numbers(shape)
        e = np.exp(x - x.max(1, keepdims=True))
        want = x.sum(1) if name == "row_sum" else e / e.sum(1, keepdims=True)
        run_nearly(tally, tensors, (x,), want)


DATA = {
    "get_conv_data": {"oc": sizes(most=5), "ic": sizes(most=5), **WINDOW,
                      "conv_type": st.sampled_from(["direct", "depthwise", "depthwise"])},
    "get_bn_data": {"c": sizes(most=5), "n": sizes(most=9)},
    "get_rows": {"rows": sizes(most=9), "cols": sizes(most=9), "dtype": FLOATS},
    "get_scales": {"cols": sizes(most=9), "dtype": FLOATS},
    "rows_data": {"kind": st.sampled_from(rows.KINDS), "rows": sizes(most=9),
                  "cols": sizes(most=9), "dtype": FLOATS},
    "rows_bytes": {"kind": st.sampled_from(rows.KINDS), "rows": sizes(most=9),
                   "cols": sizes(most=9), "dtype": FLOATS},
}  # fmt: skip


def shapes_of_data(name, a):
    """The shapes that data should have; None where an argument is wrong."""
    if not is_float(a.get("dtype", "float32")):
        return None
    if name == "get_conv_data":
        oc, ic, n, k, p, s, kind = a.values()
        on = positions(n, k, p, s)
        fine = whole(oc) and whole(ic) and on and isinstance(kind, str)
        if not fine or kind not in ("direct", "depthwise") or (kind[1] == "e" and oc != ic):
            return None
        return [(ic, n, n), (oc, ic if kind == "direct" else 1, k, k), (oc, on, on)]
    if not all(whole(a[key]) for key in ("c", "n", "rows", "cols") if key in a):
        return None
    if name == "get_bn_data":
        c, n = a.values()
        return [(c, n, n), *[(c, 1, 1)] * 4, (c, n, n)]
    if name == "get_scales":
        return [(a["cols"],)] * 2
    matrix = (a["rows"], a["cols"])
    if name == "get_rows":
        return [matrix]
    if not isinstance(a["kind"], str) or a["kind"] not in rows.KINDS:
        return None
    result = matrix[:1] if a["kind"] == "sum" else matrix
    return [matrix, *([matrix[1:]] * 2 if a["kind"] == "layer norm" else []), result]


def data(tally, draw):
    """Data of operators: shapes, the same twice, NaN where a result is to stand."""
    name = draw(st.sampled_from(sorted(DATA)))
    a = spoiled(draw, DATA[name], odd=SMALL)
    function = getattr(rows if name.startswith("rows") else compute, name)
    shapes = shapes_of_data(name, a)
    if shapes and not all(map(is_shape, shapes)):
        shapes = None
    if name == "rows_bytes":
        width = shapes and {"float16": 2, "float32": 4}[a["dtype"]]
        counts = shapes and [math.prod(map(int, s)) for s in shapes]
        return tally.judge(
            function, a,
            (lambda r: r == sum(counts[:-1]) * width
             + counts[-1] * (4 if a["kind"] == "sum" else width)) if shapes else REFUSED,
        )  # fmt: skip

    def expected(found):
        arrays = [found] if isinstance(found, np.ndarray) else found
        again = function(**a)
        again = [again] if isinstance(again, np.ndarray) else again
        assert [x.shape for x in arrays] == [tuple(map(int, s)) for s in shapes]
        assert all(np.array_equal(x, y, equal_nan=True) for x, y in zip(arrays, again, strict=True))
        to_write = name in ("get_conv_data", "get_bn_data", "rows_data")
        return not to_write or np.isnan(arrays[-1].astype("float64")).all()

    return tally.judge(function, a, expected if shapes else REFUSED)


def references(tally, draw):
    """The references of the operators against loops."""
    n, k, p, s = (draw(x) for x in (sizes(3, 6), sizes(most=3), sizes(0, 2), sizes(most=3)))
    c = draw(sizes(most=3))
    n, k, p, s, c = map(int, (n, k, p, s, c))
    p = min(p, k - 1)
    x, w, kind = numbers((c, n, n)), numbers((c, 1, k, k), 1), draw(KIND)
    batch = numbers((2, c, n, n), 3)
    last = np.ascontiguousarray(batch.transpose(0, 2, 3, 1))
    flat = np.ascontiguousarray(w[:, 0].transpose(1, 2, 0))
    name, arguments, want = draw(st.sampled_from([
        ("depthwise_reference", (x, w, p, s), depthwise(x, w, p, p, s, s)),
        ("pool_reference", (kind, x, k, p, s), pooled(kind, x, k, k, p, p, s, s)),
        ("depthwise_nhwc_reference", (last, flat, p, s),
         np.stack([depthwise(i, w, p, p, s, s) for i in batch]).transpose(0, 2, 3, 1)),
        ("pool_nhwc_reference", (kind, last, k, p, s),
         pooled(kind, batch, k, k, p, p, s, s).transpose(0, 2, 3, 1)),
    ]))  # fmt: skip
    from d2ltvm.compute import operators, operators_nhwc

    module = operators_nhwc if "nhwc" in name else operators
    tally.judge(getattr(module, name), {"*": arguments}, lambda r: np.allclose(r, want))


ROW = {"rows": sizes(most=5), "cols": sizes(most=40), "dtype": FLOATS}
LANES = st.sampled_from([1, 2, 4, 8])
HELD = {**ROW, "nt": st.sampled_from([32, 32, 64, 33]), "width": LANES, "each": sizes(most=2)}
IMAGE = {"c": sizes(most=4), "n": sizes(3, 7), "k": sizes(most=3), "p": sizes(0, 1),
         "s": sizes(most=2)}  # fmt: skip
STRIPS = {"batch": sizes(most=2), "c": st.sampled_from([1, 2, 4, 8]), "n": sizes(3, 6),
          "k": sizes(most=3), "p": sizes(0, 1), "s": sizes(most=2),
          "strip": st.tuples(sizes(most=2), sizes(most=2)),
          "block": st.tuples(sizes(most=2), sizes(most=2), sizes(most=2)), "width": LANES,
          "half": st.booleans()}  # fmt: skip
OPERATORS = {
    "sum_a_thread": {**ROW, "nt": THREADS},
    "sum_a_block": {**ROW, "nt": st.sampled_from([32, 64])},
    "sum_wide": {**ROW, "nt": st.sampled_from([32, 64]), "width": LANES},
    "sum_pieces": {**ROW, "pieces": sizes(most=4), "nt": st.sampled_from([32, 64]), "width": LANES},
    **{f"softmax_{k}": HELD for k in ("passes", "online", "held", "shared")},
    **{f"layer_norm_{k}": HELD for k in ("passes", "welford", "held", "shared")},
    "cpu_softmax": {**ROW, "chunks": sizes(most=3), "width": LANES},
    "cpu_layer_norm": {**ROW, "chunks": sizes(most=3), "width": LANES},
    "depthwise_rows": {**IMAGE, "rows": sizes(most=4), "nt": THREADS},
    "pool_rows": {**IMAGE, "rows": sizes(most=4), "nt": THREADS, "largest": st.booleans()},
    "batch_norm_flat": {"c": sizes(most=4), "n": sizes(most=6), "nt": THREADS},
    "cpu_depthwise": {**IMAGE, "rows": sizes(most=4), "lanes": LANES},
    "cpu_pool": {**IMAGE, "rows": sizes(most=4), "lanes": LANES, "largest": st.booleans()},
    "cpu_batch_norm": {"c": sizes(most=4), "n": sizes(most=6)},
    "depthwise_strips": STRIPS,
    "pool_strips": {**STRIPS, "largest": st.booleans()},
    "pool_global": {"batch": sizes(most=2), "c": st.sampled_from([1, 2, 8]), "n": sizes(most=4),
                    "groups": sizes(most=4), "width": LANES, "half": st.booleans()},
    "batch_norm_pixels": {"pixels": sizes(most=9), "c": st.sampled_from([1, 2, 8, 9]),
                          "each": sizes(most=3), "block": st.tuples(sizes(most=3), sizes(most=2)),
                          "width": LANES, "relu": st.booleans(), "half": st.booleans()},
}  # fmt: skip
FLAGS = ("largest", "half", "relu")


def fine(name, value):
    """Whether an argument is of the kind that a schedule takes."""
    if name in FLAGS:
        return isinstance(value, bool | np.bool_)
    if name == "dtype":
        return is_float(value)
    if name in ("strip", "block"):
        return isinstance(value, tuple | list) and bool(value) and all(map(whole, value))
    return whole(value, 0 if name == "p" else 1)


def computation(name, a):
    """Inputs of a schedule, what it should compute, and how far off it may be."""
    if "rows" in a and "cols" in a:
        kind = "layer norm" if "layer" in name else "softmax" if "softmax" in name else "sum"
        x = numbers((a["rows"], a["cols"])).astype(a["dtype"])
        wide = x.astype("float64")
        if kind == "sum":
            return (x,), wide.sum(1), 1e-4
        if kind == "softmax":
            e = np.exp(wide - wide.max(1, keepdims=True))
            return (x,), e / e.sum(1, keepdims=True), 2e-3 if a["dtype"] == "float16" else 1e-5
        gamma, beta = (numbers(a["cols"], k).astype(a["dtype"]) for k in (1, 2))
        mean, var = wide.mean(1, keepdims=True), wide.var(1, keepdims=True)
        want = normed(wide, mean, var, gamma, beta, 1e-5)
        # Of a row of equal numbers every rounding of the mean is divided by sqrt(eps).
        return (x, gamma, beta), want, 3e-2 if a["dtype"] == "float16" else 5e-3
    dtype = "float16" if a.get("half") else "float32"
    tolerance = 1e-2 if a.get("half") else 1e-4
    if "batch_norm" in name:
        shape = (a["pixels"], a["c"]) if "pixels" in a else (a["c"], a["n"], a["n"])
        x = numbers(shape).astype(dtype)
        vector = (a["c"],) if "pixels" in a else (a["c"], 1, 1)
        mean, var, gamma, beta = (numbers(vector, k) for k in range(1, 5))
        var = np.abs(var) + 0.5
        want = normed(x.astype("float64"), mean, var, gamma, beta, 1e-5)
        want = np.maximum(want, 0) if a.get("relu") else want
        return (x, mean, var, gamma, beta), want, 4 * tolerance * 8
    n, c = a["n"], a["c"]
    if name == "pool_global":
        x = numbers((a["batch"], n, n, c)).astype(dtype)
        return (x,), x.astype("float64").mean((1, 2)), tolerance
    k, p, s = a["k"], a["p"], a["s"]
    kind = "max" if a.get("largest") else "avg"
    if "batch" in a:
        x = numbers((a["batch"], n, n, c)).astype(dtype)
        images = x.transpose(0, 3, 1, 2).astype("float64")
        if "pool" in name:
            return (x,), pooled(kind, images, k, k, p, p, s, s).transpose(0, 2, 3, 1), tolerance
        w = numbers((k, k, c), 1).astype(dtype)
        kernels = w.transpose(2, 0, 1)[:, None].astype("float64")
        want = np.stack([depthwise(i, kernels, p, p, s, s) for i in images])
        return (x, w), want.transpose(0, 2, 3, 1), tolerance
    x = numbers((c, n, n))
    if "pool" in name:
        return (x,), pooled(kind, x.astype("float64"), k, k, p, p, s, s), tolerance
    w = numbers((c, 1, k, k), 1)
    return (x, w), depthwise(x.astype("float64"), w, p, p, s, s), tolerance


def scheduled_operators(tally, draw):
    """A schedule of an operator with drawn parameters: its result, or a refusal in one line."""
    name = draw(st.sampled_from(sorted(OPERATORS)))
    arguments = spoiled(draw, OPERATORS[name], odd=SMALL)
    good = all(fine(key, value) for key, value in arguments.items())
    if good and "k" in arguments:
        a = arguments
        good = bool(positions(*(a[key] for key in "nkps"))) and (
            "pool" not in name or a["p"] < a["k"]
        )
    made = tally.judge(getattr(schedules, name), arguments, EITHER if good else REFUSED)
    if made is None:
        return
    a = {k: int(v) if whole(v, 0) and k not in FLAGS else v for k, v in arguments.items()}
    sized = [v for k, v in a.items() if k in ("rows", "cols", "pixels", "n", "c")]
    if max(sized) > 64 or a.get("nt", 1) > 256:
        return
    inputs, want, tolerance = computation(name, a)
    out = (
        np.float32 if "sum" in name or not (a.get("half") or a.get("dtype") == "float16") else None
    )
    made = made if hasattr(made, "mod") else d2ltvm.compiler.lowering.as_module(made)

    def run():
        return executed_as(made, inputs, np.empty(want.shape, out or "float16"))

    run.__name__ = f"run {name}({arguments})"
    tally.judge(
        run, {},
        Maybe(lambda r: np.allclose(r, want, rtol=tolerance, atol=tolerance)),
        words=("main_kernel", "thread", *arguments),
    )  # fmt: skip


def executed_as(made, inputs, out):
    """As `executed`, of a module too."""
    if hasattr(made, "mod"):
        return executed(made, inputs, out)
    found = np.full_like(out, np.nan)
    d2ltvm.emulate(made, *inputs, found)
    return found


def plans(tally, draw):
    """`strip_block`, `depthwise_plan` and `in_accesses`: numbers that divide, or a refusal."""
    from d2ltvm.schedules import strips

    a = spoiled(draw, {"c": sizes(most=300), "n": sizes(3, 120), "k": sizes(most=7),
                       "p": sizes(0, 3), "s": sizes(most=2)})  # fmt: skip
    on = positions(*(a[key] for key in "nkps"), math.inf)
    good = on and whole(a["c"], 1, math.inf)
    if good and max(map(int, a.values())) > 2**14:
        return

    def expected(plan):
        (rows, columns), block, width = plan["strip"], plan["block"], plan["width"]
        assert on % rows == 0 and on % columns == 0 and int(a["c"]) % width == 0
        assert (on // rows) % block[0] == 0 and (on // columns) % block[1] == 0
        return (int(a["c"]) // width) % block[2] == 0 and math.prod(block) <= 256

    tally.judge(strips.depthwise_plan, a, expected if good else REFUSED)


def norm_plans(tally, draw):
    """`batch_norm_plan`: numbers that divide, or a refusal."""
    from d2ltvm.schedules import strips

    a = spoiled(draw, {"pixels": sizes(most=2**20), "c": sizes(most=300)})
    good = all(whole(a[key], 1, math.inf) for key in a)

    def expected(plan):
        (side, groups), each, width = plan["block"], plan["each"], plan["width"]
        assert int(a["pixels"]) % (each * side) == 0 and side * groups <= 256
        return int(a["c"]) % (groups * width) == 0

    tally.judge(strips.batch_norm_plan, a, expected if good else REFUSED)


GROUPS = {
    windows_defined: 4, channels_last: 4, norms: 4, row_definitions: 4, data: 5, references: 3,
    scheduled_operators: 3, plans: 2, norm_plans: 1,
}  # fmt: skip
