"""Figures of the book, in one style.

`curves` has curves, bars and the roofline; `drawings` has pictures of who touches what, and of a
GPU's memories. Every function draws a figure and returns nothing, so that a notebook shows it once.
`tiles` has the tiles of blocks, warps and threads, `machine` the levels of a launch and timelines.
Colours, markers and `STYLE`, a Matplotlib style
sheet, are in `style`.
"""

from d2ltvm.figures.curves import bars, plot, plot_gflops, plot_record, roofline
from d2ltvm.figures.drawings import draw_requests, draw_threads, draw_touched
from d2ltvm.figures.machine import draw_machine, draw_memory, draw_timeline
from d2ltvm.figures.style import COLOURS, DASHES, LEVELS, MARKERS, STYLE
from d2ltvm.figures.tiles import draw_tiles

__all__ = [
    "COLOURS",
    "DASHES",
    "LEVELS",
    "MARKERS",
    "STYLE",
    "bars",
    "draw_machine",
    "draw_memory",
    "draw_requests",
    "draw_threads",
    "draw_tiles",
    "draw_timeline",
    "draw_touched",
    "plot",
    "plot_gflops",
    "plot_record",
    "roofline",
]
