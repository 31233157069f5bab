"""`python -m d2ltvm run`: classes, times, pictures, and what it says of wrong ones."""

import json
import os

import matplotlib.figure
import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_hex

import d2ltvm.network.run as command
from d2ltvm import __main__
from d2ltvm.bench.timing import Timing
from d2ltvm.errors import MissingError
from d2ltvm.figures import COLOURS
from d2ltvm.network import (
    graph,
    load,
    prepare,
    random_images,
    random_weights,
    reference,
    report,
    run_on_hopper,
)
from d2ltvm.network.run import DEVIATIONS, MEANS, picture
from d2ltvm.system import devices


@pytest.mark.slow
def test_it_prints_the_classes_and_the_time_of_each_layer(capsys):
    arguments = ["run", "mobilenet", "--batch", "2", "--size", "32", "--target", "llvm"]
    assert __main__.main([*arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    net = load("mobilenet", 2, 32)
    weights, images = random_weights(net), random_images(2, 32)
    expected = reference.run(net, weights, images)[net.output.name]
    for classes, values, row in zip(said["classes"], said["values"], expected, strict=True):
        np.testing.assert_allclose(row[classes], values, rtol=1e-4)
        assert values == sorted(values, reverse=True) and classes[0] == row.argmax()
    fused, _ = prepare(net, weights)
    assert {node.name for node in fused if node.kind in ("Conv2d", "Dense")} <= set(said["layers"])
    memory = said["bytes"]
    assert memory["images"] == images.nbytes and memory["results"] < memory["unshared"] / 2
    largest = max(np.prod(fused.shapes[node.name]) for node in fused) * 4
    assert memory["results"] >= largest and memory["weights"] >= sum(
        4 * np.prod(shape) for shape in fused.parameters.values()
    )
    assert memory["peak"] == memory["images"] + memory["weights"] + memory["results"]
    assert said["seconds"]["low"] <= said["seconds"]["median"] <= said["seconds"]["high"]


def test_a_picture_is_its_middle_square(tmp_path):
    pixels = np.zeros((40, 100, 3))
    pixels[:, 30:70] = (1.0, 0.5, 0.0)
    path = tmp_path / "picture.png"
    matplotlib.image.imsave(path, pixels)
    images = picture(str(path), 2, 32)
    assert images.shape == (2, 3, 32, 32) and images.dtype == np.float32
    for channel, value in enumerate((1.0, 0.5, 0.0)):
        expected = (value - MEANS[channel]) / DEVIATIONS[channel]
        np.testing.assert_allclose(images[:, channel], expected, atol=0.02)


def test_a_grey_picture_has_three_channels(tmp_path):
    path = tmp_path / "grey.npy.png"
    matplotlib.image.imsave(path, np.full((20, 20), 0.3), cmap="gray", vmin=0, vmax=1)
    assert picture(str(path), 1, 16).shape == (1, 3, 16, 16)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["resnet51"], "name is 'resnet51'; expected one of resnet18, "),
        (["resnet18", "--batch", "0"], "batch is 0; expected a positive integer"),
        (["resnet18", "--size", "16"], "size is 16; expected at least 32"),
        (["resnet18", "--image", "no.png"], "No such file or directory: 'no.png'"),
        (["resnet18", "--image", __file__], "expected a file with a picture"),
        (["resnet18", "--picture", "a.jpg"], "picture is 'a.jpg'; expected a name with .png or "),
        (["resnet18", "--picture", "png"], "picture is 'png'; expected a name with .png or .svg"),
        (["resnet18", "--picture", "no/a.png"], "No such file or directory: "),
    ],
)
def test_what_cannot_be_run_is_one_line(capsys, arguments, said):
    assert __main__.main(["run", *arguments, "--target", "llvm"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.startswith("python -m d2ltvm run: ")
    assert err.count("\n") == 1


def test_a_cut_off_picture_is_one_line(capsys, tmp_path):
    path = tmp_path / "cut.png"
    matplotlib.image.imsave(path, np.zeros((50, 50, 3)))
    path.write_bytes(path.read_bytes()[:60])
    assert __main__.main(["run", "resnet18", "--image", str(path), "--target", "llvm"]) == 1
    assert "expected a file with a picture" in capsys.readouterr().err


SMALL = graph.Network(
    "small",
    (
        graph.Input("data", size=(2, 3, 32, 32)),
        graph.Conv2d("conv", ("data",), filters=8, kernel=(1, 1), weight="w"),
        graph.Conv2d("deep", ("conv",), filters=8, kernel=(1, 1), groups=8, weight="v"),
        graph.GlobalAvgPool("pool", ("deep",)),
        graph.Flatten("flat", ("pool",)),
        graph.Dense("dense", ("flat",), units=4, weight="u"),
    ),
)
SECONDS = {"conv": 2e-3, "deep": 1e-3, "pool": 4e-6, "dense": 0.1234}
MEMORY = {"images": 1, "weights": 2, "results": 3, "unshared": 4}


def found(dtype="float32", remark=""):
    timing = Timing(0.1, 0.09, 0.11)
    return report.NetworkRun(
        SMALL, "a machine", dtype, [[1], [0]], [[2.0], [1.0]], timing, SECONDS, MEMORY, remark
    )


@pytest.fixture
def ran(monkeypatch):
    """The targets that the command took, whose runs take no time; a machine without a Hopper."""
    seen = []
    monkeypatch.setattr(command, "run", lambda *_: seen.append("llvm") or found())
    monkeypatch.setattr(run_on_hopper, "run", lambda *_, **__: seen.append("cuda") or found())
    monkeypatch.setattr(devices, "has_hopper", lambda: False)
    return seen


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_picture_has_a_bar_for_each_layer(monkeypatch, dtype):
    (figures, save) = ([], matplotlib.figure.Figure.savefig)

    def watched(figure, *arguments, **options):
        figures.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", watched)
    assert report.drawn(found(dtype, "a remark"), ".PNG").startswith(b"\x89PNG")
    (figure,) = figures
    (axes,) = figure.axes
    per = {"float32": 1e3, "float16": 1e6}[dtype]
    assert [bar.get_width() for bar in axes.patches] == [per * s for s in SECONDS.values()]
    colours = [to_hex(bar.get_facecolor()).upper() for bar in axes.patches]
    assert colours == [COLOURS[k] for k in (0, 5, 1, 2)], "one for each kind"
    labels = axes.get_yticklabels()
    assert [label.get_text() for label in labels] == list(SECONDS)
    heights = [label.get_window_extent().y0 for label in labels]
    assert heights == sorted(heights, reverse=True), "the first layer is at the top"
    texts = [text.get_text() for text in figure.findobj(matplotlib.text.Text)]
    said = {"float32": ["2", "1", "0.004", "123"], "float16": ["2,000", "1,000", "4", "123,400"]}
    assert [text.get_text() for text in axes.texts] == said[dtype]
    assert axes.get_xlabel() == f"time of a layer, {'ms' if per == 1e3 else 'µs'}; their sum is " \
        "126.40 ms"  # fmt: skip
    assert f"small, 2 images of 32 x 32, {dtype}: 100.00 ms as a whole\non a machine" in texts
    kinds = ["convolution", "depthwise convolution", "mean", "dense layer"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == kinds
    assert "a remark" in texts


@pytest.mark.parametrize(("name", "begins"), [("a.png", b"\x89PNG"), ("b.SVG", b"<?xml")])
def test_the_command_draws(ran, tmp_path, capsys, name, begins):
    assert __main__.main(["run", "resnet18", "--picture", str(tmp_path / name), "--json"]) == 0
    assert (tmp_path / name).read_bytes().startswith(begins)
    assert os.listdir(tmp_path) == [name]
    assert json.loads(capsys.readouterr().out)["layers"] == SECONDS


def test_a_picture_that_cannot_be_written_leaves_nothing_and_the_table_is_there(
    ran, tmp_path, capsys, monkeypatch
):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert __main__.main(["run", "resnet18", "--picture", str(tmp_path / "a.png")]) == 1
    out, err = capsys.readouterr()
    assert os.listdir(tmp_path) == [] and "all layers" in out
    assert err == "python -m d2ltvm run: [Errno 28] No space left on device\n"


def test_a_picture_of_no_kind_is_refused_before_anything_runs(ran, capsys):
    assert __main__.main(["run", "resnet18", "--picture", "a.pdf"]) == 1
    assert ran == [] and capsys.readouterr().err.count("\n") == 1


def test_the_target_is_what_the_machine_has_and_is_said(ran, capsys, monkeypatch):
    def line(*arguments):
        assert __main__.main(["run", "resnet18", *arguments]) == 0
        return capsys.readouterr().out.splitlines()[0]

    assert line().startswith("This ran on the processor: no H100 or H200 is found. --target cuda ")
    assert line("--target", "cuda").startswith("small, 2 x 32 x 32")
    monkeypatch.setattr(devices, "has_hopper", lambda: True)
    assert line() == "This ran on the GPU; --target llvm chooses the processor."
    assert line("--target", "llvm").startswith("small, 2 x 32 x 32")
    assert ran == ["llvm", "cuda", "cuda", "llvm"]
    assert __main__.main(["run", "resnet18", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["target"] == "cuda"


def test_what_the_gpu_lacks_says_how_to_do_without_it(ran, capsys, monkeypatch):
    def lacking(*_, **__):
        raise MissingError("PyTorch is not installed", "every kernel", "pip install torch")

    monkeypatch.setattr(run_on_hopper, "run", lacking)
    monkeypatch.setattr(devices, "has_hopper", lambda: True)
    for arguments, ending in (([], True), (["--target", "cuda"], False)):
        assert __main__.main(["run", "resnet18", *arguments]) == 1
        said = capsys.readouterr().err
        assert said.endswith("; --target llvm chooses the processor\n") == ending
        assert "PyTorch is not installed" in said and said.count("\n") == 1
