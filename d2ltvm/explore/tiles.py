"""The figures of tiles and of loads under way: what they take, how they fill a GPU."""

import math
from typing import Any

from d2ltvm.analysis import roofline, tiling, traffic
from d2ltvm.analysis.coalescing import WARP
from d2ltvm.explore.widget import Explorer


def hierarchy(sch: Any = None, gpu: str = "H200", **state: int) -> Explorer:
    """A product's tiles, what a block of them takes of an SM, and where the roofline has it.

    >>> print(hierarchy(ey=8, ex=8, ly=2, wy=8, depth=16).says)
    A block computes 128 × 128 elements with 256 threads, ...

    Args:
        sch: a product with tiles in shared memory, such as `schedules.matmul_tiled`; then the
            figure opens with its tiles, its registers and its shared memory, and with the rows of
            its result as the size of all matrices.
        gpu: as for `d2ltvm.chip`, by its short name.
        **state: n; ey and ex, a thread's rows and columns; ly, lanes below each other; wy and wx,
            warps; depth, stages; others, registers that are neither sums nor operands.

    Raises:
        ValueError: a value is not one that can be set, or the kernel has tiles that cannot be.
        TypeError: there is no such value.
    """
    if sch is None:
        return Explorer("hierarchy", {"gpu": gpu, **state})
    found, given = _tiles(sch, gpu)
    return Explorer("hierarchy", {"gpu": gpu, **found, **state}, given)


def conv_tiles(**state: Any) -> Explorer:
    """A convolution's tiles, as `hierarchy` has a product's.

    >>> print(conv_tiles().says)
    A block of 128 threads computes 32 channels of 4 × 64, ... of 32 SMs of 132, ...

    Args:
        **state: gpu, channels, n, k; ec, eh and ew, a thread's channels, rows and columns; tc, th
            and tw, threads; depth, input channels of a round; others, registers for the rest.

    Raises:
        ValueError: a value is not one that can be set.
        TypeError: there is no such value.
    """
    return Explorer("conv_tiles", state)


def waves(sch: Any = None, gpu: str = "H200", **state: Any) -> Explorer:
    """How tiles are dealt out to the multiprocessors of a GPU, and what stands idle at the end.

    >>> print(waves(tiles=132, ends=0).says)
    132 tiles for 132 SMs: 1.00 wave. The last is done after 32.0 rounds, and 100% ...

    Args:
        sch: a kernel, as for `d2ltvm.report`; then its blocks are the tiles.
        gpu: as for `d2ltvm.chip`, by its short name.
        **state: tiles, an_sm, rounds, split, ends, way and faster, as for `analysis.waves.deal`.

    Raises:
        ValueError: a value is not one that can be set, or the kernel has more blocks.
        TypeError: there is no such value.
    """
    found = {}
    if sch is not None:
        held = roofline.held(sch, gpu)
        found = {"tiles": math.prod(held.launch.grid), "an_sm": held.occupancy.blocks}
    return Explorer("waves", {"gpu": gpu, **found, **state})


def latency(sch: Any = None, gpu: str = "H200", **state: Any) -> Explorer:
    """Little's law: bytes under way on each multiprocessor, and the bandwidth that follows.

    >>> print(latency(threads=512, width=16).says)
    512 threads with 1 load of 16 bytes have 8.00 KiB under way on each SM. ...

    Args:
        sch: an elementwise kernel; then the figure opens with the threads that an SM holds of it,
            and with their loads from device memory, all of which are taken to be under way.
        gpu: as for `d2ltvm.chip`, by its short name.
        **state: threads, width, loads and latency, as for `analysis.in_flight.in_flight`; reads,
            of all bytes that move: 'all', 'two thirds' or 'half'.

    Raises:
        ValueError: a value is not one that can be set, or the kernel's loads are of several widths.
        TypeError: there is no such value.
    """
    found = {} if sch is None else _loads(sch, gpu)
    return Explorer("latency", {"gpu": gpu, **found, **state})


def _tiles(sch: Any, gpu: str) -> tuple[dict[str, int], dict[str, Any]]:
    """A product's tiles as `hierarchy` names them, and what it does not name."""
    tiles, held = tiling.tiles_of(sch), roofline.held(sch, gpu)
    (py, wy, ly, y), (px, wx, lx, x) = tiles.rows, tiles.columns
    if ly * lx != WARP:
        raise ValueError(f"sch has warps of {ly} x {lx} lanes; expected {WARP} of one rectangle")
    lines = math.prod(tiles.rows) + math.prod(tiles.columns)
    each = 4 * tiles.stages * lines
    depth = 1 << (held.shared // each).bit_length() - 1 if held.shared >= each else 0
    if not depth:
        raise ValueError(f"sch has {held.shared} bytes of shared memory; expected tiles there")
    ey, ex = py * y, px * x
    found = {"ey": ey, "ex": ex, "ly": ly, "wy": wy, "wx": wx, "depth": depth}
    found |= {"stages": tiles.stages, "others": held.resources.registers - ey * ex - ey - ex}
    found["n"] = tiles.shape[0]
    return found, {"n": tiles.shape[0], "pieces": [py, px], "padding": held.shared - each * depth}


def _loads(sch: Any, gpu: str) -> dict[str, int]:
    """The threads that a GPU holds of a kernel, and the loads of each."""
    held = roofline.held(sch, gpu)
    reads = [t for t in traffic.sectors(sch) if t.kind == "read"]
    widths = sorted({t.width for t in reads})
    if len(widths) != 1:
        raise ValueError(f"sch has loads of {widths} bytes; expected one width")
    threads = math.prod(held.launch.block)
    warps = math.prod(held.launch.grid) * math.ceil(threads / WARP)
    loads = round(sum(t.requests for t in reads) / warps)
    return {"threads": held.occupancy.blocks * threads, "width": widths[0], "loads": loads}
