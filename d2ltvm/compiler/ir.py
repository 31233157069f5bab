"""Looking through TVM's IR."""

from typing import Any

import tvm
import tvm_ffi


def find(root: Any, *kinds: str) -> list[Any]:
    """All IR nodes below `root` whose class has one of these names, outermost first.

    >>> [loop.loop_var.name for loop in find(d2ltvm.schedules.default_sch(4, 3, 8, 3, 1, 1)
    ...     .mod["main"].body, "For")][:2]
    ['i', 'j']
    """
    nodes: list[Any] = []

    def visit(node: Any) -> None:
        if type(node).__name__ in kinds:  # and not that of a class derived from it
            nodes.append(node)

    classes = tuple(_class(kind) for kind in kinds)
    tvm_ffi.structural_walk(root, (classes, visit), order="pre")
    return nodes


def _class(kind: str) -> Any:
    """The class of TVM's of a name: with it a walk calls Python at nodes of that class alone."""
    homes = (tvm.tirx, tvm.s_tir, tvm.ir)
    return getattr(next((home for home in homes if hasattr(home, kind)), tvm), kind)
