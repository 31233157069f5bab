"""What is installed, and what is pinned."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement

import book
from d2ltvm.system import environment

PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;]+)(?: *; *(.+))?$")


def pins(name):
    """Versions by package, from a requirements file."""
    found = {}
    for line in (book.ROOT / name).read_text().splitlines():
        if line and not line.startswith(("#", "-")):
            match = PINNED.match(line)
            assert match, f"{name}: {line!r} is not pinned"
            found[match[1].lower().replace("_", "-")] = match[2]
    return found


@pytest.mark.slow
def test_no_forbidden_combination_is_installed():
    """Fails with the reason and the command, as `environment.forbidden` gives them."""
    assert environment.installed()["pytest"] == pytest.__version__
    assert environment.forbidden(environment.installed()) == []


def test_of_two_installed_versions_the_one_that_is_imported_counts(tmp_path, monkeypatch):
    for folder, version in (("first", "0.1.14.post1"), ("second", "0.1.15.post2")):
        info = tmp_path / folder / f"apache_tvm_ffi-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: apache_tvm_ffi\nVersion: {version}\n")
    monkeypatch.setattr("sys.path", [str(tmp_path / f) for f in ("first", "second")])
    assert environment.installed() == {"apache-tvm-ffi": "0.1.14.post1"}


@pytest.mark.parametrize("version", ["0.1.15.post1", "0.1.15.post2", "0.1.15.post2+here"])
def test_the_releases_that_crash_are_named(version):
    (problem,) = environment.forbidden({"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": version})
    assert version in problem and "tensorize" in problem and "pip install" in problem


def test_pip_keeps_away_from_them():
    """The package's requirements rule out what `forbidden` names."""
    project = tomllib.loads((book.ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = (r for r in map(Requirement, project["dependencies"]) if r.name == "apache-tvm-ffi")
    assert wanted == Requirement(environment.FFI)
    for version in ("0.1.15.post1", "0.1.15.post2"):
        assert not wanted.specifier.contains(version)


def test_releases_that_work_are_not_refused():
    for version in ("0.1.14.post0", "0.1.14.post1", "0.1.15", "0.1.16"):
        versions = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": version}
        assert environment.forbidden(versions) == []


def test_requirements_agree_with_the_constraints():
    constraints = pins("constraints.txt")
    for name in ("requirements.txt", "requirements-colab.txt"):
        for package, version in pins(name).items():
            assert constraints.get(package) == version, f"{name}: {package}"


def test_colab_gets_the_versions_of_the_book():
    book_has = pins("requirements.txt")
    assert {p: book_has.get(p) for p in pins("requirements-colab.txt")} == pins(
        "requirements-colab.txt"
    )
    assert not {"numpy", "torch", "mxnet"} & set(pins("requirements-colab.txt"))


def test_mxnet_under_numpy_2_is_named():
    (problem,) = environment.forbidden({"mxnet": "1.9.1", "numpy": "2.5.2"})
    assert "cannot be imported" in problem
    assert environment.forbidden({"mxnet": "1.9.1", "numpy": "1.26.4"}) == []
    assert len(environment.forbidden({"mxnet": "1.9.1", "numpy": "2.0.0rc1"})) == 1


def test_the_records_of_a_clone_come_first_and_else_those_of_the_installation(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path / "d2ltvm")
    assert environment.measurements() == tmp_path / "d2ltvm" / "measurements"
    (tmp_path / "book" / "measurements").mkdir(parents=True)
    assert environment.measurements() == tmp_path / "book" / "measurements"
