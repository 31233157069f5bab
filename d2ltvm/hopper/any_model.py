"""What a kernel of a plan takes: a model of its time."""

import collections
import itertools
import math

from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_plan import Plan
from d2ltvm.hopper.planning import ConvPlan, plan_conv

# What a plan's time is estimated by, in cycles of an SM: fitted to 643 kernels of `any_shape` and
# 41 of `implicit` that were measured on one H200; the mean error is 11%.
CLOCK = 1.7e9  # cycles a second
MEMORY = 4.3e12  # bytes a second that all SMs read and write
MEMORY_OF_SM = 36e9  # bytes a second that one SM takes from memory
MIX = 0.1  # of the shorter one of computing and moving
LAUNCH = 1550.0  # before the first product of a kernel, and behind the last
PRODUCT = 1.2  # of the cycles that TensorCores need for a product
OPERANDS = 1.02  # of those in which shared memory gives its operands
LINE = 1.44  # of a line of 128 bytes that TMA brings
PIXEL = 2.9  # in its im2col mode
WINDOW = 4.8  # of windows, which overlap
HALF = 0.51  # of a line of 64 bytes or less
ODD = 2.6  # where lines do not begin at 128 bytes
TURN = 17.0  # of a slot: barriers
EPILOGUE = 22.0  # of 8 columns of 64 rows, behind a fixed part
EPILOGUE_FIXED = 1110.0
EXCHANGE = 2500.0  # between blocks that have parts of a tile
PARTIAL = 32.0  # bytes of sums a cycle, both ways
BESIDE = 1.0  # of two blocks on an SM

LAUNCH_SECONDS = LAUNCH / CLOCK


def product_cycles(plan: Plan) -> float:
    """Cycles in which TensorCores multiply a slot, or shared memory gives them what they need."""
    steps = plan.together * plan.per * plan.depth // 16
    return max(PRODUCT * plan.columns / 2, OPERANDS * (16 + plan.columns / 4)) * steps


def line_cycles(plan: Plan) -> float:
    """Cycles in which TMA brings what a slot holds."""
    short = HALF if plan.depth < 64 else 1.0
    pixel = short * (LINE if plan.conv.is_product or plan.bricks else PIXEL)
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
    comes no faster than all SMs together, nor than the SM with the most rounds, can take it.
    """
    lanes = plan.lanes
    beside = plan.blocks_per_sm if plan.blocks > plan.sms else 1
    round_ = max(product_cycles(plan), line_cycles(plan)) * (BESIDE * beside if beside > 1 else 1)
    round_ += TURN
    epilogue = EPILOGUE_FIXED + EPILOGUE * plan.groups * plan.together
    whole = plan.rounds * round_ + epilogue
    full = plan.tiles - plan.cut
    each = max(plan.rounds * round_, whole / 2) if plan.pingpong else whole
    cycles = math.ceil(full / lanes) * each + (whole - each)
    rounds = math.ceil(full / lanes) * plan.rounds
    if plan.cut:
        length = math.ceil(plan.rounds / plan.splits)
        part = length * round_ + epilogue + EXCHANGE
        part += 2 * plan.rows * plan.columns * 4 / PARTIAL * beside
        turns = math.ceil(plan.cut * plan.splits / lanes)
        cycles, rounds = cycles + turns * part, rounds + turns * length
        if 0 < full % lanes <= lanes - plan.cut * plan.splits:
            # Behind a last wave of whole tiles that is not full, parts begin on the SMs left.
            cycles -= min(whole, turns * part)
            rounds -= min(plan.rounds, turns * length)
    share = rounds * beside / (plan.tiles * plan.rounds * plan.cluster)
    moved = plan.conv.nbytes * max(1 / MEMORY, share / MEMORY_OF_SM)
    return together(cycles / CLOCK, moved)


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
    round_ = max(product, (128 + plan.columns) * LINE) + TURN
    epilogue = EPILOGUE_FIXED + EPILOGUE * plan.columns / 4
    cycles = rounds * plan.chunks * round_ + math.ceil(plan.tiles / plan.blocks) * epilogue
    pixels = shape.batch * shape.o**2
    moved = pixels * (shape.ic + shape.oc) + shape.k**2 * shape.ic * shape.oc
    return together(cycles / CLOCK, 2 * moved / MEMORY)
