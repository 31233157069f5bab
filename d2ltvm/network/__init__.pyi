# Networks: graph, weights, what runs them; `__init__.py` loads it from here.

from . import (
    from_mxnet as from_mxnet,
    graph as graph,
    hopper_kernels as hopper_kernels,
    launching as launching,
    measured_kernels as measured_kernels,
    memory as memory,
    model as model,
    models as models,
    on_hopper as on_hopper,
    packed as packed,
    passes as passes,
    reference as reference,
    relaxed as relaxed,
    report as report,
    run as run,
    run_on_hopper as run_on_hopper,
    weights as weights,
)
from .graph import Network as Network
from .memory import memory_plan as memory_plan
from .model import Model as Model, compile_network as compile_network
from .models import MODELS as MODELS, load as load
from .packed import pack_weights as pack_weights, packed_kernels as packed_kernels
from .passes import (
    bytes_moved as bytes_moved,
    fold_batch_norms as fold_batch_norms,
    fold_weights as fold_weights,
    fuse as fuse,
    prepare as prepare,
)
from .relaxed import NodeKernel as NodeKernel, to_relax as to_relax
from .weights import random_images as random_images, random_weights as random_weights
