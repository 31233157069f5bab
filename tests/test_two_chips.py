"""Kernels on two chips: what follows from the share of the time in which the memory is busy."""

import numpy as np
import pytest

import d2ltvm
from d2ltvm.bench import two_chips
from d2ltvm.bench.two_chips import H200, in_turn, overlapping


def test_both_answers_agree_at_the_ends_and_the_first_is_never_more():
    for slower in (1.0, 1.43, 3.0):
        assert overlapping(0, slower) == in_turn(0, slower) == 1
        assert overlapping(1, slower) == in_turn(1, slower) == slower
        for share in np.linspace(0, 1, 11):
            assert 1 <= overlapping(share, slower) <= in_turn(share, slower) + 1e-12
    for wrong in (-0.1, 1.1, float("nan"), "half"):
        with pytest.raises(ValueError, match="share is"):
            overlapping(wrong, 1.4)


def test_every_kernel_has_a_record_and_a_name_of_its_own():
    entries = two_chips.entries()
    assert len({(entry.part, entry.name) for entry in entries}) == len(entries)
    for entry in entries:
        assert 1e-6 < entry.seconds() < 1 and entry.moved >= 0, entry
        assert 0 <= entry.share(4.0) <= entry.share(2.0) <= 1


def test_times_come_from_rates_and_from_microseconds():
    by_name = {entry.name: entry for entry in two_chips.entries()}
    copy, rate = by_name["copy"], d2ltvm.load_record("gpu_in_numbers/copy").at("TVM", 2**28)
    assert copy.seconds(H200) == pytest.approx(8 * 2**28 / rate / 1e12)
    assert copy.share(rate) == pytest.approx(1) and copy.share(rate * 2) == pytest.approx(0.5)
    tiling = by_name["convolution, tiling"]
    us = d2ltvm.load_record("conv/tiling").at("tiling", 64)
    assert tiling.seconds() == pytest.approx(us * 1e-6) and tiling.share(4) == 0


def test_a_device_without_records_is_not_recorded():
    copy = two_chips.entries()[0]
    assert copy.recorded(H200) and not copy.recorded("nvidia-t4")
