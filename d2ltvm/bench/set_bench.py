"""`python -m d2ltvm bench --set layers`, or products: kernels for any shape beside the library's.

What is measured is kept in a file after each case, so that a run that was cut off goes on from
there.
"""

import argparse
import datetime
import functools
import json
import math
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from d2ltvm.bench import libraries
from d2ltvm.bench.contenders import Array, Run
from d2ltvm.bench.hopper_layers import BOTH, on_hopper
from d2ltvm.bench.measurement import ClockNames, as_clocks, legends
from d2ltvm.bench.on_fleet import run_parts
from d2ltvm.bench.progress import progress
from d2ltvm.bench.records import software
from d2ltvm.bench.sets import Case, layers, products, unseen
from d2ltvm.bench.timing import Timing, in_turn, time_together
from d2ltvm.compiler.verify import WrongResultError, compare
from d2ltvm.errors import MissingError, shown
from d2ltvm.fleet import FleetError, choosing
from d2ltvm.fleet.measuring import Servers
from d2ltvm.hopper.any_layer import Layer, any_layer
from d2ltvm.system import devices

SETS: dict[str, Callable[[], list[Case]]] = {
    "layers": layers,
    "products": products,
    "unseen": unseen,
    "epilogues": layers,
}
LIBRARY, OURS = "library", "TVM"
PERIOD = 2**22 - 3  # a prime number: random data is repeated behind so many
PLACES = 64  # pixels of a result that are compared with float64


def torch_sides(case: Case, x: Array, w: Array, tf32: bool = False) -> Run:
    """The library's contender: cuDNN in its benchmark mode, channels last, or cuBLAS.

    Of float32, with `tf32`, it may read 19 bits of each number.
    """
    torch = libraries.torch_cuda()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
    c = case.conv
    if case.transposed is not None:
        a = torch.from_numpy(x.reshape(c.batch, c.ic)).cuda()
        b = torch.from_numpy(w.reshape(w.shape[1:])).cuda()
        b = b.T if case.transposed else b
        z = torch.empty(c.batch, c.oc, dtype=a.dtype, device="cuda")
        return lambda: torch.matmul(a, b, out=z)
    cudnn = torch.backends.cudnn
    cudnn.benchmark, cudnn.benchmark_limit = True, 0
    images = torch.from_numpy(x).cuda().permute(0, 3, 1, 2)
    weights = torch.from_numpy(w.reshape(*c.kernel, c.oc, c.ic)).cuda().permute(2, 3, 0, 1)
    weights = weights.contiguous(memory_format=torch.channels_last)
    # The search goes by the clock, and the first kernels of a process are slow to load. So it is
    # rehearsed on images that are one row higher.
    higher = torch.nn.functional.pad(images, (0, 0, 0, 1))
    for given in (higher, images, images):
        torch.nn.functional.conv2d(given, weights, None, c.stride, c.pad, c.dilation)
    return lambda: torch.nn.functional.conv2d(images, weights, None, c.stride, c.pad, c.dilation)


def chosen(case: Case) -> Layer:
    """How a case is run: by the plan that is known as the fastest, or else by the model."""
    return any_layer(case.conv, case.transposed is not False)


def by_model(case: Case) -> Layer:
    """The same by the model of `hopper.any_model` alone."""
    return any_layer(case.conv, case.transposed is not False, known=False)


@dataclass(frozen=True)
class CaseSetting:
    """Where kernels run, and what runs beside them. By default a Hopper with its libraries.

    Attributes:
        build: function of a kernel that returns what `d2ltvm.build` does.
        library: function of a case, images and weights that returns the library's run; of float32,
            also of `tf32`, as for `torch_sides`.
        device: function that says what GPU it is.
        choose: function of a case that returns how it is run: `chosen`, `by_model`, or by
            `tuning.tune`.
    """

    build: Callable[[Any], Any] = on_hopper
    library: Callable[..., Run] = torch_sides
    device: Callable[[], dict[str, str]] = devices.describe_device
    choose: Callable[[Case], Layer] = chosen


HOPPER = CaseSetting()


class Sides(dict[str, Run]):
    """Functions that compute a case once, by legend, and what else is kept of it."""

    def __init__(self, runs: Mapping[str, Run], **found: Any) -> None:
        super().__init__(runs)
        self.found = found


def data(case: Case, dtype: str = "float16") -> tuple[Array, Array]:
    """Random images (batch, h, w, ic) and weights (taps, oc, ic), or (1, ic, oc).

    >>> [array.shape for array in data(layers()[1])]
    [(1, 56, 56, 64), (1, 64, 64)]
    """
    c = case.conv
    rng = np.random.default_rng(0)
    w_shape = (1, c.ic, c.oc) if case.transposed is False else (c.taps, c.oc, c.ic)
    images = repeated(rng, (c.batch, *c.size, c.ic), 1.0, dtype)
    return images, repeated(rng, w_shape, (c.ic * c.taps) ** -0.5, dtype)


def repeated(
    rng: np.random.Generator, shape: tuple[int, ...], scale: float = 1.0, dtype: str = "float16"
) -> Array:
    """Random numbers of a shape, normally distributed; behind `PERIOD` of them they come again."""
    size = math.prod(shape)
    values = rng.standard_normal(min(size, PERIOD), "float32") * np.float32(scale)
    return np.resize(values.astype(dtype), shape)


def some_places(case: Case) -> Array:
    """Pixels of a case's results, of all images, that are compared: its ends, and random ones."""
    many = case.conv.pixels
    ends = np.clip([0, 1, many // 2, many - 2, many - 1], 0, many - 1)
    return np.unique([*ends, *np.random.default_rng(1).integers(0, many, PLACES)])


def exact(case: Case, x: Array, w: Array, places: Array) -> tuple[Array, Array]:
    """Results at some pixels, and the sums of the magnitudes added up there, in float64.

    Args:
        case, x, w: as `data` makes them.
        places: of pixels, as integers: those of all images are numbered one behind the other.
    """
    c = case.conv
    high, wide = c.out
    weights = w.astype("float64")
    if case.transposed is False:
        weights = weights.transpose(0, 2, 1)
    image, row, column = places // (high * wide), places // wide % high, places % wide
    want = np.zeros((len(places), c.oc))
    most = np.zeros_like(want)
    for tap in range(c.taps):
        y = row * c.stride[0] - c.pad[0] + tap // c.kernel[1] * c.dilation[0]
        z = column * c.stride[1] - c.pad[1] + tap % c.kernel[1] * c.dilation[1]
        inside = (y >= 0) & (y < c.size[0]) & (z >= 0) & (z < c.size[1])
        pixels = x[image, np.where(inside, y, 0), np.where(inside, z, 0)].astype("float64")
        pixels[~inside] = 0
        want += pixels @ weights[tap].T
        most += np.abs(pixels) @ np.abs(weights[tap]).T
    return want, most


def sides(case: Case, setting: CaseSetting = HOPPER) -> Mapping[str, Run]:
    """Functions that compute a case once, by legend: the library's, and ours, which is checked.

    Raises:
        WrongResultError: ours is wrong.
        MissingError: there is no Hopper, or no PyTorch.
    """
    x, w = data(case)
    run, result = ours(setting.choose(case), x, w, setting)
    y = result().reshape(case.conv.pixels, case.conv.oc)
    places = some_places(case)
    want, most = exact(case, x, w, places)
    compare("Y", y[places], want, most, terms=2 * case.conv.ic * case.conv.taps, sums="float32")
    return {LIBRARY: setting.library(case, x, w), OURS: run}


def ours(
    layer: Layer, x: Array, w: Array, setting: CaseSetting, extras: Sequence[Array] = ()
) -> tuple[Run, Callable[[], Array]]:
    """A function that computes a layer, copies included, and one that returns what it computed.

    Args:
        layer: how it is run.
        x, w: as `data` makes them.
        setting: where.
        extras: what an epilogue takes: see `hopper.conv_any`.
    """
    kernel = setting.build(layer.kernel())
    images = np.full(layer.images, np.nan, x.dtype) if layer.copies else x
    partials = [np.full(layer.partials, np.nan, "float32")] if layer.partials else []
    y = np.full((layer.conv.batch, *layer.conv.out, layer.conv.oc), np.nan, layer.dtype)
    tensors = kernel.upload([images, layer.weights(w), *extras, *partials, y])
    launches = [kernel.bind(*tensors)]
    if layer.copies:
        copy = setting.build(layer.copy())
        launches.insert(0, copy.bind(*copy.upload([x]), tensors[0]))
    run = in_turn(launches)
    run()
    return run, lambda: np.asarray(tensors[-1].numpy())


RunsOf = Callable[[Case, CaseSetting], Mapping[str, Run]]


def run_set(
    cases: Sequence[Case],
    path: Path,
    clock: ClockNames = "burst",
    setting: CaseSetting = HOPPER,
    show: Callable[[int, int, str], None] = progress,
    race: RunsOf = sides,
) -> dict[str, Any]:
    """Measure what a file does not have yet, and keep each result in it.

    Args:
        cases: what is measured.
        path: of the file.
        clock: one or several, as for `time_together`.
        setting: where kernels run, and beside what.
        show: function of how many cases are done, of how many, and the next one's title.
        race: function of a case and the setting that returns runs by legend, among them LIBRARY's
            and OURS.

    Returns:
        What the file holds: device, software, and by the titles of cases what was measured.

    Raises:
        ValueError: the file is of another device, or other versions, or no such file.
    """
    kept = _kept(path, setting.device())
    for done, case in enumerate(cases):
        show(done, len(cases), case.title)
        if "error" not in kept["cases"].get(case.title, {"error": "not yet"}) and not missing(
            kept["cases"][case.title], clock
        ):
            continue
        try:
            runs = race(case, setting)
            found = entry(time_together(runs, clock), clock, tuple(runs))
            found |= getattr(runs, "found", {})
        except WrongResultError as error:
            found = {"error": str(error)}
        kept["cases"][case.title] = {**kept["cases"].get(case.title, {}), **found}
        if "error" not in found:
            kept["cases"][case.title].pop("error", None)
        _keep(path, kept, case.title)
    show(len(cases), len(cases), "")
    return kept


def missing(found: Mapping[str, Any], clock: ClockNames) -> bool:
    """Whether what was found lacks a clock."""
    return any(one not in found for one in as_clocks(clock))


def entry(
    times: Mapping[str, Timing], clock: ClockNames, names: Sequence[str] = (LIBRARY, OURS)
) -> dict[str, Any]:
    """What is kept of a case: by clock, microseconds of all sides, their spread, the ratio."""
    found: dict[str, Any] = {}
    for k, one in enumerate(as_clocks(clock)):
        both = {name: times[legends(name, clock)[k]] for name in names}
        found[one] = {
            **{name: _us(t.median) for name, t in both.items()},
            "spread": {name: [_us(t.low), _us(t.high)] for name, t in both.items()},
            "ratio": float(f"{both[LIBRARY].median / both[OURS].median:.4g}"),
        }
    return found


def _us(seconds: float) -> float:
    return float(f"{seconds * 1e6:.5g}")


def _kept(path: Path, device: dict[str, str]) -> dict[str, Any]:
    """What a file holds, or the beginning of a new one."""
    here = {"device": device, "software": software()}
    if not path.exists():
        return {**here, "date": datetime.date.today().isoformat(), "cases": {}}
    try:
        kept: dict[str, Any] = json.loads(path.read_text())
        there = {name: kept[name] for name in here}
        kept["cases"].items()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} is no file of this command; expected another one") from None
    if there != here:
        raise ValueError(
            f"{path} was measured on {there['device'].get('name')} with {there['software']}; "
            "expected another file, by --to"
        )
    return kept


def _keep(path: Path, kept: dict[str, Any], title: str) -> None:
    """Write a case into a file, whole or not at all; others may write theirs meanwhile."""
    with filelock.FileLock(f"{path}.lock"):
        if path.exists():
            theirs = json.loads(path.read_text())["cases"]
            kept["cases"] = {**kept["cases"], **theirs, title: kept["cases"][title]}
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        partial.write_text(json.dumps(kept, indent=1, allow_nan=False, ensure_ascii=False) + "\n")
        partial.replace(path)


def summary(cases: Mapping[str, Any], clock: str) -> str:
    """The geometric mean of ratios, how many reach 0.95, and the worst."""
    ratios = {title: found[clock]["ratio"] for title, found in cases.items() if clock in found}
    if not ratios:
        return f"{clock}: nothing was measured"
    mean = statistics.geometric_mean(ratios.values())
    behind = sorted((r, title) for title, r in ratios.items() if r < 0.95)
    lines = [
        f"{clock}: geometric mean {mean:.3f} of {len(ratios)}; {len(behind)} are under 0.95"
        + ("," * bool(behind)) + (" the slowest:" if behind else "")
    ]  # fmt: skip
    return "\n".join([*lines, *(f"  {ratio:.2f}  {title}" for ratio, title in behind[:10])])


def table(kept: Mapping[str, Any], titles: Sequence[str], clock: ClockNames) -> str:
    """What was measured, as text, with what it was measured on below."""
    clocks = as_clocks(clock)
    lines = [f"{'':80}" + "".join(f"{one:>29}" for one in clocks)] if len(clocks) > 1 else []
    lines.append(f"{'case':80}" + f"{'library, µs':>12}{'TVM, µs':>10}{'ratio':>7}" * len(clocks))
    for title in titles:
        found = kept["cases"].get(title, {})
        if "error" in found:
            lines.append(f"{title:80}  {found['error']}")
            continue
        cells = (found.get(one) for one in clocks)
        lines.append(f"{title:80}" + "".join(map(_cells, cells)))
    lines += ["", *(summary(kept["cases"], one) for one in clocks)]
    return "\n".join([*lines, f"{kept['device'].get('name')}, {kept['date']}"])


def _cells(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return " " * 29
    return f"{found[LIBRARY]:>12,.1f}{found[OURS]:>10,.1f}{found['ratio']:>7.2f}"


def tuned(how: str = "few") -> CaseSetting:
    """As `HOPPER`, with plans that are measured: a 'few' by the model, or 'many' of all kinds.

    Or with the model's first, unmeasured: 'none'.
    """
    if how == "none":
        return CaseSetting(choose=by_model)
    from d2ltvm.bench.tuning import tune
    from d2ltvm.hopper.many_plans import MANY, varied

    options: dict[str, Any] = {"many": MANY, "choose": varied} if how == "many" else {}
    return CaseSetting(choose=lambda case: tune(case.conv, case.transposed is not False, **options))


def race_of(name: str, numbers: str) -> RunsOf:
    """What runs beside what, of a set."""
    if numbers != "float16":
        from d2ltvm.bench import float32_sets

        return functools.partial(float32_sets.sides, numbers=numbers)
    if name != "epilogues":
        return sides
    from d2ltvm.bench import epilogues

    return epilogues.sides


def part_of(cases: Sequence[Case], part: str | None) -> list[Case]:
    """Every n-th case, beginning with the k-th, of a part 'k/n'; all of them for None.

    >>> len(part_of(layers()[:9], "2/4")), part_of(layers(), "2/4")[0] == layers()[1]
    (2, True)

    Raises:
        ValueError: `part` is none.
    """
    number, slash, count = (part or "1/1").partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ValueError(f"--part is {shown(part)}; expected such as 1/2, the first of two")
    return list(cases)[int(number) - 1 :: int(count)]


def file_of(options: argparse.Namespace) -> str:
    """The name of a set, and of its numbers if they are others than float16."""
    other = f"-{options.numbers}" if options.numbers != "float16" else ""
    return f"{options.set}{other}"


def check_numbers(options: argparse.Namespace) -> None:
    """Refuse what is not measured of float32."""
    if options.numbers != "float16" and (options.tune or options.set == "epilogues"):
        raise ValueError(
            f"--numbers is {options.numbers}; expected float16 with --tune or --set epilogues"
        )


def main(options: argparse.Namespace) -> int:
    """`python -m d2ltvm bench --set …`. Returns the exit status: 1 where a case is wrong."""
    clock: ClockNames = BOTH if options.clock == "both" else options.clock
    path = Path(options.to or f"bench-{file_of(options)}.json")
    try:
        check_numbers(options)
        cases = part_of(SETS[options.set](), options.part)
        if servers := choosing.choose("cuda", options.fleet):
            kept = on_fleet(options, path, servers)
        else:
            devices.need_hopper()
            setting = tuned(options.tune) if options.tune else HOPPER
            kept = run_set(cases, path, clock, setting, race=race_of(options.set, options.numbers))
    except (FleetError, MissingError, ValueError) as error:
        print(f"python -m d2ltvm bench: {error}", file=sys.stderr)
        return 1
    titles = [case.title for case in cases]
    if options.json:
        print(json.dumps(kept, indent=2, allow_nan=False, ensure_ascii=False))
    else:
        print(table(kept, titles, clock))
        if options.set == "epilogues":
            from d2ltvm.bench import epilogues

            print("\n".join(epilogues.summary(kept["cases"], one) for one in as_clocks(clock)))
    return int(any("error" in kept["cases"].get(title, {}) for title in titles))


def on_fleet(options: argparse.Namespace, path: Path, servers: Servers) -> dict[str, Any]:
    """What a file holds when each server of a fleet has measured its part of a set into it.

    Raises:
        FleetError: there is no server of this machine, or not all parts were measured.
    """
    others = ["--clock", options.clock, "--numbers", options.numbers]
    others += ["--tune", options.tune] if options.tune else []
    found = run_parts(options.set, path, others, servers)
    lines = [line for ended in found.values() for line in ended.err.strip().splitlines()[-1:]]
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"cases": {}}
    if left := sum(case.title not in kept["cases"] for case in SETS[options.set]()):
        raise FleetError(f"{left} cases were not measured: {lines[0] if lines else 'no reason'}")
    return kept
