"""`colab.plan` against driver versions, and `colab.prepare` against faked machines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from d2ltvm.system import colab

T4, A100, GEFORCE = "Tesla T4", "NVIDIA A100-SXM4-40GB", "NVIDIA GeForce RTX 4090"
SYSTEM_LIBCUDA = "/usr/lib64-nvidia/libcuda.so.550.54.15"


@pytest.mark.parametrize(
    ("driver", "gpu", "action", "reason"),
    [
        (None, "", "cpu", "No GPU here"),
        ((580, 82, 7), T4, "nothing", ""),
        ((595, 1), GEFORCE, "nothing", ""),
        ((575, 57, 8), T4, "compat", ""),
        ((550, 54, 15), T4, "compat", ""),
        ((550, 54, 15), A100, "compat", ""),
        ((550, 54, 15), "NVIDIA L4", "compat", ""),
        ((550, 54, 15), "NVIDIA H100 80GB HBM3", "compat", ""),
        ((535, 104, 5), T4, "compat", ""),
        ((560, 35, 3), T4, "cpu", "driver 560.35.03, CUDA 13 wants 580 or newer"),
        ((525, 60, 13), T4, "cpu", "starts from one of 535, 550, 565, 570, 575"),
        ((575, 57, 8), GEFORCE, "cpu", "for data-centre GPUs, not 'NVIDIA GeForce RTX 4090'"),
        ((550, 54, 15), GEFORCE, "cpu", "for data-centre GPUs"),
        ((550, 54, 15), "NVIDIA T400 4GB", "cpu", "for data-centre GPUs"),
        ((550, 54, 15), "NVIDIA RTX A4000", "cpu", "for data-centre GPUs"),
    ],
)
def test_plan(driver, gpu, action, reason):
    made = colab.plan(driver, gpu)
    assert made.action == action
    assert reason in made.message
    assert bool(made.message) == (action == "cpu")
    assert "\n" not in made.message


@pytest.mark.parametrize("driver", [(580, 82, 7), (550, 54, 15)])
def test_a_gpu_that_cuda_13_no_longer_compiles_for(driver):
    made = colab.plan(driver, "Tesla P100-PCIE-16GB", capability=(6, 0))
    assert made.action == "cpu"
    assert "compute capability 6.0, and CUDA 13 wants 7.5 or newer" in made.message
    assert colab.plan((580, 82, 7), T4, capability=(7, 5)).action == "nothing"


def test_another_libcuda_is_loaded_already():
    made = colab.plan((550, 54, 15), T4, loaded=SYSTEM_LIBCUDA)
    assert made.action == "cpu"
    assert f"{SYSTEM_LIBCUDA} is loaded; restart the runtime" in made.message
    # With a new driver that is as it should be, and after a first `prepare` too.
    assert colab.plan((580, 82, 7), T4, loaded=SYSTEM_LIBCUDA).action == "nothing"
    assert colab.plan((550, 54, 15), T4, loaded=colab.COMPAT_LIBRARY).action == "nothing"


class Machine:
    """A faked machine: what its commands answer, and what was done to it."""

    def __init__(self, monkeypatch, tmp_path):
        self.smi, self.proc, self.maps = "", "", ""
        self.apt = ["installs"]  # what each apt-get does: 'installs', 'ok' or a complaint
        self.trial = "0 0 13000"  # cuInit's answer, cuDriverGetVersion's, the version
        self.commands, self.loaded = [], []
        self.library = tmp_path / "compat" / "libcuda.so.1"
        self.library.parent.mkdir()
        monkeypatch.setattr(colab, "COMPAT_LIBRARY", str(self.library))
        monkeypatch.setattr(colab.subprocess, "run", self.run)
        monkeypatch.setattr(colab, "_load", lambda path: self.loaded.append(Path(path).name))
        files = {"/proc/driver/nvidia/version": "proc", "/proc/self/maps": "maps"}
        monkeypatch.setattr(colab, "_read", lambda path: getattr(self, files[path]))
        monkeypatch.setenv("LD_LIBRARY_PATH", "/usr/lib64-nvidia")
        monkeypatch.setenv("D2LTVM_NO_CUDA", "0")  # so that it is put back afterwards
        monkeypatch.delenv("D2LTVM_NO_CUDA")

    def run(self, command, **options):
        self.commands.append(command)
        if command[0] == "nvidia-smi":
            if not self.smi:
                raise FileNotFoundError("nvidia-smi")
            return self.answer(self.smi)
        if command[0] == sys.executable:
            assert command[-1] == str(self.library)
            return self.answer(self.trial)
        assert command[0] == "apt-get"
        assert options["timeout"] <= 40
        step = self.apt.pop(0)
        if step == "hangs":
            raise subprocess.TimeoutExpired(command, options["timeout"])
        if step == "installs":
            assert command[-1] == "cuda-compat-13-0"
            self.library.touch()
        return self.answer(error=None if step in ("installs", "ok") else step)

    def answer(self, output="", error=None):
        return subprocess.CompletedProcess([], 100 if error else 0, output, error or "")

    def apt_calls(self):
        return [command[1] for command in self.commands if command[0] == "apt-get"]


@pytest.fixture
def machine(monkeypatch, tmp_path):
    return Machine(monkeypatch, tmp_path)


def without_gpu(capsys):
    """The one line that was printed, on a machine that goes on without its GPU."""
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert os.environ.get("D2LTVM_NO_CUDA") == "1"
    assert colab.WITHOUT in printed
    return printed


def test_no_gpu(machine, capsys):
    assert colab.prepare().action == "cpu"
    assert capsys.readouterr().out.startswith("No GPU here")
    assert "D2LTVM_NO_CUDA" not in os.environ  # nothing is hidden where there is nothing
    assert machine.loaded == [] and machine.apt_calls() == []


def test_nvidia_smi_without_a_driver(machine, capsys):
    machine.smi = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    assert colab.prepare().action == "cpu"
    assert capsys.readouterr().out.startswith("No GPU here")


@pytest.mark.parametrize("gpu", [T4, GEFORCE])
def test_a_new_driver_is_left_alone_in_silence(machine, capsys, gpu):
    machine.smi = f"580.82.07, {gpu}, 8.9\n"
    assert colab.prepare() == colab.Preparation("nothing")
    assert capsys.readouterr().out == ""
    assert machine.loaded == [] and machine.apt_calls() == []
    assert os.environ["LD_LIBRARY_PATH"] == "/usr/lib64-nvidia"
    assert "D2LTVM_NO_CUDA" not in os.environ


@pytest.mark.parametrize("driver", ["575.57.08", "550.54.15", "535.104.05"])
def test_an_old_driver_on_a_t4_gets_the_compat_driver(machine, capsys, driver):
    machine.smi = f"{driver}, {T4}, 7.5\n"
    assert colab.prepare().action == "compat"
    assert capsys.readouterr().out == ""
    assert machine.apt_calls() == ["install"]
    assert machine.loaded[-1] == "libcuda.so.1"  # after its helpers, and loaded at all
    assert os.environ["LD_LIBRARY_PATH"] == f"{machine.library.parent}:/usr/lib64-nvidia"
    assert "D2LTVM_NO_CUDA" not in os.environ


def test_the_second_notebook_installs_nothing(machine):
    machine.smi = f"550.54.15, {T4}, 7.5\n"
    machine.library.touch()
    assert colab.prepare().action == "compat"
    assert machine.apt_calls() == []


def test_package_lists_are_brought_up_to_date_where_needed(machine):
    machine.smi = f"550.54.15, {T4}, 7.5\n"
    machine.apt = ["E: Unable to locate package cuda-compat-13-0", "ok", "installs"]
    assert colab.prepare().action == "compat"
    assert machine.apt_calls() == ["install", "update", "install"]


def test_apt_fails(machine, capsys):
    machine.smi = f"550.54.15, {T4}, 7.5\n"
    missing = "W: noise\nE: Unable to locate package cuda-compat-13-0\n"
    machine.apt = [missing, "E: no network", missing]
    assert colab.prepare().action == "cpu"
    assert "cuda-compat-13-0: E: Unable to locate package" in without_gpu(capsys)
    assert machine.loaded == []


def test_apt_hangs(machine, capsys):
    machine.smi = f"550.54.15, {T4}, 7.5\n"
    machine.apt = ["hangs"] * 3
    assert colab.prepare().action == "cpu"
    assert "timed out after" in without_gpu(capsys)


def test_apt_is_content_and_the_library_is_not_there(machine, capsys):
    machine.smi = f"550.54.15, {T4}, 7.5\n"
    machine.apt = ["ok"] * 3
    assert colab.prepare().action == "cpu"
    assert f"which has no {machine.library}" in without_gpu(capsys)


@pytest.mark.parametrize(
    ("trial", "reason"),
    [
        ("803 0 13000", "does not fit this driver (CUDA error 803)"),
        ("804 0 13000", "does not support this GPU (CUDA error 804)"),
        ("999 0 0", "it fails (CUDA error 999)"),
        ("0 0 12040", "brings CUDA 12 only"),
        ("", "does not load"),
    ],
)
def test_a_compat_driver_that_does_not_start_is_not_loaded(machine, capsys, trial, reason):
    machine.smi, machine.trial = f"550.54.15, {T4}, 7.5\n", trial
    assert colab.prepare().action == "cpu"
    assert reason in without_gpu(capsys)
    assert machine.loaded == []


@pytest.mark.parametrize(
    ("smi", "reason"),
    [
        (f"525.60.13, {T4}, 7.5\n", "driver 525.60.13"),
        (f"550.54.15, {GEFORCE}, 8.9\n", "data-centre GPUs"),
        ("580.82.07, Tesla V100-SXM2-16GB, 7.0\n", "compute capability 7.0"),
    ],
)
def test_a_gpu_that_cannot_be_used(machine, capsys, smi, reason):
    machine.smi = smi
    assert colab.prepare().action == "cpu"
    assert reason in without_gpu(capsys)
    assert machine.apt_calls() == []


def test_pytorch_has_loaded_libcuda(machine, capsys):
    machine.smi = f"550.54.15, {T4}, 7.5\n"
    machine.maps = f"7f00-7f01 r-xp 00000000 08:01 42  {SYSTEM_LIBCUDA}\n"
    assert colab.prepare().action == "cpu"
    assert f"{SYSTEM_LIBCUDA} is loaded; restart" in without_gpu(capsys)
    assert machine.apt_calls() == []


def test_the_kernel_module_tells_the_version_where_nvidia_smi_does_not(machine, capsys):
    machine.proc = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 2024\n"
    assert colab.prepare().action == "cpu"
    assert "driver 550.54.15" in without_gpu(capsys)
    machine.proc = machine.proc.replace("550.54.15", "580.65.06")
    os.environ.pop("D2LTVM_NO_CUDA")
    assert colab.prepare().action == "nothing"


def test_whatever_fails_the_notebook_goes_on(machine, capsys, monkeypatch):
    def load(path):
        raise RuntimeError("broken\nin two lines")

    monkeypatch.setattr(colab, "_load", load)
    machine.smi = f"550.54.15, {T4}, 7.5\n"
    assert colab.prepare().action == "cpu"
    assert "RuntimeError: broken in two lines" in without_gpu(capsys)


def test_a_reader_who_hides_the_gpu_is_left_in_peace(machine, capsys, monkeypatch):
    monkeypatch.setenv("D2LTVM_NO_CUDA", "1")
    assert colab.prepare().action == "cpu"
    assert capsys.readouterr().out == "" and machine.commands == []


def test_the_trial_reads_a_real_answer(monkeypatch, tmp_path):
    """With a library that is none, in a real process: a reason, and no exception."""
    broken = tmp_path / "libcuda.so.1"
    broken.write_text("not a library")
    assert colab._try(str(broken)) == f"{broken} does not load"


def test_libcuda_is_found_among_the_loaded_libraries(monkeypatch):
    maps = f"7f00-7f01 r-xp 0 0:0 0 /lib/libcudart.so.13\n7f02-7f03 r-xp 0 0 {SYSTEM_LIBCUDA}\n"
    monkeypatch.setattr(colab, "_read", lambda path: maps)
    assert colab._loaded_libcuda() == SYSTEM_LIBCUDA
    monkeypatch.setattr(colab, "_read", lambda path: maps.splitlines()[0])
    assert colab._loaded_libcuda() is None


def test_nothing_that_could_load_a_driver_is_imported():
    code = (
        "import sys\nfrom d2ltvm.system import colab\ncolab.prepare()\n"
        "print(sorted({'tvm', 'torch', 'numpy', 'mxnet', 'tvm_ffi'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_a_driver_is_written_as_nvidia_does():
    assert colab.dotted((580, 159, 4)) == "580.159.04"
    assert colab.dotted((550,)) == "550"
