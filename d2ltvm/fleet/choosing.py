"""Which fleet a command measures on: the one that it is told, or the one that is up here."""

import os
from dataclasses import dataclass
from pathlib import Path

from d2ltvm.errors import shown
from d2ltvm.fleet import jobs, local, tracker
from d2ltvm.fleet.measuring import Servers, address_of
from d2ltvm.fleet.task import LIMITS, Limits
from d2ltvm.fleet.tracker import Address, FleetError
from d2ltvm.fleet.workers import Message, Worker, messages

VARIABLE = "D2LTVM_FLEET"  # the environment's, which says what the option --fleet would
NONE = "none"
KINDS = {"llvm": "cpu", "cuda": "cuda"}  # what a server measures on, by the kind of a target


@dataclass(frozen=True)
class About:
    """What a server says of itself.

    Attributes:
        name, at: such as 'gpu0', and where it listens.
        kind: 'cpu' or 'cuda'.
        device: what it measures on, for people.
        arch, gpu: of a GPU, such as 'sm_90', and its UUID; '' of a processor.
        machine: that it is on, the same text for servers of one that runs.
        cores: its share of that machine's.
        session: the process there that said so.
    """

    name: str
    at: str
    kind: str
    device: str
    arch: str
    gpu: str
    machine: str
    cores: tuple[int, ...]
    session: int

    @property
    def target(self) -> str:
        """What to build for, as `d2ltvm.build` takes it."""
        return self.arch or "llvm"


def choose(kind: str, told: str | None = None, folder: str | Path | None = None) -> Servers | None:
    """The fleet that a command measures on; None for none, in its own process.

    >>> import os
    >>> os.environ.pop("D2LTVM_FLEET", None) and None
    >>> choose("llvm", "none") is None
    True
    >>> print(choose("llvm", "127.0.0.1:9190/cpu"))
    127.0.0.1:9190, key 'cpu'

    Args:
        kind: of the target: 'llvm' or 'cuda'.
        told: 'host:port' of a tracker, with '/key' where it has servers of several kinds; 'none';
            or None: what the environment's D2LTVM_FLEET says, and if it says nothing, the fleet
            that is up on this machine, if there is one for such a target.
        folder: of that fleet's state, as for `find`.

    Raises:
        ValueError: `told` or `kind` is none of these.
        FleetError: no tracker answers there, or its servers' key is to be said.
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"kind is {shown(kind)}; expected {' or '.join(map(repr, KINDS))}")
    told = os.environ.get(VARIABLE) if told is None else told
    if told == NONE:
        return None
    if told:
        return _address(kind, told)
    try:
        found = local.find(folder)
    except FleetError:
        return None
    return found if found.kind == KINDS[kind] else None


def _address(kind: str, told: str) -> Address:
    """From 'host:port' or 'host:port/key'."""
    place, slash, key = told.partition("/")
    if slash:
        return Address.of(place, key)
    anywhere = Address.of(place, "any")
    keys = sorted(set(tracker.keys(anywhere)))
    fitting = keys if len(keys) == 1 else [k for k in keys if (k == "cpu") == (kind == "llvm")]
    if len(fitting) != 1:
        there = ", ".join(map(repr, keys)) or "none"
        raise FleetError(
            f"the tracker at {place} has servers of the keys: {there}; expected one of them, as "
            f"{place}/KEY"
        )
    return Address(anywhere.host, anywhere.port, fitting[0])


def ask(servers: Servers, kind: str, limits: Limits = LIMITS) -> About:
    """What the next free server says of itself.

    Args:
        servers: a `Fleet`, or the `Address` of one.
        kind: of the target: 'llvm' or 'cuda'.
        limits: seconds that it may take.

    Raises:
        FleetError: there is none, it has another version, or it is for another kind of target.
    """
    address = address_of(servers)
    tracker.need_servers(address, wait=limits.connect)
    worker = Worker()
    try:
        worker.begin(address, 2 * limits.wait, jobs.about, address, limits)
        while (message := said(worker)).kind == "connecting":
            worker.extend(limits.connect)
    finally:
        worker.end()
    if message.kind != "done":
        raise cannot_ask(address, message)
    about = About(**message.value)
    check_kind(about, address, kind)
    return about


def cannot_ask(address: Address, message: Message) -> FleetError:
    """The error where a server was to say what it is, and something else came of it."""
    why = message.value[1] if message.kind == "failed" else "it does not answer"
    return FleetError(f"a server of {address} cannot be asked: {why}")


def check_kind(about: About, address: Address, kind: str) -> None:
    """A FleetError unless a server measures what is built for a kind of target."""
    if about.kind != KINDS[kind]:
        raise FleetError(
            f"the server {about.name} of {address} measures on a {about.kind}; expected one for "
            f"{kind}, a {KINDS[kind]}"
        )


def said(worker: Worker) -> Message:
    """What a worker says next that somebody waits for."""
    while True:
        for _, _, message in messages([worker]):
            if message.kind != "serving":
                return message
