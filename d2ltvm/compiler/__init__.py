"""From a schedule to something that runs, by TVM, and to machine code without a GPU.

Begin with `kernel`: `build` and what it returns. `lowering` has TVM lower a schedule, `launches`
reads off what is launched; before them, `names` tells tensors apart, `checks` and `bounds` refuse
what would not run. `opencl` runs kernels on the processor, `cubin` calls NVRTC and the
disassembler, `printing` cuts sources down to what one looks at, `verify` compares results with
NumPy in float64. `in_order` keeps loads behind the stores before them.
`frames` keeps TVM's script parser from reading the source of the whole stack, and `parsing` from
compiling an expression twice.
"""

from d2ltvm import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)
