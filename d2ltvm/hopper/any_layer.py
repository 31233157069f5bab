"""What it takes to run a convolution or a product of any sizes: a kernel, and copies for some.

TMA reads rows that begin at multiples of 16 bytes. Channels that are no multiple of 8 are copied
first, with zeros behind them. Images of up to four channels are read by `rows` as they are, where
it can; else they are copied with zeros left and right, and read by windows; or the pixels under
each row of a kernel are laid side by side, which makes more channels of them. Where several ways
are open to a layer, the model of `any_model` chooses.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from d2ltvm.hopper import tuned
from d2ltvm.hopper.any_conv import Conv, beside, windows
from d2ltvm.hopper.any_costs import costs
from d2ltvm.hopper.any_float32 import factors_of, rounded_to_tf32, split_weights
from d2ltvm.hopper.any_model import boxed, boxes_are_known, estimate, estimate_boxed
from d2ltvm.hopper.any_plan import Plan, check, fits, with_stages
from d2ltvm.hopper.any_shape import conv_any
from d2ltvm.hopper.fastest import boxes_won, fastest_known
from d2ltvm.hopper.implicit import conv_nhwc
from d2ltvm.hopper.padding import padded, unfolded
from d2ltvm.hopper.planner import CHOSEN_BY_YOU, best, plan_any
from d2ltvm.hopper.planning import ConvPlan, check_sms
from d2ltvm.hopper.rows import RowsPlan, conv_rows, rows_plans, rows_weights

WAYS = ("whole", "padded", "windows", "beside", "boxes", "rows")
MOST_CHANNELS_BESIDE = 16  # channels, up to which pixels may lie side by side
Array = npt.NDArray[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """A convolution or product as it is run.

    >>> layer = any_layer(Conv(8, (224, 224), 3, 64, (7, 7), (3, 3), (2, 2)), way="beside")
    >>> layer.way, layer.images, layer.weights_shape
    ('beside', (8, 224, 112, 32), (7, 64, 32))

    Attributes:
        conv: what is computed.
        plan: of the kernel.
        way: 'whole', images as they are; 'padded', with more channels; 'windows' and 'beside', see
            `any_plan`; 'boxes', by `hopper.conv_nhwc`; or 'rows', by `hopper.rows`.
    """

    conv: Conv
    plan: Plan | ConvPlan | RowsPlan
    way: str = "whole"

    @property
    def given(self) -> Shape:
        """The shape of images."""
        return (self.conv.batch, *self.conv.size, self.conv.ic)

    @property
    def images(self) -> Shape:
        """The shape of what the kernel takes for images."""
        return self.plan.images if isinstance(self.plan, Plan) else self.given

    @property
    def weights_shape(self) -> Shape:
        """The shape of what the kernel takes for weights."""
        if isinstance(self.plan, ConvPlan):
            return (self.conv.taps, self.conv.oc, self.conv.ic)
        return self.plan.weights

    @property
    def partials(self) -> Shape | None:
        """The shape of the tensor in which sums of parts meet; None where there is none."""
        return self.plan.partials if isinstance(self.plan, Plan) and self.plan.meet else None

    @property
    def numbers(self) -> str:
        """What is multiplied: see `any_plan.Plan`."""
        return self.plan.numbers if isinstance(self.plan, Plan) else "float16"

    @property
    def given_dtype(self) -> str:
        """Of images."""
        return "float16" if self.numbers == "float16" else "float32"

    @property
    def dtype(self) -> str:
        """Of results."""
        return self.plan.dtype if isinstance(self.plan, Plan) else "float16"

    @property
    def copies(self) -> bool:
        """Whether images are copied before."""
        return self.images != self.given

    @property
    def seconds(self) -> float:
        """That it takes, by the model."""
        if isinstance(self.plan, RowsPlan):
            return self.plan.seconds
        if isinstance(self.plan, ConvPlan):
            return estimate_boxed(self.plan)
        if not self.copies:
            return estimate(self.plan)
        moved, of = math.prod(self.given) + math.prod(self.images), costs()
        moved *= np.dtype(self.given_dtype).itemsize
        return estimate(self.plan, of) + moved / (COPY_RATE * of.memory) + of.launch_seconds

    def kernel(self) -> Any:
        """The PrimFunc: see `conv_any`, `conv_nhwc` or `conv_rows`."""
        if isinstance(self.plan, RowsPlan):
            return conv_rows(self.plan)
        if isinstance(self.plan, ConvPlan):
            c = self.conv
            return conv_nhwc(
                c.batch, c.oc, c.ic, c.size[0], c.kernel[0], c.pad[0], c.stride[0], self.plan.sms
            )
        return conv_any(self.plan.conv, plan=self.plan)

    def copy(self) -> Any:
        """The PrimFunc that copies images: see `padding`."""
        if self.way == "beside":
            return unfolded(self.conv, self.given_dtype)
        before = (0, 0, self.conv.pad[1], 0) if self.way == "windows" else None
        return padded(self.given, self.images, before, self.given_dtype)

    def weights(self, w: Array) -> Array:
        """Weights of (taps, oc, ic), or a second matrix of (1, ic, oc), as the kernel takes them.

        They are the same for all images, so that this is done once, in NumPy. Of 'float32', they
        become float16, high ones and low ones, whose results `factors` are for; of 'tf32', they are
        rounded, since TensorCores would cut them off.
        """
        c = self.conv
        if isinstance(self.plan, RowsPlan):
            return rows_weights(self.plan, w)
        if self.way in ("windows", "beside"):
            win = self.plan.windows if isinstance(self.plan, Plan) else None
            rows = np.zeros(
                (c.kernel[0], c.oc, c.kernel[1], win.channels if win else c.ic), w.dtype
            )
            rows[..., : c.ic] = w.reshape(*c.kernel, c.oc, c.ic).transpose(0, 2, 1, 3)
            w = rows.reshape(c.kernel[0], c.oc, -1)
        pieces = 2 if self.numbers == "float32" else 1
        out = np.zeros((self.weights_shape[0] // pieces, *self.weights_shape[1:]), w.dtype)
        out[tuple(slice(n) for n in w.shape)] = w
        if self.numbers == "tf32":
            return rounded_to_tf32(out)
        return out if pieces == 1 else split_weights(out)[0]

    def factors(self, w: Array) -> Array:
        """What results of each channel are multiplied by, of weights as for `weights`.

        They are ones but of 'float32'; with a scale of your own, its products with these belong
        into the first row of what the kernel takes for scales and biases.
        """
        if self.numbers == "float32":
            return factors_of(w)
        return np.ones(self.conv.oc, "float32")


def to_text(layer: Layer) -> str:
    """A layer's way and plan, from which `from_text` makes it again."""
    if isinstance(layer.plan, ConvPlan):
        return json.dumps({"way": layer.way, "sms": layer.plan.sms})
    if isinstance(layer.plan, RowsPlan):
        cut = {f.name: getattr(layer.plan, f.name) for f in dataclasses.fields(RowsPlan)[1:]}
        return json.dumps({"way": layer.way, **cut})
    left_out = ("conv", "windows")
    fields = {f.name: getattr(layer.plan, f.name) for f in dataclasses.fields(Plan)}
    kept = {name: value for name, value in fields.items() if name not in left_out}
    return json.dumps({"way": layer.way, **kept})


def from_text(conv: Conv, text: str) -> Layer:
    """The layer that `to_text` was asked for, of the same sizes.

    >>> layer = any_layer(Conv(8, (56, 56), 64, 64, (3, 3), (1, 1)))
    >>> from_text(layer.conv, to_text(layer)) == layer
    True
    """
    fields = json.loads(text)
    way = fields.pop("way")
    if way == "boxes":
        plan = boxed(conv, fields["sms"])
        if plan is None:
            raise ValueError(f"conv is {conv}; expected one for boxes")
        return Layer(conv, plan, way)
    if way == "rows":
        return Layer(conv, RowsPlan(conv, **fields), way)
    fields["bricks"] = tuple(fields["bricks"]) if fields["bricks"] else None
    win = windows(conv) if way == "windows" else None
    inner = win.unfolded if win else beside(conv) if way == "beside" else wider(conv)
    inner = as_taken(inner, fields.get("numbers", "float16"))
    return Layer(conv, Plan(inner, windows=win, **fields), way)


def wider(conv: Conv) -> Conv:
    """The same with channels up to a multiple of 8.

    >>> wider(Conv(8, (56, 56), 61, 64)).ic
    64
    """
    return replace(conv, ic=-(-conv.ic // 8) * 8)


def as_taken(conv: Conv, numbers: str) -> Conv:
    """The same as a kernel takes it: of 'tf32', with two float16 for each float32."""
    return replace(conv, ic=2 * conv.ic) if numbers == "tf32" else conv


def needed_by(numbers: str) -> dict[str, Any]:
    """Options of a plan for such numbers: results are float32, and scales of weights are undone."""
    if numbers == "float16":
        return {}
    return {"wide": True} | ({"scale": True, "bias": True} if numbers == "float32" else {})


def tuned_layer(
    conv: Conv,
    sms: int,
    transposed: bool = True,
    device: Mapping[str, str] | None = None,
    **options: Any,
) -> Layer | None:
    """The layer that was the fastest when `bench.tuning.tune` ran on this machine, or None.

    Args:
        conv, transposed, device: as for `tuned.kept`.
        sms: blocks that run at once.
        options: of `Plan`, that say what else is computed, as for `fastest.fastest_known`.
    """
    record = tuned.kept(conv, transposed, device)
    return layer_of(record, conv, sms, transposed, **options) if record else None


def layer_of(
    record: tuned.TuningRecord, conv: Conv, sms: int, transposed: bool = True, **options: Any
) -> Layer | None:
    """The layer that was kept, or None where it cannot be run; arguments as for `tuned_layer`."""
    # What is on a disk may be of any kind: what cannot be run is as good as nothing.
    try:
        layer = from_text(conv, record.layer)
        if layer.way not in WAYS or layer.plan.sms != sms:
            return None
        if isinstance(layer.plan, ConvPlan):
            return None if options else layer
        if isinstance(layer.plan, RowsPlan):
            asked_of_rows = computed_by_rows(options)
            if asked_of_rows is None or not layer.plan.fits:
                return None
            return replace(layer, plan=replace(layer.plan, **asked_of_rows))
        check(layer.plan)
        asked: dict[str, Any] = {
            f.name: f.default for f in dataclasses.fields(Plan) if f.name in CHOSEN_BY_YOU
        }
        asked |= {"windows": layer.plan.windows, "transposed": transposed, **options}
        plan = with_stages(replace(layer.plan, parts=1, **asked))
        check(plan)
        return replace(layer, plan=plan) if plan.stages >= 2 and fits(plan) else None
    except Exception:
        return None


def computed_by_rows(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """What `RowsPlan` calls the options of a `Plan`; None where it has no such thing.

    >>> computed_by_rows({"bias": True, "relu": True})
    {'bias': True, 'activation': 'relu'}
    >>> computed_by_rows({"residual": True}) is None
    True
    """
    asked = {name for name, value in options.items() if value not in (False, "float16")}
    asked -= {"transposed"}  # which only a product has
    if not asked <= {"bias", "relu", "relu6"} or {"relu", "relu6"} <= asked:
        return None
    activation = next((name for name in ("relu", "relu6") if name in asked), "")
    return {"bias": "bias" in asked, "activation": activation}


def known_layers(conv: Conv, sms: int, **options: Any) -> tuple[Layer | None, Layer | None]:
    """What `tuned_layer` finds, and the layer of the plan that `fastest.fastest_known` does."""
    fastest = fastest_known(conv, sms, **options)
    return tuned_layer(conv, sms, **options), Layer(conv, fastest) if fastest else None


COPY_RATE = 0.5  # of the bytes a second that memory moves


def ways(
    conv: Conv,
    transposed: bool = True,
    sms: int | None = None,
    many: int = 1,
    choose: Callable[..., list[Plan]] = best,
    known: bool = True,
    **options: Any,
) -> list[Layer]:
    """Ways to run a convolution or a product, up to so many of each kind, the fastest first.

    If the sizes were tuned on this machine, or measured before, the plan that was fastest is the
    first; the others are in the order of the model.

    Args:
        conv, transposed, sms, options: as for `any_layer`.
        many: plans of each kind.
        choose: which ones: `planner.best`, by the model, or `many_plans.varied`.
        known: whether to ask `known_layers`, too.
    """
    sms = check_sms(sms)
    if not transposed:
        options["transposed"] = False
    numbers = options.get("numbers", "float16")
    options |= needed_by(numbers)
    way = "whole" if wider(conv) == conv else "padded"
    inner = as_taken(wider(conv), numbers)
    found = [Layer(conv, plan, way) for plan in choose(inner, sms, many, **options)]
    if conv.taps > 1 and conv.ic <= MOST_CHANNELS_BESIDE:
        lying = choose(as_taken(beside(conv), numbers), sms, many, **options)
        found += [Layer(conv, plan, "beside") for plan in lying]
    few = conv.taps > 1 and conv.ic <= 4 and conv.dilation[1] == 1
    if few and numbers == "float16":
        win = windows(conv)
        overlapping = choose(win.unfolded, sms, many, windows=win, **options)
        found += [Layer(conv, plan, "windows") for plan in overlapping]
    boxes = None if options else boxed(conv, sms)
    if boxes:
        found.append(Layer(conv, boxes, "boxes"))
    if (computed := computed_by_rows(options)) is not None:
        found += [Layer(conv, plan, "rows") for plan in rows_plans(conv, sms, many, **computed)]
    unknown = not boxes_are_known(conv)  # then boxes come last
    found.sort(key=lambda layer: (unknown and layer.way == "boxes", layer.seconds))
    known = known and numbers == "float16"  # others were not measured
    if not known:
        return found
    tuned, fastest = known_layers(conv, sms, **options)
    won = Layer(conv, boxes, "boxes") if boxes and boxes_won(conv, sms) else None
    return list(dict.fromkeys(layer for layer in (tuned, won, fastest, *found) if layer))


def any_layer(
    conv: Conv,
    transposed: bool = True,
    sms: int | None = None,
    way: str | None = None,
    known: bool = True,
    **options: Any,
) -> Layer:
    """How a convolution or a product is run.

    By the plan that `bench.tuning.tune` found on this machine, if the sizes were tuned; or by the
    one that was the fastest of those in the records (`fastest`), `conv_nhwc`'s among them; or by
    the model's first. To tune sizes once takes seconds, and every later call finds the plan on the
    disk (`tuned`):

    >>> layer = d2ltvm.bench.tuning.tune(Conv(8, (56, 56), 64, 64))  # doctest: +SKIP

    Args:
        conv: the sizes, any.
        transposed: of a product, whether the second matrix is given as its transpose.
        sms: blocks that run at once; None for one on each SM (132 without a GPU).
        way: as for `Layer`; None for the one that should be fastest.
        known: whether a plan that was tuned or measured comes before those of the model.
        options: of `any_plan.Plan`. Those that say what is computed (`bias`, `residual`, `scale`,
            `relu`, `relu6`, `wide`, `numbers`) leave the plan to be chosen; others, which say how,
            want a `way`.

    Raises:
        ValueError: a convolution cannot be run this way.
    """
    computed = {key: value for key, value in options.items() if key in CHOSEN_BY_YOU}
    found = ways(conv, transposed, sms, known=known, **computed)
    layer = next((layer for layer in found if way in (None, layer.way)), None)
    if layer is None:
        ways_ = ", ".join(dict.fromkeys(layer.way for layer in found))
        raise ValueError(f"way is {way!r}; expected one of {ways_}")
    if options == computed:
        return layer
    if not isinstance(layer.plan, Plan):
        raise ValueError(f"way is {layer.way!r}; expected another one with {options}")
    fixed = {"windows": layer.plan.windows, "transposed": layer.plan.transposed}
    fixed |= needed_by(layer.numbers)
    return replace(layer, plan=plan_any(layer.plan.conv, sms, **(fixed | options)))
