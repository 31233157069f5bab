"""Kernels for Hopper beside cuDNN and cuBLAS: layers of ResNet-50, batches, products.

Each function returns a `Measurement`, and checks every kernel against NumPy before it is timed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from d2ltvm.bench import libraries
from d2ltvm.bench.contenders import (
    Array,
    Contender,
    Run,
    Schedule,
    exact_conv,
    torch_conv_batch,
    tvm_conv_batch,
)
from d2ltvm.bench.measurement import ClockNames, Measurement
from d2ltvm.bench.run import as_measurement, as_sizes, bench_together
from d2ltvm.bench.sets import Case
from d2ltvm.bench.timing import in_turn, time_together
from d2ltvm.compiler.kernel import build
from d2ltvm.compiler.verify import compare
from d2ltvm.compute.data import get_conv_batch
from d2ltvm.hopper import float32, implicit, product
from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_conv import product as product_sizes
from d2ltvm.system import devices

BOTH = ("burst", "sustained")  # clocks: these kernels need more power than there is for long
LayerSizes = tuple[int, ...]  # batch, oc, ic, n, k, p and s
Variants = Mapping[str, Mapping[str, Any]]  # options by legend
LAYER = (256, 512, 256, 14, 3, 1, 1)  # batch, oc, ic, n, k, p, s: that of the tutorials

# The layers of ResNet-50 with its strides at the 3 x 3 convolutions, by (oc, ic, n, k, p, s).
# Source: He et al., Deep Residual Learning for Image Recognition, table 1.
RESNET_3X3 = (
    (64, 64, 56, 3, 1, 1),
    (128, 128, 56, 3, 1, 2),
    (128, 128, 28, 3, 1, 1),
    (256, 256, 28, 3, 1, 2),
    (256, 256, 14, 3, 1, 1),
    (512, 512, 14, 3, 1, 2),
    (512, 512, 7, 3, 1, 1),
)
RESNET_1X1 = tuple(
    (oc, ic, n, 1, 0, s)
    for oc, ic, n, s in (
        (64, 64, 56, 1),
        (256, 64, 56, 1),
        (64, 256, 56, 1),
        (128, 256, 56, 1),
        (512, 128, 28, 1),
        (128, 512, 28, 1),
        (512, 256, 56, 2),
        (256, 512, 28, 1),
        (1024, 256, 14, 1),
        (256, 1024, 14, 1),
        (1024, 512, 28, 2),
        (512, 1024, 14, 1),
        (2048, 512, 7, 1),
        (512, 2048, 7, 1),
        (2048, 1024, 14, 2),
    )
)


def layer_name(layer: LayerSizes) -> str:
    """A layer without its batch, in a few characters.

    >>> layer_name((256, 128, 128, 56, 3, 1, 2))
    '128 to 128, 56 x 56, stride 2'
    """
    oc, ic, n, _, _, s = layer[-6:]
    return f"{ic} to {oc}, {n} x {n}" + (f", stride {s}" if s > 1 else "")


def nhwc(images: Array, weights: Array) -> tuple[Array, Array]:
    """Both as the kernels take them: channels last, and weights tap by tap.

    >>> x, w = nhwc(*d2ltvm.compute.get_conv_batch(2, 16, 8, 5, 3, "float16"))
    >>> x.shape, w.shape
    ((2, 5, 5, 8), (9, 16, 8))

    Args:
        images: of (batch, ic, n, n).
        weights: of (oc, ic, k, k).

    Returns:
        Contiguous arrays of the same dtypes: (batch, n, n, ic) and (k * k, oc, ic).
    """
    oc, ic, k, _ = weights.shape
    taps = weights.transpose(2, 3, 0, 1).reshape(k * k, oc, ic)
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1)), np.ascontiguousarray(taps)


def on_hopper(kernel: Any) -> Any:
    """Build a kernel for the GPU of this machine; MissingError where that is not a Hopper."""
    devices.need_hopper()
    return build(kernel, "cuda")


def cublas(a: Array, b: Array) -> Run:
    """cuBLAS's product of A and the transpose of B: a contender."""
    torch = libraries.torch_cuda()
    x, y = (torch.from_numpy(array).cuda() for array in (a, b))
    z = torch.empty(len(a), len(b), dtype=x.dtype, device="cuda")
    return lambda: torch.matmul(x, y.T, out=z)


@dataclass(frozen=True)
class Setting:
    """Where kernels run, and what runs beside them. By default a Hopper with its libraries.

    Attributes:
        build: function of a kernel that returns what `d2ltvm.build` does.
        conv: function of p and s that returns the library's contender for a batch in NCHW.
        product: the library's contender for the product of A and the transpose of B.
    """

    build: Callable[[Any], Any] = on_hopper
    conv: Callable[[int, int], Contender] = torch_conv_batch
    product: Contender = cublas


HOPPER = Setting()


def bench_layers(
    layers: Iterable[LayerSizes],
    variants: Variants | None = None,
    clock: ClockNames = "burst",
    names: Sequence[Any] | None = None,
    setting: Setting = HOPPER,
) -> Measurement:
    """Time convolutions in NHWC beside cuDNN's, in turns, each checked against NumPy.

    >>> bench_layers([(256, 512, 256, 14, 3, 1, 1)])  # doctest: +SKIP
    Measurement(unit='µs', x={'label': 'layer', 'values': ['256 to 512, 14 x 14']}, ...)

    Args:
        layers: tuples of batch, oc, ic, n, k, p and s. Images are repeated after 31.
        variants: options of `hopper.conv_nhwc` by legend; by default one, 'TVM', with none. The
            option 'kernel' is a function to be called instead of `hopper.conv_nhwc`.
        clock: one or several, as for `d2ltvm.time_together`.
        names: of the layers; by default `layer_name` of each.
        setting: where kernels run, and what runs beside them.
    """
    layers = list(layers)
    runs = (layer_contenders(layer, variants, setting) for layer in layers)
    times = [time_together(sides, clock) for sides in runs]
    return as_measurement("layer", names or [layer_name(x) for x in layers], times, clock)


def special_cases() -> list[Case]:
    """What experiments/special.py times: sizes for which chapters have kernels of their own.

    >>> cases = special_cases()
    >>> cases[0].title, cases[8].title
    ('layer, 256 images: 3 x 3, 256 to 512, 14 x 14', 'product: 2048 x 2048 x 2048, A Bᵀ')

    They are the layer of the tutorials, ResNet-50's layers of 3 x 3, square products, and
    ResNet-50's layers of 1 x 1.
    """

    def layers(every: Iterable[LayerSizes]) -> list[Case]:
        return [
            Case("layer", Conv(256, (n, n), ic, oc, (k, k), (p, p), (s, s)))
            for oc, ic, n, k, p, s in every
        ]

    squares = [Case("product", product_sizes(n, n, n), True) for n in (2048, 4096, 8192)]
    return [*layers((LAYER[1:], *RESNET_3X3)), *squares, *layers(RESNET_1X1)]


def bench_beside_schedules(
    schedules: Mapping[str, Schedule],
    variants: Variants | None = None,
    layer: LayerSizes = LAYER,
    clock: ClockNames = "burst",
    setting: Setting = HOPPER,
) -> Measurement:
    """Time a layer as `bench_layers`, with schedules in the same turns, each checked first.

    >>> bench_beside_schedules({"ldmatrix": d2ltvm.schedules.mma_tiled})  # doctest: +SKIP
    Measurement(unit='µs', x={'label': 'layer', 'values': ['256 to 512, 14 x 14']}, ...)

    Args:
        schedules: functions of a layer's numbers that return a schedule in NHWCnc, by legend. It
            multiplies float16 and writes float32.
        layer: one of the tuples that `bench_layers` takes.
        variants, clock, setting: as for `bench_layers`.
    """
    *_, p, s = layer
    images, weights = _data(layer, "float16")
    runs = layer_contenders(layer, variants, setting)
    for legend, schedule in schedules.items():
        runs[legend] = tvm_conv_batch(schedule, p, s, "nhwcnc")(images, weights)
    return as_measurement("layer", [layer_name(layer)], [time_together(runs, clock)], clock)


def layer_contenders(
    layer: LayerSizes, variants: Variants | None = None, setting: Setting = HOPPER
) -> dict[str, Run]:
    """Functions that convolve a layer once, by legend: cuDNN's, and ours, which are checked first.

    >>> list(layer_contenders((256, 512, 256, 14, 3, 1, 1)))  # doctest: +SKIP
    ['cuDNN', 'TVM']

    Args:
        layer, variants, setting: as for `bench_layers`, where a layer is one of the tuples.
    """
    ours = {"TVM": {}} if variants is None else variants
    kernels = {legend: _build(implicit.conv_nhwc, layer, ours[legend], setting) for legend in ours}
    *_, p, s = layer
    images, weights = _data(layer, "float16")
    runs = {"cuDNN": setting.conv(p, s)(images, weights)}
    want, most = exact_conv(images[::_STEP], weights, p, s)
    x, w = nhwc(images, weights)
    for legend, kernel in kernels.items():
        y = np.full(kernel.params[2].shape, np.nan, "float16")
        kernel(x, w, y)
        _check(y, want, most, weights[0].size)
        runs[legend] = kernel.bind(x, w, y)
    return runs


def _build(make: Callable[..., Any], layer: LayerSizes, options: Any, setting: Setting) -> Any:
    """The kernel of a variant: what it names as 'kernel', or `make`, with its other options."""
    options = {"kernel": make, **options}
    return setting.build(options.pop("kernel")(*layer, **options))


def bench_batches(clock: ClockNames = "burst") -> Measurement:
    """Time the layer of the tutorials with 1 to 256 images beside cuDNN's, as `bench_layers`."""
    sizes = [2**i for i in range(9)]
    return bench_layers([(batch, *LAYER[1:]) for batch in sizes], clock=clock, names=sizes)


def bench_float32(
    layer: LayerSizes = LAYER,
    variants: Variants | None = None,
    clock: ClockNames = "burst",
    setting: Setting = HOPPER,
) -> Measurement:
    """Time a float32 convolution of three float16 products beside cuDNN's, in turns.

    >>> bench_float32()  # doctest: +SKIP
    Measurement(unit='µs', x={'label': 'layer', 'values': ['256 to 512, 14 x 14']}, ...)

    Ours is in NHWC, and splits images and weights each time; cuDNN's is in NCHW, without TF32.

    Args:
        layer: a tuple of batch, oc, ic, n, k, p and s.
        variants: options of `conv_float32` by legend, as for `bench_layers`.
        clock: one or several, as for `d2ltvm.time_together`.
        setting: where kernels run, and what runs beside them.
    """
    runs, _ = _float32(layer, variants, setting)
    return as_measurement("layer", [layer_name(layer)], [time_together(runs, clock)], clock)


def errors_float32(
    layer: LayerSizes = LAYER, variants: Variants | None = None, setting: Setting = HOPPER
) -> Measurement:
    """How far results of the contenders of `bench_float32` are from float64's.

    Returns:
        The root of the mean square of errors, and the largest, both as parts of the root of the
        mean square of results.
    """
    _, errors = _float32(layer, variants, setting)
    return Measurement(
        unit="of a typical result",
        x={"label": "error", "values": ["mean", "largest"]},
        series=errors,
        notes=f"random data, every {_STEP}th image compared with float64",
    )


def _float32(
    layer: LayerSizes, variants: Variants | None, setting: Setting
) -> tuple[dict[str, Run], dict[str, list[float]]]:
    """What to time, each checked against NumPy, and the errors, by legend."""
    *_, p, s = layer
    images, weights = _data(layer, "float32")
    x, w = nhwc(images, weights)
    ours = {
        legend: _three_products(layer, x, w, options, setting)
        for legend, options in ({"TVM": {}} if variants is None else variants).items()
    }
    want, most = exact_conv(images[::_STEP], weights, p, s)
    library: Any = setting.conv(p, s)(images, weights)
    runs = {"cuDNN": library}
    errors = {"cuDNN": _errors(library()[::_STEP].cpu().numpy(), want)}
    for legend, (run, y) in ours.items():
        # Three products of each term; splitting, and low times low, lose another 6 eps.
        _check(y, want, most, 3 * weights[0].size + 6)
        runs[legend], errors[legend] = run, _errors(_nchw(y), want)
    return runs, errors


def _three_products(
    layer: LayerSizes, x: Array, w: Array, options: Mapping[str, Any], setting: Setting
) -> tuple[Run, Array]:
    """A function that splits and convolves, and what it computes."""
    scales = [float32.power_of_two(array) for array in (x, w)]
    whole = {"scale": 1 / np.prod(scales), **options}
    conv = _build(float32.conv_float32, layer, whole, setting)
    y = np.full(conv.params[2].shape, np.nan, "float32")
    empty = [np.empty((2, *array.shape), "float16") for array in (x, w)]
    *pieces, result = conv.upload([*empty, y])
    launches = [conv.bind(*pieces, result)]
    for array, piece, scale in zip((x, w), pieces, scales, strict=True):
        kernel = setting.build(float32.split(array.shape, scale))
        launches.insert(0, kernel.bind(*kernel.upload([array]), piece))
    run = in_turn(launches)
    run()
    return run, result.numpy()


def _errors(got: Array, want: Array) -> list[float]:
    """Root of the mean square, and the largest, as parts of the former of the results."""
    error = np.abs(got - want) / np.sqrt(np.mean(want**2))
    return [float(np.sqrt(np.mean(error**2))), float(error.max())]


def bench_matmul_nt(
    sizes: Iterable[int], clock: ClockNames = "burst", setting: Setting = HOPPER
) -> Measurement:
    """Time products of n x n matrices of float16 beside cuBLAS', in turns; TFLOPS."""

    def data(n: int) -> list[Array]:
        rng = np.random.default_rng(0)
        return [rng.standard_normal((n, n), "float32").astype("float16") for _ in range(2)]

    kernels = {n: setting.build(product.matmul_nt(n, n, n)) for n in as_sizes(sizes)}
    return bench_together(
        kernels,
        {"cuBLAS": setting.product, "TVM": lambda a, b: _product(kernels[len(a)], a, b)},
        data,
        work=lambda n: 2 * n**3 / 1e12,
        unit="TFLOPS",
        clock=clock,
    )


def _product(kernel: Any, a: Array, b: Array) -> Run:
    """The launch of a product of A and the transpose of B, some of whose lines are checked."""
    c = np.full((len(a), len(b)), np.nan, "float16")
    kernel(a, b, c)
    step = 401  # a prime number: every place inside a tile has its turn
    for got, x, y in ((c[::step], a[::step], b), (c[:, ::step], a, b[::step])):
        x, y = x.astype("float64"), y.astype("float64")
        compare("C", got, x @ y.T, np.abs(x) @ np.abs(y).T, 2 * a.shape[1], sums="float32")
    run: Run = kernel.bind(a, b, c)
    return run


_DIFFERENT = 31  # images; behind them they are repeated, since making random ones takes long
_STEP = 37  # a prime number: the images that are compared lie at many places of a tile


def _data(layer: LayerSizes, dtype: str) -> tuple[Array, Array]:
    """Random images and weights of a layer."""
    batch, oc, ic, n, k, *_ = layer
    images, weights = get_conv_batch(min(batch, _DIFFERENT), oc, ic, n, k, dtype)
    return np.resize(images, (batch, ic, n, n)), weights


def _check(y: Array, want: Array, most: Array, terms: int) -> None:
    """Some images of a result in NHWC. Products of float16 are exact; `terms` sums are cut off.

    What is cut off is up to eps of a sum, twice what rounding it loses.
    """
    compare("Y", _nchw(y), want, most, terms=2 * terms, sums="float32")


def _nchw(y: Array) -> Array:
    """The images that are compared, channels first."""
    return y[::_STEP].transpose(0, 3, 1, 2)
