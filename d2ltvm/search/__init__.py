"""Schedules that a machine finds: MetaSchedule's space, searched with and without a device.

Begin with `workload` and `space`: what is computed (`computations` has the six), and the sketches
that rules make of it, those for TensorCores from `tensorcores`;
`rules.tree` shows which rule made what, and `text.as_text` a found schedule as Python. `book_space`
has the book's own schedules as sketches. `evolve` samples and mutates; a cost model tells it what
to keep: `predict` works a time out from the analyser, with no device (`predicted`), `judged` does
it anew with the loops that the compiler leaves (`unrolled`), `pipes` knows several kernels,
TensorCores and device memory too, `waits` reads the machine code (`followed`), `Ridge` learns from
what was measured (`learned`). `foretold` searches with predictions alone; `search` measures on this
machine, or on the servers of a fleet (`on_fleet`), and `database` keeps that.
`races` times what was found beside the book's schedules and the library.
`ranking` says how good a model is, `measured` has candidates that a GPU has timed, `counting` what
judges count, and `command` is `python -m d2ltvm search`.
"""

from d2ltvm import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)
