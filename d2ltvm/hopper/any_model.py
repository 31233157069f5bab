"""What a kernel of a plan takes: a model of its time."""

import collections
import itertools
import math

from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_plan import PAIR, Plan
from d2ltvm.hopper.planning import ConvPlan, plan_conv

# What a plan's time is estimated by, in cycles of an SM: fitted to kernels of `any_shape` that were
# measured on H200s in four runs (`bench.timed_plans`).
CLOCK = 1.755e9  # cycles a second
MEMORY = 3.9e12  # bytes a second that all SMs read and write
MEMORY_OF_SM = 31.8e9  # that one SM reads and writes
KEPT = 23.3e6  # bytes that L2 still has from the run before
FROM_L2 = 7.82e12  # bytes a second of these
MIX = 0.327  # of the shorter one of computing and moving
MIX_OF_FOUR = 0.437  # of that, where four blocks share images
LAUNCH = 2560.0  # before the first product of a kernel, and behind the last
PRODUCT = 1.23  # of the cycles that TensorCores need for a product
OPERANDS = 1.52  # of those in which shared memory gives its operands
SOLO = 1.14  # the same again, of one warpgroup without another one beside it
LINE = 0.975  # of a line of 128 bytes that TMA brings
PIXEL = 3.14  # of images, in its im2col mode or as a box
WINDOW = 4.69  # of windows, which overlap
HALF = 0.569  # of a line of 64 bytes or less
ODD = 3.73  # where lines do not begin at 128 bytes
TURN = 29.8  # of a slot: barriers
TURN_IN_PAIR = 84.7  # the same again, where blocks wait for each other
TURN_ALONE = 30.0  # the same again, of one consumer while the other one stores
EPILOGUE = 22.3  # of 8 columns of 64 rows, behind a fixed part
EPILOGUE_FIXED = 275.0
EXCHANGE = 3140.0  # between blocks that have parts of a tile
PARTIAL = 34.6  # bytes of sums a cycle, both ways
MEETING = 668.0  # the same where the blocks are a cluster
MEETING_PARTIAL = 33.2
BESIDE = 1.27  # of two blocks on an SM

LAUNCH_SECONDS = LAUNCH / CLOCK


def product_cycles(plan: Plan) -> float:
    """Cycles in which TensorCores multiply a slot, or shared memory gives them what they need."""
    steps = plan.together * plan.per * plan.depth // 16
    solo = SOLO if plan.consumers * plan.blocks_per_sm == 1 else 1.0
    return max(PRODUCT * plan.columns / 2, OPERANDS * (16 + plan.columns / 4)) * steps * solo


def line_cycles(plan: Plan) -> float:
    """Cycles in which TMA brings what a slot holds."""
    short = HALF if plan.depth < 64 else 1.0
    pixel = short * (LINE if plan.conv.is_product else PIXEL)
    if plan.windows:
        pixel = WINDOW
    elif plan.conv.is_product and plan.conv.ic % 64:
        pixel *= ODD
    weight = short * LINE * (ODD if plan.weights[2] % 64 and not plan.windows else 1.0)
    return plan.pixels / plan.abreast * pixel + plan.channels / plan.cluster * weight


def useful_products(plan: Plan) -> float:
    """The share of the multiply-adds of all products, of whole tiles, that the result needs.

    >>> useful_products(Plan(Conv(8, (28, 28), 64, 64, (3, 3), (1, 1)), 132, columns=64))
    1.0
    """
    multiplied = plan.tiles * plan.team * plan.rows * plan.columns * plan.rounds * plan.depth
    return plan.conv.flop / (2 * multiplied)


def estimate(plan: Plan) -> float:
    """Seconds that a kernel takes, by a model.

    A block takes its items one after the other; of an item, so many rounds and then an epilogue.
    Two consumers that take tiles in turns hide one behind the other. What must come from memory
    comes no faster than all SMs together can take it.
    """
    lanes = plan.lanes
    beside = plan.blocks_per_sm if plan.blocks > plan.sms else 1
    round_ = max(product_cycles(plan), line_cycles(plan)) * (BESIDE * beside if beside > 1 else 1)
    round_ += TURN + (TURN_IN_PAIR if plan.team > 1 else 0)
    epilogue = EPILOGUE_FIXED + EPILOGUE * plan.groups * plan.together
    whole = plan.rounds * round_ + epilogue
    full = plan.tiles - plan.cut
    each = max(plan.rounds * (round_ + TURN_ALONE), whole / 2) if plan.pingpong else whole
    cycles = math.ceil(full / lanes) * each + (whole - each)
    if plan.cut:
        fixed, rate = (MEETING, MEETING_PARTIAL) if plan.distributed else (EXCHANGE, PARTIAL)
        part = math.ceil(plan.rounds / plan.splits) * round_ + epilogue + fixed
        part += 2 * plan.rows * plan.columns * 4 / rate * beside
        turns = math.ceil(plan.cut * plan.splits / lanes)
        cycles += turns * part
        if 0 < full % lanes <= lanes - plan.cut * plan.splits:
            # Behind a last wave of whole tiles that is not full, parts begin on the SMs left.
            cycles -= min(whole, turns * part)
    moving = seconds_of(plan.conv.nbytes, min(plan.blocks, plan.sms))
    return together(cycles / CLOCK, moving, MIX * (MIX_OF_FOUR if plan.abreast > PAIR else 1))


def seconds_of(nbytes: int, sms: int) -> float:
    """That memory takes for what a kernel must move, and L2 for what it still has of that."""
    new = max(0, nbytes - KEPT)
    all_of_them = new / MEMORY + min(nbytes, KEPT) / FROM_L2
    return max(all_of_them, new / (sms * MEMORY_OF_SM))


def together(computing: float, moving: float, mix: float = MIX) -> float:
    """Seconds of both, which overlap, though not wholly, and of the launch."""
    return LAUNCH / CLOCK + max(computing, moving) + mix * min(computing, moving)


def boxed(conv: Conv, sms: int) -> ConvPlan | None:
    """The plan of `conv_nhwc` for a convolution that it is made for, else None.

    Its tiles are boxes of pixels, so that TMA needs no im2col mode, and leave out taps that lie
    outside of the image for all of a tile. Images and kernels are squares, strides 1.
    """
    same = all(a == b for a, b in (conv.size, conv.kernel, conv.pad))
    plain = same and conv.stride == conv.dilation == (1, 1) and conv.pad[0] < conv.kernel[0]
    if not plain or conv.ic % 8 or conv.oc % 8:
        return None
    shape = (conv.batch, conv.oc, conv.ic, conv.size[0], conv.kernel[0], conv.pad[0], 1)
    return plan_conv(shape, sms)


def estimate_boxed(plan: ConvPlan) -> float:
    """Seconds that `conv_nhwc` takes, by the same model."""
    shape, each = plan.shape, plan.down * plan.across
    taps = [
        collections.Counter(
            min(shape.k, shape.n + shape.p - first) - max(0, shape.p - first - size + 1)
            for first in range(0, many * size, size)
        )
        for size, many in ((plan.tile[1], plan.high), (plan.tile[2], plan.wide))
    ]
    pairs = itertools.product(*(counter.items() for counter in taps))
    longest = sorted(((a * b, m * n) for (a, m), (b, n) in pairs), reverse=True)
    # Blocks take tiles in turns, long ones first: of each turn, that of the first block.
    rounds, begun = 0, 0
    for length, many in longest:
        turns = range(-(-begun // plan.blocks), -(-(begun + many * each) // plan.blocks))
        rounds, begun = rounds + len(turns) * length, begun + many * each
    product = max(PRODUCT * plan.columns / 2, OPERANDS * (16 + plan.columns / 4)) * 8
    round_ = max(product, 128 * PIXEL + plan.columns * LINE) + TURN
    epilogue = EPILOGUE_FIXED + EPILOGUE * plan.columns / 4
    cycles = rounds * plan.chunks * round_ + math.ceil(plan.tiles / plan.blocks) * epilogue
    pixels = shape.batch * shape.o**2
    moved = pixels * (shape.ic + shape.oc) + shape.k**2 * shape.ic * shape.oc
    return together(cycles / CLOCK, seconds_of(2 * moved, plan.blocks))
