"""Kernels for Hopper beside cuDNN and cuBLAS: layers of ResNet-50, batches, products."""

import numpy as np

from d2ltvm.bench import contenders, libraries
from d2ltvm.bench.run import bench_together, method
from d2ltvm.bench.timing import legends, time_together
from d2ltvm.compiler.kernel import build
from d2ltvm.compiler.verify import WrongResultError
from d2ltvm.compute.conv_batch import conv_batch_reference
from d2ltvm.compute.data import get_conv_batch
from d2ltvm.hopper import float32, implicit, product
from d2ltvm.system import devices

BOTH = ("burst", "sustained")  # clocks: these kernels need more power than there is for long
ENDINGS = dict(zip(BOTH, legends("", BOTH), strict=True))  # of what they call a contender
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


def layer_name(layer):
    """A layer without its batch, in a few characters.

    >>> layer_name((256, 128, 128, 56, 3, 1, 2))
    '128 to 128, 56 x 56, stride 2'
    """
    oc, ic, n, _, _, s = layer[-6:]
    return f"{ic} to {oc}, {n} x {n}" + (f", stride {s}" if s > 1 else "")


def nhwc(images, weights):
    """Both as the kernels take them: channels last, and weights tap by tap.

    >>> x, w = nhwc(*d2ltvm.get_conv_batch(2, 16, 8, 5, 3, "float16"))
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
    return [np.ascontiguousarray(array) for array in (images.transpose(0, 2, 3, 1), taps)]


def bench_layers(layers, variants=None, clock="burst", names=None):
    """Time convolutions in NHWC beside cuDNN's, in turns, each checked against NumPy.

    >>> d2ltvm.measure("hopper/layers", lambda: bench_layers([(256, 512, 256, 14, 3, 1, 1)]))

    Args:
        layers: tuples of batch, oc, ic, n, k, p and s. Images are repeated after 31.
        variants: options of `hopper.conv` by legend; by default one, 'TVM', with none. The option
            'kernel' is a function to be called instead of `hopper.conv`.
        clock: one or several, as for `d2ltvm.time_together`.
        names: of the layers; by default `layer_name` of each.

    Returns:
        What `bench_together` returns, in µs, with names as x.
    """
    times = [time_together(layer_contenders(layer, variants), clock) for layer in layers]
    return _measured(names or [layer_name(layer) for layer in layers], times, clock)


def layer_contenders(layer, variants=None):
    """Functions that convolve a layer once, by legend: cuDNN's, and ours, which are checked first.

    >>> layer_contenders((256, 512, 256, 14, 3, 1, 1))
    {'cuDNN': <function ...>, 'TVM': <function ...>}

    Args:
        layer, variants: as for `bench_layers`, where a layer is one of the tuples.
    """
    devices.need_hopper()
    batch, *_, p, s = layer
    images, weights = _data(layer, "float16")
    runs = {"cuDNN": contenders.torch_conv_batch(p, s)(batch, images, weights)}
    want = _reference(images, weights, p, s)
    for legend, options in (variants or {"TVM": {}}).items():
        runs[legend] = _conv(layer, images, weights, want, options)
    return runs


def bench_batches(clock="burst"):
    """Time the layer of the tutorials with 1 to 256 images beside cuDNN's, as `bench_layers`."""
    sizes = [2**i for i in range(9)]
    return bench_layers([(batch, *LAYER[1:]) for batch in sizes], clock=clock, names=sizes)


def bench_float32(layer=LAYER, variants=None, clock="burst"):
    """Time a float32 convolution of three float16 products beside cuDNN's, in turns.

    >>> d2ltvm.measure("hopper/float32", bench_float32)

    Ours is in NHWC, and splits images and weights each time; cuDNN's is in NCHW, without TF32.

    Args:
        layer: a tuple of batch, oc, ic, n, k, p and s.
        variants: options of `conv_float32` by legend, as for `bench_layers`.
        clock: one or several, as for `d2ltvm.time_together`.

    Returns:
        A dict for `d2ltvm.measure`, in µs.
    """
    runs, _ = _float32(layer, variants or {"TVM": {}})
    return _measured([layer_name(layer)], [time_together(runs, clock)], clock)


def errors_float32(layer=LAYER, variants=None):
    """How far results of the contenders of `bench_float32` are from float64's.

    Returns:
        A dict for `d2ltvm.measure`: the root of the mean square of errors, and the largest, both
        as parts of the root of the mean square of results.
    """
    return {
        "unit": "of a typical result",
        "x": {"label": "error", "values": ["mean", "largest"]},
        "series": _float32(layer, variants or {"TVM": {}})[1],
        "notes": f"random data, every {_STEP}th image compared with float64",
    }


def _float32(layer, variants):
    """What to time, each checked against NumPy, and the errors, by legend."""
    devices.need_hopper()
    batch, *_, p, s = layer
    images, weights = _data(layer, "float32")
    want, most = _reference(images, weights, p, s)
    runs = {"cuDNN": contenders.torch_conv_batch(p, s)(batch, images, weights)}
    errors = {"cuDNN": _errors(runs["cuDNN"]()[::_STEP].cpu().numpy(), want)}
    x, w = nhwc(images, weights)
    for legend, options in variants.items():
        runs[legend], y = _three_products(layer, x, w, options)
        got = y[::_STEP].transpose(0, 3, 1, 2)
        # Three products of each term; splitting, and low times low, lose another 6 eps.
        _compare(got, want, most, 3 * weights[0].size + 6)
        errors[legend] = _errors(got, want)
    return runs, errors


def _three_products(layer, x, w, options):
    """A function that splits and convolves, and what it computes."""
    scales = [float32.power_of_two(array) for array in (x, w)]
    options = {"kernel": float32.conv_float32, "scale": 1 / np.prod(scales), **options}
    conv = build(options.pop("kernel")(*layer, **options), "cuda")
    y = np.full(conv.params[2].shape, np.nan, "float32")
    empty = [np.empty((2, *array.shape), "float16") for array in (x, w)]
    *pieces, result = conv.upload([*empty, y])
    launches = [conv.bind(*pieces, result)]
    for array, piece, scale in zip((x, w), pieces, scales, strict=True):
        kernel = build(float32.split(array.shape, scale), "cuda")
        launches.insert(0, kernel.bind(*kernel.upload([array]), piece))

    def run():
        for launch in launches:
            launch()

    run()
    return run, result.numpy()


def _errors(got, want):
    """Root of the mean square, and the largest, as parts of the former of the results."""
    error = np.abs(got - want) / np.sqrt(np.mean(want**2))
    return [float(np.sqrt(np.mean(error**2))), float(error.max())]


def bench_products(sizes, clock="burst"):
    """Time products of n x n matrices of float16 beside cuBLAS', in turns; TFLOPS."""
    devices.need_hopper()

    def data(n):
        rng = np.random.default_rng(0)
        return [rng.standard_normal((n, n), "float32").astype("float16") for _ in range(2)]

    return bench_together(
        sizes,
        {"cuBLAS": _cublas, "TVM": _product},
        data,
        work=lambda n: 2 * n**3 / 1e12,
        unit="TFLOPS",
        clock=clock,
    )


def _cublas(n, a, b):
    torch = libraries.torch_cuda()
    x, y = (torch.from_numpy(array).cuda() for array in (a, b))
    z = torch.empty(n, n, dtype=torch.float16, device="cuda")
    return lambda: torch.matmul(x, y.T, out=z)


def _product(n, a, b):
    kernel = build(product.matmul(n, n, n), "cuda")
    c = np.full((n, n), np.nan, "float16")
    kernel(a, b, c)
    step = 401  # a prime number: every place inside a tile has its turn
    for got, x, y in ((c[::step], a[::step], b), (c[:, ::step], a, b[::step])):
        x, y = x.astype("float64"), y.astype("float64")
        _compare(got, x @ y.T, np.abs(x) @ np.abs(y).T, n)
    return kernel.bind(a, b, c)


def _conv(layer, images, weights, want, options):
    options = dict(options)
    kernel = build(options.pop("kernel", implicit.conv)(*layer, **options), "cuda")
    x, w = nhwc(images, weights)
    y = np.full(kernel.params[2].shape, np.nan, "float16")
    kernel(x, w, y)
    _compare(y[::_STEP].transpose(0, 3, 1, 2), *want, weights[0].size)
    return kernel.bind(x, w, y)


_DIFFERENT = 31  # images; behind them they are repeated, since making random ones takes long
_STEP = 37  # a prime number: the images that are compared lie at many places of a tile


def _data(layer, dtype):
    """Random images and weights of a layer."""
    batch, oc, ic, n, k, *_ = layer
    images, weights = get_conv_batch(min(batch, _DIFFERENT), oc, ic, n, k, dtype)
    return np.resize(images, (batch, ic, n, n)), weights


def _reference(images, weights, p, s):
    exact = [a.astype("float64") for a in (images[::_STEP], weights)]
    return [conv_batch_reference(*f(exact), p, s) for f in (list, lambda a: map(np.abs, a))]


def _compare(got, want, most, terms):
    """Products of float16 are exact; `terms` sums are cut off, and the last one is rounded."""
    bound = terms * np.finfo("float32").eps * most + np.finfo(got.dtype).eps / 2 * np.abs(want)
    if not np.all(np.abs(got - want) <= bound):
        raise WrongResultError(f"the result is not within {terms} roundings of the reference")


def _measured(names, times, clock):
    """What `d2ltvm.measure` takes: for each name the timings by legend."""
    series, spread = {}, {}
    for timings in times:
        for legend, t in timings.items():
            series.setdefault(legend, []).append(_microseconds(t.median))
            spread.setdefault(legend, []).append([_microseconds(t.low), _microseconds(t.high)])
    return {
        "unit": "µs",
        "x": {"label": "layer", "values": names},
        "series": series,
        "spread": spread,
        "notes": method(clock),
    }


def _microseconds(seconds):
    return float(f"{seconds * 1e6:.6g}")
