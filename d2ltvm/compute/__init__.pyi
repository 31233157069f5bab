# Computations, their data and their references; `__init__.py` loads them from here.

from .ops import (
    broadcast_add as broadcast_add,
    matmul as matmul,
    schedule as schedule,
    vector_add as vector_add,
    vector_copy as vector_copy,
)
from .convolution import (
    conv as conv,
    conv_gflop as conv_gflop,
    conv_in_tiles as conv_in_tiles,
    conv_out_size as conv_out_size,
    conv_pack as conv_pack,
    conv_reference as conv_reference,
    padding as padding,
)
from .conv_batch import (
    conv_batch_reference as conv_batch_reference,
    conv_hwcn as conv_hwcn,
    conv_nhwcnc as conv_nhwcnc,
    from_hwcn as from_hwcn,
    from_nhwcnc as from_nhwcnc,
    to_hwcn as to_hwcn,
    to_hwioio as to_hwioio,
    to_nhwcnc as to_nhwcnc,
)
from .data import (
    bcast_data as bcast_data,
    get_abc as get_abc,
    get_bcast_data as get_bcast_data,
    get_bn_data as get_bn_data,
    get_conv_batch as get_conv_batch,
    get_conv_data as get_conv_data,
    get_matmul_data as get_matmul_data,
    square_matrices as square_matrices,
)
from .operators import (
    batch_norm as batch_norm,
    depthwise_conv as depthwise_conv,
    depthwise_reference as depthwise_reference,
    pool as pool,
    pool_reference as pool_reference,
)
from .operators_nhwc import (
    batch_norm_nhwc as batch_norm_nhwc,
    depthwise_nhwc as depthwise_nhwc,
    depthwise_nhwc_reference as depthwise_nhwc_reference,
    global_pool_nhwc as global_pool_nhwc,
    pool_nhwc as pool_nhwc,
    pool_nhwc_reference as pool_nhwc_reference,
)
from .reductions import (
    exp2_polynomial as exp2_polynomial,
    get_rows as get_rows,
    get_scales as get_scales,
    layer_norm as layer_norm,
    layer_norm_reference as layer_norm_reference,
    row_sum as row_sum,
    softmax as softmax,
    softmax_reference as softmax_reference,
)
