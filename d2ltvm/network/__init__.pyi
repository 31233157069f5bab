# Networks: graph, weights, what runs them; `__init__.py` loads it from here.

from . import (
    from_mxnet as from_mxnet,
    graph as graph,
    models as models,
    reference as reference,
    weights as weights,
)
from .graph import Network as Network
from .models import MODELS as MODELS, load as load
from .weights import random_images as random_images, random_weights as random_weights
