"""GPUs, their clocks and their power, from NVML, the library that every NVIDIA driver brings."""

import contextlib
import ctypes
import functools
import os
import statistics
import threading
from dataclasses import dataclass
from typing import Any

SM_CLOCK = 1  # nvmlClockType_t: NVML_CLOCK_SM
PERIOD = 0.01  # seconds between two samples


@dataclass(frozen=True)
class Gpu:
    """A GPU as NVML numbers them: `name`, such as 'NVIDIA H200', and `uuid`."""

    name: str
    uuid: str


@functools.cache
def _library(_process: int) -> Any:
    """NVML, opened by this process; None where there is no driver, or it has no GPU."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


def gpus() -> list[Gpu]:
    """The GPUs of this machine; of CUDA_VISIBLE_DEVICES those alone, where it is set.

    >>> gpus()  # doctest: +SKIP
    [Gpu(name='NVIDIA H200', uuid='GPU-4f0c…'), Gpu(name='NVIDIA H200', uuid='GPU-91bd…')]
    """
    library, count = _library(os.getpid()), ctypes.c_uint()
    if library is None or library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return []
    found = [_gpu(library, index) for index in range(count.value)]
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return found if chosen is None else visible(found, chosen)


def visible(found: list[Gpu], chosen: str) -> list[Gpu]:
    """Of some GPUs those that CUDA_VISIBLE_DEVICES names, by number or by the start of a UUID.

    >>> [gpu.name for gpu in visible([Gpu("A", "GPU-1f"), Gpu("B", "GPU-2e")], "1,GPU-1")]
    ['B', 'A']

    As CUDA does, it takes none of those behind a name that is wrong.
    """
    kept: list[Gpu] = []
    for name in filter(None, map(str.strip, chosen.split(","))):
        which = [
            gpu
            for index, gpu in enumerate(found)
            if name == str(index) or (not name.isdigit() and gpu.uuid.startswith(name))
        ]
        if len(which) != 1:
            break
        kept += which
    return kept


def _gpu(library: Any, index: int) -> Gpu:
    handle = ctypes.c_void_p()
    library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
    texts = []
    for function in (library.nvmlDeviceGetName, library.nvmlDeviceGetUUID):
        text = ctypes.create_string_buffer(96)
        function(handle, text, len(text))
        texts.append(text.value.decode())
    return Gpu(*texts)


class Sampler:
    """Reads a GPU's clock and power while it works, every hundredth of a second.

    >>> sampler = Sampler("no such GPU")
    >>> sampler.start()
    >>> sampler.stop()
    {}

    Args:
        uuid: the GPU's.
    """

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self._samples: list[tuple[int, float]] = []
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to read."""
        self._samples.clear()
        self._ended.clear()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """End it: medians as `clock_mhz` and `power_w`, or nothing where NVML is not there."""
        if self._thread:
            self._ended.set()
            self._thread.join()
        if not self._samples:
            return {}
        clocks, powers = zip(*self._samples, strict=True)
        return {"clock_mhz": statistics.median(clocks), "power_w": statistics.median(powers)}

    def _read(self) -> None:
        library, handle = _library(os.getpid()) if self.uuid else None, ctypes.c_void_p()
        if library is None:
            return
        if library.nvmlDeviceGetHandleByUUID(self.uuid.encode(), ctypes.byref(handle)):
            return
        clock, power = ctypes.c_uint(), ctypes.c_uint()
        while True:
            read = library.nvmlDeviceGetClockInfo(handle, SM_CLOCK, ctypes.byref(clock))
            if not (read or library.nvmlDeviceGetPowerUsage(handle, ctypes.byref(power))):
                self._samples.append((clock.value, power.value / 1e3))
            if self._ended.wait(PERIOD):
                return


def driver() -> str:
    """The version of the driver, such as '580.159.04'; '' where there is none."""
    library, text = _library(os.getpid()), ctypes.create_string_buffer(96)
    with contextlib.suppress(AttributeError):
        if library and library.nvmlSystemGetDriverVersion(text, len(text)) == 0:
            return text.value.decode()
    return ""
