"""Who waits for what, and who tells whom: the roles of a kernel, as columns with arrows between."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from d2ltvm.errors import shown
from d2ltvm.figures import style

# A message is (from, to, words), or has 'waits' behind that; what a role does by itself is (role,
# role, words); a text stands above what follows, on a line of its own.
RoleMessage = tuple[str, str, str] | tuple[str, str, str, str] | str
KINDS = {"threads": "#BFE0F5", "unit": "#BFE3D5", "barrier": "#FBE3A6"}
_LINE, _INK = "#999999", "#333333"


def draw_roles(
    roles: Mapping[str, str], messages: Sequence[RoleMessage], note: str | None = None
) -> None:
    """Draw a column for each role, and below each other what one tells another.

    >>> roles = {"producer": "threads", "full": "barrier", "consumer": "threads"}
    >>> told = [("producer", "full", "arrives"), ("full", "consumer", "may go on")]
    >>> d2ltvm.figures.draw_roles(roles, told)

    An arrow that leaves a barrier is dashed: somebody waits there until then. So is one with the
    word 'waits'.

    Args:
        roles: of each column, by its name, what it is: 'threads', 'unit' or 'barrier'.
        messages: from the first on: (from, to, words), or (from, to, words, 'waits') where the one
            that is told waits for it; (role, role, words) for what a role does by itself; or a text
            that divides what is above it from what is below.
        note: a line below the figure.

    Raises:
        ValueError: there are no roles or no messages, or one is not as above.
    """
    if not roles or not messages:
        raise ValueError(f"roles has {len(roles)}, messages {len(messages)}; expected some of both")
    columns = {name: x for x, name in enumerate(roles)}
    for name, kind in roles.items():
        if kind not in KINDS:
            raise ValueError(f"{name!r} is a {shown(kind)}; expected one of {', '.join(KINDS)}")
    high = 0.34 * len(messages) + 0.95
    with style.page((5.6, high), note=note) as (figure, (axes,)):
        for name, x in columns.items():
            box = Rectangle((x - 0.44, -1.35), 0.88, 0.9, fc=KINDS[roles[name]], ec="black", lw=0.7)
            axes.add_patch(box)
            axes.text(x, -0.9, name, ha="center", va="center", fontsize=8.5)
            axes.plot([x, x], [-0.45, len(messages) - 0.1], color=_LINE, lw=0.8, zorder=0)
        for y, message in enumerate(messages):
            _draw(axes, columns, roles, y, message)
        axes.set(xlim=(-0.52, len(columns) - 0.48), ylim=(len(messages), -1.45))
        axes.axis("off")
        used = {kind: colour for kind, colour in KINDS.items() if kind in roles.values()}
        keys: list[Any] = [Rectangle((0, 0), 1, 1, fc=c, ec="black", lw=0.5) for c in used.values()]
        keys += [axes.plot([], [], line, color=_INK)[0] for line in ("-", "--")]
        names = [*used, "tells", "is waited for"]
        look: dict[str, Any] = {"ncols": len(keys), "fontsize": 8.5, "frameon": False}
        figure.legend(keys, names, loc="outside upper left", columnspacing=1, **look)


def _draw(
    axes: Axes, columns: Mapping[str, int], roles: Mapping[str, str], y: float, message: RoleMessage
) -> None:
    """One line of the picture."""
    around: dict[str, Any] = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none"}
    text: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8.5, "color": "black"}
    if isinstance(message, str):
        axes.axhline(y + 0.15, color=_LINE, lw=0.8, ls=":")
        axes.text((len(columns) - 1) / 2, y + 0.15, message, **text, style="italic", bbox=around)
        return
    sender, receiver, words, *waits = message if len(message) > 2 else (*message, "", "")
    if waits not in ([], ["waits"]) or not {sender, receiver} <= {*columns}:
        raise ValueError(f"a message is {shown(message)}; expected two of the roles, and words")
    start, stop = columns[sender], columns[receiver]
    if start == stop:
        axes.text(start, y + 0.1, words, **text, bbox={**around, "ec": "black", "lw": 0.6})
        return
    line = "--" if waits or roles[sender] == "barrier" else "-"
    look = {"arrowstyle": "-|>", "color": _INK, "ls": line, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (stop, y + 0.4), (start, y + 0.4), arrowprops=look)
    axes.text((start + stop) / 2, y + 0.07, words, **text, bbox=around)
