"""What is installed: its parts, its requirements, its one version."""

import ast
import collections
import itertools
import pkgutil
import re
import sys
import tomllib

import api_page
import check_dist
import pytest
import yaml
from packaging.requirements import Requirement

import book
import d2ltvm

pytestmark = pytest.mark.slow

PROJECT = tomllib.loads((book.ROOT / "pyproject.toml").read_text())
# The distribution that a module is from, where it has another name.
DISTRIBUTIONS = {
    "cuda": "cuda-bindings",
    "tvm": "apache-tvm",
    "tvm_ffi": "apache-tvm-ffi",
}
# PyTorch is the reader's to choose; Colab, Jupyter and anywidget bring the others.
NOT_ASKED_FOR = {"torch", "google", "IPython", "matplotlib_inline", "traitlets"}
HOSTED = sorted((book.ROOT / ".github").rglob("*.yml"))


def requirements():
    """What the package and its extras ask for, by name."""
    project = PROJECT["project"]
    every = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    return {r.name: r for r in map(Requirement, every) if r.name != "d2ltvm"}


def imported():
    """The top names of all modules that the package imports."""
    for path in sorted((book.ROOT / "d2ltvm").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                yield node.module.split(".")[0]


def test_every_folder_of_the_package_is_installed():
    folders = {path.parent for path in (book.ROOT / "d2ltvm").rglob("__init__.py")}
    names = {".".join(folder.relative_to(book.ROOT).parts) for folder in folders}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == names | {"d2ltvm.measurements"}


ALIAS = re.compile(r"[A-Z][A-Z0-9]*[a-z]\w*")  # a name as a class has it; a constant has no others


def names(tree):
    """Names of classes, wherever they are, and of types that a module names; private ones not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, "class"
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and ALIAS.fullmatch(target.id) and node.value is not None:
            yield target.id, ast.unparse(node.value)


def shared_names(package):
    """Names with several meanings in a package, with their files: classes, and names of types.

    A type may have its name in several modules, as long as it is the same one.
    """
    found = collections.defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        for name, meaning in names(ast.parse(path.read_text())):
            found[name].append((meaning, str(path.relative_to(package))))
    several = {
        name: [file for _, file in places]
        for name, places in found.items()
        if len(places) > 1 and ("class" in dict(places) or len(dict(places)) > 1)
    }
    return several


def test_each_class_has_a_name_of_its_own():
    assert shared_names(book.ROOT / "d2ltvm") == {}


def test_classes_that_share_a_name_are_found(tmp_path):
    for name, text in {
        "one": "class Plan: ...\nclass _Kept: ...\nclass Layer: ...\nShape = tuple[int, ...]",
        "two": "def plan():\n    class Plan: ...\nclass _Kept: ...\nclass Plans: ...\nPair = int",
        "three": "Layer = tuple[int, ...]\nShape = tuple[int, ...]\nPair: TypeAlias = str\nN = 1",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert shared_names(tmp_path) == {
        "Layer": ["one.py", "three.py"],
        "Pair": ["three.py", "two.py"],
        "Plan": ["one.py", "two.py"],
    }


def test_what_is_imported_is_asked_for():
    names = set(imported()) - set(sys.stdlib_module_names) - {"d2ltvm"} - NOT_ASKED_FOR
    assert {"tvm", "numpy", "matplotlib"} <= names
    assert {DISTRIBUTIONS.get(name, name) for name in names} <= set(requirements())


def test_the_tested_versions_are_among_those_that_are_asked_for():
    text = (book.ROOT / "requirements.txt").read_text()
    pins = dict(re.findall(r"^([\w-]+)==(\S+)", text, re.M))
    for name, requirement in requirements().items():
        assert requirement.specifier.contains(pins[name], prereleases=True), requirement


def test_versions_agree():
    cite = yaml.safe_load((book.ROOT / "CITATION.cff").read_text())
    assert cite["version"] == d2ltvm.__version__
    changes = (book.ROOT / "CHANGELOG.md").read_text()
    assert f"## [{d2ltvm.__version__}] - {cite['date-released']}" in changes
    assert PROJECT["project"]["dynamic"] == ["version"]


def test_the_address_is_that_of_the_book():
    config = yaml.safe_load((book.ROOT / "_config.yml").read_text())
    assert PROJECT["project"]["urls"]["Source"] == config["repository"]["url"]


def test_the_changelog_names_what_is_there():
    text = (book.ROOT / "CHANGELOG.md").read_text()
    now = [row.split("|")[2] for row in text.splitlines() if row.startswith("| `")]
    names = [name for cell in now for name in re.findall(r"`d2ltvm\.([\w.]+)`", cell)]
    assert len(names) > 20
    for name in names:
        assert pkgutil.resolve_name(f"d2ltvm.{name}")


def test_a_wheel_that_lacks_a_file_or_has_one_too_many_is_found():
    right = check_dist.expected()
    assert "d2ltvm/py.typed" in right and "d2ltvm/__init__.pyi" in right
    assert "d2ltvm/measurements/nvidia-h200/conv.json" in right
    assert check_dist.differences(right | {"d2ltvm-0.1.0.dist-info/RECORD"}) == []
    spoiled = right - {"d2ltvm/py.typed"} | {"tests/test_ops.py"}
    assert check_dist.differences(spoiled) == [
        "the wheel lacks d2ltvm/py.typed",
        "the wheel has tests/test_ops.py too",
    ]


@pytest.mark.parametrize("path", HOSTED, ids=lambda path: path.stem)
def test_hosted_files_can_be_read(path):
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_hosted_runs_make_what_the_makefile_has():
    text = (book.ROOT / ".github/workflows/ci.yml").read_text()
    targets = set(re.findall(r"run: make ([\w-]+)", text))
    assert targets == {"lint", "lint-js", "test", "dist", "book", "test-web"}
    makefile = (book.ROOT / "Makefile").read_text()
    assert targets <= set(re.findall(r"^([a-z-]+):", makefile, re.M))


def test_the_page_the_stub_and_dir_have_the_same_names():
    grouped = [name for names in api_page.groups().values() for name in names]
    assert len(grouped) > 60 and len(set(grouped)) == len(grouped)
    assert sorted([*grouped, *api_page.rooms()]) == dir(d2ltvm)
    page = api_page.page()
    shown = re.findall(r":: d2ltvm\.(\w+)$|^- `d2ltvm\.(\w+)`, below", page, re.M)
    assert sorted(filter(None, itertools.chain(*shown))) == dir(d2ltvm)
    for module in ("compute.ops", "schedules.matmul", "hopper.ring", "bench.timing"):
        assert f".. automodule:: d2ltvm.{module}\n   :members:" in page
    assert "(api-clocks)=\n## Measure it" in page
