"""Run a kernel on NumPy arrays: `emulate`."""

import itertools
from typing import Any

import numpy as np

from d2ltvm.analysis.emulator import nodes
from d2ltvm.analysis.emulator.arithmetic import Array
from d2ltvm.analysis.emulator.tensorcores import Warps
from d2ltvm.compiler.kernel import build
from d2ltvm.compiler.launches import Launch, Lowered
from d2ltvm.compiler.lowering import architecture, as_module, is_tile_kernel, lower
from d2ltvm.system import devices


def emulate(sch: Any, *arrays: Array, arch: str = "sm_80") -> None:
    """Run a schedule on NumPy arrays in place of a GPU.

    >>> from d2ltvm import schedules
    >>> a, b, c = d2ltvm.get_abc(100)
    >>> d2ltvm.emulate(schedules.one_thread_each(100), a, b, c)
    >>> np.array_equal(c, a + b)
    True

    Of a schedule, asynchronous copies become ordinary ones. Of a kernel in TIRx they happen, like
    products, at the worst moment that its barriers allow: see `warpgroups` of this package. What
    such a kernel lacks by PTX's rules is named: see `order`.

    Args:
        sch: a `tvm.s_tir.Schedule`, or its IRModule; or a kernel of `d2ltvm.hopper`.
        arrays: one for each parameter, in their order; results are written into them.
        arch: the architecture for which it is lowered; 'sm_90a' for a kernel in TIRx.

    Raises:
        ValueError: the number of arrays, a shape or a dtype is wrong.
        IndexError: the kernel reads or writes outside of an array.
        NotImplementedError: the kernel holds something that is not emulated.
        order.SynchronizationError: a kernel in TIRx waits for ever, or ends while copies
            or products last.
        order.OrderError: a kernel in TIRx lacks a fence, a barrier or a wait, even if all came in
            the right order; its results are written before that is raised.
    """
    mod = as_module(sch)
    arch = architecture(mod, "sm_90") if is_tile_kernel(mod) else arch
    lowered = lower(mod, devices.to_read(arch), asynchronous=False)
    _check(lowered, arrays)
    named = {p.name: a for p, a in zip(lowered.params, arrays, strict=True)}
    with np.errstate(all="ignore"):  # as a GPU does
        if is_tile_kernel(mod):
            from d2ltvm.analysis.emulator import warpgroups

            return warpgroups.run(lowered, named)
        for p in lowered.temporaries:
            named[p.name] = np.full(p.nbytes, 0xFF, np.uint8).view(p.dtype)
        for launch in lowered.launches:
            _launch(lowered, launch, named)


def _check(lowered: Lowered, arrays: tuple[Array, ...]) -> None:
    wanted = [(p.shape, p.dtype) for p in lowered.params]
    given = [(getattr(a, "shape", None), str(getattr(a, "dtype", type(a)))) for a in arrays]
    if given != wanted:
        raise ValueError(f"arrays are {given}; expected {wanted}")
    for p, array in zip(lowered.params, arrays, strict=True):
        if not array.flags.c_contiguous:
            raise ValueError(f"{p.name} is not contiguous; pass np.ascontiguousarray(…)")


def _launch(lowered: Lowered, launch: Launch, named: dict[str, Array]) -> None:
    """Run all blocks of a launch, on arrays by the names of parameters and temporaries."""
    function = nodes.mirror(lowered.device_functions[launch.name])
    for block in itertools.product(*map(range, launch.grid)):
        memory = {
            hash(param): named[name].reshape(-1)
            for param, name in zip(function.params, launch.args, strict=True)
        }
        Warps(memory, launch.block, block).run(function.body)


def run_anywhere(kernel: Any, *arrays: Array) -> None:
    """Run a kernel of `d2ltvm.hopper` on an H100 or H200; emulate it where there is none.

    >>> d2ltvm.run_anywhere(hopper.matmul_nt(256, 256, 64), a, b, c)  # doctest: +SKIP

    Args and errors: as for `emulate`.
    """
    if devices.has_hopper():
        build(kernel, "cuda")(*arrays)
    else:
        emulate(kernel, *arrays)
