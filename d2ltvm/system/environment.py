"""Which packages are installed, which combinations fail, where records and chapters are.

It imports the standard library alone: `python -m d2ltvm doctor` has to run where nothing is there.
"""

import contextlib
import importlib.resources
import os
import re
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

import d2ltvm
from d2ltvm.errors import MissingError

# What pip has to keep away from, as requirement: versions that work; what the others do; the cure.
# apache-tvm-ffi 0.1.15.post1 and post2 end `Schedule.tensorize` of apache-tvm 0.27 in a
# segmentation fault; 0.1.14.post0 and post1 do not. pyproject.toml has the same requirement.
FFI = "apache-tvm-ffi!=0.1.15.post1,!=0.1.15.post2"
NUMPY_OF_MXNET = "numpy<2"
GENERATED = ("api", "status")  # pages that a tool writes when the site is built


@contextlib.contextmanager
def variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """This process's environment with some variables set, and afterwards as it was.

    >>> with variables({"D2LTVM_EXAMPLE": "so"}):
    ...     os.environ["D2LTVM_EXAMPLE"]
    'so'
    >>> "D2LTVM_EXAMPLE" in os.environ
    False
    """
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def installed() -> dict[str, str]:
    """Version by package name, of those that an import would find.

    >>> installed()["apache-tvm"]
    '0.27.0.post1'

    Returns:
        A dict; names in small letters, with hyphens.
    """
    versions: dict[str, str] = {}
    for distribution in metadata.distributions():  # in the order of sys.path: the first one counts
        if name := distribution.metadata["Name"]:
            versions.setdefault(name.lower().replace("_", "-"), distribution.version)
    return versions


def forbidden(versions: dict[str, str]) -> list[str]:
    """What is wrong with a set of packages.

    >>> (problem,) = forbidden({"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.15.post2"})
    >>> problem.split(";")[0]
    'apache-tvm-ffi 0.1.15.post2 crashes Schedule.tensorize'

    Args:
        versions: version by package name, as `importlib.metadata` gives them.

    Returns:
        One line for each problem; an empty list where there is none.
    """
    problems = []
    if _breaks(FFI, versions):
        problems.append(
            f"apache-tvm-ffi {versions['apache-tvm-ffi']} crashes Schedule.tensorize; "
            "pip install 'apache-tvm-ffi==0.1.14.post1'"
        )
    if "mxnet" in versions and _breaks(NUMPY_OF_MXNET, versions):
        problems.append(
            f"mxnet {versions['mxnet']} cannot be imported under numpy {versions['numpy']}; "
            "pip install 'numpy==1.26.4', or pip uninstall mxnet"
        )
    return problems


def measurements() -> Path:
    """The folder of the records: a clone's `book/measurements`, or what an installation brings."""
    package = importlib.resources.files(d2ltvm)
    clone = Path(str(package)).parent / "book" / "measurements"
    return clone if clone.is_dir() else Path(str(package / "measurements"))


def book_folder() -> Path:
    """The folder of the book's clone; an installed package has no chapters.

    Raises:
        MissingError: there is none.
    """
    folder = measurements().parent.parent
    if not (folder / "tools" / "execute.py").is_file():
        raise MissingError(
            "the chapters are not installed with the package",
            "`python -m d2ltvm bench`",
            "a clone of the book, and the command in its folder",
        )
    return folder


def chapters() -> dict[str, Path]:
    """The chapters that are notebooks, by names such as 'elementwise/vector_add', in their order.

    >>> list(chapters())[:2]
    ['intro', 'start/setting_up']

    Raises:
        MissingError: as for `book_folder`.
    """
    folder = book_folder()
    contents = (folder / "_toc.yml").read_text()
    names = re.findall(r"^\W*(?:root|file): *(\S+)", contents, re.MULTILINE)
    paths = {name.removeprefix("book/"): folder / f"{name}.ipynb" for name in names}
    return {
        name: path
        for name, path in paths.items()
        if name not in GENERATED and not path.with_suffix(".md").exists()
    }


def _breaks(requirement: str, versions: dict[str, str]) -> bool:
    """Whether a package is installed in a version that a requirement rules out."""
    from packaging.requirements import Requirement  # which is not in the standard library

    wanted = Requirement(requirement)
    version = versions.get(wanted.name)
    return version is not None and not wanted.specifier.contains(version, prereleases=True)
