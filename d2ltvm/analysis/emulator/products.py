"""Products of TensorCores, by wgmma."""

import itertools
from collections.abc import Sequence

import numpy as np

from d2ltvm import layouts
from d2ltvm.analysis.emulator.arithmetic import Array, spread
from d2ltvm.analysis.emulator.block import Code
from d2ltvm.analysis.emulator.registers import MATRIX
from d2ltvm.analysis.emulator.threads import Threads, finish

BEHIND_REGISTERS = 15  # arguments of wgmma: descriptors, predicate, and how it is called
BEHIND_SUMS = 17  # the same where the first matrix is in four registers
TURNS = 2  # of these, whether matrices are transposed: float32 never are
# How a descriptor says rows of so many swizzled bytes. Source: PTX ISA, "Matrix Descriptor Format".
SWIZZLED = {128: 1, 64: 2, 32: 3}
# Of matrices in shared memory, and of one in registers.
PRODUCTS = ("wgmma_f16_ss", "wgmma_f16_rs", "wgmma_tf32_ss")


def matrix_of(args: Sequence[Code]) -> list[Code]:
    """The loads of the first matrix of a product, where it is in registers: behind the sums."""
    return list(args[len(args) - BEHIND_SUMS :][:4])


class Products(Threads):
    """Instructions that begin products, commit them, and wait for them."""

    def _wgmma_encode_matrix_descriptor(
        self, descriptor: Code, pointer: Code, leading: Code, stride: Code, swizzle: Code
    ) -> None:
        span = {1: 32, 2: 64, 3: 128}.get(self._same(swizzle), 0)  # TVM's numbers
        if not span:
            raise NotImplementedError("a descriptor of a matrix not in swizzled rows")
        steps = self._same(leading) << 16 | self._same(stride) << 32
        pointer = self.value(pointer)
        start = spread(pointer.index, self.thread.shape) * pointer.memory.itemsize
        memory, index = self.value(descriptor)
        encoded = start.astype("uint64") >> np.uint64(4) | np.uint64(steps)
        memory[self.thread, index] = encoded | np.uint64(SWIZZLED[span] << 62)

    def _wgmma_tf32_ss(self, *args: Code) -> None:
        self._multiply("tf32", len(args) - BEHIND_REGISTERS + TURNS, args)

    def _wgmma_f16_ss(self, *args: Code) -> None:
        self._multiply("float16", len(args) - BEHIND_REGISTERS, args)

    def _multiply(self, numbers: str, many: int, args: tuple[Code, ...]) -> None:
        """Begin the product of two matrices in shared memory; `many` of the arguments are sums."""
        first = self._same(args[0].indices[0])
        sums = self.memory[hash(args[0].source)][:, first : first + many]
        a, b, add = args[many : many + 3]
        turns = args[many + 5 : many + 5 + TURNS] if numbers == "float16" else ()
        sides = [
            layouts.Matrix.of(self._same(matrix), bool(turned and self._same(turned)))
            for matrix, turned in itertools.zip_longest((a, b), turns)
        ]
        memory, keep = self.shared.memory.view("float16"), bool(self._same(add))
        self._reads(sides, slice(first, first + many), args[0].source)

        def multiply() -> None:
            if not keep:
                sums[...] = 0
            layouts.multiply(sums, memory, sides[0], sides[1], numbers)

        self.begun.append(multiply)

    def _wgmma_f16_rs(self, *args: Code) -> None:
        """The first matrix is in registers, as threads have them when they begin the product."""
        many = len(args) - BEHIND_SUMS
        first = self._same(args[0].indices[0])
        sums = self.memory[hash(args[0].source)][:, first : first + many]
        pairs = [self._matrix_register(x) for x in matrix_of(args)]
        left = layouts.rows_of(np.stack(pairs, axis=1).astype("uint32").view("float16"))
        b, add = args[many + 4 : many + 6]
        side = layouts.Matrix.of(self._same(b), bool(self._same(args[many + 8])))
        memory, keep = self.shared.memory.view("float16"), bool(self._same(add))
        self._reads([side], slice(first, first + many), args[0].source)

        def multiply() -> None:
            if not keep:
                sums[...] = 0
            layouts.multiply_rows(sums, left, memory, side)

        self.begun.append(multiply)

    def _matrix_register(self, load: Code) -> Array:
        """What each thread has in a register of the first matrix, for a product that begins now."""
        buffer, column = hash(load.source), self._same(load.indices[0])
        if buffer in self.registers:
            self.registers[buffer].multiply(column, self.committed["products"] + 1, MATRIX)
        return self.memory[buffer][:, column]

    def _reads(self, sides: list[layouts.Matrix], columns: slice, sums: Code) -> None:
        """What a product uses, from now until somebody has waited for it."""
        if hash(sums) in self.registers:
            self.registers[hash(sums)].multiply(columns, self.committed["products"] + 1)
        record = self._group_record("products", self.lanes.products)
        rows = (64, 2 * (columns.stop - columns.start))
        for many, side in zip(rows[-len(sides) :], sides, strict=True):
            words = layouts.words(many, side)
            self.shared.shadow.read_by_products(self.lanes, words, record)

    def _wgmma_commit_group(self, *words: Code) -> None:
        self.products.append(self.begun)
        self.begun = []
        self.committed["products"] += 1

    def _wgmma_wait_group(self, most: Code, *words: Code) -> None:
        finish(self.products, self._same(most))
        self.finished = max(self.finished, self.committed["products"] - self._same(most))
        self.lanes.ended(self._active(), self.lanes.products, self.finished)
