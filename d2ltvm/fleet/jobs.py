"""What workers do: build a candidate, and have a server run, check and time it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import tvm

from d2ltvm.compiler import cubin
from d2ltvm.compiler.launches import Param
from d2ltvm.compiler.lowering import lower
from d2ltvm.fleet import workers
from d2ltvm.fleet.session import Session
from d2ltvm.fleet.task import Clock, Limits
from d2ltvm.fleet.tracker import Address
from d2ltvm.fleet.workers import Tell
from d2ltvm.system import devices


def about(tell: Tell, address: Address, limits: Limits) -> dict[str, Any]:
    """What a server says of itself, for a `choosing.About`."""
    with Session(address).of(tell, limits) as session:
        return session.itself()


def hold(tell: Tell, address: Address, limits: Limits) -> None:
    """Keep a server from all others until this process is ended."""
    with Session(address).of(tell, replace(limits, run=0)) as session:  # 0: without a limit
        tell("held", session.itself())
        while True:
            time.sleep(3600)


def build(tell: Tell, mod: Any, target: Any, path: str) -> tuple[Sequence[Param], float]:
    """Compile a module into a shared library; returns its parameters, and seconds that it took.

    Raises:
        ValueError, MissingError: as `d2ltvm.build`.
        RuntimeError: a compiler's words.
    """
    if target.kind.name == "cuda":
        _ready_for_cuda()
    start = time.monotonic()
    lowered = lower(mod, target)
    lowered.executable.export_library(path)
    return lowered.params, time.monotonic() - start


def build_plain(tell: Tell, mod: Any, target: Any, path: str) -> None:
    """The same for a module of MetaSchedule's, by TVM's passes and no others."""
    if target.kind.name == "cuda":
        _ready_for_cuda()
    mod = tvm.s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod)
    tvm.compile(mod, target=target).export_library(path)


def _ready_for_cuda() -> None:
    """What a process needs that compiles for GPUs: a compiler, and a driver that was spoken to.

    The driver knows no names of devices until a process has asked whether there are any.
    """
    cubin.ensure_cuda_compiler()
    devices.has_cuda()


def measure(
    tell: Tell,
    address: Address,
    limits: Limits,
    clock: Clock,
    path: str,
    params: Sequence[Param],
    task: str,
    alone: bool = True,
) -> dict[str, Any]:
    """Have a server run a library on a task's inputs, check what it computes, and time it.

    The server's session is the one of the candidate before, if that was right, unless it has to be
    `alone`, in a session of its own. What all candidates of a task share is sent to it once, and
    the server compares, so that no array is sent for a candidate.

    Returns:
        Seconds of each repeat, the error, who measured, and what clock and power were meanwhile.

    Raises:
        WrongResultError: it computes something else.
        TimeoutError: it ran out of time.
        LostError: the server is gone.
        FleetError: there is no server, or one of another version.
        RuntimeError: TVM's words on what the candidate did.
    """

    def work(session: Session) -> dict[str, Any]:
        there = session.task(task)
        device = session.device()
        module = session.upload(path)
        tensors = there.arguments(params)
        module["main"](*tensors)
        device.sync()
        error = there.compare(params, tensors)
        return {"error": error, **session.timed(module, device, clock, tensors)}

    return _in_session(work, tell, address, limits, alone)


def measure_plain(
    tell: Tell,
    address: Address,
    limits: Limits,
    clock: Clock,
    path: str,
    args_info: Sequence[Any],
) -> dict[str, Any]:
    """The same for a library of MetaSchedule's, on random numbers, which nobody checks."""

    def work(session: Session) -> dict[str, Any]:
        device = session.device()
        module = session.upload(path)
        fill = session.remote.get_function("tvm.contrib.random.random_fill_for_measure")
        tensors = []
        for _, dtype, shape in args_info:
            tensors.append(tvm.runtime.empty(shape, dtype, device))
            fill(tensors[-1])
        device.sync()
        return session.timed(module, device, clock, tensors)

    return _in_session(work, tell, address, limits, alone=False)


def _in_session(
    work: Callable[["Session"], dict[str, Any]],
    tell: Tell,
    address: Address,
    limits: Limits,
    alone: bool,
) -> dict[str, Any]:
    """What some work makes of a session: of the one that is kept, or else of a new one.

    It is kept for the next candidate if nothing went wrong.
    """
    global _kept
    if alone or _kept is None or not _kept.goes_on(address):
        let_go()
    session, _kept = _kept or Session(address), None
    try:
        with session.of(tell, limits):
            found = work(session)
    except BaseException:
        session.end()
        raise
    _kept = session
    return found


_kept: "Session | None" = None  # by this process, for its next candidate


def let_go() -> None:
    """End the session that this process keeps, if it keeps one, so that others get its server."""
    global _kept
    session, _kept = _kept, None
    if session is not None:
        session.end()


workers.AT_REST.append(let_go)
