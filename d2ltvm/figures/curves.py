"""Curves, bars and the roofline."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.transforms import ScaledTranslation

from d2ltvm.errors import shown
from d2ltvm.figures import style, ticks
from d2ltvm.figures.ticks import Array, Curve, FloatPair

_CROSSES: Any = {"linestyle": (0, (1, 2)), "linewidth": 1, "marker": "x", "markersize": 7}


class RecordLike(Protocol):
    """What `plot_record` draws: a `d2ltvm.bench.Record`."""

    unit: str
    series: dict[str, list[float]]
    spread: dict[str, list[list[float]]]

    def __getitem__(self, legend: str) -> Array: ...
    @property
    def values(self) -> Array: ...
    @property
    def label(self) -> str: ...
    @property
    def caption(self) -> str: ...
    @property
    def elsewhere(self) -> Mapping[str, Any]: ...


def plot(
    X: Sequence[Any] | Array,
    Y: Sequence[Any] | Array,
    xlabel: str | None = None,
    ylabel: str | None = None,
    legend: Sequence[str] = (),
    xlim: FloatPair | None = None,
    ylim: FloatPair | None = None,
    xscale: str = "linear",
    yscale: str = "linear",
    fmts: Sequence[str] | None = None,
    figsize: FloatPair = (7, 4),
    spread: Sequence[Any] | None = None,
    ceilings: Sequence[tuple[float, str]] = (),
    note: str | None = None,
    behind: Sequence[tuple[int, Any, Any]] = (),
    named: str | None = None,
) -> None:
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
        fmts: a Matplotlib format string for each curve, in place of the book's own style; one
            that names no colour has the book's.
        figsize: width and height in inches.
        spread: for each curve a list of (low, high), drawn as a band.
        ceilings: (value, label) of horizontal lines: what the hardware can do at most.
        note: a line of provenance, below the figure.
        behind: (number of a curve, x, y) of what is drawn thin and broken in that curve's colour.
        named: what stands behind, for the legend; it then has crosses too, so that it can be told
            from curves that are broken themselves.

    Raises:
        ValueError: lengths that differ, an empty curve, or values that are not finite.
    """
    curves = _curves(X, Y)
    for name, scale in (("xscale", xscale), ("yscale", yscale)):
        if not isinstance(scale, str) or scale not in ("linear", "log"):
            raise ValueError(f"{name} is {shown(scale)}; expected 'linear' or 'log'")
    if not isinstance(legend, list | tuple) or not all(isinstance(text, str) for text in legend):
        raise ValueError(f"legend is {shown(legend)}; expected a name for each curve")
    if legend and len(legend) != len(curves):
        raise ValueError(f"legend has {len(legend)} names; expected {len(curves)}, one a curve")
    with style.page(figsize, note=note, grid=True) as (_, (axes,)):
        for k, (x, y) in enumerate(curves):
            label = legend[k] if legend else None
            if fmts:
                letters = set(fmts[k]) & set("bgrcmykw")  # a colour; markers are other letters
                own = {} if letters else {"color": style.COLOURS[k % len(style.COLOURS)]}
                axes.plot(x, y, fmts[k], label=label, **own)
            else:
                axes.plot(x, y, label=label, **style.line(k))
            if spread and spread[k]:
                low, high = np.transpose(spread[k])
                colour = style.COLOURS[k % len(style.COLOURS)]
                axes.fill_between(x, low, high, color=colour, alpha=0.2, lw=0)
        for k, x, y in behind:
            axes.plot(x, y, **{**style.behind(k), **(_CROSSES if named else {})})
        if named:
            axes.plot([], [], color="#555555", label=named, **_CROSSES)
        for value, label in ceilings:
            ticks.ceiling(axes, value, label)
        ticks.scales(axes, xscale, yscale, curves)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        ticks.limits(axes, xlim, ylim, yscale, ceilings)
        if legend:
            ticks.legend(axes, [*legend, *([named] if named else [])])


def plot_gflops(
    sizes: Sequence[Any] | Array,
    gflops: Sequence[Any] | Array,
    legend: Sequence[str],
    xlabel: str = "Size",
    note: str | None = None,
    **options: Any,
) -> None:
    """Draw GFLOPS against size, both on a logarithmic scale.

    >>> d2ltvm.plot_gflops([1024, 4096], [[1.5, 2.0], [3.0, 8.0]], ["NumPy", "TVM"])

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


def plot_record(
    record: RecordLike,
    legends: Iterable[str] | None = None,
    x: Sequence[Any] | Array | Callable[[Array], Any] | None = None,
    xlabel: str | None = None,
    **options: Any,
) -> None:
    """Draw a record: its series with their spread, its unit, and its provenance at the foot.

    Records of the same measurement on other devices are drawn behind it, thin and broken. Give `x`
    as a function, and the x values of each record are converted by it. Given as a sequence, `x`
    holds for those records alone that have the same x values as this one; others are left out.

    >>> sizes = d2ltvm.load_record("vector_add/bandwidth")
    >>> d2ltvm.plot_record(sizes, x=lambda n: 12 * n / 2**20, xlabel="moved (MiB)", xscale="log")

    Args:
        record: a `Record`.
        legends: the series to draw, in this order; all of them by default.
        x: other x values than the record's own, such as the same sizes in MB: a function of the
            record's values (an array), or the values themselves.
        xlabel: another label for them.
        options: anything else that `plot` takes.

    Raises:
        TypeError: `record` is something else, such as its name.
        ValueError: as `plot` does: `x` has more or fewer values than the record, for example.
    """
    if not hasattr(record, "series"):
        raise TypeError(f"record is {shown(record)}; expected what d2ltvm.load_record returns")

    def along(one: RecordLike) -> Any:
        """A record's values on the x axis."""
        if x is None:
            return one.values
        return x(one.values) if callable(x) else x

    names = list(legends or record.series)
    others = [
        other
        for other in record.elsewhere.values()
        if any(name in other.series for name in names)
        and (x is None or callable(x) or np.array_equal(other.values, record.values))
    ]
    behind = [
        (k, along(other), other[name])
        for other in others
        for k, name in enumerate(names)
        if name in other.series
    ]
    plot(
        along(record),
        [record[name] for name in names],
        xlabel or record.label,
        options.pop("ylabel", record.unit),
        names,
        spread=[record.spread.get(name) for name in names],
        note=provenance(record, others),
        behind=behind,
        **options,
    )


def provenance(record: RecordLike, others: Iterable[RecordLike] | None = None) -> str:
    """Where a drawn record comes from, and those of other devices that are drawn behind it.

    >>> provenance(d2ltvm.load_record("latency/copy_sizes")).splitlines()[1]
    'thin: NVIDIA H100 80GB HBM3, driver ...; recorded ...'

    Args:
        record: a `Record`.
        others: those of other devices; by default all that there are of the same measurement.
    """
    if others is None:
        others = record.elsewhere.values()
    return "\n".join([record.caption, *(f"thin: {other.caption}" for other in others)])


def bars(
    values: Mapping[str, float],
    unit: str = "",
    line: tuple[float, str] | None = None,
    note: str | None = None,
    figsize: FloatPair | None = None,
    form: str = "{:.3g}",
    points: tuple[Mapping[str, float], str] | None = None,
    label: str | None = None,
    spread: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Draw horizontal bars in the order given, with their values written at their ends.

    >>> d2ltvm.figures.bars({"copy": 4.26, "PyTorch": 4.36}, "TB/s", line=(4.8, "data sheet"))

    Args:
        values: number by name.
        unit: their unit.
        line: (value, label) of a vertical line to hold them against.
        note: a line of provenance, below the figure.
        figsize: width and height in inches.
        form: format of the values.
        points: (number by name, label): a second value of some bars, drawn as a thin bar below.
        label: what the first values are, for the legend beside that of the second.
        spread: (lowest, highest) by name, drawn as a black line at the end of a bar.

    Raises:
        ValueError: there are no values, or one is not finite.
    """
    if not isinstance(values, Mapping) or not values or not _finite(values.values()):
        raise ValueError(f"values is {shown(values)}; expected finite numbers by name")
    with style.page(figsize or (7, 0.8 + 0.45 * len(values)), note=note) as (figure, (axes,)):
        places = range(len(values))[::-1]
        second = points[0] if points else {}
        smallest = min(0, *values.values(), *second.values())
        ends = [high for _, high in (spread or {}).values()]
        largest = max(0, *values.values(), *second.values(), *ends, line[0] if line else 0)
        room = 0.13 * (largest - smallest)  # for what is written beside a bar
        plain = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # hides the line
        for y, (name, value) in zip(places, values.items(), strict=True):
            parts = [(float(y), 0.62, value, 11.0)]
            if name in second:  # both share the room of one
                parts = [(y + 0.15, 0.34, value, 11.0), (y - 0.2, 0.2, second[name], 10.0)]
            for k, (at, high, x, size) in enumerate(parts):
                low, most = (spread or {}).get(name, (x, x)) if not k else (x, x)
                about = {"xerr": [[x - low], [most - x]], "capsize": 3} if low < most else {}
                bar = axes.barh([at], [x], color=style.COLOURS[k], height=high, **about)
                box = None if k else plain
                if line and not k and room < x <= line[0] < x + room:  # it would stand on the line
                    white = {"color": "white", "ha": "right", "va": "center", "fontsize": size}
                    axes.annotate(
                        form.format(x), (x, at), (-5, 0), textcoords="offset points", **white
                    )
                else:
                    axes.bar_label(bar, fmt=form, padding=4, fontsize=size, bbox=box, zorder=3)
        axes.set_yticks(places, list(values))
        axes.tick_params(left=False)
        axes.set(xlabel=unit)
        axes.set_xlim(
            smallest - (room if smallest < 0 else 0), largest + (room if largest > 0 else 0)
        )
        axes.set_ylim(-0.6, len(values) - 0.4)
        if line:
            axes.axvline(line[0], color="black", linestyle="--", linewidth=1.2)
            top = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
            right = line[0] > largest - room  # a long label would leave the picture
            beside, side = (8, "right") if right else (0, "center")
            axes.annotate(line[1], (line[0], 1), (beside, 4), ha=side, va="bottom", **top)
        if points:
            names = [label, points[1]]
            entries = [Patch(color=style.COLOURS[k], label=n) for k, n in enumerate(names) if n]
            figure.legend(
                handles=entries,
                ncols=len(entries),
                loc="outside upper left",
                borderpad=0,
                frameon=False,
            )


def roofline(
    ceilings: Mapping[str, float],
    bandwidth: Mapping[str, float],
    points: Mapping[str, FloatPair],
    note: str | None = None,
    figsize: FloatPair = (7, 4.6),
    joined: bool = False,
) -> None:
    """Draw a roofline: the most a kernel can do at its arithmetic intensity.

    >>> d2ltvm.figures.roofline({"FP32": 60.0}, {"HBM": 4.2}, {"vector add": (1 / 12, 0.35)})

    Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model",
    2009.

    Args:
        ceilings: TFLOPS by name: what the arithmetic units can do.
        bandwidth: TB/s by name: what the memories can do.
        points: (FLOP per byte, TFLOPS) by name: kernels.
        note: a line of provenance, below the figure.
        figsize: width and height in inches.
        joined: whether all points are of one kernel: in one colour, with a line through them.
    """
    slowest = min(bandwidth.values())
    left = min([0.03, *(p[0] / 3 for p in points.values())])
    right = 4 * max([max(ceilings.values()) / slowest, *(p[0] for p in points.values())])
    with style.page(figsize, note=note, grid=True) as (_, (axes,)):
        axes.set(xscale="log", yscale="log", xlim=(left, right))
        top = max(ceilings.values())
        for name, peak in ceilings.items():
            x = np.geomspace(peak / max(bandwidth.values()), right, 2)
            axes.plot(x, [peak, peak], color="black", linewidth=1.4)
            label = f"{name}: {peak:,.3g} TFLOPS"
            axes.annotate(label, (right, peak), (-4, 6), textcoords="offset points", ha="right")
        for k, (name, rate) in enumerate(bandwidth.items()):
            x = np.array([left, top / rate])
            colour = style.COLOURS[k]
            axes.plot(x, x * rate, color=colour, linewidth=1.8, linestyle=style.DASHES[k])
            _along(axes, left * 1.6, rate, f"{name}: {rate:.3g} TB/s", colour)
        for k, (name, at) in enumerate(points.items()):
            which = 0 if joined else k
            colour = style.COLOURS[(which + 1) % len(style.COLOURS)]
            marker = style.MARKERS[which % len(style.MARKERS)]
            axes.plot(*at, marker, color=colour, markersize=7 if joined else 9)
            # Below the point: on the side where there is room, or in the middle on a flat roof.
            on_a_roof = at[1] < 0.9 * at[0] * max(bandwidth.values())
            beside, ha = (9, "left") if at[0] < right / 30 else (-9, "right")
            if joined or (on_a_roof and ha == "right"):
                beside, ha = 0, "center"
            low = -18 if ha == "center" else -14
            axes.annotate(name, at, (beside, low), textcoords="offset points", ha=ha)
        if joined:
            axes.plot(*zip(*points.values(), strict=True), color=style.COLOURS[1], linewidth=1)
        axes.set_ylim(slowest * left / 2, top * 2)
        axes.set(xlabel="operations for each byte (arithmetic intensity)", ylabel="TFLOPS")


def _curves(X: Sequence[Any] | Array, Y: Sequence[Any] | Array) -> list[Curve]:
    for name, given in (("X", X), ("Y", Y)):
        parts: list[Any] = (
            list(given) if isinstance(given, list | tuple | range | np.ndarray) else [None]
        )
        if not all(_finite(np.ravel(part)) or (name == "X" and _names(part)) for part in parts):
            raise ValueError(f"{name} is {shown(given)}; expected finite numbers, or lists of them")
    ys = [np.asarray(y, float) for y in (Y if _nested(Y) else [Y])]
    xs = [np.asarray(x) for x in (X if _nested(X) else [X] * len(ys))]
    if not ys or len(xs) != len(ys):
        raise ValueError(f"X has {len(xs)} sequences and Y has {len(ys)}; expected as many")
    for k, (x, y) in enumerate(zip(xs, ys, strict=True)):
        if x.shape != y.shape or y.size == 0:
            raise ValueError(f"curve {k} has {x.size} of X and {y.size} of Y; expected as many")
        if not np.isfinite(y).all():
            raise ValueError(f"curve {k} of Y is {y}; expected finite values")
    return list(zip(xs, ys, strict=True))


def _finite(values: Iterable[Any]) -> bool:
    """Whether all values are numbers, and finite ones."""
    numbers = (int, float, np.integer, np.floating)
    return all(isinstance(v, numbers) and math.isfinite(v) for v in values)


def _names(values: Any) -> bool:
    """Whether values are names, which may stand along the x axis."""
    return all(isinstance(value, str) for value in np.ravel(values).tolist())


def _nested(values: Sequence[Any] | Array) -> bool:
    return len(values) > 0 and np.ndim(values[0]) > 0


def _along(axes: Axes, x: float, rate: float, text: str, colour: str) -> None:
    """Write above the line y = rate · x, at its angle."""
    above = axes.transData + ScaledTranslation(-5 / 72, 5 / 72, axes.figure.dpi_scale_trans)
    axes.text(
        x, x * rate, text, color=colour, transform=above, va="bottom", rotation_mode="anchor",
        rotation=math.degrees(math.atan(rate)), transform_rotates_text=True,
    )  # fmt: skip
