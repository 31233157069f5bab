"""Makes a bare `pytest --nbval` work: the package is found, and kernels start as in Jupyter."""

import os
import sys
from pathlib import Path

import jupyter_client.manager

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
)

_start = jupyter_client.manager.KernelManager.start_kernel


def _start_without_pytest(self, **arguments):
    """Start a notebook's kernel without PYTEST_CURRENT_TEST in its environment.

    Where ipykernel sees that variable it leaves the output of C code alone, so that TVM's warnings
    and those of child processes would be missing from what nbval compares.
    """
    environment = {**(arguments.pop("env", None) or os.environ)}
    environment.pop("PYTEST_CURRENT_TEST", None)
    return _start(self, env=environment, **arguments)


jupyter_client.manager.KernelManager.start_kernel = _start_without_pytest
