"""Where the elements of a tile stand in shared memory, and in which wavefront they come."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from d2ltvm.figures import style

Array = np.ndarray[Any, Any]


class Tile(NamedTuple):
    """A tile as it lies in memory, and what the lanes of a warp ask of it.

    Attributes:
        places: the word in which each element stands; of two dimensions.
        asked: row and column of the element that each lane asks for, lane by lane.
    """

    places: Array
    asked: Sequence[tuple[int, int]]


def draw_banks(
    panels: Mapping[str, Tile], banks: int = 8, columns: int = 2, note: str | None = None
) -> None:
    """Draw tiles in a small shared memory: a column is a bank, a square is a word of it.

    The two digits in a square are the row and the column of the element that stands there. Coloured
    squares are asked for; those of one colour come with one wavefront. Words in which nothing
    stands are hatched.

    >>> plain = np.arange(64).reshape(8, 8)
    >>> padded = np.arange(72).reshape(8, 9)[:, :8]
    >>> column = [(row, 0) for row in range(8)]
    >>> draw_banks({"before": Tile(plain, column), "after": Tile(padded, column)})

    Args:
        panels: for each picture a `Tile`; the number of its wavefronts stands in the title.
        banks: how many there are. A GPU has 32; eight are enough to see it.
        columns: pictures side by side.
        note: a line below the figure.

    Raises:
        ValueError: elements of a tile stand in one word, or a lane asks for one that is not there.
    """
    waves = {title: _waves(title, tile, banks) for title, tile in panels.items()}
    rows = -(-len(panels) // columns)
    deep = [
        max(int(tile.places.max()) // banks + 1 for tile in [*panels.values()][k : k + columns])
        for k in range(0, len(panels), columns)
    ]
    side = 5.6 / columns / (banks + 1.4)
    high = side * (sum(deep) + rows) + 0.3 * rows + 0.4
    sizes: dict[str, Any] = {"height_ratios": [size + 1.5 for size in deep]}
    with style.page((5.6, high), rows, columns, note=note, **sizes) as (figure, drawn):
        for axes in drawn:
            axes.axis("off")
        for k, (title, tile) in enumerate(panels.items()):
            count = max(waves[title].values()) + 1
            named = "1 wavefront" if count == 1 else f"{count} wavefronts"
            _draw(drawn[k], tile, waves[title], banks, deep[k // columns])
            drawn[k].set_title(f"{title}: {named}", loc="left", fontsize=10)
        keys = [
            Patch(fc=style.tint(0), ec="black", lw=0.6),
            Patch(fc="white", ec="#999999", lw=0.6),
            Patch(fc="white", ec="#999999", lw=0.6, hatch="////"),
        ]
        names = ["asked for, a colour a wavefront", "not asked for", "left free"]
        figure.legend(keys, names, ncols=3, fontsize=8.5, loc="outside upper left", frameon=False)


def _waves(title: str, tile: Tile, banks: int) -> dict[int, int]:
    """The wavefront, from 0, that brings each word that is asked for."""
    if len(np.unique(tile.places)) < tile.places.size:
        raise ValueError(f"{title!r} has elements that share a word; expected one for each")
    words: list[int] = []
    for row, column in tile.asked:
        if not (0 <= row < tile.places.shape[0] and 0 <= column < tile.places.shape[1]):
            raise ValueError(
                f"{title!r} has a lane that asks for {(row, column)}; expected an element of "
                f"{tile.places.shape[0]} by {tile.places.shape[1]}"
            )
        word = int(tile.places[row, column])
        if word not in words:
            words.append(word)
    return {
        word: sum(before % banks == word % banks for before in words[:k])
        for k, word in enumerate(words)
    }


def _draw(axes: Axes, tile: Tile, waves: Mapping[int, int], banks: int, deep: int) -> None:
    stands = {int(word): f"{row}{column}" for (row, column), word in np.ndenumerate(tile.places)}
    for word in range(int(tile.places.max()) // banks * banks + banks):
        y, x = divmod(word, banks)
        asked, empty = word in waves, word not in stands
        colour = style.tint(waves[word]) if asked else "white"
        edge = "black" if asked else "#bbbbbb"
        hatch = "////" if empty else None
        square = Rectangle((x, y), 0.94, 0.94, fc=colour, ec=edge, lw=0.7, hatch=hatch)
        axes.add_patch(square)
        if not empty:
            ink, weight = ("black", "bold") if asked else ("#666666", "normal")
            centre: dict[str, Any] = {
                "ha": "center",
                "va": "center",
                "fontsize": 7,
                "weight": weight,
            }
            axes.text(x + 0.47, y + 0.5, stands[word], color=ink, **centre)
    for bank in range(banks):
        axes.text(bank + 0.47, -0.3, str(bank), ha="center", va="center", fontsize=7)
    axes.text(-0.15, -0.3, "bank", ha="right", va="center", fontsize=7)
    axes.set(xlim=(-1.3, banks + 0.05), ylim=(deep + 0.05, -0.7), aspect="equal", anchor="NW")
