from . import (
    any_conv as any_conv,
    any_costs as any_costs,
    any_epilogue as any_epilogue,
    any_layer as any_layer,
    any_mainloop as any_mainloop,
    any_model as any_model,
    any_plan as any_plan,
    any_shape as any_shape,
    fastest as fastest,
    first_kernels as first_kernels,
    implicit_fused as implicit_fused,
    ordered as ordered,
    padding as padding,
    patch as patch,
    planner as planner,
    planning as planning,
    pooling as pooling,
    ring as ring,
    stem as stem,
    tile_scheduler as tile_scheduler,
    tiles as tiles,
    tuned as tuned,
)
from .any_shape import conv_any as conv_any
from .float32 import conv_float32 as conv_float32
from .implicit import conv_nhwc as conv_nhwc
from .product import matmul_nt as matmul_nt
from .wgmma import one_tile as one_tile
