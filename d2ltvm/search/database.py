"""What a search has measured, kept: MetaSchedule's `JSONDatabase`, with where it comes from.

A folder holds `workloads.jsonl` and `records.jsonl`, which MetaSchedule reads and writes, and
`provenance.json`: device, software, date, seed, and how busy the machine was. A search that was
cut off goes on from there.
"""

import datetime
import json
import os
from pathlib import Path
from typing import Any

import tvm.s_tir.meta_schedule as ms

from d2ltvm.bench.records import software
from d2ltvm.search.spaces import Space
from d2ltvm.system import devices, files

PROVENANCE = "provenance.json"
FOUND = Path(__file__).with_name("found")  # folders of searches that were made, by their names


class Kept:
    """The folder of a search.

    Args:
        folder: where it is, or is made.
        space: what is searched.
        seed: of the search.
        device: what measures; None is this machine's.

    Raises:
        ValueError: the folder is of another computation, device, version or seed.
    """

    def __init__(
        self, folder: Path, space: Space, seed: int, device: dict[str, str] | None = None
    ) -> None:
        self.folder, self.space = folder, space
        folder.mkdir(parents=True, exist_ok=True)
        if device is None:
            on_gpu = space.kind == "cuda"
            device = devices.describe_device() if on_gpu else devices.describe_processor()
        here = {
            "workload": space.workload.title,
            "kind": space.kind,
            "seed": seed,
            "device": device,
            "software": software(),
        }
        path = folder / PROVENANCE
        if path.exists():
            self.provenance = provenance(folder)
            for name, value in here.items():
                if self.provenance.get(name) != value:
                    raise ValueError(
                        f"{folder} has {name} {self.provenance.get(name)}, not {value}; "
                        "expected another folder, by --to"
                    )
        else:
            load = round(os.getloadavg()[0], 1)  # programs that ran in the minute before
            today = datetime.date.today().isoformat()
            self.provenance = {**here, "date": today, "load": load}
            files.write(path, json.dumps(self.provenance, indent=1, ensure_ascii=False) + "\n")
        self._database = opened(folder)
        self._workload = self._database.commit_workload(space.context.mod)

    def records(self) -> list[tuple[Any, float]]:
        """What was measured, in the order of it: a schedule and its seconds."""
        lines = (self.folder / "records.jsonl").read_text().splitlines()
        order = [json.loads(line)[1][1] for line in lines]
        found = replayed(self._database, self.space)
        return sorted(
            found, key=lambda pair: [sorted(o)[len(o) // 2] for o in order].index(pair[1])
        )

    def add(self, sch: Any, seconds: list[float]) -> None:
        """Keep what was measured of a schedule; it is on the disk when this returns."""
        record = ms.database.TuningRecord(sch.trace, self._workload, run_secs=seconds)
        self._database.commit_tuning_record(record)


def opened(folder: Path) -> Any:
    """The `JSONDatabase` of a folder."""
    paths = {"path_workload": "workloads.jsonl", "path_tuning_record": "records.jsonl"}
    return ms.database.JSONDatabase(**{name: str(folder / file) for name, file in paths.items()})


def provenance(folder: Path) -> dict[str, Any]:
    """Where a folder's records come from.

    Raises:
        ValueError: it does not say.
    """
    path = folder / PROVENANCE
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{path} is not there or not whole; expected a search's folder") from error


def replayed(database: Any, space: Space) -> list[tuple[Any, float]]:
    """The schedules of a database, each made anew from its trace, with their seconds."""
    from tvm.s_tir import Schedule

    found = []
    for record in database.get_all_tuning_records():
        sch = Schedule(space.context.mod)
        record.trace.apply_to_schedule(sch, remove_postproc=False)
        times = sorted(float(s) for s in record.run_secs)
        found.append((sch, times[len(times) // 2]))
    return found
