"""Pictures of the machine: where a launch runs, its memories, and what happens when."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from d2ltvm.figures import style

Steps = Sequence[tuple[float, float, str, str]]  # start, end, kind, words: of draw_steps
Arrow = tuple[str, float, str, float, str]  # from row, when, to row, when, words: of draw_steps
# Start, end, what: a name of draw_timeline's `colours`.
TimelineRow = Sequence[tuple[float, float, str]]


class ChipLike(Protocol):
    """What `draw_machine` and `draw_memory` draw: a `d2ltvm.system.chips.Chip`."""

    @property
    def name(self) -> str: ...
    @property
    def sms(self) -> int: ...
    @property
    def fp32_lanes(self) -> int: ...
    @property
    def boost_ghz(self) -> float: ...
    @property
    def registers_kib(self) -> int: ...
    @property
    def l1_kib(self) -> int: ...
    @property
    def shared_block_kib(self) -> int: ...
    @property
    def max_threads(self) -> int: ...
    @property
    def l2_mib(self) -> float: ...
    @property
    def memory_gb(self) -> float: ...
    @property
    def memory_kind(self) -> str: ...
    @property
    def bandwidth_tb_s(self) -> float: ...


def draw_machine(chip: ChipLike, note: str | None = None) -> None:
    """Draw the levels of a launch at the left, and at the right where each of them runs.

    >>> d2ltvm.figures.draw_machine(d2ltvm.chip("H200"))

    Args:
        chip: a `ChipLike`.
        note: a line below the figure.
    """
    rows = (
        (
            "grid",
            "grid: all blocks of a launch",
            f"the GPU: {chip.sms} multiprocessors",
            f"L2 cache, {chip.l2_mib:g}\xa0MiB; device memory, {chip.memory_gb}\xa0GB",
        ),
        (
            "block",
            "block: up to 1,024 threads",
            f"one multiprocessor (SM), up to {chip.max_threads:,} threads",
            f"shared memory, up to {chip.shared_block_kib} KiB a block",
        ),
        (
            "warp",
            "warp: 32 threads, one instruction at a time",
            "one of the SM's four schedulers",
            "none of its own; asks with 32 addresses at once",
        ),
        (
            "thread",
            "thread: one run of the kernel",
            "one lane of the warp",
            "registers, up to 255 of 32 bits",
        ),
    )
    with style.page((5.2, 4.6), note=note) as (_, (axes,)):
        for x, title in ((0, "a launch"), (1, "where it runs"), (2, "memory")):
            axes.text(x + 0.46, 0.62, title, ha="center", fontsize=10, weight="bold")
        for k, (level, *texts) in enumerate(rows):
            for x, text in enumerate(texts):
                _cell(axes, x, -k, text, style.LEVELS[level])
            if k:
                axes.annotate("", (0.46, 0.36 - k), (0.46, 0.64 - k), arrowprops=_CONSISTS)
                axes.text(0.5, 0.5 - k, "consists of", fontsize=8.5, va="center")
        axes.set(xlim=(-0.02, 2.94), ylim=(-3.45, 0.85))
        axes.axis("off")


_CONSISTS = {"arrowstyle": "-|>", "color": "#555555"}


def _cell(axes: Axes, x: float, y: float, text: str, colour: str) -> None:
    """A box with text in lines of at most some 19 letters, white on the darkest colour."""
    axes.add_patch(Rectangle((x, y - 0.36), 0.92, 0.72, fc=colour, ec="black", lw=0.8))
    dark = colour == style.LEVELS["thread"]
    words, lines = text.split(" "), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 18:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    ink = "white" if dark else "black"
    axes.text(x + 0.46, y, "\n".join(lines), ha="center", va="center", fontsize=8.5, color=ink)


def draw_memory(
    chip: ChipLike, ways: Mapping[str, tuple[str, str]] | None = None, note: str | None = None
) -> None:
    """Draw the memories of a GPU one below the other: their sizes, and the ways between them.

    >>> d2ltvm.figures.draw_memory(d2ltvm.chip("H200"), {"device memory": ("4.26 TB/s", "334 ns")})

    Args:
        chip: a `ChipLike`.
        ways: (bandwidth, latency) as text, by the memory that a way leads to: 'registers',
            'L1 and shared memory', 'L2 cache', 'device memory'. A bandwidth that is not given is
            the data sheet's, where it has one.
        note: a line below the figure.

    Raises:
        ValueError: there is no such memory.
    """
    given = dict(ways or {})
    rate = chip.sms * chip.boost_ghz / 1000  # TB/s for each byte a cycle of a multiprocessor
    registers, l1 = (
        f"{k} KiB an SM, {k * chip.sms / 1024:.0f} MiB in all"
        for k in (chip.registers_kib, chip.l1_kib)
    )
    boxes = (  # of three operands of 4 bytes; of 32 banks or a line of 128 bytes
        ("registers", registers, f"{12 * chip.fp32_lanes * rate:.0f} TB/s"),
        ("L1 and shared memory", l1, f"{128 * rate:.0f} TB/s"),
        ("L2 cache", f"{chip.l2_mib:g} MiB for all SMs", ""),
        (
            "device memory",
            f"{chip.memory_gb} GB, {chip.memory_kind}",
            f"{chip.bandwidth_tb_s} TB/s",
        ),
    )
    if unknown := given.keys() - {name for name, *_ in boxes}:
        names = ", ".join(name for name, *_ in boxes)
        raise ValueError(f"ways have {sorted(unknown)}; expected some of {names}")
    with style.page((5.2, 4.9), note=note) as (_, (axes,)):
        units = f"{chip.sms} multiprocessors (SM)", f"{chip.fp32_lanes} float32 units each"
        _memory(axes, 0, *units, "white")
        colours = [style.LEVELS[who] for who in ("thread", "block", "grid", "grid")]  # who has it
        for k, ((name, size, sheet), colour) in enumerate(zip(boxes, colours, strict=True), 1):
            _memory(axes, -k, name, size, colour)
            bandwidth, latency = given.get(name, (sheet, ""))
            axes.annotate("", (0, 0.31 - k), (0, 0.69 - k), arrowprops={"arrowstyle": "<->"})
            axes.text(-0.1, 0.5 - k, bandwidth, ha="right", va="center", fontsize=9.5)
            axes.text(0.1, 0.5 - k, latency, ha="left", va="center", fontsize=9.5)
        for x, side, title in ((-0.1, "right", "bandwidth, all SMs"), (0.1, "left", "latency")):
            axes.text(x, 0.55, title, ha=side, va="center", fontsize=9.5, weight="bold")
        axes.set(xlim=(-1.6, 1.6), ylim=(-4.4, 0.7))
        axes.axis("off")


def _memory(axes: Axes, y: float, name: str, size: str, colour: str) -> None:
    """A box with a name and a size, white on the darkest colour."""
    axes.add_patch(Rectangle((-1.5, y - 0.3), 3, 0.6, fc=colour, ec="black", lw=0.8))
    ink = "white" if colour == style.LEVELS["thread"] else "black"
    place: dict[str, Any] = {"ha": "center", "va": "center", "color": ink}
    axes.text(0, y + 0.12, name, fontsize=10.5, weight="bold", **place)
    axes.text(0, y - 0.13, size, fontsize=9.5, **place)


def draw_timeline(
    panels: Mapping[str, Mapping[str, TimelineRow]],
    colours: Mapping[str, str],
    unit: str = "cycles",
    note: str | None = None,
    marks: Mapping[str, Sequence[tuple[float, str]]] | None = None,
    lengths: str | None = None,
) -> None:
    """Draw who does what when: a row for each actor, time from left to right.

    >>> spans = {"warp 0": [(0, 1, "load"), (1, 5, "wait"), (5, 6, "add")]}
    >>> kinds = {"load": "#0072B2", "wait": "#F2F2F2", "add": "#A84300"}
    >>> d2ltvm.figures.draw_timeline({"one warp": spans}, kinds)

    Args:
        panels: for each picture its rows by name, each a sequence of (start, end, what).
        colours: a colour for each kind of `what`, in the order of the legend.
        unit: of the times.
        note: a line below the figure.
        marks: for some pictures (time, name) of vertical lines, such as barriers.
        lengths: format of a span's length, such as '.0f', which is then written in it.

    Raises:
        ValueError: a span is of a kind that has no colour, or ends before it starts.
    """
    counts = [len(rows) for rows in panels.values()]
    high = 0.28 * sum(counts) + 0.75 * len(counts) + 0.5
    actors = [spans for rows in panels.values() for spans in rows.values()]
    times = [time for spans in actors for start, stop, _ in spans for time in (start, stop)]
    end = max(times)
    sizes: dict[str, Any] = {"height_ratios": counts, "sharex": True}
    with style.page((5.4, high), len(panels), note=note, **sizes) as (figure, all_axes):
        for axes, (title, rows) in zip(all_axes, panels.items(), strict=True):
            for y, spans in enumerate(rows.values()):
                for start, stop, what in spans:
                    if what not in colours or stop < start:
                        raise ValueError(
                            f"{title!r} has the span {(start, stop, what)}; expected a start, a "
                            f"later end, and one of {', '.join(colours)}"
                        )
                    place: dict[str, Any] = {"left": start, "height": 0.8, "ec": "black", "lw": 0.5}
                    axes.barh(y, stop - start, fc=colours[what], clip_on=False, **place)
                    if lengths:
                        ink = "white" if style.dark(colours[what]) else "black"
                        at: dict[str, Any] = {"ha": "center", "va": "center", "color": ink}
                        axes.text(
                            (start + stop) / 2, y, f"{stop - start:{lengths}}", fontsize=9, **at
                        )
            axes.set_yticks(range(len(rows)), list(rows), fontsize=9)
            here = (marks or {}).get(title, ())
            for time, name in here:
                axes.axvline(time, color="black", linewidth=1.6)
                axes.text(time, -0.55, name, ha="center", va="bottom", fontsize=8)
            axes.set_title(title, fontsize=10, loc="left", pad=16 if here else None)
            axes.set(xlim=(0, 1.01 * end), ylim=(len(rows) - 0.5, -0.5))
        if all(float(time).is_integer() for time in times):
            all_axes[-1].xaxis.get_major_locator().set_params(integer=True)  # no half transfers
        all_axes[-1].set_xlabel(unit)
        keys = [Rectangle((0, 0), 1, 1, fc=c, ec="black", lw=0.5) for c in colours.values()]
        figure.legend(keys, list(colours), ncols=len(keys), loc="outside upper left", frameon=False)


def draw_steps(
    panels: Mapping[str, Mapping[str, Steps]],
    colours: Mapping[str, str],
    note: str | None = None,
    arrows: Mapping[str, Sequence[Arrow]] | None = None,
) -> None:
    """Draw who does what in which order: a row for each actor, with words in each step.

    >>> others = [(0, 2, "wait", ""), (2, 4, "move", "read")]
    >>> rows = {"thread 0": [(0, 2, "move", "write")], "others": others}
    >>> d2ltvm.figures.draw_steps({"hand over": rows}, {"move": "#56B4E9", "wait": "#F2F2F2"})

    Times say only what comes before what, so there is no scale.

    Args:
        panels: for each picture its rows by name, each a sequence of (start, end, kind, words).
        colours: a colour for each kind, in the order of the legend.
        note: a line below the figure.
        arrows: of a picture: (row, when, row, when, words), from one row's bar to another's.

    Raises:
        ValueError: a step is of a kind that has no colour, or ends before it starts; an arrow
            begins or ends at no row.
    """
    counts = [len(rows) for rows in panels.values()]
    high = 0.3 * sum(counts) + 0.38 * len(counts) + 0.55
    end = max(e for rows in panels.values() for steps in rows.values() for _, e, *_ in steps)
    sizes: dict[str, Any] = {"height_ratios": counts, "sharex": True}
    with style.page((5.4, high), len(panels), note=note, **sizes) as (figure, all_axes):
        for axes, (title, rows) in zip(all_axes, panels.items(), strict=True):
            for y, steps in enumerate(rows.values()):
                for start, stop, kind, words in steps:
                    if kind not in colours or stop < start:
                        raise ValueError(
                            f"{title!r} has the step {(start, stop, kind)}; expected a start, a "
                            f"later end, and one of {', '.join(colours)}"
                        )
                    place = {"left": start, "height": 0.84, "ec": "black", "lw": 0.5}
                    axes.barh(y, stop - start, fc=colours[kind], **place)
                    ink = "white" if sum(to_rgb(colours[kind])) < 1.3 else "black"
                    middle = (start + stop) / 2
                    axes.text(middle, y, words, ha="center", va="center", fontsize=8.5, color=ink)
            for arrow in (arrows or {}).get(title, ()):
                _point(axes, list(rows), *arrow)
            axes.set_yticks(range(len(rows)), list(rows), fontsize=9)
            axes.tick_params(length=0, labelbottom=False)
            axes.set_title(title, fontsize=9.5, loc="left")
            axes.set(xlim=(-0.02 * end, 1.01 * end), ylim=(len(rows) - 0.5, -0.5))
            axes.spines[:].set_visible(False)
        all_axes[-1].set_xlabel("time, not to scale", fontsize=9)
        keys = [Rectangle((0, 0), 1, 1, fc=c, ec="black", lw=0.5) for c in colours.values()]
        look: dict[str, Any] = {"ncols": len(keys), "fontsize": 9, "frameon": False}
        figure.legend(keys, list(colours), loc="outside upper left", **look)


def _point(
    axes: Axes, names: list[str], first: str, begin: float, last: str, end: float, words: str
) -> None:
    """An arrow of draw_steps from the lower edge of a row to the upper edge of another, or back."""
    for name in (first, last):
        if name not in names:
            raise ValueError(f"an arrow ends at {name!r}; expected one of {', '.join(names)}")
    start, stop = names.index(first), names.index(last)
    step = 0.42 if stop > start else -0.42
    look = {"arrowstyle": "-|>", "color": "#A84300", "lw": 1.6, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (end, stop - step), (begin, start + step), arrowprops=look)
    beside: dict[str, Any] = {"xytext": (9, 0), "textcoords": "offset points"}
    middle = (begin + end) / 2, (start + stop) / 2
    axes.annotate(words, middle, va="center", fontsize=8.5, color="#A84300", **beside)
