"""A figure that can be touched, as a cell of a notebook shows it."""

import functools
from collections.abc import Mapping
from typing import Any

from d2ltvm.explore import scripts


class Explorer:
    """A figure in a state: still where nothing runs, alive in the book's pages and in notebooks.

    >>> explorer = Explorer("banks", {"padding": 1})
    >>> print(explorer.says)
    A warp asks for 32 different words in 32 of the 32 banks: 1 wavefront, no conflict. ...

    Args:
        name: of the figure: that of its function, `d2ltvm.explore.<name>`.
        state: values that differ from those it starts with.
        given: what else it shows, as JSON can say it: a kernel's accesses, a record.

    Raises:
        TypeError: a value by a name that the figure does not have.
        ValueError: there is no such figure, or a value that it cannot take.
        MissingError: there is no QuickJS.
    """

    def __init__(self, name: str, state: Mapping[str, Any] | None = None, given: Any = None):
        self.name, self.given = name, given
        self._engine = scripts.engine()
        if name not in (names := self._engine.call("names")):
            raise ValueError(f"name is {name!r}; expected one of {', '.join(names)}")
        described = self._engine.call("described", name, given)
        self.title = described["title"]
        self.state: dict[str, Any] = {
            key: described["start"].get(key, values[0])
            for key, values in described["fields"].items()
        }
        for key, value in (state or {}).items():
            self.state[key] = _taken(name, key, value, described["fields"])

    @property
    def says(self) -> str:
        """What the figure shows in its state, in words."""
        return str(self._engine.call("said", self.name, self.state, self.given))

    @property
    def markup(self) -> str:
        """The figure as HTML, with its picture in its state."""
        return str(self._engine.call("still", self.name, self.state, self.given))

    def __repr__(self) -> str:
        return f"{self.title} {self.says}"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        bundle = {"text/plain": repr(self), "text/html": self.markup}
        return {**bundle, **view(self)}


def _taken(name: str, key: str, value: Any, fields: dict[str, list[Any]]) -> Any:
    """A value as JavaScript has it."""
    if key not in fields:
        raise TypeError(f"{name} has no value {key!r}; expected one of {', '.join(fields)}")
    if isinstance(value, bool):
        value = int(value)
    if value not in fields[key]:
        raise ValueError(f"{key} is {value!r}; expected {_among(fields[key])}")
    return value


def _among(values: list[Any]) -> str:
    """Values in words: a range where they are one, all of them otherwise."""
    if len(values) > 3 and values == list(range(values[0], values[-1] + 1)):
        return f"an integer from {values[0]} to {values[-1]}"
    return "one of " + ", ".join(map(str, values))


def view(shown: Any) -> dict[str, Any]:
    """The part of an output that a live notebook shows instead of the still picture.

    What a reader moves there comes back: `shown.state` is then what is seen.

    Args:
        shown: an `Explorer`, or what else has `markup`, `state` and, where it runs some, `kernels`.

    Empty without anywidget, and where no notebook is there to show it.
    """
    try:
        kind = _widget_class()
    except ImportError:
        return {}
    kernels = getattr(shown, "kernels", {})
    widget = kind(markup=shown.markup, state=shown.state, kernels=kernels)
    widget.observe(lambda change: setattr(shown, "state", change["new"]), "state")
    made = widget._repr_mimebundle_() or {}
    bundle = made[0] if isinstance(made, tuple) else made
    return {key: bundle[key] for key in bundle if key.endswith("widget-view+json")}


@functools.cache
def _widget_class() -> Any:
    """The anywidget of all figures; its script is the book's own modules."""
    import anywidget
    import traitlets

    class Figure(anywidget.AnyWidget):
        _esm = scripts.bundle("notebook.js", "module")
        _css = scripts.STYLE.read_text()
        markup = traitlets.Unicode().tag(sync=True)
        state = traitlets.Dict().tag(sync=True)
        kernels = traitlets.Dict().tag(sync=True)

    return Figure
