"""Many GPUs: servers that run, check and time kernels which are built here, and lose none.

Begin with `measuring`: `measure`. `local` starts TVM's tracker and servers on this machine, by
`keeper`, a process that starts them again when they end; `server` is what each of them runs, and
`nvml` reads a GPU's clock and power. `tracker` asks the tracker for servers, `session` is one of
them while a process measures on it, `task` what it is asked, and `jobs` what is done there, in the
processes of `workers`. `database` keeps the results, `metaschedule` gives all this to TVM's own
search, `scaling` says how many GPUs one machine keeps busy, `choosing` which fleet another command
measures on, and `command` is `python -m d2ltvm fleet`.
"""

from d2ltvm import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)
