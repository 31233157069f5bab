"""This machine: what is installed, which GPU there is, and the data sheets of GPUs.

Begin with `devices`, which says where kernels run. `toolchain` finds NVIDIA's compiler in its pip
packages, `colab` prepares Colab's driver, `doctor` is `python -m d2ltvm doctor`, `environment`
knows versions that fail together, `threads` counts cores, `processor` names one that PoCL
does not know, `chips` has the data sheets.
"""

from d2ltvm import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)
