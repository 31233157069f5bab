"""Which registers wgmma uses, and whether threads keep away from them: what the fences are for."""

from typing import Any

import numpy as np

from d2ltvm.analysis.emulator.order import Order

SUMS, MATRIX = "sums of wgmma", "registers that wgmma reads"  # what a product does with them


class Registers:
    """A buffer of a warpgroup's registers that wgmma uses: sums, or a first matrix.

    Source: PTX ISA. `wgmma.fence` has to be issued before the first wgmma, and between an access to
    a register by a thread and a wgmma that uses the same one; not between products that sum up
    in the same registers. What a product uses must not be touched before `wgmma.wait_group` has
    waited for it.

    Args:
        order: where to report.
        size: registers of a thread.
    """

    def __init__(self, order: Order, size: int) -> None:
        self._order = order
        self._touched = np.ones(size, bool)  # since the last fence
        self._group = np.zeros(size, np.int32)  # the last group of products that uses it
        self._use = SUMS
        self._last = 0  # of all groups

    def fence(self) -> None:
        self._touched[:] = False

    def touch(self, columns: Any, finished: int) -> None:
        """Threads read or write some; so many groups of products have been waited for."""
        self._touched[columns] = True
        if self._last > finished and np.any(self._group[columns] > finished):
            self._fault(f"a thread uses {self._use}; missing: wgmma.wait_group before that")
            self._group[columns] = 0

    def multiply(self, columns: Any, group: int, use: str = SUMS) -> None:
        """A product of some group sums up in some of them, or reads its first matrix there."""
        if self._touched[columns].any():
            does = "sums up in" if use == SUMS else "reads"
            self._fault(f"wgmma {does} registers; missing: wgmma.fence before that")
            self._touched[columns] = False
        self._group[columns], self._use, self._last = group, use, group

    def _fault(self, message: str) -> None:
        self._order.fault(message)
