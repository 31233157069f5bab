"""What the machine has, and what is said where it has not."""

import subprocess
import sys
import types

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
        d2ltvm.system.as_target("cuda")


def test_a_gpu_that_is_hidden_is_called_hidden(monkeypatch):
    monkeypatch.setenv("D2LTVM_NO_CUDA", "1")
    with pytest.raises(d2ltvm.MissingError, match="hidden by D2LTVM_NO_CUDA"):
        d2ltvm.system.as_target("cuda")
    assert devices.default_target() == "opencl"


def test_without_pocl_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyopencl", None)  # makes the import fail
    devices._opened_opencl_device.cache_clear()
    with pytest.raises(d2ltvm.MissingError, match="pip install pyopencl pocl-binary-distribution"):
        d2ltvm.system.as_target("opencl")
    assert not devices.has_opencl()
    devices._opened_opencl_device.cache_clear()


def test_targets():
    assert d2ltvm.system.as_target("sm_80").kind.name == "cuda"
    assert str(d2ltvm.system.as_target("sm_90a").arch) == "sm_90a"
    assert d2ltvm.system.as_target("llvm").kind.name == "llvm"
    target = d2ltvm.system.as_target("sm_75")
    assert d2ltvm.system.as_target(target) is target


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


def test_without_a_gpu_nothing_is_reported(monkeypatch):
    monkeypatch.setenv("D2LTVM_NO_CUDA", "1")
    assert devices.reported() is None and devices.capability() is None


def test_what_a_gpu_reports(monkeypatch):
    """Units are the data sheet's: TVM gives bytes and kHz."""
    gpu = types.SimpleNamespace(
        exist=True, device_name="NVIDIA H200", compute_version="9.0", multi_processor_count=132,
        l2_cache_size_bytes=60 * 2**20, max_clock_rate=1_980_000,
    )  # fmt: skip
    monkeypatch.setattr(devices, "has_cuda", lambda: True)
    monkeypatch.setattr(devices.tvm, "cuda", lambda index: gpu)
    monkeypatch.setattr(devices, "driver_version", lambda: (580, 159, 4))
    monkeypatch.setattr(devices, "_cuda_version", lambda: "13.0")
    assert devices.reported() == devices.Reported("NVIDIA H200", "sm_90", 132, 60, 1.98)
    described = devices.describe_device()
    assert described["name"] == "NVIDIA H200" and described["driver"] == "580.159.04"
