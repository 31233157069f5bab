"""How products and convolutions for Hopper are cut into tiles: sizes, choices and their checks.

What is chosen here was measured; the kernels are in `product`, `implicit` and `float32`.
"""

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import tvm

from d2ltvm.compute.convolution import conv_out_size
from d2ltvm.compute.ops import as_shape
from d2ltvm.errors import as_number, is_integer, shown
from d2ltvm.system.chips import sm_count

P = ParamSpec("P")
R = TypeVar("R")

ROWS = 128  # of a tile: 64 for each of two consumer warpgroups, which is what wgmma takes
LARGEST_SIZE = 2**31 - 2 * ROWS  # so that rows stay in 32 bits when they are rounded up to tiles
DEPTH = 64  # of a tile: 64 float16 are 128 bytes, the longest row that TMA can swizzle
# What a block, and an SM, can have. Source: CUDA C++ Programming Guide, "Technical Specifications
# per Compute Capability".
SHARED_PER_BLOCK = 227 * 1024  # bytes of shared memory
REGISTERS_PER_SM = 65536  # of 32 bits

# Where tiles on demand are faster.
MEMORY_BOUND = 180  # flop/byte, at most. Measured: hopper/on_demand
MANY_TILES = 10  # of a block, at least: a choice. No recorded layer tests it

TileSizes = tuple[int, int, int]  # images, rows and columns

# Elements of a tensor into which 32 bits do not reach.
LARGE = 2**31


class ConvShape(NamedTuple):
    """The sizes of a convolution, as for `d2ltvm.compute.conv_nhwcnc`. Any tuple of them will do.

    >>> ConvShape(256, 512, 256, 14, 3, p=1).o
    14
    """

    batch: int
    oc: int
    ic: int
    n: int
    k: int
    p: int = 0
    s: int = 1

    @property
    def o(self) -> int:
        """Height and width of the result."""
        return int(conv_out_size(self.n, self.k, self.p, self.s))


@dataclass(frozen=True)
class ConvPlan:
    """How the result of a convolution is cut into tiles. `plan_conv` makes it.

    Attributes:
        shape: of the convolution, a `ConvShape`; one of 1 x 1 has as many images as pixels.
        tile, half: images, rows and columns of a tile; images and rows of a consumer's half.
        columns: channels of a tile, of which `width` are stored at a time, in `parts` parts.
        stages: slots of the ring.
        skip: whether taps outside of the image are left out.
        on_demand: whether blocks ask for their next tile, rather than take them in turns.
        blocks: of the persistent grid: one for each SM, or for each tile if there are fewer.
        chunks: of 64 input channels.
        down, high, wide, across: tiles along images, rows, columns and channels.
        group: tiles along images that share channels in L2.
        each: tiles at the same pixels.
        first_y, whole_y: the first tile, and the number of tiles, with all taps in the image.
        first_x, whole_x: the same along columns.
        early: whether the next kernel may start on the first free SMs. Measured: hopper/early.
    """

    shape: ConvShape
    sms: int
    tile: TileSizes
    columns: int
    stages: int
    parts: int
    skip: bool
    on_demand: bool

    chunks = property(lambda self: math.ceil(self.shape.ic / DEPTH))
    down = property(lambda self: math.ceil(self.shape.batch / self.tile[0]))
    high = property(lambda self: math.ceil(self.shape.o / self.tile[1]))
    wide = property(lambda self: math.ceil(self.shape.o / self.tile[2]))
    across = property(lambda self: math.ceil(self.shape.oc / self.columns))
    tiles = property(lambda self: self.down * self.high * self.wide * self.across)
    blocks = property(lambda self: min(self.sms, self.tiles))
    group = property(lambda self: group_size(self.down))
    width = property(lambda self: self.columns // self.parts)
    early = property(lambda self: self.columns > 64)
    each = property(lambda self: self.down * self.across)
    first_y = property(lambda self: self._inside[0].start)
    whole_y = property(lambda self: len(self._inside[0]))
    first_x = property(lambda self: self._inside[1].start)
    whole_x = property(lambda self: len(self._inside[1]))

    @property
    def half(self) -> tuple[int, int]:
        tn, th, _ = self.tile
        return (tn // 2, th) if tn > 1 else (1, th // 2)

    @functools.cached_property
    def _inside(self) -> list[range]:
        """Tiles along rows, and along columns, that have all taps in the image: two ranges."""
        (_, _, _, n, k, p, s), o = self.shape, self.shape.o
        end = (n - k + p) // s + 1  # of the pixels with all taps
        ranges = [
            range(math.ceil(p / (s * size)), end // size if end < o else math.ceil(o / size))
            for size in self.tile[1:]
        ]
        return [tiles or range(0) for tiles in ranges]


def plan_conv(
    shape: tuple[int, ...],
    sms: int | None = None,
    tile: TileSizes | None = None,
    columns: int | None = None,
    stages: int | None = None,
    parts: int | None = None,
    skip: bool = True,
    on_demand: bool | None = None,
    itemsize: int = 2,
    pieces: int = 1,
) -> ConvPlan:
    """Cut a convolution into tiles: what is not given is chosen.

    >>> plan_conv((256, 512, 256, 14, 3, 1, 1), sms=132).tiles
    784

    Args:
        shape: batch, oc, ic, n, k, p and s, as for `conv_nhwc`.
        sms: as for `conv_nhwc`.
        tile: images, rows and columns of a tile's pixels, 128 together; None for `tile_pixels`.
            With a stride the rows and columns are 1.
        columns: channels of a tile, 64, 128 or 256; None for `tile_columns`.
        stages: slots of the ring; None for as many as fit.
        parts: in which results are stored one by one; None for `tile_parts`.
        skip: whether to leave out taps that lie outside of the image for the whole tile.
        on_demand: whether a block asks for its next tile, rather than take tiles in turns; None
            for whatever is faster.
        itemsize: bytes of a result.
        pieces: tiles of each tensor in a slot.

    Returns:
        A `ConvPlan`.

    Raises:
        ValueError: as for `conv_nhwc`.
    """
    shape, sms = check_shape(shape), check_sms(sms)
    intensity = flop_per_byte(shape)
    if shape[4:] == (1, 0, 1):  # a pixel does not look at others: each is an image
        shape = shape._replace(batch=shape.batch * shape.n**2, n=1)
    tile = tile_pixels(shape.batch, shape.o, shape.s) if tile is None else check_pixels(tile, shape)
    boxes = count_tiles(shape.batch, shape.o, tile)
    columns = tile_columns(boxes, shape.oc, sms) if columns is None else _plain(columns)
    parts = (
        tile_parts(columns, shape.k**2 * math.ceil(shape.ic / DEPTH))
        if parts is None
        else _plain(parts)
    )
    stages = check_ring(columns, stages, parts, itemsize, pieces)
    if on_demand is None:
        tiles = boxes * math.ceil(shape.oc / columns)
        on_demand = intensity < MEMORY_BOUND and tiles / sms >= MANY_TILES
    return ConvPlan(shape, sms, tile, columns, stages, parts, skip, on_demand)


# From hopper/implicit.
def tile_columns(boxes: int, oc: int, sms: int) -> int:
    """The columns of a tile, 64, 128 or 256, with which the last turn is over first.

    >>> tile_columns(98, 512, 132)
    128

    Half as many columns take more than half as long, as `cost` says.
    """
    # Rounded: 131.5 for 128 by hopper/early, launched after all; for 64 a little above its 74.9 and
    # the 76.3 of 32 images in hopper/batches, but below the 102.4 of hopper/columns.
    cost = {256: 256, 128: 132, 64: 80}

    def time(columns: int) -> int:
        return math.ceil(boxes * math.ceil(oc / columns) / sms) * cost[columns]

    return min((c for c in cost if c < 2 * oc or c == 64), key=time)


def flop_per_byte(shape: tuple[int, ...]) -> float:
    """The arithmetic intensity of a convolution of float16: operations per byte that must move.

    >>> round(flop_per_byte((256, 128, 256, 56, 1)))
    85

    Each tensor is read or written once; of images only what kernels of k x k touch.

    Args:
        shape: batch, oc, ic, n, k, p and s, as for `conv_nhwc`.
    """
    shape = ConvShape(*shape)
    (batch, oc, ic, n, k, *_), o = shape, shape.o
    elements = batch * (min(n * n, (o * k) ** 2) * ic + o * o * oc) + k * k * oc * ic
    return 2 * batch * o * o * oc * ic * k * k / (2 * elements)


# From hopper/implicit.
def tile_pixels(batch: int, o: int, s: int) -> tuple[int, int, int]:
    """Images, rows and columns, 128 together, that cover a batch in the fewest tiles.

    >>> tile_pixels(256, 14, 1), tile_pixels(1, 14, 1)
    ((128, 1, 1), (1, 8, 16))

    With a stride the pixels under a tap are no box: there a tile is of one pixel.
    """
    if s > 1 or o == 1:
        return (ROWS, 1, 1)
    powers = [2**i for i in range(8)]
    boxes = [(ROWS // (h * w), h, w) for h in powers for w in powers if h * w <= ROWS]
    boxes = [box for box in boxes if box[0] * box[1] > 1]  # two halves of whole rows
    return min(boxes, key=lambda t: (count_tiles(batch, o, t), -t[0], t[1]))


# From hopper/implicit.
def count_tiles(batch: int, o: int, tile: tuple[int, int, int]) -> int:
    """How many tiles cover the pixels of a batch of results of o x o."""
    return math.prod(math.ceil(a / b) for a, b in zip((batch, o, o), tile, strict=True))


def group_size(down: int, most: int = 16) -> int:
    """How many of `down` tiles below each other are computed together: their largest divisor."""
    return max(d for d in range(1, min(down, most) + 1) if down % d == 0)


def check_integers(least: int = 1, **values: Any) -> None:
    """Refuse what is not an integer of at least `least`."""
    for name, value in values.items():
        if not is_integer(value) or value < least:
            expected = "a positive integer" if least == 1 else f"an integer of at least {least}"
            raise ValueError(f"{name} is {shown(value)}; expected {expected}")
        if value > LARGEST_SIZE:
            raise ValueError(f"{name} is {shown(value)}; expected at most {LARGEST_SIZE:,}")


def with_plain_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """A kernel's function that takes NumPy's integers too, which TVM's parser does not.

    A `shape` has to be one, and a `scale` a number.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def converting(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            how = {"shape": as_shape, "scale": as_number}.get(name)
            bound.arguments[name] = how(name, value) if how else _plain(value)
        return function(*bound.args, **bound.kwargs)

    return converting


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, np.integer) else value


def extents(*shape: int) -> tuple[Any, ...]:
    """The shape of a tensor in a kernel, in 64 bits if offsets into it do not fit into 32.

    TVM computes an offset in the type of the shape.

    >>> [str(size.ty) for size in extents(256, 224, 224, 256)], extents(256, 56, 56, 256)
    (['int64', 'int64', 'int64', 'int64'], (256, 56, 56, 256))
    """
    if math.prod(shape) < LARGE:
        return shape
    return tuple(tvm.tirx.IntImm("int64", size) for size in shape)


def check_multiples(**sizes: Any) -> None:
    """Refuse sizes whose rows of float16 would not begin at 16 bytes, as TMA wants."""
    for name, size in sizes.items():
        if not is_integer(size) or size < 8 or size % 8 or size > LARGEST_SIZE:
            raise ValueError(f"{name} is {shown(size)}; expected a positive multiple of 8")


def check_sms(sms: int | None) -> int:
    """How many blocks run at once, checked; None for the SMs of the GPU, or else of an H200."""
    if sms is None:
        return sm_count()
    check_integers(sms=sms)
    return int(sms)


def check_shape(shape: tuple[int, ...]) -> ConvShape:
    """The sizes of a convolution, checked."""
    if not isinstance(shape, tuple | list) or not 5 <= len(shape) <= 7:
        raise ValueError(f"shape is {shown(shape)}; expected batch, oc, ic, n, k, p and s")
    shape = ConvShape(*map(_plain, shape))
    check_integers(batch=shape.batch, n=shape.n, k=shape.k, s=shape.s)
    check_multiples(oc=shape.oc, ic=shape.ic)
    if not is_integer(shape.p) or not 0 <= shape.p < shape.k:
        raise ValueError(f"p is {shown(shape.p)}; expected 0 to {shape.k - 1} with k = {shape.k}")
    conv_out_size(shape.n, shape.k, shape.p, shape.s)  # refuses a k that is too large
    return shape


def check_pixels(tile: TileSizes, shape: ConvShape) -> TileSizes:
    """A tile's images, rows and columns, checked."""
    one = (ROWS, 1, 1)
    three = isinstance(tile, tuple | list) and len(tile) == 3
    sizes = three and all(is_integer(size) and size > 0 for size in tile)
    if not sizes or math.prod(map(int, tile)) != ROWS or int(tile[0] * tile[1]) % 2:
        raise ValueError(
            f"tile is {shown(tile)}; expected images, rows and columns, {ROWS} together, such "
            f"as {one}"
        )
    images, rows, columns = map(int, tile)
    if shape.s > 1 and (images, rows, columns) != one:
        raise ValueError(f"tile is {shown(tile)}; expected {one} with s = {shape.s}")
    return images, rows, columns


def tile_parts(columns: int, rounds: int) -> int:
    """In how many parts results of a tile are stored.

    In two, where they take the place of a slot that short sums need more. Measured: a product of
    2048 x 2048, 32 rounds, gains a percent; the layer of the book, 36 rounds, loses one.
    """
    check_columns(columns)
    return 2 if columns == 256 and rounds <= 32 else 1


def check_ring(
    columns: int, stages: int | None, parts: int = 1, itemsize: int = 2, pieces: int = 1
) -> int:
    """The slots of a ring, checked; where None are given, as many as fit, up to eight."""
    check_columns(columns)
    boxes = columns * itemsize // 128  # of results, of 128 bytes a row
    if not is_integer(parts) or parts < 1 or boxes % parts:
        raise ValueError(f"parts is {shown(parts)}; expected a divisor of {boxes}")
    slot = pieces * (ROWS + columns) * DEPTH * 2
    result = ROWS * columns * itemsize // parts
    most = (SHARED_PER_BLOCK - 1024 - result) // slot
    if stages is None:
        return min(8, most)
    if not is_integer(stages) or not 2 <= stages <= most:
        raise ValueError(
            f"stages is {shown(stages)}; expected 2 to {most} with columns = {columns}"
        )
    return int(stages)


def check_columns(columns: Any, widths: tuple[int, ...] = (64, 128, 256)) -> None:
    """Refuse a width of tiles that there is no kernel for."""
    if not is_integer(columns) or columns not in widths:
        *first, last = map(str, widths)
        raise ValueError(f"columns is {shown(columns)}; expected {', '.join(first)} or {last}")
