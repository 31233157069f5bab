"""Hardware counters of a kernel, read by Nsight Compute (`ncu`) in a process of its own."""

import csv
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm

from d2ltvm.compiler.kernel import build
from d2ltvm.compiler.lowering import as_module
from d2ltvm.errors import MissingError
from d2ltvm.system import devices

# What a memory-bound kernel is judged by, and Nsight Compute's names for it.
MEMORY_METRICS = {
    "load requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "load sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "store requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "store sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "L2 read sectors": "lts__t_sectors_op_read.sum",
    "L2 write sectors": "lts__t_sectors_op_write.sum",
    "DRAM bytes read": "dram__bytes_read.sum",
    "DRAM bytes written": "dram__bytes_write.sum",
}


def hardware_counters(
    sch: Any, inputs: Sequence[npt.NDArray[Any]], metrics: Mapping[str, str] = MEMORY_METRICS
) -> dict[str, float]:
    """Run a schedule's kernel once on the GPU and read hardware counters.

    >>> d2ltvm.hardware_counters(continuous(1024), (a, b))["load sectors"]  # doctest: +SKIP
    1064960.0

    Args:
        sch: a schedule, or as for `d2ltvm.build`.
        inputs: NumPy arrays, one for each parameter that the kernel does not write.
        metrics: Nsight Compute's metric names by a name of your own.

    Returns:
        The counts by those names, summed over the launches of one call. Caches are flushed before
        each launch, as Nsight Compute does by itself.

    Raises:
        MissingError: there is no GPU or no Nsight Compute, or it may not read the counters.
    """
    devices.as_target("cuda")
    with tempfile.TemporaryDirectory() as folder:
        module, data = Path(folder) / "module.json", Path(folder) / "inputs.npz"
        module.write_text(tvm.ir.save_json(as_module(sch)))
        np.savez(data, *inputs)
        command = [sys.executable, "-m", "d2ltvm.analysis.counters", str(module), str(data)]
        rows = profile(command, metrics.values())
    return {name: sum(row[metric] for _, row in rows) for name, metric in metrics.items()}


def profile(command: list[str], metrics: Iterable[str]) -> list[tuple[str, dict[str, float]]]:
    """Run a command under Nsight Compute and read hardware counters.

    Args:
        command: the program and its arguments, a list of str.
        metrics: Nsight Compute's metric names.

    Returns:
        For each launch, in order, the kernel's name and a dict of its counts by metric.

    Raises:
        MissingError: there is no Nsight Compute, or it may not read the counters.
    """
    metrics = list(metrics)
    options = ["--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
    options += ["--metrics", ",".join(metrics)]
    run = subprocess.run([_ncu(), *options, *command], capture_output=True, text=True, check=False)
    if run.returncode != 0 or '"ID"' not in run.stdout:
        reason = (run.stdout + run.stderr).strip().splitlines()[-1:] or ["no output"]
        raise MissingError(
            f"Nsight Compute read no counters ({reason[0]})",
            "the stored record",
            "a machine on which `ncu` may read them (see ERR_NVGPUCTRPERM in its manual)",
        )
    # The CSV stands below Nsight Compute's own messages; its first row holds the units.
    table = list(csv.DictReader(io.StringIO(run.stdout[run.stdout.index('"ID"') :])))[1:]
    return [
        (row["Kernel Name"], {metric: float(row[metric].replace(",", "")) for metric in metrics})
        for row in table
    ]


def _ncu() -> str:
    found = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")
    if not found:
        raise MissingError(
            "Nsight Compute (ncu) is not installed",
            "the stored record",
            "sudo apt-get install nsight-compute",
        )
    return found


def _run_once(module: str, data: str) -> None:
    """What runs under Nsight Compute: build the module, call it once."""
    kernel = build(tvm.ir.load_json(Path(module).read_text()), "cuda")
    given = iter(np.load(data).values())
    kernel(*[np.empty(p.shape, p.dtype) if p.output else next(given) for p in kernel.params])


if __name__ == "__main__":
    _run_once(*sys.argv[1:])
