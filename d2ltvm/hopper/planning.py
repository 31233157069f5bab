"""How products and convolutions for Hopper are cut into tiles: sizes, choices and their checks.

What is chosen here was measured; the kernels are in `product`, `implicit` and `float32`.
"""

import functools
import math
from dataclasses import dataclass

from d2ltvm.compute.convolution import conv_out_size

ROWS = 128  # of a tile: 64 for each of two warpgroups, which is what wgmma takes
DEPTH = 64  # of a tile: 64 float16 are 128 bytes, the longest row that TMA can swizzle
SHARED = 227 * 1024  # bytes that a block can have. Source: CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability".

# Where tiles on demand are faster. Measured: hopper/on_demand.
MEMORY_BOUND = 180  # flop/byte: with less, memory sets the time, and SMs wait differently long
MANY_TILES = 10  # of a block: with fewer, one too many for a block costs more than the wait


@dataclass(frozen=True)
class Plan:
    """How the result of a convolution is cut into tiles. `plan_conv` makes it.

    Attributes:
        batch, n, o: images, and their height and width, going in and coming out.
        k, p, s: of the convolution.
        tile, half: images, rows and columns of a tile; images and rows of a warpgroup's half.
        columns: channels of a tile, of which `width` are stored at a time, in `parts` parts.
        stages: slots of the ring.
        chunks: of 64 input channels.
        down, high, wide, across: tiles along images, rows, columns and channels.
        group: tiles along images that share channels in L2.
        first_y, whole_y: the first tile, and the number of tiles, with all taps in the image.
        first_x, whole_x: the same along columns.
        skip: whether taps outside of the image are left out.
        on_demand: whether blocks ask for their next tile, rather than take them in turns.
    """

    batch: int
    n: int
    o: int
    k: int
    p: int
    s: int
    tile: tuple
    columns: int
    stages: int
    parts: int
    chunks: int
    across: int
    skip: bool
    on_demand: bool

    down = property(lambda self: math.ceil(self.batch / self.tile[0]))
    high = property(lambda self: math.ceil(self.o / self.tile[1]))
    wide = property(lambda self: math.ceil(self.o / self.tile[2]))
    tiles = property(lambda self: self.down * self.high * self.wide * self.across)
    group = property(lambda self: group_size(self.down))
    width = property(lambda self: self.columns // self.parts)
    # Whether the next kernel may start on the first free SMs. Measured: hopper/early.
    early = property(lambda self: self.columns > 64)
    each = property(lambda self: self.down * self.across)  # tiles at the same pixels
    first_y = property(lambda self: self._inside[0].start)
    whole_y = property(lambda self: len(self._inside[0]))
    first_x = property(lambda self: self._inside[1].start)
    whole_x = property(lambda self: len(self._inside[1]))

    @property
    def half(self):
        tn, th, _ = self.tile
        return (tn // 2, th) if tn > 1 else (1, th // 2)

    @functools.cached_property
    def _inside(self):
        """Tiles along rows, and along columns, that have all taps in the image: two ranges."""
        end = (self.n - self.k + self.p) // self.s + 1  # of the pixels with all taps
        ranges = [
            range(
                math.ceil(self.p / (self.s * size)),
                end // size if end < self.o else math.ceil(self.o / size),
            )
            for size in self.tile[1:]
        ]
        return [tiles or range(0) for tiles in ranges]


def plan_conv(
    batch, oc, ic, n, k, p, s, sms=132,
    tile=None, columns=None, stages=None, parts=None, skip=True, on_demand=None,
    itemsize=2, pieces=1,
):  # fmt: skip
    """Cut a convolution into tiles: what is not given is chosen.

    Args:
        batch, oc, ic, n, k, p, s, sms: as for `conv`.
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
        A `Plan`.

    Raises:
        ValueError: as for `conv`.
    """
    check_multiples(oc=oc, ic=ic)
    if not 0 <= p < k:
        raise ValueError(f"p is {p}; 0 to {k - 1} is allowed with k = {k}")
    o = conv_out_size(n, k, p, s)
    intensity = flop_per_byte(batch, oc, ic, n, k, p, s)
    if (k, p, s) == (1, 0, 1):  # a pixel does not look at others: each is an image
        batch, n, o = batch * n * n, 1, 1
    tile = check_pixels(tile or tile_pixels(batch, o, s), s)
    chunks = math.ceil(ic / DEPTH)
    boxes = count_tiles(batch, o, tile)
    columns = columns or tile_columns(boxes, oc, sms)
    parts = parts or tile_parts(columns, k * k * chunks)
    stages = check_ring(columns, stages, parts, itemsize, pieces)
    across = math.ceil(oc / columns)
    if on_demand is None:
        on_demand = intensity < MEMORY_BOUND and boxes * across / sms >= MANY_TILES
    return Plan(
        batch, n, o, k, p, s, tile, columns, stages, parts, chunks, across, skip, on_demand
    )  # fmt: skip


# From hopper/implicit.
def tile_columns(boxes, oc, sms):
    """The columns of a tile, 64, 128 or 256, with which the last wave is done first.

    >>> tile_columns(98, 512, 132)
    128

    Half as many columns take more than half as long, since they read as many rows.
    """
    # Measured: hopper/columns; for 64, the turns of 32 images in hopper/batches.
    cost = {256: 256, 128: 132, 64: 80}

    def time(columns):
        return math.ceil(boxes * math.ceil(oc / columns) / sms) * cost[columns]

    return min((c for c in cost if c < 2 * oc or c == 64), key=time)


def flop_per_byte(batch, oc, ic, n, k, p=0, s=1):
    """The arithmetic intensity of a convolution of float16: operations per byte that must move.

    >>> round(flop_per_byte(256, 128, 256, 56, 1))
    85

    Each tensor is read or written once; of images only what kernels of k x k touch.

    Args:
        batch, oc, ic, n, k, p, s: as for `conv`.
    """
    o = conv_out_size(n, k, p, s)
    elements = batch * (min(n * n, (o * k) ** 2) * ic + o * o * oc) + k * k * oc * ic
    return 2 * batch * o * o * oc * ic * k * k / (2 * elements)


# From hopper/implicit.
def tile_pixels(batch, o, s):
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
    return min(boxes, key=lambda t: (count_tiles(batch, o, t), -t[0]))


# From hopper/implicit.
def count_tiles(batch, o, tile):
    """How many tiles cover the pixels of a batch of results of o x o."""
    return math.prod(math.ceil(a / b) for a, b in zip((batch, o, o), tile, strict=True))


def group_size(down, most=16):
    """How many of `down` tiles below each other are computed together: their largest divisor."""
    return max(d for d in range(1, min(down, most) + 1) if down % d == 0)


def check_multiples(**sizes):
    """Refuse sizes whose rows of float16 would not begin at 16 bytes, as TMA wants."""
    for name, size in sizes.items():
        if size < 8 or size % 8:
            raise ValueError(f"{name} is {size}; a positive multiple of 8 is allowed")


def check_pixels(tile, s):
    """A tile's images, rows and columns, checked."""
    tn, th, tw = tile
    if tn * th * tw != ROWS or min(tile) < 1 or tn * th % 2:
        raise ValueError(f"tile is {tile}; images, rows and columns, {ROWS} together, are allowed")
    if s > 1 and th * tw > 1:
        raise ValueError(f"tile is {tile}; with s = {s}, ({ROWS}, 1, 1) is allowed")
    return tile


def tile_parts(columns, rounds):
    """In how many parts results of a tile are stored.

    In two, where they take the place of a slot that short sums need more. Measured: a product of
    2048 x 2048, 32 rounds, gains a percent; the layer of the book, 36 rounds, loses one.
    """
    return 2 if columns == 256 and rounds <= 32 else 1


def check_ring(columns, stages, parts=1, itemsize=2, pieces=1):
    """The slots of a ring, checked; where None are given, as many as fit, up to eight."""
    if columns not in (64, 128, 256):
        raise ValueError(f"columns is {columns}; 64, 128 or 256 are allowed")
    boxes = columns * itemsize // 128  # of results, of 128 bytes a row
    if parts < 1 or boxes % parts:
        raise ValueError(f"parts is {parts}; a divisor of {boxes} is allowed")
    slot = pieces * (ROWS + columns) * DEPTH * 2
    result = ROWS * columns * itemsize // parts
    most = (SHARED - 1024 - result) // slot
    if stages is None:
        return min(8, most)
    if not 2 <= stages <= most:
        raise ValueError(f"stages is {stages}; 2 to {most} are allowed with columns = {columns}")
    return stages
