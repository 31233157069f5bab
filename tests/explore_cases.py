"""What each model of the figures is given, and what the package says to the same.

`tests/test_explore.py` holds the models in QuickJS against it, and `tests/web` in a browser.
"""

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import d2ltvm
from d2ltvm import layouts
from d2ltvm.analysis import coalescing, in_flight, patterns, ring_timeline, roofline, tiling, waves
from d2ltvm.analysis.emulator.shared import Barrier, Shared
from d2ltvm.compiler.launches import TensorMap
from d2ltvm.compute import ops, windows
from d2ltvm.system.chips import CHIPS


class Case(NamedTuple):
    """A model: its arguments by chance, and the package's own result for them."""

    draw: Callable[[np.random.Generator], list[Any]]
    expected: Callable[..., Any]
    shown: Callable[[Any], Any] = lambda result: result  # the part of it that is compared


def of_lanes(first: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """First bytes and whether a lane asks, as the package takes them, for one request."""
    array = np.array([first])
    return np.maximum(array, 0), array >= 0


def request(rng: np.random.Generator) -> list[Any]:
    """Lanes at multiples of a stride, or anywhere, some of which do not ask."""
    width = int(rng.choice([1, 2, 4, 8, 16]))
    lanes = np.arange(32)
    if rng.random() < 0.3:
        lanes = lanes // int(rng.choice([2, 4, 8])) if rng.random() < 0.5 else lanes % 4
    first = lanes * width * int(rng.integers(0, 40))
    if rng.random() < 0.4:
        first = rng.integers(0, 300, 32) * width
    active = rng.random(32) < rng.choice([0.3, 1, 1])
    active[0] = True
    return [np.where(active, first, -1).tolist(), width, str(rng.choice(["read", "write"]))]


def wavefronts(first: list[int], width: int, kind: str) -> int:
    passes, _ = coalescing.wavefronts(*of_lanes(first), width, kind)
    return int(passes[0])


def tile(rng: np.random.Generator) -> list[Any]:
    """A tile that a warp can be given, cut in a way that fits."""
    width, vthreads, loads, across = (int(2 ** rng.integers(0, k)) for k in (3, 3, 3, 6))
    each = width * vthreads * loads
    state = {
        "columns": across * each * int(rng.integers(1, 5)),
        "padding": width * int(rng.integers(0, 9)),
        "across": across,
        "each": each,
        "vthreads": vthreads,
        "width": width,
        "same_row": int(rng.integers(0, 2)),
        "swizzle": int(rng.integers(0, 2)),
    }
    return [state]


def addresses(state: dict[str, int]) -> list[int]:
    return list(patterns.from_tile(**state).first.values())


SIZES = {"int8": 1, "float16": 2, "float32": 4, "float64": 8}


def stride(rng: np.random.Generator) -> list[Any]:
    """Accesses with a stride that a GPU makes."""
    dtype = str(rng.choice(list(SIZES)))
    width = int(2 ** rng.integers(0, 5 - int(np.log2(SIZES[dtype]))))
    offset = width * int(rng.integers(0, 40))
    return [{"stride": int(rng.integers(0, 70)), "offset": offset, "width": width, "dtype": dtype}]


def strided(state: dict[str, Any]) -> list[int]:
    size = SIZES[state["dtype"]]
    request = patterns.strided(state["stride"], state["offset"], state["width"], size)
    return list(request.first.values())


def requested(first: list[int], width: int, *_: Any) -> dict[str, int]:
    lanes = of_lanes(first)
    found = {
        "sectors": coalescing.sectors(*lanes, width),
        "lines": coalescing.sectors(*lanes, width, coalescing.LINE),
        "used": coalescing.bytes_used(*lanes, width),
    }
    return {name: int(numbers[0]) for name, numbers in found.items()}


ORDERS = ("none", "padding", "32", "64", "128")


def rows(rng: np.random.Generator) -> list[Any]:
    row, along = int(rng.choice([32, 64, 128])), str(rng.choice(["column", "row"]))
    which = int(rng.integers(0, row // 16 if along == "column" else 8))
    return [row, str(rng.choice(ORDERS)), which, along]


def of_rows(row: int, order: str, which: int, along: str) -> list[int]:
    first = patterns.of_rows(row, order, which, along).first
    return [first.get(lane, -1) for lane in range(32)]


def convolution(rng: np.random.Generator) -> list[Any]:
    """Image, kernel, padding, stride and dilation, some of which make no output."""
    return [int(rng.integers(low, high)) for low, high in ((1, 20), (1, 8), (0, 6), (1, 5), (1, 5))]


def out_size(n: int, k: int, p: int, s: int, d: int) -> int:
    """Of a kernel that covers as many pixels; 0 where the package says that there is none."""
    try:
        return d2ltvm.conv_out_size(n, (k - 1) * d + 1, p, s)
    except ValueError:
        return 0


def pixels_under(*sizes: int) -> list[list[int]]:
    return windows.pixels_under(*sizes).tolist() if out_size(*sizes) else []


def padding_products(*sizes: int) -> dict[str, Any]:
    o, k = out_size(*sizes), sizes[1]
    found = windows.padding_products(*sizes) if o else np.zeros((0, 0, k, k), bool)
    return {
        "outputs": found.sum(axis=(2, 3)).tolist(),
        "taps": found.sum(axis=(0, 1)).tolist(),
        "zeros": int(found.sum()),
        "all": found.size,
    }


def ring(rng: np.random.Generator) -> list[Any]:
    """A ring whose times are like each other, or not; one in four is not broken."""
    stages, rounds = rng.integers(1, [7, 21])
    unit = int(rng.choice([1, 32]))
    transfer, latency, multiply = rng.integers([1, 0, 1], [12, 40, 30]) * unit
    given = [int(n) for n in (stages, rounds, transfer, latency, multiply)]
    kinds = list(ring_timeline.BROKEN)
    broken = "nothing" if rng.random() < 0.15 else kinds[rng.integers(len(kinds))]
    return [*given, int(rng.integers(1, 4)) * unit, broken]


def element(rng: np.random.Generator) -> list[Any]:
    """Of an operand of a warp's or a warpgroup's instruction."""
    what = str(rng.choice([*HOLDERS]))
    rows, columns = {"sums": (64, 256), "mma_b": (16, 8), "mma_c": (16, 8)}.get(what, (16, 16))
    return [what, int(rng.integers(rows)), int(rng.integers(columns))]


HOLDERS: dict[str, Callable[..., Any]] = {
    "mma_a": layouts.lane_a,
    "mma_b": layouts.lane_b,
    "mma_c": layouts.lane_c,
    "wmma_a": functools.partial(layouts.fragment, kind="matrix_a"),
    "wmma_b": functools.partial(layouts.fragment, kind="matrix_b"),
    "wmma_c": functools.partial(layouts.fragment, kind="accumulator"),
    "ldmatrix": layouts.ldmatrix_lane,
    "ldmatrix_trans": functools.partial(layouts.ldmatrix_lane, trans=True),
    "sums": layouts.accumulator,
}


def timeline(*given: Any) -> dict[str, Any]:
    """As JSON has it."""
    found = ring_timeline.ring_timeline(*given)
    return {**dataclasses.asdict(found), "waits": [wait._asdict() for wait in found.waits]}


def shapes(rng: np.random.Generator) -> list[list[int]]:
    """Two shapes, of which about half broadcast."""
    whole = rng.integers(1, 6, rng.integers(1, 5))
    found = []
    for _ in range(2):
        shape = np.where(rng.random(len(whole)) < 0.4, 1, whole)[rng.integers(0, len(whole)) :]
        found.append(np.where(rng.random(len(shape)) < 0.1, rng.integers(1, 6), shape).tolist())
    return found


def fitting(rng: np.random.Generator) -> list[list[int]]:
    """Two shapes that broadcast."""
    while True:
        one, two = shapes(rng)
        try:
            np.broadcast_shapes(tuple(one), tuple(two))
        except ValueError:
            continue
        return [one, two]


def broadcast(one: list[int], two: list[int]) -> list[int] | list[str]:
    """The result's shape; else the axis and the sizes that the package's error names."""
    try:
        return list(ops.broadcast_shape(tuple(one), tuple(two)))
    except ValueError as error:
        (found,) = re.findall(r"dimension (\d+) of the result would be (\d+) and (\d+)", str(error))
        return list(found)


def broadcast_shown(result: dict[str, Any]) -> list[int] | list[str]:
    misfit = result["misfit"]
    return [str(x) for x in (misfit["axis"], *misfit["sizes"])] if misfit else result["shape"]


def element_of_sum(rng: np.random.Generator) -> list[list[int]]:
    """A shape, and an index of a sum that it is broadcast to."""
    one, two = fitting(rng)
    return [one, [int(rng.integers(size)) for size in np.broadcast_shapes(tuple(one), tuple(two))]]


def source(shape: list[int], index: list[int]) -> list[int]:
    """By NumPy: which element stands there when a tensor is broadcast."""
    whole = [i + 1 for i in index]
    for k, size in enumerate(reversed(shape), 1):
        whole[-k] = max(whole[-k], size)
    numbers = np.arange(np.prod(shape)).reshape(shape)
    return list(np.argwhere(numbers == np.broadcast_to(numbers, whole)[tuple(index)])[0])


def broadcast_bytes(one: list[int], two: list[int], each: int) -> dict[str, int]:
    a, b, c = d2ltvm.get_bcast_data(tuple(one), tuple(two))
    a, b, c = (x.astype(f"int{8 * each}", casting="unsafe") for x in (a, b, np.zeros(c.shape)))
    loaded = sum(np.broadcast_to(x, c.shape).nbytes for x in (a, b))
    return {"loaded": loaded, "once": a.nbytes + b.nbytes, "written": c.nbytes}


def tma(rng: np.random.Generator) -> list[list[int]]:
    """An image, the corner of a box, which may be far outside, and its shape."""
    return [rng.integers(*ends, 2).tolist() for ends in ((1, 12), (-9, 15), (1, 12))]


def fetched(image: list[int], corner: list[int], shape: list[int]) -> list[int]:
    """Pixels count from 1 here, so that TMA's zeros are none of them."""
    pixels = np.arange(1, np.prod(image) + 1).reshape(image)
    return (layouts.box(pixels, corner, shape) - 1).ravel().tolist()


def stored(image: list[int], corner: list[int], shape: list[int]) -> list[int]:
    tensor = np.full(image, -1)
    layouts.put(tensor, corner, np.arange(np.prod(shape)).reshape(shape))
    return tensor.ravel().tolist()


def box_bytes(image: list[int], corner: list[int], shape: list[int], each: int) -> dict[str, int]:
    """Of pixels of ones; an emulated TMA tells the barrier how many bytes came."""
    ones = np.ones((*image, each // 2), "float16")
    found = layouts.box(ones, (*corner, 0), (*shape, each // 2))
    tensor_map = TensorMap("X", ones.shape, found.shape, "float16", swizzled=0, simple=True)
    shared, barrier = Shared(found.nbytes, {"X": tensor_map}, {"X": ones}), Barrier(1)
    shared.fetch(0, "X", (*corner, 0), barrier)
    shared.deliver()
    inside = int((found == 1).sum()) * 2
    return {"image": inside, "zeros": found.nbytes - inside, "barrier": -barrier.nbytes}


def launch(rng: np.random.Generator) -> list[Any]:
    """A GPU, threads, registers and bytes of shared memory that a block can have there."""
    gpu = str(rng.choice(list(CHIPS)))
    shared = int(rng.integers(0, CHIPS[gpu].shared_block_kib * 1024 + 1))
    return [gpu, int(rng.integers(1, 1025)), int(rng.integers(1, 256)), shared * (shared % 4 > 0)]


def held(*arguments: Any) -> dict[str, Any]:
    found = dataclasses.asdict(d2ltvm.occupancy(*arguments))
    return {name: found[name] for name in ("blocks", "warps", "share", "limit")}


def some(rng: np.random.Generator, *most: int) -> list[int]:
    """Positive integers up to these."""
    return [int(rng.integers(1, each + 1)) for each in most]


def product_tiles(rng: np.random.Generator) -> list[Any]:
    levels = (4, 8, 32, 16)
    return [some(rng, *3 * [5000]), some(rng, *levels), some(rng, *levels), *some(rng, 64, 4)]


def conv_tiles(rng: np.random.Generator) -> list[Any]:
    (oc, ic, n, s), k = some(rng, 300, 300, 70, 3), int(rng.choice([1, 3, 5]))
    shape = [oc, ic, n + k, k, int(rng.integers(0, k)), s]
    return [shape, [some(rng, 2, 16, 8) for _ in range(3)], *some(rng, 8)]


def dealt(rng: np.random.Generator) -> list[Any]:
    """Tiles, multiprocessors and the rest of what `waves.deal` takes."""
    split = int(rng.choice([1, 1, 2, 4]))
    tiles, sms, an_sm, rounds = some(rng, 300, 140, 4, 60)
    way, faster = str(rng.choice(waves.WAYS)), int(rng.choice([0, 0, 33]))
    return [tiles, sms, an_sm, max(split, rounds), split, int(rng.integers(0, 9)), way, faster]


def deal(*arguments: Any) -> dict[str, Any]:
    found = waves.deal(*arguments)
    places = [[piece._asdict() for piece in pieces] for pieces in found.places]
    return {"places": places, **{name: getattr(found, name) for name in DEALT}}


def near(result: dict[str, Any]) -> dict[str, Any]:
    """A model's result, with shares that may have been rounded in another order."""
    return {k: pytest.approx(v) if isinstance(v, float) else v for k, v in result.items()}


def loads(rng: np.random.Generator) -> list[Any]:
    gpu, (threads, latency, loads) = str(rng.choice(list(CHIPS))), some(rng, 1024, 1000, 16)
    given = [gpu, threads, latency, int(rng.choice([1, 2, 4, 8, 16])), loads]
    return [*given, float(rng.uniform(0.1, 5))] if rng.random() < 0.5 else given


def under_way(*arguments: Any) -> dict[str, Any]:
    return dataclasses.asdict(in_flight.in_flight(*arguments))


def intensity(rng: np.random.Generator) -> list[Any]:
    gpu = str(rng.choice(list(CHIPS)))
    return [gpu, float(10 ** rng.uniform(-2, 4)), int(rng.integers(1, CHIPS[gpu].sms + 1))]


DEALT = ("waves", "time", "busy", "sums")

CASES = {
    "attainable": Case(intensity, roofline.attainable),
    "convTiling": Case(
        conv_tiles,
        lambda shape, tiles, depth: dataclasses.asdict(tiling.conv_tiling(shape, *tiles, depth)),
    ),
    "deal": Case(dealt, deal, near),
    "inFlight": Case(loads, under_way),
    "occupancy": Case(launch, held),
    "productTiling": Case(
        product_tiles, lambda *sizes: dataclasses.asdict(tiling.product_tiling(*sizes))
    ),
    "boxBytes": Case(lambda rng: [*tma(rng), int(rng.choice([16, 32, 64]))], box_bytes),
    "fetched": Case(tma, fetched),
    "stored": Case(tma, stored),
    "broadcast": Case(shapes, broadcast, broadcast_shown),
    "broadcastBytes": Case(
        lambda rng: [*fitting(rng), int(rng.choice([1, 2, 4, 8]))], broadcast_bytes
    ),
    "source": Case(element_of_sum, source),
    "addresses": Case(tile, addresses),
    "ofRows": Case(rows, of_rows),
    "requested": Case(request, requested),
    "rowPlaces": Case(
        lambda rng: rows(rng)[:2], lambda row, order: patterns.row_places(row, order).tolist()
    ),
    "strided": Case(stride, strided),
    "swizzled": Case(
        lambda rng: [int(rng.integers(0, 2**16)), int(rng.choice([32, 64, 128]))],
        lambda byte, span: int(layouts.swizzle(byte, span)),
    ),
    "outSize": Case(convolution, out_size),
    "paddingProducts": Case(convolution, padding_products),
    "pixelsUnder": Case(convolution, pixels_under),
    "givenRow": Case(
        lambda rng: [int(rng.integers(32))], lambda lane: [*layouts.ldmatrix_row(lane)]
    ),
    "holder": Case(element, lambda what, i, j: [*HOLDERS[what](i, j)]),
    "place": Case(
        lambda rng: [int(rng.integers(256)), int(rng.integers(64))], layouts.swizzle_128b
    ),
    "ringTimeline": Case(ring, timeline),
    "wavefronts": Case(request, wavefronts, lambda result: result["passes"]),
}
