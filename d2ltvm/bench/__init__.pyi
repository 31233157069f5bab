# Clocks, what is timed, and what comes of it; `__init__.py` loads it from here.

from . import contenders as contenders, libraries as libraries
from .timing import Timing as Timing, time_together as time_together
from .run import (
    bench_batched as bench_batched,
    bench_convs as bench_convs,
    bench_products as bench_products,
    bench_together as bench_together,
    check_conv as check_conv,
)
from .measurement import Measurement as Measurement
from .records import Record as Record, load_record as load_record, measure as measure
from .worklog import Worklog as Worklog
from .exercises import verdict as verdict
