"""What this machine can do, and how to get the rest: `python -m d2ltvm doctor`.

A report has to come out where things are broken, so nothing but the standard library is imported
here, and whatever could fail to import, or crash, is tried in a process of its own.
"""

import argparse
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import d2ltvm
from d2ltvm.errors import MissingError
from d2ltvm.system import colab, environment, toolchain

ROOT = Path(d2ltvm.__file__).resolve().parents[1]
PYTHONS = ((3, 11), (3, 12))  # those that the book is tested with
REQUIREMENTS = "pip install -r requirements.txt"
PROBE_SECONDS = 120  # importing PyTorch from a cold disk has taken most of a minute

NO_KERNEL = "reading the rendered book"
WITHOUT_GPU = (
    "every kernel on the CPU: as OpenCL, or played by a program where it uses TensorCores; "
    "GPU figures come from the records"
)


@dataclass(frozen=True)
class Check:
    """One line of the report.

    Attributes:
        name: what was looked at.
        state: 'ok', 'warn' (usable, with a reservation), 'missing' or 'broken'.
        detail: versions and names, or what is wrong.
        still: what works without it; empty where nothing is wrong.
        command: what to type to get it; empty likewise.
    """

    name: str
    state: str
    detail: str
    still: str = ""
    command: str = ""


def report() -> list[Check]:
    """Look at everything.

    >>> [check.name for check in report()]  # doctest: +SKIP
    ['Python', 'NumPy', 'TVM', 'NVIDIA GPU', 'OpenCL', ...]

    Returns:
        A list of `Check`. It never raises.
    """
    checks = {
        "Python": _python,
        "NumPy": _numpy,
        "TVM": _tvm,
        "NVIDIA GPU": _gpu,
        "OpenCL": _opencl,
        "NVRTC": _nvrtc,
        "SASS tools": _sass,
        "MXNet": _mxnet,
        "PyTorch": _torch,
        "Book tools": _book_tools,
        "Records": _records,
    }
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(_guarded, checks.items()))


def usable(checks: list[Check]) -> bool:
    """Whether the notebooks can run at all: with NumPy and a TVM that works."""
    needed = {check.name: check.state for check in checks if check.name in ("NumPy", "TVM")}
    return all(state in ("ok", "warn") for state in needed.values())


def runs_on(checks: list[Check]) -> str | None:
    """Where kernels run: 'cuda', 'opencl', or None where they do not."""
    fine = {check.name for check in checks if check.state == "ok"}
    if not usable(checks):
        return None
    return "cuda" if "NVIDIA GPU" in fine else "opencl" if "OpenCL" in fine else None


def main(options: argparse.Namespace) -> int:
    """Print the report; the exit code is 1 where the book cannot run at all, else 0."""
    checks = report()
    print(as_json(checks) if options.json else table(checks, _width()))
    return 0 if usable(checks) else 1


def as_json(checks: list[Check]) -> str:
    """The report as JSON."""
    found = {
        "d2ltvm": d2ltvm.__version__,
        "usable": usable(checks),
        "runs_on": runs_on(checks),
        "checks": [asdict(check) for check in checks],
    }
    return json.dumps(found, indent=2)


def table(checks: list[Check], width: int = 100) -> str:
    """The report as text, with lines no longer than `width` where words allow."""
    names = max(len(check.name) for check in checks)
    lines = [f"d2ltvm {d2ltvm.__version__} on this machine", ""]
    for check in checks:
        head = f"  {check.state:<7}  {check.name:<{names}}  "
        lines += _wrap(check.detail, width, head)
        if check.still:
            lines += _wrap(check.still, width, " " * len(head) + "  still works: ")
        if check.command:  # on one line, for copying
            lines.append(" " * len(head) + "  to get it:   " + check.command)
    return "\n".join([*lines, "", *textwrap.wrap(_verdict(checks), width)])


def _width() -> int:
    return min(shutil.get_terminal_size().columns, 100)


def _wrap(text: str, width: int, head: str) -> list[str]:
    below = " " * len(head)
    return textwrap.wrap(text, width, initial_indent=head, subsequent_indent=below)


def _verdict(checks: list[Check]) -> str:
    found = {check.name: check for check in checks}
    if not usable(checks):
        wrong = [n for n in ("NumPy", "TVM") if found[n].state not in ("ok", "warn")]
        return f"The notebooks cannot run here until {' and '.join(wrong)} can be imported."
    place = runs_on(checks)
    if place is None:
        return "Neither a GPU nor OpenCL is here: the notebooks stop at their first kernel."
    if place == "cuda":
        return "Kernels run on the GPU, and measurements are made on it."
    return "Kernels run as OpenCL on the CPU. Figures that take a GPU come from the records."


def _guarded(item: tuple[str, Callable[[str], Check]]) -> Check:
    name, look = item
    try:
        return look(name)
    except MissingError as error:
        return Check(name, "missing", error.missing, error.still, error.command)
    except Exception as error:  # a report with a hole in it is better than none
        return Check(name, "broken", _line(error), "the other lines of this report")


def _python(name: str) -> Check:
    version = sys.version_info[:3]
    detail = ".".join(map(str, version))
    if version[:2] in PYTHONS:
        return Check(name, "ok", detail)
    tested = " and ".join(".".join(map(str, pair)) for pair in PYTHONS)
    detail += f"; the book is tested with {tested}"
    command = "python{}.{} -m venv .venv".format(*PYTHONS[-1])
    return Check(name, "warn", detail, "most likely everything", command)


def _numpy(name: str) -> Check:
    found = _probe("import numpy; answer = dict(version=numpy.__version__)")
    if "error" in found:
        return _failed(name, "numpy", found, NO_KERNEL)
    return Check(name, "ok", found["version"])


def _tvm(name: str) -> Check:
    found = _probe("import tvm; from tvm import s_tir, te; answer = dict(version=tvm.__version__)")
    if "error" in found:
        return _failed(name, "apache-tvm", found, NO_KERNEL)
    versions = environment.installed()
    detail = f"{found['version']}, with tvm-ffi {versions.get('apache-tvm-ffi', 'unknown')}"
    # What MXNet cannot live with is said in its own line; kernels run all the same.
    problems = [p for p in environment.forbidden(versions) if p.startswith("apache-tvm")]
    if problems:
        return Check(name, "broken", f"{detail}: {'; '.join(problems)}", NO_KERNEL, REQUIREMENTS)
    return Check(name, "ok", detail)


# In this order, as in a notebook: the runtime library, then TVM.
_GPU_PROBE = """
from d2ltvm.system import toolchain
toolchain.load_cuda_runtime()
import tvm
from cuda.bindings import driver
device = tvm.cuda(0)
answer = dict(seen=bool(device.exist))
if answer["seen"]:
    number = driver.cuDriverGetVersion()[1]
    cuda = f"{number // 1000}.{number % 1000 // 10}"
    answer.update(capability=device.compute_version, cuda=cuda)
"""


def _gpu(name: str) -> Check:
    version, gpu, capability = colab.find_gpu()
    if version is None:
        return _no_gpu(
            name, "no NVIDIA driver, or no GPU", "a machine with an NVIDIA GPU, or Colab"
        )
    shown = f"{gpu}, driver {colab.dotted(version)}"
    if colab.hidden():
        return _no_gpu(name, f"{shown}, hidden by D2LTVM_NO_CUDA", "unset D2LTVM_NO_CUDA")
    found = _probe(_GPU_PROBE)
    if found.get("seen"):
        ability = f"compute capability {found['capability']}"
        return Check(name, "ok", f"{shown}, CUDA {found['cuda']}, {ability}")
    planned = colab.plan(version, gpu, capability)
    if planned.action == "compat":
        wants = f"{shown}; CUDA 13 wants {colab.MIN_DRIVER} or newer, or {colab.PACKAGE}"
        how = f"sudo apt-get install {colab.PACKAGE}; in Colab the first cell does it"
        return _no_gpu(name, wants, how)
    if planned.action == "cpu":
        why = planned.message.removesuffix(f" Instead {colab.WITHOUT}.")
        return _no_gpu(name, why, f"sudo apt-get install nvidia-driver-{colab.MIN_DRIVER}")
    why = found.get("error", "TVM does not see it")
    return Check(name, "broken", f"{shown}: {why}", WITHOUT_GPU, REQUIREMENTS)


def _no_gpu(name: str, detail: str, command: str) -> Check:
    return Check(name, "missing", detail, WITHOUT_GPU, command)


_OPENCL_PROBE = """
from d2ltvm.system import files
moved = files.use_writable_caches()
import pyopencl
devices = [(p.name, d.name) for p in pyopencl.get_platforms() for d in p.get_devices()]
answer = dict(devices=devices, moved=moved is not None)
"""


def _opencl(name: str) -> Check:
    still = "CUDA source and cubins; kernels on the CPU with target='llvm'"
    command = "pip install pyopencl pocl-binary-distribution"
    found = _probe(_OPENCL_PROBE)
    if "error" in found:
        if not _installed("pyopencl"):
            return Check(name, "missing", "pyopencl is not installed", still, command)
        if "PLATFORM_NOT_FOUND" in found["error"]:
            return Check(name, "missing", "no OpenCL platform", still, command)
        return Check(name, "broken", found["error"], still, command)
    if not found["devices"]:
        return Check(name, "missing", "no OpenCL device", still, command)
    names = "; ".join(f"{device} ({platform})" for platform, device in found["devices"])
    moved = "; caches are temporary, since the usual folder cannot be written"
    return Check(name, "ok", names + (moved if found["moved"] else ""))


def _nvrtc(name: str) -> Check:
    found = _probe(
        "from d2ltvm.compiler import nvrtc\n"
        "from d2ltvm.system import toolchain\n"
        "answer = dict(root=str(toolchain.headers()[0]), version=nvrtc.nvrtc_version(),\n"
        "              archs=[a for a in nvrtc.architectures() if a[-1].isdigit()])"
    )
    if "error" in found:
        still = "CUDA source for any architecture, and kernels on OpenCL and the CPU"
        return _failed(name, "cuda-bindings", found, still, toolchain.INSTALL_COMPILER)
    origin = "pip packages" if _from_pip(found["root"]) else found["root"]
    archs = f"{found['archs'][0]} to {found['archs'][-1]}"
    version = ".".join(map(str, found["version"]))
    return Check(name, "ok", f"{version}, headers from {origin}; makes code for {archs}")


def _sass(name: str) -> Check:
    tools = [toolchain.tool(tool) for tool in ("nvdisasm", "cuobjdump")]
    places = ["pip packages" if _from_pip(path) else str(path) for path in tools]
    shown = (f"{path.name} from {place}" for path, place in zip(tools, places, strict=True))
    return Check(name, "ok", ", ".join(shown))


def _mxnet(name: str) -> Check:
    found = _probe(
        "from d2ltvm.bench import libraries\nanswer = dict(version=libraries.mxnet().__version__)"
    )
    if "error" in found:
        return _failed(name, "mxnet", found, "every kernel; NumPy is the baseline on the CPU")
    return Check(name, "ok", found["version"])


def _torch(name: str) -> Check:
    still = "everything else; cuDNN's figures come from the records"
    if not _installed("torch"):
        detail, command = "not installed; the book does not need it", "pip install torch"
        return Check(name, "missing", detail, still, command)
    found = _probe(
        "import torch\n"
        "answer = dict(version=torch.__version__, cuda=torch.version.cuda,\n"
        "              gpu=torch.cuda.is_available(), cudnn=torch.backends.cudnn.version())"
    )
    if "error" in found:
        return _failed(name, "torch", found, still)
    detail = f"{found['version']}, cuDNN {found['cudnn'] or 'not in it'}"
    if found["gpu"]:
        return Check(name, "ok", f"{detail}, sees the GPU")
    return Check(name, "warn", f"{detail}, sees no GPU", still)


def _book_tools(name: str) -> Check:
    wanted = ("jupyter-book", "nbval", "matplotlib")
    versions = {package: _installed(package) for package in wanted}
    if absent := [package for package, version in versions.items() if not version]:
        still = (
            "the package; a notebook without figures" if "matplotlib" in absent else "the notebooks"
        )
        return Check(name, "missing", f"{', '.join(absent)} not installed", still, REQUIREMENTS)
    return Check(name, "ok", ", ".join(f"{p} {v}" for p, v in versions.items()))


def _records(name: str) -> Check:
    folder = environment.measurements()
    devices = {d.name: sorted(d.glob("*.json")) for d in sorted(folder.glob("*")) if d.is_dir()}
    counts = {device: sum(map(_count, files)) for device, files in devices.items() if files}
    if not counts:
        where, how = f"none under {folder}", "run the notebooks from a clone of the book"
        return Check(name, "missing", where, "what is measured live", how)
    return Check(name, "ok", ", ".join(f"{count} of {d}" for d, count in counts.items()))


def _count(path: Path) -> int:
    try:
        return len(json.loads(path.read_text(encoding="utf-8"))["records"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no records: {_line(error)}") from error


def _failed(
    name: str, package: str, found: dict[str, Any], still: str, command: str = REQUIREMENTS
) -> Check:
    """The line for a probe that failed: not installed, or installed and broken."""
    if "missing" in found:
        return Check(name, "missing", found["missing"], found["still"], found["command"])
    if not _installed(package):
        return Check(name, "missing", "not installed", still, command)
    return Check(name, "broken", f"{_installed(package)}: {found['error']}", still, command)


def _installed(package: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _from_pip(path: str | Path) -> bool:
    return any(root == Path(path) or root in Path(path).parents for root in toolchain.pip_roots())


_FRAME = """
import contextlib, io, json, sys
sys.path.insert(0, sys.argv[2])
try:
    with contextlib.redirect_stdout(io.StringIO()):
        exec(sys.argv[1])
except BaseException as error:
    words = f"{type(error).__name__}: {error}".split()
    answer = dict(error=" ".join(words)[:300])
    if all(hasattr(error, part) for part in ("missing", "still", "command")):
        answer.update(missing=error.missing, still=error.still, command=error.command)
print("\\n@@" + json.dumps(answer))
"""


def _probe(code: str) -> dict[str, Any]:
    """Run code that sets `answer`, a dict, in a process of its own.

    Returns:
        The dict; or one with 'error', a line, where it raised or crashed, and with the parts of a
        MissingError where it raised one.
    """
    command = [sys.executable, "-W", "ignore", "-c", _FRAME, code, str(ROOT)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer in {PROBE_SECONDS} s"}
    if "\n@@" not in done.stdout:
        return {"error": f"the process that tried it ended with code {done.returncode}"}
    return json.loads(done.stdout.rpartition("\n@@")[2])


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
