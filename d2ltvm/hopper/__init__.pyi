from . import (
    patch as patch,
    planning as planning,
    ring as ring,
    tile_scheduler as tile_scheduler,
    tiles as tiles,
)
from .float32 import conv_float32 as conv_float32
from .implicit import conv as conv
from .product import matmul as matmul
from .wgmma import one_tile as one_tile
