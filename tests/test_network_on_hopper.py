"""Networks as launches on Hopper, beside NumPy's float64; their kernels one by one."""

import json
from dataclasses import replace

import numpy as np
import pytest
from on_hopper import RUN

import d2ltvm
from d2ltvm.bench import records
from d2ltvm.hopper import any_layer
from d2ltvm.hopper.any_conv import Conv
from d2ltvm.network import (
    graph,
    hopper_kernels,
    load,
    measured_kernels,
    on_hopper,
    prepare,
    random_weights,
    reference,
)
from d2ltvm.network.graph import Network
from d2ltvm.network.models import MODELS

BLOCK = Network(
    "a block",
    (
        graph.Input("data", size=(2, 3, 17, 15)),
        graph.Conv2d(
            "stem", ("data",), filters=16, kernel=(7, 7), stride=(2, 2), padding=(3, 3),
            weight="w0", bias="b0", activation="relu",
        ),
        graph.MaxPool2d("pool", ("stem",), kernel=(3, 3), stride=(2, 2), padding=(1, 1)),
        graph.Conv2d(
            "narrow", ("pool",), filters=8, kernel=(1, 1), stride=(2, 2), weight="w1", bias="b1",
            activation="relu",
        ),
        graph.Conv2d(
            "middle", ("narrow",), filters=8, kernel=(3, 3), padding=(1, 1), weight="w2",
            bias="b2", activation="relu",
        ),
        graph.Conv2d(
            "beside", ("pool",), filters=24, kernel=(1, 1), stride=(2, 2), weight="w3", bias="b3"
        ),
        graph.Conv2d(
            "wide", ("middle", "beside"), filters=24, kernel=(1, 1), weight="w4", bias="b4",
            activation="relu",
        ),
        graph.GlobalAvgPool("mean", ("wide",)),
        graph.Flatten("flat", ("mean",)),
        graph.Dense("dense", ("flat",), units=40, weight="w6", bias="b6"),
    ),
)  # fmt: skip


def some_weights(network, seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: (rng.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype("float32")
        for name, shape in network.parameters.items()
    }


def rounded(arrays):
    """As a program has them: weights in float16; biases stay."""
    return {
        name: array.astype("float16").astype("float64") if array.ndim > 1 else array
        for name, array in arrays.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("run", RUN)
def test_a_block_of_a_resnet(run):
    weights = some_weights(BLOCK)
    images = np.random.default_rng(1).standard_normal(BLOCK.input.size).astype("float16")
    program = on_hopper.program(BLOCK, weights, sms=4)
    got = on_hopper.run(program, np.ascontiguousarray(images.transpose(0, 2, 3, 1)), run)
    want = reference.run(BLOCK, rounded(weights), images)["dense"]
    # Six layers in a row round to float16, once each, and weights do not make more of it.
    np.testing.assert_allclose(got.reshape(want.shape), want, atol=6 * 2**-11 * abs(want).max())


@pytest.fixture(scope="module")
def resnet():
    imported = load("resnet50")
    return prepare(imported, random_weights(imported))


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 256])
def test_resnet_50(resnet, batch):
    """A launch a layer; the convolutions of a stage are a few kernels, each compiled once."""
    network, weights = resnet
    program = on_hopper.program(network.at(batch=batch), weights, sms=132)
    assert len(program.steps) == 55  # 53 convolutions, the mean, the product; the pool is fused
    assert isinstance(program.steps[0].kernel, hopper_kernels.Stem)
    assert len(program.kernels) < 30
    assert program.sizes[program.result] == 4 * 1000 * batch
    for step in program.steps:
        kinds = [tensor[1] for tensor in step.kernel.takes]
        assert len(kinds) == len(step.reads) + 1
        for name, (shape, dtype) in zip(step.reads, step.kernel.takes, strict=False):
            if name in program.constants:
                assert (program.constants[name].shape, str(program.constants[name].dtype)) == (
                    shape,
                    dtype,
                )


@pytest.mark.slow
@pytest.mark.parametrize("batch", [8, 32, 256])
def test_resnet_50_is_the_program_that_was_measured(resnet, batch, monkeypatch):
    """Each launch is the one that the file has for its node, and it has a time in the record."""
    monkeypatch.setattr(measured_kernels, "_this_device", lambda: "nvidia-h200")
    network, weights = resnet
    program = on_hopper.program(network.at(batch=batch), weights, sms=132)
    was = {
        node: line
        for line in measured_kernels.lines()
        if line["batch"] == batch
        for node in line["nodes"]
    }
    us: dict[str, float] = {}
    for name in ("layers", "other_layers"):
        timed = d2ltvm.load_record(f"network/{name}_{batch}")
        us |= zip(timed.x["values"], timed["TVM"], strict=True)
    assert sorted(step.node for step in program.steps) == sorted(was)
    for step in program.steps:
        line, kernel = was[step.node], step.kernel
        assert str(kernel) == line["kernel"]
        assert line["us"] == pytest.approx(us[step.node], abs=1e-3)
        if isinstance(kernel, hopper_kernels.AnyConv):
            later = {"distributed": False, "abreast": 1, "parts": 1, "scale": False}
            later |= {"numbers": "float16", "relu6": False}
            assert json.loads(any_layer.to_text(kernel.layer)) == later | line["plan"]
            assert kernel.plan.relu == line["relu"]
            assert kernel.plan.residual == line["residual"]


@pytest.mark.slow
def test_with_one_image_races_do_not_count_since_it_is_faster_so(resnet, monkeypatch):
    asked = []
    monkeypatch.setattr(on_hopper, "measured_kernel", lambda conv, *_, **__: asked.append(conv))
    network, weights = resnet
    on_hopper.program(network.at(batch=1), weights, sms=132)
    assert not asked
    on_hopper.program(network.at(batch=2), weights, sms=132)
    assert len(asked) > 50
    _, *lines = records.stored_lines("waterfall.jsonl", "nvidia-h200")
    ms = {line["batch"]: line["ms"] for line in lines}
    assert ms[1]["early launches"][2] < ms[1]["measured plans"][1]  # slowest, fastest
    assert ms[256]["measured plans"][2] < ms[256]["early launches"][1]


@pytest.mark.slow
def test_without_a_measurement_the_model_chooses(resnet, monkeypatch):
    network, weights = resnet
    conv = Conv(256, (28, 28), 256, 512, (1, 1), (0, 0), (2, 2))
    at = network.at(batch=256)

    def chosen(**options):
        steps = on_hopper.program(at, weights, sms=132, **options).steps
        return {step.node: step.kernel for step in steps}

    monkeypatch.setattr(measured_kernels, "_this_device", lambda: "nvidia-h200")
    by_model, raced = chosen(measured=False), chosen()
    assert by_model != raced
    monkeypatch.setattr(measured_kernels, "_this_device", lambda: "nvidia-h100-80gb-hbm3")
    assert chosen() == by_model
    assert measured_kernels.measured_kernel(conv, True, True, 132, device="nvidia-h200") is None


def test_a_race_has_the_measured_kernel_and_the_models(monkeypatch):
    monkeypatch.setattr(measured_kernels, "_this_device", lambda: "nvidia-h200")
    conv = graph.Conv2d("conv", ("data",), filters=64, kernel=(3, 3), padding=(1, 1), weight="w",
                        activation="relu")  # fmt: skip
    mean = graph.GlobalAvgPool("mean", ("conv",))
    network = Network("one", (graph.Input("data", size=(256, 64, 56, 56)), conv, mean))
    weights = some_weights(network)
    alone, _ = on_hopper.program(network, weights, sms=132, measured=False, many=2).steps
    raced, _ = on_hopper.program(network, weights, sms=132, many=2).steps
    assert {raced.kernel, *raced.others} == {alone.kernel, *alone.others, raced.kernel}
    assert len(raced.others) >= 2 and raced.kernel not in raced.others


@pytest.mark.slow
def test_values_that_live_at_the_same_time_lie_apart(resnet):
    network, weights = resnet
    program = on_hopper.program(network.at(batch=8), weights, sms=132)
    placed, size = program.places()
    lives, sizes = program.lives, program.sizes
    assert size < sum(sizes.values()) / 3
    for one in placed:
        for other in placed:
            together = lives[one][0] <= lives[other][1] and lives[other][0] <= lives[one][1]
            apart = placed[one] + sizes[one] <= placed[other]
            apart |= placed[other] + sizes[other] <= placed[one]
            assert one == other or apart or not together
    assert all(place % on_hopper.ALIGNMENT == 0 for place in placed.values())


def test_other_kernels_of_a_step():
    """In a race each has the same parameters, but for room that it may need."""
    program = on_hopper.program(BLOCK, some_weights(BLOCK), sms=4, many=4)
    step = next(step for step in program.steps if step.node == "middle")
    assert step.kernel not in step.others and len(step.others) >= 2
    for other in step.others:
        changed = program.with_kernels({step.kernel: other})
        names = next(new.reads for new in changed.steps if new.node == "middle")
        assert len(names) + 1 == len(other.takes)


def test_sums_fit_into_registers():
    for kernel in hopper_kernels.conv_kernels(
        Conv(256, (28, 28), 128, 512), "relu", True, 132, many=4
    ):
        plan = kernel.plan
        threads = 128 * (plan.consumers + 1) * plan.blocks_per_sm
        assert plan.per * plan.columns // 2 * threads < 65536


def test_what_there_is_no_kernel_for():
    imported = load("mobilenet", size=32)
    with pytest.raises(ValueError, match="is a BatchNorm; expected a network after fold_batch_no"):
        on_hopper.program(imported, random_weights(imported), sms=4)
    conv = graph.Conv2d("conv", ("data",), filters=16, kernel=(3, 3), weight="w", groups=2)
    pairs = Network("pairs", (graph.Input("data", size=(1, 16, 8, 8)), conv))
    with pytest.raises(ValueError, match="conv: groups is 2; expected 1, or one for each channel"):
        on_hopper.program(pairs, some_weights(pairs), sms=4)
    pool = graph.MaxPool2d("pool", ("data",), kernel=(2, 2), stride=(2, 2))
    each = replace(conv, filters=12, groups=12)
    for node in (pool, each, graph.GlobalAvgPool("mean", ("data",))):
        twelve = Network("twelve", (graph.Input("data", size=(1, 12, 8, 8)), node))
        with pytest.raises(ValueError, match=f"{node.name}: gets 12 channels; expected a multiple"):
            on_hopper.program(twelve, some_weights(twelve), sms=4)
    given = replace(conv, inputs=("data", "data"), padding=(1, 1), groups=16)
    added = Network("added", (graph.Input("data", size=(1, 16, 8, 8)), given))
    with pytest.raises(ValueError, match="conv: adds data; expected no addition with groups"):
        on_hopper.program(added, some_weights(added), sms=4)


@pytest.mark.parametrize("name", ["w0", "b2", "w6"])
def test_a_weight_that_is_missing_or_has_another_shape_is_one_line(name):
    node = {"w0": "stem", "b2": "middle", "w6": "dense"}[name]
    weights = some_weights(BLOCK)
    array = weights.pop(name)
    with pytest.raises(ValueError, match=f"^{node}: weight '{name}' is missing; expected shape"):
        on_hopper.program(BLOCK, weights, sms=4)
    weights[name] = array[1:]
    with pytest.raises(ValueError, match=f"^{node}: weight '{name}' has shape .*; expected "):
        on_hopper.program(BLOCK, weights, sms=4)


# The kinds of MobileNetV2: clipped at 6, depthwise, an addition without an activation, and in the
# end a convolution of one pixel that is flattened.
MOBILE = Network(
    "a mobile block",
    (
        graph.Input("data", size=(2, 3, 16, 18)),
        graph.Conv2d("stem", ("data",), filters=16, kernel=(3, 3), stride=(2, 2), padding=(1, 1),
                     weight="w0", bias="b0", activation="relu6"),
        graph.Conv2d("wide", ("stem",), filters=32, kernel=(1, 1), weight="w1", bias="b1",
                     activation="relu6"),
        graph.Conv2d("each", ("wide",), filters=32, kernel=(3, 3), padding=(1, 1), groups=32,
                     weight="w2", bias="b2", activation="relu6"),
        graph.Conv2d("narrow", ("each", "stem"), filters=16, kernel=(1, 1), weight="w3", bias="b3"),
        graph.Conv2d("halved", ("narrow",), filters=16, kernel=(3, 3), stride=(2, 2),
                     padding=(1, 1), groups=16, weight="w4", activation="relu"),
        graph.GlobalAvgPool("mean", ("halved",)),
        graph.Conv2d("scores", ("mean",), filters=24, kernel=(1, 1), weight="w5"),
        graph.Flatten("flat", ("scores",)),
    ),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("run", RUN)
def test_a_block_of_a_mobile_net(run):
    weights = {name: 4 * array for name, array in some_weights(MOBILE).items()}
    images = np.random.default_rng(1).standard_normal(MOBILE.input.size).astype("float16")
    program = on_hopper.program(MOBILE, weights, sms=4)
    got = on_hopper.run(program, np.ascontiguousarray(images.transpose(0, 2, 3, 1)), run)
    values = reference.run(MOBILE, rounded(weights), images)
    assert values["wide"].max() == values["each"].max() == 6  # some are clipped
    assert got.dtype == np.float32  # the scores, though a flattening is the last node
    want = values["flat"]
    # Six layers in a row round to float16. Rounding is by half of 2^-10 of a number, and the
    # weights, four times as large as those of `BLOCK`, make up to four times as much of it.
    np.testing.assert_allclose(got.reshape(want.shape), want, atol=24 * 2**-11 * abs(want).max())


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_each_network_of_the_zoo_has_kernels(name):
    imported = load(name, batch=32)
    network, weights = prepare(imported, random_weights(imported))
    program = on_hopper.program(network, weights, sms=132, measured=False)
    assert program.sizes[program.result] == 4 * 32 * 1000
    kinds = {type(step.kernel) for step in program.steps}
    mobile = name.startswith("mobilenet")
    assert (hopper_kernels.Depthwise in kinds) == mobile
    assert (hopper_kernels.Stem in kinds) == name.startswith("resnet")
    computed = {step.node for step in program.steps}
    convs = {n.name for n in network if isinstance(n, graph.Conv2d | graph.Dense)}
    assert convs - computed == ({"conv0_fwd", "resnetv10_conv0_fwd"} & convs) - computed
