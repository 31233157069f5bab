# What this machine has; `__init__.py` loads it from here.

from .chips import chip as chip
from .devices import as_target as as_target, has_cuda as has_cuda, has_hopper as has_hopper
