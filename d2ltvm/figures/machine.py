"""Pictures of the machine: where a launch runs, its memories, and what happens when."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from d2ltvm.figures import style

Spans = Sequence[tuple[float, float, str]]  # start, end, what: a name of draw_timeline's `colours`


class Chip(Protocol):
    """What `draw_machine` and `draw_memory` draw: a `d2ltvm.system.chips.Chip`."""

    @property
    def name(self) -> str: ...
    @property
    def sms(self) -> int: ...
    @property
    def fp32_lanes(self) -> int: ...
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


def draw_machine(chip: Chip, note: str | None = None) -> None:
    """Draw the levels of a launch at the left, and at the right where each of them runs.

    >>> d2ltvm.figures.draw_machine(d2ltvm.chip("H200"))

    Args:
        chip: a `Chip`.
        note: a line below the figure.
    """
    rows = (
        (
            "grid",
            "grid: all blocks of a launch",
            f"the GPU: {chip.sms} multiprocessors",
            f"L2 cache, {chip.l2_mib:g} MiB; device memory, {chip.memory_gb} GB",
        ),
        (
            "block",
            "block: up to 1,024 threads",
            f"one multiprocessor (SM), up to {chip.max_threads:,} threads",
            f"shared memory, up to {chip.shared_block_kib} KiB a block",
        ),
        (
            "warp",
            "warp: 32 threads that go in step",
            "one of the SM's four schedulers, one instruction at a time",
            "none of its own; asks with 32 addresses at once",
        ),
        (
            "thread",
            "thread: one run of the kernel",
            "one lane of the warp",
            f"registers, {chip.registers_kib} KiB an SM for all threads",
        ),
    )
    with style.page((5.2, 4.6), note=note) as (_, (axes,)):
        for x, title in ((0, "a launch"), (1, "where it runs"), (2, "memory")):
            axes.text(x + 0.46, 0.62, title, ha="center", fontsize=10, weight="bold")
        for k, (level, *texts) in enumerate(rows):
            for x, text in enumerate(texts):
                _cell(axes, x, -k, text, style.LEVELS[level])
            for right in (0.92, 1.92):
                ends = (right + 0.08, -k), (right, -k)
                axes.annotate("", *ends, arrowprops={"arrowstyle": "->"})
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
    words, lines = text.split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 18:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    ink = "white" if dark else "black"
    axes.text(x + 0.46, y, "\n".join(lines), ha="center", va="center", fontsize=8.5, color=ink)


def draw_memory(
    chip: Chip, measured: Mapping[str, str] | None = None, note: str | None = None
) -> None:
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
    with style.page((7, 4.2), note=note) as (_, (axes,)):
        for k, ((name, size), rate) in enumerate(zip(boxes, rates, strict=True)):
            half, y = 2.4 + 0.4 * k, -k
            box = Rectangle((-half, y - 0.3), 2 * half, 0.6, fc=style.tint(k), ec="black", lw=1)
            axes.add_patch(box)
            axes.text(0, y, f"{name}: {size}", ha="center", va="center", fontsize=10)
            if k:
                axes.annotate("", (0, y + 0.3), (0, y + 0.7), arrowprops={"arrowstyle": "<->"})
                axes.text(0.12, y + 0.5, rate, va="center", fontsize=10)
        axes.set(xlim=(-4.2, 4.2), ylim=(-4.5, 0.5))
        axes.axis("off")


def draw_timeline(
    panels: Mapping[str, Mapping[str, Spans]],
    colours: Mapping[str, str],
    unit: str = "cycles",
    note: str | None = None,
) -> None:
    """Draw who does what when: a row for each actor, time from left to right.

    >>> spans = {"warp 0": [(0, 1, "load"), (1, 5, "wait"), (5, 6, "add")]}
    >>> kinds = {"load": "#0072B2", "wait": "#F2F2F2", "add": "#D55E00"}
    >>> d2ltvm.figures.draw_timeline({"one warp": spans}, kinds)

    Args:
        panels: for each picture its rows by name, each a sequence of (start, end, what).
        colours: a colour for each kind of `what`, in the order of the legend.
        unit: of the times.
        note: a line below the figure.

    Raises:
        ValueError: a span is of a kind that has no colour, or ends before it starts.
    """
    counts = [len(rows) for rows in panels.values()]
    high = 0.28 * sum(counts) + 0.75 * len(counts) + 0.5
    end = max(e for rows in panels.values() for spans in rows.values() for _, e, _ in spans)
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
                    place = {"left": start, "height": 0.8, "ec": "black", "lw": 0.5}
                    axes.barh(y, stop - start, fc=colours[what], **place)
            axes.set_yticks(range(len(rows)), list(rows), fontsize=9)
            axes.set_title(title, fontsize=10, loc="left")
            axes.set(xlim=(0, end), ylim=(len(rows) - 0.5, -0.5))
        all_axes[-1].set_xlabel(unit)
        keys = [Rectangle((0, 0), 1, 1, fc=c, ec="black", lw=0.5) for c in colours.values()]
        figure.legend(keys, list(colours), ncols=len(keys), loc="outside upper left", frameon=False)
