"""What the notebooks of "Scheduling GPU kernels with TVM" import.

`dir(d2ltvm)` is what a reader needs; `__init__.pyi` has the same list, with where each name lives.
Everything is loaded on first use, so that `import d2ltvm` costs nothing, and so that
`d2ltvm.system.colab` can prepare a driver before anything touches the GPU.
"""

from d2ltvm import _lazy

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)
