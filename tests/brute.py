"""Memory accesses of a kernel by running it, thread by thread, in plain Python: slow and sure.

It shares nothing with `d2ltvm.analysis`, so that tests can hold those to it.
"""

import itertools
from collections import defaultdict

import tvm

from d2ltvm.compiler import lowering
from d2ltvm.system import devices

BINARY = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "FloorMod": lambda a, b: a % b,
    "Min": min,
    "Max": max,
    "RShift": lambda a, b: a >> b,
    "BitwiseAnd": lambda a, b: a & b,
    "BitwiseXor": lambda a, b: a ^ b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "And": lambda a, b: a and b,
    "Or": lambda a, b: a or b,
}


def requests(sch):
    """Every request of every warp.

    Returns:
        {(tensor, scope, kind, width): [{lane: first byte}, ...]}, in which a request that is made
        in every round of a loop stands there as often.
    """
    lowered = lowering.lower(lowering.as_module(sch), devices.as_target("sm_80"))
    found = defaultdict(lambda: defaultdict(dict))
    for launch in lowered.launches:
        body = lowered.device_functions[launch.name].body
        for block in itertools.product(*map(range, launch.grid)):
            threads = itertools.product(*map(range, reversed(launch.block)))
            for number, (z, y, x) in enumerate(threads):
                Thread(found, block, (x, y, z), number).run(body)
    return {key: list(by_place.values()) for key, by_place in found.items()}


class Thread:
    """One thread, which notes what it accesses, by the place in the code and the loops' rounds."""

    def __init__(self, found, block, thread, number):
        self.found, self.number, self.block = found, number, block
        self.values, self.rounds, self.place = {}, (), 0
        self.special = {f"blockIdx.{a}": v for a, v in zip("xyz", block, strict=True)}
        self.special.update({f"threadIdx.{a}": v for a, v in zip("xyz", thread, strict=True)})

    def run(self, node):
        self.place += 1
        getattr(self, type(node).__name__)(node)

    def SeqStmt(self, node):
        for part in node.seq:
            self.run(part)

    def DeclBuffer(self, node):
        pass

    AllocBuffer = DeclBuffer

    def AttrStmt(self, node):
        if node.attr_key == "thread_extent":
            self.values[node.node.var.name] = self.special[node.node.thread_tag]
        self.run(node.body)

    def Bind(self, node):
        self.values[node.var.name] = self.value(node.value)

    def IfThenElse(self, node):
        place = self.place
        if self.value(node.condition):
            self.run(node.then_case)
        elif node.else_case is not None:
            self.place += 1000
            self.run(node.else_case)
        self.place = place + 2000  # the same for both ways

    def For(self, node):
        place, rounds = self.place, self.rounds
        for k in range(int(node.min), int(node.min) + int(node.extent)):
            self.values[node.loop_var.name] = k
            self.place, self.rounds = place, (*rounds, k)
            self.run(node.body)
        self.place, self.rounds = place + 100, rounds

    def BufferStore(self, node):
        self.value(node.value)
        self.access(node.buffer, node.indices[0], "write")

    def Evaluate(self, node):
        self.value(node.value)

    def access(self, buffer, index, kind):
        self.place += 1
        scope = {"": "global"}.get(buffer.ty.storage_scope, buffer.ty.storage_scope)
        if scope == "local":
            return
        ramp = type(index).__name__ == "Ramp"
        size = tvm.DataType(str(buffer.dtype)).itemsize
        width = size * (int(index.lanes) if ramp else 1)
        key = (buffer.name, scope, kind, width)
        first = self.value(index.base if ramp else index) * size
        place = (self.block, self.number // 32, self.place, self.rounds)
        self.found[key][place][self.number % 32] = first

    def value(self, node):
        kind = type(node).__name__
        if kind in BINARY:
            return BINARY[kind](self.value(node.a), self.value(node.b))
        if kind in ("IntImm", "FloatImm"):
            return node.value
        if kind == "Var":
            return self.values[node.name]
        if kind == "TensorLoad":
            self.access(node.source, node.indices[0], "read")
            return 0
        if kind in ("Cast", "Broadcast"):
            return self.value(node.value)
        if kind == "Call" and node.op.name.endswith("if_then_else"):
            met, place = self.value(node.args[0]), self.place
            result = self.value(node.args[1 if met else 2])
            self.place = place + 50
            return result
        return 0


def sectors(request, width):
    """Sectors of 32 bytes that a request touches."""
    return len({byte // 32 for first in request.values() for byte in range(first, first + width)})


def wavefronts(request, width):
    """Passes over the banks, and those beyond one for a group of lanes, without pairing."""
    size = min(32, 128 // max(width, 4))
    passes = conflicts = 0
    for start in range(0, 32, size):
        banks = defaultdict(set)
        for lane, first in request.items():
            if start <= lane < start + size:
                for byte in range(first, first + width):
                    banks[byte // 4 % 32].add(byte // 4)
        most = max(map(len, banks.values()), default=0)
        passes, conflicts = passes + most, conflicts + max(most - 1, 0)
    return passes, conflicts
