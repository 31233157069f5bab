"""`python -m d2ltvm run --target cuda`, with emulated kernels in place of a GPU."""

import json
import pickle
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest
import tvm
from test_network_on_hopper import BLOCK, rounded, some_weights
from test_relax_program import emulated

import d2ltvm
from d2ltvm import __main__
from d2ltvm.bench.timing import Timing
from d2ltvm.errors import MissingError
from d2ltvm.network import graph, launching, on_hopper, reference, run_on_hopper
from d2ltvm.network.hopper_kernels import MaxPool, MeanPool
from d2ltvm.system import colab, devices

WEIGHTS = some_weights(BLOCK)
KERNELS = [MeanPool((1, 7, 7, 8)), MaxPool((1, 8, 8, 8), (2, 2), (2, 2), (0, 0))]


class Emulated:
    """`launching.OnGpu` without a GPU."""

    def __init__(self, program, functions):
        assert set(functions) == set(program.kernels)
        self.program, self.steps = program, program.steps
        self.launches = [self.launch] * len(program.steps)

    def launch(self):
        pass

    def __call__(self, images):
        assert images.dtype == np.float16 and images.flags["C_CONTIGUOUS"]
        return on_hopper.run(self.program, images, d2ltvm.emulate).astype("float32")


@pytest.fixture
def hopper(monkeypatch):
    """A Hopper GPU as far as the command can see."""
    images = np.random.default_rng(1).standard_normal(BLOCK.input.size).astype("float32")
    for owner, name, seen in (
        (devices, "need_cuda", lambda *_: None),
        (devices, "need_hopper", lambda: None),
        (devices, "describe_device", lambda: {"name": "a GPU"}),
        (run_on_hopper, "torch_cuda", lambda: None),
        (run_on_hopper, "prepared", lambda *_: (BLOCK, WEIGHTS, images)),
        (run_on_hopper, "compiled", lambda kernels: dict.fromkeys(kernels)),
        (launching, "OnGpu", Emulated),
        (run_on_hopper, "time_together", timed),
    ):
        monkeypatch.setattr(owner, name, seen)
    return images


def timed(runs, clock, rounds=7):
    assert clock in ("burst", "graph")
    return {name: Timing(2e-6, 1e-6, 3e-6) for name in runs}


COMMAND = ["run", "resnet50", "--batch", "2", "--target", "cuda"]


@pytest.mark.slow
def test_classes_times_and_bytes(hopper, capsys):
    assert __main__.main([*COMMAND, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    expected = reference.run(BLOCK, rounded(WEIGHTS), hopper.astype("float16"))["dense"]
    tolerance = 6 * 2**-11 * abs(expected).max()  # six layers round to float16
    for classes, values, row in zip(said["classes"], said["values"], expected, strict=True):
        np.testing.assert_allclose(values, row[classes], atol=tolerance)
        assert row[classes[0]] >= row.max() - 2 * tolerance
    assert (said["device"], said["dtype"]) == ("a GPU", "float16")
    program = on_hopper.program(BLOCK, WEIGHTS)
    assert said["layers"] == pytest.approx(  # the stem is copied first: two launches
        {step.node: 2e-6 * [s.node for s in program.steps].count(step.node)
         for step in program.steps}
    )  # fmt: skip
    memory = said["bytes"]
    assert memory["images"] == 2 * hopper.size
    assert memory["images"] + memory["results"] == program.places()[1]
    assert memory["results"] < memory["unshared"]


@pytest.mark.slow
def test_the_table_says_microseconds(hopper, capsys):
    assert __main__.main(COMMAND) == 0
    said = capsys.readouterr().out
    assert "float16, on a GPU" in said and run_on_hopper.REMARK in said
    (row,) = [line for line in said.splitlines() if line.startswith("narrow")]
    flop = 2 * BLOCK.multiply_adds()["narrow"]
    assert row.split()[-3] == "2.000" and row.split()[-1] == f"{flop / 2e-6 / 1e12:.1f}"


@pytest.mark.slow
def test_by_relax_the_memory_is_tvms_plan(hopper, monkeypatch, capsys):
    def functions(kernels):
        return {kernel: emulated(kernel) for kernel in kernels}

    monkeypatch.setattr(run_on_hopper, "compiled", functions)
    monkeypatch.setattr(tvm, "cuda", tvm.cpu)  # where its machine calls the emulated kernels
    said = {}
    for by in run_on_hopper.BY:
        assert __main__.main([*COMMAND, "--by", by, "--json"]) == 0
        said[by] = json.loads(capsys.readouterr().out)
    launches, relax = said.values()
    assert relax["values"] == launches["values"] and relax["classes"] == launches["classes"]
    images, together = relax["bytes"]["images"], on_hopper.program(BLOCK, WEIGHTS).places()[1]
    assert relax["bytes"]["results"] != together - images  # of another plan
    assert relax["bytes"]["results"] < relax["bytes"]["unshared"]
    with pytest.raises(ValueError, match="by is 'hand'; expected 'launches' or 'relax'"):
        run_on_hopper.run("resnet50", by="hand")


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        (None, "no NVIDIA driver; "),
        ((550, 54), "the NVIDIA driver is 550.54, and CUDA 13 wants 580 or newer; "),
        ((580, 1), "the driver is there, but TVM sees no GPU; "),
    ],
)
def test_without_a_gpu_it_is_one_line(monkeypatch, capsys, driver, said):
    monkeypatch.setattr(devices, "has_cuda", lambda: False)
    monkeypatch.setattr(colab, "hidden", lambda: False)
    monkeypatch.setattr(devices, "driver_version", lambda: driver)
    assert_refused(capsys, said)


def test_another_gpu_or_no_pytorch_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(devices, "has_cuda", lambda: True)
    monkeypatch.setattr(devices, "capability", lambda: (8, 0))
    assert_refused(capsys, "this GPU has no wgmma and no TMA; ")
    monkeypatch.setattr(devices, "capability", lambda: (9, 0))
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    assert_refused(capsys, "PyTorch is not installed; ")


def test_a_network_without_kernels_is_one_line(hopper, monkeypatch, capsys):
    conv = graph.Conv2d("conv", ("data",), filters=16, kernel=(3, 3), weight="w", groups=2)
    fused = graph.Network("pairs", (graph.Input("data", size=(1, 16, 8, 8)), conv))
    weights = d2ltvm.network.random_weights(fused)
    monkeypatch.setattr(run_on_hopper, "prepared", lambda *_: (fused, weights, None))
    assert_refused(capsys, "groups is 2; expected 1, or one for each channel")


def assert_refused(capsys, said):
    assert __main__.main(COMMAND) == 1
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.startswith("python -m d2ltvm run: ")
    assert err.count("\n") == 1


class AtOnce:
    """A pool whose work is done when it is given."""

    def __init__(self):
        self.given, self.ended = [], False

    def submit(self, function, *arguments):
        self.given.append(arguments[0])
        future = Future()
        try:
            future.set_result(function(*arguments))
        except MissingError as error:
            future.set_exception(pickle.loads(pickle.dumps(error)))  # as from another process
        return future

    def shutdown(self, **_):
        self.ended = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def pool(monkeypatch, tmp_path):
    monkeypatch.setenv("D2LTVM_CACHE_DIR", str(tmp_path))
    found = AtOnce()
    monkeypatch.setattr(launching, "processes", lambda: found)
    monkeypatch.setattr(launching, "load_library", lambda path: Path(path).read_bytes())
    return found


def test_a_kernel_is_compiled_once(monkeypatch, pool):
    monkeypatch.setattr(launching, "_exported", lambda kernel: str(kernel).encode())
    expected = {kernel: str(kernel).encode() for kernel in KERNELS}
    assert run_on_hopper.compiled(KERNELS) == expected
    assert pool.given == KERNELS
    assert run_on_hopper.compiled(KERNELS) == expected
    assert pool.given == KERNELS, "what is kept needs no process"
    monkeypatch.setattr(devices, "driver_version", lambda: (999,))
    run_on_hopper.compiled(KERNELS)
    assert pool.given == 2 * KERNELS, "another driver loads other libraries"


def test_without_a_linker_it_is_one_line(monkeypatch, pool):
    from tvm.support import cc

    monkeypatch.setattr(cc, "get_cc", lambda: None)
    with pytest.raises(MissingError, match=r"there is no C\+\+ compiler; .* install g\+\+"):
        run_on_hopper.compiled(KERNELS)
    assert pool.ended


def test_a_library_is_a_shared_object(pool):
    """Linked here, too; without a driver it holds source."""
    function = run_on_hopper.compiled(KERNELS[:1])[KERNELS[0]]
    assert function[:4] == b"\x7fELF"
