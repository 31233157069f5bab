"""What was measured, a line of JSON each, on the disk before anybody counts on it.

A line is appended whole and reaches the disk (`fsync`) before the next one begins. What a full disk
or a sudden end leaves of a line is cut off; what stands before it is never written again.
"""

import contextlib
import errno
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import filelock

from d2ltvm.fleet import server
from d2ltvm.fleet.tracker import FleetError

FORMAT = 3  # 1 had no `error`, and 2 no `gpu`
OK = "ok"
STATUSES = (
    OK,
    "compile error",  # it does not compile, or not in time
    "wrong result",
    "run error",  # it was refused, and its server is well
    "crash",  # its server was lost each time it ran
    "time limit",
    "no answer",  # its server had to be replaced each time it ran
)


@dataclass(frozen=True)
class Result:
    """What came of one candidate.

    Attributes:
        id: of its structure and its target, as `candidate_id` makes it.
        name: what the caller called it first.
        status: one of `STATUSES`.
        seconds: of a call, in each repeat; empty unless it is 'ok'.
        why: in words, unless it is 'ok'.
        error: of what it computes, by the largest magnitude of the result; None unless it is 'ok'.
        server, device: who measured, and on what.
        gpu: the UUID of that GPU; '' of a processor.
        clock_mhz, power_w: medians while it was timed; None where NVML is not there.
        attempts: how many sessions it took; where it failed in one that others spoiled, that
            one is not counted.
        build_s, session_s: seconds of the compilation, and of the last session.
        date: when, in UTC.
    """

    id: str
    name: str
    status: str
    seconds: tuple[float, ...] = ()
    why: str = ""
    error: float | None = None
    server: str = ""
    device: str = ""
    gpu: str = ""
    clock_mhz: float | None = None
    power_w: float | None = None
    attempts: int = 0
    build_s: float = 0.0
    session_s: float = 0.0
    date: str = ""

    @property
    def best(self) -> float:
        """Seconds of its fastest repeat; infinite where there is none."""
        return min(self.seconds, default=float("inf"))


class Database:
    """The results in a file, for one process at a time.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.jsonl"
    >>> with Database(path) as database:
    ...     database.append(Result("1f", "first", OK, (2e-6,)))
    >>> with Database(path) as database:
    ...     database.results["1f"].seconds
    (2e-06,)

    Attributes:
        results: by candidates' ids, in the order of the file.
        dropped: bytes of a line that was cut short and has been removed, 0 as a rule.

    Args:
        path: of the file; its folder is there. It is made where it is not.

    Raises:
        ValueError: it is no such file, of other versions, or a line in its midst is spoiled.
        FleetError: another process is using it.
        OSError: it cannot be read or written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():  # the lock would make it
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path.parent))
        self._lock = filelock.FileLock(f"{self.path}.lock")
        try:
            self._lock.acquire(timeout=0)
        except filelock.Timeout:
            raise FleetError(f"another process is using {self.path}") from None
        self.results: dict[str, Result] = {}
        self.dropped = 0
        self._file: int | None = None
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            self._read()
        except BaseException:
            self.close()
            raise

    def append(self, result: Result) -> None:
        """Keep a result: it is on the disk when this returns.

        Raises:
            ValueError: there is one of that candidate already.
            OSError: the disk is full, or gone; the file is as it was.
        """
        if result.id in self.results:
            raise ValueError(f"{result.name} has been measured, as {self.results[result.id].name}")
        self._write(asdict(result))
        self.results[result.id] = result

    def close(self) -> None:
        """Let others use the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._lock.release()

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        """Take what the file has; remove a last line that was cut short."""
        text = self.path.read_bytes()
        lines, rest = _lines_of(text)
        if rest:
            self._cut(len(text) - len(rest))
            self.dropped = len(rest)
        if not lines:
            self._write({"d2ltvm fleet": FORMAT, "versions": server.versions()})
            _sync_folder(self.path)
            return
        head = _head(self.path, lines[0])
        if head.get("versions") != (here := server.versions()):
            raise ValueError(
                f"{self.path} was measured with {head.get('versions')}; here is {here}; expected "
                "another file"
            )
        for result in _results(self.path, lines):
            self.results.setdefault(result.id, result)

    def _write(self, value: dict[str, Any]) -> None:
        """Append a line; where that fails, the file is as long as before."""
        assert self._file is not None
        line = (json.dumps(value, allow_nan=False, ensure_ascii=False) + "\n").encode()
        before = os.fstat(self._file).st_size
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._cut(before)
            raise OSError(
                error.errno,
                f"{error.strerror}; the {len(self.results)} results before are kept, and "
                "another run goes on from there",
                str(self.path),
            ) from error

    def _cut(self, length: int) -> None:
        assert self._file is not None
        os.ftruncate(self._file, length)
        os.fsync(self._file)


def read(paths: Sequence[str | Path]) -> list[Result]:
    """The results of several files, which others may be using.

    Raises:
        ValueError: one is no file of results, or they were measured by different versions.
        OSError: one cannot be read.
    """
    found: list[Result] = []
    versions: dict[str, Path] = {}
    for path in map(Path, paths):
        lines, _ = _lines_of(path.read_bytes())
        made = str(_head(path, lines[0] if lines else b"null").get("versions"))
        versions.setdefault(made, path)
        found += _results(path, lines)
    if len(versions) > 1:
        told = "; ".join(f"{path} by {made}" for made, path in versions.items())
        raise ValueError(f"the files were measured by different versions: {told}; expected one")
    return found


def _lines_of(text: bytes) -> tuple[list[bytes], bytes]:
    """The whole lines of a file, and what a sudden end left behind them."""
    *lines, rest = text.split(b"\n")
    return lines, rest


def _head(path: Path, line: bytes) -> dict[str, Any]:
    """What the first line says of the file."""
    head = _parsed(path, 1, line)
    if not isinstance(head, dict) or head.get("d2ltvm fleet") != FORMAT:
        raise ValueError(f"{path} is no file of a fleet's results; expected another one")
    return head


def _results(path: Path, lines: Sequence[bytes]) -> list[Result]:
    """What stands behind the first line."""
    return [_as_result(path, number, line) for number, line in enumerate(lines[1:], 2)]


def _parsed(path: Path, number: int, line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise ValueError(
            f"line {number} of {path} is spoiled; expected JSON. Remove the line, and what it had "
            "is measured again"
        ) from None


def _as_result(path: Path, number: int, line: bytes) -> Result:
    found = _parsed(path, number, line)
    names = {field.name for field in fields(Result)}
    if not isinstance(found, dict) or set(found) != names or found["status"] not in STATUSES:
        raise ValueError(
            f"line {number} of {path} is no result; expected {', '.join(sorted(names))}"
        )
    return Result(**{**found, "seconds": tuple(found["seconds"])})


def _sync_folder(path: Path) -> None:
    """Have the name of a new file reach the disk too."""
    folder = os.open(path.resolve().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
