"""Searches that measure on a fleet's servers: on the processor, with bad candidates among them."""

import json
import os
from multiprocessing import forkserver
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

import d2ltvm
from d2ltvm import fleet
from d2ltvm.__main__ import main
from d2ltvm.fleet import choosing
from d2ltvm.search import races, search, tune, workload
from d2ltvm.search.evolution import identity
from d2ltvm.search.on_fleet import FILE, FleetBench
from d2ltvm.system import toolchain

LONG = 120.0  # seconds that a condition may take on a machine with much else to do
LIMITS = fleet.Limits(build=LONG, wait=LONG, connect=LONG, run=LONG)
SMALL = workload("matmul", 64)
SHAPE = (64, 64)
pytestmark = pytest.mark.usefixtures("no_fleet_of_others")
QUIET = {"show": lambda *_: None}


def at(servers, key="cpu"):
    return f"{servers.address.host}:{servers.address.port}/{key}"


@T.prim_func(s_tir=True)
def hangs(A: T.Buffer(SHAPE, "float32"), B: T.Buffer(SHAPE, "float32"), C: T.Buffer(SHAPE)):
    T.func_attr({"tirx.noalias": True, "global_symbol": "main"})
    for i, j in T.grid(64, 64):
        with T.sblock("C"):
            v, w = T.axis.remap("SS", [i, j])
            while A[v, w] < T.float32(1e9):
                C[v, w] = C[v, w] + B[v, w]


def kernel(place, value):
    """Of each element of A and B, a value that stands in another row of C."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer(SHAPE, "float32"), B: T.Buffer(SHAPE, "float32"), C: T.Buffer(SHAPE)):
        T.func_attr({"tirx.noalias": True, "global_symbol": "main"})
        for i, j in T.grid(64, 64):
            with T.sblock("C"):
                v, w = T.axis.remap("SS", [i, j])
                C[place(A[v, w], v), w] = value(A[v, w], B[v, w])

    return func


crashes = kernel(lambda a, v: T.Cast("int32", T.float32(1e9) + a), lambda a, b: a + b)
subtracts = kernel(lambda a, v: v, lambda a, b: a - b)


def with_bad_ones(monkeypatch, *funcs):
    """The first batch of a search has these functions in front."""
    proposed = tune.proposed

    def first_the_bad(place, model, done, seen, *rest):
        bad = [tvm.s_tir.Schedule(tvm.IRModule({"main": f})) for f in funcs]
        bad = [sch for sch in bad if identity(sch) not in seen]
        return [*bad, *proposed(place, model, done, seen, *rest)][: rest[1]]

    monkeypatch.setattr(tune, "proposed", first_the_bad)


@pytest.mark.slow
def test_a_search_measures_on_a_fleet_and_goes_on(servers, tmp_path):
    folder = tmp_path / "found"
    first = search(SMALL, "llvm", 2, folder=folder, servers=servers, limits=LIMITS, **QUIET)
    assert [t.number for t in first] == [1, 2] and not any(t.why for t in first)
    assert all(0 < t.seconds < LONG and 0 <= t.error < 1e-6 for t in first)
    again = search(SMALL, "llvm", 4, folder=folder, servers=servers.address, limits=LIMITS, **QUIET)
    assert [identity(t.sch) for t in again[:2]] == [identity(t.sch) for t in first]
    assert [t.seconds for t in again[:2]] == [t.seconds for t in first]
    lines = [json.loads(line) for line in (folder / FILE).read_text().splitlines()[1:]]
    assert len(lines) == 4 and all(line["server"].startswith("cpu") for line in lines)
    with pytest.raises(ValueError, match="expected another folder, by --to"):
        search(SMALL, "llvm", 5, folder=folder, **QUIET)


@pytest.mark.slow
def test_the_command_searches_on_a_fleet(servers, tmp_path, capsys):
    options = ["search", "matmul", "--size", "64", "--to", str(tmp_path / "x")]
    assert main([*options, "--trials", "12", "--fleet", at(servers)]) == 0
    said = capsys.readouterr()
    assert "matmul-64: 12 trials, the best was" in said.out and "def apply(sch):" in said.out
    assert "by hand: packed tiles" in said.out and "nothing scheduled" in said.out
    assert f"measuring on the fleet of {servers.address}" in said.err
    made = {}
    exec(said.out[said.out.index("def apply") :], made)
    sch = d2ltvm.schedule(d2ltvm.matmul(64, 64, 64))
    made["apply"](sch)
    a, b = SMALL.inputs()
    assert d2ltvm.check(d2ltvm.build(sch, "llvm"), (a, b), np.matmul, terms=128) < 1e-6
    found = {json.loads(x)["server"][:4] for x in (tmp_path / "x" / FILE).open().readlines()[1:]}
    assert found and found <= {"cpu0", "cpu1"}


@pytest.mark.slow
def test_what_crashes_hangs_or_is_wrong_is_a_trial_with_a_reason(
    servers, tmp_path, monkeypatch, capsys
):
    with_bad_ones(monkeypatch, crashes, subtracts)
    found = search(SMALL, "llvm", 5, folder=tmp_path / "a", servers=servers, limits=LIMITS, **QUIET)
    why = sorted(t.why.partition(":")[0] for t in found)
    assert why == ["", "", "", "crash", "wrong result"]
    assert [t.number for t in found] == [1, 2, 3, 4, 5]
    assert all((t.seconds == float("inf")) == bool(t.why) for t in found)
    with_bad_ones(monkeypatch, hangs)
    limits = fleet.Limits(LONG, LONG, LONG, run=2)
    (hung,) = search(SMALL, "llvm", 1, servers=servers, limits=limits, **QUIET)
    assert hung.why.startswith("time limit: took longer than 2 s on 127.0.0.1:")
    # Of a search that is called again the bad ones are not measured again.
    with_bad_ones(monkeypatch, crashes, subtracts)
    options = ["search", "matmul", "--size", "64", "--trials", "5", "--to", str(tmp_path / "a")]
    assert main([*options, "--fleet", at(servers)]) == 0
    said = capsys.readouterr()
    assert "5 trials, 2 of them bad" in said.out and "was bad, crash: " in said.err
    names = [json.loads(x)["name"] for x in (tmp_path / "a" / FILE).open().readlines()[1:]]
    assert len([n for n in names if "candidate" in n]) == 5


@pytest.mark.slow
def test_the_same_schedule_in_another_order_of_parameters_gets_its_own_inputs(servers):
    @T.prim_func(s_tir=True)
    def turned(B: T.Buffer(SHAPE, "float32"), A: T.Buffer(SHAPE, "float32"), C: T.Buffer(SHAPE)):
        T.func_attr({"tirx.noalias": True, "global_symbol": "main"})
        for i, j, k in T.grid(64, 64, 64):
            with T.sblock("C"):
                v, w, r = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[v, w] = T.float32(0)
                C[v, w] = C[v, w] + A[v, r] * B[r, w]

    told = {}
    bench = FleetBench(SMALL, "llvm", servers, limits=LIMITS)
    mods = {"turned": tvm.IRModule({"main": turned})}
    bench.all(mods, lambda name, seconds, error, why: told.update({name: (error, why)}))
    error, why = told["turned"]
    assert why == "" and error < 1e-6
    assert bench.about.target == "llvm" and bench.device["name"] == bench.about.device


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "target", "said"),
    [
        ("nowhere", "llvm", "the tracker is 'nowhere'; expected its host and port"),
        ("127.0.0.1:1", "llvm", "no tracker answers at 127.0.0.1:1"),
        ("{}/h200", "llvm", "no server of {}, key 'h200' is there; it has 'cpu'"),
        ("{}/a b", "llvm", "key is 'a b'; expected letters"),
        ("{}", "cuda", "of {}, key 'cpu' measures on a cpu; expected one for cuda"),
    ],
)
def test_no_fleet_a_wrong_key_or_kind_is_one_line(servers, tmp_path, capsys, where, target, said):
    place = at(servers).partition("/")[0]
    options = ["search", "matmul", "--size", "64", "--to", str(tmp_path / "x")]
    where = where.format(place)
    assert main([*options, "--target", target, "--fleet", where]) == 1
    out, err = capsys.readouterr()
    last = err.splitlines()[-1]
    assert out == "" and last.startswith("python -m d2ltvm search: ")
    assert said.format(place) in last and len(err.splitlines()) <= 2
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_the_environment_or_the_fleet_that_is_up_is_taken(servers, monkeypatch):
    place = at(servers)
    assert choosing.choose("llvm", place) == servers.address
    assert choosing.choose("llvm", place.partition("/")[0]) == servers.address
    assert choosing.choose("llvm") is None
    found = choosing.choose("llvm", folder=servers.folder)
    assert found.address == servers.address and found.kind == "cpu"
    assert choosing.choose("cuda", folder=servers.folder) is None
    assert choosing.choose("llvm", "none", folder=servers.folder) is None
    monkeypatch.setenv("D2LTVM_FLEET", "none")
    assert choosing.choose("llvm", folder=servers.folder) is None
    monkeypatch.setenv("D2LTVM_FLEET", place)
    assert choosing.choose("llvm") == servers.address
    with pytest.raises(ValueError, match="kind is 'opencl'; expected 'llvm' or 'cuda'"):
        choosing.choose("opencl")


@pytest.mark.slow
def test_a_tracker_with_several_kinds_asks_for_a_key(servers, monkeypatch):
    place = at(servers).partition("/")[0]
    monkeypatch.setattr(choosing.tracker, "keys", lambda _: ["cpu", "nvidia-h100", "cpu"])
    assert choosing.choose("llvm", place).key == "cpu"
    assert choosing.choose("cuda", place).key == "nvidia-h100"
    monkeypatch.setattr(choosing.tracker, "keys", lambda _: ["nvidia-h100", "nvidia-h200"])
    with pytest.raises(fleet.FleetError, match="'nvidia-h200'; expected one of them, as "):
        choosing.choose("cuda", place)


@pytest.mark.slow
def test_gpus_are_told_with_their_architecture(monkeypatch):
    from d2ltvm.fleet import server

    class Gpu:
        """As CUDA's driver: it knows no name until it has been asked whether it is there."""

        compute_version = "9.0"
        asked = False

        @property
        def device_name(self):
            assert self.asked, "CUDA_ERROR_NOT_INITIALIZED"
            return "NVIDIA H200"

    gpu = Gpu()
    monkeypatch.setattr(server.tvm, "cuda", lambda _: gpu)
    monkeypatch.setattr(server.devices, "has_cuda", lambda: setattr(gpu, "asked", True) or True)
    about = json.loads(server._about("gpu0", "cuda", "GPU-1", [0, 1]))
    assert (about["device"], about["arch"]) == ("NVIDIA H200", "sm_90")
    assert (about["gpu"], about["cores"]) == ("GPU-1", [0, 1]) and about["machine"]


def test_what_a_search_on_a_fleet_measured_by_candidates_and_by_seconds(servers, tmp_path):
    folder = tmp_path / "kept"
    trials = search(SMALL, "llvm", 3, folder=folder, servers=servers, limits=LIMITS, **QUIET)
    calls, moments = races.trials(folder)
    assert calls.x["values"] == moments.x["values"] == [1, 2, 3]
    by_number = {trial.number: trial.seconds * 1e6 for trial in trials}
    np.testing.assert_allclose(sorted(calls["a call"]), sorted(by_number.values()), rtol=1e-2)
    assert min(moments["known after"]) == 0 and (moments["session"] > 0).all()
    assert calls.notes == "3 candidates; bad ones: none"
    with pytest.raises(ValueError, match="expected the folder of a search on a fleet"):
        races.trials(tmp_path)


def test_what_builds_and_what_serves_start_no_cuda_before_they_are_copied(servers, tmp_path):
    search(SMALL, "llvm", 1, folder=tmp_path / "one", servers=servers, limits=LIMITS, **QUIET)
    keeper = json.loads((servers.folder / "state.json").read_text())["keeper"]
    for process in (keeper, forkserver._forkserver._forkserver_pid):
        told = Path(f"/proc/{process}/environ").read_text().split("\0")
        assert all(f"{name}={value}" in told for name, value in toolchain.FORKS.items())
    assert not toolchain.FORKS.keys() & os.environ.keys()
