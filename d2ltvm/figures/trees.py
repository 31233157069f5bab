"""A tree from left to right: what came of what, and by which step."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from d2ltvm.errors import shown
from d2ltvm.figures import style

Tree = Sequence[Any]  # (step, text, children), and each child the same; siblings share a step
WIDE, HIGH = 1.0, 0.86  # of a box's place, the share that it takes
STEP = 1.6  # from one box to the next, in widths


def draw_tree(panels: Mapping[str, Tree], note: str | None = None) -> None:
    """Draw trees one below the other, each from its root at the left to its leaves at the right.

    >>> leaf = ("rule B", "tiles", ())
    >>> d2ltvm.figures.draw_tree({"a product": ("", "the loops", (leaf, leaf))})

    Args:
        panels: trees by title. A tree is the step that leads to it, what stands in its box, and its
            children, which are trees. Lines of a box are parted by newlines.
        note: a line below the figure.

    Raises:
        ValueError: there is no tree.
    """
    if not panels:
        raise ValueError(f"panels is {shown(panels)}; expected one tree or more")
    leaves = [_leaves(tree) for tree in panels.values()]
    high = sum(0.78 * many + 0.35 for many in leaves)
    ratios = {"height_ratios": leaves}
    with style.page((5.6, high), len(panels), 1, note, gridspec_kw=ratios) as (_, axes):
        for axis, (title, tree) in zip(axes, panels.items(), strict=True):
            axis.set_title(title, loc="left", fontsize=10)
            _draw(axis, tree, 0, 0.0)
            axis.set(xlim=(-0.05, STEP * (_depth(tree) - 1) + WIDE + 0.05))
            axis.set(ylim=(_leaves(tree) - 0.45, -0.55))
            axis.axis("off")


def _draw(axes: Axes, tree: Tree, level: int, top: float) -> float:
    """Draw a tree whose first leaf is at `top`; returns where its root is."""
    _, text, children = tree
    x, at, ends = STEP * level, top, []
    for child in children:
        ends.append((_draw(axes, child, level + 1, at), child[0]))
        at += _leaves(child)
    y = sum(end for end, _ in ends) / len(ends) if ends else top
    colour = style.LEVELS["grid"] if children else style.LEVELS["block"]
    box = FancyBboxPatch((x, y - HIGH / 2), WIDE, HIGH, boxstyle="round,pad=0,rounding_size=0.06")
    box.set(facecolor=colour, edgecolor="#555555", linewidth=0.8)
    axes.add_patch(box)
    axes.text(x + WIDE / 2, y, text, ha="center", va="center", fontsize=7.5)
    for end, _ in ends:
        axes.annotate(
            "", (x + STEP, end), (x + WIDE, y), arrowprops={"arrowstyle": "->", "color": "#555555"}
        )
    if ends:
        end, step = ends[len(ends) // 2]
        middle = x + (STEP + WIDE) / 2
        clear = {"facecolor": axes.get_facecolor(), "edgecolor": "none", "pad": 1}  # of arrows
        where: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 6.5, "bbox": clear}
        axes.text(middle, (y + end) / 2 - 0.08, step, **where)
    return y


def _leaves(tree: Tree) -> int:
    return sum(map(_leaves, tree[2])) or 1


def _depth(tree: Tree) -> int:
    return 1 + max(map(_depth, tree[2]), default=0)
