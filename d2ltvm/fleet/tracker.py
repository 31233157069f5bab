"""Questions to TVM's tracker, in TVM's own messages, with a limit on the time of an answer.

TVM's `TrackerSession` waits for ever; a fleet of many machines always has one that does not answer.
"""

import contextlib
import re
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm.rpc import base

from d2ltvm.errors import shown

RETRY_DELAY = 0.05  # seconds until a tracker or server that turned us away is asked again
KEY = re.compile(r"[A-Za-z0-9_.-]+")


class FleetError(RuntimeError):
    """The fleet cannot go on: no tracker, no server of that key, a server of another version."""


@dataclass(frozen=True)
class Address:
    """Where a tracker is, and what its servers are asked for by.

    >>> print(Address.of("127.0.0.1:9190", "cpu"))
    127.0.0.1:9190, key 'cpu'

    Attributes:
        host, port: the tracker's.
        key: the servers'. It tells kinds of devices apart, and keeps nobody out.
    """

    host: str
    port: int
    key: str

    @classmethod
    def of(cls, text: str, key: str) -> "Address":
        """From 'host:port'.

        Raises:
            ValueError: `text` or `key` is none.
        """
        host, _, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"the tracker is {shown(text)}; expected its host and port, as h:9190")
        return cls(host, int(port), as_key(key))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}, key {self.key!r}"


def as_key(key: Any) -> str:
    """A key that TVM's messages can carry: they have spaces and colons of their own.

    >>> as_key("nvidia-h200")
    'nvidia-h200'

    Raises:
        ValueError: it is none.
    """
    if not isinstance(key, str) or not KEY.fullmatch(key):
        raise ValueError(f"key is {shown(key)}; expected letters, digits, '-', '_' or '.'")
    return key


@contextlib.contextmanager
def connected(address: Address, limit: float) -> Iterator[socket.socket]:
    """A connection to the tracker, on which nothing takes longer than so many seconds.

    Raises:
        FleetError: nobody answers there, or somebody who is no tracker.
    """
    try:
        with socket.create_connection((address.host, address.port), limit) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
            if struct.unpack("<i", base.recvall(sock, 4))[0] != base.RPC_TRACKER_MAGIC:
                raise FleetError(f"at {address.host}:{address.port} is something else, no tracker")
            yield sock
    except (OSError, ValueError) as error:
        raise FleetError(
            f"no tracker answers at {address.host}:{address.port} within {limit:g} s ({error})"
        ) from error


def ask(sock: socket.socket, *question: Any) -> Any:
    """One question in TVM's form, and its answer."""
    base.sendjson(sock, list(question))
    return base.recvjson(sock)


def ports(address: Address, limit: float = 5.0) -> list[tuple[str, int]]:
    """Where the servers of the key are, as the tracker has it.

    Raises:
        FleetError: no tracker answers.
    """
    with connected(address, limit) as sock:
        _, summary = ask(sock, base.TrackerCode.SUMMARY)
    wanted = f"server:{address.key}"
    return [tuple(s["addr"]) for s in summary["server_info"] if s["key"] == wanted]


def keys(address: Address, limit: float = 5.0) -> list[str]:
    """The key of each server that the tracker has.

    Raises:
        FleetError: no tracker answers.
    """
    with connected(address, limit) as sock:
        return _keys(ask(sock, base.TrackerCode.SUMMARY)[1])


def _keys(summary: dict[str, Any]) -> list[str]:
    return [server["key"].partition(":")[2] for server in summary["server_info"]]


def need_servers(address: Address, limit: float = 5.0, wait: float = 0.0) -> int:
    """How many servers of the key there are.

    Args:
        address: the tracker's.
        limit: seconds that an answer may take.
        wait: seconds for which it waits, where servers of that key were there and are being started
            again, or none of any key has come yet.

    Raises:
        FleetError: no tracker answers, or it has none; then with the keys that it has.
    """
    end = time.monotonic() + wait
    while True:
        with connected(address, limit) as sock:
            _, summary = ask(sock, base.TrackerCode.SUMMARY)
        there = _keys(summary)
        if address.key in there:
            return there.count(address.key)
        may_come = address.key in summary["queue_info"] or not there
        if not may_come or time.monotonic() > end:
            others = (
                f"it has {', '.join(map(repr, sorted(set(there))))}" if there else "it has none"
            )
            raise FleetError(f"no server of {address} is there; {others}")
        time.sleep(RETRY_DELAY)


def request(address: Address, limit: float) -> tuple[str, int, str]:
    """The next free server: host, port, and what it lets this client in by.

    Raises:
        FleetError: none was free within so many seconds, or no tracker answers.
    """
    with connected(address, limit) as sock:
        try:
            code, found = ask(sock, base.TrackerCode.REQUEST, address.key, "", 1)
        except TimeoutError:
            raise FleetError(f"no server of {address} was free within {limit:g} s") from None
    if code != base.TrackerCode.SUCCESS:
        raise FleetError(f"the tracker at {address} refuses, code {code}")
    host, port, match_key = found
    return host, int(port), match_key
