"""Puts the JavaScript modules together, and runs them where there is no browser.

A page opened from the disk may load scripts and no modules, so the modules that an entry needs
become one script. What they may use of the language is little: imports and exports by name.
"""

import dataclasses
import functools
import json
import re
import threading
from pathlib import Path
from typing import Any

from d2ltvm.compiler import cubin
from d2ltvm.errors import MissingError
from d2ltvm.system import chips

FOLDER = Path(__file__).with_name("js")
STYLE = Path(__file__).with_name("css") / "explore.css"
_IMPORT = re.compile(r'^import\s*\{([^}]*)\}\s*from\s*"([^"]+)";\n', re.M)
_EXPORT = re.compile(r"^export\s+((?:async\s+)?function\*?|const|class)\s+(\w+)", re.M)
_DATA = re.compile(r'JSON\.parse\("\{\{(\w+)\}\}"\)')
_COMMENT = re.compile(r"^\s*/\*\*.*?\*/\n", re.M | re.S)


def bundle(entry: str, form: str = "script") -> str:
    """One text with a module and all that it imports, each in a function of its own.

    >>> bundle("page.js").startswith("(() => {")
    True

    Args:
        entry: a path under `js`.
        form: 'script' for a page; 'value', an expression whose value has what the entry exports;
            'module' for anywidget, which takes the default export.

    Raises:
        ValueError: a module imports or exports in a way that is not known here, or there is a
            circle of imports.
    """
    order: list[Path] = []
    _visit((FOLDER / entry).resolve(), order, [])
    parts = [_wrapped(path, order) for path in order]
    value = f'(() => {{\n"use strict";\n{"".join(parts)}return m{len(order) - 1};\n}})()'
    return {"script": f"{value};\n", "value": value, "module": f"export default {value};\n"}[form]


def _visit(path: Path, order: list[Path], above: list[Path]) -> None:
    """Append a module behind those that it imports."""
    if path in above:
        raise ValueError(f"{path.name} imports itself by way of {above[-1].name}")
    if path in order:
        return
    for _, source in _IMPORT.findall(path.read_text()):
        _visit((path.parent / source).resolve(), order, [*above, path])
    order.append(path)


def _wrapped(path: Path, order: list[Path]) -> str:
    """A module as a constant that has what it exports."""
    text = _COMMENT.sub("", path.read_text())

    def constants(match: re.Match[str]) -> str:
        number = order.index((path.parent / match[2]).resolve())
        return f"const {{{match[1].replace(' as ', ': ')}}} = m{number};\n"

    body = _DATA.sub(lambda match: json.dumps(_data()[match[1]]), _IMPORT.sub(constants, text))
    names = [name for _, name in _EXPORT.findall(body)]
    body = _EXPORT.sub(r"\1 \2", body)
    if wrong := re.search(r"^(import|export)\b.*", body, re.M):
        raise ValueError(f"{path.name}: {wrong[0]!r}; expected imports and exports by name")
    return f"const m{order.index(path)} = (() => {{\n{body}return {{{', '.join(names)}}};\n}})();\n"


@functools.cache
def _data() -> dict[str, Any]:
    """What the package knows, for modules that say `JSON.parse("{{name}}")`."""
    return {
        "chips": {name: dataclasses.asdict(chip) for name, chip in chips.CHIPS.items()},
        "reserved_shared": cubin.RESERVED_SHARED,
    }


class Engine:
    """The modules in QuickJS, an interpreter of JavaScript in Python.

    Raises:
        MissingError: there is no QuickJS.
    """

    def __init__(self) -> None:
        try:
            import quickjs
        except ImportError:
            raise MissingError(
                "no QuickJS, which draws figures that can be touched",
                "the figures on the book's pages",
                "pip install quickjs",
            ) from None
        self._context = quickjs.Context()
        self._context.eval(f"const d2ltvm = {_bundled()};")

    def call(self, function: str, *arguments: Any) -> Any:
        """What a function of `js/python.js` returns, for values that JSON knows."""
        given = ", ".join(json.dumps(argument) for argument in arguments)
        result = self._context.eval(f"JSON.stringify(d2ltvm.{function}({given}))")
        return None if result is None else json.loads(result)


_of_thread = threading.local()  # an interpreter belongs to the thread that made it


def engine() -> Engine:
    """The engine of this thread, made once: to read the modules takes longer than to draw."""
    if not hasattr(_of_thread, "engine"):
        _of_thread.engine = Engine()
    found: Engine = _of_thread.engine
    return found


@functools.cache
def _bundled() -> str:
    return bundle("python.js", "value")
