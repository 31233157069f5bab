"""Runs a kernel of TMA, barriers and wgmma on NumPy arrays, without a GPU.

Each warpgroup goes through the kernel by itself, its 128 threads in step; one runs at a time, until
it has to wait. Whatever is asynchronous happens at the worst moment that the kernel allows. A tile
that TMA or cp.async is asked for holds NaN at once, and arrives when nobody can go on without it,
the newest first: nothing in PTX has copies arrive in order. Products and stores read shared memory
when somebody waits for them, not before. So a kernel that forgets to wait computes something else
here, every time, and barriers that do not match are named. So is a dependent launch that reaches
for tensors before it has waited for the kernel before.

What is in the right order here only by luck is noticed, too. `order` keeps account of who knows
what: a missing fence, or a missing barrier, even between the threads of one warpgroup, is an
`OrderError` at the end. So is a proxy fence that is missing between the reads of threads and the
TMA that overwrites what they read. `registers` does the same for sums and matrices of wgmma in
registers: a first matrix that threads write without `wgmma.fence` before the product is named.

Not noticed: how blocks use tensors together, but for parts of a tile; where threads meet that have
gone different ways within a warp; and scopes: an mbarrier is as good for a cluster as for a block.
"""

import functools
import itertools
from typing import Any

import tvm_ffi

from d2ltvm.analysis.emulator import nodes
from d2ltvm.analysis.emulator.arithmetic import Array
from d2ltvm.analysis.emulator.copies import Copies
from d2ltvm.analysis.emulator.order import WARPGROUP, Order, OrderError, SynchronizationError
from d2ltvm.analysis.emulator.products import PRODUCTS, Products, matrix_of
from d2ltvm.analysis.emulator.results import Results
from d2ltvm.analysis.emulator.shared import Counter, Parts, Shared, Turns
from d2ltvm.analysis.emulator.threads import Buffer, EmulatedKernel
from d2ltvm.compiler.ir import find
from d2ltvm.compiler.launches import Lowered
from d2ltvm.compute.ops import Shape


class Warpgroup(Copies, Products, Results):
    """A warpgroup of a block: 128 threads in step, and all of their instructions."""


def run(lowered: Lowered, arrays: dict[str, Array]) -> None:
    """Run a `launches.Lowered` of a TIRx kernel; `arrays` by the names of its parameters.

    Raises:
        SynchronizationError: nobody can go on, or not everything that was begun is waited for.
        OrderError: something came in the right order only by luck.
        NotImplementedError: the kernel holds something that is not emulated.
    """
    (launch,) = lowered.launches
    function = nodes.mirror(lowered.device_functions[launch.name])
    threads = launch.block[0]
    if threads % WARPGROUP or launch.block[1:] != (1, 1):
        raise NotImplementedError(f"a block of {launch.block}; whole warpgroups are emulated")
    calls = [call for call in find(function.original.body, "Call") if hasattr(call.op, "name")]
    program = EmulatedKernel(function, {}, _registers(calls), threads // WARPGROUP)
    counter, parts = Counter(), Parts()
    blocks = list(itertools.product(*map(range, launch.grid)))
    together = len(blocks) if _waits_for_blocks(calls) else launch.cluster
    memory = {
        hash(param): arrays[name].reshape(-1)
        for param, name in zip(function.params, launch.args, strict=True)
        if name in arrays
    }
    for first in range(0, len(blocks), together):
        some = blocks[first : first + together]
        shares = [
            Shared(launch.shared, lowered.tensor_maps, arrays, counter, launch.dependent, parts, o)
            for o in _orders(len(some), launch.cluster, program.many)
        ]
        for k, shared in enumerate(shares):
            shared.cluster = shares[k // launch.cluster * launch.cluster :][: launch.cluster]
        _run_together(program, memory, some, shares)
    if counter.count:
        raise SynchronizationError(f"the kernel leaves its counter of tiles at {counter.count}")
    if any(parts.done.values()):
        raise SynchronizationError(f"the kernel leaves its counters of parts at {parts.done}")


def _orders(blocks: int, cluster: int, many: int) -> list[Order]:
    """One for each block; those of a cluster have one together."""
    orders = [Order(many * cluster, cluster) for _ in range(0, blocks, cluster)]
    return [orders[k // cluster] for k in range(blocks)]


def _run_together(
    program: "EmulatedKernel", memory: dict[int, Array], blocks: list[Shape], shares: list[Shared]
) -> None:
    """Run blocks that may wait for each other."""
    many = program.many
    turns = Turns(many * len(blocks), functools.partial(_deliver, shares))
    groups = [
        Warpgroup(k, dict(memory), block, shared, turns, program, b * many)
        for b, (block, shared) in enumerate(zip(blocks, shares, strict=True))
        for k in range(many)
    ]
    faults = [shared.order.faults for shared in shares]
    try:
        turns.run([functools.partial(_run, group, program) for group in groups])
        left = sum(len(s.copies) for s in shares) + sum(group.left() for group in groups)
        if left:
            raise SynchronizationError(f"the kernel ends while {left} copies or products last")
        for shared in shares:
            shared.end()
    except SynchronizationError as error:
        if any(faults):  # which may be why
            raise SynchronizationError(f"{error}; before that, {_first(faults)}") from error
        raise
    except Exception as error:
        if any(faults):
            raise OrderError(_first(faults)) from error
        raise
    if any(faults):
        raise OrderError(_first(faults))


def _run(group: "Warpgroup", program: Any) -> None:
    group.run(program.function.body)
    group.shared.gone.add(group.number)


def _first(faults: list[list[str]]) -> str:
    return next(fault for some in faults for fault in some)


def _deliver(shares: list[Shared]) -> bool:
    """Let the newest copy of some block arrive; False where none is under way."""
    return any(shared.deliver() for shared in shares)


def _registers(calls: list[Any]) -> frozenset[Buffer]:
    """The buffers that wgmma sums up in, or reads its first matrix from."""
    loads = []
    for call in (call for call in calls if call.op.name.endswith(PRODUCTS)):
        loads.append(call.args[0])
        if call.op.name.endswith("_rs"):
            loads += matrix_of(call.args)
    return frozenset(tvm_ffi.Object.__hash__(load.source) for load in loads)


def _waits_for_blocks(calls: list[Any]) -> bool:
    """Whether blocks of a kernel wait for each other, so that they have to run together."""
    named = (call.args[0].value for call in calls if call.op.name.endswith("func_call"))
    return any(name == "await_parts" for name in named)
