"""A kernel whose loads say which caches keep what they bring."""

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from d2ltvm.compiler.lowering import as_module, parameters
from d2ltvm.errors import shown

# Source: PTX ISA, "Cache Operators". CUDA has them as __ldca and __ldcg.
OPERATORS = {"ca": "L1 and L2", "cg": "L2 alone"}


def with_loads(sch: Any, operator: str) -> Any:
    """The same kernel, its loads from global memory with one of PTX's cache operators.

    It is for experiments: two kernels made with 'ca' and with 'cg' differ in what the L1 cache
    keeps, and in nothing else.

    >>> kernel = with_loads(d2ltvm.schedules.one_thread_each(1024), "cg")
    >>> "__ldcg" in d2ltvm.build(kernel, "sm_90").source
    True

    Args:
        sch: as for `d2ltvm.build`.
        operator: 'ca', to keep it in the L1 and the L2 cache, or 'cg', in the L2 cache alone.

    Returns:
        An IRModule, for CUDA only. `d2ltvm.traffic` does not follow it: count the kernel itself.

    Raises:
        ValueError: `operator` is another.
    """
    if operator not in OPERATORS:
        raise ValueError(f"operator is {shown(operator)}; expected 'ca' or 'cg'")
    mod = as_module(sch).clone()
    inputs = {p.name for p in parameters(mod) if not p.output}

    def load(node: Any) -> Any:
        if node.source.name not in inputs:
            return node
        return tirx.call_extern(node.ty.dtype, f"__ld{operator}", tirx.address_of(node))

    mod["main"] = tvm_ffi.structural_map(mod["main"], (tvm.ir.TensorLoad, load))
    return mod
