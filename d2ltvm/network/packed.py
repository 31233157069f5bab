"""Kernels for the nodes of a fused network on a processor: channels in blocks, blocks in vectors.

A result of shape (batch, channels, height, width) lies in memory as (batch, channels / b, height,
width, b): the b channels of a pixel are neighbours, and one vector instruction takes them all. The
layout is known as NCHWc {cite}`liu2019`. A convolution keeps a tile of its result in registers, up
to 14 pixels by b channels, while it goes through its whole sum: a number of the image serves b
multiply-adds, and a vector of weights serves all pixels of the tile.

    >>> node = graph.Conv2d(
    ...     "conv", ("data",), filters=64, kernel=(3, 3), padding=(1, 1), weight="w"
    ... )
    >>> net = Network("small", (graph.Input("data", size=(1, 3, 56, 56)), node))
    >>> packed_kernels(net)["conv"].result
    ((1, 8, 56, 56, 8), 'float32')
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import s_tir, te, tirx

from d2ltvm.compute.convolution import Array, with_border
from d2ltvm.compute.ops import Shape
from d2ltvm.network import graph
from d2ltvm.network.graph import Network, Node
from d2ltvm.network.relaxed import Form, NodeKernel
from d2ltvm.network.weights import Weights, check_weights
from d2ltvm.system import devices

LANES = 8  # float32 numbers of an AVX2 register
PIXELS = 14  # of a tile; AVX2 has 16 registers, one for weights, one for the image

LOWEST = float(np.finfo("float32").min)


def packed_kernels(network: Network, lanes: int = LANES) -> dict[str, NodeKernel]:
    """A `NodeKernel` for each node of a network but the first, by the node's name.

    Args:
        network: as `prepare` makes it: convolutions have taken on what followed them.
        lanes: channels in a block: 8 for AVX2, 16 for AVX-512.

    Raises:
        ValueError: a node is none of a fused network, or has groups of several channels.
    """
    return {node.name: _kernel(network, node, lanes) for node in network.nodes[1:]}


def pack_weights(network: Network, weights: Mapping[str, Array], lanes: int = LANES) -> Weights:
    """The weights of a network in the form that `packed_kernels` want.

    Raises:
        ValueError: a weight is absent, or has another shape.
    """
    check_weights(network, weights)
    result = dict(weights)
    for node in network:
        if isinstance(node, graph.Conv2d | graph.Dense):
            result[node.weight] = _pack(weights[node.weight], node, lanes)
    return result


def lanes_here() -> int:
    """How many float32 numbers a vector of this machine's processor has: 8, or 16 with AVX-512."""
    with devices.as_target("llvm"):
        return 16 if tvm.target.codegen.llvm_cpu_has_features("avx512f") else LANES


def block_of(channels: int, lanes: int = LANES) -> int:
    """How many channels lie together: as many as there are lanes, if that divides.

    >>> [block_of(channels) for channels in (64, 24, 12, 3)]
    [8, 8, 4, 1]
    """
    return next(block for block in (lanes, 8, 4, 2, 1) if channels % block == 0)


def tile_of(height: int, width: int, most: int = PIXELS) -> tuple[int, int]:
    """Rows and columns of a tile that divides an image: long rows first, up to `most` pixels.

    >>> [tile_of(size, size) for size in (56, 48, 7, 6, 3)]
    [(1, 14), (1, 12), (1, 7), (2, 6), (3, 3)]
    """

    def divisor(size: int, limit: int) -> int:
        return next(tile for tile in range(limit, 0, -1) if size % tile == 0)

    columns = divisor(width, most)
    return divisor(height, most // columns), columns


def stored(network: Network, name: str, lanes: int) -> Shape:
    """The shape in memory of a node's result; images, and rows of a matrix, lie as they are."""
    shape = network.shapes[name]
    if len(shape) != 4 or name == network.input.name:
        return shape
    batch, channels, height, width = shape
    block = block_of(channels, lanes)
    return batch, channels // block, height, width, block


def _pack(weight: Array, node: Node, lanes: int) -> Array:
    """(f, c, h, w) as (f / b, c / a, h, w, a, b); depthwise as (f / b, h, w, b); (u, k) alike."""
    if isinstance(node, graph.Dense):
        units, columns = weight.shape
        block = block_of(units, lanes)
        return np.ascontiguousarray(weight.reshape(-1, block, columns).transpose(0, 2, 1))
    f, c, h, w = weight.shape
    b, a = block_of(f, lanes), block_of(c, lanes)
    if _depthwise(node):
        return np.ascontiguousarray(weight.reshape(-1, b, h, w).transpose(0, 2, 3, 1))
    blocks = weight.reshape(f // b, b, c // a, a, h, w)
    return np.ascontiguousarray(blocks.transpose(0, 2, 4, 5, 3, 1))


def _depthwise(node: Node) -> bool:
    return isinstance(node, graph.Conv2d) and 1 < node.groups == node.filters


def _kernel(network: Network, node: Node, lanes: int) -> NodeKernel:
    """The kernel of one node."""
    inputs = [
        te.placeholder(stored(network, name, lanes), name=f"X{number}")
        for number, name in enumerate(node.inputs)
    ]
    shapes = node.parameters(*network.given(node))
    forms: dict[str, Form] = {}
    if isinstance(node, graph.Conv2d | graph.Dense):
        stand_in = np.broadcast_to(np.float32(0), shapes[node.weight])
        forms[node.weight] = (_pack(stand_in, node, lanes).shape, "float32")
    parameters = [
        te.placeholder(forms[name][0] if name in forms else shape, name=f"P{number}")
        for number, (name, shape) in enumerate(shapes.items())
    ]
    result = stored(network, node.name, lanes)
    match node:
        case graph.Conv2d():
            if node.groups > 1 and not _depthwise(node):
                raise ValueError(
                    f"{node.name}: groups is {node.groups}; expected 1 or all channels"
                )
            function = _conv(node, inputs, parameters, result)
        case graph.Dense():
            function = _dense(node, inputs, parameters, result)
        case graph.MaxPool2d() | graph.GlobalAvgPool() | graph.Flatten():
            if len(inputs[0].shape) != 5:
                raise ValueError(f"{node.name}: reads the images; expected a convolution first")
            function = _rest(node, inputs[0], result)
        case _:
            raise ValueError(f"{node.name}: is a {node.kind}; expected a network of `prepare`")
    return NodeKernel(function, (result, "float32"), forms)


def _conv(node: graph.Conv2d, inputs: list[Any], parameters: list[Any], result: Shape) -> Any:
    """A convolution with its epilogue, scheduled."""
    x, weight, (ph, pw), (sh, sw) = inputs[0], parameters[0], node.padding, node.stride
    kh, kw = node.kernel
    padded = with_border(x, {2: ph, 3: pw}) if ph or pw else x
    y, z = te.reduce_axis((0, kh), "kh"), te.reduce_axis((0, kw), "kw")

    block = weight.shape[-1 if _depthwise(node) else -2]

    def pixel(n: Any, c: Any, i: Any, j: Any, lane: Any) -> Any:
        i, j = i * sh + y, j * sw + z
        if len(x.shape) == 4:  # the images, whose channels are in no blocks
            return padded(n, c * block + lane, i, j)
        return padded(n, c, i, j, lane)

    if _depthwise(node):
        axes = [y, z]

        def term(n: Any, o: Any, i: Any, j: Any, v: Any) -> Any:
            return te.sum(pixel(n, o, i, j, v) * weight(o, y, z, v), axis=axes)
    else:
        c, a = te.reduce_axis((0, weight.shape[1]), "c"), te.reduce_axis((0, weight.shape[4]), "a")
        axes = [c, y, z, a]

        def term(n: Any, o: Any, i: Any, j: Any, v: Any) -> Any:
            return te.sum(pixel(n, c, i, j, a) * weight(o, c, y, z, a, v), axis=axes)

    total = te.compute(result, term, name="total")

    def finish(n: Any, o: Any, i: Any, j: Any, v: Any) -> Any:
        value = total(n, o, i, j, v)
        if node.bias:
            value = value + parameters[1](o * result[4] + v)
        for residual in inputs[1:]:
            value = value + residual(n, o, i, j, v)
        return _activated(value, node.activation)

    out = te.compute(result, finish, name="out")
    return _scheduled([*inputs, *parameters, out], len(axes), *tile_of(*result[2:4]))


def _scheduled(tensors: list[Any], axes: int, rows: int, columns: int) -> Any:
    """Tiles in registers, vectors of channels, and both cores."""
    sch = s_tir.Schedule(te.create_prim_func(tensors))
    out, total = sch.get_sblock("out"), sch.get_sblock("total")
    n, o, i, j, lane = sch.get_loops(out)
    i_outer, i_inner = sch.split(i, [None, rows])
    j_outer, j_inner = sch.split(j, [None, columns])
    sch.reorder(n, o, i_outer, j_outer, i_inner, j_inner, lane)
    tiles = sch.fuse(n, o, i_outer, j_outer)
    sch.parallel(tiles)
    sch.compute_at(total, tiles, preserve_unit_loops=True)
    sch.set_scope(total, 0, "local")
    *_, down, across, along = sch.get_loops(total)[:-axes]
    sums = sch.get_loops(total)[-axes:]
    sch.reorder(*sums, down, across, along)
    for loops in ((down, across, along), (i_inner, j_inner, lane)):
        _unrolled(sch, *loops)
    sch.unroll(sums[-1])
    start = sch.decompose_reduction(total, sums[0])
    _unrolled(sch, *sch.get_loops(start)[-3:])
    _border(sch)
    return sch.mod["main"]


def _dense(node: graph.Dense, inputs: list[Any], parameters: list[Any], result: Shape) -> Any:
    """A product with packed weights: a block of units is a vector."""
    (x,), weight = inputs, parameters[0]
    block = int(weight.shape[2])
    k = te.reduce_axis((0, x.shape[1]), "k")

    def term(n: Any, o: Any, v: Any) -> Any:
        return te.sum(x(n, k) * weight(o, k, v), axis=k)

    total = te.compute((result[0], result[1] // block, block), term, name="total")

    def finish(n: Any, unit: Any) -> Any:
        value = total(n, unit // block, unit % block)
        value = value + parameters[1](unit) if node.bias else value
        return _activated(value, node.activation)

    out = te.compute(result, finish, name="out")
    sch = s_tir.Schedule(te.create_prim_func([x, *parameters, out]))
    first = sch.get_sblock("total")
    n, o, lane, sums = sch.get_loops(first)
    sch.reorder(o, n, sums, lane)
    sch.parallel(o)
    sch.vectorize(lane)
    start = sch.decompose_reduction(first, sums)
    sch.vectorize(sch.get_loops(start)[-1])
    return sch.mod["main"]


def _rest(node: Node, x: Any, result: Shape) -> Any:
    """What has no weights: pooling, and rows of a matrix out of blocks."""
    block = int(x.shape[-1])
    if isinstance(node, graph.Flatten):
        height, width = (int(size) for size in x.shape[2:4])

        def element(n: Any, k: Any) -> Any:
            channel, pixel = k // (height * width), k % (height * width)
            where = (pixel // width, pixel % width)
            return x(n, channel // block, *where, channel % block)

        out = te.compute(result, element, name="out")
        return te.create_prim_func([x, out])
    if isinstance(node, graph.MaxPool2d):
        (kh, kw), (ph, pw), (sh, sw) = node.kernel, node.padding, node.stride
        y, z = te.reduce_axis((0, kh), "kh"), te.reduce_axis((0, kw), "kw")
        padded = with_border(x, {2: ph, 3: pw}, LOWEST) if ph or pw else x

        def largest(n: Any, c: Any, i: Any, j: Any, v: Any) -> Any:
            return te.max(padded(n, c, i * sh + y, j * sw + z, v), axis=[y, z])

        out = te.compute(result, largest, name="out")
    else:
        pixels = int(x.shape[2]) * int(x.shape[3])
        y, z = te.reduce_axis((0, x.shape[2]), "y"), te.reduce_axis((0, x.shape[3]), "z")

        def mean(n: Any, c: Any, _i: Any, _j: Any, v: Any) -> Any:
            return te.sum(x(n, c, y, z, v) * (1 / pixels), axis=[y, z])

        out = te.compute(result, mean, name="out")
    sch = s_tir.Schedule(te.create_prim_func([x, out]))
    found = sch.get_sblock("out")
    n, c, i, j, lane, *sums = sch.get_loops(found)
    sch.reorder(n, c, i, j, *sums, lane)
    sch.vectorize(lane)
    sch.parallel(sch.fuse(n, c))
    start = sch.decompose_reduction(found, sums[0])
    sch.vectorize(sch.get_loops(start)[-1])
    _border(sch)
    return sch.mod["main"]


def _unrolled(sch: Any, down: Any, across: Any, along: Any) -> None:
    """The pixels of a tile one after the other, the channels of each at once."""
    sch.unroll(down)
    sch.unroll(across)
    sch.vectorize(along)


def _border(sch: Any) -> None:
    """The stage that puts a border around the image, if there is one."""
    names = [sch.get(block).name_hint for block in sch.get_child_blocks(sch.get_sblock("root"))]
    if "PaddedX" in names:
        n, c, i, *_, last = sch.get_loops(sch.get_sblock("PaddedX"))
        sch.vectorize(last)
        sch.parallel(sch.fuse(n, c, i))


def _activated(value: Any, activation: str) -> Any:
    if not activation:
        return value
    value = te.max(value, tirx.const(0.0, "float32"))
    return te.min(value, tirx.const(6.0, "float32")) if activation == "relu6" else value
