"""Processors that PoCL does not know, by descriptions laid out as PoCL's."""

import ctypes
import struct

import pytest

from d2ltvm.system import processor

V2 = {"cx16", "popcnt", "ssse3", "sse4_1", "sse4_2"}
V3 = V2 | {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "abm"}
V4 = V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (set(), "x86-64"),
        (V2, "x86-64-v2"),
        (V3, "x86-64-v3"),
        (V4, "x86-64-v4"),
        (V4 - {"fma"}, "x86-64-v2"),
        (V3 - {"popcnt"}, "x86-64"),
    ],
)
def test_a_level_has_all_of_those_below(flags, name):
    assert processor.level(flags) == name


class Description:
    """1,024 bytes as PoCL's, with two names in words side by side."""

    def __init__(self, triple, name, at=79):
        self.names = [ctypes.create_string_buffer(text) for text in (triple, name)]
        words = [7, 1 << 60, 1 << 40, *[0] * 125]  # a number, no address, an address of nothing
        words[at : at + 2] = map(ctypes.addressof, self.names)
        self.bytes = ctypes.create_string_buffer(struct.pack("<128Q", *words), 1024)
        self.at = at

    def told(self):
        processor.name_for_pocl(ctypes.addressof(self.bytes))
        (name,) = struct.unpack_from("<Q", self.bytes, 8 * (self.at + 1))
        return ctypes.string_at(name).decode()


@pytest.mark.parametrize("at", [3, 79, 126])
def test_an_unknown_processor_gets_the_name_of_its_level(at, monkeypatch):
    monkeypatch.setattr(processor, "cpuinfo", {"flags": " ".join(V3)}.get)
    assert Description(b"x86_64-unknown-linux-gnu", b"generic", at).told() == "x86-64-v3"


@pytest.mark.parametrize(
    ("triple", "name"),
    [
        (b"x86_64-unknown-linux-gnu", b"znver3"),
        (b"x86_64-unknown-linux-gnu", b"generic+x"),
        (b"aarch64-unknown-linux-gnu", b"generic"),
        (b"pthread", b"generic"),
    ],
)
def test_any_other_description_stays(triple, name):
    assert Description(triple, name).told() == name.decode()


def test_what_cannot_be_read_is_left_alone():
    assert processor.name_for_pocl(1 << 40) is None
