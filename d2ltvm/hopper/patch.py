"""Kernels with a part of them taken away or put otherwise, to see what the part is worth."""

import inspect
import itertools
import linecache
import re
import textwrap
from collections.abc import Callable
from typing import Any, cast

from tvm.tirx.script.parser.entry import TIRInline

_number = itertools.count()


def changed(function: Callable[..., Any], *edits: tuple[str, str], **names: Any) -> Any:
    """A function as another, but for edits of its source and other meanings of global names.

    >>> hasty = changed(hopper.matmul_nt, wait_for_kernel_before=lambda: None)
    >>> same = changed(hopper.conv_nhwc, ("if warpgroup == 0:", "if warpgroup < 1:"))

    TVM's script parser reads a kernel's source and looks up its macros by name, and so it does
    here: the new source is kept where Python's `inspect` finds it.

    Args:
        function: a function of a module, or what `T.inline` made of one.
        edits: pairs of text: what to replace, wherever it stands in the source, by what.
        names: what names that the source, as edited, takes from outside are to mean in it.

    Returns:
        A function with the same parameters.

    Raises:
        ValueError: the source lacks what is to be replaced, or a name.
    """
    function = _plain(function)
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in edits:
        if old not in source:
            raise ValueError(f"edits has {old!r}; expected text of {function.__name__}")
        source = source.replace(old, new)
    for name in names:
        if not re.search(rf"\b{name}\b", source):
            raise ValueError(f"names has {name}; expected a name in {function.__name__}")
    file = f"<{function.__name__}, changed {next(_number)}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    space = {**inspect.unwrap(function).__globals__, **names}  # a decorator has other ones
    exec(compile(source, file, "exec"), space)
    return space[function.__name__]


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a macro of `T.inline` was made of; any other one as it is."""
    for cell in getattr(function, "__closure__", None) or ():
        if isinstance(cell.cell_contents, TIRInline):
            return cast(Callable[..., Any], cell.cell_contents.func)
    return function
