"""Candidates that are right, and others that are not, for `test_fleet`; and jobs that go wrong.

A module of its own, since the processes of a fleet import it: what it imports they have already.
"""

import errno
import multiprocessing
import os
import time

import tvm
import tvm.rpc.server
from tvm.script import tirx as T

import d2ltvm
from d2ltvm import fleet
from d2ltvm.fleet import jobs, server

N = 64


def good(k=0):
    """The right one; each k is a candidate of its own."""
    func = d2ltvm.schedule(d2ltvm.vector_add(N)).mod["main"]
    return tvm.IRModule({"main": func.with_attr("k", k)})


def kernel(statement):
    """A candidate that does something else, at each element."""

    @T.prim_func(s_tir=True)
    def func(
        A: T.Buffer((N,), "float32"), B: T.Buffer((N,), "float32"), C: T.Buffer((N,), "float32")
    ):
        T.func_attr({"tirx.noalias": True})
        for i in range(N):
            with T.sblock("C"):
                v = T.axis.spatial(N, i)
                C[v] = statement(A[v], B[v], v)

    return tvm.IRModule({"main": func})


def calls(function, argument):
    """The right one, which calls a function of C at its first element."""

    @T.prim_func(s_tir=True)
    def func(
        A: T.Buffer((N,), "float32"), B: T.Buffer((N,), "float32"), C: T.Buffer((N,), "float32")
    ):
        T.func_attr({"tirx.noalias": True})
        for i in range(N):
            with T.sblock("C"):
                v = T.axis.spatial(N, i)
                if v == 0:
                    T.evaluate(T.call_extern("int32", function, argument))
                C[v] = A[v] + B[v]

    return tvm.IRModule({"main": func})


def slow(milliseconds=300, k=0):
    """The right one, which sleeps at its first element."""
    return calls("usleep", 1000 * milliseconds + k)


def spoils():
    """The right one, which has the system end its process two seconds later."""
    return calls("alarm", 2)


@T.prim_func(s_tir=True)
def _hangs(
    A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")
):
    T.func_attr({"tirx.noalias": True})
    for i in range(64):
        with T.sblock("C"):
            v = T.axis.spatial(64, i)
            while A[v] < T.float32(1e9):
                C[v] = C[v] + B[v]


@T.prim_func(s_tir=True)
def _crashes(
    A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")
):
    T.func_attr({"tirx.noalias": True})
    for i in range(64):
        with T.sblock("C"):
            v = T.axis.spatial(64, i)
            C[T.Cast("int32", T.float32(1e9) + A[v])] = A[v] + B[v]


@T.prim_func(s_tir=True)
def _outside(
    A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")
):
    T.func_attr({"tirx.noalias": True})
    for i in range(64):
        with T.sblock("C"):
            v = T.axis.spatial(64, i)
            C[v + 1] = A[v] + B[v]


HANGS, CRASHES, OUTSIDE = (tvm.IRModule({"main": f}) for f in (_hangs, _crashes, _outside))


def never_done(tell, mod, target, path):
    time.sleep(3600)


def ends(tell, mod, target, path):
    os._exit(7)


def no_space(tell, mod, target, path):
    raise OSError(errno.ENOSPC, "No space left on device")


def keep_a_session(tell, address, limits):
    jobs._in_session(lambda session: {}, tell, address, limits, alone=False)
    return "kept"


def serve_as_another_version(sock, address):
    server.versions = lambda: {"tvm": "0.26.0", "d2ltvm": d2ltvm.__version__}
    server.serve(sock, "old0", "cpu", "", "old", address)


def tell_id(pipe):
    pipe.send(fleet.candidate_id(good(3), "llvm"))


def serve_as_tvm_does(sock, address):
    """A server that TVM's own command would start."""
    multiprocessing.set_start_method("fork", force=True)
    tvm.rpc.server._listen_loop(sock, sock.getsockname()[1], "plain", address, None, None)
