"""A whole network: its graph, what becomes of the graph, and what runs it.

Begin with `graph`: a `Network` is a tuple of named nodes whose shapes follow. `models` has those of
MXNet's model zoo by name, and `weights` makes arrays for them. `passes` folds batch norms and fuses
what follows convolutions. `reference` computes a network with NumPy. `from_mxnet` reads graphs out
of MXNet, and runs them there.

`relaxed` writes a network down in Relax, TVM's language of graphs, and `model` compiles that for
TVM's virtual machine; a node may have a kernel of one's own. `memory` tells which results share
memory, `packed` has kernels for processors, and `run` is `python -m d2ltvm run`, with `report`.

`on_hopper` makes a list of launches of a network, for an H100 or H200, of the kernels that
`hopper_kernels` describes; `launching` compiles them, and captures them into a CUDA graph.
`run_on_hopper` is the command there.
"""

from d2ltvm import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)
