"""Kernels of notebooks under pytest, forked from a process that has imported TVM and Matplotlib.

To start IPython's kernel and to import these costs a chapter two seconds of processor time, and the
book has over sixty chapters. So each process of pytest has one other process do that once, and a
kernel is a copy of it. Nothing of this package is imported there: a chapter does that itself.
`make notebooks` starts kernels as Jupyter does.
"""

import atexit
import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

import jupyter_client.provisioning.local_provisioner as provisioner

# Read while a module is imported, which happens before a kernel has its own environment.
READ_AT_IMPORT = ("LD_", "MPL", "OMP_", "OPENBLAS_", "PYTHON", "TVM_")

_launch = provisioner.launch_kernel
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["tools.kernel_imports"])
_first: list[dict[str, str]] = []


class ForkedKernel:
    """A kernel's process, as Jupyter's client asks for it: what it needs of `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, arguments: list[str], env: Mapping[str, str], cwd: str | None) -> None:
        self._process = _server.Process(target=_become_kernel, args=(arguments, dict(env), cwd))
        self._process.start()
        self.pid = self._process.pid
        atexit.register(self.kill)  # or the end of pytest would wait for its end
        # Signals go to its group, and that must not be the group of pytest.
        while self.poll() is None and os.getpgid(self.pid) != self.pid:
            time.sleep(0.001)

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode

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
    if not python or _at_import(env) != _of_server():
        return _launch(command, **options)
    return ForkedKernel(command[3:], env, options.get("cwd"))


def _at_import(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(READ_AT_IMPORT)}


def _of_server() -> dict[str, str]:
    """The same of the process that kernels are forked from, which starts with the first of them."""
    if not _first:
        _first.append(_at_import(os.environ))
    return _first[0]


def _path(env: Mapping[str, str]) -> list[str]:
    """Where a kernel looks for modules: what PYTHONPATH says, and Python's own folders."""
    told = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    return [*told, *(name for name in sys.path if name.startswith((sys.prefix, sys.base_prefix)))]


def _become_kernel(arguments: list[str], env: dict[str, str], cwd: str | None) -> None:
    """Be what `python -m ipykernel_launcher` is, in a process of its own session."""
    from tools import kernel_imports  # the folder of this clone, which PYTHONPATH has

    os.setsid()
    os.environ.clear()
    os.environ.update(env, JPY_PARENT_PID=str(os.getppid()))
    os.chdir(cwd or os.getcwd())
    sys.path[:] = _path(env)
    sys.argv = ["ipykernel_launcher", *arguments]
    with open(os.devnull, "r+b") as nothing:
        for standard in range(3):
            os.dup2(nothing.fileno(), standard)
    kernel_imports.numpy.random.seed()
    kernel_imports.kernelapp.launch_new_instance()
