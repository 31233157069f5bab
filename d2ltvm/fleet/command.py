"""`python -m d2ltvm fleet up`, `status`, `report` and `down`."""

import argparse
import sys

from d2ltvm.errors import MissingError
from d2ltvm.fleet import agreement, database, local, tracker
from d2ltvm.fleet.tracker import FleetError


def main(options: argparse.Namespace) -> int:
    """Run one of them; the exit code is 1 where it cannot be done, or no fleet is up."""
    try:
        if options.files and options.what != "report":
            raise ValueError(f"{options.what} takes no files; expected `report` with them")
        what = {"up": _up, "status": _status, "report": _report, "down": _down}[options.what]
        return what(options)
    except (FleetError, MissingError, ValueError, FileNotFoundError) as error:
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


def _report(options: argparse.Namespace) -> int:
    if not options.files:
        raise ValueError("report has no files; expected those of results, as run.jsonl")
    print(agreement.report(database.read(options.files), options.within / 100))
    return 0


def _down(options: argparse.Namespace) -> int:
    local.find().down()
    print("the fleet is down")
    return 0
