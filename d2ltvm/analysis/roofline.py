"""A kernel on one page: what it takes, what it moves, and how fast it can be at best."""

import math
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from d2ltvm.analysis import traffic
from d2ltvm.analysis.occupancy import Occupancy, occupancy
from d2ltvm.compiler import cubin, lowering
from d2ltvm.compiler.launches import Launch, Lowered
from d2ltvm.system import chips, devices


@dataclass(frozen=True)
class Report:
    """What `report` finds out about a kernel.

    Attributes:
        chip: the `Chip` it is held against.
        launch: its `Launch`.
        resources: its `Resources`.
        occupancy: the `Occupancy` that follows from these.
        shared: bytes of shared memory of a block.
        traffic: the `Table` of its machine code; None of a kernel in TIRx, whose copies and
            products no address in a register shows.
        tensorcores: whether TensorCores do its products.
        flop: floating-point operations of the launch; None where nobody said.
        bytes: of the tensors it takes: what has to move between memory and chip at least.
    """

    chip: chips.Chip
    launch: Launch
    resources: cubin.Resources
    occupancy: Occupancy
    shared: int
    traffic: traffic.Table | None
    tensorcores: bool
    flop: float | None
    bytes: int

    @property
    def intensity(self) -> float | None:
        """FLOP per byte of device memory, at best; None without `flop`."""
        return self.flop / self.bytes if self.flop else None

    @property
    def wavefronts(self) -> int | None:
        """Cycles that the data path of L1 and shared memory is busy, of all SMs together; or None.

        A line of 128 bytes takes one, and so does a pass over the banks of shared memory.
        """
        if self.traffic is None:
            return None
        return sum(t.lines + t.wavefronts for t in self.traffic)

    @property
    def seconds(self) -> dict[str, float]:
        """The least time by each ceiling.

        The ceilings are 'FP32' or, where products are of float16, 'TensorCores'; 'L1 and shared';
        and 'memory'.
        """
        least, chip = {}, self.chip
        if self.flop and self.tensorcores:
            least["TensorCores"] = self.flop / (chip.fp16_tensor_tflops * 1e12)
        elif self.flop:
            least["FP32"] = self.flop / (chip.fp32_tflops * 1e12)
        if self.wavefronts is not None:
            least["L1 and shared"] = self.wavefronts / (chip.sms * chip.boost_ghz * 1e9)
        return {**least, "memory": self.bytes / (chip.bandwidth_tb_s * 1e12)}

    @property
    def bound(self) -> tuple[str, float]:
        """The ceiling that is reached first, and the least time in seconds."""
        return max(self.seconds.items(), key=lambda item: item[1])

    def __str__(self) -> str:
        o, r = self.occupancy, self.resources
        grid, block = (
            " x ".join(map(str, _trimmed(x))) for x in (self.launch.grid, self.launch.block)
        )
        waves = f"; {o.waves:.2f} waves" if o.waves is not None else ""
        lines = [
            f"launch         {grid} blocks of {block} threads",
            f"registers      {r.registers} a thread, {r.local} bytes spilled",
            f"shared memory  {self.shared:,} bytes a block",
            f"occupancy      {o.warps} warps an SM, {o.share:.0%}, limited by {o.limit}{waves}",
            f"memory         {self.bytes / 1e6:,.1f} MB at least"
            + (f", {self.intensity:,.1f} FLOP a byte" if self.flop else ""),
            "",
            *([str(self.traffic), ""] if self.traffic is not None else []),
        ]
        lines += [f"at least {s * 1e6:9,.1f} µs by {name}" for name, s in self.seconds.items()]
        return "\n".join(lines)


def report(
    sch: Any, gpu: str = "H200", flop: float | None = None, config: dict[str, Any] | None = None
) -> Report:
    """What a kernel takes of a GPU, what it moves, and the least time it can take there.

    >>> matmul = d2ltvm.schedules.matmul_shared(2048, 2048, 2048)
    >>> print(d2ltvm.report(matmul, "H200", flop=2 * 2048**3))
    launch         64 x 64 blocks of 32 x 32 threads
    registers      31 a thread, 0 bytes spilled
    ...
    at least   1,669.5 µs by L1 and shared
    at least      10.5 µs by memory

    No GPU is needed. The least time is that of a roofline with one more ceiling: the data path of
    the L1 cache and of shared memory, which each SM has one of, and which passes 128 bytes a cycle.
    We found no source for that of a T4, which is taken to be the same. Real kernels also wait: for
    latency, for barriers, for a clock that falls with the power.

    Args:
        sch: as for `d2ltvm.traffic`, or a kernel of `d2ltvm.hopper`.
        gpu: its name, as for `d2ltvm.chip`; its architecture is compiled for.
        flop: floating-point operations of the launch.
        config: options of TVM's PassContext.

    Returns:
        A `Report`.

    Raises:
        NotImplementedError, ValueError: as for `d2ltvm.traffic` and `d2ltvm.chip`; or a kernel in
            TIRx is held against a GPU that is not of Hopper.

    Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model",
    2009; for 128 bytes a cycle, NVIDIA's Nsight Compute documentation, "L1/TEX Cache".
    """
    chip = chips.chip(gpu)
    mod, arch, lowered, code = _compiled(sch, chip, config)
    tiles = lowering.is_tile_kernel(mod)
    table = None if tiles else traffic.compiled(mod, lowered, arch, code)
    launch, resources, shared, held = _held(gpu, lowered, code)
    moved = sum(p.nbytes for p in lowered.params)
    products = flop is not None and _uses_tensorcores(code)
    return Report(chip, launch, resources, held, shared, table, products, flop, moved)


class Held(NamedTuple):
    """What `held` finds: as the attributes of a `Report` by these names."""

    launch: Launch
    resources: cubin.Resources
    shared: int
    occupancy: Occupancy


def held(sch: Any, gpu: str = "H200") -> Held:
    """What a kernel takes of a GPU, without what it moves: that part of `report`.

    >>> held(d2ltvm.schedules.matmul_warps(1000, 1000, 1000)).occupancy.blocks
    1

    Args:
        sch, gpu: as for `report`.

    Raises:
        ValueError: as for `report`.
    """
    _, _, lowered, code = _compiled(sch, chips.chip(gpu))
    return _held(gpu, lowered, code)


def _compiled(
    sch: Any, chip: chips.Chip, config: dict[str, Any] | None = None
) -> tuple[Any, str, Lowered, bytes]:
    """A kernel's module, the architecture it is compiled for, and what comes of it."""
    mod = lowering.as_module(sch)
    arch = lowering.architecture(mod, chip.capability)
    lowered = lowering.lower(mod, devices.to_read(arch), config)
    return mod, arch, lowered, cubin.compile_cubin(lowered.source, arch)


def _held(gpu: str, lowered: Lowered, code: bytes) -> Held:
    (launch,), (resources,) = lowered.launches, cubin.resources(code).values()
    shared = resources.shared + launch.shared
    threads = math.prod(launch.block)
    fit = occupancy(gpu, threads, resources.registers, shared, launch.grid)
    return Held(launch, resources, shared, fit)


def attainable(gpu: str, intensity: float, sms: int | None = None) -> float:
    """The roofline: TFLOPS of float32 that a kernel can reach at most, by the data sheet.

    >>> attainable("H200", 8), attainable("H200", 100)
    (38.4, 67.0)

    Args:
        gpu: its name, as for `d2ltvm.chip`.
        intensity: FLOP per byte of device memory.
        sms: multiprocessors that have work; None for all.

    Raises:
        ValueError: the GPU is not known, or a number is out of its range.
    """
    chip = chips.chip(gpu)
    sms = chip.sms if sms is None else sms
    if not 0 < sms <= chip.sms:
        raise ValueError(f"sms is {sms}; expected 1 to {chip.sms} on {chip.name}")
    if not intensity > 0:
        raise ValueError(f"intensity is {intensity}; expected a positive number")
    return float(min(intensity * chip.bandwidth_tb_s, chip.fp32_tflops * sms / chip.sms))


def _uses_tensorcores(code: bytes) -> bool:
    return bool(re.search(r"\bHG?MMA\.", cubin.disassemble(code)))


def _trimmed(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """A grid or block without the dimensions of one at its end."""
    return sizes[: max((k for k, size in enumerate(sizes, 1) if size > 1), default=1)]
