"""Schedules that the chapters teach, each as in the cell that defines it.

Begin with `elementwise`. `matmul`, `conv` (one image), `reductions`, `softmax`, `layer_norm` and
`conv_batch` follow the order of the book; `loops` has what they share, and `tensor_intrinsics` the
instructions of TensorCores. All of them can be reached here: `schedules.matmul_tiled`.
"""

from d2ltvm import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)
