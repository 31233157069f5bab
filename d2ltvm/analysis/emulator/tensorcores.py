"""TensorCores and `ldmatrix` on NumPy arrays, a warp at a time."""

import numpy as np

from d2ltvm import layouts
from d2ltvm.analysis.emulator.arithmetic import Array
from d2ltvm.analysis.emulator.block import Block, Code


class Warps(Block):
    """The threads of a block, of which each warp uses TensorCores."""

    # Registers of fragments: (warps, lanes, elements), with a view of a thread's row of them.

    def _registers(self, data: Code, first: Code, many: int) -> Array:
        return self._columns(data, int(np.max(self.value(first))), many)

    def _columns(self, data: Code, first: int, many: int) -> Array:
        rows = self._memory(data)
        return rows.reshape(-1, 32, rows.shape[1])[:, :, first : first + many]

    def _fragment(self, data: Code, index: Code) -> Array:
        return self._columns(data, 8 * int(np.max(self.value(index))), 8)

    def _matrices(self, pointer: Code, stride: Code, layout: Code) -> tuple[Array, Array]:
        """Array and elements of a 16 by 16 matrix for each warp."""
        memory, first = self._pointer(pointer)
        row, column = np.indices((16, 16))
        if layout.value == "col_major":
            row, column = column, row
        return memory, first[::32, :, None] + row * int(self.value(stride)) + column

    def _tvm_fill_fragment(
        self, data: Code, m: Code, n: Code, k: Code, index: Code, value: Code
    ) -> None:
        self._fragment(data, index)[...] = self.value(value)

    def _tvm_load_matrix_sync(
        self,
        data: Code,
        m: Code,
        n: Code,
        k: Code,
        index: Code,
        pointer: Code,
        stride: Code,
        layout: Code,
    ) -> None:
        memory, elements = self._matrices(pointer, stride, layout)
        kind = data.args[0].scope().rpartition(".")[2]
        layouts.scatter(memory[elements], self._fragment(data, index), kind)

    def _tvm_store_matrix_sync(
        self,
        data: Code,
        m: Code,
        n: Code,
        k: Code,
        index: Code,
        pointer: Code,
        stride: Code,
        layout: Code,
    ) -> None:
        memory, elements = self._matrices(pointer, stride, layout)
        memory[elements] = layouts.gather(self._fragment(data, index), "accumulator")

    def _tvm_mma_sync(
        self, d: Code, di: Code, a: Code, ai: Code, b: Code, bi: Code, c: Code, ci: Code
    ) -> None:
        left = layouts.gather(self._fragment(a, ai), "matrix_a").astype("float32")
        right = layouts.gather(self._fragment(b, bi), "matrix_b").astype("float32")
        total = left @ right + layouts.gather(self._fragment(c, ci), "accumulator")
        layouts.scatter(total, self._fragment(d, di), "accumulator")

    def _ldmatrix(
        self,
        turned: Code,
        number: Code,
        kind: Code,
        data: Code,
        first: Code,
        pointer: Code,
        offset: Code,
    ) -> None:
        memory, start = self._pointer(pointer)
        # Of one matrix or two, the first 8 or 16 lanes give the addresses.
        many = int(number.value)
        given = (start + self.value(offset)).reshape(-1, 32)[:, : 8 * many]
        rows = given.reshape(-1, many, 8, 1)
        matrices = memory[rows + np.arange(8)]  # warps, matrices, rows, columns
        if turned.value:
            matrices = matrices.swapaxes(2, 3)
        # A lane receives two neighbours of a row: lane 4 r + c has elements 2 c and 2 c + 1.
        parts = matrices.reshape(len(matrices), -1, 32, 2).swapaxes(1, 2)
        self._registers(data, first, 2 * many)[...] = parts.reshape(len(parts), 32, 2 * many)

    def _mma(
        self,
        shape: Code,
        la: Code,
        lb: Code,
        ta: Code,
        tb: Code,
        tc: Code,
        a: Code,
        ai: Code,
        b: Code,
        bi: Code,
        c: Code,
        ci: Code,
        saturate: Code,
    ) -> None:
        left = layouts.gather(self._registers(a, ai, 8), "matrix_a").astype("float32")
        right = layouts.gather(self._registers(b, bi, 4), "matrix_b").astype("float32")
        sums = self._registers(c, ci, 4)
        layouts.scatter(left @ right + layouts.gather(sums, "accumulator"), sums, "accumulator")
