"""Kernels for the H100 and H200, written in TIRx, thread by thread, with TMA and wgmma.

Begin with `ring`, which only moves data, then `wgmma` (one tile), `product`, `implicit`
(convolution) and `float32`. They share `tiles` and `tile_scheduler`; `planning` cuts a
result into tiles. `patch` takes a part of a kernel away, to see what it is worth.
"""

from d2ltvm import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)
