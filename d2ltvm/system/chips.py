"""What NVIDIA says of its GPUs, and what the GPU of this machine says of itself.

Predictions start from these numbers: `chip` is a data sheet, `here` the GPU that is there.

Each comes from a data sheet, a white paper, or the CUDA C++ Programming Guide's table "Technical
Specifications per Compute Capability"; `Chip.sources` names them by their keys in references.bib.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from d2ltvm.errors import shown
from d2ltvm.system import devices


@dataclass(frozen=True)
class Chip:
    """A GPU by its data sheet.

    Attributes:
        name: as in `CHIPS`.
        architecture: NVIDIA's name for the generation.
        capability: compute capability, as in 'sm_90'.
        sms: streaming multiprocessors.
        fp32_lanes: float32 units of one of them; each makes one fused multiply-add a cycle.
        boost_ghz: highest clock of the data sheet.
        registers_kib: register file of one multiprocessor, KiB.
        max_threads: threads that one multiprocessor can hold.
        max_blocks: blocks that one multiprocessor can hold.
        shared_kib: shared memory of one multiprocessor at most, KiB.
        shared_block_kib: shared memory of one block at most, KiB.
        l1_kib: L1 cache and shared memory of one multiprocessor together, KiB.
        l2_mib: L2 cache, MiB; for the H200 the white paper's number for the H100.
        memory_gb: device memory, GB.
        memory_kind: its technology.
        bandwidth_tb_s: its bandwidth, TB/s.
        fp32_tflops: float32 peak without TensorCores, TFLOPS.
        fp16_tensor_tflops: float16 tensor-core peak, dense, TFLOPS.
        tf32_tensor_tflops: TF32 tensor-core peak, dense, TFLOPS; None where there is none.
        watts: thermal design power.
        sources: keys in references.bib.
    """

    name: str
    architecture: str
    capability: str
    sms: int
    fp32_lanes: int
    boost_ghz: float
    registers_kib: int
    max_threads: int
    max_blocks: int
    shared_kib: int
    shared_block_kib: int
    l1_kib: int
    l2_mib: int
    memory_gb: int
    memory_kind: str
    bandwidth_tb_s: float
    fp32_tflops: float
    fp16_tensor_tflops: float
    tf32_tensor_tflops: float | None
    watts: int
    sources: tuple[str, ...]

    @property
    def balance(self) -> float:
        """Floating-point operations (float32) that fit into the time of moving one byte."""
        return self.fp32_tflops / self.bandwidth_tb_s


CHIPS = {
    "T4": Chip(
        "T4", "Turing", "sm_75", 40, 64, 1.59, 256, 1024, 16, 64, 64, 96, 4, 16, "GDDR6", 0.320,
        8.1, 65, None, 70, ("nvidia_t4", "nvidia_turing", "cuda_guide"),
    ),
    "A100": Chip(
        "A100", "Ampere", "sm_80", 108, 64, 1.41, 256, 2048, 32, 164, 163, 192, 40, 80, "HBM2e",
        2.039, 19.5, 312, 156, 400, ("nvidia_a100", "nvidia_ampere", "cuda_guide"),
    ),
    "H100": Chip(
        "H100", "Hopper", "sm_90", 132, 128, 1.98, 256, 2048, 32, 228, 227, 256, 50, 80, "HBM3",
        3.35, 67, 989, 494, 700, ("nvidia_h100", "nvidia_hopper", "cuda_guide"),
    ),
    "H200": Chip(
        "H200", "Hopper", "sm_90", 132, 128, 1.98, 256, 2048, 32, 228, 227, 256, 50, 141, "HBM3e",
        4.8, 67, 989, 494, 700, ("nvidia_h200", "nvidia_hopper", "cuda_guide"),
    ),
}  # fmt: skip


def chip(name: str) -> Chip:
    """The data sheet of a GPU, by its short name or by the name its driver gives.

    >>> d2ltvm.chip("NVIDIA H200").bandwidth_tb_s
    4.8

    Args:
        name: such as 'T4', 'Tesla T4' or 'NVIDIA A100-SXM4-80GB'.

    Raises:
        ValueError: it is not one of `CHIPS`.
    """
    words = re.split(r"[^A-Za-z0-9]+", name) if isinstance(name, str) else []
    for known, found in CHIPS.items():
        if known in words:
            return found
    raise ValueError(f"name is {shown(name)}; expected one of {', '.join(CHIPS)}")


def here(default: str = "H200") -> Chip:
    """The GPU of this machine: its data sheet, corrected by what the device says of itself.

    A data sheet describes a family. The number of multiprocessors, the size of the L2 cache and the
    clock are the device's own: an H100 of the PCIe kind has 114 multiprocessors, and an H200
    reports 60 MiB of L2 cache. Peaks and bandwidth stay the data sheet's.

    >>> d2ltvm.system.chips.here().shared_kib           # on an H200, or where there is no GPU
    228

    Args:
        default: whose data sheet it is where there is no GPU, or where records are shown instead of
            measuring on it, as for `chip`.

    Raises:
        ValueError: the GPU, or `default`, is not one of `CHIPS`.
    """
    found = None if devices.shows_records() else devices.reported()
    if found is None:
        return chip(default)
    return replace(chip(found.name), sms=found.sms, l2_mib=found.l2_mib, boost_ghz=found.ghz)


def sm_count(default: str = "H200") -> int:
    """Multiprocessors to write a kernel for that starts one block on each of them.

    >>> d2ltvm.system.chips.sm_count("T4")              # where there is no T4
    40

    Args:
        default: the GPU that the kernel is for, as for `chip`.

    Returns:
        What this machine's GPU says, if the kernel runs on it: if its compute capability is that
        of `default`. Elsewhere what the data sheet says.

    Raises:
        ValueError: `default` is not one of `CHIPS`.
    """
    sheet, found = chip(default), devices.reported()
    return found.sms if found and found.capability == sheet.capability else sheet.sms


def table(names: Sequence[str] = tuple(CHIPS)) -> str:
    """The data sheets side by side, as a Markdown table."""
    if not isinstance(names, tuple | list) or not names:
        raise ValueError(f"names is {shown(names)}; expected some of {', '.join(CHIPS)}")
    chips = [chip(name) for name in names]
    rows: tuple[tuple[str, Callable[[Chip], object]], ...] = (
        ("Architecture", lambda c: c.architecture),
        ("Compute capability", lambda c: c.capability),
        ("Multiprocessors (SM)", lambda c: c.sms),
        ("FP32 units an SM", lambda c: c.fp32_lanes),
        ("Boost clock (GHz)", lambda c: c.boost_ghz),
        ("Threads an SM", lambda c: c.max_threads),
        ("Registers an SM (KiB)", lambda c: c.registers_kib),
        ("Shared memory an SM (KiB)", lambda c: c.shared_kib),
        ("Shared memory a block (KiB)", lambda c: c.shared_block_kib),
        ("L2 cache (MiB)", lambda c: c.l2_mib),
        ("Device memory", lambda c: f"{c.memory_gb} GB {c.memory_kind}"),
        ("Its bandwidth (TB/s)", lambda c: c.bandwidth_tb_s),
        ("FP32 peak (TFLOPS)", lambda c: c.fp32_tflops),
        ("FP16 tensor-core peak (TFLOPS)", lambda c: c.fp16_tensor_tflops),
        ("TF32 tensor-core peak (TFLOPS)", lambda c: c.tf32_tensor_tflops or "none"),
        ("FP32 operations a byte", lambda c: f"{c.balance:.0f}"),
        ("Power (W)", lambda c: c.watts),
    )
    lines = ["| | " + " | ".join(c.name for c in chips) + " |", "| --- |" + " ---: |" * len(chips)]
    lines += [f"| {name} | " + " | ".join(str(get(c)) for c in chips) + " |" for name, get in rows]
    return "\n".join(lines)
