"""Tensors of one name get names of their own: buffers are told apart by them from here on."""

from typing import Any

import tvm
import tvm_ffi

from d2ltvm.compiler.ir import find


def distinct(mod: Any) -> Any:
    """The module with a name of its own for each tensor of `main`: the second A becomes A_1.

    >>> A, B = (tvm.te.placeholder((8,)) for _ in range(2))
    >>> C = tvm.te.compute((8,), lambda i: A[i] - B[i], name="C")
    >>> main = tvm.te.create_prim_func([A, B, C])
    >>> [p.name for p in main.params]
    ['placeholder', 'placeholder', 'C']
    >>> [p.name for p in distinct(tvm.IRModule({"main": main}))["main"].params]
    ['placeholder', 'placeholder_1', 'C']

    Args:
        mod: an IRModule with a PrimFunc named `main`.

    Returns:
        The module itself, where no two tensors share a name.
    """
    main = mod["main"]
    names = _names(_tensors(main))
    renamed = {t: tvm.ir.Var(name, t.ty) for t, name in names.items() if name != t.name}
    if not renamed:
        return mod

    def rename(var: Any) -> Any:
        return renamed.get(var, var)

    changed = mod.clone()
    changed["main"] = tvm_ffi.structural_map(main, (tvm.ir.Var, rename))
    return changed


def _tensors(main: Any) -> list[Any]:
    """The tensors of a function: its parameters, then what its blocks allocate."""
    blocks = find(main.body, "SBlock")
    allocated = [buffer for block in blocks for buffer in block.alloc_buffers]
    allocated += [alloc.buffer for alloc in find(main.body, "AllocBuffer")]
    return list(dict.fromkeys([*main.params, *allocated]))


def _names(tensors: list[Any]) -> dict[Any, str]:
    """A name for each tensor: its own, where it is the first with it."""
    taken, names = {t.name for t in tensors}, {}
    first: set[str] = set()
    for t in tensors:
        name, number = t.name, 0
        while name in first or (number and name in taken):
            number += 1
            name = f"{t.name}_{number}"
        first.add(name)
        names[t] = name
    return names
