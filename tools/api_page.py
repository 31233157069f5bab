"""Write book/api.md: the reader's names, as the package's stub groups them, and then its rooms."""

import ast
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import book
import d2ltvm

STUB = book.ROOT / "d2ltvm" / "__init__.pyi"
# A chapter links to the group with the clocks.
ANCHORS = {"Measure it, and keep the measurement": "api-clocks"}

HEAD = """# The package

What the notebooks import as `d2ltvm`. First the names that a reader needs, by what one wants to
do: each is `d2ltvm.<name>`, and is loaded on first use. Then what lies below, room by room, with
where to begin reading.
"""


def groups() -> dict[str, list[str]]:
    """The names of the reader's surface by the comments of the stub, in its order."""
    found = {}
    for part in STUB.read_text().split("\n\n"):
        if (names := _imported(part)) and part.startswith("# "):
            found[part.splitlines()[0].removeprefix("# ").rstrip(".")] = names
    return found


def rooms() -> list[str]:
    """The subpackages and modules that are names of the surface."""
    in_groups = {name for names in groups().values() for name in names}
    return sorted(set(_imported(STUB.read_text())) - in_groups)


def _imported(text: str) -> list[str]:
    nodes = (node for node in ast.parse(text).body if isinstance(node, ast.ImportFrom))
    return [alias.name for node in nodes for alias in node.names]


def surface() -> Iterator[str]:
    """The part of the page with the reader's names."""
    for heading, names in groups().items():
        if heading in ANCHORS:
            yield f"({ANCHORS[heading]})="
        yield f"## {heading}\n"
        described = [n for n in names if not inspect.ismodule(getattr(d2ltvm, n))]
        yield ", ".join(f"{{py:obj}}`~d2ltvm.{name}`" for name in described) + "\n"
        yield from (_entry(name, getattr(d2ltvm, name)) for name in names)


def below(room: str) -> Iterator[str]:
    """The part of the page with one subpackage: its guide, and its modules."""
    module = getattr(d2ltvm, room)
    yield f"## d2ltvm.{room}\n"
    yield _directive("automodule", module.__name__, *([] if _is_package(module) else ["members"]))
    if _is_package(module):
        for found in pkgutil.walk_packages(module.__path__, f"{module.__name__}."):
            yield f"### {found.name.removeprefix('d2ltvm.')}\n"
            yield _module(found.name)


def page() -> str:
    """The text of the page."""
    return "\n".join([HEAD, *surface(), *(line for room in rooms() for line in below(room))])


def _entry(name: str, value: Any) -> str:
    if inspect.ismodule(value):
        return f"- `d2ltvm.{name}`, below: {(value.__doc__ or '').splitlines()[0]}\n"
    if inspect.isclass(value):
        return _directive("autoclass", f"d2ltvm.{name}", "members")
    return _directive("autofunction", f"d2ltvm.{name}")


def _module(name: str) -> str:
    """A module, without what the reader's part has of it."""
    shown = {n: getattr(d2ltvm, n) for names in groups().values() for n in names}
    here = sorted(n for n, v in shown.items() if getattr(v, "__module__", "") == name)
    return _directive("automodule", name, "members", *(["exclude-members"] if here else []), *here)


def _directive(kind: str, name: str, *options: str) -> str:
    """A directive of Sphinx; what follows the option exclude-members are its names."""
    kept = [option for option in options if option in ("members", "exclude-members")]
    names = ", ".join(option for option in options if option not in kept)
    lines = [f"   :{o}:{f' {names}' if o == 'exclude-members' else ''}" for o in kept]
    return "\n".join(["```{eval-rst}", f".. {kind}:: {name}", *lines, "```", ""])


def _is_package(module: Any) -> bool:
    return hasattr(module, "__path__")


def main() -> None:
    """Write the page, anew after any change of the package, whose docstrings stand on it."""
    changed = max(path.stat().st_mtime for path in Path(d2ltvm.__file__).parent.rglob("*.py"))
    book.write_page(book.ROOT / "book" / "api.md", page(), after=changed)


if __name__ == "__main__":
    book.no_arguments(__doc__)
    main()
