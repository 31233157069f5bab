"""Fuzz of networks: graphs at random against NumPy's reference, folded, fused and planned."""

import functools
import math

import numpy as np
from fuzzing import EITHER, ODD, REFUSED, Maybe, sizes, spoiled, whole
from hypothesis import strategies as st

from d2ltvm import network
from d2ltvm.network import graph, models, reference
from d2ltvm.network.weights import uniform

NODES = ("Conv2d", "BatchNorm", "Activation", "Add", "MaxPool2d", "GlobalAvgPool", "Dropout")
SMALL = ODD.filter(lambda v: not whole(v, 2**9))


def loads(tally, draw):
    """`load`, `random_images` and `uniform`: shapes, or a refusal."""
    name = draw(st.sampled_from(["load", "random_images", "uniform"]))
    if name == "load":
        a = spoiled(draw, {"name": st.sampled_from(sorted(network.MODELS)), "batch": sizes(most=3),
                           "size": sizes(32, 64)}, odd=SMALL)  # fmt: skip
        good = isinstance(a["name"], str) and a["name"] in network.MODELS
        good = good and whole(a["batch"]) and whole(a["size"])
        fits = good and a["size"] >= 32
        return tally.judge(
            network.load, a,
            (lambda r: r.shapes[r.output.name] == (a["batch"], 1000)) if fits
            else EITHER if good else REFUSED,
            words=("fwd",),
        )  # fmt: skip
    if name == "random_images":
        a = spoiled(draw, {"batch": sizes(most=3), "size": sizes(most=20), "seed": sizes(0, 9)},
                    odd=SMALL)  # fmt: skip
        good = whole(a["batch"]) and whole(a["size"]) and whole(a["seed"], 0, math.inf)
        return tally.judge(
            network.random_images, a,
            (lambda r: r.shape == (a["batch"], 3, a["size"], a["size"]) and r.dtype == "float32")
            if good else REFUSED,
        )  # fmt: skip
    shape = draw(st.lists(sizes(most=5), min_size=1, max_size=3).map(tuple))
    low, centred = draw(st.sampled_from([-1, 0, 0.5])), draw(st.booleans())

    def within(r):
        assert r.shape == shape and r.dtype == "float32"
        return centred or ((low <= r).all() and (r <= low + 1).all())

    return tally.judge(
        uniform, {"name": "n", "shape": shape, "low": low, "high": low + 1, "centred": centred},
        within,
    )  # fmt: skip


def some_nodes(draw, odd=False):
    """A list of nodes, each behind one before it; most of them make a network."""
    size = (draw(sizes(most=2)), draw(sizes(most=4)), draw(sizes(3, 7)), draw(sizes(3, 7)))
    nodes = [graph.Input("data", size=tuple(map(int, size)))]
    for number in range(draw(st.integers(1, 5))):
        before = draw(st.sampled_from(nodes[-2:])).name
        name = f"n{number}"
        kind = draw(st.sampled_from(NODES))
        pair = st.sampled_from([(1, 1), (2, 2), (1, 2), (3, 3)])
        if kind == "Conv2d":
            nodes.append(graph.Conv2d(
                name, (before,), filters=draw(st.sampled_from([1, 2, 4])), kernel=draw(pair),
                stride=draw(st.sampled_from([(1, 1), (2, 1)])),
                padding=draw(st.sampled_from([(0, 0), (1, 0), (1, 1)])),
                groups=draw(st.sampled_from([1, 1, 1, 2])), weight=f"{name}_w",
                bias=draw(st.sampled_from(["", f"{name}_b"])),
            ))  # fmt: skip
        elif kind == "BatchNorm":
            names = {p: f"{name}_{p}" for p in ("gamma", "beta", "mean", "variance")}
            nodes.append(graph.BatchNorm(name, (before,), **names, epsilon=1e-3))
        elif kind == "Activation":
            what = draw(st.sampled_from(["relu", "relu6", *(["tanh"] if odd else [])]))
            nodes.append(graph.Activation(name, (before,), activation=what))
        elif kind == "Add":
            nodes.append(graph.Add(name, (before, draw(st.sampled_from(nodes)).name)))
        elif kind == "MaxPool2d":
            border = draw(st.sampled_from([(0, 0), (1, 1)]))
            nodes.append(
                graph.MaxPool2d(name, (before,), kernel=draw(pair), stride=(1, 1), padding=border)
            )
        else:
            nodes.append(getattr(graph, kind)(name, (before,)))
    return nodes


def graphs(tally, draw):
    """Networks at random: what they compute is the same folded and fused; or one clear line."""
    nodes = some_nodes(draw, odd=True)

    def made():
        return graph.Network("some", tuple(nodes))

    net = tally.judge(made, {}, EITHER, words=[node.name for node in nodes])
    if net is None:
        return
    weights = network.random_weights(net)
    images = np.random.default_rng(0).normal(size=net.input.size)
    want = reference.run(net, weights, images)[net.output.name]

    def run():
        fused, own = network.prepare(net, weights)
        return reference.run(fused, own, images)

    tally.judge(run, {}, lambda r: np.allclose([*r.values()][-1], want, rtol=1e-4, atol=1e-4))
    moved = tally.judge(network.bytes_moved, {"network": net, "itemsize": 2}, Maybe())
    assert moved is None or all(n >= 0 for n in moved.values())
    dropped = draw(st.sampled_from([*weights, None]))
    kept = {name: array for name, array in weights.items() if name != dropped}
    if draw(st.booleans()) and kept:
        spoilt = draw(st.sampled_from([*kept]))
        kept[spoilt] = draw(st.sampled_from([np.zeros(3)[:, None, None], np.array(1.0), None, "w"]))
    good = [*kept] == [*weights] and all(
        isinstance(v, np.ndarray) and v.shape == weights[k].shape for k, v in kept.items()
    )
    tally.judge(
        functools.partial(network.prepare, net), {"weights": kept},
        Maybe() if good else REFUSED, words=[*net.parameters],
    )  # fmt: skip


ENTRIES = [
    {"op": "Convolution", "name": "conv", "inputs": ["data", "w"], "num_filter": "4",
     "kernel": "(3, 3)", "stride": "(1, 1)", "pad": "(1, 1)", "num_group": "1",
     "dilate": "(1, 1)", "layout": "NCHW"},
    {"op": "Activation", "name": "relu", "inputs": ["data"], "act_type": "relu"},
    {"op": "clip", "name": "clip", "inputs": ["data"], "a_min": "0", "a_max": "6"},
    {"op": "Pooling", "name": "pool", "inputs": ["data"], "layout": "NCHW", "global_pool": "False",
     "pool_type": "max", "pooling_convention": "valid", "kernel": "(2, 2)", "stride": "(2, 2)",
     "pad": "(0, 0)"},
    {"op": "BatchNorm", "name": "bn", "inputs": ["data", "g", "b", "m", "v"], "axis": "1",
     "fix_gamma": "False", "eps": "1e-5"},
    {"op": "FullyConnected", "name": "fc", "inputs": ["data", "w"], "flatten": "True",
     "num_hidden": "10"},
]  # fmt: skip
WORDS = st.sampled_from(["", "8", "(3,)", "(0, 0)", "(2, 2)", "a", "-1", "True", "none", "1e400"])


def symbols(tally, draw):
    """MXNet's operators with an attribute that is wrong or absent: a line that names the node."""
    entry = dict(draw(st.sampled_from(ENTRIES)))
    key = draw(st.sampled_from([None, *entry]))
    if key == "inputs":
        entry[key] = draw(st.sampled_from([[], ["data"], ["nobody", "w"], ["data"] * 7]))
    elif key and draw(st.booleans()):
        del entry[key]
    elif key:
        entry[key] = draw(WORDS)

    def made(entry):
        return models.from_symbol("some", [entry], (1, 3, 8, 8))

    expected = Maybe() if key else lambda r: len(r.nodes) >= 2
    tally.judge(
        made,
        {"entry": entry},
        expected,
        words=[e["name"] for e in ENTRIES] + ["name", "fc_flatten"],
    )


def programs(tally, draw):
    """`conv_kernels` of layers, and the pools and the stem for Hopper: plans that fit."""
    from d2ltvm.hopper import pooling, stem

    images = (draw(sizes(most=2)), draw(sizes(3, 9)), draw(sizes(3, 9)), 8 * draw(sizes(most=3)))
    pair = st.sampled_from([(1, 1), (2, 2), (3, 3), (3, 2)])
    a = spoiled(draw, {"images": st.just(tuple(map(int, images))), "kernel": pair,
                       "stride": pair,
                       "pad": st.sampled_from([(0, 0), (1, 1)])}, odd=SMALL)  # fmt: skip
    tally.judge(pooling.max_pool, a, EITHER, words=("channels",))
    tally.judge(pooling.mean_pool, {"images": a["images"]}, EITHER, words=("channels",))
    b = spoiled(draw, {"images": st.just((1, 224, 224)), "sms": sizes(most=132)}, odd=SMALL)
    tally.judge(stem.plan_stem, b, EITHER)


GROUPS = {loads: 3, graphs: 5, symbols: 3, programs: 2}
