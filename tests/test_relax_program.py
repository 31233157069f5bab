"""A program of Hopper's kernels, called by TVM's virtual machine: its kernels are emulated."""

from dataclasses import replace

import numpy as np
import pytest
import tvm
from test_network_on_hopper import BLOCK, some_weights

import d2ltvm
from d2ltvm.hopper.any_plan import with_stages
from d2ltvm.network import on_hopper, relax_program
from d2ltvm.network.hopper_kernels import AnyConv
from d2ltvm.network.memory import memory_plan

DEVICE = tvm.cpu()


def emulated(kernel):
    """A function of TVM's arrays that has a kernel emulated, and writes its last arrays."""
    made, written = kernel.make(), len(kernel.takes) - 1

    def function(*arrays):
        assert [(tuple(a.shape), str(a.dtype)) for a in arrays] == list(kernel.takes)
        inside = [array.numpy().copy() for array in arrays]
        d2ltvm.emulate(made, *inside)
        arrays[written].copyfrom(inside[written])

    return function


def machine(program):
    functions = {kernel: emulated(kernel) for kernel in program.kernels}
    return relax_program.RelaxProgram(program, functions, DEVICE)


def split(program, node):
    """The program with a kernel of a node whose sums are cut, and meet in a tensor."""
    (step,) = (step for step in program.steps if step.node == node)
    plan = with_stages(replace(step.kernel.plan, splits=2, full=0, distributed=False))
    kernel = AnyConv(replace(step.kernel.layer, plan=plan))
    assert kernel.plan.meet
    return program.with_kernels({step.kernel: kernel})


@pytest.mark.slow
@pytest.mark.parametrize("cut", [False, True])
def test_the_machine_computes_what_the_launches_do(cut):
    program = on_hopper.program(BLOCK, some_weights(BLOCK), sms=4)
    program = split(program, "middle") if cut else program
    assert (on_hopper.ROOM in program.sizes) == cut
    images = np.random.default_rng(1).standard_normal(BLOCK.input.size).astype("float16")
    images = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
    want = on_hopper.run(program, images, d2ltvm.emulate)
    compiled = machine(program)
    for _ in range(2):  # memory is used again
        got = compiled(tvm.runtime.tensor(images, DEVICE)).numpy()
        np.testing.assert_array_equal(got.reshape(want.shape), want)


def test_two_machines_have_kernels_of_their_own():
    program = on_hopper.program(BLOCK, some_weights(BLOCK), sms=4)
    called = []
    for number in range(2):
        functions = {k: lambda *_, n=number: called.append(n) for k in program.kernels}
        relax_program.RelaxProgram(program, functions, DEVICE)(
            tvm.runtime.tensor(np.zeros(program.steps[0].kernel.takes[0][0], "float16"), DEVICE)
        )
    assert called == [0] * len(program.steps) + [1] * len(program.steps)


@pytest.mark.parametrize("cut", [False, True])
def test_tvm_plans_the_memory_of_all_results(cut):
    program = on_hopper.program(BLOCK, some_weights(BLOCK), sms=4)
    program = split(program, "middle") if cut else program
    plan = memory_plan(machine(program).module)
    # All but the images, and the last result, which the machine allocates by itself.
    assert plan.before == sum(program.sizes.values()) - sum(
        program.sizes[name] for name in (program.given, program.result)
    )
    assert plan.after < plan.before
    names = [name for name in program.sizes if name != program.given]  # as they are allocated
    last = [
        max(names.index(step.writes) for step in program.steps if name in step.reads)
        for name in names[:-1]
    ]
    assert [result.last for result in plan.results] == last
