from . import loops as loops, tensor_intrinsics as tensor_intrinsics
from .chains import chase as chase, timed_chase as timed_chase
from .conv import (
    conv_split as conv_split,
    conv_tiled as conv_tiled,
    cpu_conv as cpu_conv,
    cpu_direct as cpu_direct,
    default_sch as default_sch,
    register_sch as register_sch,
    spread_sch as spread_sch,
    tiling as tiling,
    vthread as vthread,
)
from .conv_batch import (
    hwcn_blocks as hwcn_blocks,
    hwcn_tiled as hwcn_tiled,
    mma_tiled as mma_tiled,
    wmma_tiled as wmma_tiled,
)
from .elementwise import (
    alternate_parallel as alternate_parallel,
    bcast_in_steps as bcast_in_steps,
    bcast_rows as bcast_rows,
    bcast_vectorized as bcast_vectorized,
    continuous_parallel as continuous_parallel,
    copy_unrolled as copy_unrolled,
    cpu_bcast_add as cpu_bcast_add,
    cpu_vector_add as cpu_vector_add,
    loads_ahead as loads_ahead,
    neighbours as neighbours,
    nothing_to_do as nothing_to_do,
    one_thread_each as one_thread_each,
    partitioned as partitioned,
    reads_only as reads_only,
    staying as staying,
    sum_of_vectors as sum_of_vectors,
    unrolled as unrolled,
    vectorized as vectorized,
    writes_only as writes_only,
)
from .matmul import (
    cpu_matmul as cpu_matmul,
    matmul_coalesced as matmul_coalesced,
    matmul_naive as matmul_naive,
    matmul_registers as matmul_registers,
    matmul_shared as matmul_shared,
    matmul_tiled as matmul_tiled,
    matmul_vthread as matmul_vthread,
    matmul_warps as matmul_warps,
)
from .layer_norm import (
    layer_norm_held as layer_norm_held,
    layer_norm_shared as layer_norm_shared,
    layer_norm_welford as layer_norm_welford,
)
from .multiply_add import fma_kernel as fma_kernel, fma_tile as fma_tile
from .operators import (
    batch_norm_flat as batch_norm_flat,
    depthwise_rows as depthwise_rows,
    pool_rows as pool_rows,
)
from .operators_cpu import (
    cpu_batch_norm as cpu_batch_norm,
    cpu_depthwise as cpu_depthwise,
    cpu_pool as cpu_pool,
)
from .strips import (
    batch_norm_pixels as batch_norm_pixels,
    batch_norm_plan as batch_norm_plan,
    depthwise_plan as depthwise_plan,
    depthwise_strips as depthwise_strips,
    pool_global as pool_global,
    pool_strips as pool_strips,
    strip_block as strip_block,
)
from .reductions import (
    cpu_layer_norm as cpu_layer_norm,
    cpu_softmax as cpu_softmax,
    layer_norm_passes as layer_norm_passes,
    softmax_passes as softmax_passes,
    sum_a_block as sum_a_block,
    sum_a_thread as sum_a_thread,
    sum_pieces as sum_pieces,
    sum_wide as sum_wide,
)
from .softmax import (
    softmax_held as softmax_held,
    softmax_online as softmax_online,
    softmax_shared as softmax_shared,
)
from .transposing import strided as strided, swizzled as swizzled, transpose as transpose
