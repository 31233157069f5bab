"""Kernels that pytest forks are as those that Jupyter starts."""

import os
import sys
from pathlib import Path

import forked_kernels
import pytest
from jupyter_client.manager import start_new_kernel

from d2ltvm.system import toolchain

ASKED = """
import os, sys
ours = sorted(name for name in sys.modules if name.split(".")[0] in ("d2ltvm", "book"))
print(
    os.getsid(0) == os.getpid(), os.getcwd(), "matplotlib.pyplot" in sys.modules, ours,
    os.environ.get("TOLD"), __import__("matplotlib").get_backend(),
    [folder for folder in sys.path if folder.endswith(("tests", "tools"))], sep="|",
)
os.system("echo from a child")
"""


def answers(env, tmp_path):
    """What a kernel prints, and its process."""
    manager, client = start_new_kernel(env=env, cwd=str(tmp_path))
    try:
        said = []
        client.execute_interactive(
            ASKED, timeout=60, output_hook=lambda m: said.append(m["content"].get("text", ""))
        )
        return "".join(said).splitlines(), manager.provisioner.process
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("forked", [True, False])
def test_a_kernel(forked, tmp_path):
    env = {**forked_kernels.STARTED, "TOLD": "so"}
    env |= {} if forked else {"OMP_NUM_THREADS": "3"}
    (said, child), process = answers(env, tmp_path)
    backend = "module://matplotlib_inline.backend_inline"
    assert said == f"True|{tmp_path}|{forked}|[]|so|{backend}|[]"
    assert child == "from a child"
    assert isinstance(process, forked_kernels.ForkedKernel) == forked
    assert process.poll() is not None


def test_what_earlier_tests_left_keeps_no_kernel_from_being_forked(monkeypatch):
    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "3")
    monkeypatch.setitem(os.environ, "PYTHONPATH", "elsewhere")
    monkeypatch.setitem(os.environ, "D2LTVM_TOLD", "so")
    monkeypatch.delitem(forked_kernels.STARTED, "OMP_NUM_THREADS", raising=False)
    found = forked_kernels.environment()
    assert "OMP_NUM_THREADS" not in found and found["D2LTVM_TOLD"] == "so"
    assert found["PYTHONPATH"] == forked_kernels.STARTED["PYTHONPATH"]
    command = [sys.executable, "-m", "ipykernel_launcher", "--version"]
    assert isinstance(forked_kernels.launch(command, env=found), forked_kernels.ForkedKernel)


def test_another_command_is_started(tmp_path):
    process = forked_kernels.launch([sys.executable, "-c", "raise SystemExit(7)"])
    assert process.wait() == 7


def test_what_kernels_are_copied_from_starts_no_cuda():
    told = Path(f"/proc/{forked_kernels._server().pid}/environ").read_text().split("\0")
    assert all(f"{name}={value}" in told for name, value in toolchain.FORKS.items())
