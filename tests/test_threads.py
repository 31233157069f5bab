"""Threads on the processor: one for each core, unless told otherwise."""

import os
import subprocess
import sys

import pytest

import book
from d2ltvm.system import threads

pytestmark = pytest.mark.slow


def test_hardware_threads_of_one_core_count_once(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 5}, raising=False)
    for cpu, siblings in ((0, "0-1"), (1, "0-1"), (2, "2-3")):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings)
    assert threads.cores(tmp_path) == 3  # the last one says nothing of itself


def run(script, **told):
    """What a script prints in a process that is told nothing else about threads."""
    others = {n: v for n, v in os.environ.items() if not n.endswith("_NUM_THREADS")}
    env = {**others, "PYTHONPATH": str(book.ROOT), **told}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_changes_nothing_of_the_process():
    script = """
import os, sys
before, path = dict(os.environ), list(sys.path)
import d2ltvm, d2ltvm.bench.scoreboard, d2ltvm.compiler.kernel
assert d2ltvm.has_cuda() in (True, False)
assert dict(os.environ) == before and sys.path == path"""
    run(script)


@pytest.mark.parametrize("told", [{}, {"TVM_NUM_THREADS": "1"}])
def test_tvm_starts_a_thread_for_each_core(told):
    script = """
import d2ltvm, numpy as np, tvm
kernel = d2ltvm.build(d2ltvm.schedules.cpu_vector_add(1000), "llvm")
kernel(*np.ones((3, 1000), "float32"))
print(tvm.get_global_func("runtime.NumThreads")(), d2ltvm.system.threads.cores())"""
    started, cores = map(int, run(script, **told).split())
    assert started == int(told.get("TVM_NUM_THREADS", cores))


@pytest.mark.parametrize("told", [{}, {"OMP_NUM_THREADS": "1"}])
def test_mxnet_starts_a_thread_for_each_core(mxnet, told):
    """OpenMP, which it comes with, says how many it would start."""
    script = """
import ctypes, d2ltvm
from d2ltvm.bench import libraries
libraries.mxnet()
loaded = {line.split()[-1] for line in open("/proc/self/maps") if "gomp" in line}
started = {ctypes.CDLL(path).omp_get_max_threads() for path in loaded}
print(*started, d2ltvm.system.threads.cores())"""
    started, cores = map(int, run(script, **told).split())
    assert started == int(told.get("OMP_NUM_THREADS", cores))
