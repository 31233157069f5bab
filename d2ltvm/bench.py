"""Benchmarks: how fast a kernel is, and beside what.

`bench_together` times several contenders for one computation in turns, under one clock. The
functions with d2l-tvm's names, `bench_vector_add_tvm` and its like, time one contender and return
GFLOPS.
"""

import numpy as np

from d2ltvm import baselines, batched
from d2ltvm.checking import WrongResultError, check
from d2ltvm.clock import as_clocks, legends, time_together
from d2ltvm.convolution import conv_gflop, conv_reference
from d2ltvm.data import get_abc, get_bcast_data, get_conv_batch, get_conv_data
from d2ltvm.devices import as_target
from d2ltvm.errors import MissingError
from d2ltvm.kernel import build


def bench_workload(workload):
    """Seconds for one run of a workload, timed for about a second in all.

    >>> d2ltvm.bench_workload(timeit.Timer("a + b", globals=globals()).timeit)
    1.3e-06

    Args:
        workload: function of a number of repeats that returns the seconds they took together.

    Returns:
        Seconds per repeat, a float.
    """
    workload(1)  # warm up
    once = workload(1)
    if once > 1:
        return once
    repeats = max(int(1 / max(once, 1e-9)), 5)
    return workload(repeats) / repeats


def bench_together(
    sizes, contenders, data=get_abc, work=None, unit="GFLOPS", clock="graph", xlabel="n"
):
    """Time several contenders for one computation at several sizes, in turns.

    >>> d2ltvm.bench_together([2**20, 2**24], {
    ...     "TVM": d2ltvm.tvm_add(vectorized), "PyTorch": d2ltvm.torch_add},
    ...     work=lambda n: n / 1e9)

    Args:
        sizes: the sizes, positive integers.
        contenders: functions by legend; each is called with a size and the arrays of `data`, and
            returns a function without arguments that does the work once.
        data: function of a size that returns the arrays.
        work: function of a size: how much of `unit` times one second a run is, such as the number
            of operations divided by 1e9 for GFLOPS. By default the result is the time itself.
        unit: the unit of the result; 'µs' where there is no `work`.
        clock: one or several, as for `d2ltvm.time_together`.
        xlabel: what the sizes are.

    Returns:
        A dict with `unit`, `x`, `series`, `spread` and `notes`, as `d2ltvm.measure` takes it. A
        contender whose library is missing is left out, with a line that says so, and named in
        `missing`.
    """
    sizes = [int(n) for n in sizes]
    contenders, missing = dict(contenders), []
    series, spread = {}, {}
    for n in sizes:
        runs = _prepare(contenders, n, data(n), missing)
        for legend, t in time_together(runs, clock).items():
            rates = [_rate(seconds, n, work) for seconds in (t.median, t.low, t.high)]
            series.setdefault(legend, []).append(rates[0])
            spread.setdefault(legend, []).append(sorted(rates[1:]))
    return {
        "unit": "µs" if work is None else unit,
        "x": {"label": xlabel, "values": sizes},
        "series": series,
        "spread": spread,
        "notes": method(clock),
        "missing": [legend for name in missing for legend in legends(name, clock)],
    }


def method(clock):
    """How contenders are timed by a clock, or by several, in words for a record's notes.

    >>> method("stream")
    'launches one by one between CUDA events, warm, L2 not flushed; in turns, median of rounds'
    """
    return f"{'; '.join(_METHOD[one] for one in as_clocks(clock))}; in turns, median of rounds"


_METHOD = {
    "graph": "CUDA graphs between CUDA events, warm, L2 not flushed",
    "burst": "CUDA graphs between CUDA events, a rest before each round, L2 not flushed",
    "sustained": "CUDA graphs between CUDA events, no rest, means of a second, L2 not flushed",
    "stream": "launches one by one between CUDA events, warm, L2 not flushed",
    "host": "host clock around many calls, warm",
}


def _prepare(contenders, n, arrays, missing):
    """The functions to time at size `n`; a contender whose library is missing leaves the race."""
    runs = {}
    for legend, prepare in list(contenders.items()):
        try:
            runs[legend] = prepare(n, *arrays)
        except MissingError as error:
            print(f"{legend} is left out: {error}")
            missing.append(legend)
            del contenders[legend]
    return runs


def _rate(seconds, n, work):
    """Work a second, or microseconds where no work is given; six digits, so that records read."""
    value = seconds * 1e6 if work is None else work(n) / seconds
    return float(f"{value:.6g}")


def tvm_add(func, target=None):
    """An addition scheduled by `func`, as a contender for `bench_together`.

    Args:
        func: function of a size that returns a schedule of an addition of two tensors.
        target: as for `d2ltvm.build`.

    Returns:
        A function of a size and three arrays. It builds the kernel, runs it once on poisoned
        output, compares every element with NumPy in float64, and returns the launch.
    """

    def prepare(n, a, b, c):
        kernel = build(func(n), target)
        _verify_add(kernel, a, b, c)
        return kernel.bind(a, b, c)

    return prepare


def tvm_copy(func, target=None):
    """A copy scheduled by `func`, as a contender for `bench_together`.

    Args:
        func: function of a size that returns a schedule of `vector_copy`.
        target: as for `d2ltvm.build`.

    Returns:
        A function of a size and two arrays, which builds the kernel, checks it and returns the
        launch.
    """

    def prepare(n, a, c):
        kernel = build(func(n), target)
        c.fill(np.nan)
        kernel(a, c)
        if not np.array_equal(a, c):
            raise WrongResultError("C is not A")
        return kernel.bind(a, c)

    return prepare


def tvm_matmul(func, target=None):
    """A matrix product scheduled by `func`, as a contender for `bench_together`.

    Args:
        func: function of n, m and l that returns a schedule of `matmul(n, m, l)`.
        target: as for `d2ltvm.build`.

    Returns:
        A function of a size and three square arrays. It builds the kernel, runs it once on poisoned
        output, compares rows and columns all over the result with NumPy in float64, and returns
        the launch.
    """

    def prepare(n, a, b, c):
        kernel = build(func(n, n, n), target)
        _verify_matmul(kernel, a, b, c)
        return kernel.bind(a, b, c)

    return prepare


def tvm_conv(func, p=0, s=1, target=None):
    """A convolution scheduled by `func`, as a contender for `bench_together`.

    Args:
        func: function of oc, ic, n, k, p and s that returns a schedule of a convolution.
        p: zeros on each side of the image.
        s: stride.
        target: as for `d2ltvm.build`.

    Returns:
        A function of a size, which it has no use for, and the arrays of `get_conv_data`. It builds
        the kernel, checks every element, and returns the launch.
    """

    def prepare(n, data, weight, out):
        oc, ic, k, _ = weight.shape
        kernel = build(func(oc, ic, data.shape[1], k, p, s), target)
        _verify_conv(kernel, data, weight, p, s)
        return kernel.bind(data, weight, out)

    return prepare


def check_conv(func, shapes, target=None):
    """Build a scheduled convolution at several shapes, and compare every element with NumPy.

    >>> d2ltvm.check_conv(default_sch, [(16, 8, 16, 3, 1, 1)])
    (16, 8, 16, 3, 1, 1): relative error under 1e-6: True

    Args:
        func: function of oc, ic, n, k, p and s that returns a schedule of a convolution.
        shapes: tuples of these six.
        target: as for `d2ltvm.build`.

    Raises:
        WrongResultError: an element is further from the reference than the 2 ic k^2 roundings that
            went into it explain.
    """
    for shape in shapes:
        oc, ic, n, k, p, s = shape
        data, weight, _ = get_conv_data(oc, ic, n, k, p, s)
        error = _verify_conv(build(func(*shape), target), data, weight, p, s)
        print(f"{shape}: relative error under 1e-6: {error < 1e-6}")


def _verify_conv(kernel, data, weight, p, s):
    terms = 2 * weight[0].size  # a multiplication and an addition for each
    return check(kernel, (data, weight), lambda x, w: conv_reference(x, w, p, s), terms)


def bench_convs(channels, funcs, n=64, k=3):
    """Time scheduled convolutions beside cuDNN's on the GPU, in turns.

    >>> d2ltvm.measure("conv/steps", lambda: d2ltvm.bench_convs([64], {"default": default_sch}))

    Args:
        channels: numbers of channels, in and out alike.
        funcs: functions of oc, ic, n, k, p and s that return a schedule, by legend.
        n: height and width of the image, which are kept.
        k: height and width of the kernels.

    Returns:
        What `bench_together` returns, in µs.
    """
    p = (k - 1) // 2
    ours = {legend: tvm_conv(func, p, target="cuda") for legend, func in funcs.items()}
    contenders = {"cuDNN": baselines.torch_conv(p), **ours}
    return bench_together(
        channels, contenders, lambda c: get_conv_data(c, c, n, k, p), xlabel="channels"
    )


def bench_batched(funcs, shape, batches=None, layout="hwcn"):
    """Time scheduled convolutions of a batch beside cuDNN's on the GPU, in turns.

    >>> d2ltvm.bench_batched({"tutorial": hwcn_blocks}, (256, 512, 256, 14, 3, 1, 1))

    Args:
        funcs: functions of batch, oc, ic, n, k, p and s that return a schedule, by legend.
        shape: these seven.
        batches: sizes of the batch in place of the shape's own.
        layout: 'hwcn', in float32, or 'nhwcnc', in float16 with float32 sums.

    Returns:
        What `bench_together` returns, in µs.
    """
    batch, *sizes = shape
    dtype = {"hwcn": "float32", "nhwcnc": "float16"}[layout]
    contenders = {"cuDNN": baselines.torch_conv_batch(*sizes[-2:])}
    contenders.update(
        {legend: tvm_conv_batch(func, *sizes[-2:], layout) for legend, func in funcs.items()}
    )

    def data(batch):
        return get_conv_batch(batch, *sizes[:4], dtype)

    return bench_together(batches or [batch], contenders, data, xlabel="batch")


def tvm_conv_batch(func, p=0, s=1, layout="hwcn", target="cuda"):
    """A scheduled convolution of a batch, as a contender for `bench_together`.

    Args:
        func: function of batch, oc, ic, n, k, p and s that returns a schedule.
        p: zeros on each side of the image.
        s: stride.
        layout: 'hwcn' or 'nhwcnc'.
        target: as for `d2ltvm.build`.

    Returns:
        A function of a size, which it has no use for, and arrays in NCHW and OIHW. It builds the
        kernel, checks every fifth image, and returns the launch.
    """

    def prepare(n, images, weights):
        oc, ic, k, _ = weights.shape
        kernel = build(func(len(images), oc, ic, images.shape[2], k, p, s), target)
        change, back = _LAYOUTS[layout]
        inputs = [f(a) for f, a in zip(change, (images, weights), strict=True)]
        out = np.full(kernel.params[2].shape, np.nan, "float32")
        kernel(*inputs, out)
        _verify_batch(back(out)[::5], images[::5], weights, p, s)
        return kernel.bind(*inputs, out)

    return prepare


_LAYOUTS = {
    "hwcn": ((batched.to_hwcn, batched.to_hwcn), batched.from_hwcn),
    "nhwcnc": ((batched.to_nhwcnc, batched.to_hwioio), batched.from_nhwcnc),
}
_exact = {}  # references by what identifies them: each takes seconds


def _verify_batch(got, images, weights, p, s):
    key = (images.shape, weights.shape, images.dtype, p, s, float(images.sum()))
    if key not in _exact:
        exact = [a.astype("float64") for a in (images, weights)]
        _exact.clear()
        _exact[key] = [
            batched.conv_batch_reference(*f(exact), p, s) for f in (list, lambda a: map(np.abs, a))
        ]
    want, most = _exact[key]
    terms = 2 * weights[0].size
    if not np.all(np.abs(got - want) <= terms * np.finfo("float32").eps / 2 * most):
        raise WrongResultError(f"Y is not the convolution within {terms} roundings")


def bench_vector_add_tvm(func, sizes, target=None):
    """GFLOPS of a scheduled vector add.

    >>> d2ltvm.bench_vector_add_tvm(vectorized, [2**10, 2**20], "cuda")
    array([  0.8, 310.5])

    Args:
        func: function of a length that returns a schedule of `vector_add`.
        sizes: lengths.
        target: as for `d2ltvm.build`.

    Returns:
        GFLOPS at each size, an array of float64. One addition an element.
    """
    return _bench_one(sizes, tvm_add(func, target), get_abc, lambda n: n, _clock(target))


def bench_bcast_add_tvm(func, sizes, target=None):
    """GFLOPS of a scheduled broadcast add of (n, 1) and (n, n).

    Args:
        func: function of `n` that returns a schedule of `broadcast_add((n, 1), (n, n))`.
        sizes: values of `n`.
        target: as for `d2ltvm.build`.

    Returns:
        GFLOPS at each size, an array of float64. One addition an element of the result.
    """
    return _bench_one(sizes, tvm_add(func, target), bcast_data, lambda n: n * n, _clock(target))


def bench_vector_add_mxnet(sizes, ctx="cpu"):
    """GFLOPS of MXNet's vector add, on the CPU or, where there is such a build, on the GPU."""
    return _bench_one(sizes, baselines.mxnet_add(ctx), get_abc, lambda n: n, "host")


def bench_bcast_add_mxnet(sizes, ctx="cpu"):
    """GFLOPS of MXNet's broadcast add of (n, 1) and (n, n)."""
    return _bench_one(sizes, baselines.mxnet_add(ctx), bcast_data, lambda n: n * n, "host")


def bench_vector_add_torch(sizes):
    """GFLOPS of PyTorch's vector add on the GPU."""
    return _bench_one(sizes, baselines.torch_add, get_abc, lambda n: n, "graph")


def bench_bcast_add_torch(sizes):
    """GFLOPS of PyTorch's broadcast add of (n, 1) and (n, n) on the GPU."""
    return _bench_one(sizes, baselines.torch_add, bcast_data, lambda n: n * n, "graph")


def bench_matmul_tvm(func, sizes, target=None):
    """GFLOPS of a scheduled product of two n by n matrices.

    >>> d2ltvm.bench_matmul_tvm(matmul_coalesced, [512, 1024], "cuda")
    array([5120.4, 6480.1])

    Args:
        func: function of n, m and l that returns a schedule of `matmul(n, m, l)`.
        sizes: values of n, of which m and l are the same.
        target: as for `d2ltvm.build`.

    Returns:
        GFLOPS at each size, an array of float64. 2 n**3 operations.
    """
    return _bench_one(sizes, tvm_matmul(func, target), square, lambda n: 2 * n**3, _clock(target))


def bench_conv_tvm(func, sizes, target=None):
    """GFLOPS of a scheduled convolution with as many channels out as in, and the size kept.

    >>> d2ltvm.bench_conv_tvm(default_sch, [(64, 64, 3)], "cuda")
    array([240.3])

    Args:
        func: function of oc, ic, n, k, p and s that returns a schedule of a convolution.
        sizes: tuples (channels, height and width of the image, those of the kernel).
        target: as for `d2ltvm.build`.

    Returns:
        GFLOPS at each size, an array of float64.
    """
    return _bench_conv(sizes, lambda p: tvm_conv(func, p, target=target), _clock(target))


def bench_conv_mxnet(sizes, ctx="cpu"):
    """GFLOPS of MXNet's convolution; `sizes` as for `bench_conv_tvm`, `ctx` 'cpu' or 'gpu'."""
    return _bench_conv(sizes, lambda p: baselines.mxnet_conv(p, ctx=ctx), "host")


def bench_conv_torch(sizes):
    """GFLOPS of PyTorch's convolution on the GPU, cuDNN's; `sizes` as for `bench_conv_tvm`."""
    return _bench_conv(sizes, baselines.torch_conv, "graph")


def _bench_conv(sizes, contender, clock):
    gflops = []
    for c, n, k in sizes:
        p = (k - 1) // 2
        run = contender(p)(c, *get_conv_data(c, c, n, k, p))
        seconds = time_together({"": run}, clock)[""].median
        gflops.append(conv_gflop(c, c, n, k, p, 1) / seconds)
    return np.array(gflops)


def square(n):
    """Arrays for a product of square matrices, each of (n, n)."""
    return get_abc((n, n))


def bcast_data(n):
    """Arrays for the broadcast add of the book: (n, 1), (n, n) and a result of (n, n)."""
    return get_bcast_data((n, 1), (n, n))


def _bench_one(sizes, prepare, data, operations, clock):
    seconds = [
        time_together({"": prepare(n, *data(n))}, clock)[""].median for n in (int(n) for n in sizes)
    ]
    return np.array([operations(int(n)) for n in sizes]) / 1e9 / np.array(seconds)


def _clock(target):
    return "graph" if as_target(target).kind.name == "cuda" else "host"


def _verify_add(kernel, a, b, c, rows=2**22):
    """Every element against float64, a piece at a time so that large sizes fit into memory."""
    c.fill(np.nan)
    kernel(a, b, c)
    step = max(1, rows // max(1, c[0].size))
    for start in range(0, len(c), step):
        piece = slice(start, start + step)
        want = a[piece].astype("float64") + b[piece].astype("float64")
        if not np.all(np.abs(c[piece] - want) <= np.finfo(c.dtype).eps / 2 * np.abs(want)):
            raise WrongResultError(f"C[{start}:{start + step}] is not A + B, rounded once")


def _verify_matmul(kernel, a, b, c, lines=20, most=2**30):
    """The product against float64: all of it, or, where that takes long, some rows and columns.

    These are a prime number apart, so that every place inside a tile has its turn.
    """
    c.fill(np.nan)
    kernel(a, b, c)
    n, (l, m) = len(a), b.shape
    primes = (401, 199, 97, 47, 23, 11, 5, 3, 2)
    step = 1 if n * m * l <= most else next(p for p in primes if p * lines <= max(n, m) or p == 2)
    for got, x, y in (
        (c[::step], a[::step], b),
        (c[:, ::step], a, b[:, ::step]),
    ):
        want = x.astype("float64") @ y.astype("float64")
        # Higham, Accuracy and Stability of Numerical Algorithms, section 3.1: 2 l roundings.
        bound = 2 * l * np.finfo(c.dtype).eps / 2 * (abs(x) @ abs(y))
        if not np.all(np.abs(got - want) <= bound):
            raise WrongResultError(f"C is not A B within {2 * l} roundings, at n = {n}, m = {m}")
