"""The book's kernels on two chips that differ in their memory: what each has to move, and how long.

A kernel that moves bytes all the time is slower on the chip with the slower memory; one that never
waits for them is not. `entries` lists kernels whose records there are, with the bytes that each has
to move, and `overlapping` and `in_turn` say what follows from their share of the time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from d2ltvm.bench.records import load_record
from d2ltvm.errors import MissingError, as_number, shown

H100, H200 = "nvidia-h100-80gb-hbm3", "nvidia-h200"  # folders of records
FETCH = 64  # bytes that L2 brings where it misses: seeing_memory/granularity


@dataclass(frozen=True)
class Entry:
    """A kernel of a record.

    Attributes:
        part: of the book.
        name: of the kernel.
        record: chapter and measurement.
        legend: the record's series.
        at: the record's place.
        work: what a second's worth of the record's unit counts, such as the TB that a launch moves;
            None where the record has µs.
        moved: bytes that have to come from and go to device memory, if each goes once. It is 0
            where the L2 cache holds everything.
    """

    part: str
    name: str
    record: str
    legend: str
    at: object
    work: float | None
    moved: float

    def seconds(self, device: str = H200) -> float:
        """How long a launch takes, by the record of a device.

        Raises:
            MissingError: there is no such record.
        """
        value = load_record(self.record, device).at(self.legend, self.at)
        return value * 1e-6 if self.work is None else self.work / value

    def recorded(self, device: str) -> bool:
        """Whether a device has been measured."""
        try:
            return self.seconds(device) > 0
        except MissingError:
            return False

    def share(self, bandwidth: float, device: str = H200) -> float:
        """The share of that time in which the memory is busy, at so many TB/s; at most 1."""
        return min(1.0, self.moved / bandwidth / 1e12 / self.seconds(device))


def overlapping(share: float, slower: float) -> float:
    """By what a time grows with memory so many times as slow, if nothing waits for the memory.

    >>> overlapping(0.5, 1.4), overlapping(1, 1.4)
    (1.0, 1.4)

    Args:
        share: of the time, in which the memory is busy.
        slower: how many times as long the memory takes.
    """
    return max(1.0, _share(share) * as_number("slower", slower))


def in_turn(share: float, slower: float) -> float:
    """The same if all the rest waits for the memory.

    >>> in_turn(0.5, 1.4), in_turn(1, 1.4)
    (1.2, 1.4)
    """
    return 1 + _share(share) * (as_number("slower", slower) - 1)


def _share(value: float) -> float:
    share = as_number("share", value)
    if not 0 <= share <= 1:
        raise ValueError(f"share is {shown(value)}; expected a number from 0 to 1")
    return share


def entries() -> list[Entry]:
    """The kernels that two chips have records of, part by part."""
    return [*_moving(), *_multiplying(), *_convolving(), *_on_tensorcores()]


def _rates(
    part: str, what: str, record: str, at: int, moved: float, legends: Iterable[str]
) -> Iterator[Entry]:
    """Kernels whose records have TB/s of the bytes that they have to move."""
    for legend in legends:
        yield Entry(part, f"{what}, {legend}", record, legend, at, moved / 1e12, moved)


def _moving() -> Iterator[Entry]:
    part, n = "elementwise", 2**26
    yield Entry(part, "copy", "gpu_in_numbers/copy", "TVM", 2**28, 8 * 2**28 / 1e12, 8 * 2**28)
    added = ("one element", "four neighbours", "four", "twice four", "guard kept out", "PyTorch")
    yield from _rates(part, "vector add", "vector_add/steps", n + 3, 12 * (n + 3), added)
    moved = 8 * 8192**2 + 4 * 8192
    broadcast = ("continuous", "alternate", "one each", "wide", "PyTorch")
    yield from _rates(part, "broadcast add", "broadcast_add/bandwidth", 8192, moved, broadcast)
    for threads in (256, 512, 1024, 2048):
        name, size = f"vector add, {threads:,} threads an SM", 132 * 2048 * 4 * 24
        record, legend = "vector_add/under_way", "4 bytes a load"
        yield Entry(part, name, record, legend, threads, 12 * size / 1e12, 12 * size)
    part, n = "memory", 2**24
    for stride in (1, 2, 4, 8, 16, 32):
        moved = n * (4 + min(4 * stride, FETCH))
        name, legend = f"stride {stride}", "every s-th element"
        yield Entry(part, name, "seeing_memory/stride", legend, stride, 8 * n / 1e12, moved)
    turned = ("PyTorch's x.T", "direct", "by way of a tile", "4 rows of 8", "padded", "swizzled")
    yield from _rates(part, "transpose", "seeing_memory/transpose", 8192, 8 * 8192**2, turned)


def _multiplying() -> Iterator[Entry]:
    n, elements = 4096, 2**24
    for count in (1, 16, 32, 64, 128, 256, 1024):
        work, name = 2 * elements * count / 1e12, f"{count} multiply-adds each"
        record = "gpu_in_numbers/roofline"
        yield Entry("roofline", name, record, "FMA kernel", count / 4, work, 8 * elements)
    steps = ("naive", "coalesced", "shared tiles", "register tiles", "unrolled", "virtual threads",
             "padded", "double buffering", "warp tiles", "cuBLAS", "cuBLAS, TF32")  # fmt: skip
    for step in steps:
        yield Entry(
            "product", f"product, {step}", "matmul/steps", step, n, 2 * n**3 / 1e12, 12 * n * n
        )


def _convolving() -> Iterator[Entry]:
    """Images, kernels and results are in L2 together."""
    for name, record, legend, channels in (
        ("default", "conv/tiling", "default", 64),
        ("spread, 64 groups", "conv/spread", "64 groups", 64),
        ("tiles in registers", "conv/tile_steps", "registers", 64),
        ("tiling", "conv/tiling", "tiling", 64),
        ("a channel a round", "bank_conflicts/cases", "a channel a round", 64),
        ("virtual threads", "conv/sweep", "virtual threads", 64),
        ("cuDNN", "conv/sweep", "cuDNN", 64),
        ("16, split sum", "all_sizes/every_16", "2 rows, 1 warps, 16 groups", 16),
        ("256, virtual threads", "conv/sweep", "virtual threads", 256),
        ("256, split sum", "all_sizes/race", "ours", 256),
        ("256, cuDNN", "conv/sweep", "cuDNN", 256),
    ):
        yield Entry("convolution", f"convolution, {name}", record, legend, channels, None, 0)


def _on_tensorcores() -> Iterator[Entry]:
    part = "batch of images"
    image, result, weights = 256 * 256 * 14**2, 256 * 512 * 14**2, 512 * 256 * 9  # numbers
    for name in ("tutorial", "depth 16", "cuDNN"):
        moved = 4 * (image + result + weights)
        yield Entry(part, f"float32, {name}", "batched/hwcn", name, 256, None, moved)
    for name in ("4 stages", "looking ahead", "cuDNN"):
        moved = 2 * (image + weights) + (2 if name == "cuDNN" else 4) * result
        yield Entry(part, f"float16, {name}", "batched/ladder", name, 256, None, moved)
    for name in ("taps left out", "cuDNN"):
        layer, moved = "256 to 512, 14 x 14", 2 * (image + result + weights)
        yield Entry(part, f"TIRx, {name}", "hopper/layer", name, layer, None, moved)
