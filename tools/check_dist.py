"""Check the built sdist and wheel: what is in them, and that the installed package works.

python tools/check_dist.py            beside the packages of this environment, in seconds
python tools/check_dist.py --clean    with packages of its own, as a stranger installs it
"""

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path

import book
from d2ltvm.system import files

DIST = book.ROOT / "dist"
RECORDS = book.ROOT / "book" / "measurements"

# Run where it is installed: every record of every device can be loaded, from any folder.
LOAD = """
import json, pathlib, sys
import d2ltvm
from d2ltvm.system import environment

assert "site-packages" in d2ltvm.__file__, f"{d2ltvm.__file__} is not what was installed"
paths = sorted(environment.measurements().glob("*/*.json"))
names = [
    (f"{p.stem}/{r['name']}", p.parent.name)
    for p in paths
    for r in json.loads(p.read_text())["records"]
]
for name, device in names:
    assert d2ltvm.load_record(name, device).name == name
print(len(names))
"""


def expected() -> set[str]:
    """What a wheel has to hold, by the names it has there."""
    package = book.ROOT / "d2ltvm"
    kinds = ("*.py", "*.pyi", "*.mplstyle", "*.js", "*.css", "py.typed")
    files = [path for kind in kinds for path in package.rglob(kind)]
    data = (
        "compiler/light_headers/**/*",
        "hopper/*.json",
        "network/graphs/*",
        "search/*.xz",
        "search/found/*/*",
    )
    files += [path for kind in data for path in package.glob(kind) if path.is_file()]
    names = {path.relative_to(book.ROOT).as_posix() for path in files}
    records = (path.relative_to(RECORDS).as_posix() for path in RECORDS.glob("*/*.json*"))
    return names | {f"d2ltvm/measurements/{name}" for name in records}


def differences(names: set[str]) -> list[str]:
    """What is wrong with the contents of a wheel, in lines."""
    inside = {name for name in names if ".dist-info/" not in name}
    lacking = [f"the wheel lacks {name}" for name in sorted(expected() - inside)]
    return lacking + [f"the wheel has {name} too" for name in sorted(inside - expected())]


def only(pattern: str) -> Path:
    """The one file in dist/ of that pattern."""
    found = sorted(DIST.glob(pattern))
    if len(found) != 1:
        raise SystemExit(f"dist/{pattern} is {len(found)} files; expected one: make dist")
    return found[0]


def installed(folder: Path, clean: bool) -> Path:
    """The Python of a new environment with the wheel in it."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python, wheel = folder / "bin" / "python", f"{only('*.whl')}"
    options = [] if clean else ["--no-deps", "--no-index"]
    extras = "[opencl,cuda]" if clean else ""
    install = ["-m", "pip", "install", "-q", "--disable-pip-version-check", *options]
    output(python, folder, *install, f"d2ltvm{extras} @ file://{wheel}")
    if not clean:  # behind its own packages, those of this environment
        own = next((folder / "lib").glob("python*")) / "site-packages"
        files.write(own / "beside.pth", sysconfig.get_paths()["purelib"] + "\n")
    return python


def output(python: Path, folder: Path, *arguments: str) -> str:
    """What a command of the environment prints, run in a folder without the book."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "D2LTVM"))}
    command = [str(python), *arguments]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"{' '.join(arguments[:3])} failed:\n{run.stdout}{run.stderr}")
    return run.stdout


def main(argv: list[str] | None = None) -> int:
    """Check. Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clean", action="store_true", help="install its requirements too")
    clean = parser.parse_args(argv).clean
    wrong = differences(set(zipfile.ZipFile(only("*.whl")).namelist()))
    with tarfile.open(only("*.tar.gz")) as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
    wrong += [f"the sdist lacks {n}" for n in ("LICENSE", "README.md") if n not in inside]
    if wrong:
        print(*wrong, sep="\n", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = installed(folder / "venv", clean)
        records = output(python, folder, "-c", LOAD).strip()
        doctor, _ = (output(python, folder, "-m", "d2ltvm", c) for c in ("doctor", "bench"))
    seen = sum(map(int, re.findall(r"(\d+) of nvidia", doctor)))  # a chip has records of its own
    if str(seen) != records:
        raise SystemExit(f"doctor does not see the {records} records:\n{doctor}")
    print(f"installed: {records} records; doctor and bench run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
