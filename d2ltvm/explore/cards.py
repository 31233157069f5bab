"""Kernels that run on the reader's own GPU, in the page or in the notebook."""

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

from d2ltvm.bench.records import load_record
from d2ltvm.compiler.ir import find
from d2ltvm.compiler.lowering import as_module
from d2ltvm.compiler.webgpu import wgsl
from d2ltvm.compute.convolution import conv
from d2ltvm.compute.ops import broadcast_add, matmul, vector_add, vector_copy
from d2ltvm.explore import kernels, scripts, widget
from d2ltvm.explore.definition import definition, plain

CEILINGS = ("copy_width", "multiply_add", "launch")  # what the page measures first, once


class Card:
    """What a cell shows: a card as HTML, and alive where scripts run.

    Args:
        markup: the card.
        said: the same in a line of text.
        needs: names of the catalog's kernels that it runs.
    """

    def __init__(self, markup: str, said: str, needs: Sequence[str] = ()):
        self.markup, self.said, self.needs = markup, said, tuple(needs)

    def __repr__(self) -> str:
        return self.said

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"text/plain": repr(self), "text/html": self.markup, **widget.view(self)}

    @property
    def state(self) -> dict[str, Any]:
        """Nothing: a card asks anew each time."""
        return {}

    @property
    def kernels(self) -> dict[str, Any]:
        """The catalog's shaders that it may run: a notebook has no scripts to load them from."""
        return {name: json.loads(kernels.stored(name)) for name in (*self.needs, *CEILINGS)}


def run(sch: Any, tensors: Sequence[Any] | None = None) -> Card:
    """A card that runs a kernel on your GPU: of the book by its name, or your own schedule.

    >>> d2ltvm.explore.run("add_four")
    Run it on your GPU: Vector add, four elements a thread.
    >>> d2ltvm.explore.run(d2ltvm.schedules.matmul_tiled(256, 256, 256))
    Run it on your GPU: your kernel, A (256, 256), B (256, 256) to C (256, 256).

    Args:
        sch: the name of a kernel of `d2ltvm.explore.catalog`; or a schedule that is bound to
            blocks and threads, a PrimFunc or an IRModule, as for `d2ltvm.build`.
        tensors: what a schedule of your own computes, as `d2ltvm.schedule` took it; None where it
            is a copy, a sum, a product of matrices or a convolution with stride 1 of the package.

    Raises:
        ValueError: there is no such kernel, WebGPU cannot run it, or what it computes has to be
            said.
        TypeError: `sch` is no schedule.
        MissingError: there is no QuickJS, which makes the card.
    """
    if isinstance(sch, str):
        shown = kernels.shown(sch)
        return Card(_made("kernelCard", shown, None), _title(shown["title"]), shown["needs"])
    told = _yours(sch, tensors)
    (size,) = told["sizes"]
    shown = {
        "name": told["name"],
        "title": told["title"],
        "chapter": "",
        "unit": told["unit"],
        "sizes": [size["label"]],
        "variants": [""],
        "records": [None],
        "against": "",
        "againstRecord": None,
        "needs": [told["name"]],
        "adapted": told["adapted"],
    }
    return Card(_made("kernelCard", shown, told), _title(f"{told['title']}, {size['label']}"))


def your_gpu() -> Card:
    """A card that measures the ceilings of your GPU and draws its roofline.

    >>> d2ltvm.explore.your_gpu()
    Your GPU, beside the NVIDIA H200 of the book.
    """
    copy, rate = load_record("gpu_in_numbers/copy"), load_record("gpu_in_numbers/fma_chains")
    launch = load_record("gpu_in_numbers/launch")
    theirs = {
        "device": copy.device["name"],
        "copy": 1e3 * max(values[-1] for values in copy.series.values()),
        "rate": 1e3 * max(max(values) for values in rate.series.values()),
        "launch": launch.at("copy of one float", "in a graph"),
    }
    said = f"Your GPU, beside the {theirs['device']} of the book."
    return Card(_made("yourGpu", theirs), said)


def _made(function: str, *told: Any) -> str:
    return str(scripts.engine().call(function, *told))


def _title(title: str) -> str:
    return f"Run it on your GPU: {title}."


def _yours(sch: Any, tensors: Sequence[Any] | None) -> dict[str, Any]:
    """A schedule in hand, as the page runs it."""
    shader = wgsl(sch)
    tensors = tuple(tensors) if tensors is not None else guessed(sch)
    told = definition(tensors)
    shapes = [tuple(int(size) for size in t.shape) for t in tensors]
    if shapes != [p.shape for p in shader.params]:
        raise ValueError(
            f"tensors have the shapes {shapes}; expected those of the kernel, "
            f"{[p.shape for p in shader.params]}"
        )
    named = [f"{p.name} {p.shape}" for p in shader.params]
    last = told["stages"][-1]
    work = math.prod(last["shape"]) * math.prod(last["reduce"])
    flop = work * (_operations(last["value"]) + bool(last["reduce"]))
    variant = {
        "label": "",
        "launch": kernels.launch(shader),
        "reference": 0,
        "flop": flop,
        "bytes": sum(p.nbytes for p in shader.params),
    }
    reference = {"definition": told, "plain": kernels.launch(wgsl(plain(tensors)))}
    label = f"{', '.join(named[:-1])} to {named[-1]}"
    digest = hashlib.sha256(shader.source.encode()).hexdigest()
    return {
        "name": f"yours-{digest[:8]}",
        "title": "your kernel",
        "unit": "GFLOPS" if last["reduce"] else "GB/s",
        "sizes": [{"label": label, "variants": [variant], "references": [reference]}],
        "adapted": [f"{what[0].upper()}{what[1:]}." for what in shader.adapted],
    }


def guessed(sch: Any) -> Sequence[Any]:
    """The tensors of a schedule, from its shapes and its arithmetic.

    Raises:
        ValueError: it is none of what the package computes, or could be several.
    """
    main = as_module(sch)["main"]
    shapes = [tuple(int(size) for size in p.shape) for p in main.params]
    blocks = find(main.body, "SBlock")
    sums = any(axis.iter_type == 2 for block in blocks for axis in block.iter_vars)
    adds, multiplies = (_arithmetic(main, kind) for kind in ("Add", "Mul"))
    found: Sequence[Any]
    if sums and adds and multiplies and len(shapes) == 3:
        found = _sum_of_products(*shapes)
    elif not sums and adds and not multiplies and len(shapes) == 3:
        one = len(shapes[0]) == 1 and shapes[0] == shapes[1]
        found = vector_add(shapes[0][0]) if one else broadcast_add(shapes[0], shapes[1])
    elif not adds and not multiplies and len(shapes) == 2 and len(shapes[0]) == 1:
        found = vector_copy(shapes[0][0])
    else:
        found = ()
    if [tuple(int(size) for size in t.shape) for t in found] != shapes:
        raise ValueError(
            "what the schedule computes cannot be read off its shapes; expected the tensors "
            "beside it, as in run(sch, d2ltvm.matmul(64, 64, 64))"
        )
    return found


def _sum_of_products(a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...]) -> Sequence[Any]:
    if len(a) == len(b) == 2:
        return matmul(a[0], b[1], a[1])
    if len(a) == 3 and len(b) == 4 and (c[1] - 1 + b[2] - a[1]) % 2 == 0:
        ph, pw = ((c[k] - 1 + b[k + 1] - a[k]) // 2 for k in (1, 2))
        if ph >= 0 and pw >= 0:
            return conv(b[0], b[1], a[1], a[2], b[2], b[3], ph, pw)[:3]
    return ()


def _arithmetic(main: Any, kind: str) -> bool:
    """Whether numbers, and not only indices, are added or multiplied."""
    nodes = (node for store in find(main.body, "BufferStore") for node in find(store.value, kind))
    return any("float" in str(node.a.ty) for node in nodes)


def _operations(value: Any) -> int:
    """How many operations on numbers an expression takes."""
    if not isinstance(value, list) or value[0] in ("at", "i"):
        return 0
    return (value[0] in ("+", "-", "*")) + sum(_operations(part) for part in value[1:])
