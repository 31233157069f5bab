"""Helpers for a book about scheduling GPU kernels with Apache TVM.

Names are loaded on first use, so that `import d2ltvm` costs nothing, and so that `d2ltvm.colab`
can prepare a driver before anything touches the GPU.
"""

import importlib
import importlib.util

from d2ltvm.threads import use_all_cores

use_all_cores()

__version__ = "0.1.0"

# What the package offers, by the module that holds it.
_EXPORTS = {
    "ops": ("vector_add", "vector_copy", "broadcast_add", "broadcast_shape", "matmul", "schedule"),
    "convolution": (
        "conv",
        "conv_gflop",
        "conv_in_tiles",
        "conv_out_size",
        "conv_pack",
        "conv_reference",
        "padding",
    ),
    "batched": (
        "conv_batch_reference",
        "conv_hwcn",
        "conv_nhwcnc",
        "from_hwcn",
        "from_nhwcnc",
        "to_hwcn",
        "to_hwioio",
        "to_nhwcnc",
    ),
    "data": ("get_abc", "get_bcast_data", "get_conv_batch", "get_conv_data", "get_matmul_data"),
    "schedules": ("split_axis", "bind_thread"),
    "emulation": ("emulate", "run_anywhere"),
    "errors": ("MissingError",),
    "devices": ("as_target", "driver_version", "has_cuda", "has_hopper", "has_opencl"),
    "cubin": (
        "compile_cubin",
        "disassemble",
        "instructions",
        "resources",
        "ensure_cuda_compiler",
    ),
    "listing": ("loop_nest", "kernel_code"),
    "kernel": ("build", "Kernel"),
    "checking": ("check", "WrongResultError"),
    "clock": ("time_together", "Timing"),
    "baselines": (
        "mxnet",
        "mxnet_add",
        "mxnet_context",
        "np_matmul_timer",
        "numpy_add",
        "numpy_matmul",
        "mxnet_conv",
        "mxnet_matmul",
        "torch_add",
        "torch_conv",
        "torch_conv_batch",
        "torch_copy",
        "torch_matmul",
        "torch_cuda",
    ),
    "bench": (
        "bench_workload",
        "bench_together",
        "bench_vector_add_tvm",
        "bench_vector_add_mxnet",
        "bench_vector_add_torch",
        "bench_bcast_add_tvm",
        "bench_bcast_add_mxnet",
        "bench_bcast_add_torch",
        "bench_conv_mxnet",
        "bench_batched",
        "bench_convs",
        "bench_conv_torch",
        "bench_conv_tvm",
        "bench_matmul_tvm",
        "bcast_data",
        "check_conv",
        "square",
        "tvm_add",
        "tvm_conv",
        "tvm_conv_batch",
        "tvm_copy",
        "tvm_matmul",
    ),
    "access": ("sectors", "traffic", "request", "touched"),
    "report": ("report", "Report"),
    "multiprocessor": ("occupancy", "Occupancy"),
    "counters": ("count",),
    "figures": (
        "plot",
        "plot_gflops",
        "plot_record",
        "bars",
        "roofline",
        "draw_threads",
        "draw_memory",
        "draw_requests",
        "draw_touched",
    ),
    "chips": ("chip", "CHIPS", "Chip"),
    "records": ("Record", "load", "measure"),
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names}


def __getattr__(name):
    if name in _HOME:
        value = getattr(importlib.import_module(f"d2ltvm.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if importlib.util.find_spec(f"d2ltvm.{name}"):
        return importlib.import_module(f"d2ltvm.{name}")
    raise AttributeError(f"module 'd2ltvm' has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *_HOME])
