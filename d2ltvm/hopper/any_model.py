"""What a kernel of a plan takes: a model of its time."""

import collections
import itertools
import math

from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_costs import CLOCK, Costs, costs
from d2ltvm.hopper.any_plan import PAIR, Plan
from d2ltvm.hopper.planning import ConvPlan, plan_conv

# Cycles in which a warpgroup splits what is its own of a slot, by how many of them do so on an SM,
# and in which it collects the sums of a column. Fitted, with the other constants as they are, to
# those 222 of `bench.float32_sets.tried` that have three slots or more.
SPLIT = {1: 670.0, 2: 1490.0}
COLLECT = 1.0

# How limits of a round that are near each other add up: they are a norm of this order. Tried: 6, 8
# and the largest one alone; with 6 the model's picks lost the least.
NORM = 6


def product_cycles(plan: Plan, of: Costs | None = None) -> float:
    """Cycles in which TensorCores multiply a slot."""
    of = of or costs()
    solo = of.solo if plan.consumers * plan.blocks_per_sm == 1 else 1.0
    return of.product * plan.columns / 2 * _steps(plan) * solo


def shared_cycles(plan: Plan, of: Costs | None = None) -> float:
    """Cycles in which shared memory takes the lines of a slot, and gives wgmma its operands."""
    of = of or costs()
    rows = 16 * (of.turned if plan.swapped and not plan.transposed else 1.0)
    lines = plan.pieces * (plan.pixels + plan.channels) * plan.depth / 64
    return of.operands * (rows + plan.columns / 4) * _steps(plan) + of.written * lines


def _steps(plan: Plan) -> int:
    """Products of 64 rows and 16 channels of a slot, of an SM's consumers."""
    return plan.together * plan.per * plan.depth // 16 * (3 if plan.pieces > 1 else 1)


def crossbar_cycles(plan: Plan, of: Costs | None = None) -> float:
    """Cycles in which L2 gives all SMs together what they ask for a slot each."""
    lines = plan.pieces * (plan.pixels / plan.abreast + plan.channels / plan.cluster)
    blocks = min(plan.blocks, plan.sms) * _beside(plan)
    return blocks * lines * 2 * plan.depth / (of or costs()).crossbar


def _beside(plan: Plan) -> int:
    """Blocks that an SM runs at once."""
    many = plan.blocks_per_sm
    return many if many > 1 and plan.blocks > plan.sms else 1


def near(*limits: float) -> float:
    """A time with several limits: the largest one, and more where others are near it.

    >>> round(near(100, 10)), round(near(100, 100))
    (100, 112)
    """
    return float(sum(limit**NORM for limit in limits) ** (1 / NORM))


def split_cycles(plan: Plan, of: Costs | None = None) -> float:
    """Cycles of a consumer that splits what is its own of a slot, multiplies and collects it."""
    at_once = min(2, plan.consumers * plan.blocks_per_sm)
    own = 3 * plan.depth // 16 * (of or costs()).product * plan.columns / 2
    return SPLIT[at_once] + own + COLLECT * plan.columns


def line_cycles(plan: Plan, of: Costs | None = None) -> float:
    """Cycles in which TMA brings what a slot holds."""
    of = of or costs()
    short = of.half if plan.depth < 64 else 1.0
    pixel = short * (of.line if plan.conv.is_product else of.pixel)
    if plan.windows:
        pixel = of.window
    elif plan.conv.is_product and plan.conv.ic % 64:
        pixel *= of.odd
    weight = short * of.line * (of.odd if plan.weights[2] % 64 and not plan.windows else 1.0)
    return plan.pieces * (
        plan.pixels / plan.abreast * pixel + plan.channels / plan.cluster * weight
    )


def useful_products(plan: Plan) -> float:
    """The share of the multiply-adds of all products, of whole tiles, that the result needs.

    >>> useful_products(Plan(Conv(8, (28, 28), 64, 64, (3, 3), (1, 1)), 132, columns=64))
    1.0
    """
    multiplied = plan.tiles * plan.team * plan.rows * plan.columns * plan.rounds * plan.depth
    return plan.conv.flop / (2 * multiplied)


def round_cycles(plan: Plan, of: Costs | None = None) -> float:
    """Cycles from slot to slot of a block."""
    of = of or costs()
    beside = _beside(plan)
    more = of.beside * beside if beside > 1 else 1.0
    round_ = near(
        product_cycles(plan, of) * more,
        shared_cycles(plan, of) * more,
        line_cycles(plan, of) * more,
        crossbar_cycles(plan, of),
    )
    if plan.pieces > 1:
        round_ = max(round_, split_cycles(plan, of))
    return round_ + of.turn + (of.turn_in_pair if plan.team > 1 else 0)


def exchange_cycles(plan: Plan, of: Costs | None = None) -> float:
    """Cycles in which parts of a tile exchange their sums, all but a part's own share of them."""
    of = of or costs()
    fixed, rate = of.exchange, of.partial
    if plan.distributed:
        fixed, rate = of.meeting, of.meeting_partial
    given = plan.rows * plan.columns * 4 * (plan.splits - 1) / plan.splits
    return fixed + 2 * given / rate * _beside(plan)


def estimate(plan: Plan, of: Costs | None = None) -> float:
    """Seconds that a kernel takes, by a model.

    A block takes its items one after the other; of an item, so many rounds and then an epilogue.
    Two consumers that take tiles in turns hide one behind the other. What must come from memory
    comes no faster than all SMs together can take it, and before the last epilogue begins.

    Args:
        plan: of the kernel.
        of: a chip's constants; None for those of `costs`.
    """
    of = of or costs()
    lanes, round_ = plan.lanes, round_cycles(plan, of)
    last = epilogue = of.epilogue_fixed + of.epilogue * plan.groups * plan.together
    whole = plan.rounds * round_ + epilogue
    full = plan.tiles - plan.cut
    each = max(plan.rounds * (round_ + of.turn_alone), whole / 2) if plan.pingpong else whole
    cycles = math.ceil(full / lanes) * each + (whole - each)
    if plan.cut:
        last += exchange_cycles(plan, of)
        part = math.ceil(plan.rounds / plan.splits) * round_ + last
        turns = math.ceil(plan.cut * plan.splits / lanes)
        cycles += turns * part
        if 0 < full % lanes <= lanes - plan.cut * plan.splits:
            # Behind a last wave of whole tiles that is not full, parts begin on the SMs left.
            cycles -= min(whole, turns * part)
    moving = moving_seconds(plan.nbytes, min(plan.blocks, plan.sms), of)
    mix = of.mix * (of.mix_of_four if plan.abreast > PAIR else 1)
    return together((cycles - last) / CLOCK, moving, of, mix) + last / CLOCK


def moving_seconds(nbytes: int, sms: int, of: Costs) -> float:
    """That memory takes for what a kernel must move, and L2 for what it still has of that."""
    new = max(0, nbytes - of.kept)
    all_of_them = new / of.memory + min(nbytes, of.kept) / of.from_l2
    return max(all_of_them, new / (sms * of.memory_of_sm))


def together(computing: float, moving: float, of: Costs, mix: float) -> float:
    """Seconds of both, which overlap, though not wholly, and of the launch."""
    return of.launch_seconds + max(computing, moving) + mix * min(computing, moving)


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


def boxes_are_known(conv: Conv) -> bool:
    """Whether the model's time of `conv_nhwc` can be relied on: rows begin at 128 bytes.

    Where they do not, it takes 1.4 times what the model says, by mean of 59 kernels of both chips
    (`bench.timed_plans`), and is not chosen.
    """
    return conv.ic % 64 == 0


def estimate_boxed(plan: ConvPlan, of: Costs | None = None) -> float:
    """Seconds that `conv_nhwc` takes, by the same model."""
    of = of or costs()
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
    lines = 128 + plan.columns
    round_ = of.turn + near(
        8 * of.product * plan.columns / 2,
        8 * of.operands * (16 + plan.columns / 4) + of.written * lines,
        128 * of.pixel + plan.columns * of.line,
        plan.blocks * lines * 128 / of.crossbar,
    )
    last = of.epilogue_fixed + of.epilogue * plan.columns / 4
    cycles = rounds * plan.chunks * round_ + math.ceil(plan.tiles / plan.blocks) * last
    pixels = shape.batch * shape.o**2
    moved = pixels * (shape.ic + shape.oc) + shape.k**2 * shape.ic * shape.oc
    moving = moving_seconds(2 * moved, plan.blocks, of)
    return together((cycles - last) / CLOCK, moving, of, of.mix) + last / CLOCK
