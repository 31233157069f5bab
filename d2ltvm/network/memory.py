"""Which results share memory, as TVM's StaticPlanBlockMemory plans it."""

import importlib
import math
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from d2ltvm.system import devices


@dataclass(frozen=True)
class MemoryPlan:
    """What a network allocates.

    Attributes:
        results: for each result in the order of computation, its bytes and the number of the
            storage that it lies in.
        storages: bytes of each storage.
    """

    results: tuple[tuple[int, int], ...]
    storages: tuple[int, ...]

    @property
    def before(self) -> int:
        """Bytes, if each result had memory of its own."""
        return sum(nbytes for nbytes, _ in self.results)

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
    numbers: dict[str, int] = {}
    storages: list[int] = []
    results: list[tuple[int, int]] = []
    for binding in planned["main"].body.blocks[0].bindings:
        value = binding.value
        name = getattr(getattr(value, "op", None), "name", "")
        if name == "relax.memory.alloc_storage":
            numbers[str(binding.var)] = len(storages)
            storages.append(_product(value.args[0]))
        elif name == "relax.memory.alloc_tensor":
            size = tvm.DataType(str(value.args[3].value)).itemsize
            results.append((_product(value.args[2]) * size, numbers[str(value.args[0])]))
    return MemoryPlan(tuple(results), tuple(storages))


def _product(shape: Any) -> int:
    return math.prod(int(size) for size in shape.values)
