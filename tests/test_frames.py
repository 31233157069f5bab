"""The stack as TVM's parser sees it: the same as Python's, but few frames are looked at."""

import inspect

import tvm
from tvm.script import ir as I
from tvm.script import tirx as T
from tvm.script.parser.core import parser
from tvm.tirx.script.builder import ir as builder
from tvm.tirx.script.parser import entry

from d2ltvm import hopper
from d2ltvm.compiler import frames

NAMES = ("frame", "filename", "lineno", "function", "code_context", "index", "positions")


def everything(stack):
    return [[getattr(frame, name) for name in NAMES] for frame in stack]


def test_frames_are_those_of_python():
    late, here = frames.Inspect(), inspect.currentframe()
    for first, second in (
        (late.getouterframes(here), inspect.getouterframes(here)),
        (late.stack(), inspect.stack()),
    ):
        assert first[0].frame is second[0].frame is here
        assert everything(first[1:]) == everything(second[1:])
    assert late.signature is inspect.signature


def test_kernels_are_the_same_and_few_frames_are_looked_at(monkeypatch):
    looked, look = [], inspect.getframeinfo
    monkeypatch.setattr(inspect, "getframeinfo", lambda *args: looked.append(args) or look(*args))

    def make():
        looked.clear()
        return hopper.ring.stream(100, rows=16, stages=2, sms=1), len(looked)

    kernel, few = make()
    for module in (parser, builder, entry):
        assert isinstance(module.inspect, frames.Inspect)
        monkeypatch.setattr(module, "inspect", inspect)
    same, many = make()
    tvm.ir.assert_structural_equal(kernel, same)
    assert 0 < few < many / 5


def test_functions_of_a_class_are_found():
    """The parser looks at a line of source to tell them; the class is parsed as a whole."""

    @I.ir_module
    class Module:
        @T.prim_func(s_tir=True)
        def main(A: T.Buffer((4,), "float32")):
            for i in range(4):
                A[i] = T.float32(1)

    assert [str(name.name_hint) for name in Module.functions] == ["main"]
