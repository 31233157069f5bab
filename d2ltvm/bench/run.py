"""Benchmarks: how fast a kernel is, and beside what.

`bench_together` times several contenders for one computation in turns, under one clock. The
functions with d2l-tvm's names, `bench_vector_add_tvm` and its like, time one contender and return
GFLOPS.
"""

from d2ltvm.bench.contenders import (
    _verify_conv,
    torch_conv,
    torch_conv_batch,
    tvm_conv,
    tvm_conv_batch,
)
from d2ltvm.bench.timing import as_clocks, legends, time_together
from d2ltvm.compiler.kernel import build
from d2ltvm.compute.data import get_abc, get_conv_batch, get_conv_data
from d2ltvm.errors import MissingError


def bench_together(
    sizes, contenders, data=get_abc, work=None, unit="GFLOPS", clock="graph", xlabel="n"
):
    """Time several contenders for one computation at several sizes, in turns.

    >>> d2ltvm.bench_together([2**20, 2**24], {
    ...     "TVM": d2ltvm.contenders.tvm_add(vectorized), "PyTorch": d2ltvm.contenders.torch_add},
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
    contenders = {"cuDNN": torch_conv(p), **ours}
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
    contenders = {"cuDNN": torch_conv_batch(*sizes[-2:])}
    contenders.update(
        {legend: tvm_conv_batch(func, *sizes[-2:], layout) for legend, func in funcs.items()}
    )

    def data(batch):
        return get_conv_batch(batch, *sizes[:4], dtype)

    return bench_together(batches or [batch], contenders, data, xlabel="batch")
