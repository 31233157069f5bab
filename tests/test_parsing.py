"""TVM's parser with less work: the same kernels and the same errors."""

import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.parser.core import doc, evaluator, parser

from d2ltvm import hopper
from d2ltvm.compiler import parsing
from d2ltvm.hopper.any_conv import Conv
from d2ltvm.hopper.any_layer import any_layer

KERNELS = {
    "a ring": lambda: hopper.ring.stream(100, rows=16, stages=2, sms=1),
    "a product": lambda: hopper.matmul_nt(100, 96, 72),
    "a layer": lambda: any_layer(Conv(2, (9, 9), 64, 72, (3, 3), (1, 1)), bias=True).kernel(),
}


def as_tvm_does(monkeypatch):
    monkeypatch.setattr(evaluator, "_eval_expr", parsing._evaluate)
    monkeypatch.setattr(evaluator, "_eval_assign", parsing._assign)
    monkeypatch.setattr(parser.ScriptMacro, "get_macro_def", parsing._definition)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_the_same_and_little_is_compiled(name, monkeypatch):
    KERNELS[name]()
    before = parsing.code_of.cache_info()
    kernel = KERNELS[name]()
    found = parsing.code_of.cache_info()
    assert found.hits > before.hits + 100 and found.misses == before.misses
    as_tvm_does(monkeypatch)
    same = KERNELS[name]()
    assert parsing.code_of.cache_info() == found
    tvm.ir.assert_structural_equal(kernel, same)
    assert kernel.script() == same.script()


@T.inline
def two_stores(A, i):
    @T.inline
    def one(at, value):
        A[at] = value

    one(i, T.float32(1))
    one(i + 8, T.float32(2))


def called_twice():
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((32,), "float32")):
        for i in range(4):
            two_stores(A, i)
            two_stores(A, i + 16)

    return main


def test_a_function_inside_another_is_read_again(monkeypatch):
    kernel = called_twice()
    as_tvm_does(monkeypatch)
    tvm.ir.assert_structural_equal(kernel, called_twice())


@pytest.mark.parametrize("text", ["f(1, 's', None)", "f(*a, *b, k=c, **d)", "a.b.c[d](e)[1]"])
def test_a_text_is_its_expression(text):
    assert parsing.text_of(doc.parse(text, mode="eval").body) == text


@pytest.mark.parametrize(
    ("text", "want"), [("[i for i in a]", [3]), ("f(1.5)", 1.5), ("a + b", [3, 4])]
)
def test_other_expressions_are_left_to_tvm(text, want):
    node = doc.parse(text, mode="eval").body
    assert parsing.text_of(node) is None
    assert parsing.evaluate(node, {"a": [3], "b": [4], "f": lambda x: x}) == want


def wrong():
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = T.no_such_thing(i)

    return main


def test_errors_are_the_same(monkeypatch):
    with pytest.raises(Exception, match="no_such_thing") as ours:
        wrong()
    as_tvm_does(monkeypatch)
    with pytest.raises(Exception, match="no_such_thing") as theirs:
        wrong()
    assert (type(ours.value), str(ours.value)) == (type(theirs.value), str(theirs.value))
