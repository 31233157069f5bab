"""The kernels of ResNet-50's layers that won a race on an H200, on 2026-11-23.

They are in book/measurements/nvidia-h200/network_plans.jsonl, for batches of 1, 8, 32 and 256
images of 224 x 224. There is a line for each launch that differs: its nodes, the convolution's
sizes and what follows it, the kernel, and its time in µs in a graph of ten, as the records
`network/layers_256` and its like have it. `tried` has the kernels of the race, each with the best
time of six rounds, by which the winner was chosen. Other processes could use the GPU during these
rounds.
"""

import functools
import json
from collections.abc import Iterator
from typing import Any

from d2ltvm.bench import records
from d2ltvm.hopper import any_layer
from d2ltvm.hopper.any_conv import Conv
from d2ltvm.network.hopper_kernels import AnyConv, BoxConv
from d2ltvm.system import devices

FILE = "network_plans.jsonl"
BOXES = "boxes"  # the way of `BoxConv`, in the file

Epilogue = tuple[bool, bool, bool]  # whether there are ReLU, residual, float32 results


def measured_kernel(
    conv: Conv, relu: bool, residual: bool, sms: int, wide: bool = False, device: str | None = None
) -> AnyConv | BoxConv | None:
    """The kernel that was the fastest one of those tried, if it ran on this GPU.

    >>> conv = Conv(256, (56, 56), 64, 64, (3, 3), (1, 1))
    >>> str(measured_kernel(conv, True, False, 132, device="nvidia-h200"))
    'boxes (128, 1, 1) x 64'
    >>> measured_kernel(conv, True, False, 131, device="nvidia-h200") is None
    True

    Args:
        conv, relu, residual, wide: as for `hopper_kernels.conv_kernels`.
        sms: blocks that run at once: a kernel was measured for so many.
        device: folder under book/measurements; None for that of the GPU, or of an H200 where there
            is none.

    Returns:
        The kernel; None where none of these sizes has been measured on that device.
    """
    found = _kernels(device or _this_device()).get((conv, (relu, residual, wide)))
    return found if found and _sms(found) == sms else None


def lines(device: str = records.DEFAULT_DEVICE) -> Iterator[dict[str, Any]]:
    """The lines of the file, a dict each; none where there is no file for a device."""
    path = records.MEASUREMENTS / device / FILE
    for line in path.read_text().splitlines() if path.is_file() else ():
        yield json.loads(line)


@functools.cache
def _kernels(device: str) -> dict[tuple[Conv, Epilogue], AnyConv | BoxConv]:
    """All kernels of a device's file, by what they compute; the stem and the mean are no races."""
    found: dict[tuple[Conv, Epilogue], AnyConv | BoxConv] = {}
    for line in lines(device):
        if line["conv"] is None:
            continue
        sizes: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in line["conv"].items()
        }
        conv, plan = Conv(**sizes), line["plan"]
        kernel: AnyConv | BoxConv
        if plan["way"] == BOXES:
            kernel = BoxConv(conv, line["relu"], plan["sms"])
        else:
            kernel = AnyConv(any_layer.from_text(conv, json.dumps(plan)))
        found[conv, (line["relu"], line["residual"], line["wide"])] = kernel
    return found


def _sms(kernel: AnyConv | BoxConv) -> int:
    return kernel.sms if isinstance(kernel, BoxConv) else kernel.plan.sms


def _this_device() -> str:
    if devices.has_cuda():
        return records.slug(devices.describe_device()["name"])
    return records.DEFAULT_DEVICE
