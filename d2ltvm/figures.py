"""Figures of the book: one style for curves, bars, the roofline and pictures of who touches what.

Every function draws a figure and returns nothing, so that a notebook shows it once. Colours are the
Okabe-Ito palette, which colour-blind readers can tell apart, and each series has a marker and a
dash of its own, so that a print in grey can be read too.
"""

import math

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation

# Okabe and Ito, "Color Universal Design", 2008; black last, yellow left out: too pale on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = "osD^vPX"
DASHES = ("-", "--", "-.", (0, (5, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)), "-")
STYLE = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "figure.dpi": 100,
}


def plot(
    X, Y, xlabel=None, ylabel=None, legend=(), xlim=None, ylim=None, xscale="linear",
    yscale="linear", fmts=None, figsize=(7, 4), spread=None, ceilings=(), note=None,
):  # fmt: skip
    """Draw curves.

    >>> d2ltvm.plot([1, 2, 4], [[1, 2, 3], [2, 3, 5]], "n", "GFLOPS", ["NumPy", "TVM"])

    Args:
        X: x values, of all curves or a list of one sequence for each.
        Y: y values of one curve, or a list of one sequence for each.
        xlabel: label of the x axis, with its unit.
        ylabel: label of the y axis, with its unit.
        legend: a name for each curve.
        xlim: (smallest, largest) x shown.
        ylim: (smallest, largest) y shown.
        xscale: 'linear' or 'log', which is to the base 2 here.
        yscale: 'linear' or 'log'.
        fmts: a Matplotlib format string for each curve, in place of the book's own style.
        figsize: width and height in inches.
        spread: for each curve a list of (low, high), drawn as a band.
        ceilings: (value, label) of horizontal lines: what the hardware can do at most.
        note: a line of provenance, below the figure.

    Raises:
        ValueError: lengths that differ, an empty curve, or values that are not finite.
    """
    curves = _curves(X, Y)
    if legend and len(legend) != len(curves):
        raise ValueError(f"legend has {len(legend)} names; {len(curves)} curves want one each")
    with plt.rc_context(STYLE):
        figure, axes = _new(figsize)
        for k, (x, y) in enumerate(curves):
            style = {} if fmts else _line(k)
            label = legend[k] if legend else None
            axes.plot(x, y, *([fmts[k]] if fmts else []), label=label, **style)
            if spread and spread[k]:
                low, high = np.transpose(spread[k])
                axes.fill_between(x, low, high, color=COLOURS[k % len(COLOURS)], alpha=0.2, lw=0)
        for value, label in ceilings:
            _ceiling(axes, value, label)
        _scales(axes, xscale, yscale, curves)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        _limits(axes, xlim, ylim, yscale, ceilings)
        if legend:
            _legend(axes, legend)
        _finish(figure, note)


def plot_gflops(sizes, gflops, legend, xlabel="Size", note=None, **options):
    """Draw GFLOPS against size, both on a logarithmic scale.

    >>> d2ltvm.plot_gflops(sizes, [numpy_gflops, tvm_gflops], ["NumPy", "TVM"])

    Args:
        sizes: x values.
        gflops: for each curve one value a size.
        legend: a name for each curve.
        xlabel: label of the x axis.
        note: a line of provenance, below the figure.
        options: anything else that `plot` takes.
    """
    options = {"xscale": "log", "yscale": "log", **options}
    plot(sizes, gflops, xlabel, "GFLOPS", legend, note=note, **options)


def plot_record(record, legends=None, x=None, xlabel=None, **options):
    """Draw a record: its series with their spread, its unit, and its provenance at the foot.

    >>> d2ltvm.plot_record(d2ltvm.load_record("vector_add/bandwidth"), xscale="log")

    Args:
        record: a `Record`.
        legends: the series to draw, in this order; all of them by default.
        x: other x values than the record's own, such as the same sizes in MB.
        xlabel: another label for them.
        options: anything else that `plot` takes.
    """
    legends = list(legends or record.series)
    plot(
        record.values if x is None else x,
        [record[name] for name in legends],
        xlabel or record.label,
        options.pop("ylabel", record.unit),
        legends,
        spread=[record.spread.get(name) for name in legends],
        note=record.caption,
        **options,
    )


def bars(values, unit="", line=None, note=None, figsize=None, form="{:.3g}"):
    """Draw horizontal bars, longest first or in the order given, with their values written out.

    >>> d2ltvm.bars({"copy": 4.26, "PyTorch": 4.36}, "TB/s", line=(4.8, "data sheet"))

    Args:
        values: number by name.
        unit: their unit.
        line: (value, label) of a vertical line to hold them against.
        note: a line of provenance, below the figure.
        figsize: width and height in inches.
        form: format of the values.

    Raises:
        ValueError: there are no values, or one is not finite.
    """
    if not values or not np.isfinite(list(values.values())).all():
        raise ValueError(f"values is {values!r}; finite numbers by name are allowed")
    with plt.rc_context({**STYLE, "axes.grid": False}):
        figure, axes = _new(figsize or (7, 0.8 + 0.45 * len(values)))
        places = range(len(values))[::-1]
        axes.barh(places, list(values.values()), color=COLOURS[0], height=0.62)
        axes.set_yticks(places, list(values))
        axes.tick_params(left=False)
        axes.set(xlabel=unit)
        largest = max([*values.values(), line[0] if line else 0])
        for place, value in zip(places, values.values(), strict=True):
            plain = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # hides the line
            beside = {"va": "center", "bbox": plain, "zorder": 3}
            axes.text(max(value, 0) + largest * 0.012, place, form.format(value), **beside)
        axes.set_xlim(min(0, *values.values()) * 1.13, largest * 1.13)
        if line:
            axes.axvline(line[0], color="black", linestyle="--", linewidth=1.2)
            axes.text(line[0], len(values) - 0.45, line[1], ha="center", va="bottom")
        _finish(figure, note)


def roofline(ceilings, bandwidth, points, note=None, figsize=(7, 4.6)):
    """Draw a roofline: the most a kernel can do at its arithmetic intensity.

    >>> d2ltvm.roofline({"FP32": 60.0}, {"HBM": 4.2}, {"vector add": (1 / 12, 0.35)})

    Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model",
    2009.

    Args:
        ceilings: TFLOPS by name: what the arithmetic units can do.
        bandwidth: TB/s by name: what the memories can do.
        points: (FLOP per byte, TFLOPS) by name: kernels.
        note: a line of provenance, below the figure.
        figsize: width and height in inches.
    """
    slowest = min(bandwidth.values())
    left = min([0.03, *(p[0] / 3 for p in points.values())])
    right = 4 * max([max(ceilings.values()) / slowest, *(p[0] for p in points.values())])
    with plt.rc_context(STYLE):
        figure, axes = _new(figsize)
        axes.set(xscale="log", yscale="log", xlim=(left, right))
        top = max(ceilings.values())
        for name, peak in ceilings.items():
            x = np.geomspace(peak / max(bandwidth.values()), right, 2)
            axes.plot(x, [peak, peak], color="black", linewidth=1.4)
            label = f"{name}: {peak:,.3g} TFLOPS"
            axes.annotate(label, (right, peak), (-4, 4), textcoords="offset points", ha="right")
        for k, (name, rate) in enumerate(bandwidth.items()):
            x = np.array([left, top / rate])
            axes.plot(x, x * rate, color=COLOURS[k], linewidth=1.8, linestyle=DASHES[k])
            _along(axes, left * 1.25, rate, f"{name}: {rate:.3g} TB/s", COLOURS[k])
        for k, (name, (x, y)) in enumerate(points.items()):
            axes.plot(x, y, MARKERS[k], color=COLOURS[(k + 1) % len(COLOURS)], markersize=9)
            place = (9, -14) if x < right / 30 else (-9, -14)
            axes.annotate(
                name,
                (x, y),
                place,
                textcoords="offset points",
                ha="left" if place[0] > 0 else "right",
            )
        axes.set_ylim(slowest * left / 2, top * 2)
        axes.set(xlabel="arithmetic intensity (FLOP per byte)", ylabel="TFLOPS")
        _finish(figure, note)


def draw_threads(panels, columns=None, what="thread", note=None):
    """Draw who touches which element: a row of small squares, numbered and shaded by owner.

    >>> d2ltvm.draw_threads({"continuous": [0, 0, 1, 1], "alternate": [0, 1, 0, 1]})

    Args:
        panels: for each picture the owner of every element, in the order of memory: a number, or
            a tuple such as (block, thread), of which the first decides the shade. A sequence, or
            a 2-D array for a matrix.
        columns: elements in a row of a picture; by default all of them, or the matrix's own.
        what: who owns an element; stands in the legend line.
        note: a line below the figure.

    Raises:
        ValueError: a picture is empty.
    """
    grids = {title: _grid(title, owner, columns) for title, owner in panels.items()}
    rows = sum(len(g) for g in grids.values())
    wide = max(len(g[0]) for g in grids.values())
    cell = min(0.42, 7 / wide)
    height = cell * rows + 0.42 * len(grids) + 0.3
    with plt.rc_context({**STYLE, "axes.grid": False}):
        figure, all_axes = plt.subplots(
            len(grids), 1, figsize=(7, height), squeeze=False, layout="constrained",
            height_ratios=[len(g) for g in grids.values()],
        )  # fmt: skip
        owners = {o for g in grids.values() for row in g for o in row if o is not None}
        shade = {first: k for k, first in enumerate(sorted({*map(_first, owners)}))}
        for axes, (title, grid) in zip(all_axes[:, 0], grids.items(), strict=True):
            _squares(axes, grid, shade, wide)
            axes.set_title(f"{title} (number: {what})", loc="left", fontsize=11)
        _finish(figure, note)


def draw_requests(requests, rows=32, note=None):
    """Draw where in memory the lanes of a warp find what they ask for: a square for each word.

    A row is 128 bytes, which is four sectors of global memory, or one word of each of the 32 banks
    of shared memory. The number is a lane's; words that nobody asks for are left white, and rows
    without any are left out. Words one above the other are in the same bank.

    >>> d2ltvm.draw_requests({"column of a tile": d2ltvm.warp_request(sch, "tile")})

    Args:
        requests: a `d2ltvm.analysis.traffic.Request` by title.
        rows: how many rows to draw at most of each.
        note: a line below the figure.

    Raises:
        ValueError: no lane asks for anything.
    """
    whole = {title: _words(title, request) for title, request in requests.items()}
    grids = {title: grid[:rows] for title, grid in whole.items()}
    cell = 7 / 32
    high = sum(len(grid) for grid in grids.values())
    with plt.rc_context({**STYLE, "axes.grid": False}):
        figure, all_axes = plt.subplots(
            len(grids), 1, figsize=(7, cell * high + 0.75 * len(grids)), squeeze=False,
            layout="constrained", height_ratios=[len(grid) + 1 for grid in grids.values()],
        )  # fmt: skip
        for axes, (title, grid) in zip(all_axes[:, 0], grids.items(), strict=True):
            request = requests[title]
            _squares(axes, grid, {lane: lane // 8 for lane in range(32)}, 32, size=6.5)
            shared = request.scope == "shared"
            axes.vlines(
                np.arange(33) - 0.03, 0, len(grid), color="#cccccc", linewidth=0.6, zorder=0
            )
            for x in range(0, 33, 32 if shared else 8):
                axes.axvline(x - 0.03, color="black", linewidth=1.4)
            what = "wavefront" if shared else "sector"
            cost = f"{request.cost} {what}{'s' * (request.cost != 1)}"
            many = len(whole[title])
            cut = f"; first {rows} of {many} rows" if many > rows else ""
            axes.set_title(f"{title}: {cost}{cut}", loc="left", fontsize=11)
        _finish(figure, note)


def draw_touched(panels, note=None):
    """Draw which elements of tensors are touched, side by side: the darker, the more often.

    >>> d2ltvm.draw_touched({"A": d2ltvm.touched(sch, "A"), "B": d2ltvm.touched(sch, "B")})

    Args:
        panels: for each picture how often every element is touched: an array of one or two
            dimensions, such as `d2ltvm.touched` returns it.
        note: a line below the figure.

    Raises:
        ValueError: a picture has more dimensions, or none of its elements is touched.
    """
    grids = {title: np.atleast_2d(counts) for title, counts in panels.items()}
    for title, grid in grids.items():
        if grid.ndim != 2 or not grid.any():
            raise ValueError(
                f"{title!r} has shape {grid.shape}; a matrix that is touched is wanted"
            )
    with plt.rc_context({**STYLE, "axes.grid": False}):
        figure, all_axes = plt.subplots(
            1, len(grids), figsize=(7, 7 / len(grids) + 0.6), squeeze=False, layout="constrained"
        )
        for axes, (title, grid) in zip(all_axes[0], grids.items(), strict=True):
            often = sorted({int(n) for n in np.unique(grid) if n})
            axes.imshow(grid, cmap="Blues", vmin=0, vmax=1.4 * often[-1], interpolation="nearest")
            times = "once" if often == [1] else " to ".join(map(str, often[:: len(often) - 1 or 1]))
            times += " times" * (often != [1])
            axes.set_title(f"{title}: {np.count_nonzero(grid):,} elements,\neach {times}")
            axes.title.set_fontsize(10)
            axes.set(xlabel="column", ylabel="row")
            for side in ("top", "right"):
                axes.spines[side].set_visible(True)
        _finish(figure, note)


def draw_memory(chip, measured=None, note=None):
    """Draw the memories of a GPU as boxes: registers, shared memory, L2, HBM, with their sizes.

    >>> d2ltvm.draw_memory(d2ltvm.chip("H200"))

    Args:
        chip: a `Chip`.
        measured: text by 'HBM' or 'L2', to stand beside the arrow in place of the data sheet's
            rate.
        note: a line below the figure.
    """
    measured = measured or {}
    registers, l1 = (
        f"{k} KiB an SM, {k * chip.sms / 1024:.0f} MiB in all"
        for k in (chip.registers_kib, chip.l1_kib)
    )
    boxes = (
        (f"{chip.sms} multiprocessors (SM), each with", f"{chip.fp32_lanes} FP32 lanes"),
        ("registers", registers),
        ("L1 and shared memory", l1),
        ("L2 cache", f"{chip.l2_mib} MiB, shared by all SMs"),
        (f"device memory ({chip.memory_kind})", f"{chip.memory_gb} GB"),
    )
    rates = ("", "", "", measured.get("L2", ""), measured.get("HBM", f"{chip.bandwidth_tb_s} TB/s"))
    with plt.rc_context({**STYLE, "axes.grid": False}):
        figure, axes = _new((7, 4.2))
        for k, ((name, size), rate) in enumerate(zip(boxes, rates, strict=True)):
            half, y = 2.4 + 0.4 * k, -k
            box = plt.Rectangle((-half, y - 0.3), 2 * half, 0.6, fc=_tint(k), ec="black", lw=1)
            axes.add_patch(box)
            axes.text(0, y, f"{name}: {size}", ha="center", va="center", fontsize=10)
            if k:
                axes.annotate("", (0, y + 0.3), (0, y + 0.7), arrowprops={"arrowstyle": "<->"})
                axes.text(0.12, y + 0.5, rate, va="center", fontsize=10)
        axes.set(xlim=(-4.2, 4.2), ylim=(-4.5, 0.5))
        axes.axis("off")
        _finish(figure, note)


def _new(figsize):
    _use_retina()
    return plt.subplots(figsize=figsize, layout="constrained")


def _use_retina():
    """Twice the pixels, where a notebook shows the figure."""
    try:
        from IPython import get_ipython
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:
        return
    if get_ipython() is not None:
        set_matplotlib_formats("retina")


def _curves(X, Y):
    Y = [np.asarray(y, float) for y in (Y if _nested(Y) else [Y])]
    X = [np.asarray(x) for x in (X if _nested(X) else [X] * len(Y))]
    if not Y or len(X) != len(Y):
        raise ValueError(f"X has {len(X)} sequences and Y has {len(Y)}; as many are wanted")
    for k, (x, y) in enumerate(zip(X, Y, strict=True)):
        if x.shape != y.shape or y.size == 0:
            raise ValueError(f"curve {k} has {x.size} x and {y.size} y values; as many are wanted")
        if not np.isfinite(y).all():
            raise ValueError(f"curve {k} of Y holds values that are not finite: {y}")
    return list(zip(X, Y, strict=True))


def _nested(values):
    return len(values) > 0 and np.ndim(values[0]) > 0


def _line(k):
    return {
        "color": COLOURS[k % len(COLOURS)],
        "marker": MARKERS[k % len(MARKERS)],
        "linestyle": DASHES[k % len(DASHES)],
        "markersize": 5,
        "linewidth": 1.8,
    }


def _scales(axes, xscale, yscale, curves):
    """Logarithmic axes with plain numbers; whole numbers on the x axis are powers of two here."""
    axes.set_xscale(xscale)
    axes.set_yscale(yscale)
    if xscale == "log" and all(np.issubdtype(x.dtype, np.integer) for x, _ in curves):
        axes.set_xscale("log", base=2)
        _powers_of_two(axes.xaxis, [x for x, _ in curves])
    elif xscale == "log":
        _plain(axes.xaxis, [x for x, _ in curves])
    if yscale == "log":
        _plain(axes.yaxis, [y for _, y in curves])


def _powers_of_two(axis, values, most=10):
    """At most ten ticks, the first of them at the smallest value."""
    low, high = (round(math.log2(f(map(f, values)))) for f in (min, max))
    step = math.ceil((high - low + 1) / most)
    axis.set_major_locator(FixedLocator([2.0**p for p in range(low, high + 1, step)]))


def _plain(axis, values):
    """Ticks at 1, 10, 100, written out, and at 2 and 5 too where there would be few of them."""
    smallest, largest = min(map(np.min, values)), max(map(np.max, values))
    steps = (1, 2, 5) if largest < 200 * smallest else (1,)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def _limits(axes, xlim, ylim, yscale, ceilings):
    if xlim:
        axes.set_xlim(xlim)
    if ylim:
        axes.set_ylim(ylim)
        return
    if yscale == "linear":
        axes.set_ylim(bottom=0)
    # Room for what is written above a ceiling.
    room = 1.1 if yscale == "linear" else 1.5
    axes.set_ylim(top=max([axes.get_ylim()[1], *(room * value for value, _ in ceilings)]))


def _legend(axes, names):
    """Above the axes, where it covers no curve: few rows, as the longest name allows, and even."""
    fit = max(1, 66 // (max(map(len, names)) + 6))
    columns = math.ceil(len(names) / math.ceil(len(names) / fit))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.01), ncols=columns, borderaxespad=0)


def _ceiling(axes, value, label):
    axes.axhline(value, color="black", linestyle=":", linewidth=1.3)
    axes.annotate(
        label, (0, value), (4, 3), xycoords=("axes fraction", "data"),
        textcoords="offset points", ha="left", fontsize=10,
    )  # fmt: skip


def _along(axes, x, rate, text, colour):
    """Write above the line y = rate · x, at its angle."""
    above = axes.transData + ScaledTranslation(-5 / 72, 5 / 72, axes.figure.dpi_scale_trans)
    axes.text(
        x, x * rate, text, color=colour, transform=above, va="bottom", rotation_mode="anchor",
        rotation=math.degrees(math.atan(rate)), transform_rotates_text=True,
    )  # fmt: skip


def _grid(title, owner, columns):
    if isinstance(owner, np.ndarray) and owner.ndim == 2:
        return [list(row) for row in owner]
    owner = list(owner)
    if not owner:
        raise ValueError(f"panels[{title!r}] is empty; one owner for each element is wanted")
    columns = columns or len(owner)
    rows = [owner[k : k + columns] for k in range(0, len(owner), columns)]
    rows[-1] += [None] * (columns - len(rows[-1]))
    return rows


def _first(owner):
    return owner[0] if isinstance(owner, tuple) else owner


def _words(title, request):
    """Lanes by row of 32 words and word in it; None where nobody asks."""
    if not request.first:
        raise ValueError(f"requests[{title!r}] has no lane that asks for anything")
    found = {}
    for lane, first in request.first.items():
        for word in range(first // 4, (first + request.width - 1) // 4 + 1):
            found.setdefault(word // 32, {}).setdefault(word % 32, lane)
    return [[row.get(word) for word in range(32)] for _, row in sorted(found.items())]


def _squares(axes, grid, shade, wide, size=9):
    for y, row in enumerate(grid):
        for x, owner in enumerate(row):
            if owner is None:
                continue
            tint, text = _tint(shade[_first(owner)]), str(owner).strip("()").replace(" ", "")
            axes.add_patch(plt.Rectangle((x, y), 0.94, 0.94, fc=tint, ec="black", lw=0.6))
            axes.text(x + 0.47, y + 0.5, text, ha="center", va="center", fontsize=size)
    axes.set(xlim=(-0.1, wide + 0.1), ylim=(len(grid) + 0.05, -0.1), aspect="equal")
    axes.axis("off")


def _tint(k):
    """A pale shade: its lightness alternates, so that neighbours differ in grey too."""
    colour = np.array([int(COLOURS[k % 6][i : i + 2], 16) for i in (1, 3, 5)]) / 255
    mix = (0.35, 0.62, 0.2)[k % 3]
    return tuple(1 - (1 - colour) * mix)


def _finish(figure, note):
    if note:
        figure.supxlabel(note, fontsize=9, color="#555555", x=0.01, ha="left")
    plt.show()
