"""Memory accesses of a kernel by running it, thread by thread, in plain Python: slow and sure.

It shares nothing with `d2ltvm.analysis`, so that tests can hold those to it.
"""

import functools
import itertools
from collections import defaultdict

import tvm
import tvm_ffi

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
    "LShift": lambda a, b: a << b,
    "BitwiseAnd": lambda a, b: a & b,
    "BitwiseOr": lambda a, b: a | b,
    "BitwiseXor": lambda a, b: a ^ b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
}


class Plain:
    """A node of TVM's that is asked once for each attribute: TVM makes new objects each time."""

    def __init__(self, node):
        self.node_of_tvm, self.kind = node, type(node).__name__

    @functools.cached_property
    def key(self):
        return hash(self.node_of_tvm)

    def __getattr__(self, name):
        setattr(self, name, plain(getattr(self.node_of_tvm, name)))
        return getattr(self, name)

    def __repr__(self):
        return repr(self.node_of_tvm)


def plain(value):
    if isinstance(value, tvm_ffi.Array):
        return [plain(each) for each in value]
    return Plain(value) if isinstance(value, tvm_ffi.Object) else value


@functools.cache
def data_type(name):
    return tvm.DataType(name)


def requests(sch):
    """Every request of every warp.

    Returns:
        {(tensor, scope, kind, width): [{lane: first byte}, ...]}, in which a request that is made
        in every round of a loop stands there as often.
    """
    lowered = lowering.lower(lowering.as_module(sch), devices.as_target("sm_80"))
    found = defaultdict(lambda: defaultdict(dict))
    for launch in lowered.launches:
        body = plain(lowered.device_functions[launch.name].body)
        for block in itertools.product(*map(range, launch.grid)):
            threads = itertools.product(*map(range, reversed(launch.block)))
            for number, (z, y, x) in enumerate(threads):
                Thread(found, block, (x, y, z), number).run(body, (launch.name,))
    return {key: list(by_place.values()) for key, by_place in found.items()}


class Thread:
    """One thread, which notes what it accesses, and where: its way through the code, and rounds."""

    def __init__(self, found, block, thread, number):
        self.found, self.number, self.block, self.values = found, number, block, {}
        self.special = {f"blockIdx.{a}": v for a, v in zip("xyz", block, strict=True)}
        self.special.update({f"threadIdx.{a}": v for a, v in zip("xyz", thread, strict=True)})

    def run(self, node, way):
        getattr(self, node.kind)(node, way)

    def SeqStmt(self, node, way):
        for k, part in enumerate(node.seq):
            self.run(part, (*way, k))

    def DeclBuffer(self, node, way):
        pass

    AllocBuffer = DeclBuffer

    def AttrStmt(self, node, way):
        if node.attr_key == "thread_extent":
            self.values[node.node.var.key] = self.special[node.node.thread_tag]
        self.run(node.body, way)

    def Bind(self, node, way):
        lanes = data_type(str(node.var.ty.dtype)).lanes
        each = [self.value(node.value, way, lane) for lane in range(lanes)]
        self.values[node.var.key] = each if lanes > 1 else each[0]

    def IfThenElse(self, node, way):
        if self.value(node.condition, (*way, "if")):
            self.run(node.then_case, (*way, "then"))
        elif node.else_case is not None:
            self.run(node.else_case, (*way, "else"))

    def For(self, node, way):
        first = self.value(node.min, way)
        for k in range(first, first + self.value(node.extent, way)):
            self.values[node.loop_var.key] = k
            self.run(node.body, (*way, k))

    def BufferStore(self, node, way):
        self.value(node.value, (*way, "value"))
        self.value(node.indices[0], (*way, "index"))
        self.access(node.buffer, node.indices[0], "write", way)

    def Evaluate(self, node, way):
        self.value(node.value, way)

    def access(self, buffer, index, kind, way):
        scope = {"": "global"}.get(buffer.ty.storage_scope, buffer.ty.storage_scope)
        if scope == "local":
            return
        size = data_type(str(buffer.dtype)).itemsize
        lanes = data_type(str(index.ty.dtype)).lanes
        at = [self.value(index, way, lane) for lane in range(lanes)]
        if len(set(at)) > 1:
            assert at == list(range(at[0], at[0] + lanes)), f"a vector with a stride: {index}"
            size *= lanes
        first = at[0] * data_type(str(buffer.dtype)).itemsize
        assert len(set(at)) == 1 or first % (size & -size) == 0, (
            f"{buffer.name} at {first}, not aligned"
        )
        place = (self.block, self.number // 32, way)
        self.found[buffer.name, scope, kind, size][place][self.number % 32] = first

    def value(self, node, way, lane=0):
        """A number; of a vector that of one lane. Data is 0."""
        kind = node.kind
        if kind in BINARY:
            a, b = self.value(node.a, (*way, "a"), lane), self.value(node.b, (*way, "b"), lane)
            return BINARY[kind](a, b)
        if kind in ("And", "Or"):
            first = self.value(node.a, (*way, "a"), lane)
            return (
                self.value(node.b, (*way, "b"), lane) if bool(first) == (kind == "And") else first
            )
        if kind == "Not":
            return not self.value(node.a, way, lane)
        if kind in ("IntImm", "FloatImm"):
            return node.value
        if kind == "Var":
            found = self.values[node.key]
            return found[lane] if isinstance(found, list) else found
        if kind == "TensorLoad":
            self.value(node.indices[0], (*way, "index"))
            self.access(node.source, node.indices[0], "read", way)
            return 0
        if kind == "Ramp":
            return self.value(node.base, way) + lane * self.value(node.stride, way)
        if kind in ("Cast", "Broadcast"):
            return self.value(node.value, way, lane)
        if kind == "Select":
            return self.choice(node.condition, node.true_value, node.false_value, way, lane)
        name = node.op.name.rpartition(".")[2]
        if name == "if_then_else":
            return self.choice(*node.args, way, lane)
        assert name == "tvm_storage_sync", f"a {kind}: {node}"
        return 0

    def choice(self, condition, first, second, way, lane):
        met = self.value(condition, (*way, "if"), lane)
        return self.value(first if met else second, (*way, "then" if met else "else"), lane)


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
