"""Looking through TVM's IR."""

from typing import Any

import tvm_ffi


def find(root: Any, *kinds: str) -> list[Any]:
    """All IR nodes below `root` whose class has one of these names, outermost first.

    >>> [loop.loop_var.name for loop in find(d2ltvm.schedules.default_sch(4, 3, 8, 3, 1, 1)
    ...     .mod["main"].body, "For")][:2]
    ['i', 'j']
    """
    nodes: list[Any] = []

    def visit(node: Any) -> None:
        if type(node).__name__ in kinds:
            nodes.append(node)

    tvm_ffi.structural_walk(root, visit, order="pre")
    return nodes
