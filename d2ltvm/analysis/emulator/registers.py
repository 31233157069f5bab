"""Which registers wgmma uses, and whether threads keep away from them: what the fences are for."""

from typing import Any

import numpy as np

from d2ltvm.analysis.emulator.order import Order


class Sums:
    """The registers of a warpgroup that wgmma sums up in.

    Source: PTX ISA. `wgmma.fence` has to be issued before the first wgmma, and between an access to
    a register by a thread and a wgmma that uses the same one; not between products that sum up
    in the same registers. Sums that `wgmma.wait_group` has not waited for must not be touched.

    Args:
        order: where to report.
        size: registers of a thread.
    """

    def __init__(self, order: Order, size: int) -> None:
        self._order = order
        self._touched = np.ones(size, bool)  # since the last fence
        self._group = np.zeros(size, np.int32)  # the last group of products that uses it

    def fence(self) -> None:
        self._touched[:] = False

    def touch(self, columns: Any, finished: int) -> None:
        """Threads read or write some; so many groups of products have been waited for."""
        self._touched[columns] = True
        if np.any(self._group[columns] > finished):
            self._order.fault("a thread uses sums of wgmma; missing: wgmma.wait_group before that")
            self._group[columns] = 0

    def multiply(self, columns: slice, group: int) -> None:
        """A product of some group sums up in some of them."""
        if self._touched[columns].any():
            self._order.fault("wgmma sums up in registers; missing: wgmma.fence before that")
            self._touched[columns] = False
        self._group[columns] = group
