"""Makes a bare `pytest --nbval` work: the package is found, and kernels start as in Jupyter."""

import contextlib
import functools
import gc
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import jupyter_client.manager
import pytest
from jupyter_client.provisioning import local_provisioner

# jsonschema, which reads notebooks, takes 2 s to import it, for a format that no notebook has.
sys.modules.setdefault("rfc3987_syntax", None)

ROOT = Path(__file__).resolve().parent
gc.disable()  # while modules are imported: see `pytest_collection`
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
)

# A second thread of OpenBLAS spins for some 30 ms behind each product, while other tests would run.
# NumPy reads this when it is imported; the kernels of notebooks, and other processes, are not told.
with pytest.MonkeyPatch.context() as _patch:
    _patch.setenv("OPENBLAS_NUM_THREADS", os.environ.get("OPENBLAS_NUM_THREADS", "1"))
    import numpy  # noqa: F401

import forked_kernels  # noqa: E402

_start = jupyter_client.manager.KernelManager.start_kernel


@functools.cache
def _measuring():
    """What notebooks measure: on another GPU than an H200 they show what was measured on one.

    What pages say of measurements is compared, and holds on the GPU that it is said of. Kernels run
    and are checked on any GPU. With D2LTVM_RECORD=0, all is measured. On an H200 all is measured
    too, in two rounds: times are not compared.
    """
    if not (program := shutil.which("nvidia-smi")):
        return {}
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    names = subprocess.run(command, capture_output=True, text=True).stdout
    return {"D2LTVM_ROUNDS": "2"} if "H200" in names else {"D2LTVM_RECORD": "none"}


def _start_without_pytest(self, **arguments):
    """Start a notebook's kernel without PYTEST_CURRENT_TEST in its environment.

    Where ipykernel sees that variable it leaves the output of C code alone, so that TVM's warnings
    and those of child processes would be missing from what nbval compares.
    """
    environment = {**_measuring(), **(arguments.pop("env", None) or forked_kernels.environment())}
    environment.pop("PYTEST_CURRENT_TEST", None)
    return _start(self, env=environment, **arguments)


jupyter_client.manager.KernelManager.start_kernel = _start_without_pytest
local_provisioner.launch_kernel = forked_kernels.launch


def pytest_collection_modifyitems(items):
    """Mark as slow what `make quick` leaves out of tests with the mark `quick(n)`: all but n cases.

    Those it keeps are spread over the cases of a test, without those skipped for want of a GPU.
    """
    cases = {}
    for item in items:
        if item.get_closest_marker("quick") and not any(
            mark.args[0] for mark in item.iter_markers("skipif")
        ):
            cases.setdefault((item.path, item.originalname), []).append(item)
    for some in cases.values():
        kept = some[0].get_closest_marker("quick").args[0]
        for k, item in enumerate(some):
            if k and k * kept // len(some) == (k - 1) * kept // len(some):
                item.add_marker("slow")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is there when tests begin stays: the garbage collector need not look at it each time.

    TVM's IR is many small objects, and hardly any of them is garbage: it looks less often, too. A
    process that only deals tests out to others collects none, and comes by here all the same.
    """
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000)
        gc.enable()


def _lacking():
    """Packages of requirements.txt that are not installed."""
    for name in re.findall(r"^([\w-]+)==", (ROOT / "requirements.txt").read_text(), re.MULTILINE):
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            yield name


LACKING = tuple(_lacking())


@contextlib.contextmanager
def _skipping():
    """Skip what this machine lacks something for, unless all of requirements.txt is installed."""
    from d2ltvm.errors import MissingError

    try:
        yield
    except MissingError as error:
        if not LACKING:
            raise
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    with _skipping():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    with _skipping():
        return (yield)


# For tests that start a process which needs something; others skip when they ask for it.


@pytest.fixture
def opencl():
    from d2ltvm.system import devices

    return devices.opencl_device()


@pytest.fixture
def device():
    """The target of kernels that are told none."""
    from d2ltvm.system import devices

    return devices.as_target(None)


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Two servers on the processor, for the tests of a module that leave them alive."""
    from d2ltvm import fleet

    with fleet.up(cpus=2, folder=tmp_path_factory.mktemp("fleet")) as found:
        yield found


@pytest.fixture
def no_fleet_of_others(monkeypatch, tmp_path):
    """What is up on this machine is none of a test's business."""
    monkeypatch.delenv("D2LTVM_FLEET", raising=False)
    monkeypatch.setenv("D2LTVM_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def mxnet():
    from d2ltvm.bench import libraries

    return libraries.mxnet()
