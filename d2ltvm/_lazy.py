"""Loads names on first use, as a package's stub, `__init__.pyi`, says where they live.

The package `lazy_loader` does the same. This one takes the standard library alone, since
`python -m d2ltvm doctor` has to run where nothing is installed yet.
"""

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def attach(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package with a stub beside its `__init__.py`.

    Args:
        package: its `__name__`.
        file: its `__file__`.
    """
    homes = _homes(Path(file).with_suffix(".pyi").read_text())

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] is None:
            return importlib.import_module(f"{package}.{name}")
        home = importlib.import_module(f"{package}.{homes[name]}")
        if not hasattr(home, name):  # a module of a subpackage
            importlib.import_module(f"{home.__name__}.{name}")
        return getattr(home, name)

    return load, lambda: sorted(homes), sorted(homes)


def _homes(stub: str) -> dict[str, str | None]:
    """By name the module that a stub imports it from; None for a module itself."""
    imports = [node for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in imports for alias in node.names}
