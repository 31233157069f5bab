"""Hold the access analyser against the hardware: predicted and counted, kernel by kernel.

    python tools/validate_access.py            on a GPU with Nsight Compute: count, compare, print
    D2LTVM_RECORD=1 python tools/validate_access.py          the same, and keep the record

The kernels are those of tools/nasty.py and of the book. The record is access/kernels.
"""

import functools
import itertools
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import nasty
import numpy as np

import d2ltvm
from d2ltvm import schedules
from d2ltvm.analysis import counters

# Columns of the comparison, with Nsight Compute's names for what is added up. "op_ldgsts" is
# cp.async, which is a load from global memory and a store to shared memory in one. Instructions
# that no lane executes are left out. Counters see every wait for the banks, so that on a busy SM
# they count a few more than the kernel's own; those named "sass" do not. (The one of that name for
# loads misses the rule for pairs of lanes where half of a warp agrees, and is not used.)
METRICS = {
    "load requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",),
    "load sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",),
    "store requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",),
    "store sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",),
    "shared loads": ("smsp__inst_executed_op_shared_ld_pred_on_any.sum",),
    "shared load wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",),
    "shared load conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",),
    "shared stores": (
        "smsp__inst_executed_op_shared_st_pred_on_any.sum",
        "smsp__inst_executed_op_ldgsts_pred_on_any.sum",
    ),
    "shared store wavefronts": (
        "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
        "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum",
    ),
    "shared store conflicts": (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
        "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum",
    ),
}


def kernels() -> dict[str, Callable[[], Any]]:
    """Functions that make a schedule, by name."""
    make = functools.partial
    return {
        **nasty.KERNELS,
        "vector add, one each": make(schedules.one_thread_each, 2**20),
        "vector add, vectorized": make(schedules.vectorized, 2**20 + 1),
        "vector add, unrolled": make(schedules.unrolled, 2**20),
        "vector add, partitioned": make(schedules.partitioned, 10**6),
        "copy, unrolled": make(schedules.copy_unrolled, 2**20),
        "broadcast add, continuous": make(schedules.continuous_parallel, 1024),
        "broadcast add, alternate": make(schedules.alternate_parallel, 1024),
        "broadcast add, vectorized": make(schedules.bcast_vectorized, 1000),
        "broadcast add, rows": make(schedules.bcast_rows, 1024),
        "product, naive": make(schedules.matmul_naive, 256, 256, 256),
        "product, coalesced": make(schedules.matmul_coalesced, 256, 256, 256),
        "product, coalesced, odd": make(schedules.matmul_coalesced, 100, 130, 75),
        "product, shared tiles": make(schedules.matmul_shared, 256, 256, 256),
        "product, shared tiles, odd": make(schedules.matmul_shared, 100, 130, 75),
        "product, register tiles": make(tiled, 512, 512, 512),
        "product, unrolled": make(tiled, 512, 512, 512, unroll=True),
        "product, wide": make(tiled, 512, 512, 512, unroll=True, wide=True),
        "product, virtual threads": make(turned, 512, 512, 512),
        "product, padded": make(turned, 512, 512, 512, align=4),
        "product, double buffering": make(pipelined, 512, 512, 512, align=4),
        "product, double buffering, not padded": make(pipelined, 256, 256, 256),
        "product, double buffering, not turned": make(
            tiled, 256, 256, 256, stages=2, scope="shared.dyn"
        ),
        "product, warp tiles": make(schedules.matmul_warps, 512, 512, 512),
        "convolution, default": make(schedules.default_sch, 16, 16, 64, 3, 1, 1),
        "convolution, tiling": make(schedules.tiling, 64, 64, 64, 3, 1, 1),
        "convolution, virtual threads": make(schedules.vthread, 64, 64, 64, 3, 1, 1),
        "convolution, split": make(schedules.conv_split, 64, 64, 64, 3, 1, 1),
        "convolution, split, odd": make(schedules.conv_split, 17, 20, 63, 3, 0, 2),
    }


tiled = schedules.matmul_tiled
turned = functools.partial(schedules.matmul_vthread, wide=True)
pipelined = functools.partial(turned, stages=2, scope="shared.dyn")


def predicted(name: str, arch: str = "sm_90") -> list[int]:
    """What the analyser says of a kernel, in the order of `METRICS`."""
    table = d2ltvm.traffic(kernels()[name](), arch)
    totals = (table.total(kind, scope) for scope in ("global", "shared") for kind in KINDS)
    return [count for total in totals for count in total]


KINDS = ("read", "write")


def counted(names: list[str]) -> dict[str, list[int]]:
    """What the hardware counts for each kernel, in the order of `METRICS`, by the kernel's name."""
    command = [sys.executable, __file__, "--launch"]
    rows = counters.profile(command, itertools.chain(*METRICS.values()))
    rows = [row for name, row in rows if "main" in name]
    if len(rows) != len(names):
        raise RuntimeError(f"{len(rows)} launches were counted for {len(names)} kernels")
    return {
        name: [int(sum(row[metric] for metric in column)) for column in METRICS.values()]
        for name, row in zip(names, rows, strict=True)
    }


def launch() -> None:
    """What runs under Nsight Compute: every kernel once, in order."""
    for make in kernels().values():
        kernel = d2ltvm.build(make(), "cuda")
        kernel(*[np.ones(p.shape, p.dtype) for p in kernel.params])


def validation() -> dict[str, Any]:
    """Predicted and counted, as `d2ltvm.measure` takes it."""
    names = list(kernels())
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        begun = pool.map(predicted, names)  # begins at once, while the hardware counts
        hardware = counted(names)
        analyser = dict(zip(names, begun, strict=True))
    series = {}
    for k, column in enumerate(METRICS):
        series[f"{column}, predicted"] = [analyser[name][k] for name in names]
        series[f"{column}, counted"] = [hardware[name][k] for name in names]
    return {
        "unit": "count",
        "x": {"label": "kernel", "values": names},
        "series": series,
        "notes": "Nsight Compute, each kernel launched once",
    }


def compare(record: d2ltvm.bench.Record) -> int:
    """Print each number that differs, and a summary. Returns how many differ."""
    wrong = 0
    for column in METRICS:
        pair = (record[f"{column}, {side}"] for side in ("predicted", "counted"))
        for name, ours, theirs in zip(record.values, *pair, strict=True):
            if ours != theirs:
                wrong += 1
                print(f"{name:45}{column:26}predicted {ours:>10,.0f}, counted {theirs:>10,.0f}")
    print(f"{len(record.values)} kernels, {len(METRICS)} counters each: {wrong} numbers differ")
    return wrong


if __name__ == "__main__":
    if sys.argv[1:] == ["--launch"]:
        launch()
    else:
        sys.exit(bool(compare(d2ltvm.measure("access/kernels", validation))))
