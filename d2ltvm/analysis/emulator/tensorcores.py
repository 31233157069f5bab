"""TensorCores and `ldmatrix` on NumPy arrays, a warp at a time."""

import numpy as np

from d2ltvm import layouts
from d2ltvm.analysis.emulator.arithmetic import Array
from d2ltvm.analysis.emulator.block import Block, Node


class Warps(Block):
    """The threads of a block, of which each warp uses TensorCores."""

    # Registers of fragments: (warps, lanes, elements), with a view of a thread's row of them.

    def _registers(self, data: Node, first: Node, many: int) -> Array:
        return self._columns(data, int(np.max(self.value(first))), many)

    def _columns(self, data: Node, first: int, many: int) -> Array:
        rows = self._memory(data)
        return rows.reshape(-1, 32, rows.shape[1])[:, :, first : first + many]

    def _fragment(self, data: Node, index: Node) -> Array:
        return self._columns(data, 8 * int(np.max(self.value(index))), 8)

    def _matrices(self, pointer: Node, stride: Node, layout: Node) -> tuple[Array, Array]:
        """Array and elements of a 16 by 16 matrix for each warp."""
        memory, first = self._pointer(pointer)
        row, column = np.indices((16, 16))
        if layout.value == "col_major":
            row, column = column, row
        return memory, first[::32, :, None] + row * int(self.value(stride)) + column

    def _tvm_fill_fragment(
        self, data: Node, m: Node, n: Node, k: Node, index: Node, value: Node
    ) -> None:
        self._fragment(data, index)[...] = self.value(value)

    def _tvm_load_matrix_sync(
        self,
        data: Node,
        m: Node,
        n: Node,
        k: Node,
        index: Node,
        pointer: Node,
        stride: Node,
        layout: Node,
    ) -> None:
        memory, elements = self._matrices(pointer, stride, layout)
        kind = data.args[0].scope().rpartition(".")[2]
        layouts.scatter(memory[elements], self._fragment(data, index), kind)

    def _tvm_store_matrix_sync(
        self,
        data: Node,
        m: Node,
        n: Node,
        k: Node,
        index: Node,
        pointer: Node,
        stride: Node,
        layout: Node,
    ) -> None:
        memory, elements = self._matrices(pointer, stride, layout)
        memory[elements] = layouts.gather(self._fragment(data, index), "accumulator")

    def _tvm_mma_sync(
        self, d: Node, di: Node, a: Node, ai: Node, b: Node, bi: Node, c: Node, ci: Node
    ) -> None:
        left = layouts.gather(self._fragment(a, ai), "matrix_a").astype("float32")
        right = layouts.gather(self._fragment(b, bi), "matrix_b").astype("float32")
        total = left @ right + layouts.gather(self._fragment(c, ci), "accumulator")
        layouts.scatter(total, self._fragment(d, di), "accumulator")

    def _ldmatrix(
        self,
        turned: Node,
        number: Node,
        kind: Node,
        data: Node,
        first: Node,
        pointer: Node,
        offset: Node,
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
        shape: Node,
        la: Node,
        lb: Node,
        ta: Node,
        tb: Node,
        tc: Node,
        a: Node,
        ai: Node,
        b: Node,
        bi: Node,
        c: Node,
        ci: Node,
        saturate: Node,
    ) -> None:
        left = layouts.gather(self._registers(a, ai, 8), "matrix_a").astype("float32")
        right = layouts.gather(self._registers(b, bi, 4), "matrix_b").astype("float32")
        sums = self._registers(c, ci, 4)
        layouts.scatter(left @ right + layouts.gather(sums, "accumulator"), sums, "accumulator")
