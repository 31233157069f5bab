"""Depthwise convolution, pooling and batch normalisation, beside their definitions and MXNet."""

import numpy as np
import pytest

import d2ltvm
from d2ltvm.bench import libraries
from d2ltvm.compiler.verify import compare
from d2ltvm.compute import depthwise_reference, pool_reference

# channels, nh, nw, kh, kw, ph, pw, sh, sw
SHAPES = (
    (3, 8, 8, 3, 3, 1, 1, 1, 1),
    (5, 7, 9, 3, 2, 0, 1, 2, 1),
    (1, 6, 5, 1, 1, 0, 0, 3, 2),
    (2, 3, 3, 5, 5, 2, 2, 1, 1),
    (17, 11, 13, 3, 3, 2, 1, 2, 3),
)
SQUARES = ((8, 3, 1, 1), (9, 2, 0, 2), (7, 5, 2, 3))  # n, k, p, s


def normal(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape, "float32")


def under(x, i, j, shape, border=0.0):
    """The pixels of all channels under a window, by the definition."""
    _, _, _, kh, kw, ph, pw, sh, sw = shape
    padded = np.pad(x, ((0, 0), (ph, ph), (pw, pw)), constant_values=border)
    return padded[:, i * sh : i * sh + kh, j * sw : j * sw + kw]


def computed(tensors, *inputs):
    kernel = d2ltvm.build(d2ltvm.schedule(tensors), "llvm")
    out = np.full(kernel.params[-1].shape, np.nan, "float32")
    kernel(*inputs, out)
    return out


@pytest.mark.quick(2)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_depthwise_convolution_is_what_its_definition_says(shape):
    c, nh, nw, kh, kw = shape[:5]
    x, k = normal(c, nh, nw), normal(c, 1, kh, kw)
    X, K, Y, _ = d2ltvm.depthwise_conv(*shape)
    got = computed((X, K, Y), x, k)

    def exact(x, k):
        at = np.ndindex(*got.shape[1:])
        columns = [(under(x, i, j, shape) * k[:, 0]).sum((1, 2)) for i, j in at]
        return np.transpose(columns).reshape(got.shape)

    want, most = (exact(f(x.astype("float64")), f(k.astype("float64"))) for f in (np.array, abs))
    compare("Y", got, want, most, terms=2 * kh * kw)


@pytest.mark.quick(4)
@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pooling_is_what_its_definition_says(shape, kind):
    c, nh, nw, kh, kw = shape[:5]
    x = normal(c, nh, nw) - 3  # a border of zeros would win
    X, Y, _ = d2ltvm.pool(kind, *shape)
    got = computed((X, Y), x)
    border, reduce = (-np.inf, np.max) if kind == "max" else (0, np.mean)
    at = np.ndindex(*got.shape[1:])
    columns = [reduce(under(x.astype("float64"), i, j, shape, border), axis=(1, 2)) for i, j in at]
    want = np.transpose(columns).reshape(got.shape)
    if kind == "max":
        np.testing.assert_array_equal(got, want)
    else:
        compare("Y", got, want, abs(want), terms=kh * kw + 1)


@pytest.mark.parametrize(("c", "n"), [(1, 1), (3, 8), (17, 5)])
def test_batch_norm_is_what_its_definition_says(c, n):
    x = normal(c, n, n)
    mean, gamma, beta = (normal(c, 1, 1) + k for k in range(3))
    variance = abs(normal(c, 1, 1))
    got = computed(d2ltvm.batch_norm(c, n, 1e-3), x, mean, variance, gamma, beta)
    wide = [a.astype("float64") for a in (x, mean, variance, gamma, beta)]
    x, mean, variance, gamma, beta = wide
    scale = gamma / np.sqrt(variance + np.float64(np.float32(1e-3)))
    most = (abs(x) + abs(mean)) * abs(scale) + abs(beta)
    compare("Y", got, (x - mean) * scale + beta, most, terms=6)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k", "p", "s"), SQUARES)
def test_the_references_are_what_mxnet_computes(n, k, p, s):
    try:
        mx = libraries.mxnet()
    except d2ltvm.MissingError as error:
        pytest.skip(str(error))
    x, w = normal(4, n, n), normal(4, 1, k, k)
    pair = {"kernel": (k, k), "pad": (p, p), "stride": (s, s)}
    data = mx.nd.array(x[None])
    of_mxnet = mx.nd.Convolution(
        data, mx.nd.array(w), num_filter=4, num_group=4, no_bias=True, **pair
    )
    want = of_mxnet.asnumpy()[0]
    np.testing.assert_allclose(depthwise_reference(x, w, p, s), want, rtol=1e-4, atol=1e-4)
    for kind in ("max", "avg"):
        want = mx.nd.Pooling(data, pool_type=kind, **pair).asnumpy()[0]
        np.testing.assert_allclose(pool_reference(kind, x, k, p, s), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: d2ltvm.pool("sum", 1, 4, 4, 2, 2), "pool_type is 'sum'; expected 'max' or 'avg'"),
        (lambda: d2ltvm.pool("max", 1, 4, 4, 2, 2, 2, 0), "ph is 2; expected less than the window"),
        (lambda: d2ltvm.pool("max", 0, 4, 4, 2, 2), "c is 0; expected"),
        (lambda: d2ltvm.depthwise_conv(1, 4, 4, 5, 3), "of nh = 4, kh = 5, ph = 0, sh = 1: k is 5"),
        (lambda: d2ltvm.batch_norm(1, 4, 0), "eps is 0; expected a number between 0 and 1"),
        (lambda: d2ltvm.batch_norm(1, 0), "n is 0; expected"),
    ],
)
def test_what_is_wrong_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
