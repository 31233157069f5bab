"""Which results share memory, as TVM's StaticPlanBlockMemory plans it."""

import importlib
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import tvm
from tvm import relax

from d2ltvm.system import devices


class Planned(NamedTuple):
    """Where a result lies, and how long.

    Attributes:
        nbytes: its bytes.
        storage: the number of the storage that it lies in.
        last: the number of the result, in the order of computation, whose computation is the last
            to read this one. The network's own result has the number behind all these.
    """

    nbytes: int
    storage: int
    last: int


@dataclass(frozen=True)
class MemoryPlan:
    """What a network allocates.

    Attributes:
        results: a `Planned` for each result, in the order of computation.
        storages: bytes of each storage.
    """

    results: tuple[Planned, ...]
    storages: tuple[int, ...]

    @property
    def before(self) -> int:
        """Bytes, if each result had memory of its own."""
        return sum(result.nbytes for result in self.results)

    @property
    def after(self) -> int:
        """Bytes that are allocated."""
        return sum(self.storages)


def memory_plan(module: Any, target: Any = None) -> MemoryPlan:
    """What memory the results of a network take, without its images, weights and last result.

    >>> net = d2ltvm.network.load("resnet18", size=64)
    >>> plan = memory_plan(d2ltvm.network.to_relax(d2ltvm.network.fuse(net)))
    >>> plan.after < plan.before / 2
    True

    Args:
        module: as `to_relax` makes it.
        target: of TVM; this machine's processor by default.
    """
    target = target or devices.as_target("llvm")
    # TVM's stages up to the one that plans; relax.pipeline finds those of some targets alone.
    backend = "cpu_generic" if target.kind.name == "llvm" else target.kind.name
    pipeline = importlib.import_module(f"tvm.relax.backend.{backend}.pipeline")
    passes = [relax.transform.LiftTransformParams()]
    for stage in ("library_dispatch_passes", "legalize_passes", "dataflow_lower_passes"):
        passes += getattr(pipeline, stage)(target)
    passes.append(relax.transform.StaticPlanBlockMemory())
    with target:
        planned = tvm.transform.Sequential(passes)(module)
    return _planned(planned["main"].body.blocks[0].bindings)


def _planned(bindings: Any) -> MemoryPlan:
    """What the bindings of a planned function allocate, and when it is read for the last time."""
    storages: dict[str, int] = {}  # bytes of each, by its variable
    results: list[tuple[int, int]] = []
    known: dict[str, int] = {}  # which result a variable is
    tuples: dict[str, Any] = {}  # the fields of each: results of a call that has several
    last: dict[int, int] = {}
    computed = -1
    for binding in bindings:
        value, var = binding.value, str(binding.var)
        name = getattr(getattr(value, "op", None), "name", "")
        if name == "relax.memory.alloc_storage":
            storages[var] = _product(value.args[0])
        elif name.endswith("alloc_tensor"):  # planned; or the network's own result, which is not
            computed += 1
            if name == "relax.memory.alloc_tensor":
                nbytes = _product(value.args[2]) * tvm.DataType(str(value.args[3].value)).itemsize
                known[var] = len(results)
                results.append((nbytes, [*storages].index(str(value.args[0]))))
        elif isinstance(value, relax.Tuple):
            tuples[var] = value.fields
        elif (source := _same(value, name, tuples)) is not None:
            if source in known:
                known[var] = known[source]
        else:
            last |= {known[str(arg)]: computed for arg in value.args if str(arg) in known}
    planned = (Planned(*result, last[k]) for k, result in enumerate(results))
    return MemoryPlan(tuple(planned), tuple(storages.values()))


def _same(value: Any, name: str, tuples: dict[str, Any]) -> str | None:
    """The variable that a value is another name for; None where it is something new."""
    if isinstance(value, relax.TupleGetItem):
        whole = str(value.tuple_value)
        return str(tuples[whole][value.index]) if whole in tuples else whole
    if isinstance(value, relax.Var):
        return str(value)
    return str(value.args[0]) if name == "relax.reshape" else None


def _product(shape: Any) -> int:
    return math.prod(int(size) for size in shape.values)
