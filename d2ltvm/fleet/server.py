"""What runs in a process of the fleet: TVM's tracker, or one of TVM's RPC servers.

A server serves one session at a time, each in a process of its own, which TVM forks. What TVM
leaves open is closed here: a session that ran out of time is dead before the next one begins, a
server whose session crashed ends as a whole, so that the keeper starts a new one, and no session
outlives its server, or the client that it is for.
"""

import ctypes
import functools
import json
import multiprocessing
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm.rpc import server, tracker

import d2ltvm
from d2ltvm.compiler import verify
from d2ltvm.fleet import nvml
from d2ltvm.system import devices, toolchain

ABOUT, WATCH, WATCHED, LIMIT, COMPARE = (
    f"d2ltvm.fleet.{name}" for name in ("about", "watch", "watched", "limit", "compare")
)
LEFT_BEHIND = 3  # the exit code of a session that took too long, and of a server that killed one
PR_SET_PDEATHSIG = 1
LINGER = 1.0  # seconds in which a session ends by itself after its client is gone


def versions() -> dict[str, str]:
    """What client and server must have the same of.

    >>> sorted(versions())
    ['d2ltvm', 'tvm']
    """
    return {"tvm": tvm.__version__, "d2ltvm": d2ltvm.__version__}


def die_with_parent() -> None:
    """Have the system kill this process when the one that started it ends, however it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def track(sock: socket.socket) -> None:
    """Be the tracker: TVM's, on a socket that listens."""
    tracker._tracker_server(sock, tracker.base.random_key("tracker"))


def serve(
    sock: socket.socket,
    name: str,
    kind: str,
    gpu: str,
    key: str,
    tracker_at: tuple[str, int],
    cores: Sequence[int] = (),
) -> None:
    """Be a server: TVM's, on a socket that listens, with what the fleet asks of it.

    Args:
        sock: where clients come in.
        name: what the fleet calls it, such as 'gpu0'.
        kind: 'cuda' or 'cpu'.
        gpu: its GPU's UUID, '' for a processor.
        key: what it is asked for by, at the tracker.
        tracker_at: the tracker's address and port.
        cores: its share of the machine's; none given, all that it may use.

    Raises:
        SystemExit: a session had to be killed.
        RuntimeError: a session crashed.
    """
    if kind == "cuda":
        toolchain.load_cuda_runtime()
    told = functools.partial(_about, name, kind, gpu, cores or sorted(os.sched_getaffinity(0)))
    tvm_ffi.register_global_func(ABOUT, told, override=True)
    sampler = nvml.Sampler(gpu)
    tvm_ffi.register_global_func(WATCH, sampler.start, override=True)
    tvm_ffi.register_global_func(WATCHED, lambda: json.dumps(sampler.stop()), override=True)
    tvm_ffi.register_global_func(LIMIT, _Limit(), override=True)
    tvm_ffi.register_global_func(COMPARE, _compare, override=True)
    multiprocessing.set_start_method("fork", force=True)  # a session has what is registered here
    os.register_at_fork(after_in_child=die_with_parent)
    server._serving = alone(server._serving)
    server._serve_loop = with_its_client(server._serve_loop)
    host, port = sock.getsockname()[:2]
    server._listen_loop(sock, port, key, tracker_at, None, host)


def alone(serving: Callable[..., None]) -> Callable[..., None]:
    """TVM's function for a session, and nothing of the session left when it returns."""

    def served(*arguments: Any) -> None:
        serving(*arguments)
        left = multiprocessing.active_children()  # TVM asked it to end, and did not wait
        for child in left:
            child.kill()
            child.join()
        if left:
            raise SystemExit(LEFT_BEHIND)

    return served


def with_its_client(loop: Callable[..., None]) -> Callable[..., None]:
    """TVM's function for the process of a session, which ends soon after its client is gone.

    TVM looks at the connection between two calls. During a call, a kernel that hangs keeps the GPU
    from everybody else, though nobody waits for it any more.
    """

    def served(sock: socket.socket, *arguments: Any) -> None:
        threading.Thread(target=_end_without, args=(sock,), daemon=True).start()
        loop(sock, *arguments)

    return served


def _end_without(sock: socket.socket) -> None:
    """End this process, in good order, when the other end of a connection is closed."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    poll.poll()
    time.sleep(LINGER)
    os._exit(0)


class _Limit:
    """Ends a session that takes longer than its client allows, and with it the whole server."""

    def __init__(self) -> None:
        self.timer: threading.Timer | None = None

    def __call__(self, seconds: float) -> None:
        """From now on so many seconds are left; 0 is no limit."""
        if self.timer is not None:
            self.timer.cancel()
        if seconds:
            self.timer = threading.Timer(seconds, os._exit, (LEFT_BEHIND,))
            self.timer.daemon = True
            self.timer.start()


def _compare(name: str, got: Any, want: Any, most: Any, terms: int, sums: str) -> str:
    """The largest error of a result that is here, as `verify.compare` has it, or what it raises.

    As JSON: 'ok' and the error, or the name of an exception and its words.
    """
    result, right, magnitude = (tensor.numpy() for tensor in (got, want, most))
    try:
        error = verify.compare(name, result, right, magnitude, int(terms), sums or None)
        return json.dumps(["ok", error])
    except (verify.WrongResultError, ValueError) as error:
        return json.dumps([type(error).__name__, str(error)])


def machine() -> str:
    """What tells machines apart: the number of the system's start, and of its list of processes."""
    try:
        start = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{start} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _about(name: str, kind: str, gpu: str, cores: Sequence[int]) -> str:
    """What a server says of itself, as JSON; asked by a client, in the process of its session."""
    there, arch = devices.describe_processor()["name"], ""
    if kind == "cuda" and devices.has_cuda():  # without being asked that, CUDA knows no names
        there = tvm.cuda(0).device_name
        arch = "sm_" + tvm.cuda(0).compute_version.replace(".", "")
    found = {"name": name, "kind": kind, "device": there, "arch": arch, "gpu": gpu}
    place = {"machine": machine(), "cores": list(cores), "session": os.getpid()}
    return json.dumps({**found, **place, "versions": versions()})
