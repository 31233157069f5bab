"""Kernels of notebooks under pytest, forked from a process that has imported TVM and Matplotlib.

To start IPython's kernel and to import these costs a chapter two seconds of processor time, and the
book has over sixty chapters. So each process of pytest has one other process do that once, and a
kernel is a copy of it. Nothing of this package is imported there: a chapter does that itself.
`make notebooks` starts kernels as Jupyter does.
"""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jupyter_client.provisioning.local_provisioner as provisioner

from d2ltvm.system import toolchain

# Read while a module is imported, which happens before a kernel has its own environment.
READ_AT_IMPORT = ("LD_", "MPL", "OMP_", "OPENBLAS_", "PYTHON", "TVM_")

# As it was before any test. Some leave numbers of threads in it, others a longer PYTHONPATH.
STARTED = dict(os.environ)

_launch = provisioner.launch_kernel


class ForkedKernel:
    """A kernel's process, as Jupyter's client asks for it: what it needs of `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, arguments: list[str], env: Mapping[str, str], cwd: str | None) -> None:
        server = _server()
        wanted = {"arguments": arguments, "env": dict(env), "cwd": cwd and str(cwd)}
        server.stdin.write(json.dumps(wanted) + "\n")
        server.stdin.flush()
        self.pid = int(server.stdout.readline())

    def poll(self) -> int | None:
        """None while it runs, then 0: how it ended, only its parent knows."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 0
        return None

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(0.01)
        return 0

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def launch(command: list[str], **options: Any) -> Any:
    """As `jupyter_client.launch_kernel`; Python's own kernel is forked."""
    env = options.get("env") or os.environ
    python = command[:3] == [sys.executable, "-m", "ipykernel_launcher"]
    if not python or _at_import(env) != _at_import(STARTED):
        return _launch(command, **options)
    return ForkedKernel(command[3:], env, options.get("cwd"))


def environment() -> dict[str, str]:
    """This process's own, for a kernel; what is read at import as it was: see `STARTED`."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(READ_AT_IMPORT)}
    return {**own, **_at_import(STARTED)}


@functools.cache
def _server() -> Any:
    """The process that kernels are forked from."""
    # Matplotlib reads it when it is imported; ipykernel says the same, later.
    backend = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    return subprocess.Popen(
        [sys.executable, "-P", Path(__file__).with_name("kernel_server.py")],
        env={**backend, **STARTED, **toolchain.FORKS},
        stdin=subprocess.PIPE,  # it ends when this process does, which closes it
        stdout=subprocess.PIPE,
        text=True,
    )


def _at_import(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(READ_AT_IMPORT)}
