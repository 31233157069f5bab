"""The book's schedules as sketches: the same steps, with tile sizes that a search may move."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from d2ltvm.errors import shown

UNROLL = (0, 16, 32, 64, 128, 256, 512, 1024)  # statements to unroll at most, as TVM's rules say
LANES = (1, 2, 4)  # floats that a thread copies at once
MAX_INNERMOST_FACTOR = 64  # the largest innermost tile, likewise TVM's


def book_space(name: str, kind: str = "cuda") -> Callable[[Schedule], Schedule]:
    """The book's schedule of a workload, as a function for `space(…, generator=…)`.

    >>> product = d2ltvm.search.workload("matmul", 2048)
    >>> found = d2ltvm.search.space(product, "cuda", book_space("matmul"))
    >>> len(found.sketches)
    1

    Its decisions are those of the book; a mutation moves them, a sample draws them anew.

    Args:
        name: 'matmul': tiles in shared memory and in registers, with virtual threads
            ('matmul_vthread'). 'conv': the same with rows and columns of an image ('vthread').
            'hwcn': with channels and images ('hwcn_blocks').
        kind: 'cuda', or for 'matmul' 'llvm': packed tiles ('cpu_matmul').

    Raises:
        ValueError: there is none by that name.
    """
    if not (isinstance(name, str) and isinstance(kind, str)) or (name, kind) not in SKETCHES:
        names = ", ".join(f"{n} for {k}" for n, k in SKETCHES)
        raise ValueError(f"name is {shown(name)}, kind {shown(kind)}; expected one of {names}")
    return SKETCHES[name, kind]


def matmul_sketch(sch: Schedule) -> Schedule:
    """`matmul_vthread` with its tile sizes left open."""
    C = sch.get_sblock("C")
    # The book unrolls the steps of a round: with virtual threads, more than TVM's rules ever do.
    return _gpu(sch, C, ([16, 2, 16, 4],) * 2, ([128, 16],), unroll=2048)


def conv_sketch(sch: Schedule) -> Schedule:
    """`vthread`, the convolution, with its tile sizes left open."""
    Y = sch.get_sblock("Y")
    channels = int(sch.get(sch.get_loops(Y)[0]).extent)
    each = 8 if channels % 32 == 0 else 1
    threads = 4 if channels % (4 * each) == 0 else 1
    output = ([channels // each // threads, 1, threads, each], [16, 1, 2, 2], [1, 2, 16, 2])
    out = _gpu(sch, Y, output, ([int(channels), 1], [1, 3], [3, 1]))
    out.compute_inline(out.get_sblock("PaddedX"))
    return out


def hwcn_sketch(sch: Schedule) -> Schedule:
    """`hwcn_blocks`, the convolution of a batch, with its tile sizes left open."""
    Y = sch.get_sblock("Y")
    height, width, channels, images, ic, *taps = (int(sch.get(v).extent) for v in sch.get_loops(Y))
    pixels = [[size, 1, 1, 1] for size in (height, width)]
    output = (*pixels, *(_whole_tile(size, [2, 8, 4]) for size in (channels, images)))
    sums = (_whole_tile(ic, [8]), *([size, 1] for size in taps))
    out = _gpu(sch, Y, output, sums)
    out.compute_inline(out.get_sblock("PaddedX"))
    return out


def _whole_tile(size: int, tile: list[int]) -> list[int]:
    """A size in tiles, with factors taken off the tile until it divides it."""
    while size % math.prod(tile):
        largest = tile.index(max(tile))
        tile = [n // 2 if k == largest else n for k, n in enumerate(tile)]
    return [size // math.prod(tile), *tile]


def _gpu(
    sch: Schedule,
    block: SBlockRV,
    output: Sequence[list[int]],
    sums: Sequence[list[int]],
    unroll: int = 64,
) -> Schedule:
    """Blocks, virtual threads, threads and elements of a result; rounds and steps of its sums."""
    result = sch.cache_write(block, 0, "local")
    tiles = [sch.cache_read(block, k, "shared") for k in (0, 1)]
    values = [sch.cache_read(block, k, "local") for k in (0, 1)]
    loops = sch.get_loops(block)
    across = [_split(sch, loop, tile) for loop, tile in zip(loops, output, strict=False)]
    along = [_split(sch, loop, tile) for loop, tile in zip(loops[len(output) :], sums, strict=True)]
    blocks, virtual, threads, each = (list(level) for level in zip(*across, strict=True))
    rounds, steps = (list(level) for level in zip(*along, strict=True))
    sch.reorder(*blocks, *virtual, *threads, *rounds, *steps, *each)
    for level, tag in ((blocks, "blockIdx.x"), (virtual, "vthread.x"), (threads, "threadIdx.x")):
        thread = sch.fuse(*level)
        sch.bind(thread, tag)
    sch.reverse_compute_at(result, thread, preserve_unit_loops=True)
    for value, tile in zip(values, tiles, strict=True):
        sch.compute_at(value, steps[-1], preserve_unit_loops=True)
        sch.compute_at(tile, rounds[-1], preserve_unit_loops=True)
        rank = len(sch.get(tile).writes[0].region)
        sch.fuse(*sch.get_loops(tile)[-rank:])
        sch.annotate(tile, "meta_schedule.cooperative_fetch", _one_of(sch, LANES, 1))
    statements = _one_of(sch, sorted({*UNROLL, unroll}), unroll)
    sch.annotate(sch.get_sblock("root"), "meta_schedule.unroll_explicit", statements)
    return sch


def cpu_matmul_sketch(sch: Schedule) -> Schedule:
    """`cpu_matmul` with its tile sizes left open, and its tiles copied but not turned."""
    C = sch.get_sblock("C")
    sums = sch.cache_write(C, 0, "global")
    A, B = (sch.cache_read(C, k, "global") for k in (0, 1))
    i, j, k = sch.get_loops(C)
    n = int(sch.get(i).extent)
    half, quarter = max(1, n // 128), max(1, n // 256)
    io, im, ii = _split(sch, i, [half, n // half // 8, 8])
    jo, jm, jj = _split(sch, j, [quarter, n // quarter // 32, 32])
    ko, ki = _split(sch, k, [max(1, n // 128), n // max(1, n // 128)])
    sch.reorder(io, jo, ko, im, jm, ki, ii, jj)
    sch.parallel(sch.fuse(io, jo))
    sch.reverse_compute_at(sums, sch.get_loops(C)[0], preserve_unit_loops=True)
    for tile in (A, B):
        sch.compute_at(tile, ko, preserve_unit_loops=True)
    sch.unroll(ii)
    sch.vectorize(jj)
    return sch


def _split(sch: Schedule, loop: LoopRV, tile: list[int]) -> list[LoopRV]:
    """Split a loop into sizes that a search may move, and that are these to begin with."""
    sizes = sch.sample_perfect_tile(
        loop, len(tile), MAX_INNERMOST_FACTOR if len(tile) > 2 else 512, decision=tile
    )
    return list(sch.split(loop, sizes))


def _one_of(sch: Schedule, values: Sequence[int], chosen: int) -> Any:
    """One of several numbers, each as likely; to begin with this one."""
    chances = [1 / len(values)] * len(values)
    return sch.sample_categorical(list(values), chances, decision=values.index(chosen))


SKETCHES: dict[tuple[str, str], Callable[[Schedule], Schedule]] = {
    ("matmul", "cuda"): matmul_sketch,
    ("conv", "cuda"): conv_sketch,
    ("hwcn", "cuda"): hwcn_sketch,
    ("matmul", "llvm"): cpu_matmul_sketch,
}
