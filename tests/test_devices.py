"""What the machine has, and what is said where it has not."""

import subprocess
import sys

import pytest

import d2ltvm
from d2ltvm.system import devices


@pytest.mark.parametrize(
    ("version", "shown"),
    [((550, 54, 15), "550.54.15"), ((575, 57), "575.57"), ((535, 104, 5), "535.104.05")],
)
def test_a_driver_older_than_cuda_13_wants(version, shown):
    problem = devices.driver_problem(version)
    assert problem == f"the NVIDIA driver is {shown}, and CUDA 13 wants 580 or newer"


def test_drivers_that_are_new_enough_and_none():
    assert devices.driver_problem((580, 65, 6)) is None
    assert devices.driver_problem((590,)) is None
    assert devices.driver_problem(None) == "no NVIDIA driver"


def test_a_target_that_wants_a_gpu_says_what_is_wrong_with_the_driver(monkeypatch):
    monkeypatch.setattr(devices, "has_cuda", lambda: False)
    monkeypatch.setattr(devices, "driver_version", lambda: (550, 54, 15))
    with pytest.raises(d2ltvm.MissingError, match=r"550\.54\.15.*580.*what still works: .*opencl"):
        d2ltvm.as_target("cuda")


def test_a_gpu_that_is_hidden_is_called_hidden(monkeypatch):
    monkeypatch.setenv("D2LTVM_NO_CUDA", "1")
    devices.has_cuda.cache_clear()
    with pytest.raises(d2ltvm.MissingError, match="hidden by D2LTVM_NO_CUDA"):
        d2ltvm.as_target("cuda")
    assert devices.default_target() == "opencl"
    devices.has_cuda.cache_clear()


def test_without_pocl_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyopencl", None)  # makes the import fail
    devices.opencl_device.cache_clear()
    with pytest.raises(d2ltvm.MissingError, match="pip install pyopencl pocl-binary-distribution"):
        d2ltvm.as_target("opencl")
    assert not devices.has_opencl()
    devices.opencl_device.cache_clear()


def test_targets():
    assert d2ltvm.as_target("sm_80").kind.name == "cuda"
    assert str(d2ltvm.as_target("sm_90a").arch) == "sm_90a"
    assert d2ltvm.as_target("llvm").kind.name == "llvm"
    target = d2ltvm.as_target("sm_75")
    assert d2ltvm.as_target(target) is target


def test_importing_the_package_loads_neither_tvm_nor_numpy():
    code = (
        "import sys, d2ltvm; d2ltvm.__version__;"
        "loaded = {'tvm', 'numpy', 'matplotlib'} & set(sys.modules); assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_everything_the_package_promises_is_there():
    for name in dir(d2ltvm):
        assert getattr(d2ltvm, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = d2ltvm.nothing
