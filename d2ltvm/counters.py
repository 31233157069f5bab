"""Hardware counters of a kernel, read by Nsight Compute (`ncu`) in a process of its own."""

import csv
import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tvm

from d2ltvm import devices
from d2ltvm.errors import MissingError
from d2ltvm.kernel import build
from d2ltvm.lowering import as_module

# What a memory-bound kernel is judged by, and Nsight Compute's names for it.
MEMORY = {
    "load requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "load sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "store requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "store sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "L2 read sectors": "lts__t_sectors_op_read.sum",
    "L2 write sectors": "lts__t_sectors_op_write.sum",
    "DRAM bytes read": "dram__bytes_read.sum",
    "DRAM bytes written": "dram__bytes_write.sum",
}


def count(sch, inputs, metrics=MEMORY):
    """Run a schedule's kernel once on the GPU and read hardware counters.

    >>> d2ltvm.count(continuous(1024), (a, b))["load sectors"]
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
    ncu = _ncu()
    with tempfile.TemporaryDirectory() as folder:
        module, data = Path(folder) / "module.json", Path(folder) / "inputs.npz"
        module.write_text(tvm.ir.save_json(as_module(sch)))
        np.savez(data, *inputs)
        command = [
            ncu,
            "--csv",
            "--page",
            "raw",
            "--print-units",
            "base",
            "--clock-control",
            "none",
        ]
        command += ["--metrics", ",".join(metrics.values())]
        command += [sys.executable, "-m", "d2ltvm.counters", str(module), str(data)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0 or '"ID"' not in run.stdout:
        reason = (run.stdout + run.stderr).strip().splitlines()[-1:] or ["no output"]
        raise MissingError(
            f"Nsight Compute read no counters ({reason[0]})",
            "the stored record",
            "a machine on which `ncu` may read them (see ERR_NVGPUCTRPERM in its manual)",
        )
    return _parse(run.stdout, metrics)


def _parse(text, metrics):
    """Sums over the launches in Nsight Compute's CSV, which stands below its own messages."""
    table = list(csv.DictReader(io.StringIO(text[text.index('"ID"') :])))[1:]  # first row: units
    return {
        name: sum(float(row[metric].replace(",", "")) for row in table)
        for name, metric in metrics.items()
    }


def _ncu():
    found = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")
    if not found:
        raise MissingError(
            "Nsight Compute (ncu) is not installed",
            "the stored record",
            "sudo apt-get install nsight-compute",
        )
    return found


def _run_once(module, data):
    """What runs under Nsight Compute: build the module, call it once."""
    kernel = build(tvm.ir.load_json(Path(module).read_text()), "cuda")
    given = iter(np.load(data).values())
    kernel(*[np.empty(p.shape, p.dtype) if p.output else next(given) for p in kernel.params])


if __name__ == "__main__":
    _run_once(*sys.argv[1:])
