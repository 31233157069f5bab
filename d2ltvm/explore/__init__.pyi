# The figures and the cards; `__init__.py` loads them from here.

from .figures import banks as banks, coalescing as coalescing, swizzle as swizzle
from .shapes import broadcast as broadcast, tma_box as tma_box, window as window
from .cards import run as run, your_gpu as your_gpu
from .tensorcores import fragments as fragments, ring as ring
from .tiles import (
    conv_tiles as conv_tiles,
    hierarchy as hierarchy,
    latency as latency,
    waves as waves,
)
from .widget import Explorer as Explorer
