"""Kernels for the H100 and H200, written in TIRx, thread by thread, with TMA and wgmma.

Begin with `first_kernels`, the smallest ones, `ordered`, where the order of accesses matters, and
`ring`, which only moves data. Then come `wgmma` (one tile), `product`, `implicit` (convolution) and
`float32`. They share `tiles` and `tile_scheduler`; `planning` cuts a result into tiles. `patch`
takes a part of a kernel away, to see what it is worth.

`any_shape` has a kernel for convolutions of any shape and products of any sizes, put together from
`any_mainloop` and `any_epilogue`. `any_conv` describes what is computed, `any_plan` how it is cut
into tiles, and `any_model` how long that takes, with the constants of a chip in `any_costs`, by
which `planner` chooses. `fastest` has the plans that were fastest where sizes were measured,
`tuned` those that were fastest on this machine, and `any_layer` adds the copies that some layers
need. `depthwise`, `pooling`, `stem` and `implicit_fused` have what a whole network needs besides;
`strips` says which pixels a thread of the first two has.
"""

from d2ltvm import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)
