"""Building and running: launches, sources, and what bad input is told."""

import subprocess
import sys

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te

import d2ltvm
from d2ltvm import schedules
from d2ltvm.compiler import opencl as opencl_programs
from d2ltvm.system import devices


def small():
    return schedules.one_thread_each(1000, nt=64)


def test_runs_on_numpy_arrays_and_says_how_it_launched():
    kernel = d2ltvm.build(small())
    a, b, c = d2ltvm.get_abc(1000)
    kernel(a, b, c)
    assert np.array_equal(c, a + b)
    (launch,) = kernel.launches
    assert (launch.grid, launch.block) == ((16, 1, 1), (64, 1, 1))
    assert [(p.name, p.output) for p in kernel.params] == [("A", False), ("B", False), ("C", True)]


def test_runs_on_the_cpu():
    kernel = d2ltvm.build(schedules.cpu_vector_add(1001), "llvm")
    a, b, c = d2ltvm.get_abc(1001)
    kernel(a, b, c)
    assert np.array_equal(c, a + b) and kernel.launches == ()


def test_bound_launch_repeats():
    kernel = d2ltvm.build(schedules.cpu_vector_add(64), "llvm")
    a, b, c = (tvm.runtime.tensor(x) for x in d2ltvm.get_abc(64))
    launch = kernel.bind(a, b, c)
    launch()
    launch()
    assert np.array_equal(c.numpy(), a.numpy() + b.numpy())


def test_two_launches_with_a_temporary_between_them():
    A = te.placeholder((100,), name="A")
    D = te.compute((100,), lambda i: A[i] + 1.0, name="D")
    C = te.compute((100,), lambda i: D[99 - i] * 2.0, name="C")
    sch = d2ltvm.schedule([A, C])
    for name in "DC":
        block, tx = sch.split(sch.get_loops(sch.get_sblock(name))[0], [None, 32])
        sch.bind(block, "blockIdx.x")
        sch.bind(tx, "threadIdx.x")
    kernel = d2ltvm.build(sch)
    assert len(kernel.launches) == 2
    x = np.random.default_rng(0).standard_normal(100, "float32")
    d2ltvm.check(kernel, [x], lambda a: (a[::-1] + 1) * 2, terms=2)


def test_shared_memory_and_barriers_are_executed():
    """Each block turns its part round through shared memory: wrong without the barrier."""
    A = te.placeholder((256,), name="A")
    C = te.compute((256,), lambda i: A[i // 64 * 64 + 63 - i % 64], name="C")
    sch = d2ltvm.schedule([A, C])
    out = sch.get_sblock("C")
    shared = sch.cache_read(out, 0, "shared")
    block, tx = sch.split(sch.get_loops(out)[0], [None, 64])
    sch.bind(block, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    sch.compute_at(shared, block)
    sch.bind(sch.get_loops(shared)[-1], "threadIdx.x")
    kernel = d2ltvm.build(sch)
    assert "__shared__" in kernel.cuda_source("sm_80") and "__syncthreads" in kernel.cuda_source(
        "sm_80"
    )
    x = np.random.default_rng(0).standard_normal(256, "float32")
    d2ltvm.check(kernel, [x], lambda a: a.reshape(4, 64)[:, ::-1].ravel())


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_source_for_an_architecture_without_a_gpu(arch):
    source = d2ltvm.build(small()).cuda_source(arch)
    code = d2ltvm.kernel_code(source)
    assert code.startswith('extern "C" __global__') and "blockIdx.x" in code
    assert code.count("__global__") == 1
    with pytest.raises(d2ltvm.MissingError, match=f"built for {arch} and not for a device"):
        d2ltvm.build(small(), arch)(*d2ltvm.get_abc(1000))


def test_the_number_of_threads_is_limited():
    with pytest.raises(ValueError, match=r"has 2048 threads per block.* expected at most 1024"):
        d2ltvm.build(schedules.one_thread_each(4096, nt=2048))


def test_the_size_of_the_grid_is_limited():
    sch = d2ltvm.schedule(d2ltvm.broadcast_add((70000, 1), (70000, 1)))
    by, tx = sch.get_loops(sch.get_sblock("C"))
    sch.bind(by, "blockIdx.y")
    sch.bind(tx, "threadIdx.x")
    with pytest.raises(ValueError, match=r"has grid \(1, 70000, 1\); expected at most"):
        d2ltvm.build(sch)


@pytest.mark.parametrize("target", [None, "sm_80"])
def test_an_unbound_loop_is_explained(target):
    with pytest.raises(ValueError, match="bound to no thread: bind one of its loops"):
        d2ltvm.build(d2ltvm.schedule(d2ltvm.vector_add(8)), target)


@pytest.mark.parametrize("target", ["cudaa", "sm_x", 7, "sm_1", "metal"])
def test_unknown_targets(target):
    with pytest.raises(ValueError, match=r"target is .*; expected 'cuda', 'opencl', 'llvm'"):
        d2ltvm.build(small(), target)


def test_arrays_that_do_not_fit():
    kernel = d2ltvm.build(small())
    a, b, c = d2ltvm.get_abc(1000)
    with pytest.raises(ValueError, match="arrays are 2; expected 3: A, B, C"):
        kernel(a, b)
    with pytest.raises(ValueError, match=r"B is float32 of shape \(999,\); expected float32 of"):
        kernel(a, b[1:], c)
    with pytest.raises(ValueError, match="A is float64 of shape"):
        kernel(a.astype("float64"), b, c)
    with pytest.raises(ValueError, match="C is not contiguous"):
        kernel(a, b, np.empty(2000, "float32")[::2])


def test_a_difference_marks_what_changed_and_not_what_moved():
    before = "a:\n  b\n  c\nd\ne\nf\ng"
    after = "x:\n  a:\n    b\n    z\nd\ne\nf\ng"
    every = ["+ x:", "    a:", "      b", "-   c", "+     z", "  d", "  e", "  f", "  g"]
    assert d2ltvm.difference(before, after).splitlines() == every
    near = [*every[:2], "  ...", *every[3:5], "  ..."]
    assert d2ltvm.difference(before, after, 1).splitlines() == [*every[:6], "  ..."]
    assert d2ltvm.difference(before, after, 0).splitlines() == [every[0], *near[2:]]
    assert d2ltvm.difference("a", "a", 2) == "  ..."
    with pytest.raises(TypeError, match="after is a int; expected a text"):
        d2ltvm.difference("a", 1)
    with pytest.raises(ValueError, match="context is -1; expected"):
        d2ltvm.difference("a", "b", context=-1)


def test_loop_nest_keeps_the_loops_and_drops_the_noise():
    text = d2ltvm.loop_nest(small())
    assert text.startswith("def main(A: T.Buffer((1000,)")
    assert 'T.thread_binding(64, thread="threadIdx.x")' in text
    assert "T.where(" in text  # the guard is part of what runs
    assert not any(word in text for word in ("T.reads", "import", "@", "func_attr"))


@pytest.mark.parametrize("sch", [None, "text", d2ltvm.vector_add(8)], ids=["None", "str", "tuple"])
def test_loop_nest_of_what_is_no_schedule(sch):
    with pytest.raises(TypeError, match=f"sch is a {type(sch).__name__}; expected a Schedule, a"):
        d2ltvm.loop_nest(sch)


def test_a_short_kernel_code_keeps_what_counts():
    head = 'extern "C" __global__ void f(float* a) {\n'
    lines = [
        "  int cse_v1 = (((int)blockIdx.x) * 4);",
        "  int cse_v2 = (((int)blockIdx.x) * 4);",
        "  if ((((((int)blockIdx.x) * 4) + i) & 3) == 0) {",
        "    a[(cse_v2 + ((i - (j - 1)) * 2))] = max(((i + 1)), (float)2.0f);",
        "    *(float4*)(a + ((((int)threadIdx.x) * (4 << 1)) + 1)) = b;",
    ]
    short = [
        "  int cse_v2 = (blockIdx.x * 4);",
        "  if ((blockIdx.x * 4 + i & 3) == 0) {",
        "    a[cse_v2 + (i - (j - 1)) * 2] = max((i + 1), (float)2.0f);",
        "    *(float4*)(a + (threadIdx.x * (4 << 1) + 1)) = b;",
    ]
    got = d2ltvm.kernel_code(head + "\n".join(lines), short=True).splitlines()[1:]
    assert [line.replace(" ", "") for line in got] == [line.replace(" ", "") for line in short]


def test_kernel_code_of_something_else():
    with pytest.raises(TypeError, match="source is a NoneType; expected the source as text"):
        d2ltvm.kernel_code(None)
    with pytest.raises(ValueError, match="source has no kernel; expected"):
        d2ltvm.kernel_code("int main() {}")


def test_opencl_source_needs_no_opencl_device(monkeypatch):
    monkeypatch.setattr(devices, "opencl_device", lambda: None)
    kernel = d2ltvm.build(schedules.one_thread_each(1000), "sm_80")
    assert "__kernel void main_kernel" in kernel.opencl_source()


def cpu(n=1001):
    return d2ltvm.build(schedules.cpu_vector_add(n), "llvm")


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_tensors_beside_numpy_arrays_are_refused(target, at):
    """TVM would pass the arrays on as they are, at addresses that its code cannot load from."""
    kernel = cpu(1000) if target == "llvm" else d2ltvm.build(small(), target)
    arrays = list(d2ltvm.get_abc(1000))
    arrays[at] = tvm.runtime.tensor(arrays[at])
    for function in (kernel, kernel.bind):
        with pytest.raises(TypeError, match=r"is a .*, the first array a .*; expected all NumPy"):
            function(*arrays)


@pytest.mark.parametrize("value", [[1.0] * 1000, 1.0, None, "a"])
def test_what_is_no_array(value):
    a, b, c = d2ltvm.get_abc(1000)
    for kernel in (cpu(1000), d2ltvm.build(small())):
        with pytest.raises(TypeError, match=f"A is a {type(value).__name__}, .* expected all"):
            kernel(value, b, c)
        with pytest.raises(
            TypeError, match=f"C is a {type(value).__name__}, the first array a nda"
        ):
            kernel(a, b, value)


def at_address(array, rest):
    """A copy of a vector that begins `rest` bytes behind a multiple of 64."""
    room = np.zeros(array.nbytes + 128, "uint8")
    start = (rest - room.ctypes.data) % 64
    copy = room[start : start + array.nbytes].view(array.dtype)
    copy[:] = array
    return copy


@pytest.mark.parametrize("rest", [0, 4, 16, 32])
def test_tensors_have_to_begin_where_vectors_can_be_loaded(rest):
    arrays = [at_address(x, rest) for x in d2ltvm.get_abc(1001)]
    tensors = [tvm_ffi.from_dlpack(x) for x in arrays]
    if rest:
        for function in (cpu(), cpu().bind):
            with pytest.raises(
                ValueError, match="A begins at an address that is no multiple of 64"
            ):
                function(*tensors)
        cpu()(*arrays)  # those of NumPy are copied
    else:
        cpu()(*tensors)
    assert np.array_equal(arrays[2], arrays[0] + arrays[1])


def test_an_element_type_that_the_device_lacks(opencl):
    if "cl_khr_fp16" in opencl.extensions:
        pytest.skip("this device has float16")
    A, B, C = d2ltvm.vector_add(64, "float16")
    sch = d2ltvm.schedule([A, B, C])
    sch.bind(sch.get_loops(sch.get_sblock("C"))[0], "threadIdx.x")
    with pytest.raises(d2ltvm.MissingError, match=r"has no float16; what still works"):
        d2ltvm.build(sch, "opencl")
    assert "half" in d2ltvm.build(sch, "sm_80").code


def test_another_clone_need_not_compile_again(opencl):
    """PoCL keeps a kernel by source and options: no folder of this environment is among them."""
    import pyopencl as cl

    known = cl._DEFAULT_INCLUDE_OPTIONS
    (kernels,) = d2ltvm.build(small(), "opencl")._opencl.built.values()
    program = kernels["main_kernel"].get_info(cl.kernel_info.PROGRAM)
    assert "-I" not in program.get_build_info(opencl, cl.program_build_info.OPTIONS)
    assert cl._DEFAULT_INCLUDE_OPTIONS is known and known[0] == "-I"


def test_what_the_opencl_compiler_refuses_is_said_in_one_line(opencl, monkeypatch):
    from d2ltvm.compiler import launches

    source = "__kernel void main_kernel(__global float* A) { A[0] = nothing; }"
    monkeypatch.setattr(launches.Lowered, "source", property(lambda self: source))
    with pytest.raises(RuntimeError, match=r"refuses the kernel: .*nothing") as caught:
        d2ltvm.build(small(), "opencl")
    assert "\n" not in str(caught.value)


FORK = """
import os, sys, signal
import d2ltvm
from d2ltvm import schedules
build = lambda: d2ltvm.build(schedules.one_thread_each(100), "opencl")
a, b, c = d2ltvm.get_abc(100)
kernel = build()
if sys.argv[1] == "ran":
    kernel(a, b, c)
child = os.fork()
if not child:
    signal.alarm(20)
    for function in (build, lambda: kernel(a, b, c), lambda: kernel.bind(a, b, c)):
        try:
            function()
        except d2ltvm.MissingError as error:
            print(error)
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("before", ["ran", "built"])
def test_a_fork_after_a_kernel_is_told_that_opencl_stayed_behind(opencl, before):
    run = subprocess.run([sys.executable, "-uc", FORK, before], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 3 and all("this one was forked from" in line for line in lines)


def test_an_outline_has_the_loops_by_kind():
    sch = schedules.conv_tiled(16, 6, 8, 3, 1, 1, (1, 2, 4), (2, 2, 1), (1, 8, 1), tile_rc=(2, 1))
    assert (
        d2ltvm.outline(sch)
        == """\
for c_0 < 2 (blockIdx.z), i_0 < 2 (blockIdx.y)
  for i_1 < 2 (vthread.y)
    for c_2 < 2 (threadIdx.z), i_2 < 2 (threadIdx.y), j_2 < 8 (threadIdx.x)
      for c_3_init < 4
        Sums_local = 0
      for ric_0 < 3, rkh_0 < 3, rkw_0 < 3
        for fused_0 < 2 (threadIdx.z), fused_1 < 2 (threadIdx.y), fused_2 < 8 (threadIdx.x)
          for fused_3 < 2
            PaddedX_shared = X or 0
        for fused_0 < 2 (threadIdx.z), fused_1 < 2 (threadIdx.y), fused_2 < 8 (threadIdx.x)
          PaddedK_shared = K or 0
        for ric_1 < 2
          PaddedX_shared_local = PaddedX_shared
          for ax0 < 4
            PaddedK_shared_local = PaddedK_shared
          for c_3 < 4
            Sums_local = Sums_local + PaddedX_shared_local * PaddedK_shared_local
      for ax0 < 4
        Y = Sums_local"""
    )


def test_an_outline_of_loops_on_the_cpu():
    lines = d2ltvm.outline(schedules.cpu_vector_add(4096)).splitlines()
    assert [line.strip() for line in lines] == [
        "for i_0 < 2 (parallel)", "for i_1_0 < 128", "for i_1_1 < 16 (vectorized)", "C = A + B",
    ]  # fmt: skip
    plain = d2ltvm.schedule(d2ltvm.matmul(4, 5, 1))
    assert d2ltvm.outline(plain) == "for i < 4, j < 5\n  first C = 0\n  C = C + A * B"
    inlined = d2ltvm.schedule(d2ltvm.conv(2, 2, 4, 4, 3, 3, 1, 1)[:3])
    inlined.compute_inline("PaddedX")
    assert d2ltvm.outline(inlined).splitlines()[-1] == "  Y = Y + (X or 0) * K"
    with pytest.raises(TypeError):
        d2ltvm.outline(3)


def test_a_kernel_for_the_cpu_shows_its_machine_code():
    kernel = d2ltvm.build(d2ltvm.schedules.cpu_vector_add(1024), "llvm")
    assert "main" in kernel.assembly and "ret" in kernel.assembly
    with pytest.raises(ValueError, match="the kernel is for cuda; expected one for 'llvm'"):
        _ = d2ltvm.build(d2ltvm.schedules.one_thread_each(1024), "sm_90").assembly


@pytest.mark.slow
def test_little_work_is_compiled_without_optimization_and_what_is_timed_with_it(
    opencl, monkeypatch
):
    sch = schedules.transpose(33)
    kernel = d2ltvm.build(sch, "opencl")
    program = kernel._opencl
    assert program.quick == ("Portable Computing Language" in opencl.platform.name)
    assert list(program.built) == [program.quick]
    a, c, timed = np.random.rand(33, 33).astype("float32"), *np.zeros((2, 33, 33), "float32")
    kernel(a, c)
    buffers = program.upload([a, timed])
    program.launch(buffers, timed=True)
    program.download(buffers, [a, timed])
    assert False in program.built and np.array_equal(c, a.T) and np.array_equal(timed, a.T)
    assert opencl_programs._stores(program.lowered) < opencl_programs.LITTLE
    monkeypatch.setattr(opencl_programs, "LITTLE", 0)
    assert not d2ltvm.build(sch, "opencl")._opencl.quick
