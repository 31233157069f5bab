"""A process that has imported TVM and Matplotlib, and forks kernels: see `forked_kernels`.

It reads a line of JSON for each kernel from its input; the kernel answers with its own number.
"""

import contextlib
import gc
import json
import os
import signal
import sys
from typing import Any

import matplotlib.pyplot  # noqa: F401
import numpy
import tvm  # noqa: F401
from ipykernel import kernelapp


def main() -> None:
    signal.signal(signal.SIGCHLD, reap)
    gc.freeze()  # what is imported stays: kernels' collectors need not look at it each time
    gc.set_threshold(10_000)  # as in `conftest.py`
    for line in sys.stdin:
        if os.fork() == 0:
            return become_kernel(**json.loads(line))


def reap(*signal: Any) -> None:
    """Let those that have ended go."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def become_kernel(arguments: list[str], env: dict[str, str], cwd: str | None) -> None:
    """Be what `python -m ipykernel_launcher` is, in a session of its own."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()  # before the answer, since signals go to the kernel's group
    os.environ.clear()
    os.environ.update(env, JPY_PARENT_PID=str(os.getppid()))
    if cwd:
        os.chdir(cwd)
    sys.argv = ["ipykernel_launcher", *arguments]
    print(os.getpid(), flush=True)
    with open(os.devnull, "r+b") as nothing:
        for standard in range(3):
            os.dup2(nothing.fileno(), standard)
    numpy.random.seed()
    kernelapp.launch_new_instance()


if __name__ == "__main__":
    main()
