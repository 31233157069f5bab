"""TVM's IR with its fields at hand: an interpreter comes back to each node many times."""

import functools
from typing import Any

import tvm
import tvm_ffi


class Mirror:
    """A node of TVM's IR. Each of its fields is asked of TVM once; what it holds are mirrors, too.

    One node has one mirror, so that a mirror can stand for a variable or a buffer in a dict.

    >>> function = mirror(d2ltvm.schedule(d2ltvm.vector_add(8)).mod["main"])
    >>> function.type_name, function.body.type_name, function.params is function.params
    ('PrimFunc', 'SBlockRealize', True)
    """

    def __init__(self, node: Any, known: dict[int, "Mirror"]) -> None:
        self.original, self._known = node, known  # which also keeps the node, and so its hash
        self.type_name = type(node).__name__

    def __getattr__(self, name: str) -> Any:
        value = _mirrored(getattr(self.original, name), self._known)
        self.__dict__[name] = value
        return value

    def __int__(self) -> int:
        return int(self.original)

    def __str__(self) -> str:
        return str(self.original)

    @functools.cached_property
    def operation(self) -> str:
        """The name of what an expression calls; '' where it calls nothing."""
        name = getattr(getattr(self.original, "op", None), "name", "")
        return str(name.rpartition(".")[2])

    @functools.cached_property
    def number(self) -> int:
        """The integer that a constant is."""
        return int(self.original.value)

    @functools.cached_property
    def element(self) -> str:
        """NumPy's name for an element of an expression's type."""
        return str(self.original.ty.dtype).partition("x")[0]

    @functools.cached_property
    def lanes_of_type(self) -> int:
        """How many elements an expression's type has."""
        return int(tvm.DataType(str(self.original.ty.dtype)).lanes)

    @functools.cached_property
    def held(self) -> tuple[str, int]:
        """NumPy's name for a number in a buffer, and how many of them are an element: its lanes."""
        kind, _, lanes = str(self.original.dtype).partition("x")
        return kind, int(lanes or 1)


def mirror(node: Any) -> Mirror:
    """The mirror of a node, such as a function with all that it holds."""
    return Mirror(node, {})


def _mirrored(value: Any, known: dict[int, Mirror]) -> Any:
    if isinstance(value, str | bytes | int | float):
        return value
    if isinstance(value, list | tuple) or type(value) is tvm_ffi.Array:
        return tuple(_mirrored(part, known) for part in value)
    if not isinstance(value, tvm_ffi.Object):
        return value
    key = tvm_ffi.Object.__hash__(value)  # that of where it lies; some nodes have none of their own
    if key not in known:
        known[key] = Mirror(value, known)
    return known[key]
