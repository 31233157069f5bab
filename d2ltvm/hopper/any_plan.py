"""How any convolution, and any product, is cut into tiles and parts for Hopper."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

from d2ltvm.errors import is_integer, shown
from d2ltvm.hopper.any_conv import MOST_LINES, Conv, Windows
from d2ltvm.hopper.planning import REGISTERS_PER_SM, SHARED_PER_BLOCK
from d2ltvm.layouts import Walk

# Multiprocessors lie in pairs, so that a cluster of two finds a place on any two of them. Of larger
# clusters fewer fit, and the rest run as a wave of their own.
PAIR = 2
LARGEST_CLUSTER = 8  # blocks, on every GPU that has clusters
# Clusters of so many blocks, each with an SM to itself, that an H100 and an H200 run at once: the
# driver said so (cuOccupancyMaxActiveClusters; `bench.timed_plans.clusters`).
MAX_ACTIVE_CLUSTERS = {3: 39, 4: 30, 5: 22, 6: 17, 7: 15, 8: 15}
MAX_BOX_ROWS = 256  # that TMA fetches at once
COUNTS = (
    "sms", "consumers", "per", "columns", "depth", "splits", "group", "blocks_per_sm", "room",
    "cluster", "abreast", "parts",
)  # fmt: skip
FEW_TILES, MOST_IN_GROUP = 8, 32  # tiles along a side, and in a group
BESIDE_SUMS = 40  # registers of a thread, read off kernels with an epilogue


@dataclass(frozen=True)
class Plan:
    """How a convolution is cut.

    A tile of the result is pixels by channels. wgmma multiplies 64 rows by up to 256 columns: rows
    are pixels and columns channels, or the other way around if `swapped`.

    Attributes:
        conv: what is computed.
        sms: blocks that run at once.
        swapped: whether rows of wgmma are channels.
        consumers: warpgroups that multiply.
        per: times 64 rows of a tile that each of them has.
        columns: of wgmma.
        depth: channels of a slot of the ring: 16, 32 or 64.
        stages: slots.
        splits: parts that the sums of a tile are cut into, where they are cut.
        full: tiles whose sums are not cut: the first ones.
        group: tiles along pixels that are computed together.
        blocks_per_sm: that run at once.
        windows: what images of few channels are read by.
        transposed: of a product, whether channels in lie one behind the other in W, as in a
            convolution. Else W is (1, ic, oc): the second matrix as it is.
        bias, residual: whether a value of each channel, and one of each result, is added.
        scale: whether sums are multiplied by a value of each channel before that, as a batch norm
            does whose factors are not part of the weights.
        relu: whether what is then below zero becomes zero.
        relu6: the same, and whether what is above six becomes six.
        wide: whether results are float32.
        pingpong: whether two consumers take tiles in turns: one multiplies while the other one
            stores. Else they have half of a tile each.
        room: times 64 rows of results that a consumer has shared memory for.
        promotion: what L2 fetches for a line: 0 to 3, for 32, 64, 128 or 256 bytes at least.
        cluster: blocks that share weights: each fetches a part of them for all.
        abreast: blocks that share images, likewise, side by side along channels; of products. With
            both, a cluster has `team` blocks.
        parts: in which a consumer's results go through shared memory, one after the other.
        numbers: what is multiplied: 'float16'; 'tf32', float32 of which TensorCores read 19 bits;
            or 'float32', which a kernel splits into two float16 in shared memory, so that three
            products of these make one of theirs: see `any_float32`. Of a kernel of 'tf32', `conv`
            has twice the channels in: it takes a float32 for two float16.
        bricks: images, rows and columns of a tile whose pixels are a box; else they are one behind
            the other, along rows. On an H200, 64 pairs of kernels that differ in this alone took
            the same time within 0.3% on average (experiments/any_shape).
        distributed: whether parts of a tile meet in shared memory, not in a tensor: the blocks that
            compute them are a cluster, and read each other's sums there.
        together: consumers that work on a tile.
        own: rows of a tile from the first consumer's to the second's.
    """

    conv: Conv
    sms: int
    swapped: bool = False
    consumers: int = 2
    per: int = 1
    columns: int = 128
    depth: int = 64
    stages: int = 4
    splits: int = 1
    full: int = 0
    group: int = 8
    blocks_per_sm: int = 1
    windows: Windows | None = None
    transposed: bool = True
    bias: bool = False
    residual: bool = False
    scale: bool = False
    relu: bool = False
    relu6: bool = False
    wide: bool = False
    pingpong: bool = False
    room: int = 1
    promotion: int = 2
    cluster: int = 1
    bricks: tuple[int, int, int] | None = None
    distributed: bool = False
    abreast: int = 1
    parts: int = 1
    numbers: str = "float16"

    pieces = property(lambda self: 2 if self.numbers == "float32" else 1)  # of a number
    together = property(lambda self: 1 if self.pingpong else self.consumers)
    own = property(lambda self: 0 if self.pingpong else 64 * self.per)
    rows = property(lambda self: 64 * self.together * self.per)
    pixels = property(lambda self: self.columns if self.swapped else self.rows)
    channels = property(lambda self: self.rows if self.swapped else self.columns)
    down = cached_property(lambda self: math.ceil(math.prod(self.places) / self.cluster))
    across = cached_property(lambda self: math.ceil(self.conv.oc / self.channels / self.abreast))
    tiles = cached_property(lambda self: self.down * self.across)
    chunks = property(lambda self: math.ceil(self.conv.ic / self.depth))
    rounds = property(lambda self: self.conv.taps * self.chunks)
    cut = property(lambda self: self.tiles - self.full if self.splits > 1 else 0)
    items = property(lambda self: self.tiles + self.cut * (self.splits - 1))
    team = property(lambda self: self.cluster * self.abreast)  # blocks of a cluster that share
    blocks = cached_property(lambda self: min(self.lanes, self.items) * self.team)
    groups = property(lambda self: self.per * self.columns // 8)
    span = property(lambda self: math.ceil(self.groups / self.splits))
    slot = property(lambda self: (self.rows + self.columns) * self.depth * 2 * self.pieces)
    meet = property(lambda self: self.cut > 0 and not self.distributed)  # parts, in a tensor
    launched = property(lambda self: self.splits if self.distributed else self.team)
    partials = property(lambda self: (max(1, self.cut * self.team * self.splits), self.consumers,
                                      self.groups, 128, 4))  # fmt: skip

    @cached_property
    def lanes(self) -> int:
        """Blocks, or clusters of blocks that share, that run at once."""
        many = self.sms * self.blocks_per_sm // self.team
        return min(many, MAX_ACTIVE_CLUSTERS.get(self.team, many) * self.blocks_per_sm)

    @property
    def dtype(self) -> str:
        """Of results."""
        return "float32" if self.wide else "float16"

    @property
    def places(self) -> tuple[int, int, int]:
        """Tiles along images, rows and columns; or one behind the other, along columns."""
        if not self.bricks:
            return (1, 1, math.ceil(self.conv.pixels / self.pixels))
        sizes = (self.conv.batch, *self.conv.out)
        n, y, x = (math.ceil(a / b) for a, b in zip(sizes, self.bricks, strict=True))
        return n, y, x

    @property
    def stored(self) -> tuple[int, int, int]:
        """Images, rows and columns of a box of results that is stored at once."""
        tn, th, tw = self.bricks or (1, 1, 1)
        if self.swapped:
            return tn, th, tw
        return (64 // (th * tw), th, tw) if th * tw <= 64 else (1, 64 // min(64, tw), min(64, tw))

    @property
    def brick_map(self) -> tuple[int, ...]:
        """What cuTensorMapEncodeTiled is told of images, behind the tensor."""
        c = self.conv
        (tn, th, tw), (h, w), row = self.bricks or (1, 1, 1), c.size, c.size[1] * c.ic * 2
        spans = [(th - 1) * c.stride[0] + 1, (tw - 1) * c.stride[1] + 1]
        return (
            c.ic, w, h, c.batch, c.ic * 2, row, h * row, self.depth, spans[1], spans[0], tn,
            1, c.stride[1], c.stride[0], 1, 0, {16: 1, 32: 2, 64: 3}[self.depth], 2, 0,
        )  # fmt: skip

    @property
    def result_map(self) -> tuple[int, ...]:
        """The same of results."""
        oc, (h, w), (tn, th, tw) = self.conv.oc, self.conv.out, self.stored
        return (
            oc, w, h, self.conv.batch, oc * 2, w * oc * 2, h * w * oc * 2, self.box, tw, th, tn,
            1, 1, 1, 1, 0, {16: 1, 32: 2, 64: 3}[self.box], 2, 0,
        )  # fmt: skip

    @property
    def weights(self) -> tuple[int, int, int]:
        """The shape of what the kernel takes for weights; its rows begin at 16 bytes."""
        c = self.conv
        if not self.transposed:
            return (1, c.ic, math.ceil(c.oc / 8) * 8)
        return (self.pieces * c.taps, c.oc, c.ic // self.halves)

    @property
    def box(self) -> int:
        """Channels of a result that TMA stores at once."""
        if self.swapped or self.columns % 64 == 0:
            return 64
        return 32 if self.columns % 32 == 0 else 16

    @property
    def staged(self) -> int:
        """Bytes of shared memory that results go through."""
        if self.all_cut or self.direct:
            return 0
        return self.consumers * self.boxes * 64 * self.columns // self.parts * 2

    @property
    def meeting(self) -> tuple[int, int, int, int, int]:
        """The shape of the shared memory in which a part's sums wait for the cluster."""
        return (1, self.consumers, self.groups if self.distributed else 0, 128, 4)

    @property
    def values(self) -> tuple[int, int, int]:
        """The shape of the shared memory in which scales and biases of a tile's channels wait."""
        own = 64 * self.per if self.swapped else self.columns
        return (self.consumers, self.bias + self.scale, own)

    @property
    def scales(self) -> tuple[int, int, int]:
        """The shape of the shared memory for the scales of rows, if they are split.

        Of three slots: those of one are written while those of the slot before may still be read.
        """
        return (self.consumers, 3 * (self.pieces - 1), 64)

    @property
    def moves_registers(self) -> bool:
        """Whether consumers take registers that the producer gives up."""
        return self.pieces > 1 and self.consumers == 2

    @property
    def boxes(self) -> int:
        """Times 64 rows of results that a consumer has room for: all, if a residual waits there."""
        return self.per if self.residual else self.room

    @property
    def direct(self) -> bool:
        """Whether results are stored from registers, as where rows do not begin at 16 bytes."""
        return self.wide or self.conv.oc % 8 != 0

    @property
    def all_cut(self) -> bool:
        return self.cut == self.tiles

    @property
    def images(self) -> tuple[int, int, int, int]:
        """The shape of what the kernel takes for images."""
        if self.windows:
            return self.windows.shape
        return (self.conv.batch, *self.conv.size, self.conv.ic // self.halves)

    @property
    def halves(self) -> int:
        """Float16 that a number is taken for, where all of the kernel counts in these."""
        return 2 if self.numbers == "tf32" else 1

    @property
    def nbytes(self) -> int:
        """That must be moved at least."""
        wider = 2 * self.conv.pixels * self.conv.oc if self.numbers == "tf32" else 0
        return self.conv.nbytes * self.pieces + wider

    @property
    def image_channels(self) -> int:
        """Of images, in float16, as TMA takes them."""
        return self.conv.ic * self.pieces

    @property
    def walk(self) -> Walk:
        """How TMA walks over the images."""
        c, ic = self.conv, self.image_channels
        (h, w), row = c.size, c.size[1] * ic * 2
        if self.windows:
            _, _, wide, many = self.windows.shape
            row, step = wide * many * 2, self.windows.conv.stride[1] * many * 2
            return Walk(
                (c.batch, h, w, self.windows.depth), (h * row, row, step), (-c.pad[0], 0),
                (c.pad[0] - c.dilation[0] * (c.kernel[0] - 1), 0), c.stride,
                self.depth, self.pixels,
            )  # fmt: skip
        upper = tuple(p - d * (k - 1) for p, d, k in zip(c.pad, c.dilation, c.kernel, strict=True))
        return Walk(
            (c.batch, h, w, ic), (h * row, row, ic * 2), (-c.pad[0], -c.pad[1]),
            upper, c.stride, self.depth, self.pixels,  # type: ignore[arg-type]
        )  # fmt: skip


def with_stages(plan: Plan) -> Plan:
    """The plan with as many slots as fit, up to twelve, and room for whole tiles of results.

    Where that leaves three slots of 48 KB, results go through shared memory in two parts: with a
    fourth slot, products of 3000 and 5000 whose blocks share weights were 1.04 times as fast on an
    H200.
    """

    values = 4 * (math.prod(plan.values) + math.prod(plan.scales))

    # Barriers take less than 512 bytes of a block, and CUDA 1 KB of each block but the first.
    def fitted(room: int, parts: int = 1) -> Plan:
        own = replace(plan, room=room, parts=max(parts, plan.parts))
        left = (
            SHARED_PER_BLOCK // plan.blocks_per_sm
            - max(2048 * plan.blocks_per_sm, 1024 * (plan.blocks_per_sm - 1) + 512 + values)
            - own.staged
            - 4 * math.prod(plan.meeting)
        )
        return replace(own, stages=min(12, left // plan.slot), group=group_of(plan))

    whole = fitted(plan.per if plan.pingpong or plan.bricks else 1)
    found = whole if whole.stages >= 4 else fitted(1)
    halves = plan.columns % (2 * (16 if plan.swapped else plan.box)) == 0
    if found.stages >= 4 or not found.staged or not halves or plan.bricks or plan.residual:
        return found
    return fitted(1, 2)


def group_of(plan: Plan) -> int:
    """Tiles below each other in a group: one, or many.

    Blocks that are numbered one behind the other then share pixels, or channels. They should share
    the larger one of the two; but where there are few tiles along a side, they lie along that one.
    On an H100, among 317 kernels that were timed with two or more such numbers, this rule's was
    within 0.4% of the fastest by mean, and up to 16 always within 2.5% (experiments/any_shape).
    """
    many = min(plan.down, MOST_IN_GROUP)
    if plan.distributed:
        return many
    if min(plan.across, plan.down) <= FEW_TILES:
        return 1 if plan.across <= plan.down else many
    return 1 if plan.pixels * plan.cluster >= plan.channels * plan.abreast else many


def fits(plan: Plan) -> bool:
    """Whether the sums of a thread fit into its registers, with what an epilogue needs beside them.

    An SM has 65,536 registers. Where they do not suffice, the compiler puts some into memory: 128
    sums and two blocks of 256 threads on an SM cost 1 KB of it a thread.
    """
    sums = plan.pieces * plan.per * plan.columns // 2
    if plan.pieces > 1:  # its consumers have registers of the producer: see any_float32
        return plan.per == 1 and plan.columns <= 128 and plan.blocks_per_sm == 1
    threads = 128 * (plan.consumers + 1) * plan.blocks_per_sm
    return (sums + BESIDE_SUMS) * threads <= REGISTERS_PER_SM


def check_numbers(given: Plan) -> None:
    """Refuse what there is for float16 alone."""
    if given.numbers not in ("float16", "tf32", "float32"):
        raise ValueError(f"numbers is {given.numbers!r}; expected float16, tf32 or float32")
    if given.numbers == "float16":
        return
    if not given.wide or given.bricks or given.windows or not given.transposed:
        raise ValueError(
            f"numbers is {given.numbers!r}; expected float16 but with wide = True, transposed = "
            "True, no bricks and no windows"
        )
    if given.pieces == 1:
        return
    if (given.swapped, given.per, given.depth, given.pingpong) != (False, 1, 64, False):
        raise ValueError(
            f"numbers is {given.numbers!r}; expected swapped = False, per = 1, depth = 64 and "
            f"pingpong = False, not {given.swapped}, {given.per}, {given.depth}, {given.pingpong}"
        )
    if not given.scale:
        raise ValueError(
            f"scale is False; expected True with numbers = {given.numbers!r}: what sums of a "
            "channel are multiplied by, since weights are scaled before they are split"
        )


def check_tile(given: Plan) -> None:
    """Refuse tiles that wgmma, stmatrix and TMA cannot take."""
    for name in COUNTS:
        if not is_integer(value := getattr(given, name)) or value < 1:
            raise ValueError(f"{name} is {shown(value)}; expected a positive integer")
    if given.columns not in range(16, 257, 16):
        raise ValueError(
            f"columns is {given.columns}; expected a multiple of 16, from 16 to 256, of which "
            "stmatrix stores 16 at once"
        )
    if given.depth not in (16, 32, 64):
        raise ValueError(
            f"depth is {given.depth}; expected 16, 32 or 64: TMA writes rows of so many channels"
        )
    if given.rows > MAX_BOX_ROWS:
        raise ValueError(
            f"consumers is {given.consumers} and per {given.per}; expected together at most "
            f"{MAX_BOX_ROWS // 64}, since a box of TMA has up to {MAX_BOX_ROWS} rows"
        )
    # As it is, the second matrix comes in boxes of 64 rows and 64 columns.
    if not given.transposed and (given.channels % 64 or given.depth != 64):
        raise ValueError(
            f"transposed is False; expected True with tiles of {given.channels} channels and "
            f"depth = {given.depth}: else a multiple of 64 channels, and depth = 64"
        )
    if given.bricks:
        check_bricks(given, given.bricks)


def check_bricks(given: Plan, box: tuple[int, int, int]) -> None:
    """Refuse tiles that are no box, or whose 64 rows of a consumer are none."""
    if given.conv.is_product or math.prod(box) != given.pixels:
        raise ValueError(
            f"bricks is {box}; expected {given.pixels} pixels, as a tile has, and None of a "
            "product, whose images are read by rows"
        )
    cut = any(b % s for b, s in zip(box, given.stored, strict=True))
    if not given.swapped and (cut or math.prod(given.stored) != 64):
        raise ValueError(
            f"bricks is {box}; expected sizes that boxes of 64 pixels fill, such as powers of 2"
        )


def check_counts(given: Plan) -> None:
    """Refuse what a kernel would number beyond 32 bits."""
    counts = {
        "items": given.items + given.blocks,
        "rounds of all parts": given.rounds * given.splits,
        "channels": given.image_channels,
        "lines of weights": given.pieces * given.conv.taps * given.conv.oc,
    }
    for what, many in counts.items():
        if many > MOST_LINES:
            raise ValueError(
                f"{given.conv} has {many:,} {what} with columns = {given.columns}, splits = "
                f"{given.splits} and numbers = {given.numbers!r}; expected at most {MOST_LINES:,}"
            )


def check(given: Plan) -> None:
    """Refuse what would not end, or not be right."""
    check_numbers(given)
    check_tile(given)
    if given.pingpong and (given.consumers, given.splits) != (2, 1):
        raise ValueError(
            f"pingpong is {given.pingpong}; expected False with consumers = {given.consumers} and "
            f"splits = {given.splits}"
        )
    if given.team > min(LARGEST_CLUSTER, given.sms * given.blocks_per_sm):
        raise ValueError(
            f"cluster is {given.cluster} and abreast {given.abreast}; expected together at most "
            f"{LARGEST_CLUSTER} blocks, and at most sms = {given.sms}"
        )
    if given.abreast > 1 and (
        not given.conv.is_product or given.bricks or given.pixels % (8 * given.abreast)
    ):
        raise ValueError(
            f"abreast is {given.abreast}; expected 1 but for products, with tiles of a multiple of "
            f"8 rows for each block, not of {given.pixels}"
        )
    if given.team > PAIR and given.splits > 1:
        raise ValueError(
            f"splits is {given.splits}; expected 1 with clusters of {given.team} blocks: parts of "
            "a tile wait for each other, so that all have to run at once"
        )
    boxes = given.columns // (16 if given.swapped else given.box)
    if boxes % given.parts or (given.parts > 1 and (given.bricks or given.residual)):
        raise ValueError(
            f"parts is {given.parts}; expected a divisor of {boxes}, and 1 with bricks = "
            f"{given.bricks} or residual = {given.residual}"
        )
    # Each block of a cluster fetches whole boxes: rows of 8 channels, or columns of 64.
    part = given.cluster * (8 if given.transposed else 64)
    if given.cluster > 1 and given.channels % part:
        raise ValueError(
            f"cluster is {given.cluster}; expected 1 with tiles of {given.channels} channels"
        )
    if given.bricks and (given.splits > 1 or given.residual or given.direct):
        raise ValueError(
            f"bricks is {given.bricks}; expected None with splits = {given.splits}, "
            f"residual = {given.residual} or results that are stored from registers"
        )
    if given.distributed and (
        not 1 < given.splits <= LARGEST_CLUSTER
        or (given.full, given.team, given.pingpong) != (0, 1, False)
        or given.items > given.lanes
    ):
        raise ValueError(
            f"distributed is {given.distributed}; expected False with splits = {given.splits}, "
            f"full = {given.full}, a team of {given.team}, pingpong = {given.pingpong}: "
            f"a tile's parts are a cluster of up to {LARGEST_CLUSTER} blocks, each with one of "
            f"{given.items} parts on {given.lanes} SMs"
        )
    if given.splits > given.rounds:
        raise ValueError(
            f"splits is {given.splits}; expected 1 to {given.rounds}, as many as rounds: a part "
            "without one would have no sums"
        )
    if given.splits > given.blocks // given.team:
        raise ValueError(
            f"splits is {given.splits}; expected 1 to {given.blocks // given.team}, as many as "
            "blocks, or clusters, which wait for each other"
        )
    check_counts(given)


def possible(plan: Plan) -> bool:
    """Whether a plan can run."""
    try:
        check(plan)
    except ValueError:
        return False
    return True
