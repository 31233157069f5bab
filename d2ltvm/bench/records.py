"""Measurements that outlive the machine they were made on.

A record says what was measured, on what, with which software and when. `measure` makes one where
the device is present and reads the stored one where it is not. Records are JSON, one file a chapter
and device: `book/measurements/<device>/<chapter>.json`. Nothing writes them but `measure`, on the
device, when the environment variable D2LTVM_RECORD is 1, as `make record` sets it. It may also
hold the names of records, with commas between: then these are measured, and all others read.
"""

import contextlib
import datetime
import json
import math
import os
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from d2ltvm.bench.measurement import Measurement
from d2ltvm.errors import MissingError, shown
from d2ltvm.system import devices, environment, files

MEASUREMENTS = environment.measurements()
DEFAULT_DEVICE = "nvidia-h200"
_UNSTORED = ("name", "live", "missing")  # the first as its last part; once stored, it is neither
_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "numpy", "torch", "mxnet")


@dataclass(kw_only=True)
class Record(Measurement):
    """What was measured, on what, and when.

    >>> record = d2ltvm.load_record("vector_add/bandwidth")
    >>> record.unit, list(record.series)[0], record.at("PyTorch", 2**26) > 4
    ('TB/s', 'PyTorch', True)

    It has what a `Measurement` has, and also:

    Attributes:
        name: chapter and measurement, such as 'vector_add/bandwidth'.
        device: {'name', 'driver', 'cuda'}; the last two are '' for a CPU.
        software: version by package.
        date: ISO date.
        live: True for one that was measured just now.
    """

    name: str
    device: dict[str, str] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)
    date: str = ""
    live: bool = False

    @property
    def title(self) -> str:
        """What messages call it."""
        return self.name

    @property
    def caption(self) -> str:
        """One line of provenance, for the foot of a figure."""
        parts = [self.device["name"]]
        if self.device["driver"]:
            parts += [f"driver {self.device['driver']}", f"CUDA {self.device['cuda']}"]
        parts.append(f"TVM {self.software.get('apache-tvm', 'unknown')}")
        return f"{', '.join(parts)}; {'measured' if self.live else 'recorded'} {self.date}"

    @property
    def elsewhere(self) -> dict[str, "Record"]:
        """The stored records of the same measurement on other devices, by the device's name."""
        chapter, short = _split(self.name)
        found = {}
        for path in sorted(MEASUREMENTS.glob(f"*/{chapter}.json")):
            for entry in stored_records(path):
                if entry["name"] == short and path.parent.name != slug(self.device["name"]):
                    record = _record(path, {**entry, "name": self.name})
                    found[record.device["name"]] = record
        return found


def measure(
    name: str, run: Callable[[], Measurement | dict[str, Any]], device: str = "cuda"
) -> Record:
    """Measure where the device is, and look the record up where it is not.

    >>> record = d2ltvm.measure("vector_add/bandwidth", lambda: d2ltvm.bench_together(...))

    Args:
        name: chapter and measurement, such as 'vector_add/bandwidth'.
        run: function without arguments that measures, and returns a `Measurement`, as
            `bench_together` does, or a dict of its attributes.
        device: 'cuda', or 'cpu', which is always there.

    Returns:
        A `Record`. Where the GPU or a library that `run` needs is missing, it is the stored one,
        and in the second case a line says so.

    Raises:
        ValueError: `device` or `name` is not as above.
        MissingError: it cannot be measured here, and there is no record.
    """
    if device not in ("cuda", "cpu"):
        raise ValueError(f"device is {device!r}; expected 'cuda' or 'cpu'")
    _split(name)
    kept = os.environ.get("D2LTVM_RECORD", "0")
    read = kept not in ("0", "1") and name not in kept.split(",")
    if device == "cuda" and (read or not devices.has_cuda()):
        return load_record(name)
    try:
        result = Measurement.of(run())
    except MissingError as error:
        if device == "cpu":
            raise
        print(f"not measured here, the record is shown instead: {error}", file=sys.stderr)
        return load_record(name)
    recording = kept != "0" and device == "cuda"
    if recording and result.missing:
        raise MissingError(
            f"{name} cannot be recorded without {', '.join(result.missing)}",
            "measuring",
            "pip install torch",
        )
    record = Record(
        name=name,
        device=devices.describe_device() if device == "cuda" else devices.describe_processor(),
        software=software(),
        date=datetime.date.today().isoformat(),
        live=True,
        **vars(result),
    )
    if recording:
        store_record(record)
    return record


def load_record(name: str, device: str | None = None) -> Record:
    """The stored record of a measurement.

    >>> d2ltvm.load_record("vector_add/bandwidth").caption
    'NVIDIA H200, driver 580.159.04, CUDA 13.0, TVM 0.27.0.post1; recorded 2026-11-21'

    Args:
        name: chapter and measurement.
        device: folder under book/measurements, such as 'nvidia-h200', the default.

    Raises:
        MissingError: there is no such record.
        ValueError: the file is cut off, or is none of records.
    """
    chapter, short = _split(name)
    path = MEASUREMENTS / (device or DEFAULT_DEVICE) / f"{chapter}.json"
    stored = stored_records(path)
    for entry in stored:
        if entry["name"] == short:
            return _record(path, {**entry, "name": name})
    there = ", ".join(f"{chapter}/{e['name']}" for e in stored)
    has = f"the records there are: {there}" if there else f"what needs no record of {chapter}"
    raise MissingError(
        f"no record {name!r} for {device or DEFAULT_DEVICE}", has,
        "`make record` on a machine with that GPU",
    )  # fmt: skip


def stored_records(path: Path) -> list[dict[str, Any]]:
    """The records of a file as it has them, a dict each; none where there is no file.

    Raises:
        ValueError: the file is cut off, or is none of records.
    """
    if not path.is_file():
        return []
    try:
        records = json.loads(path.read_text(encoding="utf-8"))["records"]
        if all(isinstance(record["name"], str) for record in records):
            return list(records)
        raise TypeError("a record without a name")
    except (ValueError, TypeError, KeyError) as error:
        raise _foreign(path, error) from error


def stored_lines(file: str, device: str) -> list[dict[str, Any]]:
    """The lines of a record that is kept line by line, a dict each; the first is its header.

    >>> header, *lines = stored_lines("networks.jsonl", "nvidia-h100-80gb-hbm3")
    >>> header["device"], len(lines)
    ('NVIDIA H100 80GB HBM3', 17)

    Args:
        file: its name, with the ending .jsonl.
        device: a folder under book/measurements.
    """
    path = environment.measurements() / device / file
    return [json.loads(line) for line in path.read_text().splitlines()]


def store_record(record: Record) -> None:
    """Write a record into its chapter's file, in place of an older one of that name.

    Others may write records into the same file meanwhile: each waits for its turn.

    Raises:
        ValueError: a number is none, or the file that is there is none of records.
    """
    import filelock  # here, since reading records does without it

    chapter, short = _split(record.name)
    path = MEASUREMENTS / slug(record.device["name"]) / f"{chapter}.json"
    entry = {"name": short} | {k: v for k, v in asdict(record).items() if k not in _UNSTORED}
    path.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(path.with_suffix(".lock")):
        records = [r for r in stored_records(path) if r["name"] != short] + [entry]
        try:
            text = as_json({"records": sorted(records, key=lambda r: r["name"])})
        except ValueError as error:
            raise ValueError(f"{record.name} cannot be stored: {error}") from error
        files.write(path, text + "\n")


def as_json(value: Any, margin: str = "") -> str:
    """JSON with a list of numbers or names on one line: a diff then shows a line for each series.

    >>> print(as_json({"x": [1, 2], "spread": [[0.5, 1.5]]}))
    {
     "x": [ 1, 2 ],
     "spread": [
      [ 0.5, 1.5 ]
     ]
    }

    Raises:
        ValueError: a number is infinite or none, which JSON cannot say.
    """
    inner = margin + " "
    if isinstance(value, dict) and value:
        lines = [f"{json.dumps(key)}: {as_json(held, inner)}" for key, held in value.items()]
        return _lines("{", lines, "}", margin)
    if isinstance(value, list | tuple) and value:
        if any(isinstance(held, dict | list | tuple) for held in value):
            return _lines("[", [as_json(held, inner) for held in value], "]", margin)
        return f"[ {', '.join(map(as_json, value))} ]"
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"a value is {value}; expected a finite number")
    return json.dumps(value)


def _lines(start: str, lines: list[str], end: str, margin: str) -> str:
    between = f"\n{margin} "
    return f"{start}{between}{f',{between}'.join(lines)}\n{margin}{end}"


def _record(path: Path, entry: dict[str, Any]) -> Record:
    try:
        return Record(**entry)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise _foreign(path, error) from error


def _foreign(path: Path, error: Exception) -> ValueError:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return ValueError(f"{path} holds {reason}; expected records as `make record` writes them")


def slug(device: str) -> str:
    """The folder for a device: 'NVIDIA H200' is 'nvidia-h200'."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def _split(name: str) -> tuple[str, str]:
    """Chapter and measurement."""
    found = isinstance(name, str) and re.fullmatch(r"([a-z0-9_]+)/([a-z0-9_]+)", name)
    if not found:
        raise ValueError(f"name is {shown(name)}; expected 'chapter/measurement' in lower case")
    return found[1], found[2]


def software() -> dict[str, str]:
    """Versions by package, of what a measurement depends on; of NVRTC, that which is loaded."""
    versions = {"python": ".".join(str(part) for part in sys.version_info[:3])}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    from d2ltvm.compiler import nvrtc  # here, since few who read a record need the compiler

    with contextlib.suppress(MissingError):
        versions["nvrtc"] = ".".join(map(str, nvrtc.nvrtc_version()))
    torch = sys.modules.get("torch")
    if torch is not None and torch.backends.cudnn.is_available():
        versions["cudnn"] = str(torch.backends.cudnn.version())
    return versions
