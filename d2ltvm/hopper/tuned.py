"""Plans that were fastest on this machine: `bench.tuning.tune` keeps them, `any_layer` finds them.

They are in the cache of `python -m d2ltvm cache`. A plan was the fastest of a GPU, with a driver, a
version of TVM, and the kernels of this package: with others it is not found.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from d2ltvm.compiler import cache
from d2ltvm.errors import MissingError
from d2ltvm.hopper import fastest
from d2ltvm.hopper.any_conv import Conv
from d2ltvm.system import devices


@dataclass(frozen=True)
class TuningRecord:
    """What is kept of the sizes of a convolution or a product.

    Attributes:
        layer: the fastest, as `any_layer.to_text` gives it.
        races: names of those that it has won, all that were run.
    """

    layer: str
    races: frozenset[str]


def kept(
    conv: Conv, transposed: bool = True, device: Mapping[str, str] | None = None
) -> TuningRecord | None:
    """What was kept; None where there is nothing, or nothing that can be read.

    >>> kept(Conv(31, (27, 29), 512, 512)) is None
    True

    Args:
        conv: what is computed.
        transposed: of a product, whether the second matrix is given as its transpose.
        device: as `devices.describe_device` gives it; None for this machine's GPU.
    """
    try:
        found = cache.kept(*_key(conv, transposed, device or devices.describe_device()))
    except MissingError:  # there is no GPU
        return None
    try:
        fields: dict[str, Any] = json.loads(found or b"")
        return TuningRecord(str(fields["layer"]), frozenset(fields["races"]))
    except (ValueError, LookupError, TypeError):
        return None


def keep(record: TuningRecord, conv: Conv, transposed: bool, device: Mapping[str, str]) -> None:
    """Keep it, in the place of what was kept before; arguments as for `kept`."""
    text = json.dumps({"layer": record.layer, "races": sorted(record.races)})
    cache.keep(text.encode(), *_key(conv, transposed, device))


def _key(conv: Conv, transposed: bool, device: Mapping[str, str]) -> tuple[object, ...]:
    return (
        "a tuned plan",
        repr(conv),
        transposed,
        sorted(device.items()),
        cache.package_versions("apache-tvm", "d2ltvm"),
        _kernels(),
    )


def _kernels() -> str:
    """A hash of all that kernels and plans are made by."""
    return cache.hash_of_text(Path(__file__).parent, "*.py", fastest.FILE.name)
