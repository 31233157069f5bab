"""Data sheets against each other and against arithmetic."""

import re

import pytest

import book
import d2ltvm
from d2ltvm.system import chips


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
    with pytest.raises(ValueError, match=r"'NVIDIA L40'; known GPUs: T4, A100, H100, H200"):
        d2ltvm.chip("NVIDIA L40")


def test_the_table_has_a_column_for_each():
    header, *rows = chips.table(["T4", "H200"]).splitlines()
    assert header == "| | T4 | H200 |"
    assert all(row.count("|") == 4 for row in rows)
