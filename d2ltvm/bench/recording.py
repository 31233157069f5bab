"""`python -m d2ltvm record`: measure the book's chapters on this machine's GPUs, and keep records.

A chapter is run by a process of its own, which writes its records when it has measured them. Where
a fleet is up, as many chapters run at once as it has servers, each beside one that it holds. Which
chapters are done is kept in a file, so that a run that was cut off goes on from there.
"""

import argparse
import contextlib
import datetime
import difflib
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from d2ltvm.bench import records
from d2ltvm.bench.progress import progress
from d2ltvm.errors import MissingError, shown
from d2ltvm.fleet import FleetError, choosing, leasing
from d2ltvm.fleet.leasing import Ended
from d2ltvm.fleet.measuring import Servers
from d2ltvm.system import devices, environment, files

STILL = "`make notebooks`, with the records that are there, and `python -m d2ltvm bench`"
CHATTER = "[IPKernelApp]"  # of Jupyter's kernels, on how they talk
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")  # colours, in what a notebook raised


def main(options: argparse.Namespace) -> int:
    """Run the command; the exit code is 1 where a chapter or a record could not be measured."""
    try:
        chapters, names = chosen(options.chapters, options.only)
        servers = choosing.choose("cuda", options.fleet)
        if servers:
            device = choosing.ask(servers, "cuda").device
        else:
            devices.need_cuda(STILL)
            device = devices.describe_device()["name"]
        kept = environment.book_folder() / "_build" / f"record-{records.slug(device)}.json"
        log = Log(options.to or kept, device)
        return record(chapters, names, servers, log)
    except (FleetError, MissingError, ValueError) as error:
        print(f"python -m d2ltvm record: {error}", file=sys.stderr)
        return 1


def chosen(
    chapters: Sequence[str], only: str | None
) -> tuple[dict[str, Path], tuple[str, ...] | None]:
    """The chapters to run, and the records that they are to write; None for all of theirs.

    >>> chapters, names = chosen([], "vector_add/steps")
    >>> list(chapters), names
    (['elementwise/vector_add'], ('vector_add/steps',))

    Args:
        chapters: their names, or paths of notebooks; none given, all that `only` needs.
        only: names of records, with commas between.

    Raises:
        ValueError: one of them is not there.
    """
    every = environment.chapters()
    found = dict(_chapter(given, every) for given in chapters)
    if only is None:
        return found or every, None
    names = tuple(filter(None, only.split(",")))
    if not names:
        raise ValueError(f"--only is {only!r}; expected names of records, with commas between")
    if found:
        return found, names
    makers = set[str]().union(*(_makers(name, every) for name in names))
    return {name: path for name, path in every.items() if name in makers}, names


def _chapter(given: str, every: Mapping[str, Path]) -> tuple[str, Path]:
    """A chapter's name and path, from either; or a notebook that is not in the book yet."""
    name = given.removeprefix("book/").removesuffix(".ipynb")
    if name in every:
        return name, every[name]
    if (path := Path(given)).suffix == ".ipynb" and path.is_file():
        return given, path.resolve()
    raise ValueError(f"no chapter is called {shown(given)}; expected {_alike(name, every)}")


def _makers(name: str, every: Mapping[str, Path]) -> set[str]:
    """The chapters whose code names a record; all of them, where none does in so many letters."""
    made = {chapter for chapter, path in every.items() if name in named_in(path)}
    if made:
        return made
    if name not in (stored := _stored_names()):
        raise ValueError(f"no record is called {shown(name)}; expected {_alike(name, stored)}")
    return set(every)


def _stored_names() -> set[str]:
    """Names of the records that some GPU has."""
    found = set()
    for path in records.MEASUREMENTS.glob("*/*.json"):
        with contextlib.suppress(ValueError):  # a measurement that is no record, such as a set's
            found |= {
                f"{path.stem}/{entry['name']}"
                for entry in records.stored_records(path)
                if entry["device"]["cuda"]
            }
    return found


def _alike(name: str, known: Iterable[str]) -> str:
    """A few known names, those that are most alike."""
    listed = sorted(known)
    return f"such as {', '.join(difflib.get_close_matches(name, listed, 3, 0.3) or listed[:3])}"


def named_in(path: Path) -> list[str]:
    """Names of the records that a notebook measures, as far as its code has them whole.

    >>> named_in(environment.chapters()["elementwise/vector_add"])
    ['vector_add/steps', 'vector_add/bandwidth']
    """
    return re.findall(r'\bmeasure\(\s*"([a-z0-9_]+/[a-z0-9_]+)"', _code(path))


def _code(path: Path) -> str:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")


class Log:
    """Which chapters were recorded so far, in a file.

    What was recorded on another device, by other versions or by other code does not count.

    Args:
        path: of the file; it is made with the first chapter.
        device: the GPU's name.

    Raises:
        ValueError: the file is none of these.
    """

    def __init__(self, path: str | Path, device: str) -> None:
        self.path, self.device = Path(path), device
        self._head = {"device": device, "software": records.software()}
        self._done: dict[str, dict[str, Any]] = {}
        if not self.path.exists():
            return
        try:
            kept = json.loads(self.path.read_text())
            head, done = kept["head"], dict(kept["chapters"])
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"{self.path} is no file of `record`; expected another --to, or none there"
            ) from None
        if head == self._head:
            self._done = done

    def has(self, chapter: str, path: Path, names: Sequence[str] | None) -> bool:
        """Whether a chapter's records, as its code is now, have been written."""
        return self._done.get(chapter, {}).get("of") == _fingerprint(path, names)

    def add(self, chapter: str, path: Path, names: Sequence[str] | None, **more: Any) -> None:
        """Keep that it has been: it is on the disk when this returns."""
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._done[chapter] = {"of": _fingerprint(path, names), "date": date, **more}
        kept = {"head": self._head, "chapters": self._done}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        files.write(self.path, json.dumps(kept, indent=1) + "\n")

    def forget(self) -> None:
        """The run is over: another one begins anew."""
        self.path.unlink(missing_ok=True)


def _fingerprint(path: Path, names: Sequence[str] | None) -> str:
    text = f"{_code(path)}\n{names and sorted(names)}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def record(
    chapters: Mapping[str, Path],
    names: Sequence[str] | None,
    servers: Servers | None,
    log: Log,
    kind: str = "cuda",
) -> int:
    """Run chapters that write their records; returns the exit code, 1 where one of them failed.

    Args:
        chapters: paths of notebooks, by name.
        names: of the records to write; None is all.
        servers: of a fleet on this machine; None runs one chapter after the other, in processes
            that see all of the machine.
        log: of what was recorded before.
        kind: of the servers' target, as for `leasing.lease`.

    Raises:
        FleetError: there is no server of that kind on this machine.
        OSError: the log cannot be written.
    """
    todo = {name: path for name, path in chapters.items() if not log.has(name, path, names)}
    if before := len(chapters) - len(todo):
        _say(f"{before} of {len(chapters)} chapters were recorded before; {log.path} says which")
    expected = _expected(todo.values()) if names is None else () if before else names
    stored = {name: _entry(name, log.device) for name in expected}
    began, failed, lock = time.monotonic(), list[str](), threading.Lock()
    bar = _Bar(before, len(chapters))

    def show(name: str, ended: Ended) -> None:
        with lock:
            tell(name, ended)

    def tell(name: str, ended: Ended) -> None:
        if ended.code:
            failed.append(name)
            _say(f"{name}: {_reason(ended)}", sys.stderr)
        else:
            log.add(name, todo[name], names, server=ended.server, seconds=ended.seconds)
            _say(f"{name}: {ended.seconds:.1f} s{f', {ended.server}' * bool(ended.server)}")
        bar.step(name)

    commands = {name: _command(path, names) for name, path in todo.items()}
    if commands and servers:
        leasing.run_each(commands, servers, kind, show)
    else:
        _run_here(commands, show, bar)
    bar.end()
    same = [name for name, was in stored.items() if _entry(name, log.device) == was]
    _sum_up(len(todo), time.monotonic() - began, failed, same, log)
    return int(bool(failed or (same and names)))


def _expected(paths: Iterable[Path]) -> list[str]:
    """What notebooks should write: a library that is missing has them show what is stored."""
    known = _stored_names()
    return [name for path in paths for name in named_in(path) if name in known]


def _command(path: Path, names: Sequence[str] | None) -> list[str]:
    """What runs a chapter's notebook, in a process that sees the GPU and measures."""
    only = ["--only", ",".join(names)] if names else []
    tool = environment.book_folder() / "tools" / "execute.py"
    return [sys.executable, str(tool), "--record", *only, str(path)]


def _run_here(
    commands: Mapping[str, Sequence[str]], show: Callable[[str, Ended], object], bar: "_Bar"
) -> None:
    """Run commands one after the other, with all of this machine."""
    own = {**os.environ, choosing.VARIABLE: choosing.NONE}
    for name, command in commands.items():
        bar.draw(name)
        start = time.monotonic()
        done = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - start
        show(name, Ended(done.returncode, done.stdout, done.stderr, seconds=seconds))


def _entry(name: str, device: str) -> Any:
    """A stored record as its file has it; None where there is none."""
    chapter, _, short = name.partition("/")
    path = records.MEASUREMENTS / records.slug(device) / f"{chapter}.json"
    found = records.stored_records(path) if path.exists() else []
    return next((entry for entry in found if entry["name"] == short), None)


def _reason(ended: Ended) -> str:
    """Why a chapter failed: the last line of what its process said."""
    lines = [line for line in ESCAPES.sub("", ended.err).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(CHATTER)]
    return lines[-1].strip() if lines else f"its process ended with {ended.code}"


def _sum_up(
    count: int, seconds: float, failed: Sequence[str], same: Sequence[str], log: Log
) -> None:
    """Say how the run ended; a run with nothing left to do needs its log no longer."""
    if same:
        _say(f"records that were not measured: {', '.join(same)}", sys.stderr)
    if failed:
        _say(
            f"{len(failed)} of {count} chapters failed: {', '.join(failed)}; another run goes on "
            f"with these, since {log.path} has the others",
            sys.stderr,
        )
        return
    log.forget()
    where = records.MEASUREMENTS / records.slug(log.device)
    _say(f"{count} chapters in {seconds:.0f} s; the records are in {where}")


class _Bar:
    """The progress bar of a run, which lines of text push aside."""

    def __init__(self, done: int, of: int) -> None:
        self.done, self.of = done, of

    def draw(self, what: str) -> None:
        """Show what is under way, or was last."""
        if self.done < self.of:
            progress(self.done, self.of, what)

    def step(self, what: str) -> None:
        """One more is done."""
        self.done += 1
        self.draw(what)

    def end(self) -> None:
        """Take it away."""
        if self.of:
            progress(self.of, self.of, "")


def _say(text: str, to: Any = None) -> None:
    """A line, in the place of the bar."""
    if sys.stderr is not None and sys.stderr.isatty():
        print("\r" + " " * 72 + "\r", end="", file=sys.stderr, flush=True)
    print(text, file=to or sys.stdout, flush=True)
