from . import (
    patch as patch,
    planning as planning,
    ring as ring,
    tile_scheduler as tile_scheduler,
    tiles as tiles,
)
from .float32 import conv_float32 as conv_float32
from .implicit import conv_nhwc as conv_nhwc
from .product import matmul_nt as matmul_nt
from .wgmma import one_tile as one_tile
