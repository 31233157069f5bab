"""How fast, beside what, and the record of it.

Begin with `run`: `bench_together`. `contenders` has what is timed, `timing` the clocks,
`measurement` what comes of it, `records` keeps that, `worklog` is a chapter's table of predictions
and measurements, and `exercises` says whether one is solved. `probes` measures a chip's ceilings,
`clocks` one kernel by several clocks, `adds` has what the chapters on adds compare, and `occupied`
times launches while some multiprocessors are taken. `libraries` imports MXNet and PyTorch,
`hopper_layers` has the layers of Hopper's chapters, `d2l_names` the functions of Dive into Deep
Learning Compiler, and `scoreboard` is `python -m d2ltvm bench`. `sets` has layers of many networks
and products, which `set_bench` runs; `timed_plans` has kernels of them that were timed.
"""

from d2ltvm import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)
