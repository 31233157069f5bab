"""A program of Hopper's kernels as a module of Relax: TVM plans its memory and its machine runs it.

`on_hopper.program` says which kernel computes what. Here its steps become calls of functions that
are registered with TVM (`call_dps_packed`), in a module of Relax. StaticPlanBlockMemory decides
which results share memory, and the virtual machine allocates and calls. On a GPU a call can be
captured into a CUDA graph: see `launching.captured`.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from d2ltvm.network.hopper_kernels import HopperKernel
from d2ltvm.network.on_hopper import ROOM, Program, Step
from d2ltvm.system import devices

PREFIX = "d2ltvm.hopper"  # of the names under which kernels are registered
_NUMBERS = itertools.count()  # so that two machines have kernels of their own


def to_relax(program: Program, names: Mapping[HopperKernel, str]) -> Any:
    """The module of Relax that makes the launches of a program.

    >>> names = {kernel: f"kernel {k}" for k, kernel in enumerate(program.kernels)}
    ... # doctest: +SKIP
    >>> print(to_relax(program, names)["main"].script())  # doctest: +SKIP

    Args:
        program: what `on_hopper.program` makes.
        names: by kernel the name under which what computes it is registered with TVM.

    Returns:
        An IRModule. Its function `main` takes the images and then the program's constants, in
        their order.
    """
    builder = relax.BlockBuilder()
    forms = {program.given: program.steps[0].kernel.takes[0]}
    forms |= {name: (a.shape, str(a.dtype)) for name, a in program.constants.items()}
    values = {name: relax.Var(name, relax.TensorType(*form)) for name, form in forms.items()}
    with builder.function("main", list(values.values())):
        with builder.dataflow():
            for step in program.steps:
                values[step.writes] = _call(builder, step, names[step.kernel], values)
            result = builder.emit_output(values[program.result])
        builder.emit_func_output(result)
    return builder.finalize()


def _call(builder: Any, step: Step, function: str, values: Mapping[str, Any]) -> Any:
    """A step's call. Room for partial sums is a further result, which nobody reads."""
    takes, reads = step.kernel.takes, [name for name in step.reads if name != ROOM]
    inputs = [
        _seen_as(builder, values[name], shape)
        for name, (shape, _) in zip(reads, takes, strict=False)
    ]
    results = [relax.TensorType(*tensor) for tensor in takes[len(reads) :]]
    call = relax.call_dps_packed(function, relax.Tuple(inputs), results)
    made = builder.emit(call, step.writes if len(results) == 1 else "")
    return made if len(results) == 1 else builder.emit(relax.TupleGetItem(made, 1), step.writes)


def _seen_as(builder: Any, value: Any, shape: tuple[int, ...]) -> Any:
    """A value with another shape of as many elements: one kernel's images are another's rows."""
    if tuple(int(size) for size in value.ty.shape) == shape:
        return value
    return builder.emit(relax.op.reshape(value, shape))


class RelaxProgram:
    """TVM's virtual machine with a program and its weights.

    >>> machine = RelaxProgram(program, functions, tvm.cuda())  # doctest: +SKIP
    >>> machine(images).numpy().shape  # doctest: +SKIP
    (1, 1000)

    Attributes:
        module: the module of Relax.
    """

    def __init__(
        self,
        program: Program,
        functions: Mapping[HopperKernel, Callable[..., Any]],
        device: Any,
    ) -> None:
        """Compile the module, and copy the constants.

        Args:
            program: what `on_hopper.program` makes.
            functions: by kernel what computes it: `launching.load_library` loads one.
            device: of TVM, where the functions run.
        """
        names = {kernel: f"{PREFIX}.{next(_NUMBERS)}" for kernel in program.kernels}
        for kernel, name in names.items():
            tvm_ffi.register_global_func(name, functions[kernel])
        self.module = to_relax(program, names)
        # Nothing but calls is left to compile, and those are the processor's.
        target = devices.as_target("llvm")
        pipeline = relax.get_default_pipeline(target)
        executable = tvm.compile(self.module, target, relax_pipeline=pipeline)
        self._machine = relax.VirtualMachine(executable, device)
        self._constants = [tvm.runtime.tensor(a, device) for a in program.constants.values()]

    def __call__(self, images: Any) -> Any:
        """The result for images, both TVM's arrays on the device."""
        return self._machine["main"](images, *self._constants)
