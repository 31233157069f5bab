"""A kernel on one page: what it takes, what it moves, and how fast it can be at best."""

import math
from dataclasses import dataclass

from d2ltvm.analysis import traffic
from d2ltvm.analysis.occupancy import Occupancy, occupancy
from d2ltvm.compiler import cubin, lowering
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
        traffic: the `Table` of its machine code.
        flop: floating-point operations of the launch; None where nobody said.
        bytes: of the tensors it takes: what has to move between memory and chip at least.
    """

    chip: chips.Chip
    launch: lowering.Launch
    resources: cubin.Resources
    occupancy: Occupancy
    shared: int
    traffic: traffic.Table
    flop: float | None
    bytes: int

    @property
    def intensity(self):
        """FLOP per byte of device memory, at best; None without `flop`."""
        return self.flop / self.bytes if self.flop else None

    @property
    def wavefronts(self):
        """Cycles that the data path of L1 and shared memory is busy, of all SMs together.

        A line of 128 bytes takes one, and so does a pass over the banks of shared memory.
        """
        return sum(t.lines + t.wavefronts for t in self.traffic)

    @property
    def seconds(self):
        """The least time by each ceiling: a dict of float by 'FP32', 'L1 and shared', 'memory'."""
        clock = self.chip.boost_ghz * 1e9
        least = {
            "L1 and shared": self.wavefronts / (self.chip.sms * clock),
            "memory": self.bytes / (self.chip.bandwidth_tb_s * 1e12),
        }
        if self.flop:
            least = {"FP32": self.flop / (self.chip.fp32_tflops * 1e12), **least}
        return least

    @property
    def bound(self):
        """The ceiling that is reached first, and the least time in seconds."""
        return max(self.seconds.items(), key=lambda item: item[1])

    def __str__(self):
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
            str(self.traffic),
            "",
        ]
        lines += [f"at least {s * 1e6:9,.1f} µs by {name}" for name, s in self.seconds.items()]
        return "\n".join(lines)


def report(sch, gpu="H200", flop=None, config=None):
    """What a kernel takes of a GPU, what it moves, and the least time it can take there.

    >>> print(d2ltvm.report(matmul_shared(2048, 2048, 2048), "H200", flop=2 * 2048**3))
    launch         64 x 64 blocks of 32 x 32 threads
    registers      31 a thread, 0 bytes spilled
    ...
    at least   1,608.5 µs by L1 and shared

    No GPU is needed. The least time is that of a roofline with one more ceiling: the data path of
    the L1 cache and of shared memory, which each SM has one of, and which passes 128 bytes a cycle.
    Real kernels also wait: for latency, for barriers, for a clock that falls with the power.

    Args:
        sch: as for `d2ltvm.traffic`.
        gpu: its name, as for `d2ltvm.chip`; its architecture is compiled for.
        flop: floating-point operations of the launch.
        config: options of TVM's PassContext.

    Returns:
        A `Report`.

    Raises:
        NotImplementedError, ValueError: as for `d2ltvm.traffic` and `d2ltvm.chip`.

    Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model",
    2009; for 128 bytes a cycle, NVIDIA's Nsight Compute documentation, "L1/TEX Cache".
    """
    chip = chips.chip(gpu)
    arch = chip.capability
    lowered = lowering.lower(lowering.as_module(sch), devices.as_target(arch), config)
    code = cubin.compile_cubin(lowered.source, arch)
    table = traffic.compiled(lowered, arch, code)
    (launch,), (resources,) = lowered.launches, cubin.resources(code).values()
    shared = resources.shared + launch.shared
    held = occupancy(gpu, math.prod(launch.block), resources.registers, shared, launch.grid)
    moved = sum(p.nbytes for p in lowered.params)
    return Report(chip, launch, resources, held, shared, table, flop, moved)


def _trimmed(sizes):
    """A grid or block without the dimensions of one at its end."""
    return sizes[: max((k for k, size in enumerate(sizes, 1) if size > 1), default=1)]
