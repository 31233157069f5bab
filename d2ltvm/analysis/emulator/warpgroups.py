"""Runs a kernel of TMA, barriers and wgmma on NumPy arrays, without a GPU.

Each warpgroup goes through the kernel by itself, its 128 threads in step; one runs at a time, until
it has to wait. Whatever is asynchronous happens at the worst moment that the kernel allows. A tile
that TMA or cp.async is asked for holds NaN at once, and arrives when nobody can go on without it.
Products and stores read shared memory when somebody waits for them, not before. So a kernel that
forgets to wait computes something else here, every time, and barriers that do not match are named.
So is a dependent launch that asks for copies before it has waited for the kernel before.

Not noticed: a missing fence, a missing barrier between the threads of one warpgroup, or a tensor
that is read or written without a copy before that wait.
"""

import itertools
import threading
from collections import deque, namedtuple

import numpy as np

from d2ltvm import layouts
from d2ltvm.analysis.emulator.block import Block

THREADS = 128  # of a warpgroup
IGNORED = ("setmaxnreg", "fence_proxy", "wgmma_fence")
SAME = ("cvta_generic_to_shared", "reinterpret")  # another type for the same pointer
BEHIND_REGISTERS = 15  # arguments of wgmma: descriptors, predicate, and how it is called
# How a descriptor says rows of 128 swizzled bytes. Source: PTX ISA, "Matrix Descriptor Format".
SWIZZLED = 1

Pointer = namedtuple("Pointer", "memory index")  # an array, and for each thread an element of it


class SynchronizationError(RuntimeError):
    """Warpgroups wait for what never comes, or a kernel ends before its copies have."""


def run(lowered, arrays):
    """Run a `lowering.Lowered` of a TIRx kernel; `arrays` by the names of its parameters.

    Raises:
        SynchronizationError: nobody can go on, or not everything that was begun is waited for.
        NotImplementedError: the kernel holds something that is not emulated.
    """
    (launch,) = lowered.launches
    function = lowered.device_functions[launch.name]
    threads = launch.block[0]
    if threads % THREADS or launch.block[1:] != (1, 1):
        raise NotImplementedError(f"a block of {launch.block}; whole warpgroups are emulated")
    arguments = {}  # of calls in the code, for all blocks
    counter = Counter()
    for block in itertools.product(*map(range, launch.grid)):
        shared = Shared(launch.shared, lowered.tensor_maps, arrays, counter, launch.dependent)
        memory = {
            hash(param): arrays[name].reshape(-1)
            for param, name in zip(function.params, launch.args, strict=True)
            if name in arrays
        }
        turns = Turns(threads // THREADS, shared.deliver)
        groups = [
            Warpgroup(k, dict(memory), block, shared, turns, arguments) for k in range(turns.many)
        ]
        turns.run([lambda group=group: group.run(function.body) for group in groups])
        left = len(shared.copies) + sum(group.left() for group in groups)
        if left:
            raise SynchronizationError(f"the kernel ends while {left} copies or products last")
    if counter.count:
        raise SynchronizationError(f"the kernel leaves its counter of tiles at {counter.count}")


class Turns:
    """Lets functions take turns: one runs, in a thread of its own, until it waits for something.

    Args:
        many: functions.
        deliver: called when all wait; False when it cannot help.
    """

    def __init__(self, many, deliver):
        self.many, self._deliver = many, deliver
        self._waits = [(lambda: True, "its start")] * many  # None for those that have ended
        self._go = [threading.Semaphore(0) for _ in range(many)]
        self._back, self._error = threading.Semaphore(0), None

    def wait(self, k, ready, what):
        """Of function `k`: let others run until `ready()`."""
        self._waits[k] = ready, what
        self._back.release()
        self._go[k].acquire()
        if self._error:
            raise self._error

    def run(self, functions):
        """Run all to their ends; the first error of one ends the others."""
        threads = [
            threading.Thread(target=self._run, args=each, daemon=True)
            for each in enumerate(functions)
        ]
        for thread in threads:
            thread.start()
        while any(self._waits) and not self._error:
            able = [k for k, wait in enumerate(self._waits) if wait and wait[0]()]
            for k in able:
                self._go[k].release()
                self._back.acquire()
            if not able and not self._deliver():
                stuck = [f"{k} for {wait[1]}" for k, wait in enumerate(self._waits) if wait]
                message = f"warpgroups wait for ever: {'; '.join(stuck)}"
                self._error = SynchronizationError(message)
        for k, thread in enumerate(threads):
            self._go[k].release()
            thread.join()
        if self._error:
            raise self._error

    def _run(self, k, function):
        self._go[k].acquire()
        try:
            if not self._error:
                function()
        except BaseException as error:  # handed on to who called `run`
            self._error = self._error or error
        self._waits[k] = None
        self._back.release()


class Barrier:
    """An mbarrier: a phase ends when all have arrived and all bytes have come."""

    def __init__(self, count):
        self.count = self.missing = count
        self.nbytes, self.phase = 0, 0

    def arrive(self, many):
        self.missing -= many
        if self.missing < 0:
            raise SynchronizationError(f"more than {self.count} arrive at a barrier in one phase")
        self._turn()

    def come(self, nbytes):
        self.nbytes -= nbytes
        self._turn()

    def _turn(self):
        if self.missing == self.nbytes == 0:
            self.missing, self.phase = self.count, self.phase ^ 1


class Counter:
    """What all blocks share: CUDA's atomicInc of a variable that begins at zero."""

    count = 0

    def next_tile(self, tiles):
        """The count before; it goes up by one, or to zero behind the last tile."""
        before = self.count
        self.count = 0 if before >= tiles - 1 else before + 1
        return before


class Shared:
    """What the warpgroups of a block share: memory, barriers, TMA, and a counter of all blocks."""

    def __init__(self, nbytes, maps, arrays, counter=None, dependent=False):
        self.counter, self.dependent = counter, dependent
        self.memory = np.full(-(-nbytes // 8) * 8, 0xFF, np.uint8)  # NaN, as any kind of float
        self.maps, self.arrays = maps, arrays
        self.barriers, self.copies, self.synced = {}, deque(), {}
        self.clock = 0

    def look_at_clock(self):
        """A clock that moves on by 1,000 cycles when it is looked at, and not else."""
        self.clock += 1000
        return np.uint64(self.clock)

    def fetch(self, address, name, corner, barrier):
        """Begin to copy a box: its place holds NaN until it comes."""
        view, places, tensor, shape = self._box(address, name)
        view[places] = np.nan
        values = layouts.box(tensor, corner, shape)
        copy = view, places, values.reshape(-1)
        self.copies.append(([copy], lambda: barrier.come(values.nbytes)))

    def deliver(self):
        """Let the oldest copy arrive; False where none is under way."""
        if not self.copies:
            return False
        parts, tell = self.copies.popleft()
        for view, places, values in parts:
            view[places] = values
        tell()
        return True

    def store(self, address, name, corner):
        """Copy a box to its tensor."""
        view, places, tensor, shape = self._box(address, name)
        layouts.put(tensor, corner, view[places].reshape(shape))

    def _box(self, address, name):
        """Shared memory as the box's dtype, the elements of the box in it, its tensor and shape."""
        box = self.maps[name]
        if not box.simple:
            raise NotImplementedError(f"TMA's map of {box.tensor}: {box}")
        view = self.memory.view(box.dtype)
        at = address + np.arange(int(np.prod(box.box))) * view.itemsize
        if box.swizzled:  # of an address, bits 7 to 9 change bits 4 to 6
            at ^= (at >> 7 & 7) << 4
        return view, at // view.itemsize, self.arrays[box.tensor].reshape(box.shape), box.box


class Warpgroup(Block):
    """A warpgroup of a block: 128 threads in step."""

    def __init__(self, number, memory, block, shared, turns, arguments):
        super().__init__(memory, (THREADS, 1, 1), block)
        self.special["threadIdx.x"] = self.thread + THREADS * number
        self.number, self.shared, self.turns, self.arguments = number, shared, turns, arguments
        self.begun, self.products = [], deque()  # since the last commit; groups of them
        self.begun_stores, self.stores = [], deque()
        self.begun_copies = []  # by cp.async, of which no barrier is told yet
        self.alone = not shared.dependent  # it knows that the kernel before has ended

    def left(self):
        """Copies and products that have been begun and not waited for."""
        groups = (
            *self.products, self.begun, *self.stores, self.begun_stores, self.begun_copies
        )  # fmt: skip
        return sum(map(len, groups))

    def _wait(self, ready, what):
        self.turns.wait(self.number, ready, what)

    def _same(self, node):
        """The value that an expression has in all active threads."""
        return self._one(self.value(node), node)

    def _address(self, node):
        """The byte of shared memory that a pointer means in all active threads."""
        pointer = self.value(node)
        return self._one(pointer.index, node) * pointer.memory.itemsize

    def _one(self, values, node):
        """The number that all active threads have as the value of `node`."""
        values = np.broadcast_to(values, self.active.shape)[self.active]
        if np.any(values != values[0]):
            raise NotImplementedError(f"{node} is not the same in all threads of a warpgroup")
        return int(values[0])

    def _barrier(self, node):
        address = self._address(node)
        if address not in self.shared.barriers:
            raise SynchronizationError(f"at byte {address} of shared memory there is no barrier")
        return self.shared.barriers[address], address

    # Statements

    def _run_AllocBuffer(self, node):
        if node.buffer.scope() == "shared.dyn":
            self.memory[hash(node.buffer)] = self.shared.memory
        else:
            super()._run_AllocBuffer(node)

    def _run_For(self, node):
        first, many = self._same(node.min), self._same(node.extent)
        for k in range(first, first + many):
            self.values[hash(node.loop_var)] = k
            self.run(node.body)

    def _run_While(self, node):
        kept = self.active
        while self.active.any():
            self.active = self.active & np.asarray(self.value(node.condition), bool)
            if self.active.any():
                self.run(node.body)
        self.active = kept

    def _run_Evaluate(self, node):
        name = _operation(node.value)
        if name and name not in IGNORED:  # without a name it is a value that nobody needs
            if hash(node) not in self.arguments:  # a round comes back to it, and wgmma has 140
                self.arguments[hash(node)] = list(node.value.args)
            arguments = self.arguments[hash(node)]
            getattr(self, f"_{name}", lambda *_: self._unknown(node))(*arguments)

    # Expressions

    def value(self, node):
        name = _operation(node)
        if name in SAME:
            return self.value(node.args[0])
        if name == "address_of":
            (what,) = node.args
            if not hasattr(what, "indices"):
                return what.name  # TMA's map of a tensor
            return Pointer(self.memory[hash(what.source)], self.value(what.indices[0]))
        if name == "thread_rank":
            return self.special["threadIdx.x"]
        if name == "clock64":
            return self.shared.look_at_clock()
        if name == "func_call":
            return self._call(*node.args)
        if name == "mov_sreg":
            return self._special_register(*node.args)
        if name == "tvm_warp_shuffle":
            _, value, lane, *_ = node.args
            values = np.broadcast_to(self.value(value), self.thread.shape).reshape(-1, 32)
            return np.repeat(values[:, self._same(lane)], 32)[:, None]
        return super().value(node)

    def _call(self, name, *arguments):
        """A function that is written in CUDA, behind the arguments: the one that kernels have."""
        if name.value != "next_tile" or self.active.sum() != 1:
            raise NotImplementedError(f"{name} in {self.active.sum()} threads")
        self._reach("the counter of tiles")
        return self.shared.counter.next_tile(self._same(arguments[0]))

    def _special_register(self, bits, register):
        """Each block has an SM of its own here, of the same number."""
        if register.value != "smid":
            raise NotImplementedError(f"the special register {register}")
        return np.int32(self.special["blockIdx.x"])

    # The kernel before

    def _griddepcontrol(self, action, *words):
        if action.value == "wait":
            self.alone = True

    def _reach(self, what):
        """Of all that other kernels may use, too: not while the one before may still run."""
        if not self.alone:
            raise SynchronizationError(f"{what} before griddepcontrol.wait")

    # Barriers

    def _cta_sync(self):
        synced = self.shared.synced
        synced[self.number] = mine = synced.get(self.number, 0) + 1
        everyone = range(self.turns.many)
        self._wait(lambda: all(synced.get(k, 0) >= mine for k in everyone), "the whole block")

    def _warpgroup_sync(self, number):
        if not self.active.all():
            raise NotImplementedError("warpgroup_sync where not all threads take part")

    def _mbarrier_init(self, pointer, count, *words):
        self.shared.barriers[self._address(pointer)] = Barrier(self._same(count))

    def _mbarrier_wait(self, pointer, parity):
        (barrier, address), parity = self._barrier(pointer), self._same(parity)
        what = f"barrier {address}, parity {parity}"
        self._wait(lambda: barrier.phase != parity, what)

    def _mbarrier_arrive(self, pointer, count, *words):
        self._barrier(pointer)[0].arrive(self._same(count) * int(self.active.sum()))

    def _mbarrier_arrive_expect_tx(self, pointer, nbytes, *words):
        barrier, _ = self._barrier(pointer)
        barrier.nbytes += self._same(nbytes) * int(self.active.sum())
        barrier.arrive(int(self.active.sum()))

    # TMA

    def _corner(self, coordinates):
        """Where a box begins, the outermost dimension first."""
        if self.active.sum() != 1:
            raise NotImplementedError(f"{self.active.sum()} threads ask TMA; one is emulated")
        self._reach("TMA is asked")
        return tuple(self._same(c) for c in coordinates)[::-1]

    def _cp_async_bulk_tensor_g2s_cluster(self, pointer, name, *args):
        name = self.value(name)
        rank = len(self.shared.maps[name].box)
        barrier, _ = self._barrier(args[rank])
        self.shared.fetch(self._address(pointer), name, self._corner(args[:rank]), barrier)

    # cp.async

    def _cp_async_cg_src_size(self, target, source, nbytes, present, *words):
        """Each active thread begins to copy 16 bytes, or as many as are present and then zeros."""
        (memory, first), (tensor, start) = self.value(target), self.value(source)
        if int(nbytes) != 16 or memory.dtype != tensor.dtype:
            raise NotImplementedError(f"cp.async of {nbytes} bytes, {tensor.dtype}")
        self._reach("cp.async is asked")
        each = np.arange(16 // memory.itemsize)
        active, shape = self.active[:, 0], self.thread.shape
        place, at, many = (
            np.broadcast_to(x, shape)[active]
            for x in (first, start, np.asarray(self.value(present)) // memory.itemsize)
        )
        there = each < many
        values = np.where(there, tensor[np.where(there, at + each, 0)], tensor.dtype.type(0))
        memory.view(np.uint8).reshape(len(memory), -1)[place + each] = 0xFF
        self.begun_copies.append((memory, place + each, values))

    def _cp_async_mbarrier_arrive(self, pointer, *words):
        """When all that the active threads have begun is there, they arrive at a barrier."""
        begun, self.begun_copies = self.begun_copies, []
        barrier, many = self._barrier(pointer)[0], int(self.active.sum())
        self.shared.copies.append((begun, lambda: barrier.arrive(many)))

    def _cp_async_wait_all(self, *words):
        if self.begun_copies:
            raise NotImplementedError("cp.async that no barrier is told of")

    def _cp_async_bulk_tensor_s2g(self, name, *args):
        name = self.value(name)
        rank = len(self.shared.maps[name].box)
        store = self._address(args[rank]), name, self._corner(args[:rank])
        self.begun_stores.append(lambda: self.shared.store(*store))

    def _cp_async_bulk_commit_group(self, *words):
        self.stores.append(self.begun_stores)
        self.begun_stores = []

    def _cp_async_bulk_wait_group(self, most, *words):
        _finish(self.stores, self._same(most))

    # TensorCores

    def _wgmma_encode_matrix_descriptor(self, descriptor, pointer, leading, stride, swizzle):
        if [self._same(x) for x in (leading, stride, swizzle)] != [1, 64, 3]:
            raise NotImplementedError("a descriptor of a matrix not in rows of 128 swizzled bytes")
        pointer = self.value(pointer)
        start = np.broadcast_to(pointer.index, self.thread.shape) * pointer.memory.itemsize
        memory, index = self.value(descriptor)
        encoded = start.astype("uint64") >> np.uint64(4) | np.uint64(1 << 16 | 64 << 32)
        memory[self.thread, index] = encoded | np.uint64(SWIZZLED << 62)

    def _wgmma_f16_ss(self, *args):
        many = len(args) - BEHIND_REGISTERS
        first = self._same(args[0].indices[0])
        sums = self.memory[hash(args[0].source)][:, first : first + many]
        a, b, add = args[many : many + 3]
        # Descriptors count in 16 bytes, of which a float16 is an eighth.
        starts = [(self._same(matrix) & 0x3FFF) * 8 for matrix in (a, b)]
        memory, keep = self.shared.memory.view("float16"), bool(self._same(add))

        def multiply():
            if not keep:
                sums[...] = 0
            layouts.wgmma(sums, memory, memory, *starts)

        self.begun.append(multiply)

    def _wgmma_commit_group(self, *words):
        self.products.append(self.begun)
        self.begun = []

    def _wgmma_wait_group(self, most, *words):
        _finish(self.products, self._same(most))

    # Results

    def _set(self, target, value):
        """Write to a register, given as the load of it."""
        memory, index, value = self._place(target.source, target.indices, value)
        memory[index] = value

    def _add(self, target, a, b, *words):
        if [word.value for word in words if word.value] != ["rn", "f32"]:
            raise NotImplementedError(f"add, but of float32: {words}")
        self._set(target, self.value(a) + self.value(b))

    def _cvt_f16x2_f32(self, target, high, low, *words):
        with np.errstate(over="ignore"):  # to infinity, as on the GPU
            halves = [
                np.broadcast_to(self.value(x), self.thread.shape).astype("float16")
                for x in (low, high)
            ]
        pair = np.concatenate(halves, axis=1).view("uint32")
        self._set(target, pair)

    def _stmatrix(self, pointer, *args):
        if not self.active.all() or [a.value for a in args[6:8]] != ["m8n8", "x4"]:
            raise NotImplementedError("stmatrix, but of four matrices and by all threads")
        memory, index = self.value(pointer)
        # Lane 8 m + r has the address of row r of matrix m, and of each matrix two neighbours.
        rows = np.broadcast_to(index, self.thread.shape).reshape(-1, 4, 8, 1)
        pairs = np.stack([self.value(x)[:, 0] for x in args[:4]], axis=1).astype("uint32")
        values = pairs.view("float16").reshape(-1, 8, 4, 4, 2)  # warps, rows, lanes, matrices
        values = values.transpose(0, 3, 1, 2, 4).reshape(-1, 4, 8, 8)
        memory[rows + np.arange(8)] = values


def _operation(node):
    """The name of what an expression calls; '' where it calls nothing."""
    return getattr(getattr(node, "op", None), "name", "").rpartition(".")[2]


def _finish(groups, most):
    """Do what has been begun in the oldest groups until `most` are left."""
    while len(groups) > most:
        for work in groups.popleft():
            work()
