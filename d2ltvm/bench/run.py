"""Benchmarks: how fast a kernel is, and beside what.

`bench_together` times several contenders for one computation in turns, under one clock. Like
`bench_products`, and `bench_convs` and `bench_batched`, which are about convolutions, it returns a
`Measurement`.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from d2ltvm.bench.contenders import (
    Contender,
    Run,
    Schedule,
    mxnet_conv,
    numpy_matmul,
    torch_conv,
    torch_conv_batch,
    torch_matmul,
    tvm_conv,
    tvm_conv_batch,
    tvm_matmul,
    verify_conv,
)
from d2ltvm.bench.measurement import ClockNames, Measurement, legends, method
from d2ltvm.bench.timing import Timing, time_together
from d2ltvm.compiler.kernel import build
from d2ltvm.compute.data import get_abc, get_conv_batch, get_conv_data, square_matrices
from d2ltvm.errors import MissingError, shown
from d2ltvm.system.devices import as_target


def bench_together(
    sizes: Iterable[int],
    contenders: Mapping[str, Contender],
    data: Callable[[int], Sequence[Any]] = get_abc,
    work: Callable[[int], float] | None = None,
    unit: str = "GFLOPS",
    clock: ClockNames = "graph",
    xlabel: str = "n",
) -> Measurement:
    """Time several contenders for one computation at several sizes, in turns.

    >>> found = d2ltvm.bench_together([2**10, 2**14], {
    ...     "TVM": d2ltvm.contenders.tvm_add(d2ltvm.schedules.cpu_vector_add, "llvm"),
    ...     "NumPy": d2ltvm.contenders.numpy_add()}, work=lambda n: n / 1e9, clock="host")
    >>> found.unit, found["TVM"].shape, bool(found.at("NumPy", 2**14) > 0)
    ('GFLOPS', (2,), True)

    Args:
        sizes: the sizes, integers.
        contenders: functions by legend, as those of `d2ltvm.contenders` are: each is called with
            the arrays of `data`, and returns a function without arguments that does the work once.
        data: function of a size that returns the arrays.
        work: function of a size: how much of `unit` times one second a run is, such as the number
            of operations divided by 1e9 for GFLOPS. By default the result is the time itself.
        unit: the unit of the result; 'µs' where there is no `work`.
        clock: one or several, as for `d2ltvm.time_together`.
        xlabel: what the sizes are.

    Returns:
        A `Measurement`. A contender whose library is missing is left out, with a line that says
        so, and named in `missing`.

    Raises:
        ValueError: there are no sizes, or one is not an integer.
    """
    whole = as_sizes(sizes)
    racing, missing = dict(contenders), list[str]()
    times = [time_together(_prepare(racing, data(n), missing), clock) for n in whole]
    found = as_measurement(xlabel, whole, times, clock, work, unit)
    found.missing = tuple(legend for name in missing for legend in legends(name, clock))
    return found


def as_sizes(sizes: Iterable[int]) -> list[int]:
    """Sizes as a list of Python's integers; ValueError where one is none, or there are none.

    >>> as_sizes(2 ** np.arange(2, 8, 2))
    [4, 16, 64]
    """
    try:
        given = list(sizes)
        whole = [operator.index(n) for n in given]
    except TypeError:
        raise ValueError(f"sizes is {shown(sizes)}; expected integers") from None
    if any(isinstance(n, bool) for n in given):
        raise ValueError(f"sizes is {shown(sizes)}; expected integers")
    if not whole:
        raise ValueError("sizes is []; expected one or more integers")
    return whole


def as_measurement(
    xlabel: str,
    values: Sequence[Any],
    times: Sequence[Mapping[str, Timing]],
    clock: ClockNames = "graph",
    work: Callable[[Any], float] | None = None,
    unit: str = "µs",
) -> Measurement:
    """What `time_together` found at each place of an x axis, as one measurement.

    >>> as_measurement("n", [8], [{"TVM": Timing(2e-6, 1e-6, 4e-6)}], "host").series
    {'TVM': [2.0]}

    Args:
        xlabel: what `values` are.
        values: the x axis.
        times: timings by legend, for each of `values`.
        clock: what timed, one or several.
        work: function of one of `values`, as for `bench_together`; by default the result is the
            time itself, in µs.
        unit: the unit of work a second.
    """
    series: dict[str, list[float]] = {}
    spread: dict[str, list[list[float]]] = {}
    for x, timings in zip(values, times, strict=True):
        for legend, t in timings.items():
            value, *ends = (_rate(seconds, x, work) for seconds in (t.median, t.low, t.high))
            series.setdefault(legend, []).append(value)
            spread.setdefault(legend, []).append(sorted(ends))
    return Measurement(
        unit="µs" if work is None else unit,
        x={"label": xlabel, "values": list(values)},
        series=series,
        spread=spread,
        notes=method(clock),
    )


def _prepare(
    contenders: dict[str, Contender], arrays: Sequence[Any], missing: list[str]
) -> dict[str, Run]:
    """The functions to time; a contender whose library is missing leaves the race."""
    runs = {}
    for legend, contender in list(contenders.items()):
        try:
            runs[legend] = contender(*arrays)
        except MissingError as error:
            print(f"{legend} is left out: {error}")
            missing.append(legend)
            del contenders[legend]
    return runs


def _rate(seconds: float, x: Any, work: Callable[[Any], float] | None) -> float:
    """Work a second, or microseconds where no work is given; six digits, so that records read."""
    value = seconds * 1e6 if work is None else work(x) / seconds
    return float(f"{value:.6g}")


def check_conv(func: Schedule, shapes: Iterable[tuple[int, ...]], target: Any = None) -> None:
    """Build a scheduled convolution at several shapes, and compare every element with NumPy.

    >>> d2ltvm.check_conv(d2ltvm.schedules.default_sch, [(16, 8, 16, 3, 1, 1)])
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
        error = verify_conv(build(func(*shape), target), data, weight, p, s)
        print(f"{shape}: relative error under 1e-6: {error < 1e-6}")


def bench_convs(
    channels: Iterable[int],
    funcs: Mapping[str, Schedule],
    n: int = 64,
    k: int = 3,
    target: Any = "cuda",
) -> Measurement:
    """Time scheduled convolutions of one image in turns, beside cuDNN's on the GPU.

    >>> d2ltvm.bench_convs([64], {"default": d2ltvm.schedules.default_sch})  # doctest: +SKIP
    Measurement(unit='µs', x={'label': 'channels', 'values': [64]}, ...)

    Args:
        channels: numbers of channels, in and out alike.
        funcs: functions of oc, ic, n, k, p and s that return a schedule, by legend.
        n: height and width of the image, which are kept.
        k: height and width of the kernels.
        target: 'cuda'; or another, such as 'llvm', where the host's clock times, beside MXNet's
            convolution on the processor.
    """
    p = (k - 1) // 2
    contenders = {"cuDNN": torch_conv(p)} if _on_gpu(target) else {"MXNet": mxnet_conv(p)}
    contenders |= {legend: tvm_conv(func, p, target=target) for legend, func in funcs.items()}
    return bench_together(
        channels,
        contenders,
        lambda c: get_conv_data(c, c, n, k, p),
        clock=clock_of(target),
        xlabel="channels",
    )


def bench_products(
    sizes: Iterable[int],
    funcs: Mapping[str, Schedule],
    target: Any = "cuda",
    tf32: bool = False,
) -> Measurement:
    """Time scheduled products of square matrices in turns, beside cuBLAS's on the GPU.

    >>> d2ltvm.bench_products([2048], {"tiled": d2ltvm.schedules.matmul_tiled})  # doctest: +SKIP
    Measurement(unit='TFLOPS', x={'label': 'n', 'values': [2048]}, ...)

    Args:
        sizes: of the matrices, n by n.
        funcs: functions of n, m and l that return a schedule of a product, by legend.
        target: 'cuda'; or another, such as 'llvm', where the host's clock times, beside NumPy's
            product on the processor.
        tf32: whether cuBLAS is timed a second time, with TensorCores and inputs cut to TF32.
    """
    if _on_gpu(target):
        contenders = {"cuBLAS": torch_matmul()}
        contenders |= {"cuBLAS, TF32": torch_matmul(tf32=True)} if tf32 else {}
    else:
        contenders = {"NumPy": numpy_matmul()}
    contenders |= {legend: tvm_matmul(func, target) for legend, func in funcs.items()}
    unit, scale = ("TFLOPS", 1e12) if _on_gpu(target) else ("GFLOPS", 1e9)
    return bench_together(
        sizes, contenders, square_matrices, lambda n: 2 * n**3 / scale, unit, clock_of(target)
    )


def bench_batched(
    funcs: Mapping[str, Schedule],
    shape: tuple[int, ...],
    batches: Iterable[int] | None = None,
    layout: str = "hwcn",
    target: Any = "cuda",
) -> Measurement:
    """Time scheduled convolutions of a batch in turns, beside cuDNN's on the GPU.

    >>> d2ltvm.bench.bench_batched({"tutorial": d2ltvm.schedules.hwcn_blocks},
    ...     (256, 512, 256, 14, 3, 1, 1))  # doctest: +SKIP
    Measurement(unit='µs', x={'label': 'batch', 'values': [256]}, ...)

    Args:
        funcs: functions of batch, oc, ic, n, k, p and s that return a schedule, by legend.
        shape: these seven.
        batches: sizes of the batch in place of the shape's own.
        layout: 'hwcn', in float32, or 'nhwcnc', in float16 with float32 sums.
        target: 'cuda'; or another, such as 'llvm', where the host's clock times, beside nothing.
    """
    batch, oc, ic, n, k, p, s = shape
    if layout not in DTYPES:
        raise ValueError(f"layout is {layout!r}; expected 'hwcn' or 'nhwcnc'")
    contenders = {"cuDNN": torch_conv_batch(p, s)} if _on_gpu(target) else {}
    contenders |= {
        legend: tvm_conv_batch(func, p, s, layout, target) for legend, func in funcs.items()
    }
    return bench_together(
        [batch] if batches is None else batches,
        contenders,
        lambda batch: get_conv_batch(batch, oc, ic, n, k, DTYPES[layout]),
        clock=clock_of(target),
        xlabel="batch",
    )


DTYPES = {"hwcn": "float32", "nhwcnc": "float16"}  # of what is multiplied, by layout


def clock_of(target: Any) -> str:
    """The clock for kernels of a target: 'graph' on a GPU, and 'host' elsewhere.

    >>> clock_of("llvm")
    'host'
    """
    return "graph" if _on_gpu(target) else "host"


def _on_gpu(target: Any) -> bool:
    return bool(as_target(target).kind.name == "cuda")
