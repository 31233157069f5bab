"""The repository's own records."""

import json

import numpy as np
import pytest

import d2ltvm
from d2ltvm.bench import records


@pytest.mark.slow
def test_storing_a_record_again_changes_no_byte_of_its_file(tmp_path, monkeypatch):
    folder = records.MEASUREMENTS
    for path in folder.glob("*/*.json"):
        text = path.read_bytes()
        assert records.as_json(json.loads(text)).encode() + b"\n" == text, path
        copy = tmp_path / path.relative_to(folder)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(text)
        monkeypatch.setattr(records, "MEASUREMENTS", tmp_path)
        for entry in records.stored_records(path):
            name = f"{path.stem}/{entry['name']}"
            records.store_record(d2ltvm.load_record(name, path.parent.name))
        assert copy.read_bytes() == text, path


def test_every_stored_record_is_whole():
    """The repository's own records load, carry provenance and finite positive values."""
    paths = sorted(records.MEASUREMENTS.glob("*/*.json"))
    assert paths, "book/measurements is empty"
    for path in paths:
        for entry in json.loads(path.read_text())["records"]:
            record = d2ltvm.load_record(f"{path.stem}/{entry['name']}", path.parent.name)
            assert records.slug(record.device["name"]) == path.parent.name
            assert record.date and record.device["driver"] and record.software["apache-tvm"]
            for legend in record.series:
                assert np.isfinite(record[legend]).all() and (record[legend] >= 0).all()
