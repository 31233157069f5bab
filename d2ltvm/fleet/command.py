"""`python -m d2ltvm fleet up`, `status` and `down`."""

import argparse
import sys

from d2ltvm.errors import MissingError
from d2ltvm.fleet import local, tracker
from d2ltvm.fleet.tracker import FleetError


def main(options: argparse.Namespace) -> int:
    """Run one of them; the exit code is 1 where it cannot be done, or no fleet is up."""
    try:
        return {"up": _up, "status": _status, "down": _down}[options.what](options)
    except (FleetError, MissingError, ValueError) as error:
        print(f"python -m d2ltvm fleet: {error}", file=sys.stderr)
        return 1


def _up(options: argparse.Namespace) -> int:
    fleet = local.up(
        options.cpus,
        host=options.host,
        port=options.port,
        key=options.key,
        join=options.join,
        tied=False,
    )
    names = ", ".join(server.name for server in fleet.servers())
    open_to_others = "" if options.host == local.LOOPBACK else f". {local.WARNING}"
    print(f"tracker {fleet.address}: {names}; logs in {fleet.folder}{open_to_others}")
    return 0


def _status(options: argparse.Namespace) -> int:
    fleet = local.find()
    servers = fleet.servers()
    print(f"tracker {fleet.address}; logs in {fleet.folder}")
    rows = [("server", "state", "pid", "port", "key", "starts", "device")]
    rows += [
        (s.name, s.state, str(s.pid), str(s.port), s.key, str(s.starts), s.device) for s in servers
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)).rstrip())
    others = set(tracker.ports(fleet.address)) - {(_host(fleet), s.port) for s in servers}
    for host, port in sorted(others):
        print(f"from elsewhere: {host}:{port}")
    return 0


def _host(fleet: local.Fleet) -> str:
    return fleet.address.host


def _down(options: argparse.Namespace) -> int:
    local.find().down()
    print("the fleet is down")
    return 0
