"""Faults of a fleet: nothing that was measured is lost, and whoever is to blame is named.

Servers run on the processor, ports are the system's choice, and waits are for conditions.
"""

import contextlib
import errno
import gc
import json
import multiprocessing
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import fleet_kernels
import numpy as np
import psutil
import pytest
import tvm
from fleet_kernels import CRASHES, HANGS, OUTSIDE, N, good, kernel, slow, spoils
from tvm.rpc import base

import book
import d2ltvm
from d2ltvm import fleet
from d2ltvm.__main__ import main
from d2ltvm.compiler import verify
from d2ltvm.fleet import (
    database,
    jobs,
    keeper,
    local,
    measuring,
    metaschedule,
    nvml,
    scaling,
    server,
    session,
    task,
    tracker,
    workers,
)
from d2ltvm.fleet.state import State
from d2ltvm.system import devices

LONG = 120.0  # seconds that a condition may take on a machine with much else to do
LIMITS = fleet.Limits(build=LONG, wait=LONG, connect=LONG, run=LONG)
QUICK = fleet.Clock(repeat=1, min_repeat_ms=0)


def until(condition, limit=LONG):
    """Wait until something holds, and return it."""
    end = time.monotonic() + limit
    while not (found := condition()):
        assert time.monotonic() < end, "it does not come to hold"
        time.sleep(0.005)
    return found


@contextlib.contextmanager
def meanwhile(act):
    """Do something in another thread; what it raises is raised here."""
    raised = []

    def run():
        try:
            act()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        if raised:
            raise raised[0]


@contextlib.contextmanager
def without_gc():
    """No garbage is collected. Hypothesis has Python called then, and what a call back raises is
    dropped: a `KeyboardInterrupt` as well, where the signal comes in a collection.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def interrupted():
    """SIGINT is what it is to a program, also where the shell in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def to(tmp_path):
    return tmp_path / "run.jsonl"


def measure(candidates, servers, to, **others):
    a, b, _ = d2ltvm.get_abc(N)
    options = {"clock": QUICK, "limits": LIMITS, "builders": 1, **others}
    return fleet.measure(
        candidates, (a, b), np.add, servers=servers, to=to, target="llvm", **options
    )


def statuses(found):
    return {name: result.status for name, result in found.items()}


def lines(to):
    """The results in a file, as they stand there."""
    return [json.loads(line) for line in to.read_text().splitlines()[1:]]


def busy(servers):
    """A server that has a session now."""
    return next((s for s in servers.servers() if s.state == "busy"), None)


def running(servers):
    """A server whose session has loaded a candidate, and the session's process."""
    for one in servers.servers():
        with contextlib.suppress(psutil.Error, ValueError):
            for session in psutil.Process(one.pid).children():
                if any(LIBRARY.search(m.path) for m in session.memory_maps()):
                    return one, session
    return None


LIBRARY = re.compile(r"/\d+-[0-9a-f]{16}\.so")


def kill_in_the_midst(servers, number=signal.SIGKILL):
    os.kill(until(lambda: running(servers))[0].pid, number)


def living(process):
    """Whether it is there; a zombie, which nobody has waited for, is not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def living_pid(pid):
    """The same of a process by its number."""
    try:
        return living(psutil.Process(pid))
    except psutil.Error:
        return False


def starts(servers):
    return sum(s.starts for s in servers.servers())


# What works.


def test_right_ones_are_timed_and_each_structure_once(servers, to):
    seen = []
    found = measure({"one": good(), "two": good(1), "again": good()}, servers, to, show=seen.append)
    assert set(statuses(found).values()) == {"ok"} and found["again"] == found["one"]
    assert len(seen) == len(lines(to)) == 2
    one = found["one"]
    assert 0 < one.best < 1 and one.server.startswith("cpu") and one.build_s > 0 < one.session_s
    assert one.clock_mhz is None and one.attempts == 1
    assert measure({"other name": good()}, servers, to, show=seen.append)["other name"] == one
    assert len(seen) == 2


def test_status_says_what_each_server_does(servers, to):
    with meanwhile(lambda: measure({"slow": slow()}, servers, to)):
        one = until(lambda: busy(servers))
    until(lambda: busy(servers) is None)
    assert one.key == "cpu" and one.device and one.pid and one.port
    assert psutil.Process(one.pid).cpu_affinity() != psutil.Process().cpu_affinity() or (
        len(os.sched_getaffinity(0)) == 1
    )


@pytest.fixture
def requests(monkeypatch):
    """How often this process has asked the tracker for a server."""
    asked, request = [], tracker.request
    monkeypatch.setattr(tracker, "request", lambda *a: asked.append(a) or request(*a))
    yield asked
    jobs.let_go()


def serve(servers, tmp_path, mod, alone=False, told=None):
    """What a session says of a candidate; and whether it was its own."""
    told = [] if told is None else told
    a, b, _ = d2ltvm.get_abc(N)
    given, path = tmp_path / "task", f"{tmp_path}/{len(list(tmp_path.iterdir()))}.so"
    given.write_bytes(pickle.dumps(task.Task((a, b), (a + b,), (abs(a) + abs(b),))))
    params, _ = jobs.build(None, mod, devices.as_target("llvm"), path)
    tell = lambda *message: told.append(message)  # noqa: E731
    what = (LIMITS, QUICK, path, params, str(given), alone)
    found = jobs.measure(tell, servers.address, *what)
    return found, dict(told)["serving"][1]


def test_a_session_goes_on_while_candidates_are_right(servers, tmp_path, requests, monkeypatch):
    own = [serve(servers, tmp_path, good(k))[1] for k in range(3)]
    assert own == [True, False, False] and len(requests) == 1 and busy(servers)
    assert serve(servers, tmp_path, good(), alone=True)[1] and len(requests) == 2
    with pytest.raises(verify.WrongResultError):
        serve(servers, tmp_path, kernel(lambda a, b, _: a - b))
    assert serve(servers, tmp_path, good())[1] and len(requests) == 3
    monkeypatch.setattr(session, "TIME_SLICE", 0)  # its time is over: others get their turn
    assert serve(servers, tmp_path, good())[1] and len(requests) == 4
    jobs.let_go()
    until(lambda: busy(servers) is None)


def test_arrays_are_sent_once_a_session_and_compared_there(servers, tmp_path, requests):
    def sent():
        told = []
        serve(servers, tmp_path, good(len(list(tmp_path.iterdir()))), told=told)
        return [value for kind, value in told if kind == "sending"]

    nbytes = 2 * 4 * N + 4 * N + 4 * N  # two inputs, what is right, and its magnitudes
    assert sent() == [nbytes / session.SLOWEST] and sent() == []
    there = jobs._kept.there
    there.inputs[0].copyfrom(np.zeros(N, "float32"))  # as a candidate that writes elsewhere would
    with pytest.raises(verify.WrongResultError):
        serve(servers, tmp_path, good(99))
    assert jobs._kept is None and len(sent()) == 1 and len(requests) == 2


@pytest.mark.slow
def test_a_run_without_a_limit_may_take_longer_than_the_grace(servers, to):
    limits = fleet.Limits(LONG, LONG, LONG, run=0)
    seconds = task.GRACE / 2
    found = measure({"slow": slow(int(1000 * seconds))}, servers, to, limits=limits)
    assert statuses(found) == {"slow": "ok"} and found["slow"].session_s > task.GRACE


def test_a_worker_at_rest_gives_its_server_back(servers):
    worker = workers.Worker()
    worker.begin("it", LONG, fleet_kernels.keep_a_session, servers.address, LIMITS)
    while not (message := worker.look()) or message.kind != "done":
        time.sleep(0.005)
    assert message.value == "kept"
    until(lambda: busy(servers))
    until(lambda: busy(servers) is None)
    worker.end()


# Candidates that are bad.


def test_what_the_one_before_spoiled_is_not_the_next_ones_fault(to, tmp_path, monkeypatch):
    begin = measuring._Run._begin_session

    def when_both_are_built(run, worker, candidate):
        """So that the session goes on to the second, however long that takes to build."""
        if run.to_measure or run.database.results:
            begin(run, worker, candidate)
        else:
            run.to_measure.appendleft(candidate)

    monkeypatch.setattr(measuring._Run, "_begin_session", when_both_are_built)
    candidates = {"spoils": spoils(), "slow": slow(900)}  # three runs of it take 2.7 s
    with fleet.up(cpus=1, folder=tmp_path / "one") as servers:
        found = measure(candidates, servers, to)
        until(lambda: starts(servers) == 2)  # the session was ended, and with it the server
    assert statuses(found) == {"spoils": "ok", "slow": "ok"} and found["slow"].attempts == 1


@pytest.mark.slow
def test_what_hangs_is_named_and_its_server_started_again(servers, to):
    before = starts(servers)
    limits = fleet.Limits(LONG, LONG, LONG, run=1)
    found = measure({"hangs": HANGS}, servers, to, limits=limits)
    assert found["hangs"].status == "time limit" and "1 s" in found["hangs"].why
    until(lambda: starts(servers) == before + 1)
    assert statuses(measure({"good": good()}, servers, to)) == {"good": "ok"}


def test_what_crashes_is_named_after_its_second_session_and_others_go_on(servers, to):
    before = starts(servers)
    found = measure({"crashes": CRASHES, "good": good()}, servers, to)
    assert statuses(found) == {"crashes": "crash", "good": "ok"}
    assert found["crashes"].attempts == 2 and "ended while it ran" in found["crashes"].why
    until(lambda: starts(servers) == before + 2)


@pytest.mark.slow
def test_wrong_nan_and_what_does_not_compile_are_named(servers, to):
    candidates = {
        "wrong": kernel(lambda a, b, v: a - b),
        "nan": kernel(lambda a, b, v: tvm.tirx.Select(v == 7, tvm.tirx.sqrt(-1 - a * a), a + b)),
        "outside": OUTSIDE,
    }
    found = measure(candidates, servers, to)
    assert statuses(found) == {
        "wrong": "wrong result",
        "nan": "wrong result",
        "outside": "compile error",
    }
    assert found["nan"].why.startswith("C[7] is nan") and "C[v + 1]" in found["outside"].why
    assert all(result.seconds == () for result in found.values())


@pytest.mark.slow
def test_what_compiles_for_too_long_is_named(servers, to, monkeypatch):
    monkeypatch.setattr(measuring.jobs, "build", fleet_kernels.never_done)
    found = measure({"long": good()}, servers, to, limits=fleet.Limits(build=0.1))
    assert found["long"].status == "compile error" and "0.1 s" in found["long"].why


@pytest.mark.slow
def test_what_ends_the_compiler_is_named_after_the_second_time(servers, to, monkeypatch):
    monkeypatch.setattr(measuring.jobs, "build", fleet_kernels.ends)
    found = measure({"ends": good()}, servers, to)
    assert found["ends"].status == "compile error" and "ended with 7" in found["ends"].why


@pytest.mark.slow
def test_a_full_disk_while_compiling_is_no_fault_of_a_candidate(servers, to, monkeypatch):
    monkeypatch.setattr(measuring.jobs, "build", fleet_kernels.no_space)
    with pytest.raises(OSError, match="No space left"):
        measure({"good": good()}, servers, to)
    assert lines(to) == []
    monkeypatch.undo()
    assert statuses(measure({"good": good()}, servers, to)) == {"good": "ok"}


# Servers and trackers that go.


def test_a_server_killed_in_the_midst_loses_nothing(servers, to):
    before = starts(servers)
    with meanwhile(lambda: kill_in_the_midst(servers)):
        found = measure({str(k): slow(k=k) for k in range(3)}, servers, to)
    assert set(statuses(found).values()) == {"ok"} and len(lines(to)) == 3
    assert sum(r.attempts for r in found.values()) == 4
    until(lambda: starts(servers) == before + 1)


@pytest.mark.slow
def test_a_run_that_begins_while_no_server_is_there_waits_for_them(servers, to):
    for one in servers.servers():
        os.kill(one.pid, signal.SIGSTOP)  # the keeper ends it, and starts another one
    assert statuses(measure({"good": good()}, servers, to)) == {"good": "ok"}
    until(lambda: len(tracker.ports(servers.address)) == 2)


@pytest.mark.slow
def test_a_session_killed_in_the_midst_loses_nothing(servers, to):
    with meanwhile(lambda: until(lambda: running(servers))[1].kill()):
        found = measure({"slow": slow(k=10)}, servers, to)
    assert found["slow"].status == "ok" and found["slow"].attempts == 2


@pytest.mark.slow
def test_a_server_that_is_paused_in_the_midst_is_replaced(servers, to):
    before = starts(servers)
    with meanwhile(lambda: kill_in_the_midst(servers, signal.SIGSTOP)):
        found = measure({"slow": slow(k=20), "good": good()}, servers, to)
    assert set(statuses(found).values()) == {"ok"}
    until(lambda: starts(servers) == before + 1)


@pytest.mark.slow
def test_a_server_that_is_paused_while_idle_is_replaced(servers, to):
    one = servers.servers()[0]
    os.kill(one.pid, signal.SIGSTOP)
    until(lambda: servers.servers()[0].starts == one.starts + 1)
    assert not psutil.pid_exists(one.pid) or psutil.Process(one.pid).ppid() != one.pid
    assert statuses(measure({"a": good(1), "b": good(2)}, servers, to)) == {"a": "ok", "b": "ok"}


@pytest.mark.slow
def test_no_session_outlives_its_server(servers, to):
    sessions = []

    def kill():
        one, session = until(lambda: running(servers))
        sessions.append(session)
        os.kill(one.pid, signal.SIGKILL)
        until(lambda: servers.member(one.name).starts > one.starts)
        assert not any(map(living, sessions))

    with meanwhile(kill):
        measure({"slow": slow(k=30)}, servers, to)
    assert len(sessions) == 1


@pytest.mark.slow
def test_a_tracker_killed_in_the_midst_is_started_again_where_it_was(servers, to):
    before = servers.member("tracker")

    def kill():
        until(lambda: busy(servers))
        os.kill(before.pid, signal.SIGKILL)

    with meanwhile(kill):
        found = measure({str(k): slow(k=40 + k) for k in range(3)}, servers, to)
    assert set(statuses(found).values()) == {"ok"} and len(lines(to)) == 3
    after = servers.member("tracker")
    assert (after.port, after.starts) == (before.port, before.starts + 1)
    until(lambda: len(tracker.ports(servers.address)) == 2)


def test_no_tracker_is_an_error_that_says_where(to):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = fleet.Address("127.0.0.1", taken.getsockname()[1], "cpu")
        with pytest.raises(
            fleet.FleetError, match=f"no tracker answers at 127.0.0.1:{address.port}"
        ):
            measure({"good": good()}, address, to)


@pytest.mark.parametrize("answer", [b"", b"HTTP"])
def test_something_else_at_the_trackers_port_is_an_error(answer):
    with socket.create_server(("127.0.0.1", 0)) as other:

        def speak():
            client = other.accept()[0]
            client.sendall(answer)
            client.recv(99)

        address = fleet.Address("127.0.0.1", other.getsockname()[1], "cpu")
        with meanwhile(speak), pytest.raises(fleet.FleetError, match="no tracker"):
            tracker.ports(address, limit=0.2 if not answer else LONG)


@pytest.mark.slow
def test_a_wrong_key_is_an_error_that_names_the_right_one(servers, to):
    address = fleet.Address(servers.address.host, servers.address.port, "h200")
    with pytest.raises(fleet.FleetError, match=r"no server of .* 'h200' is there; it has 'cpu'"):
        measure({"good": good()}, address, to)


@contextlib.contextmanager
def deaf(address, key):
    """A server that the tracker knows and that answers nobody."""
    with socket.create_server(("127.0.0.1", 0)) as sock, tracker.connected(address, LONG) as line:
        port = sock.getsockname()[1]
        told = {"key": f"server:{key}", "addr": ["127.0.0.1", port]}
        tracker.ask(line, base.TrackerCode.UPDATE_INFO, told)
        for _ in range(3):
            free = (port, base.random_key(key))
            tracker.ask(line, base.TrackerCode.PUT, key, free, "127.0.0.1")
        yield


@pytest.mark.slow
def test_a_server_that_does_not_let_anybody_in_ends_the_run_in_time(servers, to):
    address = fleet.Address(servers.address.host, servers.address.port, "deaf")
    limits = fleet.Limits(build=LONG, wait=0.3, connect=0.2, run=LONG)
    with deaf(servers.address, "deaf"), pytest.raises(fleet.FleetError, match="0 results before"):
        measure({"good": good()}, address, to, limits=limits)
    assert lines(to) == []


@pytest.mark.slow
def test_one_that_does_not_answer_is_passed_over(servers, to):
    limits = fleet.Limits(build=LONG, wait=LONG, connect=1, run=LONG)
    with deaf(servers.address, "cpu"):
        found = measure({str(k): good(k) for k in range(3)}, servers, to, limits=limits)
    assert set(statuses(found).values()) == {"ok"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("serve", "key", "said"),
    [
        (fleet_kernels.serve_as_another_version, "old", r"old0 at .* has .*tvm 0\.26\.0; expected"),
        (fleet_kernels.serve_as_tvm_does, "plain", "is none of a fleet's"),
    ],
)
def test_a_server_of_another_version_or_kind_is_refused_by_name(servers, to, serve, key, said):
    at = (servers.address.host, servers.address.port)
    address = fleet.Address(*at, key)
    context = multiprocessing.get_context("forkserver")
    with socket.create_server(("127.0.0.1", 0)) as sock:
        process = context.Process(target=serve, args=(sock, at))
        process.start()
        try:
            until(lambda: tracker.ports(address))
            with pytest.raises(fleet.FleetError, match=said):
                measure({"good": good()}, address, to)
        finally:
            process.kill()
            process.join()


@pytest.mark.slow
def test_what_the_keeper_kept_ends_with_it(tmp_path, to):
    with fleet.up(cpus=1, folder=tmp_path) as one:
        found = State(tmp_path).read()
        processes = [psutil.Process(m.pid) for m in found["members"]]
        os.kill(found["keeper"], signal.SIGKILL)
        until(lambda: not any(map(living, processes)))
        with pytest.raises(fleet.FleetError, match="has ended"):
            one.servers()
        with pytest.raises(fleet.FleetError, match="ended without `down`"):
            fleet.find(tmp_path)
        one._process.wait()
        one.down()


# The searching process.


@pytest.mark.slow
def test_ctrl_c_in_the_midst_keeps_what_was_measured(servers, to):
    candidates = {"first": good(), "slow": slow(1_000_000)}  # not done before the key is pressed

    def press():
        until(lambda: to.exists() and len(to.read_text().splitlines()) == 2)
        until(lambda: running(servers))
        os.kill(os.getpid(), signal.SIGINT)

    with meanwhile(press), without_gc(), interrupted(), pytest.raises(KeyboardInterrupt):
        measure(candidates, servers, to)
    assert [line["name"] for line in lines(to)] == ["first"]
    assert not multiprocessing.active_children()
    until(lambda: busy(servers) is None)


SEARCH = """
import sys
import numpy as np
import d2ltvm
from d2ltvm import fleet
from fleet_kernels import N, slow

if __name__ == "__main__":
    a, b, _ = d2ltvm.get_abc(N)
    servers = fleet.Address.of(sys.argv[1], "cpu")
    candidates = {str(k): slow(100, k) for k in range(4)}
    fleet.measure(
        candidates, (a, b), np.add, servers=servers, to=sys.argv[2], target="llvm", builders=1
    )
"""


@pytest.mark.slow
def test_a_search_that_is_killed_goes_on_where_it_was(servers, to, tmp_path):
    script = tmp_path / "search.py"
    script.write_text(SEARCH)
    path = f"{book.ROOT}{os.pathsep}{book.ROOT / 'tests'}"
    at = f"{servers.address.host}:{servers.address.port}"
    search = subprocess.Popen(
        [sys.executable, script, at, to], env={**os.environ, "PYTHONPATH": path}
    )
    try:
        until(
            lambda: (
                search.poll() is not None or (to.exists() and len(to.read_text().splitlines()) > 1)
            )
        )
        assert search.poll() is None
    finally:
        search.kill()
        search.wait()
    before = lines(to)
    found = measure({str(k): slow(100, k) for k in range(4)}, servers, to)
    assert lines(to)[: len(before)] == before and 0 < len(before) <= 4
    assert sorted(line["name"] for line in lines(to)) == ["0", "1", "2", "3"]
    assert set(statuses(found).values()) == {"ok"}


# The database.


def result(k, **others):
    return fleet.Result(str(k), f"candidate {k}", "ok", (1e-6,), **others)


@pytest.fixture
def three(to):
    with fleet.Database(to) as kept:
        for k in range(3):
            kept.append(result(k))
    return to


@pytest.mark.slow
@pytest.mark.parametrize("cut", [1, 2, 100])
def test_a_last_line_that_was_cut_short_is_removed_and_measured_again(three, cut):
    three.write_bytes(three.read_bytes()[:-cut])
    with fleet.Database(three) as kept:
        assert list(kept.results) == ["0", "1"] and kept.dropped > 0
        kept.append(result(2))
    assert [line["id"] for line in lines(three)] == ["0", "1", "2"]


@pytest.mark.parametrize("spoiled", ["{", "[]", '{"id": "1"}', ""])
def test_a_spoiled_line_in_the_midst_is_an_error_that_names_it(three, spoiled):
    text = three.read_text().splitlines()
    three.write_text("\n".join([*text[:2], spoiled, *text[3:], ""]))
    with pytest.raises(ValueError, match="line 3 of"):
        fleet.Database(three)


def test_a_full_disk_leaves_the_file_as_it_was(three, monkeypatch):
    before, write = three.read_bytes(), os.write

    def half(file, line):
        if len(line) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, line[: len(line) // 2])

    with fleet.Database(three) as kept:
        monkeypatch.setattr(database.os, "write", half)
        with pytest.raises(OSError, match="the 3 results before are kept") as caught:
            kept.append(result(3))
        assert caught.value.errno == errno.ENOSPC and list(kept.results) == ["0", "1", "2"]
        assert three.read_bytes() == before
        monkeypatch.undo()
        kept.append(result(3))
    assert len(lines(three)) == 4


@pytest.mark.slow
def test_a_disk_that_fills_up_in_the_midst_of_a_run(servers, to, monkeypatch):
    kept = []

    def full(file):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    def show(found):
        kept.append(found)
        monkeypatch.setattr(database.os, "fsync", full)

    with pytest.raises(OSError, match="the 1 results before are kept"):
        measure({str(k): good(k) for k in range(3)}, servers, to, show=show)
    monkeypatch.undo()
    found = measure({str(k): good(k) for k in range(3)}, servers, to)
    assert found[kept[0].name] == kept[0] and len(lines(to)) == 3


def test_a_second_process_on_a_file_is_refused(three):
    with (
        fleet.Database(three),
        pytest.raises(RuntimeError, match=r"another process is using .*run.jsonl"),
    ):
        fleet.Database(three)
    fleet.Database(three).close()


def test_a_candidate_is_not_kept_twice(three):
    with fleet.Database(three) as kept, pytest.raises(ValueError, match="candidate 1 has been"):
        kept.append(result(1))
    with three.open("a") as file:  # as nobody writes it
        file.write(three.read_text().splitlines()[1].replace("1e-06", "9.0") + "\n")
    with fleet.Database(three) as kept:
        assert kept.results["0"].seconds == (1e-6,) and len(kept.results) == 3


def test_a_file_of_other_versions_or_of_something_else_is_refused(three, tmp_path):
    text = three.read_text()
    three.write_text(text.replace(tvm.__version__, "0.26.0", 1))
    with pytest.raises(ValueError, match=r"was measured with .*0.26.0.*expected another file"):
        fleet.Database(three)
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(ValueError, match="no file of a fleet's results"):
        fleet.Database(tmp_path / "other.jsonl")
    with pytest.raises(OSError, match="No such file"):
        fleet.Database(tmp_path / "no folder" / "run.jsonl")


def test_the_same_candidate_has_the_same_id_in_another_process():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(workers.PRELOADED)
    mine, theirs = context.Pipe()
    process = context.Process(target=fleet_kernels.tell_id, args=(theirs,))
    process.start()
    assert mine.recv() == fleet.candidate_id(good(3), "llvm")
    process.join()


# Starting and ending.


def test_a_port_that_is_taken_is_an_error_that_names_it(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(fleet.FleetError, match=f"127.0.0.1:{port} cannot be had: Address alre"):
            fleet.up(cpus=1, port=min(port, 65000), folder=tmp_path)
    assert State(tmp_path).read() is None


@pytest.mark.slow
def test_a_second_fleet_in_a_folder_is_refused_and_the_first_found(servers):
    with pytest.raises(fleet.FleetError, match=r"is up already: tracker 127.0.0.1:"):
        fleet.up(cpus=1, folder=servers.folder)
    assert fleet.find(servers.folder).servers() == servers.servers()


def write_state(folder, **changed):
    found = {"keeper": os.getpid(), "born": psutil.Process().create_time(), "members": []}
    found["plan"] = {"host": "127.0.0.1", "key": "cpu", "devices": [], "tracker": ["h", 1]}
    (folder / "state.json").write_text(json.dumps({**found, **changed}))


def test_a_stale_state_is_recognised(tmp_path):
    write_state(tmp_path)
    assert fleet.find(tmp_path).servers() == []
    write_state(tmp_path, born=psutil.Process().create_time() - 1000)  # another one's number
    with pytest.raises(fleet.FleetError, match="ended without `down`"):
        fleet.find(tmp_path)
    write_state(tmp_path, keeper=2**22 + 1)
    with pytest.raises(fleet.FleetError, match="ended without `down`"):
        fleet.find(tmp_path)
    for text in ("", "{", "[]", "{}", '{"members": [{"a": 1}]}'):
        (tmp_path / "state.json").write_text(text)
        with pytest.raises(fleet.FleetError, match="no fleet is up"):
            fleet.find(tmp_path)


def test_a_server_that_keeps_ending_is_started_later_each_time(monkeypatch):
    monkeypatch.setattr(keeper, "_end_group", lambda _: None)
    with socket.socket() as sock:
        child = keeper.Child("cpu0", sock, print, None)
        waits = []
        for _ in range(12):
            child.born = time.monotonic()
            child.ended()
            waits.append(child.not_before - time.monotonic())
        assert waits[0] < 0.03 < 0.2 < waits[5] and 4 < waits[-1] <= keeper.LONGEST_DELAY
        child.born = time.monotonic() - 2 * keeper.SHORT
        child.ended()
        assert child.not_before - time.monotonic() < 0.03


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"cpus": 0}, "cpus is 0"),
        ({"cpus": True}, "cpus is True"),
        ({"cpus": 1, "host": "0.0.0.0"}, "one interface"),
        ({"cpus": 1, "port": 65536}, "port is 65536"),
        ({"cpus": 1, "key": "a b"}, "key is 'a b'"),
        ({"cpus": 1, "join": "nowhere"}, "the tracker is 'nowhere'"),
    ],
)
def test_wrong_arguments_are_one_line(tmp_path, arguments, reason):
    with pytest.raises(ValueError, match=reason):
        fleet.up(**arguments, folder=tmp_path)


def test_without_a_gpu_the_command_says_what_to_do(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(nvml, "gpus", list)
    monkeypatch.setenv("D2LTVM_CACHE_DIR", str(tmp_path))
    assert main(["fleet", "up"]) == 1
    assert "fleet up --cpus 2" in capsys.readouterr().err
    assert main(["fleet", "status"]) == main(["fleet", "down"]) == 1
    assert "no fleet is up" in capsys.readouterr().err


@pytest.mark.slow
def test_the_commands_and_the_line_on_another_interface(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("D2LTVM_CACHE_DIR", str(tmp_path))
    try:
        assert main(["fleet", "up", "--cpus", "1", "--host", "127.0.0.2", "--key", "two"]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        assert "127.0.0.2:" in line and "key 'two'" in line and local.WARNING in line
        assert main(["fleet", "status"]) == 0
        text = capsys.readouterr().out
        assert "cpu0" in text and "free" in text and "two" in text and "elsewhere" not in text
        assert main(["fleet", "down"]) == 0
        assert capsys.readouterr().out == "the fleet is down\n"
        assert (tmp_path / "fleet" / "cpu0.log").exists()
    finally:
        with contextlib.suppress(fleet.FleetError):
            fleet.find(tmp_path / "fleet").down()


@pytest.mark.slow
def test_servers_can_join_the_tracker_of_another_fleet(servers, tmp_path, to):
    at = f"{servers.address.host}:{servers.address.port}"
    with fleet.up(cpus=1, key="joined", join=at, folder=tmp_path) as joined:
        assert [s.name for s in joined.servers()] == ["cpu0"]
        address = fleet.Address.of(at, "joined")
        assert statuses(measure({"good": good()}, address, to)) == {"good": "ok"}
    until(lambda: not tracker.ports(address))


class Idle:
    """What `_Run` asks of a worker."""

    def __init__(self, job=None):
        self.job = job


def test_builders_are_few_until_a_server_waits(monkeypatch):
    """More begin only where all of them are busy and a server has waited for a while."""
    now = [100.0]
    monkeypatch.setattr(measuring.time, "monotonic", lambda: now[0])
    address = fleet.Address("127.0.0.1", 1, "a key")
    run = measuring._Run(address, None, None, None, None, None, None)
    servers, building = [Idle(), Idle("a job")], [Idle() for _ in range(20)]
    few = run.may_build = measuring.BUILDERS_PER_SERVER * len(servers)
    run.fed = now[0]

    def may_build(patience):
        now[0] += patience * measuring.PATIENCE
        return len(run._builders(building, servers))

    def all_are(workers, job):
        for worker in workers:
            worker.job = job

    assert may_build(0) == may_build(2) == few  # they have no jobs yet
    all_are(building[:few], "a job")
    assert may_build(0.9) == few
    assert may_build(0.2) == 2 * few
    building[few - 1].job = None  # one has built
    assert may_build(2) == 2 * few
    all_are(building, "a job")
    run.to_measure.append("a library")  # no server waits
    assert may_build(2) == 2 * few
    run.to_measure.clear()
    all_are(servers, "a job")
    assert may_build(2) == 2 * few
    all_are(servers, None)
    assert may_build(0.9) == 2 * few
    assert may_build(0.2) == len(building)  # all that there are


@pytest.mark.slow
def test_quick_candidates_need_few_processes(servers, to, monkeypatch):
    """Where libraries are soon there, no more begin than a few for each server."""
    started, begin = [], workers.Worker._start

    def start(worker):
        started.append(worker)
        begin(worker)

    monkeypatch.setattr(workers.Worker, "_start", start)
    monkeypatch.setattr(measuring, "PATIENCE", 1000.0)  # however slow this machine is
    found = measure({f"{k}": good(k) for k in range(12)}, servers, to, builders=12)
    assert set(statuses(found).values()) == {"ok"}
    # And one that speaks with each server.
    assert len(started) == (measuring.BUILDERS_PER_SERVER + 1) * len(servers.servers()) < 12 + 1


@pytest.mark.slow
def test_wrong_candidates_are_refused_before_anything_begins(servers, to):
    with pytest.raises(ValueError, match=r"candidates is {}"):
        measure({}, servers, to)
    with pytest.raises(ValueError, match="builders is 0"):
        measure({"good": good()}, servers, to, builders=0)
    other = d2ltvm.schedule(d2ltvm.vector_add(N + 1))
    with pytest.raises(ValueError, match="the candidate 'other': the input A is float32"):
        measure({"other": other}, servers, to)
    assert not to.exists()


# GPUs, as NVML tells of them.


def test_gpus_are_those_that_cuda_would_see():
    found = [nvml.Gpu("H200", f"GPU-{k}a") for k in range(3)]
    assert nvml.visible(found, "") == [] and nvml.visible(found, "2,0") == [found[2], found[0]]
    assert nvml.visible(found, "GPU-1") == [found[1]]
    assert nvml.visible(found, "0,7,1") == [found[0]] and nvml.visible(found, "GPU-") == []


class Library:
    """Stands in for NVML with two GPUs of different clocks."""

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        handle._obj.value = index + 1
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid, handle):
        handle._obj.value = int(uuid[-1:]) + 1
        return 0

    def nvmlDeviceGetName(self, handle, text, _):
        text.value = b"NVIDIA H200"
        return 0

    def nvmlDeviceGetUUID(self, handle, text, _):
        text.value = f"GPU-{handle.value - 1}".encode()
        return 0

    def nvmlDeviceGetClockInfo(self, handle, kind, clock):
        assert kind == nvml.SM_CLOCK
        clock._obj.value = 1000 * handle.value
        return 0

    def nvmlDeviceGetPowerUsage(self, handle, power):
        power._obj.value = 650_000
        return 0


def test_clock_and_power_are_those_of_the_servers_own_gpu(monkeypatch):
    monkeypatch.setattr(nvml, "_library", lambda _: Library())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [gpu.uuid for gpu in nvml.gpus()] == ["GPU-0", "GPU-1"]
    listed = local._devices(None)
    assert [(d.name, d.kind, d.gpu) for d in listed] == [
        ("gpu0", "cuda", "GPU-0"),
        ("gpu1", "cuda", "GPU-1"),
    ]
    assert local._key(listed) == "nvidia-h200"
    sampler = nvml.Sampler("GPU-1")
    sampler.start()
    until(lambda: sampler._samples)
    assert sampler.stop() == {"clock_mhz": 2000, "power_w": 650.0}


@pytest.mark.slow
def test_a_server_with_a_gpu_sees_no_other(monkeypatch):
    seen = {}
    monkeypatch.setattr(server, "serve", lambda *_: seen.update(os.environ))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    device = keeper.Device("gpu1", "cuda", "GPU-1", "NVIDIA H200")
    keeper._serve(None, device, [0], "nvidia-h200", ("127.0.0.1", 1))
    assert seen["CUDA_VISIBLE_DEVICES"] == "GPU-1"


# MetaSchedule.


def inputs_of(path):
    from tvm.s_tir import meta_schedule as ms

    info = ms.arg_info.TensorInfo("float32", [N])
    return ms.runner.RunnerInput(str(path), "cpu", [info] * 3)


@pytest.mark.slow
def test_metaschedule_builds_and_measures_and_names_what_is_bad(servers):
    from tvm.s_tir import meta_schedule as ms

    target = tvm.target.Target("llvm")
    mods = [good(), CRASHES, HANGS]
    built = fleet.builder(workers=1).build([ms.builder.BuilderInput(m, target) for m in mods])
    assert all(b.error_msg is None for b in built)
    given = [inputs_of(b.artifact_path) for b in built]
    found = [f.result() for f in fleet.runner(servers, QUICK, LIMITS).run(given[:2])]
    assert float(found[0].run_secs[0]) > 0 and found[0].error_msg is None
    assert found[1].run_secs is None and found[1].error_msg.startswith("LostError")
    limits = fleet.Limits(LONG, LONG, LONG, run=1)
    (hung,) = (f.result() for f in fleet.runner(servers, QUICK, limits).run(given[2:]))
    assert hung.run_secs is None and hung.error_msg.startswith("TimeoutError")


def built_plainly(builder, *mods):
    """What a MetaSchedule runner is given of some candidates."""
    from tvm.s_tir import meta_schedule as ms

    target = tvm.target.Target("llvm")
    built = builder.build([ms.builder.BuilderInput(mod, target) for mod in mods])
    assert [b.error_msg for b in built] == [None] * len(mods)
    return [inputs_of(b.artifact_path) for b in built]


def ran(runner, given):
    """Why each candidate failed; None for those that are timed."""
    return [future.result().error_msg for future in runner.run(given)]


def processes(metaschedules):
    """Those that work for a builder or a runner; TVM hides the object that has them."""
    return [w._process.pid for w in metaschedules._inst.pool.workers if w._process is not None]


@pytest.mark.slow
def test_metaschedules_workers_go_on_from_batch_to_batch_and_end_with_it(servers):
    builder, runner = fleet.builder(workers=1), fleet.runner(servers, QUICK, LIMITS)
    assert ran(runner, built_plainly(builder, good(), good(1), good(2))) == [None] * 3
    first = processes(builder) + processes(runner)
    assert ran(runner, built_plainly(builder, good(3))) == [None]
    assert processes(builder) + processes(runner) == first
    for pid in first:  # while at rest: no fault of the next candidate's
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: not living_pid(pid))
    assert ran(runner, built_plainly(builder, good(4), good(5), good(6))) == [None] * 3
    second = processes(builder) + processes(runner)
    assert not set(first) & set(second)
    del builder, runner
    gc.collect()
    until(lambda: not any(map(living_pid, second)))
    until(lambda: busy(servers) is None)


@pytest.mark.slow
def test_metaschedule_blames_no_candidate_for_what_the_one_before_spoiled(tmp_path):
    with fleet.up(cpus=1, folder=tmp_path) as servers:
        given = built_plainly(fleet.builder(workers=1), spoils(), slow(1500), CRASHES, good())
        found = ran(fleet.runner(servers, QUICK, LIMITS), given)
        assert [found[0], found[1], found[3]] == [None] * 3 and found[2].startswith("LostError")
        # One ended during slow, and three by what crashes: after slow, and two of its own.
        until(lambda: starts(servers) == 1 + 1 + 3)


@pytest.mark.slow
def test_a_metaschedule_batch_that_fails_leaves_no_process(servers, monkeypatch):
    runner = fleet.runner(servers, QUICK, LIMITS)
    given = built_plainly(fleet.builder(workers=1), slow(k=50), good(50))

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(metaschedule._Session, "again", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runner._inst.run(given)
    assert processes(runner) == []
    monkeypatch.undo()
    assert ran(runner, given) == [None, None]


# How far it goes.


@pytest.mark.slow
def test_the_terms_of_the_model_are_measured_and_the_slowest_part_sets_the_pace(servers):
    a, b, _ = d2ltvm.get_abc(N)
    terms = scaling.measure_terms(
        servers, good(), (a, b), np.add, target="llvm", clock=QUICK, cores=4, count=2
    )
    assert all(value > 0 for value in vars(terms).values()) and terms.cores == 4
    for part, most in terms.most().items():
        assert terms.rates(1)["servers"] * most == pytest.approx(terms.rates(1)[part])
        assert terms.rate(int(most) + 1) <= terms.rates(1)[part]
    assert tracker.need_servers(servers.address) == 2
