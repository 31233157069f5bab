"""Threads on the processor: one for each core, unless told otherwise."""

import os
import subprocess
import sys

import pytest

import book
from d2ltvm.system import threads


def test_hardware_threads_of_one_core_count_once(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 5}, raising=False)
    for cpu, siblings in ((0, "0-1"), (1, "0-1"), (2, "2-3")):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings)
    assert threads.cores(tmp_path) == 3  # the last one says nothing of itself


@pytest.mark.parametrize("told", [None, "1"])
def test_tvm_starts_a_thread_for_each_core(told):
    script = """
import d2ltvm, tvm
print(tvm.get_global_func("runtime.NumThreads")(), d2ltvm.system.threads.cores())"""
    names = ("TVM_NUM_THREADS", "OMP_NUM_THREADS")
    others = {name: value for name, value in os.environ.items() if name not in names}
    env = {**others, "PYTHONPATH": str(book.ROOT), **({names[0]: told} if told else {})}
    run = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    started, cores = map(int, run.stdout.split())
    assert started == (int(told) if told else cores)
