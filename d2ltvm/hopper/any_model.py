"""What a kernel of a plan takes: a model of its time."""

import collections
import itertools
import math

from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_plan import Plan
from d2ltvm.hopper.planning import ConvPlan, plan_conv

# What a plan's time is estimated by, in cycles of an SM: fitted to kernels of `any_shape` that were
# measured on one H200 (`bench.timed_plans`).
CLOCK = 1.755e9  # cycles a second
MEMORY = 3.86e12  # bytes a second that all SMs read and write
KEPT = 23.5e6  # bytes that L2 still has from the run before
FROM_L2 = 8.1e12  # bytes a second of these
MIX = 0.28  # of the shorter one of computing and moving
LAUNCH = 2130.0  # before the first product of a kernel, and behind the last
PRODUCT = 1.21  # of the cycles that TensorCores need for a product
OPERANDS = 1.49  # of those in which shared memory gives its operands
SOLO = 1.14  # the same again, of one warpgroup without another one beside it
LINE = 1.03  # of a line of 128 bytes that TMA brings
PIXEL = 3.1  # of images, in its im2col mode or as a box
WINDOW = 4.13  # of windows, which overlap
HALF = 0.545  # of a line of 64 bytes or less
ODD = 3.55  # where lines do not begin at 128 bytes
TURN = 29.9  # of a slot: barriers
TURN_IN_PAIR = 89.3  # the same again, where two blocks wait for each other
TURN_ALONE = 29.5  # the same again, of one consumer while the other one stores
EPILOGUE = 22.3  # of 8 columns of 64 rows, behind a fixed part
EPILOGUE_FIXED = 825.0
EXCHANGE = 4010.0  # between blocks that have parts of a tile
PARTIAL = 38.0  # bytes of sums a cycle, both ways
MEETING = 726.0  # the same where the blocks are a cluster
MEETING_PARTIAL = 36.8
BESIDE = 1.28  # of two blocks on an SM

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
    return plan.pixels * pixel + plan.channels / plan.cluster * weight


def estimate(plan: Plan) -> float:
    """Seconds that a kernel takes, by a model.

    A block takes its items one after the other; of an item, so many rounds and then an epilogue.
    Two consumers that take tiles in turns hide one behind the other. What must come from memory
    comes no faster than all SMs together can take it.
    """
    lanes = plan.lanes
    beside = plan.blocks_per_sm if plan.blocks > plan.sms else 1
    round_ = max(product_cycles(plan), line_cycles(plan)) * (BESIDE * beside if beside > 1 else 1)
    round_ += TURN + (TURN_IN_PAIR if plan.cluster > 1 else 0)
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
    return together(cycles / CLOCK, seconds_of(plan.conv.nbytes))


def seconds_of(nbytes: int) -> float:
    """That memory takes for what a kernel must move, and L2 for what it still has of that."""
    return max(0, nbytes - KEPT) / MEMORY + min(nbytes, KEPT) / FROM_L2


def together(computing: float, moving: float) -> float:
    """Seconds of both, which overlap, though not wholly, and of the launch."""
    return LAUNCH / CLOCK + max(computing, moving) + MIX * min(computing, moving)


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
    return together(cycles / CLOCK, seconds_of(2 * moved))
