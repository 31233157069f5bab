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
    fleet as fleet,
    hopper as hopper,
    layouts as layouts,
    network as network,
    schedules as schedules,
    search as search,
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
    conv_out_size as conv_out_size,
    conv_pack as conv_pack,
    padding as padding,
)
from .compute.operators import (
    batch_norm as batch_norm,
    depthwise_conv as depthwise_conv,
    pool as pool,
)
from .compute.reductions import (
    layer_norm as layer_norm,
    row_sum as row_sum,
    softmax as softmax,
)

# Make data for it, and a reference.
from .compute.data import (
    bcast_data as bcast_data,
    get_abc as get_abc,
    get_bcast_data as get_bcast_data,
    get_bn_data as get_bn_data,
    get_conv_data as get_conv_data,
    get_matmul_data as get_matmul_data,
    square_matrices as square_matrices,
)
from .compute.convolution import conv_reference as conv_reference

# Say how: a schedule.
from .compute.ops import schedule as schedule
from .schedules.loops import bind_thread as bind_thread, split_axis as split_axis
from .compiler.printing import loop_nest as loop_nest, outline as outline

# Build it, run it, check it.
from .compiler.kernel import build as build
from .compiler.verify import WrongResultError as WrongResultError, check as check
from .analysis.emulator.run import emulate as emulate, run_anywhere as run_anywhere
from .system.devices import has_cuda as has_cuda
from .errors import MissingError as MissingError

# Look at it: source, machine code, memory, what a GPU has room for.
from .compiler.printing import difference as difference, kernel_code as kernel_code
from .compiler.cubin import instructions as instructions, resources as resources
from .analysis.traffic import sectors as sectors, traffic as traffic
from .analysis.requests import owners as owners, touched as touched, warp_request as warp_request
from .analysis.roofline import report as report
from .analysis.occupancy import occupancy as occupancy
from .analysis.counters import hardware_counters as hardware_counters
from .system.chips import chip as chip

# Measure it, and keep the measurement.
from .bench.timing import time_together as time_together
from .bench.run import (
    bench_convs as bench_convs,
    bench_products as bench_products,
    bench_together as bench_together,
    check_conv as check_conv,
)
from .bench.worklog import Worklog as Worklog
from .bench.exercises import verdict as verdict
from .bench.records import load_record as load_record, measure as measure
from .bench import contenders as contenders

# The same by the names of Dive into Deep Learning Compiler.
from .bench.d2l_names import (
    bench_bcast_add_mxnet as bench_bcast_add_mxnet,
    bench_bcast_add_torch as bench_bcast_add_torch,
    bench_bcast_add_tvm as bench_bcast_add_tvm,
    bench_bn_mxnet as bench_bn_mxnet,
    bench_bn_tvm as bench_bn_tvm,
    bench_conv_mxnet as bench_conv_mxnet,
    bench_conv_torch as bench_conv_torch,
    bench_conv_tvm as bench_conv_tvm,
    bench_depthwise_conv_mxnet as bench_depthwise_conv_mxnet,
    bench_depthwise_conv_tvm as bench_depthwise_conv_tvm,
    bench_matmul_tvm as bench_matmul_tvm,
    bench_pooling_mxnet as bench_pooling_mxnet,
    bench_pooling_tvm as bench_pooling_tvm,
    bench_vector_add_mxnet as bench_vector_add_mxnet,
    bench_vector_add_torch as bench_vector_add_torch,
    bench_vector_add_tvm as bench_vector_add_tvm,
    bench_workload as bench_workload,
    np_matmul_timer as np_matmul_timer,
)

# Draw it.
from .figures import plot as plot, plot_gflops as plot_gflops, plot_record as plot_record
