"""A whole network: its graph, what becomes of the graph, and what runs it.

Begin with `graph`: a `Network` is a tuple of named nodes whose shapes follow. `models` has those of
MXNet's model zoo by name, and `weights` makes arrays for them. `reference` computes a network with
NumPy. `from_mxnet` reads graphs out of MXNet, and runs them there.
"""

from d2ltvm import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)
