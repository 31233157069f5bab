"""What the chapters on reductions measure: sums of rows, softmax and layer norm.

A contender here takes the arrays of `rows_data`: X, then gamma and beta for a layer norm, then what
is written. Kernels are checked before they are handed out.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from d2ltvm.bench.contenders import Contender, Run, Schedule
from d2ltvm.bench.libraries import mxnet, mxnet_context, torch_cuda
from d2ltvm.bench.measurement import Measurement
from d2ltvm.bench.run import as_measurement, clock_of
from d2ltvm.bench.timing import time_together
from d2ltvm.compiler.kernel import build
from d2ltvm.compiler.verify import compare
from d2ltvm.compute.reductions import (
    DTYPES,
    get_rows,
    get_scales,
    layer_norm_reference,
    softmax_reference,
)
from d2ltvm.errors import MissingError, shown, whole
from d2ltvm.schedules import layer_norm, reductions, softmax

Array = npt.NDArray[Any]
MatrixShape = tuple[int, int]

KINDS = ("sum", "softmax", "layer norm")
SHAPES: tuple[MatrixShape, ...] = ((8192, 8192), (65536, 1024), (4096, 32768))


def rows_data(kind: str, rows: int, cols: int, dtype: str = "float16") -> list[Array]:
    """The arrays of a computation of rows, in the order in which its kernel takes them.

    >>> [a.shape for a in rows_data("layer norm", 4, 16)]
    [(4, 16), (16,), (16,), (4, 16)]

    Args:
        kind: 'sum', 'softmax' or 'layer norm'.
        rows: a positive integer.
        cols: likewise.
        dtype: of the matrix, 'float16' or 'float32'; sums are float32.

    Raises:
        ValueError: `kind` or `dtype` is another one, or a size is not a positive integer.
    """
    _check_kind(kind)
    x = get_rows(rows, cols, dtype)
    if kind == "sum":
        return [x, np.full(rows, np.nan, "float32")]
    scales = get_scales(cols, dtype) if kind == "layer norm" else ()
    return [x, *scales, np.full_like(x, np.nan)]


def _check_kind(kind: Any) -> None:
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"kind is {shown(kind)}; expected one of {', '.join(KINDS)}")


def rows_bytes(kind: str, rows: int, cols: int, dtype: str = "float16") -> int:
    """What has to move at least: each number read once, each result written once.

    >>> rows_bytes("sum", 8, 1024), rows_bytes("softmax", 8, 1024)
    (16416, 32768)

    Args:
        kind, rows, cols, dtype: as for `rows_data`.

    Raises:
        ValueError: as for `rows_data`.
    """
    rows, cols = whole("rows", rows), whole("cols", cols)
    _check_kind(kind)
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"dtype is {shown(dtype)}; expected one of {', '.join(DTYPES)}")
    each = np.dtype(dtype).itemsize
    if kind == "sum":
        return rows * cols * each + 4 * rows
    return 2 * rows * cols * each + (2 * cols * each if kind == "layer norm" else 0)


def check_rows(
    kind: str, kernel: Any, arrays: list[Array], most: int = 300, parts: int = 32
) -> float:
    """Run a kernel of rows and hold some of its rows, the last among them, against float64.

    >>> kernel = d2ltvm.build(d2ltvm.schedules.softmax_held(5, 1003, "float32"))
    >>> check_rows("softmax", kernel, rows_data("softmax", 5, 1003, "float32")) < 1e-6
    True

    How far an element may be off is said at `d2ltvm.compiler.verify.compare`. `cols / parts`
    roundings of a sum follow each other; to those are added 64, which the exponential and the rest
    have at most.

    Args:
        kind: 'sum', 'softmax' or 'layer norm'.
        kernel: a `Kernel`, or another function of the arrays.
        arrays: as `rows_data` makes them; the last is written.
        most: rows to look at, about.
        parts: in how many parts a row is added up, each by itself, at least.

    Returns:
        The largest error, divided by the largest magnitude of the result.

    Raises:
        WrongResultError: an element is further off than its roundings explain.
    """
    x, *scales, out = arrays
    out.fill(np.nan)
    kernel(*arrays)
    some = np.unique(np.append(np.arange(0, len(x), max(1, len(x) // most)), len(x) - 1))
    want, magnitude = _exact(kind, x[some].astype("float64"), scales)
    terms = -(-x.shape[1] // parts) + 64
    return compare(kind, out[some], want, magnitude, terms, "float32")


def _exact(kind: str, x: Array, scales: list[Array]) -> tuple[Array, Any]:
    """The result in float64, and the magnitudes that its roundings are of."""
    if kind == "sum":
        return x.sum(1), np.abs(x).sum(1)
    if kind == "softmax":
        return softmax_reference(x), 0.0
    gamma, beta = (a.astype("float64") for a in scales)
    most = np.abs(x) + np.abs(x).mean(1, keepdims=True)
    # twice: the sum of squares has roundings of its own
    magnitude = 2 * most / x.std(1, keepdims=True) * np.abs(gamma) + np.abs(beta)
    return layer_norm_reference(x, gamma, beta), magnitude


def tvm_rows(kind: str, func: Schedule, target: Any = None, parts: int = 32) -> Contender:
    """A scheduled computation of rows.

    >>> run = tvm_rows("softmax", d2ltvm.schedules.cpu_softmax, "llvm")(
    ...     *rows_data("softmax", 4, 1000, "float32"))
    >>> run()

    Args:
        kind: 'sum', 'softmax' or 'layer norm'.
        func: function of rows, columns and dtype that returns a schedule.
        target: as for `d2ltvm.build`.
        parts: as for `check_rows`.

    Returns:
        A contender. It builds the kernel, runs it once, compares some rows with NumPy in float64,
        and returns the launch.
    """

    def contender(x: Array, *others: Array) -> Run:
        kernel = build(func(*x.shape, x.dtype.name), target)
        check_rows(kind, kernel, [x, *others], parts=parts)
        return kernel.bind(x, *others)

    return contender


def torch_rows(kind: str) -> Contender:
    """PyTorch's on the GPU: `sum`, `softmax` or `layer_norm`."""

    def contender(*arrays: Array) -> Run:
        torch = torch_cuda()
        x, *scales, _ = (torch.from_numpy(a).cuda() for a in arrays)
        if kind == "sum":
            return lambda: torch.sum(x, 1, dtype=torch.float32)
        if kind == "softmax":
            return lambda: torch.softmax(x, 1)
        return lambda: torch.nn.functional.layer_norm(x, x.shape[1:], *scales)

    return contender


def copy_rows(*arrays: Array) -> Run:
    """PyTorch's copy on the GPU of as many bytes as are read and written, but for the last 32 KiB.

    A copy whose length was no multiple of 16 KiB was slower on an H200.
    """
    torch = torch_cuda()
    moved = arrays[0].nbytes + arrays[-1].nbytes
    half = max(moved // 2 // 2**14, 1) * 2**14
    x = torch.zeros(half, dtype=torch.uint8, device="cuda").random_()
    y = torch.empty_like(x)
    return lambda: y.copy_(x)


def mxnet_rows(kind: str, ctx: str = "cpu") -> Contender:
    """MXNet's `sum`, `softmax` or `LayerNorm`; `ctx` is 'cpu' or 'gpu'."""
    _check_kind(kind)

    def contender(*arrays: Array) -> Run:
        context, mx = mxnet_context(ctx), mxnet()
        x, *scales, y = (mx.nd.array(a, ctx=context, dtype=a.dtype) for a in arrays)
        call = {
            "sum": functools.partial(mx.nd.sum, axis=1),
            "softmax": functools.partial(mx.nd.softmax, axis=1),
            "layer norm": functools.partial(mx.nd.LayerNorm, axis=1, eps=1e-5),
        }[kind]

        def run() -> object:
            call(x, *scales, out=y)
            y.wait_to_read()  # MXNet's calls return before the work is done
            return y

        return run

    return contender


def numpy_rows(kind: str) -> Contender:
    """NumPy's `sum`, or the references of softmax and layer norm."""
    _check_kind(kind)
    functions: dict[str, Callable[..., Any]] = {
        "sum": lambda x: x.sum(1, dtype="float32"),
        "softmax": softmax_reference,
        "layer norm": layer_norm_reference,
    }
    return lambda *arrays: lambda: functions[kind](*arrays[:-1])


def bench_rows(
    kind: str,
    racing: Mapping[str, Contender],
    shapes: Iterable[MatrixShape] = SHAPES,
    dtype: str = "float16",
    target: Any = "cuda",
    unit: str = "TB/s",
) -> Measurement:
    """Time contenders for one computation of rows, in turns, in bytes that have to move.

    >>> found = bench_rows("softmax", {"NumPy": numpy_rows("softmax")}, [(8, 100)], "float32",
    ...     "llvm", "GB/s")
    >>> found.x["values"], list(found.series)
    (['8 x 100'], ['NumPy'])

    Args:
        kind: 'sum', 'softmax' or 'layer norm'.
        racing: contenders by legend, as those of this module are.
        shapes: rows and columns.
        dtype: of the matrix.
        target: 'cuda'; or 'llvm', where the host's clock times.
        unit: 'TB/s' or 'GB/s'.

    Returns:
        A `Measurement`, whose x axis has the shapes as text. A contender whose library is missing
        is left out, with a line that says so, and named in `missing`.
    """
    scale, clock = {"TB/s": 1e12, "GB/s": 1e9}[unit], clock_of(target)
    names, times, missing = [], [], dict[str, None]()
    for rows, cols in shapes:
        arrays, runs = rows_data(kind, rows, cols, dtype), dict[str, Run]()
        for legend, contender in racing.items():
            try:
                runs[legend] = contender(*arrays)
            except MissingError as error:
                if legend not in missing:
                    print(f"{legend} is left out: {error}")
                missing[legend] = None
        names.append(f"{rows} x {cols}")
        times.append(time_together(runs, clock))
    moved = {
        name: rows_bytes(kind, *shape, dtype) / scale
        for name, shape in zip(names, shapes, strict=True)
    }
    found = as_measurement("rows x columns", names, times, clock, moved.__getitem__, unit)
    found.missing = tuple(missing)
    return found


def row_sums() -> Measurement:
    """TB/s of the chapter's sums of rows, of PyTorch's, and of a copy."""
    ours = {
        "a block a row": reductions.sum_a_block,
        "16 bytes": reductions.sum_wide,
    }
    racing = {"copy": copy_rows, "PyTorch": torch_rows("sum")}
    racing["a thread a row"] = tvm_rows("sum", reductions.sum_a_thread, "cuda", parts=1)
    racing |= {legend: tvm_rows("sum", func, "cuda") for legend, func in ours.items()}
    return bench_rows("sum", racing)


def few_rows(
    rows: int = 16, cols: int = 2**22, pieces: Iterable[int] = (1, 4, 16, 64, 256)
) -> Measurement:
    """TB/s of the sum of few rows, by the blocks that share a row."""
    arrays, counts = rows_data("sum", rows, cols), list(pieces)
    np.abs(arrays[0], out=arrays[0])  # or the sums would be as small as their errors
    runs = {}
    for count in counts:
        func = functools.partial(reductions.sum_pieces, pieces=count)
        runs[count] = tvm_rows("sum", func, "cuda")(*arrays)
    found = time_together(runs)
    moved = rows_bytes("sum", rows, cols) / 1e12
    times = [{f"{rows} rows": found[count]} for count in counts]
    return as_measurement("blocks a row", counts, times, "graph", lambda _: moved, "TB/s")


def held(kind: str) -> Measurement:
    """TB/s of a softmax or a layer norm read three times, twice and once, of PyTorch and a copy.

    A thread has 128 elements, except where 32 are named: of 128 the compiler keeps none in
    registers by itself, of 32 it may keep all.
    """
    module = {"softmax": softmax, "layer norm": layer_norm}[kind]
    name = kind.replace(" ", "_")
    two = "softmax_online" if kind == "softmax" else "layer_norm_welford"
    ours = {
        "three passes": fitted(getattr(reductions, f"{name}_passes"), 128),
        "two passes": fitted(getattr(module, two), 128),
        "in shared memory": fitted(getattr(module, f"{name}_shared"), 128),
        "in registers": fitted(getattr(module, f"{name}_held")),
        "three passes, 32 each": fitted(getattr(reductions, f"{name}_passes")),
    }
    racing = {"copy": copy_rows, "PyTorch": torch_rows(kind)}
    racing |= {legend: tvm_rows(kind, func, "cuda") for legend, func in ours.items()}
    return bench_rows(kind, racing)


def by_threads(kind: str, each: Iterable[int] = (32, 64, 128)) -> Measurement:
    """TB/s of a row kept in registers and in shared memory, by the elements of a thread."""
    module = {"softmax": softmax, "layer norm": layer_norm}[kind]
    name, racing = kind.replace(" ", "_"), {"copy": copy_rows}
    for place, suffix in (("registers", "held"), ("shared memory", "shared")):
        for count in each:
            func = fitted(getattr(module, f"{name}_{suffix}"), count)
            racing[f"{place}, {count}"] = tvm_rows(kind, func, "cuda")
    return bench_rows(kind, racing)


def fitted(func: Schedule, elements: int = 32) -> Schedule:
    """A schedule of rows with as many threads as `threads_of` says."""

    def schedule(rows: int, cols: int, dtype: str) -> Any:
        nt, each = threads_of(cols, elements)
        return func(rows, cols, dtype, nt=nt, each=each)

    return schedule


def threads_of(cols: int, elements: int = 32) -> tuple[int, int]:
    """Threads for a row, and rows of a block, so that a thread has about `elements` of a row.

    Where one warp has a row, four share a block; with more threads a row has a block to itself.

    >>> threads_of(8192), threads_of(1024), threads_of(32768), threads_of(1003)
    ((256, 1), (32, 4), (1024, 1), (32, 4))
    """
    nt = min(1024, 32 * math.ceil(cols / (32 * elements)))
    return nt, 4 if nt == 32 else 1
