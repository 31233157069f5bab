"""Weights, and images, that every machine makes alike: nothing is downloaded.

They are random. A network with such weights has no idea of cats, and costs as much as a trained
one. Each array follows from a seed, its name and its shape alone: its numbers are the raw bits of
NumPy's PCG64, whose stream NumPy keeps from release to release, and no function of NumPy's that
may change lies between.

The scales keep numbers moderate from the first layer to the last, in float16 too, let images differ
in their classes, and let an error grow little on its way:

- Filters have the variance 2 / fan-in, under which a convolution behind a relu keeps the mean
  square of what passes {cite}`he2015`.
- What a relu gives has a mean, alike for all images, that would drown what differs. So the weights
  of a filter, or of a unit, have the mean 0, exactly, and take a common mean of the channels away.
  Filters of one channel, or of an image's three, keep theirs.
- Running variances lie around 1. The last batch norm before an addition has half the gamma, since
  each addition would otherwise double the mean square.
"""

import math
import zlib
from collections.abc import Mapping

import numpy as np

from d2ltvm.compute.convolution import Array
from d2ltvm.compute.ops import Shape, countable
from d2ltvm.errors import shown, whole
from d2ltvm.network.graph import Add, BatchNorm, Conv2d, Dense, Network, Node

Weights = dict[str, Array]

BEFORE_ADDITION = 0.5  # how much less gamma is there
FEW_CHANNELS = 3  # up to which a filter is not centred


def random_weights(network: Network, seed: int = 0) -> Weights:
    """An array for each parameter of a network, float32.

    >>> weights = random_weights(d2ltvm.network.load("resnet18", size=32))
    >>> weights["conv0_weight"].shape, weights["conv0_weight"].dtype
    ((64, 3, 7, 7), dtype('float32'))

    Args:
        network: a `Network`, as imported.
        seed: an integer from 0; another one gives other weights.
    """
    seed = whole("seed", seed, 0)
    weights: Weights = {}
    for node in network:
        for name, shape in node.parameters(*network.given(node)).items():
            low, high = _range(network, node, name, shape)
            centred = len(shape) > 1 and shape[1] > FEW_CHANNELS
            weights[name] = uniform(f"{seed}/{name}", shape, low, high, centred)
    return weights


def random_images(batch: int, size: int, seed: int = 0) -> Array:
    """Images of coloured patches, as a network gets them: around 0, with a variance around 1.

    Pure noise would be no test of a network: the mean over an image makes all noise alike.

    >>> random_images(2, 32).shape
    (2, 3, 32, 32)

    Args:
        batch: how many.
        size: rows and columns.
        seed: an integer from 0.

    Returns:
        A float32 array of shape (batch, 3, size, size).
    """
    batch, size, seed = whole("batch", batch), whole("size", size), whole("seed", seed, 0)
    countable("images", (batch, 3, size, size))
    images = np.zeros((batch, 3, size, size), "float32")
    for cells in (1, 3, 16):  # grids of patches, from one colour to fine ones
        patches = uniform(f"{seed}/images/{cells}", (batch, 3, cells, cells), -1, 1)
        where = np.arange(size) * cells // size
        images += patches[:, :, where][..., where]
    return images


def uniform(name: str, shape: Shape, low: float, high: float, centred: bool = False) -> Array:
    """A float32 array of numbers from `low` to `high`, which follow from `name` and `shape`.

    >>> uniform("a", (2,), 0, 1)
    array([0.62038314, 0.9880388 ], dtype=float32)

    Args:
        name: other numbers for each.
        shape: of the array.
        low: the smallest.
        high: the largest.
        centred: whether all that belongs to an index of the first axis is moved to have the mean
            of `low` and `high`.
    """
    count = math.prod(shape)
    bits = np.random.PCG64(zlib.crc32(name.encode())).random_raw((count + 1) // 2)
    words = bits.astype("<u8", copy=False).view("<u4")[:count]
    steps = (words >> np.uint32(8)).astype("int32")  # of 2**24, which a float32 holds exactly
    if centred:  # in integers, so that no machine rounds otherwise
        rows = steps.reshape(shape[0], -1)
        mean = rows.sum(axis=1, dtype="int64") // rows.shape[1]
        steps = rows - (mean - 2**23).astype("int32")[:, None]
    numbers = steps.astype("float32") * np.float32(2**-24)
    return (np.float32(low) + numbers * np.float32(high - low)).reshape(shape)


def check_weights(network: Network, weights: Mapping[str, Array]) -> None:
    """A ValueError where an array that a node needs is absent or has another shape.

    Args:
        network: a `Network`.
        weights: arrays by parameter's name; more than it needs are no fault.

    Raises:
        ValueError: names the node and the parameter.
    """
    for node in network:
        for name, shape in node.parameters(*network.given(node)).items():
            if name not in weights:
                raise ValueError(f"{node.name}: weight {name!r} is missing; expected shape {shape}")
            if np.shape(weights[name]) != shape:
                raise ValueError(
                    f"{node.name}: weight {name!r} has shape {shown(np.shape(weights[name]))}; "
                    f"expected {shape}"
                )


def _range(network: Network, node: Node, name: str, shape: Shape) -> tuple[float, float]:
    """The smallest and the largest number of a parameter."""
    if isinstance(node, BatchNorm) and name in (node.gamma, node.variance):
        added = name == node.gamma and any(isinstance(r, Add) for r in network.readers(node.name))
        scale = BEFORE_ADDITION if added else 1.0
        return 0.8 * scale, 1.2 * scale
    if isinstance(node, Conv2d | Dense) and name == node.weight:
        gain = 2.0 if isinstance(node, Conv2d) else 1.0
        bound = math.sqrt(3 * gain / math.prod(shape[1:]))  # variance gain / fan-in
        return -bound, bound
    return -0.1, 0.1
