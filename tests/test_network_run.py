"""`python -m d2ltvm run`: classes, times, pictures, and what it says of wrong ones."""

import json

import matplotlib.image
import numpy as np
import pytest

from d2ltvm import __main__
from d2ltvm.network import load, prepare, random_images, random_weights, reference
from d2ltvm.network.run import DEVIATIONS, MEANS, picture


@pytest.mark.slow
def test_it_prints_the_classes_and_the_time_of_each_layer(capsys):
    arguments = ["run", "mobilenet", "--batch", "2", "--size", "32"]
    assert __main__.main([*arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    net = load("mobilenet", 2, 32)
    weights, images = random_weights(net), random_images(2, 32)
    expected = reference.run(net, weights, images)[net.output.name]
    for classes, values, row in zip(said["classes"], said["values"], expected, strict=True):
        np.testing.assert_allclose(row[classes], values, rtol=1e-4)
        assert values == sorted(values, reverse=True) and classes[0] == row.argmax()
    fused, _ = prepare(net, weights)
    assert {node.name for node in fused if node.kind in ("Conv", "Dense")} <= set(said["layers"])
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
    ],
)
def test_what_cannot_be_run_is_one_line(capsys, arguments, said):
    assert __main__.main(["run", *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.startswith("python -m d2ltvm run: ")
    assert err.count("\n") == 1


def test_a_cut_off_picture_is_one_line(capsys, tmp_path):
    path = tmp_path / "cut.png"
    matplotlib.image.imsave(path, np.zeros((50, 50, 3)))
    path.write_bytes(path.read_bytes()[:60])
    assert __main__.main(["run", "resnet18", "--image", str(path)]) == 1
    assert "expected a file with a picture" in capsys.readouterr().err
