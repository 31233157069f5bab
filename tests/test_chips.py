"""Data sheets against each other and against arithmetic."""

import re

import pytest

import book
import d2ltvm
from d2ltvm.system import chips, devices


@pytest.mark.parametrize("chip", chips.CHIPS.values(), ids=chips.CHIPS)
def test_the_peak_follows_from_lanes_and_clock(chip):
    """An FMA is two operations; data sheets round to two or three digits."""
    computed = chip.sms * chip.fp32_lanes * 2 * chip.boost_ghz / 1000
    assert computed == pytest.approx(chip.fp32_tflops, rel=0.01)


@pytest.mark.parametrize("chip", chips.CHIPS.values(), ids=chips.CHIPS)
def test_sources_are_in_the_bibliography(chip):
    keys = re.findall(r"^@\w+\{(\w+),", (book.ROOT / "book/references.bib").read_text(), re.M)
    assert set(chip.sources) <= set(keys)


def test_a_chip_is_found_by_the_name_its_driver_gives():
    assert d2ltvm.chip("Tesla T4").name == "T4"
    assert d2ltvm.chip("NVIDIA A100-SXM4-80GB").name == "A100"
    assert d2ltvm.chip("NVIDIA H200").sms == 132
    with pytest.raises(ValueError, match=r"'NVIDIA L40'; expected one of T4, A100, H100, H200"):
        d2ltvm.chip("NVIDIA L40")


def test_the_table_has_a_column_for_each():
    header, *rows = chips.table(["T4", "H200"]).splitlines()
    assert header == "| | T4 | H200 |"
    assert all(row.count("|") == 4 for row in rows)


PCIE = devices.Reported("NVIDIA H100 PCIe", "sm_90", sms=114, l2_mib=50, ghz=1.755)
L4 = devices.Reported("NVIDIA L4", "sm_89", sms=58, l2_mib=48, ghz=2.04)


def test_the_gpu_that_is_here_is_asked(monkeypatch):
    monkeypatch.setattr(devices, "reported", lambda: PCIE)
    found = chips.here()
    assert (found.name, found.sms, found.l2_mib, found.boost_ghz) == ("H100", 114, 50, 1.755)
    assert found.shared_kib == d2ltvm.chip("H100").shared_kib
    monkeypatch.setattr(devices, "reported", lambda: L4)
    with pytest.raises(ValueError, match="'NVIDIA L4'; expected one of"):
        chips.here()


def test_without_a_gpu_it_is_the_data_sheet(monkeypatch):
    monkeypatch.setattr(devices, "reported", lambda: None)
    assert chips.here() == d2ltvm.chip("H200") and chips.here("T4") == d2ltvm.chip("T4")
    assert chips.sm_count() == 132 and chips.sm_count("T4") == 40


def test_where_records_are_shown_the_chip_is_that_of_the_records(monkeypatch):
    monkeypatch.setattr(devices, "reported", lambda: PCIE)
    assert chips.here().name == "H100"
    monkeypatch.setenv("D2LTVM_RECORD", "none")
    assert chips.here() == d2ltvm.chip("H200")


def test_a_kernel_is_written_for_the_gpu_here_if_it_runs_on_it(monkeypatch):
    monkeypatch.setattr(devices, "reported", lambda: PCIE)
    assert chips.sm_count("H200") == chips.sm_count("H100") == 114
    assert chips.sm_count("A100") == 108
    monkeypatch.setattr(devices, "reported", lambda: L4)
    assert chips.sm_count("H200") == 132
    with pytest.raises(ValueError, match="expected one of"):
        chips.sm_count("L4")
