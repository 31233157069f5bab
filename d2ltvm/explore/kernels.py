"""Compiles the catalog's kernels for a page: shaders, launches, references, the H200's records.

A page has only what a card shows before anything runs. The shaders of a kernel are in a script of
their own, which the page loads when the reader asks for it: `book/_static/kernels/NAME.js`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from d2ltvm import schedules
from d2ltvm.bench.records import Record, load_record
from d2ltvm.compiler import cache
from d2ltvm.compiler.webgpu import Shader, wgsl
from d2ltvm.explore.catalog import BY_NAME, KERNELS, PageKernel, Recorded, Variant
from d2ltvm.explore.definition import definition, plain
from d2ltvm.explore.operations import OPERATIONS, Operation, Size
from d2ltvm.system import files

PACKAGE = Path(__file__).resolve().parents[1]
OWN = ("catalog", "definition", "kernels", "operations")
# What a kernel's script follows from, beside TVM.
SOURCES = ("compute/*.py", "compiler/*.py", "schedules/*.py", *(f"explore/{n}.py" for n in OWN))


def kernel(name: str) -> PageKernel:
    """A kernel of the catalog.

    Raises:
        ValueError: there is none of that name.
    """
    if name not in BY_NAME:
        raise ValueError(f"kernel is {name!r}; expected one of {', '.join(BY_NAME)}")
    return BY_NAME[name]


def scheduled(of: PageKernel, size: Size, variant: Variant) -> Any:
    """The kernel's schedule, by the package's own function.

    >>> tiled = kernel("matmul_tiled")
    >>> type(scheduled(tiled, (256, 256, 256), tiled.variants[0])).__name__
    'Schedule'
    """
    function: Callable[..., Any] = getattr(schedules, of.schedule)
    return function(**{**variant.options, **OPERATIONS[of.computes].named(size, variant.options)})


def shown(name: str) -> dict[str, Any]:
    """What the card of a kernel shows and asks before anything runs, as JSON can say it.

    >>> shown("add_four")["against"]
    'Vector add, one element a thread'
    """
    of = kernel(name)
    operation = OPERATIONS[of.computes]
    return {
        "name": name,
        "title": of.title,
        "chapter": of.chapter,
        "unit": operation.unit,
        "sizes": [_size_label(operation, of, size) for size in of.sizes],
        "variants": [variant.label for variant in of.variants],
        "records": [_recorded(operation, variant) for variant in of.variants],
        "against": BY_NAME[of.against].title if of.against else "",
        "againstRecord": _against(of),
        "needs": [of.against, name] if of.against else [name],
        "adapted": [*([of.note] if of.note else []), *_adapted(of)],
    }


def launches(name: str) -> dict[str, Any]:
    """All that a page needs to run a kernel at each of its sizes, as JSON can say it."""
    of = kernel(name)
    sizes = [_at_size(of, size) for size in of.sizes]
    return {"name": name, "title": of.title, "unit": OPERATIONS[of.computes].unit, "sizes": sizes}


def launch(shader: Shader) -> dict[str, Any]:
    """A shader as the page launches it."""
    return {
        "source": shader.source,
        "entry": shader.entry,
        "dispatch": shader.dispatch,
        "block": shader.block,
        "shared": shader.shared,
        "uniform": shader.uniform,
        "bindings": shader.bindings,
        "tensors": [
            {"name": p.name, "shape": p.shape, "dtype": p.dtype, "output": p.output}
            for p in shader.params
        ],
    }


def stored(name: str) -> str:
    """What `launches` tells, as JSON; from the cache where it can be."""
    versions = cache.package_versions("apache-tvm", "apache-tvm-ffi")
    key = ("page kernel", name, cache.hash_of_text(PACKAGE, *SOURCES), versions)
    return cache.remember(lambda: _json(launches(name)).encode(), *key).decode()


def script(name: str) -> str:
    """The script that brings a kernel's shaders into a page."""
    return f'(self.d2lKernels = self.d2lKernels || {{}})["{name}"] = {stored(name)};\n'


def write(folder: Path) -> list[Path]:
    """Write the script of each kernel into a folder, and remove those of kernels that are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{of.name}.js" for of in KERNELS]
    for path in paths:
        files.write(path, script(path.stem))
    for path in set(folder.glob("*.js")) - set(paths):
        path.unlink()
    return paths


def _json(told: dict[str, Any]) -> str:
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def _at_size(of: PageKernel, size: Size) -> dict[str, Any]:
    """The variants of a kernel at one size. Those that compute the same share a reference."""
    operation, told, references = OPERATIONS[of.computes], [], []
    for variant in of.variants:
        named = operation.named(size, variant.options)
        reference = _reference(operation, named)
        if reference not in references:
            references.append(reference)
        told.append(
            {
                "label": variant.label,
                "launch": launch(wgsl(scheduled(of, size, variant))),
                "reference": references.index(reference),
                "flop": operation.flop(**named),
                "bytes": operation.bytes(**named),
            }
        )
    label = _size_label(operation, of, size)
    return {"label": label, "variants": told, "references": references}


def _reference(operation: Operation, named: dict[str, Any]) -> dict[str, Any]:
    """The definition, and the plain kernel that the page holds the whole result against."""
    whole = operation.definition(**named)
    told = {
        "definition": whole,
        "plain": launch(wgsl(plain(operation.tensors(**named)))),
    }
    if operation.magnitudes is None:
        return told
    added = operation.magnitudes(**named)
    of_them = {
        "definition": definition(added, whole["terms"]),
        "plain": launch(wgsl(plain(added))),
    }
    return {**told, "magnitudes": of_them}


def _adapted(of: PageKernel) -> list[str]:
    """What WGSL made different in any variant, as sentences."""
    found = [
        what
        for variant in of.variants
        for what in wgsl(scheduled(of, of.sizes[-1], variant)).adapted
    ]
    return [f"{what[0].upper()}{what[1:]}." for what in dict.fromkeys(found)]


def _against(of: PageKernel) -> dict[str, Any] | None:
    if not of.against:
        return None
    other = BY_NAME[of.against]
    return _recorded(OPERATIONS[other.computes], other.variants[0])


def _size_label(operation: Operation, of: PageKernel, size: Size) -> str:
    return operation.label.format(**operation.named(size, of.variants[0].options))


def _recorded(operation: Operation, variant: Variant) -> dict[str, Any] | None:
    """The H200's speed in the operation's unit, with its size; None where there is no record."""
    if variant.record is None:
        return None
    at = variant.record
    record = load_record(at.measurement)
    size = at.size or operation.recorded(at.x)
    named = operation.named(size, variant.options)
    return {
        "speed": _short(_speed(record, at, operation, named)),
        "size": operation.label.format(**named),
        "device": record.device["name"],
        "measurement": at.measurement,
        "date": record.date,
    }


def _short(value: float) -> float:
    """Four digits, of which a card shows three; a fifth where the fourth alone says 5.

    >>> _short(44653.9), _short(36.6081)
    (44654.0, 36.61)
    """
    four = f"{value:.4g}"
    digits = f"{value:.3e}".split("e")[0]
    return float(f"{value:.5g}" if digits.endswith("5") else four)


def _speed(record: Record, at: Recorded, operation: Operation, named: dict[str, Any]) -> float:
    value = record.at(at.legend, at.x)
    if record.unit == "µs":
        work = operation.flop if operation.unit == "GFLOPS" else operation.bytes
        return work(**named) / value / 1e3
    scale = {f"T{operation.unit[1:]}": 1e3, operation.unit: 1.0}
    if record.unit not in scale:
        raise ValueError(f"{at.measurement} is in {record.unit}; expected {', '.join(scale)} or µs")
    return value * scale[record.unit]
