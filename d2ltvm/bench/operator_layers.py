"""Depthwise layers, poolings and batch norms of networks, on a GPU, beside PyTorch and a copy.

Images are float16 with the channels last. PyTorch is given them as they are (`channels_last`) and,
as another contender, with the channels first; depthwise convolutions of the first kind are cuDNN's.
A copy moves as many bytes as the layer has to move at least.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from d2ltvm.bench.contenders import Array, Run
from d2ltvm.bench.libraries import torch_cuda
from d2ltvm.bench.measurement import Measurement
from d2ltvm.bench.operator_contenders import exact_bn
from d2ltvm.bench.records import stored_lines
from d2ltvm.bench.run import as_measurement
from d2ltvm.bench.timing import time_together
from d2ltvm.compiler.kernel import build
from d2ltvm.compiler.verify import compare
from d2ltvm.compute.convolution import conv_out_size
from d2ltvm.compute.operators_nhwc import depthwise_nhwc_reference, pool_nhwc_reference
from d2ltvm.schedules import strips

LAST, FIRST, COPY, OURS = "PyTorch, channels last", "PyTorch, channels first", "copy", "TVM"
PERIOD = 2**22 - 3  # a prime number: random data is repeated behind so many


class Window(NamedTuple):
    """A depthwise convolution or a pooling: `c` channels of n by n, windows of k by k.

    >>> Window(64, 112, 3, 1, 2).out
    56
    """

    c: int
    n: int
    k: int
    p: int
    s: int

    @property
    def out(self) -> int:
        """Height and width of the result."""
        return conv_out_size(self.n, self.k, self.p, self.s)

    @property
    def title(self) -> str:
        """Such as '64 x 112, 3x3 / 2': channels, height and width, window, stride."""
        return f"{self.c} x {self.n}, {self.k}x{self.k}" + (f" / {self.s}" if self.s > 1 else "")

    def moved(self, batch: int) -> int:
        """Bytes of the images and of the result, each once, in float16."""
        return 2 * batch * self.c * (self.n**2 + self.out**2)


def _layers(*sizes: tuple[int, int, int, int]) -> list[Window]:
    return [Window(c, n, k, k // 2, s) for c, n, k, s in sizes]


# The depthwise layers of each network, each once. Sources: the papers' tables of layers.
NETWORKS = {
    "MobileNet": _layers(
        (32, 112, 3, 1), (64, 112, 3, 2), (128, 56, 3, 1), (128, 56, 3, 2), (256, 28, 3, 1),
        (256, 28, 3, 2), (512, 14, 3, 1), (512, 14, 3, 2), (1024, 7, 3, 1),
    ),
    "MobileNetV2": _layers(
        (32, 112, 3, 1), (96, 112, 3, 2), (144, 56, 3, 1), (144, 56, 3, 2), (192, 28, 3, 1),
        (192, 28, 3, 2), (384, 14, 3, 1), (576, 14, 3, 1), (576, 14, 3, 2), (960, 7, 3, 1),
    ),
    "EfficientNet-B0": _layers(
        (32, 112, 3, 1), (96, 112, 3, 2), (144, 56, 3, 1), (144, 56, 5, 2), (240, 28, 5, 1),
        (240, 28, 3, 2), (480, 14, 3, 1), (480, 14, 5, 1), (672, 14, 5, 1), (672, 14, 5, 2),
        (1152, 7, 5, 1), (1152, 7, 3, 1),
    ),
}  # fmt: skip
# Layers of MobileNet with 0.75 of the channels and of MobileNetV3 (large) that are not among those
# above. They were timed when the rule of `depthwise_plan` was fixed.
HELD_OUT = _layers(
    (24, 112, 3, 1), (48, 112, 3, 2), (96, 56, 3, 1), (96, 56, 3, 2), (192, 14, 3, 1),
    (384, 14, 3, 2), (768, 7, 3, 1), (16, 112, 3, 1), (72, 56, 3, 1), (72, 56, 5, 2),
    (120, 28, 5, 1), (200, 14, 3, 1), (184, 14, 3, 1), (672, 14, 3, 1), (960, 7, 5, 1),
)  # fmt: skip
POOLS = [Window(*sizes) for sizes in (
    (64, 112, 3, 1, 2), (64, 224, 2, 0, 2), (128, 112, 2, 0, 2), (256, 56, 2, 0, 2),
    (512, 28, 2, 0, 2), (512, 14, 2, 0, 2),
)]  # fmt: skip
# Channels, n
MEANS = ((512, 7), (1280, 7), (2048, 7))  # of ResNet-18, MobileNetV2 and ResNet-50
NORMS = ((64, 112), (32, 112), (64, 56), (256, 56), (512, 28), (1024, 14), (2048, 7))
TIMED_NORMS = "batch_norms.jsonl"  # by experiments/batch_norm.py


def depthwise_layers() -> list[Window]:
    """The depthwise layers of all networks, each once.

    >>> len(depthwise_layers())
    27
    """
    return list(dict.fromkeys(layer for layers in NETWORKS.values() for layer in layers))


def images(batch: int, n: int, c: int) -> Array:
    """Random images of shape (batch, n, n, c), standard normal, in float16."""
    shape = (batch, n, n, c)
    some = np.random.default_rng(0).standard_normal(min(math.prod(shape), PERIOD), "float32")
    return np.resize(some.astype("float16"), shape)


def bench_depthwise(batch: int, layers: Iterable[Window] | None = None) -> Measurement:
    """Time depthwise layers by the rule of `depthwise_plan`, beside PyTorch and a copy, in µs.

    >>> bench_depthwise(32)  # doctest: +SKIP
    Measurement(unit='µs', x={'label': 'layer', 'values': ['32 x 112, 3x3', ...]}, ...)

    Args:
        batch: images.
        layers: those of all networks by default.

    Raises:
        MissingError: there is no GPU, or no PyTorch.
    """
    return _bench(batch, list(layers or depthwise_layers()), depthwise_contenders)


def bench_plans(batch: int, layer: Window, plans: Mapping[str, dict[str, Any]]) -> Measurement:
    """Time one depthwise layer by several plans, in µs; x is the plan's name.

    Args:
        batch: images.
        layer: which.
        plans: options of `depthwise_strips`, by name.
    """
    x, w = images(batch, layer.n, layer.c), _weights(layer)
    runs = {name: _tvm_depthwise(batch, layer, plan, x, w) for name, plan in plans.items()}
    found = time_together(runs | {COPY: _copy(layer.moved(batch))})
    copied = found.pop(COPY)
    times = [{OURS: timing, COPY: copied} for timing in found.values()]
    return as_measurement("plan", list(found), times)


def bench_pools(batch: int) -> Measurement:
    """Time max pooling layers, beside PyTorch and a copy, in µs."""
    return _bench(batch, POOLS, pool_contenders)


def bench_norms(batch: int) -> Measurement:
    """Time batch norm with ReLU behind it, beside PyTorch's two and a copy, in µs."""
    times = [time_together(norm_contenders(batch, c, n)) for c, n in NORMS]
    return as_measurement("channels x size", [f"{c} x {n}" for c, n in NORMS], times)


def timed_norms(
    each: int = 2, device: str = "nvidia-h100-80gb-hbm3"
) -> dict[tuple[int, str], dict[str, float]]:
    """Shares of a copy's speed that batch norm with ReLU had on a GPU, by three schedules.

    >>> timed_norms()[256, "64 x 56"]["shared"] > 0.95
    True

    `shared` is the package's `batch_norm_pixels`. By `own` each thread works out the scales and
    shifts of its channels; by `early` it loads its pixels before the block works them out. Groups
    and threads of a block are those of `batch_norm_plan`.

    Args:
        each: pixels of a thread: 2, 4, 8 or 16.
        device: a folder under book/measurements.

    Returns:
        by images and layer, the share of each schedule.
    """
    return {
        (line["batch"], f"{line['channels']} x {line['n']}"): {
            name: line["us"]["copy"] / line["us"][_by_rule(line["us"], f"{name}, {each} pixels")]
            for name in ("own", "shared", "early")
        }
        for line in stored_lines(TIMED_NORMS, device)[1:]
    }


def norms_apart(device: str = "nvidia-h100-80gb-hbm3") -> float:
    """How far apart a kernel's shares of `timed_norms` were at most in two runs, as a part.

    >>> norms_apart()
    0.031
    """
    return float(stored_lines(TIMED_NORMS, device)[0]["again"]["most"])


def bench_means(batch: int) -> Measurement:
    """Time means of all pixels, beside PyTorch and a copy, in µs."""
    times = [time_together(mean_contenders(batch, c, n)) for c, n in MEANS]
    return as_measurement("channels x size", [f"{c} x {n}" for c, n in MEANS], times)


def depthwise_contenders(batch: int, layer: Window) -> dict[str, Run]:
    """Runs of one depthwise layer by legend: PyTorch's two, ours and a copy."""
    torch, x, w = _tuned_torch(), images(batch, layer.n, layer.c), _weights(layer)
    weight = torch.from_numpy(w).cuda().permute(2, 0, 1)[:, None].contiguous()
    lasting = weight.contiguous(memory_format=torch.channels_last)

    def call(data: Any, kernels: Any) -> Run:
        convolve = torch.nn.functional.conv2d
        return lambda: convolve(data, kernels, None, layer.s, layer.p, 1, layer.c)

    last, first = _both(x)
    runs = {LAST: call(last, lasting), FIRST: call(first, weight)}
    plan = strips.depthwise_plan(*layer)
    runs[OURS] = _tvm_depthwise(batch, layer, plan, x, w)
    return _warm(runs) | {COPY: _copy(layer.moved(batch))}


def pool_contenders(batch: int, layer: Window) -> dict[str, Run]:
    """Runs of one max pooling by legend, as `depthwise_contenders`."""
    pool = _tuned_torch().nn.functional.max_pool2d
    x = images(batch, layer.n, layer.c)
    last, first = (functools.partial(pool, a, layer.k, layer.s, layer.p) for a in _both(x))
    block = strips.strip_block(layer.c, layer.out, (1, 1), 8)
    kernel = build(strips.pool_strips(batch, *layer, block=block))
    ends = np.ascontiguousarray(x[:: max(batch - 1, 1)])
    want = pool_nhwc_reference("max", ends.astype("float64"), layer.k, layer.p, layer.s)
    ours = _held(kernel, (x,), want, want, 1)
    return _warm({LAST: last, FIRST: first, OURS: ours}) | {COPY: _copy(layer.moved(batch))}


def norm_contenders(batch: int, c: int, n: int) -> dict[str, Run]:
    """Runs of one batch norm with ReLU by legend, by the rule of `batch_norm_plan`.

    PyTorch's are two kernels.
    """
    torch, x = _tuned_torch(), images(batch, n, c)
    rng = np.random.default_rng(1)
    mean, gamma, beta = rng.standard_normal((3, c), "float32")
    var = rng.random(c, "float32") + np.float32(0.5)
    four = [torch.from_numpy(a).cuda() for a in (mean, var, gamma, beta)]
    functional = torch.nn.functional

    def call(data: Any) -> Run:
        return lambda: functional.relu_(functional.batch_norm(data, *four, False, 0.0, 1e-5))

    last, first = _both(x)
    pixels = batch * n * n
    plan: Mapping[str, Any] = strips.batch_norm_plan(pixels, c)
    kernel = build(strips.batch_norm_pixels(pixels, c, **plan))
    flat = x.reshape(pixels, c)
    want, most = exact_bn(flat[:: pixels - 1], mean, var, gamma, beta)
    ours = _held(kernel, (flat, mean, var, gamma, beta), np.maximum(want, 0), most, 6)
    moved = 4 * pixels * c
    return _warm({LAST: call(last), FIRST: call(first), OURS: ours}) | {COPY: _copy(moved)}


def mean_contenders(batch: int, c: int, n: int) -> dict[str, Run]:
    """Runs of one mean of all pixels by legend, as `depthwise_contenders`."""
    pool = _tuned_torch().nn.functional.adaptive_avg_pool2d
    x = images(batch, n, c)
    last, first = (functools.partial(pool, a, 1) for a in _both(x))
    ends = x[:: max(batch - 1, 1)].astype("float64")
    want, most = ends.mean((1, 2)), abs(ends).mean((1, 2))
    ours = _held(build(strips.pool_global(batch, c, n)), (x,), want, most, n * n + 1)
    return _warm({LAST: last, FIRST: first, OURS: ours}) | {
        COPY: _copy(2 * batch * c * (n * n + 1))
    }


def _bench(
    batch: int, layers: list[Window], contenders: Callable[[int, Window], dict[str, Run]]
) -> Measurement:
    times = [time_together(contenders(batch, layer)) for layer in layers]
    return as_measurement("layer", [layer.title for layer in layers], times)


def _by_rule(names: Iterable[str], start: str) -> str:
    """Of plans with up to 256 threads the one with the most groups, and then the most threads."""

    def size(name: str) -> list[int]:
        return [int(number) for number in reversed(name.split(", ")[2].split(" x "))]

    plans = (name for name in names if name.startswith(f"{start}, "))
    return max((name for name in plans if math.prod(size(name)) <= 256), key=size)


def _tvm_depthwise(batch: int, layer: Window, plan: Mapping[str, Any], x: Array, w: Array) -> Run:
    """Our kernel of a layer by a plan; the first and the last image are compared with float64."""
    kernel = build(strips.depthwise_strips(batch, *layer, **plan))
    ends = x[:: max(batch - 1, 1)].astype("float64")
    wide = w.astype("float64")
    want, most = (
        depthwise_nhwc_reference(f(ends), f(wide), layer.p, layer.s) for f in (np.asarray, np.abs)
    )
    return _held(kernel, (x, w), want, most, 2 * layer.k**2)


def _held(kernel: Any, inputs: tuple[Array, ...], want: Array, most: Array, terms: int) -> Run:
    """A kernel's launch, once the first and the last of what it writes are right."""
    tensors = kernel.upload((*inputs, np.full(kernel.params[-1].shape, np.nan, "float16")))
    kernel(*tensors)
    got = tensors[-1].numpy()
    compare("Y", got[:: max(len(got) - 1, 1)], want, most, terms, "float32")
    run: Run = kernel.bind(*tensors)
    return run


def _weights(layer: Window) -> Array:
    rng = np.random.default_rng(1)
    return rng.standard_normal((layer.k, layer.k, layer.c), "float32").astype("float16")


def _tuned_torch() -> Any:
    """PyTorch, which lets cuDNN search for its fastest kernel."""
    torch = torch_cuda()
    torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit = True, 0
    return torch


def _both(x: Array) -> tuple[Any, Any]:
    """Images on the GPU in PyTorch's order of axes, with the channels last and first in memory."""
    last = torch_cuda().from_numpy(x).cuda().permute(0, 3, 1, 2)
    return last, last.contiguous()


def _warm(runs: dict[str, Run]) -> dict[str, Run]:
    """The runs, each made twice: libraries search at the first call, and not inside of a graph."""
    for run in runs.values():
        run()
        run()
    return runs


def _copy(moved: int) -> Run:
    """A copy that reads half of some bytes and writes the other half."""
    torch = torch_cuda()
    source = torch.empty(moved // 4, dtype=torch.float16, device="cuda").normal_()
    target = torch.empty_like(source)
    return lambda: target.copy_(source)
