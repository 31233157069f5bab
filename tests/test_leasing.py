"""Processes of this machine beside a server that they hold: chapters and benchmarks of a fleet."""

import json
import os
import signal
import sys
import time
import types
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from d2ltvm import fleet
from d2ltvm.fleet import choosing, jobs, leasing, tracker, workers
from d2ltvm.system import toolchain

LONG = 120.0  # seconds that a condition may take on a machine with much else to do
LIMITS = fleet.Limits(build=LONG, wait=LONG, connect=LONG, run=LONG)
SAYS = """
import json, os, sys, time
begin = time.monotonic()
time.sleep(0.3)
names = ("CUDA_VISIBLE_DEVICES", "D2LTVM_FLEET", "OMP_NUM_THREADS")
print(json.dumps({
    "cores": sorted(os.sched_getaffinity(0)), "span": [begin, time.monotonic()],
    **{name: os.environ.get(name) for name in names},
}))
print("and an error", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


def command(code=0):
    return [sys.executable, "-c", SAYS, str(code)]


@pytest.mark.slow
def test_each_command_has_a_server_and_its_share_of_the_cores_to_itself(servers):
    seen = []
    found = leasing.run_each(
        {"a": command(), "b": command(3), "c": command()},
        servers,
        "llvm",
        show=lambda name, ended: seen.append(name),
        limits=LIMITS,
    )
    assert [(name, e.code) for name, e in found.items()] == [("a", 0), ("b", 3), ("c", 0)]
    assert sorted(seen) == ["a", "b", "c"] and all("and an error" in e.err for e in found.values())
    said = [json.loads(e.out) for e in found.values()]
    assert all(s["D2LTVM_FLEET"] == "none" for s in said)
    assert not toolchain.FORKS.keys() & os.environ.keys()  # two threads have started workers
    assert all(int(s["OMP_NUM_THREADS"]) == len(s["cores"]) for s in said)
    shares = {tuple(s["cores"]) for s in said}
    assert shares <= {tuple(sorted(os.sched_getaffinity(0))[k::2]) for k in range(2)}
    for one in said:
        for other in said:
            if one is not other and one["cores"] == other["cores"]:
                assert one["span"][0] > other["span"][1] or other["span"][0] > one["span"][1]


def test_threads_that_start_workers_leave_the_environment_as_it_was(monkeypatch):
    class Process:
        def start(self):
            time.sleep(0.01)

    context = types.SimpleNamespace(
        set_forkserver_preload=lambda names: None,
        Pipe=lambda: (None, types.SimpleNamespace(close=lambda: None)),
        Process=lambda **_: Process(),
    )
    monkeypatch.setattr(workers.multiprocessing, "get_context", lambda _: context)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: workers.Worker()._start(), range(8)))
    assert not toolchain.FORKS.keys() & os.environ.keys()


@pytest.mark.slow
def test_what_is_held_is_free_for_nobody_else_until_the_end(servers):
    with (
        leasing.lease(servers, "llvm", LIMITS) as one,
        leasing.lease(servers, "llvm", LIMITS) as other,
    ):
        assert one.name != other.name
        with pytest.raises(fleet.FleetError, match=r"was free within 0\.2 s"):
            tracker.request(servers.address, 0.2)
    assert choosing.ask(servers, "llvm", LIMITS).kind == "cpu"


@pytest.mark.slow
def test_a_server_that_is_lost_while_it_is_held_is_told(servers):
    with (
        pytest.raises(fleet.FleetError, match=r"cpu\d was lost while it was held: others may"),
        leasing.lease(servers, "llvm", LIMITS) as held,
    ):
        session = psutil.Process(held.session)
        os.kill(servers.member(held.name).pid, signal.SIGKILL)
        session.wait(LONG)  # it dies with its server, as soon as the system comes to it
        waited = workers.Worker()  # another client has the new one before the block ends
        waited.begin("it", LONG, jobs.about, servers.address, LIMITS)
        assert choosing.said(waited).kind in ("connecting", "failed")
        waited.end()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "machine", "said"),
    [
        ("cuda", None, r"cpu\d of 127.* measures on a cpu; expected one for cuda, a cuda"),
        ("llvm", "another", r"server cpu\d at 127.* is on another machine; expected one of this"),
    ],
)
def test_what_cannot_be_held_is_one_line(servers, monkeypatch, kind, machine, said):
    if machine:
        monkeypatch.setattr(leasing.server, "machine", lambda: machine)
    with pytest.raises(fleet.FleetError, match=said):
        leasing.run_each({"a": command()}, servers, kind, limits=LIMITS)


@pytest.mark.slow
def test_a_process_sees_the_gpu_of_its_server_alone():
    about = choosing.About(
        "gpu1", "127.0.0.1:9192", "cuda", "NVIDIA H200", "sm_90", "GPU-91bd", "this", (4, 5, 6), 7
    )
    assert about.target == "sm_90"
    found = leasing.environment(about)
    assert found["CUDA_VISIBLE_DEVICES"] == "GPU-91bd" and found["TVM_NUM_THREADS"] == "3"
