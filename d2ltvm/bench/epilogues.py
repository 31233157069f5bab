"""`python -m d2ltvm bench --set epilogues`: what bias, ReLU, residual, scale and float32 cost.

Each layer of `sets.layers`, or product, is timed without an epilogue and with each of `EPILOGUES`,
in turns, beside cuDNN's convolution and its fused calls, of which there are two, or cuBLAS's
product and those that it has.
"""

import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from d2ltvm.bench import libraries
from d2ltvm.bench.contenders import Array, Run
from d2ltvm.bench.records import stored_lines
from d2ltvm.bench.set_bench import (
    HOPPER,
    LIBRARY,
    OURS,
    CaseSetting,
    data,
    exact,
    ours,
    repeated,
    some_places,
)
from d2ltvm.bench.sets import Case
from d2ltvm.compiler.verify import compare
from d2ltvm.hopper.any_layer import any_layer

BIAS, RESIDUAL, WIDE = "bias, ReLU", "bias, residual, ReLU", "float32"
ADDED = "residual"  # of a library that adds nothing else with it
EPILOGUES: dict[str, dict[str, Any]] = {
    BIAS: {"bias": True, "relu": True},
    "scale, bias, ReLU": {"scale": True, "bias": True, "relu": True},
    RESIDUAL: {"bias": True, "residual": True, "relu": True},
    WIDE: {"wide": True},
}
LAST, BEFORE = "epilogues.jsonl", "epilogues_before.jsonl"  # files of what was measured

Fused = Callable[[Case, Array, Array, Array, Array], dict[str, Run]]


def torch_fused(case: Case, x: Array, w: Array, bias: Array, residual: Array) -> dict[str, Run]:
    """The library's fused calls, which take the bias in float16: by name of `EPILOGUES`."""
    if case.transposed is not None:
        return cublas_fused(case, x, w, bias, residual)
    torch = libraries.torch_cuda()
    c = case.conv
    images, added = (torch.from_numpy(a).cuda().permute(0, 3, 1, 2) for a in (x, residual))
    weights = torch.from_numpy(w.reshape(*c.kernel, c.oc, c.ic)).cuda().permute(2, 3, 0, 1)
    weights = weights.contiguous(memory_format=torch.channels_last)
    own = torch.from_numpy(bias.astype("float16")).cuda()
    rest = (c.stride, c.pad, c.dilation, 1)
    runs: dict[str, Run] = {
        BIAS: lambda: torch.cudnn_convolution_relu(images, weights, own, *rest),
        RESIDUAL: lambda: torch.cudnn_convolution_add_relu(images, weights, added, 1.0, own, *rest),
    }
    for run in runs.values():
        run()
    return runs


def cublas_fused(case: Case, x: Array, w: Array, bias: Array, residual: Array) -> dict[str, Run]:
    """cuBLAS's, of a product. It adds a residual in its place, with no bias and no ReLU: `ADDED`.

    The residual is half of what it was before each call: so it stays finite, call after call.
    """
    torch = libraries.torch_cuda()
    c = case.conv
    given = (x.reshape(c.batch, c.ic), w[0], residual.reshape(c.batch, c.oc))
    a, b, z = (torch.from_numpy(array).cuda() for array in given)
    b = b.T if case.transposed else b
    own, y = torch.from_numpy(bias.astype("float16")).cuda(), torch.empty_like(z)
    runs: dict[str, Run] = {
        BIAS: lambda: torch._addmm_activation(own, a, b, out=y),
        ADDED: lambda: z.addmm_(a, b, beta=0.5),
        WIDE: lambda: torch.mm(a, b, out_dtype=torch.float32),
    }
    for run in runs.values():
        run()
    return runs


def values(case: Case) -> dict[str, Array]:
    """Random scale and bias of each channel, in float32, and residual, in float16.

    >>> from d2ltvm.bench.sets import layers
    >>> {name: array.shape for name, array in values(layers()[1]).items()}
    {'scale': (64,), 'bias': (64,), 'residual': (1, 56, 56, 64)}
    """
    c = case.conv
    rng = np.random.default_rng(2)
    scale, bias = rng.standard_normal((2, c.oc), "float32")
    return {"scale": scale, "bias": bias, "residual": repeated(rng, (c.batch, *c.out, c.oc))}


def finished(
    options: Mapping[str, Any], given: Mapping[str, Array], places: Array, want: Array, most: Array
) -> tuple[Array, Array]:
    """What an epilogue makes of sums at some pixels, and of the magnitudes in them, in float64."""
    if options.get("scale"):
        want, most = want * given["scale"].astype("float64"), most * np.abs(given["scale"])
    if options.get("bias"):
        want, most = want + given["bias"].astype("float64"), most + np.abs(given["bias"])
    if options.get("residual"):
        added = given["residual"].reshape(-1, want.shape[1])[places].astype("float64")
        want, most = want + added, most + np.abs(added)
    return np.maximum(want, 0) if options.get("relu") else want, most


def extras(options: Mapping[str, Any], given: Mapping[str, Array]) -> list[Array]:
    """What a kernel takes for an epilogue: see `hopper.conv_any`."""
    bias = np.stack([given["scale"], given["bias"]]) if options.get("scale") else given["bias"]
    found = [bias] if options.get("bias") else []
    return [*found, given["residual"]] if options.get("residual") else found


def sides(case: Case, setting: CaseSetting = HOPPER, fused: Fused = torch_fused) -> dict[str, Run]:
    """Functions that compute a case once: the library's and ours, plain and with epilogues.

    Raises:
        WrongResultError: one of ours is wrong.
        MissingError: there is no Hopper, or no PyTorch.
    """
    x, w = data(case)
    given = values(case)
    places = some_places(case)
    sums = exact(case, x, w, places)
    runs: dict[str, Run] = {}
    for name, options in {"": {}, **EPILOGUES}.items():
        layer = (
            any_layer(case.conv, case.transposed is not False, **options)
            if options
            else setting.choose(case)
        )
        run, result = ours(layer, x, w, setting, extras(options, given))
        y = result().reshape(case.conv.pixels, case.conv.oc)[places]
        want, most = finished(options, given, places, *sums)
        compare("Y", y, want, most, terms=2 * case.conv.ic * case.conv.taps + 4, sums="float32")
        runs[named(OURS, name)] = run
    runs[LIBRARY] = setting.library(case, x, w)
    both = fused(case, x, w, given["bias"], given["residual"])
    return runs | {named(LIBRARY, name): run for name, run in both.items()}


def named(side: str, epilogue: str) -> str:
    """A legend.

    >>> named("TVM", ""), named("TVM", "float32")
    ('TVM', 'TVM, float32')
    """
    return f"{side}, {epilogue}" if epilogue else side


def costs(cases: Mapping[str, Any], clock: str, side: str = OURS) -> dict[str, list[float]]:
    """By epilogue, the time with it over the time without, of each layer that has both.

    >>> costs({"a layer": {"burst": {"TVM": 10.0, "TVM, float32": 12.0}}}, "burst")
    {'float32': [1.2]}
    """
    found: dict[str, list[float]] = {}
    for name in EPILOGUES:
        for case in cases.values():
            times = case.get(clock, {})
            if named(side, name) in times:
                found.setdefault(name, []).append(times[named(side, name)] / times[side])
    return found


def summary(cases: Mapping[str, Any], clock: str) -> str:
    """What epilogues cost on both sides, and how fast ours is beside cuDNN's fused calls."""
    lines = []
    for name, own in costs(cases, clock).items():
        line = f"{clock}: {name:20} {statistics.geometric_mean(own):.3f} of the plain kernel's time"
        times = [c[clock] for c in cases.values() if named(LIBRARY, name) in c.get(clock, {})]
        if times:
            theirs = statistics.geometric_mean(costs(cases, clock, LIBRARY)[name])
            ratios = [t[named(LIBRARY, name)] / t[named(OURS, name)] for t in times]
            line += f", the library's {theirs:.3f}; geometric mean of the ratios "
            line += f"{statistics.geometric_mean(ratios):.3f}"
        lines.append(line)
    return "\n".join(lines)


def timed_epilogues(file: str = LAST, device: str = "nvidia-h200") -> dict[str, dict[str, Any]]:
    """What was measured of all layers, by title, as `costs` and `summary` take it.

    >>> found = timed_epilogues()
    >>> len(found), max(costs(found, "graph")[BIAS]) < 1.5
    (139, True)

    Args:
        file: `LAST`; or `BEFORE`, of kernels that read biases from global memory as they needed
            them, and a residual element by element.
        device: a folder under book/measurements.
    """
    return {line["title"]: {"graph": line["us"]} for line in stored_lines(file, device)[1:]}


def moved(case: Case, name: str = "") -> int:
    """The bytes that a layer's tensors have, with an epilogue: it has to move them at least once.

    >>> from d2ltvm.bench.sets import layers
    >>> moved(layers()[1]), moved(layers()[1], RESIDUAL) - moved(layers()[1], BIAS)
    (811008, 401408)
    """
    c, options = case.conv, EPILOGUES.get(name, {})
    results = c.pixels * c.oc * (4 if options.get("wide") else 2)
    results += 2 * c.pixels * c.oc * bool(options.get("residual"))
    by_channel = 4 * c.oc * (bool(options.get("bias")) + bool(options.get("scale")))
    return 2 * (math.prod((c.batch, *c.size, c.ic)) + c.taps * c.oc * c.ic) + results + by_channel


def spilled(title: str, file: str = LAST, device: str = "nvidia-h200") -> dict[str, int]:
    """Bytes of registers that did not fit, of a thread, of a layer's kernels, by epilogue.

    >>> spilled("ResNet-50, 32 images: 1 x 1, 64 to 256, 56 x 56")[BIAS]
    0

    Args:
        title: of a layer whose kernels were looked at.
        file, device: as for `timed_epilogues`.
    """
    header: dict[str, Any] = stored_lines(file, device)[0]
    return dict(header["spilled"][title])
