"""Layers and a product whose tensors have 2^31 elements or more, beside cuDNN's and cuBLAS's.

    python experiments/large_tensors.py FOLDER [SECONDS] [--dry]

writes large_tensors.jsonl into a folder: a line for each of `CASES`. An offset into such a tensor
takes 64 bits. Data are made on the GPU. Each result is compared with float64 at the ends, around
elements 2^31 and 2^32 of images and results, and at random; and with all of the library's result,
where it computes the same. On a Hopper with 40 GB and 16 cores it takes a minute. With `--dry` the
kernels are compiled, and no GPU is needed.
"""

import functools
import json
import math
import multiprocessing as mp
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tvm_ffi

import d2ltvm
from d2ltvm.bench import epilogues, libraries, set_bench, sets
from d2ltvm.bench.timing import in_turn, time_together
from d2ltvm.compiler.verify import compare
from d2ltvm.hopper.any_conv import Conv, product
from d2ltvm.hopper.any_layer import any_layer
from d2ltvm.system.devices import describe_device

ALL = {"bias": True, "residual": True, "relu": True}
EACH = 8  # places around a boundary
RANDOM = 100  # places at random
ROUNDS = 3
LONG = 0.3  # seconds of the library's call, from which on it is not called again
PIECE = 2**28  # elements of results that are compared with the library's at once


@dataclass(frozen=True)
class Large:
    """A case: what is large in it, its sizes, and the options of its layer."""

    what: str
    case: sets.Case
    options: dict = field(default_factory=dict)

    @functools.cached_property
    def layer(self):
        return any_layer(self.case.conv, self.case.transposed is not False, **self.options)

    @property
    def kernels(self):
        return [self.layer.kernel(), *([self.layer.copy()] if self.layer.copies else [])]


def convolution(batch, ic, oc, kernel=1, size=224):
    """Sizes of a layer whose padding keeps the size of an image."""
    return sets.Case("large", sets.conv(batch, size, ic, oc, kernel))


CASES = [
    Large("results", convolution(256, 64, 256)),
    Large("images", convolution(256, 256, 64)),
    Large("both, 3 x 3", convolution(512, 128, 128, 3)),
    Large("results of a product", sets.Case("large", product(65536, 65536, 512), True)),
    Large("results of few channels", convolution(1536, 3, 64, 3)),
    Large("images that are copied", convolution(1024, 60, 72)),
    Large("float32 results", convolution(256, 64, 256), {"wide": True}),
    Large("results and a residual", convolution(256, 64, 256), ALL),
    Large("odd channels and a residual", convolution(256, 64, 255), ALL),
    Large("one image", sets.Case("large", Conv(1, (16384, 16384), 16, 32, (3, 3), (1, 1)))),
]


def places_of(conv):
    """Pixels of results: the ends, those around elements 2^31 and 2^32, and some at random."""
    many, (high, wide) = conv.pixels, conv.out
    found = [0, many - EACH]
    for element in (2**31, 2**32):
        found.append(element // conv.oc - EACH // 2)
        image, rest = divmod(element // conv.ic, math.prod(conv.size))
        row, column = divmod(rest, conv.size[1])
        row, column = row // conv.stride[0], column // conv.stride[1]
        found.append((image * high + min(row, high - 1)) * wide + min(column, wide - 1) - EACH // 2)
    around = np.add.outer(np.array(found, "int64"), np.arange(EACH)).reshape(-1)
    some = np.random.default_rng(1).integers(0, many, RANDOM)
    return np.unique([*around[(around >= 0) & (around < many)], *some])


class OnDevice:
    """Pixels of images on the GPU, as `set_bench.exact` asks for them: one by one."""

    def __init__(self, tensor, size):
        self.rows, (self.high, self.wide) = tensor.view(-1, tensor.shape[-1]), size

    def __getitem__(self, index):
        image, row, column = (np.asarray(i, "int64") for i in index)
        return self.at((image * self.high + row) * self.wide + column)

    def at(self, places):
        """Rows by their numbers. Each is a copy of its own, whose offset PyTorch has in 64 bits."""
        torch = libraries.torch_cuda()
        return torch.stack([self.rows[int(place)] for place in places]).cpu().numpy()


def data(large):
    """Random tensors on the GPU by name, and weights in NumPy."""
    torch, conv = libraries.torch_cuda(), large.case.conv
    torch.manual_seed(0)
    half = {"dtype": torch.float16, "device": "cuda"}
    w = np.random.default_rng(0).standard_normal((conv.taps, conv.oc, conv.ic), "float32")
    w = (w * (conv.ic * conv.taps) ** -0.5).astype("float16")
    found = {"x": torch.empty(conv.batch, *conv.size, conv.ic, **half).normal_()}
    if large.options.get("residual"):
        found["residual"] = torch.empty(conv.batch, *conv.out, conv.oc, **half).normal_()
    if large.options.get("bias"):
        found["bias"] = torch.randn(conv.oc, device="cuda")
    return found, w


def ours(large, tensors, w):
    """A function that computes a case, copies included, and what it writes to: NaN before."""
    torch, layer, conv = libraries.torch_cuda(), large.layer, large.case.conv

    def room(shape, dtype):
        return torch.full(shape, math.nan, dtype=getattr(torch, dtype), device="cuda")

    y = room((conv.batch, *conv.out, conv.oc), layer.dtype)
    images = room(layer.images, layer.given_dtype) if layer.copies else tensors["x"]
    weights = torch.from_numpy(layer.weights(w)).cuda()
    added = [tensors[name] for name in ("bias", "residual") if name in tensors]
    partials = [room(layer.partials, "float32")] if layer.partials else []
    given = [[images, weights, *added, *partials, y]]
    if layer.copies:
        given.append([tensors["x"], images])
    launches = [
        set_bench.on_hopper(kernel).bind(*map(tvm_ffi.from_dlpack, some))
        for kernel, some in zip(large.kernels, given, strict=True)
    ][::-1]
    return in_turn(launches), y


def library(large, tensors, w):
    """The library's call, which returns its result in NHWC, and what of the case it computes."""
    torch, conv = libraries.torch_cuda(), large.case.conv
    weights = torch.from_numpy(w).cuda()
    if large.case.transposed:
        a, b = tensors["x"].view(conv.batch, conv.ic), weights[0].T
        z = torch.empty(conv.batch, conv.oc, dtype=a.dtype, device="cuda")
        return (lambda: torch.matmul(a, b, out=z)), "all"
    torch.backends.cudnn.benchmark = True
    images = tensors["x"].permute(0, 3, 1, 2)
    weights = weights.view(*conv.kernel, conv.oc, conv.ic).permute(2, 3, 0, 1)
    weights = weights.contiguous(memory_format=torch.channels_last)
    rest = (conv.stride, conv.pad, conv.dilation)
    if "residual" in tensors:
        bias, residual = tensors["bias"].half(), tensors["residual"].permute(0, 3, 1, 2)
        fused = torch.cudnn_convolution_add_relu
        call = functools.partial(fused, images, weights, residual, 1.0, bias, *rest, 1)
    else:
        call = functools.partial(torch.nn.functional.conv2d, images, weights, None, *rest)
    what = "all" if not large.options.get("wide") else "all, but float16 results"
    return (lambda: call().permute(0, 2, 3, 1)), what


def check(large, tensors, w, y):
    """Compare results with float64 at some places; returns how many."""
    conv = large.case.conv
    places = places_of(conv)
    want, most = set_bench.exact(large.case, OnDevice(tensors["x"], conv.size), w, places)
    given = {"bias": tensors["bias"].cpu().numpy()} if "bias" in tensors else {}
    if "residual" in tensors:
        given["residual"] = OnDevice(tensors["residual"], conv.out).at(places)
    want, most = epilogues.finished(large.options, given, np.arange(len(places)), want, most)
    found = OnDevice(y, conv.out).at(places)
    compare("Y", found, want, most, 2 * conv.ic * conv.taps + 4, sums="float32")
    return len(places)


def apart(y, z):
    """The largest difference of all elements of two results, NaN if one of them is NaN."""
    torch, (y, z) = libraries.torch_cuda(), (t.reshape(-1, t.shape[-1]) for t in (y, z))
    step = PIECE // y.shape[-1]
    pieces = [(y[k : k + step] - z[k : k + step]).abs().max() for k in range(0, len(y), step)]
    return float(torch.stack(pieces).max())


def measured(large):
    """What becomes of a case: places that are right, differences, microseconds, errors."""
    torch, started = libraries.torch_cuda(), time.time()
    tensors, w = data(large)
    run, y = ours(large, tensors, w)
    run()
    torch.cuda.synchronize()
    line = {"title": large.case.title, "what": large.what, "plan": str(large.layer.plan)}
    line |= {"options": large.options, "way": large.layer.way, "errors": {}, "us": {}}
    line["elements"] = [t.numel() for t in (tensors["x"], y)]
    runs = {}
    try:
        line["places"] = check(large, tensors, w, y)
        runs["TVM"] = run
    except Exception as error:
        line["errors"]["TVM"] = repr(error)[:300]
    try:
        call, line["library"] = library(large, tensors, w)
        z = call()
        torch.cuda.synchronize()
        line["apart"] = apart(y, z)
        del z
        started_call = time.perf_counter()
        call()
        torch.cuda.synchronize()
        if (once := time.perf_counter() - started_call) < LONG:
            runs["library"] = call
        else:
            line["library, once, s"] = round(once, 3)
    except Exception as error:
        line["errors"]["library"] = repr(error)[:300]
    line["data and checks, s"] = round(time.time() - started, 1)
    times = time_together(runs, "graph", ROUNDS)
    line["us"] = {
        n: [round(1e6 * s, 1) for s in (t.median, t.low, t.high)] for n, t in times.items()
    }
    return line


def compiled(k):
    """Have a case's kernels in the cache, or compile them for no GPU; one that fails is told of."""
    for kernel in CASES[k].kernels:
        try:
            if "--dry" in sys.argv:
                built = d2ltvm.build(kernel, "sm_90a")
                print(CASES[k].what, len(built.cubin("sm_90a")), "bytes", flush=True)
            else:
                set_bench.on_hopper(kernel)
        except Exception as error:
            print(CASES[k].what, repr(error)[-300:], flush=True)


def main():
    dry, (folder, *rest) = "--dry" in sys.argv, [a for a in sys.argv[1:] if a != "--dry"]
    end, path = time.time() + float((rest or [300])[0]), Path(folder) / "large_tensors.jsonl"
    with mp.get_context("spawn").Pool(2 if dry else len(CASES)) as pool:
        pool.map(compiled, range(len(CASES)), chunksize=1)
    print(len(CASES), "compiled", flush=True)
    if dry:
        return
    path.write_text(json.dumps({"device": describe_device()}, default=str) + "\n")
    for large in CASES:
        if time.time() < end:
            started = time.time()
            try:
                line = measured(large)
            except Exception as error:
                line = {"title": large.case.title, "what": large.what, "failed": repr(error)[:500]}
            line["took, s"] = round(time.time() - started, 1)
            libraries.torch_cuda().cuda.empty_cache()
            print(line, flush=True)
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            if "CUDA error" in str(line):  # nothing runs in this process any more
                break


if __name__ == "__main__":
    main()
