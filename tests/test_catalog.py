"""The kernels that pages run on their readers' GPUs, as far as that goes without a browser."""

import functools
import html
import json
import math
import re

import numpy as np
import pytest
import tvm
from tvm import te

import book
import d2ltvm
from d2ltvm import compute, schedules
from d2ltvm.compiler import cache, webgpu
from d2ltvm.compiler.verify import compare
from d2ltvm.compute import conv_batch
from d2ltvm.explore import cards, catalog, kernels, operations, scripts
from d2ltvm.explore.definition import definition, plain

pytestmark = pytest.mark.slow

ENGINE = scripts.Engine()
NAMES = list(catalog.BY_NAME)
launches = functools.cache(kernels.launches)  # several tests look at those of a kernel


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_is_within_what_webgpu_guarantees_at_each_size(name):
    told = launches(name)
    of = catalog.BY_NAME[name]
    for size in told["sizes"]:
        assert len(size["variants"]) == len(of.variants)
        for variant in size["variants"]:
            reference = size["references"][variant["reference"]]
            also = [reference["magnitudes"]["plain"]] if "magnitudes" in reference else []
            for launch in (variant["launch"], reference["plain"], *also):
                assert variant["launch"]["tensors"] == launch["tensors"]
                assert math.prod(launch["block"]) <= webgpu.MAX_THREADS
                assert launch["shared"] <= webgpu.MAX_SHARED
                assert sorted(launch["bindings"]) == sorted(t["name"] for t in launch["tensors"])
                assert f"@binding({len(launch['bindings'])}) var<uniform>" in launch["source"]
                assert not re.search(r"\b(__\w+|_)\b", launch["source"])  # which WGSL reserves
            # The page writes the inputs of one and reads the output of the other: the same tensors.
            inputs = [t["name"] for t in launch["tensors"] if not t["output"]]
            assert [given["name"] for given in reference["definition"]["inputs"]] == inputs


def changing_indices(source):
    """Accesses to an array of a thread, or to a part of a vector, by what is no number."""
    arrays = re.findall(r"^ +var (\w+) : array<", source, re.M)
    accesses = [*re.findall(rf"\b(?:{'|'.join(arrays)})\[([^\]]*\])", source)] if arrays else []
    parts = re.findall(r"\)\[([^\]]*\])", source)
    return [index for index in accesses + parts if not re.fullmatch(r"[\diu+ ]+\]", index)]


def test_an_index_that_changes_would_be_found():
    loops = "  var x : array<f32, 8>;\n  for (var k = 0i; k < 8i; k++) { x[(k * 2i)] = x[1i + 2]; }"
    assert changing_indices(loops) == ["(k * 2i)]"]
    assert changing_indices("a = (v)[k]; b = (v)[3]; tile[k] = 1.0;") == ["k]"]
    # Without UNROLL the loops over registers are loops.
    sch = schedules.matmul_tiled(64, 64, 64)
    before = webgpu.lower(webgpu.as_module(sch), webgpu._target()).source
    assert len(changing_indices(before)) >= 8


@pytest.mark.parametrize("name", NAMES)
def test_what_a_thread_keeps_can_be_in_registers(name):
    for size in launches(name)["sizes"]:
        for variant in size["variants"]:
            source = variant["launch"]["source"]
            assert changing_indices(source) == []
            assert len(source) <= webgpu.LONGEST_SOURCE


@pytest.mark.parametrize("name", NAMES)
def test_the_smallest_size_suits_a_processor_and_the_largest_a_gpu(name):
    smallest, *_, largest = [None, *launches(name)["sizes"]][1:] * 2
    for variant in smallest["variants"]:
        assert variant["flop"] <= 6e7 and variant["bytes"] <= 1e7
    for variant in largest["variants"]:
        assert variant["flop"] <= 1e10 and variant["bytes"] <= 2.1e8


def test_names_are_distinct_and_chapters_and_rivals_exist():
    assert len(NAMES) == len(catalog.KERNELS) >= 28
    chapters = {str(path.relative_to(book.ROOT / "book"))[:-6] for path in book.chapters()}
    for of in catalog.KERNELS:
        assert of.chapter in chapters
        assert len({variant.label for variant in of.variants}) == len(of.variants)
        if of.against:
            rival = catalog.BY_NAME[of.against]
            assert (rival.sizes, len(rival.variants)) == (of.sizes, 1) or of.name == "bcast_rows"


def test_every_kernel_has_a_card_or_a_rival_that_has_one():
    shown = {
        name
        for chapter in book.chapters()
        for cell in book.code_cells(book.read(chapter))
        for name in re.findall(r'explore\.run\("(\w+)"\)', cell.source)
    }
    rivals = {catalog.BY_NAME[name].against for name in shown}
    assert set(NAMES) == shown | (rivals - {""}) | {"launch"}  # which the ceilings need
    assert len(shown) >= 25


def test_a_record_is_the_books_in_the_cards_unit():
    told = kernels.shown("matmul_tiled")
    record = d2ltvm.load_record("matmul/steps")
    assert told["records"][0]["speed"] == pytest.approx(
        1e3 * record.at("register tiles", 4096), rel=1e-3
    )
    assert told["records"][0]["size"] == "n = 4,096"
    assert told["againstRecord"]["speed"] == pytest.approx(
        1e3 * record.at("shared tiles", 4096), rel=1e-3
    )
    us = d2ltvm.load_record("conv/steps").at("tiling", 64)
    gflops = d2ltvm.conv_gflop(64, 64, 64, 3, 1, 1) / us * 1e6
    (conv,) = kernels.shown("conv_tiling")["records"]
    assert (conv["speed"], conv["size"]) == (
        pytest.approx(gflops, rel=1e-3),
        "64 to 64 channels, 64 × 64",
    )
    threads = d2ltvm.load_record("vector_add/block_size").at("2^24", 32)
    assert kernels.shown("add_threads")["records"][0]["speed"] == pytest.approx(
        12 * 2**24 / threads / 1e3, rel=1e-3
    )


def hwcn(x, w):
    x, w = conv_batch.from_hwcn(x), conv_batch.from_hwcn(w)
    return conv_batch.to_hwcn(conv_batch.conv_batch_reference(x, w, 1, 2))


def normed(x, mean, var, gamma, beta):
    return (x - mean) / np.sqrt(var + 1e-5) * gamma + beta


def batch_norm_magnitude(x, mean, var, gamma, beta):
    return normed(abs(x), -abs(mean), var, abs(gamma), abs(beta))


def layer_norm_magnitude(x, gamma, beta):
    scale = abs(gamma) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    return (abs(x) + abs(x).mean(1, keepdims=True)) * scale + abs(beta)


COMPUTED = {
    "copy": ((7,), np.copy, 0),
    "every": ((5, 3), lambda a: a[::3], 0),
    "transpose": ((5,), np.transpose, 0),
    "add": ((9,), np.add, 1),
    "broadcast": ((6,), np.add, 1),
    "multiply-add": ((2, 4, 3, 64), lambda a: a * (2 - 0.5**64), 3),
    "product": ((4, 5, 6), np.matmul, 7),
    "convolution": ((4, 3, 7, 3, 1, 2), lambda x, k: d2ltvm.conv_reference(x, k, 1, 2), 28),
    "batch": ((3, 4, 5, 6, 3, 1, 2), hwcn, 46),
    "depthwise": (
        (2, 3, 5, 3, 1, 2), lambda x, k: compute.depthwise_nhwc_reference(x, k, 1, 2), 10,
    ),
    "pooling": ((2, 3, 7, 3, 1, 2), lambda x: compute.pool_nhwc_reference("max", x, 3, 1, 2), 0),
    "row sum": ((5, 7), lambda x: x.sum(1), 7),
    "softmax": ((5, 7), compute.softmax_reference, 188),
    "layer norm": ((5, 7), compute.layer_norm_reference, 46),
    "depthwise, channels first": (
        (3, 5, 3, 1, 2), lambda x, k: compute.depthwise_reference(x, k, 1, 2), 10,
    ),
    "pooling, channels first": (
        (3, 7, 3, 1, 2), lambda x: compute.pool_reference("max", x, 3, 1, 2), 0,
    ),
    "batch norm, channels first": ((3, 5), normed, 20),
    "batch norm": ((7, 3), lambda *given: np.maximum(normed(*given), 0), 20),
}  # fmt: skip
# What is added up, where that is not what the reference makes of magnitudes.
ADDED = {
    "layer norm": layer_norm_magnitude,
    "batch norm, channels first": batch_norm_magnitude,
    "batch norm": batch_norm_magnitude,
}


def drawn(given, rng, dtype):
    """Inputs as the page draws them: variances are positive."""
    return [
        (abs if each.get("positive") else np.asarray)(rng.standard_normal(each["shape"], dtype))
        for each in given
    ]


@pytest.mark.parametrize("name", operations.OPERATIONS)
def test_the_page_works_out_what_numpy_does(name):
    size, reference, terms = COMPUTED[name]
    operation = operations.OPERATIONS[name]
    told = operation.definition(**operation.named(size, {}))
    rng = np.random.default_rng(3)
    inputs = drawn(told["inputs"], rng, "float64")
    want, magnitudes = reference(*inputs), reference(*map(np.abs, inputs))
    indices = [list(map(int, index)) for index in np.ndindex(want.shape)]
    flat = [x.ravel().tolist() for x in inputs]
    found = ENGINE.call("workedOut", told, flat, indices)
    if name in ADDED:
        magnitudes, added = ADDED[name](*inputs), operation.magnitudes(*size)
        sums = ENGINE.call("workedOut", definition(added, terms), flat, indices)
        found = [[value, most] for (value, _), (most, _) in zip(found, sums, strict=True)]
    np.testing.assert_allclose([value for value, _ in found], want.ravel(), rtol=1e-12, atol=1e-12)
    if terms:  # elsewhere nothing is added up
        np.testing.assert_allclose([m for _, m in found], magnitudes.ravel(), rtol=1e-12)
    assert told["terms"] == terms


@pytest.mark.parametrize("name", operations.OPERATIONS)
def test_the_plain_kernel_is_right(name):
    size, reference, terms = COMPUTED[name]
    operation = operations.OPERATIONS[name]
    tensors, rng = operation.tensors(*size), np.random.default_rng(4)
    inputs = drawn(operation.definition(**operation.named(size, {}))["inputs"], rng, "float32")
    kernel = d2ltvm.build(plain(tensors))
    if name not in ADDED:
        d2ltvm.check(kernel, inputs, reference, terms=max(1, 2 * terms))
        return
    wide = [x.astype("float64") for x in inputs]
    want, most, got = reference(*wide), ADDED[name](*wide), np.full(kernel.params[-1].shape, np.nan)
    sums, got = got.astype("float32"), got.astype("float32")
    kernel(*inputs, got)
    compare(name, got, want, most, terms)
    d2ltvm.build(plain(operation.magnitudes(*size)))(*inputs, sums)
    compare(name, sums, most, most, terms)


def test_work_is_that_of_the_package():
    product, add = operations.OPERATIONS["product"], operations.OPERATIONS["add"]
    sizes = product.named((4, 5, 6), {})
    assert (product.flop(**sizes), product.bytes(**sizes)) == (240, 4 * (24 + 30 + 20))
    assert add.bytes(n=10) == 120
    every = operations.OPERATIONS["every"]
    assert every.named((8,), {"stride": 2, "nt": 64}) == {"n": 8, "stride": 2}


def test_what_is_not_known_of_a_computation_is_refused():
    A = te.placeholder((4,), name="A")
    with pytest.raises(ValueError, match="expected sums, products and conditions"):
        definition((A, te.compute((4,), lambda i: te.exp(A[i]), name="C")))
    powers = (A, te.compute((4,), lambda i: tvm.tirx.exp2(A[i]), name="C"))
    with pytest.raises(ValueError, match="exp2 is in the computation; expected terms"):
        definition(powers)
    assert definition(powers, 7)["terms"] == 7
    root = (A, te.compute((4,), lambda i: te.rsqrt(te.abs(A[i])), name="C"))
    with pytest.raises(ValueError, match="rsqrt is in the computation; expected terms"):
        definition(root)
    assert definition(root, 7)["stages"][0]["value"] == ["rsqrt", ["abs", ["at", 0, ["i", 0]]]]
    k = te.reduce_axis((0, 4), name="k")
    with pytest.raises(ValueError, match="C reduces by Min; expected a sum or the largest"):
        definition((A, te.compute((1,), lambda i: te.min(A[k], axis=k), name="C")))
    with pytest.raises(ValueError, match="A is not computed from the others"):
        definition((te.placeholder((4,), name="B"), A))


def test_scripts_are_written_once_and_others_removed(tmp_path, monkeypatch):
    few = tuple(catalog.BY_NAME[name] for name in ("add_one", "launch"))
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(kernels, "KERNELS", few)
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "gone.js").write_text("")
    written = kernels.write(folder)
    assert sorted(folder.iterdir()) == sorted(written)
    text = written[0].read_text()
    start = '(self.d2lKernels = self.d2lKernels || {})["add_one"] = '
    assert text.startswith(start) and text.endswith(";\n")
    assert json.loads(text[len(start) : -2]) == json.loads(json.dumps(kernels.launches("add_one")))
    monkeypatch.setattr(kernels, "launches", lambda name: pytest.fail("compiled again"))
    kernels.write(folder)


def test_a_card_says_what_it_asks_and_what_the_book_measured():
    card = d2ltvm.explore.run("matmul_coalesced")
    assert repr(card) == "Run it on your GPU: Product, coalesced."
    for said in (
        "How many times as fast as",
        "NVIDIA H200",
        "6.59 TFLOPS",
        "WebGPU guarantees 256",
    ):
        assert said in card.markup
    assert set(card.kernels) == {"matmul_naive", "matmul_coalesced", *cards.CEILINGS}
    assert "Which is the fastest" in d2ltvm.explore.run("add_threads").markup
    assert "What share of the bandwidth" in d2ltvm.explore.run("add_one").markup
    assert "NVIDIA H200" in d2ltvm.explore.your_gpu().markup


OWN = {
    "copy": lambda: schedules.copy_unrolled(1000),
    "add": lambda: schedules.partitioned(1003),
    "broadcast": lambda: schedules.bcast_rows(64),
    "product": lambda: schedules.matmul_tiled(130, 75, 33),
    "convolution": lambda: schedules.vthread(17, 5, 21, 3, 1, 1),
}


@pytest.mark.parametrize("name", OWN)
def test_a_schedule_in_hand_gets_a_card_with_its_own_shader(name):
    sch = OWN[name]()
    card = d2ltvm.explore.run(sch)
    told = json.loads(html.unescape(re.search('data-own="([^"]*)"', card.markup)[1]))
    (size,) = told["sizes"]
    (variant,) = size["variants"]
    assert variant["launch"]["source"] == webgpu.wgsl(sch).source
    assert f"your kernel, {size['label']}" in repr(card)
    if name == "product":
        assert variant["flop"] == 2 * 130 * 75 * 33
        assert variant["bytes"] == 4 * (130 * 33 + 33 * 75 + 130 * 75)


def test_what_cannot_be_run_is_refused_in_one_line():
    with pytest.raises(ValueError, match=r"is 'matmul'; expected one of first_kernel, copy_"):
        d2ltvm.explore.run("matmul")
    with pytest.raises(ValueError, match=r"expected the tensors beside it"):
        d2ltvm.explore.run(schedules.hwcn_blocks(64, 64, 8, 4, 3, 1, 1))
    with pytest.raises(ValueError, match=r"tensors have the shapes .*expected those of the kernel"):
        d2ltvm.explore.run(schedules.matmul_tiled(64, 64, 64), d2ltvm.matmul(64, 64, 32))
    with pytest.raises(TypeError, match="sch is a int"):
        d2ltvm.explore.run(3)
    tensors = d2ltvm.compute.conv_hwcn(64, 64, 8, 4, 3, 1, 1)[:3]
    card = d2ltvm.explore.run(schedules.hwcn_blocks(64, 64, 8, 4, 3, 1, 1), tensors)
    assert "GFLOPS" in card.markup or "multiply-adds" in card.markup
