"""Cubins from CUDA source, what is in them, and that no CUDA toolkit has a part in it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from d2ltvm import schedules
from d2ltvm.compiler import cache, cubin, lowering, nvrtc
from d2ltvm.errors import MissingError
from d2ltvm.hopper import product
from d2ltvm.system import devices, toolchain

pytestmark = pytest.mark.slow

# A process of its own finds the package here, and what this process finds besides.
PYTHONPATH = os.pathsep.join([str(Path(cubin.__file__).parent.parent), *filter(None, sys.path)])


@pytest.fixture(autouse=True)
def without_cache(monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, "")


needs_pip = pytest.mark.skipif(
    not any((root / "include" / "cccl").is_dir() for root in toolchain.pip_roots()),
    reason="the pip packages of the CUDA compiler are not all installed",
)

VECTOR_ADD = """
extern "C" __global__ void __launch_bounds__(256)
main_kernel(float* __restrict__ A, float* __restrict__ B, float* __restrict__ C) {
  int i = (blockIdx.x * 256 + threadIdx.x) * 4;
  float4 a = *(float4*)(A + i), b = *(float4*)(B + i);
  *(float4*)(C + i) = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
"""

TENSOR_CORES = """
#include <cuda_fp16.h>
#include <mma.h>
extern "C" __global__ void main_kernel(half* A, half* B, float* C) {
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, half, nvcuda::wmma::row_major> a;
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, half, nvcuda::wmma::col_major> b;
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> c;
  nvcuda::wmma::fill_fragment(c, 0.0f);
  nvcuda::wmma::load_matrix_sync(a, A, 16);
  nvcuda::wmma::load_matrix_sync(b, B, 16);
  nvcuda::wmma::mma_sync(c, a, b, c);
  nvcuda::wmma::store_matrix_sync(C, c, 16, nvcuda::wmma::mem_row_major);
}
"""

# Shared memory of 2048 bytes in one kernel; in the other an array whose index is read from memory.
TWO_KERNELS = """
extern "C" __global__ void shared_kernel(float* A) {
  __shared__ float tile[512];
  tile[threadIdx.x] = A[threadIdx.x];
  __syncthreads();
  A[threadIdx.x] = tile[511 - threadIdx.x];
}
extern "C" __global__ void local_kernel(float* A, int* at) {
  float kept[100];
  for (int i = 0; i < 100; ++i) kept[i] = A[i * 32 + threadIdx.x];
  for (int i = 0; i < 100; ++i) A[i * 32 + threadIdx.x] = kept[at[i]];
}
"""


@pytest.mark.parametrize("arch", ["sm_75", "sm_86", "sm_89", "sm_90a", "sm_100"])
def test_a_cubin_holds_the_code_of_its_architecture(arch):
    made = cubin.compile_cubin(VECTOR_ADD, arch)
    sass = cubin.disassemble(made)
    assert made[:4] == b"\x7fELF"
    assert re.search(r"\.target\s+(\S+)", sass).group(1) == arch
    counts = cubin.instructions(sass)
    loads = sum(n for name, n in counts.items() if name.startswith("LDG.E.128"))
    stores = sum(n for name, n in counts.items() if name.startswith("STG.E.128"))
    assert (loads, stores, counts["EXIT"]) == (2, 1, 1)


@pytest.mark.parametrize(("arch", "opcode"), [("sm_75", "HMMA.1688"), ("sm_80", "HMMA.16816")])
def test_wmma_and_fp16_compile(arch, opcode):
    counts = cubin.instructions(cubin.disassemble(cubin.compile_cubin(TENSOR_CORES, arch)))
    assert any(name.startswith(opcode) for name in counts)


def test_source_that_tvm_generates_compiles():
    import tvm
    from tvm import s_tir, te

    A = te.placeholder((1024,), "float32", name="A")
    B = te.compute((1024,), lambda i: A[i] + 1.0, name="B")
    sch = s_tir.Schedule(te.create_prim_func([A, B]))
    block, thread = sch.split(sch.get_loops(sch.get_sblock("B"))[0], [None, 128])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"}, host="llvm")
    source = tvm.compile(sch.mod, target).mod.imports[0].inspect_source()
    assert list(cubin.resources(cubin.compile_cubin(source, "sm_80"))) == ["main_kernel"]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_resources_of_each_kernel(arch):
    found = cubin.resources(cubin.compile_cubin(TWO_KERNELS, arch))
    assert set(found) == {"shared_kernel", "local_kernel"}
    assert (found["shared_kernel"].shared, found["shared_kernel"].local) == (2048, 0)
    assert (found["local_kernel"].shared, found["local_kernel"].local) == (0, 400)
    assert 8 <= found["shared_kernel"].registers <= 32
    assert found["local_kernel"].constant > found["shared_kernel"].constant  # one pointer more


def test_padding_is_not_counted_and_predicates_are_not_opcodes():
    sass = """
.text.main_kernel:
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_1:
        /*0010*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/             @!UP1 UIADD3 UR4, UR4, 0x1, URZ ;
        /*0030*/                   NOP ;
        /*0040*/               @P0 BRA `(.L_x_1) ;
        /*0050*/                   EXIT ;
.L_x_2:
        /*0060*/                   BRA `(.L_x_2);
        /*0070*/                   NOP;
.L_x_3:
.text.second:
        /*0000*/                   EXIT ;
"""
    expected = {"S2R": 1, "LDG.E.128": 1, "UIADD3": 1, "NOP": 1, "BRA": 1, "EXIT": 2}
    assert cubin.instructions(sass) == expected


@pytest.mark.parametrize("arch", ["sm_70", "sm_99", "sm_80a", "sm_90f", "80", "compute_80", None])
def test_an_unknown_architecture_is_named(arch):
    message = rf"arch is {arch!r}; expected what NVRTC .* knows: sm_75, sm_80,"
    with pytest.raises(ValueError, match=message) as caught:
        cubin.compile_cubin(VECTOR_ADD, arch)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("made", "calls", "kept"),
    [("aa", 2, "a"), ("bba", 2, "b"), ("aba", 3, "a"), ("baa", 3, "a"), ("abcde", 5, "a")],
)
def test_cubins_that_differ_are_made_until_two_agree(monkeypatch, made, calls, kept):
    left = iter(made)
    monkeypatch.setattr(nvrtc, "compile_once", lambda source, arch: next(left))
    assert cubin.compile_cubin(f"// {made}", "sm_80") == kept
    assert len(list(left)) == len(made) - calls


def test_every_architecture_named_compiles():
    for arch in nvrtc.architectures()[-2:]:  # the newest, with suffixes a and f
        assert cubin.compile_cubin("__global__ void f() {}", arch)


def test_source_that_does_not_compile_gives_the_compilers_reason():
    with pytest.raises(ValueError, match=r'(?s)sm_80:.*identifier "undefined_name"') as caught:
        cubin.compile_cubin("__global__ void f(int* a) { *a = undefined_name; }", "sm_80")
    assert caught.value.__context__ is None


@pytest.mark.parametrize("inspect", [cubin.disassemble, cubin.resources])
@pytest.mark.parametrize("bad", ["text", b"no ELF", b"\x7fELF and no more"])
def test_what_is_no_cubin_is_refused(inspect, bad):
    with pytest.raises(ValueError, match=r"^cubin is "):
        inspect(bad)


def test_source_must_be_text():
    with pytest.raises(ValueError, match="source is bytes"):
        cubin.compile_cubin(VECTOR_ADD.encode())


def test_the_environment_and_the_temporary_directory_stay_as_they_were(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("CUDA_PATH", "/somewhere")
    before = dict(os.environ)
    made = cubin.compile_cubin(VECTOR_ADD + "// compiled anew", "sm_80")
    cubin.disassemble(made)
    with pytest.raises(ValueError):
        cubin.compile_cubin("bad again", "sm_80")
    assert dict(os.environ) == before
    monkeypatch.delenv("CUDA_PATH")
    cubin.compile_cubin(VECTOR_ADD + "// and again", "sm_80")
    assert "CUDA_PATH" not in os.environ
    assert list(tmp_path.iterdir()) == []


def test_missing_packages_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(toolchain, "toolkit_roots", list)
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: None)
    monkeypatch.setattr(toolchain, "pip_roots", lambda: [tmp_path])
    with pytest.raises(MissingError) as caught:
        cubin.compile_cubin("// no headers\n", "sm_80")
    packages = "nvidia-cuda-runtime, nvidia-cuda-crt, nvidia-cuda-cccl"
    assert caught.value.missing == f"CUDA headers are not installed ({packages})"
    assert "\n" not in str(caught.value)
    header = tmp_path / "include" / "cuda_runtime.h"
    header.parent.mkdir()
    header.touch()
    with pytest.raises(MissingError, match=r"\(nvidia-cuda-crt, nvidia-cuda-cccl\)") as caught:
        toolchain.headers()
    assert set(packages.split(", ")) < set(caught.value.command.split())
    with pytest.raises(MissingError, match=r"nvdisasm is not .*pip install nvidia-cuda-nvdisasm"):
        cubin.disassemble(b"\x7fELF")


def test_an_older_nvrtc_is_refused(monkeypatch):
    from cuda.bindings import nvrtc as bindings

    nvrtc._library.cache_clear()
    monkeypatch.setattr(bindings, "nvrtcVersion", lambda: (0, 12, 9))
    try:
        with pytest.raises(MissingError, match=r"NVRTC is 12\.9, and the headers want 13"):
            cubin.compile_cubin(VECTOR_ADD, "sm_80")
    finally:
        nvrtc._library.cache_clear()


def test_nvrtc_missing(monkeypatch):
    nvrtc._library.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    try:
        with pytest.raises(
            MissingError,
            match=r"cuda-bindings is not .* pip install cuda-bindings nvidia-cuda-nvrtc",
        ):
            cubin.compile_cubin(VECTOR_ADD, "sm_80")
    finally:
        nvrtc._library.cache_clear()


def test_tools_of_a_toolkit_where_the_packages_are_absent(monkeypatch, tmp_path):
    program = tmp_path / "bin" / "nvdisasm"
    program.parent.mkdir()
    shutil.copy("/bin/true", program)
    monkeypatch.setattr(toolchain, "pip_roots", list)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert toolchain.tool("nvdisasm") == program
    monkeypatch.delenv("CUDA_HOME")
    monkeypatch.setattr(toolchain, "toolkit_roots", list)
    monkeypatch.setenv("PATH", str(program.parent))
    assert toolchain.tool("nvdisasm") == program


# What a reader does with no toolkit: compile, look inside, prepare TVM for a device.
EVERYTHING = """
import sys
from d2ltvm.compiler import cubin
made = cubin.compile_cubin(sys.stdin.read(), "sm_80")
assert cubin.instructions(cubin.disassemble(made))["EXIT"] == 1
assert cubin.resources(made)["main_kernel"].registers
cubin.ensure_cuda_compiler()
import tvm
with tvm.target.Target({"kind": "cuda", "arch": "sm_80"}):
    code = tvm.get_global_func("tvm_callback_cuda_compile")("__global__ void f() {}")
assert code[:4] == b"\\x7fELF", code[:4]
print(*{l.split()[-1] for l in open("/proc/self/maps") if "libnvrtc" in l or "libcudart" in l})
"""


@pytest.fixture
def poisoned_toolkit(tmp_path):
    """A toolkit that breaks or betrays whatever uses any part of it."""
    headers = [path.removeprefix("include/") for path in toolchain.PACKAGES if "include" in path]
    for header in [*headers, "mma.h", "cuda_fp16.h"]:
        for root in ("include", "targets/x86_64-linux/include"):
            path = tmp_path / root / header
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("#error a header of the toolkit was used\n")
    (tmp_path / "lib64").mkdir()
    for library in ("libnvrtc.so.13", "libcudart.so.13", "libnvrtc-builtins.so.13.5"):
        (tmp_path / "lib64" / library).write_text("not a library")
    for program in ("nvcc", "ptxas", "nvdisasm", "cuobjdump"):
        path = tmp_path / "bin" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {program} >> {tmp_path}/used\nexit 1\n")
        path.chmod(0o755)
    return tmp_path


def _environment_with(toolkit):
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith("TVM_CUDA")},
        "PATH": f"{toolkit}/bin:{os.environ['PATH']}",
        "CUDA_HOME": str(toolkit),
        "CUDA_PATH": str(toolkit),
        "CPATH": f"{toolkit}/include",
        "LD_LIBRARY_PATH": f"{toolkit}/lib64",
        "PYTHONPATH": PYTHONPATH,
    }


def _run_everything(environment, *prefix):
    command = [*prefix, sys.executable, "-c", EVERYTHING]
    return subprocess.run(
        command, input=TENSOR_CORES, env=environment, capture_output=True, text=True, timeout=120
    )


@needs_pip
def test_no_part_of_a_toolkit_is_used(poisoned_toolkit):
    """CUDA_HOME, CUDA_PATH, PATH, CPATH and the loader's path all lead to a poisoned toolkit."""
    done = _run_everything(_environment_with(poisoned_toolkit))
    assert done.returncode == 0, done.stderr
    assert not (poisoned_toolkit / "used").exists(), (poisoned_toolkit / "used").read_text()
    libraries = done.stdout.split()
    assert {Path(p).name for p in libraries} >= {"libnvrtc.so.13", "libcudart.so.13"}
    roots = toolchain.pip_roots()
    assert all(any(r in Path(p).parents for r in roots) for p in libraries), libraries


@needs_pip
def test_the_poison_works(poisoned_toolkit):
    """The test above could fail: with the pip packages out of sight it does."""
    hidden = "from d2ltvm.system import toolchain; toolchain.pip_roots = lambda: []\n" + EVERYTHING
    done = subprocess.run(
        [sys.executable, "-c", hidden],
        input=TENSOR_CORES,
        env=_environment_with(poisoned_toolkit),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode
    assert "a header of the toolkit was used" in done.stderr


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_no_file_under_usr_local_cuda_is_opened(poisoned_toolkit, tmp_path):
    """The default place of a toolkit too, as far as the system's calls tell."""
    log = tmp_path / "strace.log"
    prefix = ["strace", "-f", "-qq", "-e", "trace=open,openat,execve", "-o", str(log)]
    done = _run_everything(_environment_with(poisoned_toolkit), *prefix)
    if "ptrace" in done.stderr:
        pytest.skip("strace is not allowed here")
    assert done.returncode == 0, done.stderr
    opened = [x for x in log.read_text().splitlines() if re.search(r'"/usr/local/cuda|/nvcc"', x)]
    assert [line for line in opened if not re.search(r"= -1 E", line)] == []


def test_the_readers_choice_of_compiler_stands():
    code = (
        "import tvm.support.nvcc, tvm\n"
        "get = lambda: tvm.get_global_func('tvm_callback_cuda_compile')\n"
        "from d2ltvm.compiler import cubin\n"
        "seen = []\n"
        "cubin._compile_for_device = lambda code: seen.append(code) or b'ours'\n"
        "cubin.ensure_cuda_compiler(); cubin.ensure_cuda_compiler()\n"
        "try: get()('code')\n"
        "except Exception: pass\n"
        "print(seen)\n"
    )
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    for mode, expected in [(None, "['code']"), ("nvcc", "[]")]:
        environment.pop("TVM_CUDA_COMPILE_MODE", None)
        if mode:
            environment["TVM_CUDA_COMPILE_MODE"] = mode
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert done.stdout.strip() == expected, done.stderr


@needs_pip
@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler to make a stand-in for a driver")
def test_tvm_finds_the_cuda_runtime_that_pip_installed(tmp_path):
    """With a driver and no toolkit `import tvm` leaves its CUDA part out; this brings it in.

    The driver is a stand-in without a function, so the library's own symbols are made for it.
    """
    import tvm  # noqa: F401
    from tvm.base import _LOADED_LIBS

    library = Path(_LOADED_LIBS["tvm_runtime"]._name).with_name("libtvm_runtime_cuda.so")
    wanted = set(re.findall(rb"\0(cu[A-Z]\w+)(?=\0)", library.read_bytes()))
    source = "".join(f"int {name.decode()}(void) {{ return 100; }}\n" for name in sorted(wanted))
    (tmp_path / "stub.c").write_text(source)
    command = ["cc", "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o"]
    subprocess.run([*command, tmp_path / "libcuda.so.1", tmp_path / "stub.c"], check=True)
    (tmp_path / "libcudart.so.13").write_text("no library: the loader finds no other by this name")
    code = (
        "import tvm\n"
        "from tvm.base import _LOADED_LIBS\n"
        "from d2ltvm.system import toolchain\n"
        "has = lambda: tvm.get_global_func('device_api.cuda', allow_missing=True) is not None\n"
        "print(has(), toolchain.load_cuda_runtime(), has(), toolchain.load_cuda_runtime())\n"
        "print([l.split()[-1] for l in open('/proc/self/maps') if 'libcudart' in l][0])\n"
    )
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    environment["LD_LIBRARY_PATH"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    answers, cudart = done.stdout.splitlines()
    assert answers == "False True True True", done.stderr
    assert toolchain.pip_roots()[0] in Path(cudart).parents


def generated(sch, arch):
    return lowering.lower(lowering.as_module(sch), devices.as_target(arch), None).source


def sources():
    """What TVM generates, by the headers it includes: none more, wmma's, those of Hopper."""
    wmma = schedules.wmma_tiled(32, 32, 32, 4, 3, 1, 1, rows=(1, 2), columns=(2, 1))
    yield generated(schedules.matmul_tiled(512, 512, 512), "sm_80"), "sm_80"
    yield generated(wmma, "sm_80"), "sm_80"
    yield generated(product.matmul_nt(512, 512, 512), "sm_90a"), "sm_90a"


def test_light_headers_make_the_code_that_tvm_makes():
    for source, arch in sources():
        light = nvrtc._compile(*nvrtc.lighter(source), arch)
        tvms = nvrtc._compile(source, [], arch)
        assert cubin.disassemble(light) == cubin.disassemble(tvms)
        assert cubin.resources(light) == cubin.resources(tvms)


def test_what_light_headers_lack_is_taken_from_nvidias():
    source = """
    #include <cuda/std/type_traits>
    extern "C" __global__ void f(int* a) { *a = cuda::std::is_integral<const long>::value; }
    """
    with pytest.raises(ValueError, match="incomplete"):
        nvrtc._compile(*nvrtc.lighter(source), "sm_80")
    assert cubin.compile_cubin(source, "sm_80")[:4] == b"\x7fELF"


@pytest.mark.parametrize("value", ["-INFINITY", "(float)(sizeof(int64_t) + sizeof(uint16_t))"])
def test_light_headers_have_tvms_names(value):
    source = f'extern "C" __global__ void f(float* a) {{ *a = {value}; }}'
    assert nvrtc._compile(*nvrtc.lighter(source), "sm_80")[:4] == b"\x7fELF"
