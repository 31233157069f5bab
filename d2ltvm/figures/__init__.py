"""Figures of the book, in one style.

`curves` has curves, bars and the roofline, `ticks` what stands around them; `drawings` has pictures
of who touches what, and of a GPU's memories. Every function draws a figure and returns nothing, so
that a notebook shows it once.
`tiles` has the tiles of blocks, warps and threads, `windows` those of a convolution and what they
read, `machine` the levels of a launch, timelines and steps, `roles` who waits for whom in a kernel,
`pieces` rows of float32 that are split, `launches` the pictures of the first chapters, `trees` what
came of what. Colours, markers and `STYLE`, a Matplotlib style sheet, are in `style`.
"""

from d2ltvm.figures.curves import bars, plot, plot_gflops, plot_record, provenance, roofline
from d2ltvm.figures.drawings import (
    draw_chain,
    draw_kinds,
    draw_requests,
    draw_threads,
    draw_touched,
)
from d2ltvm.figures.graphs import draw_graph, draw_storages
from d2ltvm.figures.launches import draw_first_step, draw_flow, draw_launch, draw_reads
from d2ltvm.figures.machine import draw_machine, draw_memory, draw_steps, draw_timeline
from d2ltvm.figures.pieces import draw_places, draw_split_row
from d2ltvm.figures.roles import draw_roles
from d2ltvm.figures.style import COLOURS, DASHES, LEVELS, MARKERS, STYLE
from d2ltvm.figures.tiles import draw_block, draw_tiles
from d2ltvm.figures.trees import draw_tree
from d2ltvm.figures.windows import draw_conv_tiles, draw_inputs, draw_window

__all__ = [
    "COLOURS",
    "DASHES",
    "LEVELS",
    "MARKERS",
    "STYLE",
    "bars",
    "draw_block",
    "draw_chain",
    "draw_conv_tiles",
    "draw_first_step",
    "draw_flow",
    "draw_graph",
    "draw_inputs",
    "draw_kinds",
    "draw_launch",
    "draw_machine",
    "draw_memory",
    "draw_places",
    "draw_reads",
    "draw_requests",
    "draw_roles",
    "draw_split_row",
    "draw_steps",
    "draw_storages",
    "draw_threads",
    "draw_tiles",
    "draw_timeline",
    "draw_touched",
    "draw_tree",
    "draw_window",
    "plot",
    "plot_gflops",
    "plot_record",
    "provenance",
    "roofline",
]
