"""Run a kernel on NumPy arrays: `emulate`."""

import itertools

from d2ltvm.analysis.emulator.block import Block
from d2ltvm.compiler.kernel import build
from d2ltvm.compiler.lowering import architecture, as_module, is_tile_kernel, lower
from d2ltvm.system import devices


def emulate(sch, *arrays, arch="sm_80"):
    """Run a schedule on NumPy arrays in place of a GPU.

    >>> d2ltvm.emulate(wmma_tiled(32, 32, 32, 4, 3, 1, 1, (1, 2), (1, 2)), x, k, y)

    Of a schedule, asynchronous copies become ordinary ones. Of a kernel in TIRx they happen, like
    products, at the worst moment that its barriers allow: see `warpgroups` of this package.

    Args:
        sch: a `tvm.s_tir.Schedule` of one kernel, or its IRModule; or a kernel of `d2ltvm.hopper`.
        arrays: one for each parameter, in their order; results are written into them.
        arch: the architecture for which it is lowered; 'sm_90a' for a kernel in TIRx.

    Raises:
        ValueError: the number of arrays, a shape or a dtype is wrong, or there is more than one
            launch.
        NotImplementedError: the kernel holds something that is not emulated.
        warpgroups.SynchronizationError: a kernel in TIRx waits for ever, or ends while copies
            or products last.
    """
    mod = as_module(sch)
    arch = architecture(mod, "sm_90") if is_tile_kernel(mod) else arch
    lowered = lower(mod, devices.as_target(arch), asynchronous=False)
    if len(lowered.launches) != 1:
        raise ValueError(f"the schedule makes {len(lowered.launches)} launches; one is allowed")
    wanted = [(p.shape, p.dtype) for p in lowered.params]
    given = [(a.shape, str(a.dtype)) for a in arrays]
    if given != wanted:
        raise ValueError(f"arrays are {given}; allowed are {wanted}")
    for p, array in zip(lowered.params, arrays, strict=True):
        if not array.flags.c_contiguous:
            raise ValueError(f"{p.name} is not contiguous; pass np.ascontiguousarray(…)")
    (launch,) = lowered.launches
    named = {p.name: a for p, a in zip(lowered.params, arrays, strict=True)}
    if is_tile_kernel(mod):
        from d2ltvm.analysis.emulator import warpgroups

        return warpgroups.run(lowered, named)
    function = lowered.device_functions[launch.name]
    for block in itertools.product(*map(range, launch.grid)):
        memory = {
            hash(param): named[name].reshape(-1)
            for param, name in zip(function.params, launch.args, strict=True)
        }
        Block(memory, launch.block, block).run(function.body)


def run_anywhere(kernel, *arrays):
    """Run a kernel of `d2ltvm.hopper` on an H100 or H200; emulate it where there is none.

    >>> d2ltvm.run_anywhere(hopper.matmul(256, 256, 64), a, b, c)

    Args and errors: as for `emulate`.
    """
    if devices.has_hopper():
        build(kernel, "cuda")(*arrays)
    else:
        emulate(kernel, *arrays)
