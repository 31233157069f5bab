# The reader's surface, by what a reader wants to do. `d2ltvm/__init__.py` loads these names from
# here, completion in an editor reads them here, and the API page lists them in this order.
# `x as x` is how a stub says that a name may be imported from it.

__version__: str

from . import (
    analysis as analysis,
    bench as bench,
    compiler as compiler,
    compute as compute,
    explore as explore,
    figures as figures,
    hopper as hopper,
    layouts as layouts,
    schedules as schedules,
    system as system,
)

# Say what is computed.
from .compute.ops import (
    broadcast_add as broadcast_add,
    matmul as matmul,
    vector_add as vector_add,
    vector_copy as vector_copy,
)
from .compute.convolution import (
    conv as conv,
    conv_gflop as conv_gflop,
    conv_in_tiles as conv_in_tiles,
    conv_out_size as conv_out_size,
    conv_pack as conv_pack,
    padding as padding,
)
from .compute.conv_batch import conv_hwcn as conv_hwcn, conv_nhwcnc as conv_nhwcnc

# Make data for it, and a reference.
from .compute.data import (
    bcast_data as bcast_data,
    get_abc as get_abc,
    get_bcast_data as get_bcast_data,
    get_conv_batch as get_conv_batch,
    get_conv_data as get_conv_data,
    get_matmul_data as get_matmul_data,
    square_matrices as square_matrices,
)
from .compute.convolution import conv_reference as conv_reference
from .compute.conv_batch import (
    conv_batch_reference as conv_batch_reference,
    from_hwcn as from_hwcn,
    from_nhwcnc as from_nhwcnc,
    to_hwcn as to_hwcn,
    to_hwioio as to_hwioio,
    to_nhwcnc as to_nhwcnc,
)

# Say how: a schedule.
from .compute.ops import schedule as schedule
from .schedules.loops import bind_thread as bind_thread, split_axis as split_axis
from .compiler.printing import loop_nest as loop_nest

# Build it, run it, check it.
from .compiler.kernel import Kernel as Kernel, build as build
from .compiler.verify import WrongResultError as WrongResultError, check as check
from .analysis.emulator.run import emulate as emulate, run_anywhere as run_anywhere
from .system.devices import as_target as as_target, has_cuda as has_cuda, has_hopper as has_hopper
from .errors import MissingError as MissingError

# Look at it: source, machine code, memory, what a GPU has room for.
from .compiler.printing import difference as difference, kernel_code as kernel_code
from .compiler.cubin import (
    compile_cubin as compile_cubin,
    disassemble as disassemble,
    instructions as instructions,
    resources as resources,
)
from .analysis.traffic import (
    owners as owners,
    sectors as sectors,
    touched as touched,
    traffic as traffic,
    warp_request as warp_request,
)
from .analysis.roofline import report as report
from .analysis.occupancy import occupancy as occupancy
from .analysis.counters import hardware_counters as hardware_counters
from .system.chips import chip as chip

# Measure it, and keep the measurement.
from .bench.timing import Timing as Timing, time_together as time_together
from .bench.run import (
    bench_batched as bench_batched,
    bench_convs as bench_convs,
    bench_together as bench_together,
    check_conv as check_conv,
)
from .bench.measurement import Measurement as Measurement
from .bench.records import Record as Record, load_record as load_record, measure as measure
from .bench import contenders as contenders, libraries as libraries

# The same by the names of Dive into Deep Learning Compiler.
from .bench.d2l_names import (
    bench_bcast_add_mxnet as bench_bcast_add_mxnet,
    bench_bcast_add_torch as bench_bcast_add_torch,
    bench_bcast_add_tvm as bench_bcast_add_tvm,
    bench_conv_mxnet as bench_conv_mxnet,
    bench_conv_torch as bench_conv_torch,
    bench_conv_tvm as bench_conv_tvm,
    bench_matmul_tvm as bench_matmul_tvm,
    bench_vector_add_mxnet as bench_vector_add_mxnet,
    bench_vector_add_torch as bench_vector_add_torch,
    bench_vector_add_tvm as bench_vector_add_tvm,
    bench_workload as bench_workload,
    np_matmul_timer as np_matmul_timer,
)

# Draw it.
from .figures import (
    bars as bars,
    draw_memory as draw_memory,
    draw_requests as draw_requests,
    draw_threads as draw_threads,
    draw_tiles as draw_tiles,
    draw_touched as draw_touched,
    plot as plot,
    plot_gflops as plot_gflops,
    plot_record as plot_record,
    roofline as roofline,
)
