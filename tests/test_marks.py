"""Which cases `make quick` leaves out."""

from pathlib import Path
from types import SimpleNamespace

import pytest

import conftest


class Item:
    """A case of a test, as pytest collects it."""

    def __init__(self, name, *marks):
        self.path, self.originalname = Path("test_some.py"), name
        self.marks = [mark.mark for mark in marks]

    def iter_markers(self, name):
        return [mark for mark in self.marks if mark.name == name]

    def get_closest_marker(self, name):
        return next(iter(self.iter_markers(name)), None)

    def add_marker(self, name):
        self.marks.append(SimpleNamespace(name=name))


def left_out(items):
    conftest.pytest_collection_modifyitems(items)
    return [k for k, item in enumerate(items) if item.get_closest_marker("slow")]


def test_cases_that_are_kept_are_spread():
    assert left_out([Item("a", pytest.mark.quick(3)) for _ in range(9)]) == [1, 2, 4, 5, 7, 8]
    assert left_out([Item("a", pytest.mark.quick(1)) for _ in range(3)]) == [1, 2]
    assert left_out([Item("a", pytest.mark.quick(5)) for _ in range(3)]) == []
    assert left_out([Item("a") for _ in range(3)]) == []


def test_cases_are_those_of_one_test_that_run_here():
    a, b = pytest.mark.quick(1), pytest.mark.quick(2)
    on_a_gpu, here = pytest.mark.skipif(True, reason=""), pytest.mark.skipif(False, reason="")
    items = [Item("a", a), Item("b", b), Item("a", a), Item("b", b), Item("b", b)]
    assert left_out(items) == [2, 3]
    assert left_out([Item("a", a, on_a_gpu), Item("a", a, here), Item("a", a, here)]) == [2]
