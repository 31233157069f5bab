"""Which lane holds which element, and where: fragments, swizzles, TMA's boxes.

In NumPy, so that kernels can be followed without a GPU. Begin with `fragments`, what a warp's
`mma` multiplies. `boxes` is what TMA copies, and how it swizzles rows; `warpgroups` is Hopper's
`wgmma`, which multiplies such rows.
"""

from d2ltvm.layouts.arrays import Array, Index, Pair
from d2ltvm.layouts.boxes import (
    EACH,
    ROW,
    Walk,
    box,
    im2col,
    put,
    swizzle,
    swizzle_64b,
    swizzle_128b,
    tiles,
)
from d2ltvm.layouts.fragments import (
    fragment,
    gather,
    lane_a,
    lane_b,
    lane_c,
    ldmatrix_lane,
    ldmatrix_row,
    scatter,
    swizzle_32b,
)
from d2ltvm.layouts.warpgroups import (
    SPANS,
    Matrix,
    accumulator,
    multiply,
    multiply_rows,
    rows_of,
    wgmma,
    words,
)

__all__ = [
    "EACH",
    "ROW",
    "SPANS",
    "Array",
    "Index",
    "Matrix",
    "Pair",
    "Walk",
    "accumulator",
    "box",
    "fragment",
    "gather",
    "im2col",
    "lane_a",
    "lane_b",
    "lane_c",
    "ldmatrix_lane",
    "ldmatrix_row",
    "multiply",
    "multiply_rows",
    "put",
    "rows_of",
    "scatter",
    "swizzle",
    "swizzle_32b",
    "swizzle_64b",
    "swizzle_128b",
    "tiles",
    "wgmma",
    "words",
]
