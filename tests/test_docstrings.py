"""Every example of a docstring runs, and prints what it says.

An example sees the names of its module, those below, and `d2ltvm` and `np`. What needs a GPU, or
shows a measurement, says `# doctest: +SKIP`. `...` stands for any text.
"""

import ast
import doctest
import importlib
import inspect
import pkgutil

import numpy as np
import pytest
from tvm import te

import d2ltvm
from d2ltvm import hopper, schedules
from d2ltvm.system import devices

pytestmark = pytest.mark.slow

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

# What examples use without saying where it comes from, made where one of them does.
MAKERS = {
    "te": lambda: te,
    "hopper": lambda: hopper,
    "sch": lambda: d2ltvm.schedule(d2ltvm.vector_add(1024)),
    "kernel": lambda: d2ltvm.build(schedules.vectorized(1024), _target()),
    "cubin": lambda: d2ltvm.compiler.compile_cubin(made("kernel").cuda_source("sm_80"), "sm_80"),
    **dict(zip("abc", (lambda i=i: d2ltvm.get_abc(1024)[i] for i in range(3)), strict=True)),
    **{name: lambda name=name: getattr(schedules, name) for name in dir(schedules)},
}


def _target():
    """The GPU, else OpenCL, else CUDA source alone."""
    return "cuda" if devices.has_cuda() or not devices.has_opencl() else "opencl"


def made(name):
    """One of the values that examples use."""
    return MAKERS[name]()


def modules():
    """Every module of the package."""
    found = pkgutil.walk_packages(d2ltvm.__path__, "d2ltvm.")
    return sorted(m.name for m in found if m.name != "d2ltvm.__main__")


def examples():
    """The docstrings that have an example."""
    finder = doctest.DocTestFinder()
    for name in modules():
        module = importlib.import_module(name)
        short = name.rpartition(".")[2]
        names = {**({} if short in MAKERS else {short: module}), **vars(module)}
        yield from (test for test in finder.find(module, name, globs=names) if test.examples)


def needed(test):
    """Names that the examples of a docstring use and do not make, where they run."""
    run = [e.source for e in test.examples if not e.options.get(doctest.SKIP)]
    trees = (ast.walk(ast.parse(source)) for source in run)
    names = [node for tree in trees for node in tree if isinstance(node, ast.Name)]
    stored = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return {node.id for node in names} - stored


class Runner(doctest.DocTestRunner):
    """Passes on what says that the machine lacks something."""

    def report_unexpected_exception(self, out, test, example, exc_info):
        if isinstance(exc_info[1], d2ltvm.MissingError):
            raise exc_info[1]
        super().report_unexpected_exception(out, test, example, exc_info)


def problems(test):
    """What an example prints that its docstring does not say, as text."""
    names = needed(test)
    given = {name: made(name) for name in names & set(MAKERS) - set(test.globs)}
    test.globs.update(given, np=np, d2ltvm=d2ltvm)
    report = []
    Runner(optionflags=OPTIONS).run(test, out=report.append)
    return "".join(report)


EXAMPLES = {test.name: test for test in examples()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, monkeypatch):
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)
    found = problems(EXAMPLES[name])
    assert not found, found


def example(text):
    return doctest.DocTestParser().get_doctest(inspect.cleandoc(text), {}, "example", None, 0)


def test_an_example_that_is_wrong_would_be_found():
    assert "Expected" in problems(example(">>> d2ltvm.conv_out_size(64, 3, 1, 1)\n63"))
    assert "NameError" in problems(example(">>> no_such_name"))
    assert problems(example(">>> c.shape\n(1024,)\n>>> no_such_name  # doctest: +SKIP")) == ""
