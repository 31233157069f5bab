"""What threads do with their sums: arithmetic in registers, and matrices to shared memory."""

from typing import Any

import numpy as np

from d2ltvm.analysis.emulator.arithmetic import spread
from d2ltvm.analysis.emulator.block import Code
from d2ltvm.analysis.emulator.order import WORD
from d2ltvm.analysis.emulator.shared import RANK
from d2ltvm.analysis.emulator.threads import Threads


class Results(Threads):
    """Instructions of an epilogue."""

    def _add(self, target: Code, a: Code, b: Code, *words: Code) -> None:
        if [word.value for word in words if word.value] != ["rn", "f32"]:
            raise NotImplementedError(f"add, but of float32: {words}")
        self._set(target, self.value(a) + self.value(b))

    def _fma(self, target: Code, a: Code, b: Code, c: Code, *words: Code) -> None:
        if [word.value for word in words if word.value] != ["rn", "f32"]:
            raise NotImplementedError(f"fma, but of float32: {words}")
        exact = np.asarray(self.value(a)).astype("float64") * self.value(b)
        self._set(target, (exact + self.value(c)).astype("float32"))

    def _max(self, target: Code, a: Code, b: Code, *words: Code) -> None:
        if [word.value for word in words if word.value] != ["f16x2"]:
            raise NotImplementedError(f"max, but of two float16: {words}")
        pairs = [spread(self.value(x), self.thread.shape).astype("uint32") for x in (a, b)]
        left, right = (pair.view("float16") for pair in pairs)
        self._set(target, np.fmax(left, right).view("uint32"))

    def _cvt_f16x2_f32(self, target: Code, high: Code, low: Code, *words: Code) -> None:
        if [word.value for word in words if word.value] != ["rn", "f16x2", "f32"]:
            raise NotImplementedError(f"cvt, but of two float32 to float16, rounded: {words}")
        halves = [spread(self.value(x), self.thread.shape).astype("float16") for x in (low, high)]
        pair = np.concatenate(halves, axis=1).view("uint32")
        self._set(target, pair)

    def _ld_vec(self, *args: Code) -> None:
        """Active threads load from the shared memory of a block of the cluster."""
        words = [a.value for a in args if isinstance(getattr(a, "value", None), str) and a.value]
        if words != ["shared::cluster", "v4", "f32"]:
            raise NotImplementedError(f"ld, but of four float32 in a cluster: {words}")
        lanes = self.active[:, 0].nonzero()[0]
        places = spread(self.value(args[4]), self.thread.shape)[:, 0].astype("int64")
        (rank,) = set((places[lanes] >> RANK).tolist())
        block = self.shared.cluster[rank]
        first = np.where(self.active[:, 0], places & ((1 << RANK) - 1), 0) // WORD
        for v, target in enumerate(args[:4]):
            self._set(target, block.memory.view("float32")[first + v][:, None])
        every = (first[lanes][:, None] + np.arange(4)).reshape(-1)
        block.shadow.read_by_threads(self.lanes, np.repeat(lanes, 4), every)
        block.visits += [(self.lanes.first + lane, self.lanes.now) for lane in lanes.tolist()]

    def _ldmatrix(self, *args: Code) -> None:
        *targets, pointer = args[:5]
        words = [a.value for a in args[5:] if a.value]
        memory, rows, warps = self._matrices("ldmatrix", pointer, words)
        values = memory[rows + np.arange(8)]
        if "trans" in words:
            values = values.swapaxes(2, 3)
        # Of row r of a matrix, lane 4 r + k gets elements 2 k and 2 k + 1.
        pairs = values.reshape(-1, 4, 32, 2).view("uint32")[..., 0]
        for q, target in enumerate(targets):
            found = np.zeros((self.thread.shape[0] // 32, 32), "uint32")
            found[warps] = pairs[:, q]
            self._set(target, found.reshape(-1, 1))
        self.shared.shadow.read_by_threads(self.lanes, *self._words(memory, rows, warps))

    def _matrices(self, name: str, pointer: Code, words: list[str]) -> tuple[Any, Any, Any]:
        """The memory of four matrices, where their rows begin, by warps, and which warps these are.

        Lane 8 m + r has the address of row r of matrix m.
        """
        active = self.active.reshape(-1, 32)
        warps = active[:, 0].nonzero()[0]  # whole ones
        if np.any(active != active[:, :1]) or not {"m8n8", "x4"} < set(words):
            raise NotImplementedError(f"{name}, but of four matrices and by whole warps")
        memory, index = self.value(pointer)
        return memory, spread(index, self.thread.shape).reshape(-1, 4, 8, 1)[warps], warps

    @staticmethod
    def _words(memory: Any, rows: Any, warps: Any) -> tuple[Any, Any]:
        """Lanes and words of matrices: those of row r belong to lanes 4 r to 4 r + 3."""
        words = rows * memory.itemsize // WORD + np.arange(4)
        lane = 32 * warps[:, None, None, None] + np.arange(32).reshape(8, 4)
        return np.broadcast_to(lane, words.shape).reshape(-1), words.reshape(-1)

    def _stmatrix(self, pointer: Code, *args: Code) -> None:
        words = [a.value for a in args[4:] if a.value]
        memory, rows, warps = self._matrices("stmatrix", pointer, words)
        # Of each matrix a lane has two neighbours.
        pairs = np.stack([self.value(x)[:, 0] for x in args[:4]], axis=1).astype("uint32")
        values = pairs.view("float16").reshape(-1, 8, 4, 4, 2)  # warps, rows, lanes, matrices
        values = values.transpose(0, 3, 1, 2, 4).reshape(-1, 4, 8, 8)[warps]
        if "trans" in words:
            values = values.swapaxes(2, 3)
        memory[rows + np.arange(8)] = values
        self.shared.shadow.written_by_threads(self.lanes, *self._words(memory, rows, warps))
