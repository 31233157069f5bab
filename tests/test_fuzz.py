"""Random calls of public functions: each is right, or one clear line.

`make test` tries the same 1,200 inputs every time, `make quick` 60, `make fuzz` 20,000 others
each time; D2LTVM_FUZZ_INPUTS says how many.
"""

import time

import fuzz_analysis
import fuzz_bench
import fuzz_compute
import fuzz_fleet
import fuzz_network
import fuzz_operators
import fuzz_schedules
import fuzz_search
import fuzzing
import numpy as np
import pytest
from tvm import te

import d2ltvm
from d2ltvm.search.learned import Ridge

MODULES = (
    fuzz_compute, fuzz_schedules, fuzz_analysis, fuzz_bench, fuzz_fleet, fuzz_operators,
    fuzz_search, fuzz_network,
)  # fmt: skip
GROUPS = {group: share for module in MODULES for group, share in module.GROUPS.items()}
ALL = sum(GROUPS.values())


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: f"{g.__module__}.{g.__name__}")
def test_right_or_one_clear_line(group):
    """Of each group as many inputs as its share of all."""
    tally = fuzzing.run(group, max(1, round(fuzzing.INPUTS * GROUPS[group] / ALL)))
    assert not tally.faults
    assert tally["right"] + tally["clear"] == sum(tally.values()) > 0


BROKEN = {
    "wrong": (lambda n: n + 1, {"n": 1}, lambda r: r == 1),
    "refused": (lambda n: d2ltvm.conv_out_size(n, 0, 0, 1), {"n": 1}, lambda r: r == 1),
    "taken": (lambda n: n, {"n": -1}, fuzzing.REFUSED),
    "of no kind that is documented": (lambda n: {}[n], {"n": 1}, fuzzing.REFUSED),
    "several lines": (lambda n: raised(f"n is {n}\nexpected 1"), {"n": 1}, fuzzing.REFUSED),
    "nothing named": (lambda n: raised("expected something else"), {"n": 7}, fuzzing.REFUSED),
    "nothing expected": (lambda n: raised(f"n is {n}"), {"n": 7}, fuzzing.REFUSED),
    "memory": (lambda n: np.ones(n), {"n": 2**40}, fuzzing.EITHER),
    "hang": (lambda n: time.sleep(n), {"n": 2}, fuzzing.EITHER),
}


def raised(message):
    raise ValueError(message)


@pytest.mark.parametrize("name", BROKEN)
def test_a_fault_is_noticed(name, monkeypatch):
    monkeypatch.setattr(fuzzing, "SECONDS", 0.2)
    with pytest.raises(fuzzing.Fault):
        fuzzing.Tally().judge(*BROKEN[name])


def test_what_is_right_is_no_fault():
    tally = fuzzing.Tally()
    tally.judge(d2ltvm.conv_out_size, {"n": 8, "k": 3, "p": 0, "s": 1}, lambda r: r == 6)
    tally.judge(d2ltvm.conv_out_size, {"n": 8, "k": 0, "p": 0, "s": 1}, fuzzing.REFUSED)
    assert dict(tally) == {"right": 1, "clear": 1}


MATMUL = d2ltvm.search.workload("matmul", 64)
FOUND = {  # by the fuzz, at first: silent, a crash, or a line that did not help
    "dtype of a narrow border": lambda: d2ltvm.padding(te.placeholder((2, 3), "int8"), 1, 1, -1.5),
    "elements beyond 32 bits": lambda: d2ltvm.schedules.alternate_parallel(2**16),
    "a tensor has no end": lambda: d2ltvm.split_axis(te.placeholder((2,)), None, None),
    "nothing computed": lambda: d2ltvm.schedule(d2ltvm.vector_add(8)[:2]),
    "an input that is missing": lambda: d2ltvm.schedule(d2ltvm.vector_add(8)[1:]),
    "no threads": lambda: d2ltvm.schedules.matmul_shared(8, 8, 8, nt=0),
    "a grid of nothing": lambda: d2ltvm.occupancy("H200", 256, 32, 0, ()),
    "tile of another type": lambda: d2ltvm.hopper.conv_nhwc(8, 8, 8, 8, 3, tile=7),
    "columns that are a float": lambda: d2ltvm.hopper.matmul_nt(8, 8, 8, columns=64.0),
    "seconds without end": lambda: d2ltvm.bench_workload(lambda n: float("inf")),
    "no clock": lambda: d2ltvm.time_together({}, ()),
    "bytes of no kind": lambda: d2ltvm.bench.rows.rows_bytes("sums", 8, 8),
    "a rank of NaN": lambda: d2ltvm.search.rank_correlation([1, float("nan")], [1, 2]),
    "no first choice": lambda: d2ltvm.search.regret([1, 2], [1.0, 2.0], 0),
    "a tile of nothing": lambda: d2ltvm.search.moved_factor([0, 4], 8, np.random.default_rng(1)),
    "a time of zero": lambda: Ridge().fit(np.ones((2, 1)), [0.0, 1.0]),
    "a search without trials": lambda: d2ltvm.search.search(MATMUL, trials=0),
    "a sketch that is not there": lambda: d2ltvm.search.space(MATMUL, "llvm").sample(9, 1),
    "a workload beyond 32 bits": lambda: d2ltvm.search.workload("matmul", 2**20),
    "two kernels at once": lambda: d2ltvm.search.counted(d2ltvm.schedule(MATMUL._tensors()), 1),
    "seconds that are none": lambda: d2ltvm.fleet.Limits(run=float("nan")),
    "repeats of nothing": lambda: d2ltvm.fleet.Clock(repeat=0),
    "roundings of nothing": lambda: d2ltvm.fleet.measure(
        {"a": d2ltvm.schedules.cpu_vector_add(8)},
        d2ltvm.get_abc(8)[:2],
        np.add,
        servers=d2ltvm.fleet.Address("127.0.0.1", 1, "cpu"),
        to="none",
        target="llvm",
        terms=0,
    ),
    "a model without time": lambda: d2ltvm.fleet.scaling.Terms(0, 1, 1, 1, 1, 1, 1),
    "a network without a name": lambda: d2ltvm.network.load(["resnet18"]),
    "an operator without a name": lambda: d2ltvm.network.models.from_symbol(
        "none", [{"op": "clip", "inputs": ["data"]}], (1, 3, 8, 8)
    ),
    "images of one number": lambda: d2ltvm.hopper.pooling.mean_pool(8),
    "a stem of another shape": lambda: d2ltvm.hopper.stem.plan_stem((8, 8)),
    "a target that is an array": lambda: d2ltvm.system.as_target(np.array([1, 2])),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_the_fuzz_found_stays_mended(name):
    with pytest.raises((ValueError, TypeError), match="expected") as caught:
        FOUND[name]()
    assert len(str(caught.value).splitlines()) == 1


def test_a_box_outside_of_a_tensor_stores_nothing():
    tensor = np.zeros((4, 2))
    d2ltvm.layouts.put(tensor, (-3, 0), np.ones((2, 2)))
    assert not tensor.any()


def test_numpys_integers_are_sizes():
    assert d2ltvm.schedules.vectorized(np.int32(64), np.uint8(8), np.int8(4))
    assert d2ltvm.hopper.matmul_nt(np.int16(8), np.int64(8), np.uint8(8))
