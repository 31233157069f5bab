"""Convolution: its sizes, its definition against NumPy, and its errors."""

import numpy as np
import pytest
from tvm import te

import d2ltvm


def by_definition(x, k, p, s):
    """A convolution by its definition, one sum for each element."""
    (ph, pw), (sh, sw) = p, s
    padded = np.pad(x, ((0, 0), (ph, ph), (pw, pw)))
    oc, _, kh, kw = k.shape
    rows = range(0, padded.shape[1] - kh + 1, sh)
    columns = range(0, padded.shape[2] - kw + 1, sw)
    return np.array(
        [[[(padded[:, i : i + kh, j : j + kw] * k[c]).sum() for j in columns] for i in rows]
         for c in range(oc)]
    )  # fmt: skip


# oc, ic, nh, nw, kh, kw, ph, pw, sh, sw
SHAPES = (
    (4, 3, 8, 8, 3, 3, 1, 1, 1, 1),
    (2, 5, 7, 9, 3, 2, 0, 1, 2, 1),
    (3, 1, 6, 5, 1, 1, 0, 0, 3, 2),
    (1, 2, 3, 3, 5, 5, 1, 1, 1, 1),
    (5, 17, 11, 13, 3, 3, 2, 1, 2, 3),
)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_convolution_is_what_its_definition_says(shape):
    oc, ic, nh, nw, kh, kw, ph, pw, sh, sw = shape
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ic, nh, nw), "float32")
    k = rng.standard_normal((oc, ic, kh, kw), "float32")
    wanted = by_definition(x.astype("float64"), k.astype("float64"), (ph, pw), (sh, sw))
    reference = d2ltvm.conv_reference(x.astype("float64"), k.astype("float64"), (ph, pw), (sh, sw))
    assert np.allclose(reference, wanted, rtol=1e-12, atol=1e-12)
    X, K, Y, _ = d2ltvm.conv(*shape)
    assert tuple(int(size) for size in Y.shape) == wanted.shape
    kernel = d2ltvm.build(d2ltvm.schedule((X, K, Y)), "llvm")

    def expected(x, k):
        return d2ltvm.conv_reference(x, k, (ph, pw), (sh, sw))

    d2ltvm.check(kernel, (x, k), expected, terms=2 * ic * kh * kw)


@pytest.mark.parametrize("stride", [1, 2])
def test_packed_convolution_is_the_same(stride):
    X, K, Y, *packed = d2ltvm.conv_pack(6, 4, 7, 9, 3, 3, 1, 1, 3, 2, stride, stride)
    shapes = [tuple(int(size) for size in tensor.shape) for tensor in packed]
    out = {d2ltvm.conv_out_size(n, 3, 1, stride) for n in (7, 9)}
    assert shapes[0] == (2, 9, 11, 2) and shapes[1] == (2, 2, 3, 3, 2, 3)
    assert set(shapes[2][1:3]) == out and shapes[2][::3] == (2, 3)
    rng = np.random.default_rng(0)
    x, k = (rng.standard_normal(shape, "float32") for shape in ((4, 7, 9), (6, 4, 3, 3)))
    kernel = d2ltvm.build(d2ltvm.schedule((X, K, Y)), "llvm")
    d2ltvm.check(kernel, (x, k), lambda x, k: d2ltvm.conv_reference(x, k, 1, stride), terms=72)


def plain_tensors(oc, ic, n, k, p, s):
    return d2ltvm.conv(oc, ic, n, n, k, k, p, p, s, s)[:3]


def plain(*shape):
    return d2ltvm.schedule(plain_tensors(*shape))


def test_convolutions_are_checked_before_they_are_timed():
    def wrong(oc, ic, n, k, p, s):
        return plain(oc, ic, n + 2, k, 0, s)

    with pytest.raises(ValueError, match="expected float32"):
        d2ltvm.bench_conv_tvm(wrong, [(4, 9, 3)], "llvm")


@pytest.mark.slow
def test_mxnet_computes_the_same_convolution():
    data, weight, out = d2ltvm.get_conv_data(4, 3, 9, 3, 1, 2)
    try:
        result = d2ltvm.contenders.mxnet_conv(1, 2)(data, weight, out)()
    except d2ltvm.MissingError:
        pytest.skip("MXNet is not there")
    wanted = d2ltvm.conv_reference(data.astype("float64"), weight.astype("float64"), 1, 2)
    assert np.allclose(result.asnumpy()[0], wanted, atol=1e-4)


def test_without_padding_there_is_no_padded_tensor():
    X, _, _, PaddedX = d2ltvm.conv(2, 3, 5, 5, 3, 3)
    assert PaddedX.same_as(X)


def test_padding_of_other_ranks_and_values():
    X = te.placeholder((3, 4), name="X")
    kernel = d2ltvm.build(d2ltvm.schedule((X, d2ltvm.padding(X, 1, 2, val=7))), "llvm")
    x = np.arange(12, dtype="float32").reshape(3, 4)
    out = np.empty((5, 8), "float32")
    kernel(x, out)
    assert np.array_equal(out, np.pad(x, ((1, 1), (2, 2)), constant_values=7))


def test_sizes_and_operations():
    for n, k, p, s in ((64, 3, 1, 1), (63, 3, 0, 2), (7, 7, 0, 1), (5, 2, 3, 4)):
        positions = range(0, n + 2 * p - k + 1, s)
        assert d2ltvm.conv_out_size(n, k, p, s) == len(positions)
        assert d2ltvm.conv_gflop(2, 3, n, k, p, s) == 2 * 2 * 3 * len(positions) ** 2 * k * k / 1e9


def test_data_have_the_sizes_of_the_convolution():
    data, weight, out = d2ltvm.get_conv_data(4, 3, 9, 3, p=1, s=2, constructor=np.array)
    assert data.shape == (3, 9, 9) and weight.shape == (4, 3, 3, 3) and out.shape == (4, 5, 5)
    assert np.isnan(out).all() and np.isfinite(data).all()


IMAGE, KERNEL = np.ones((2, 5, 5)), np.ones((1, 2, 3, 3))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "uint64"])
def test_sizes_may_be_numpys_narrow_integers(dtype):
    n = np.dtype(dtype).type
    assert d2ltvm.conv_out_size(n(5), n(7), n(2), n(1)) == 3
    assert type(d2ltvm.conv_out_size(n(5), n(7), n(2), n(1))) is int
    shape = (120, 100, 99, 3, 1, 2)
    assert d2ltvm.conv_gflop(*map(n, shape)) == d2ltvm.conv_gflop(*shape) > 0
    tensors = (
        (d2ltvm.conv, (120, 100, 99, 98, 3, 5, 1, 2, 2, 1), {}),
        (
            d2ltvm.compute.conv_in_tiles,
            (120, 100, 99, 98, 3, 5, 1, 2, 2, 1),
            {"tile": (7, 9, 4, 16)},
        ),
        (d2ltvm.conv_pack, (120, 100, 99, 98, 3, 5, 1, 2, 8, 10), {}),
        (d2ltvm.compute.conv_hwcn, (90, 120, 100, 99, 3, 1, 2), {}),
        (d2ltvm.compute.conv_nhwcnc, (96, 112, 80, 99, 3, 1, 2), {}),
    )
    for function, sizes, more in tensors:
        same = [
            [tuple(map(int, tensor.shape)) for tensor in function(*given, **options)]
            for given, options in (
                (sizes, more),
                (map(n, sizes), {key: tuple(map(n, value)) for key, value in more.items()}),
            )
        ]
        assert same[0] == same[1]
    arrays = d2ltvm.get_conv_data(n(120), n(2), n(99), n(3), n(1), n(2))
    assert arrays[2].shape == (120, 50, 50)
    images, weights = d2ltvm.compute.get_conv_batch(n(2), n(120), n(3), n(9), n(3))
    assert images.shape == (2, 3, 9, 9) and weights.shape == (120, 3, 3, 3)
    reference = d2ltvm.conv_reference(IMAGE, KERNEL, n(1), (n(2), n(1)))
    assert np.array_equal(reference, d2ltvm.conv_reference(IMAGE, KERNEL, 1, (2, 1)))
    blocks = d2ltvm.compute.to_nhwcnc(np.zeros((32, 48, 7, 7)), n(16))
    assert blocks.shape == (2, 7, 7, 3, 16, 16)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: d2ltvm.conv_out_size(4, 7, 1, 1), r"k is 7; expected at most n \+ 2 p = 6"),
        (lambda: d2ltvm.conv_out_size(4, 3, 1, 0), "s is 0; expected a positive integer"),
        (lambda: d2ltvm.conv_out_size(4, 3, -1, 1), "p is -1; expected an integer from 0"),
        (lambda: d2ltvm.conv(0, 1, 4, 4, 3, 3), "oc is 0; expected a positive integer"),
        (lambda: d2ltvm.conv(1, 1, 4, 2, 3, 3), r"of nw = 2, kw = 3, pw = 0, sw = 1: k is 3"),
        (
            lambda: d2ltvm.padding(te.placeholder((3,), name="X"), 1, 1),
            "expected two dimensions or more",
        ),
        (lambda: d2ltvm.padding(te.placeholder((3, 3), name="X"), 1, 0.5), "pw is 0.5"),
        (lambda: d2ltvm.get_conv_data(1, 1, 2, 3), "k is 3"),
        (
            lambda: d2ltvm.conv_pack(6, 4, 5, 5, 3, 3, 1, 1, 4, 2),
            "toc is 4; expected .* divides oc = 6",
        ),
        (
            lambda: d2ltvm.compute.conv_in_tiles(4, 3, 8, 8, 3, 3, tile=(1, 1, 1)),
            "tile is .*; expected four",
        ),
        (
            lambda: d2ltvm.compute.conv_in_tiles(4, 3, 8, 8, 3, 3, tile=4),
            r"tile is 4; expected four",
        ),
        (
            lambda: d2ltvm.compute.conv_in_tiles(4, 3, 8, 8, 3, 3, tile=(1, 0, 1, 1)),
            "is 0; expected a pos",
        ),
        (lambda: d2ltvm.conv_reference(IMAGE, KERNEL, 1, -1), "s is -1; expected a positive"),
        (lambda: d2ltvm.conv_reference(IMAGE, KERNEL, -1), "p is -1; expected an integer from 0"),
        (lambda: d2ltvm.conv_reference(IMAGE, KERNEL, 0.5), "p is 0.5; expected an integer"),
        (lambda: d2ltvm.conv_reference(IMAGE, KERNEL, (1, 1, 1)), "p is .*; expected a number, or"),
        (lambda: d2ltvm.conv_reference(IMAGE, KERNEL[:, :1]), r"x has shape .*; expected \(ic, nh"),
        (lambda: d2ltvm.conv_reference(IMAGE[0], KERNEL), r"x has shape .*; expected \(ic, nh"),
        (lambda: d2ltvm.conv_reference(IMAGE[:, :2], KERNEL), r"k is 3; expected at most n"),
        (lambda: d2ltvm.conv_gflop(0, 1, 4, 3, 1, 1), "oc is 0; expected a positive integer"),
        (
            lambda: d2ltvm.conv_pack(6, 4, 5, 5, 3, 3, 1, 1, 3, 0),
            "tic is 0; expected .* divides ic = 4",
        ),
    ],
)
def test_what_is_no_convolution_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_check_conv_says_what_it_checked(capsys):
    d2ltvm.check_conv(plain, [(4, 3, 9, 3, 1, 2)], "llvm")
    assert capsys.readouterr().out == "(4, 3, 9, 3, 1, 2): relative error under 1e-6: True\n"

    def doubled(*shape):
        X, K, Y = plain_tensors(*shape)
        return d2ltvm.schedule((X, K, te.compute(Y.shape, lambda *i: 2 * Y(*i), name="twice")))

    with pytest.raises(d2ltvm.WrongResultError):
        d2ltvm.check_conv(doubled, [(4, 3, 9, 3, 1, 1)], "llvm")
