"""The emulator notices what is missing in a kernel, by PTX's rules: mutants of the book's kernels.

Each has one thing left out, changed or moved. Most of those of which an `OrderError` is expected
compute the right thing all the same, here and often on a GPU. EQUIVALENT has the changes that PTX
allows, with the reason; the emulator has nothing to say of these.
"""

import functools

import kernel_mutants as m
import kernel_references
import numpy as np
import pytest

import d2ltvm
from d2ltvm import hopper
from d2ltvm.analysis.emulator.order import OrderError, SynchronizationError
from d2ltvm.compiler.lowering import as_module, lower
from d2ltvm.hopper import ordered, ring, rows, stem
from d2ltvm.hopper.any_conv import Conv, product
from d2ltvm.hopper.any_shape import conv_any
from d2ltvm.hopper.depthwise import depthwise_fused
from d2ltvm.hopper.float32 import conv_float32
from d2ltvm.hopper.implicit_fused import conv_nhwc_fused
from d2ltvm.hopper.patch import changed
from d2ltvm.hopper.pooling import max_pool, mean_pool
from d2ltvm.hopper.wgmma import one_tile
from d2ltvm.system import devices

SMALL = Conv(2, (9, 9), 64, 72, (3, 3), (1, 1))
POINTS = Conv(1, (9, 9), 136, 24)  # of one tap
STEM = (1, 20, 24), 1
FEW = rows.RowsPlan(Conv(1, (9, 24), 3, 24, (3, 3), (1, 1)), 1, 5, 10, 2, True, "relu")
SPLIT = {"numbers": "float32", "wide": True, "bias": True, "scale": True}
# Several tiles for each block, more rounds than slots: whatever is reused is reused.
KERNELS = {
    "one_tile": lambda: one_tile(),
    "copy_boxes": lambda: ordered.copy_boxes(3),
    "stream": lambda: ring.stream(200, 32, 2, sms=1),
    "stream_by_threads": lambda: ring.stream_by_threads(200, 32, 2, sms=1),
    "product": lambda: hopper.matmul_nt(200, 64, 136, stages=2, sms=1),
    "implicit": lambda: hopper.conv_nhwc(1, 64, 64, 12, 3, 1, 1, 1, columns=64, on_demand=False),
    "on_demand": lambda: hopper.conv_nhwc(
        700, 64, 136, 1, 1, sms=1, on_demand=True, columns=64, stages=6
    ),
    "float32": lambda: conv_float32(1, 64, 64, 12, 3, 1, 1, sms=1),
    "any_shape": lambda: conv_any(SMALL, 1, columns=64, stages=2),
    "residual": lambda: conv_any(SMALL, 1, columns=64, stages=2, bias=True, residual=True),
    "biases": lambda: conv_any(SMALL, 1, columns=64, stages=2, bias=True, wide=True),
    "cut": lambda: conv_any(SMALL, 2, columns=64, stages=2, splits=2),
    "cluster": lambda: conv_any(SMALL, 2, columns=64, stages=2, cluster=2),
    "turns": lambda: conv_any(SMALL, 1, columns=64, stages=2, pingpong=True),
    "bricks": lambda: conv_any(SMALL, 1, columns=64, stages=2, bricks=(1, 16, 8)),
    "abreast": lambda: conv_any(product(300, 264, 200), 4, columns=64, stages=2, abreast=2),
    "distributed": lambda: conv_any(SMALL, 48, columns=48, stages=2, splits=2, distributed=True),
    "split": lambda: conv_any(POINTS, 1, columns=16, stages=2, **SPLIT),
    "tf32": lambda: conv_any(SMALL, 1, columns=48, stages=2, numbers="tf32", wide=True),
    "boxes": lambda: conv_nhwc_fused(SMALL, True, 1),
    "stem": lambda: stem.stem(*STEM),
    "rows": lambda: rows.conv_rows(FEW),
    "depthwise": lambda: depthwise_fused((1, 8, 7, 24), (3, 3), (1, 1), (1, 1), "relu6"),
    "max_pool": lambda: max_pool((1, 8, 7, 24), (3, 3), (2, 2), (1, 1)),
    "mean_pool": lambda: mean_pool((3, 5, 7, 40)),
}


@functools.cache
def lowered(name):
    """A kernel and arrays for it, the last one for its result."""
    kernel = KERNELS[name]()
    rng = np.random.default_rng(0)
    params = lower(as_module(kernel), devices.as_target("sm_90a")).params
    arrays = [rng.standard_normal(p.shape, "float32").astype(p.dtype) for p in params]
    return kernel, arrays


def emulated(name, change=lambda kernel: kernel):
    """The arrays when a kernel, or a mutant of it, has run."""
    kernel, arrays = lowered(name)
    *given, result = (array.copy() for array in arrays)
    result[...] = np.nan
    d2ltvm.emulate(change(kernel), *given, result)
    return *given, result


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_as_it_is(name):
    *given, result = emulated(name)
    want = kernel_references.expected(name, *given)
    assert np.abs(result - want.reshape(result.shape)).max() < 0.1


INITIALIZED = "an mbarrier is used; missing: a sync behind its initialization"
TOLD = r"TMA is told of an mbarrier; missing: fence\.proxy\.async or fence\.mbarrier_init"
FENCE = r"TMA stores byte \d+ .* a thread has written; missing: fence\.proxy\.async between them"
SYNC = r"TMA stores byte \d+ .* a thread has written; missing: a barrier between them"
READ = r"a thread overwrites byte \d+ .* TMA stores; missing: cp\.async\.bulk\.wait_group\.read"
EARLY = r"TMA overwrites byte \d+ of shared memory, which wgmma reads; missing: wgmma\.wait_group"
SUMS = r"a thread uses sums of wgmma; missing: wgmma\.wait_group before that"
MATRIX = r"wgmma reads registers; missing: wgmma\.fence before that"
REGISTERS = r"wgmma sums up in registers; missing: wgmma\.fence before that"
UNFENCED = r"TMA overwrites byte \d+ .* threads? ha(s|ve) read; missing: fence\.proxy\.async"
BEFORE = r"wgmma reads byte \d+ of shared memory, which (is empty|TMA brings); missing: a wait"
SPLIT_FENCE = r"wgmma reads byte \d+ .* a thread has written; missing: fence\.proxy\.async"
SPLIT_SYNC = r"wgmma reads byte \d+ .* a thread has written; missing: a barrier between them"
UNKNOWN = r"a thread (reads|overwrites) byte \d+ .* ha(s|ve) (read|written); missing: a barrier"
TOO_SOON = (
    r"more than 1 arrive .*; before that, TMA overwrites byte \d+ .* TMA brings; missing: a wait"
)
KERNEL_BEFORE = r"(is used|TMA is asked) before griddepcontrol\.wait"
ENDS = r"the kernel ends while \d+ copies or products last"


def hangs(lacks):
    return rf"wait for ever: .*\(missing: {lacks}"


# What every kernel that TMA feeds may lack: a change, and what is said of it.
FED = {
    "no barrier is initialized": (m.without("mbarrier_init", 0), "there is no barrier"),
    "no fence behind the barriers": (m.without("fence_proxy", 0), TOLD),
    "no bytes are expected": (
        m.without("mbarrier_arrive_expect_tx", 0),
        hangs(r"1 of 1 arrivals, expect_tx of \d+ bytes"),
    ),
    "too few bytes are expected": (
        m.put("mbarrier_arrive_expect_tx", 0, 1, 2048),
        hangs(r"(1 of 1 arrivals, )?expect_tx of \d+ bytes"),
    ),
    "too many bytes are expected": (
        m.put("mbarrier_arrive_expect_tx", 0, 1, 2**16),
        hangs(r"\d+ bytes"),
    ),
}
# Where a block syncs when its barriers are there.
SYNCED = {
    "no sync behind the barriers": (m.without("cta_sync", 0), INITIALIZED),
    "a sync in front of the barriers": (
        m.moved("cta_sync", 0, "mbarrier_init", 0, before=True),
        f"{INITIALIZED}|there is no barrier",
    ),
}
# A ring of slots.
RING = {
    "the producer takes full slots": (
        m.without("mbarrier_wait", 0),
        "more than 1 arrive at a barrier in one phase",
    ),
    "the producer waits for the other phase": (
        m.put("mbarrier_wait", 0, 1, lambda parity: parity ^ 1),
        hangs(r"\d+ of \d+ arrivals"),
    ),
}
# Products of what is in the slots.
MULTIPLIED = {
    "no wgmma.fence": (m.without("wgmma_fence", 0), REGISTERS),
    "wgmma.fence behind the products": (
        m.moved("wgmma_fence", 0, "wgmma_commit_group", 0),
        REGISTERS,
    ),
    "wgmma.fence for the first tile only": (
        m.moved("wgmma_fence", 0, "wgmma_encode_matrix_descriptor", 1),
        REGISTERS,
    ),
    "products are not committed": (m.without("wgmma_commit_group", 0), f"{EARLY}|{SUMS}"),
    "sums are not waited for": (m.without("wgmma_wait_group", -1), SUMS),
    "sums are waited for too late": (
        m.moved("wgmma_wait_group", -1, "warpgroup_sync", 1),
        SUMS,
    ),
}
PIXELS = "multiply_pixels(acc, left, matrix, STEPS, FILTERS)\n" + " " * 20  # of the stem
# Kernels that only wait for the kernel before.
DEPENDENT = {
    "no wait for the kernel before": (m.without("griddepcontrol", 1), KERNEL_BEFORE),
    "one thread waits for the kernel before": (
        m.under("griddepcontrol", 1, m.very_first_thread),
        rf"{KERNEL_BEFORE} by each thread, or by one and then a barrier",
    ),
}
# Kernels that keep rows of images in shared memory, and load a first matrix from there.
FEW_CHANNELS = {
    **DEPENDENT,
    "weights are not waited for": (m.without("mbarrier_wait", 0), BEFORE),
    "no sync behind the image": (m.without("cta_sync", 1), UNKNOWN),
    "sums are not waited for": (m.without("wgmma_wait_group", 0), SUMS),
}
# Slots that are handed back one round later.
HANDED = {
    "a slot is not waited for": (m.without("wgmma_wait_group", 0), EARLY),
    "a slot is handed back a round early": (m.put("wgmma_wait_group", 0, 0, 2), EARLY),
    "a slot is handed back before the wait": (
        m.moved("mbarrier_arrive", 0, "wgmma_wait_group", 0, before=True),
        EARLY,
    ),
    "the last slot is handed back before the wait": (
        m.moved("mbarrier_arrive", -1, "wgmma_wait_group", 1, before=True),
        EARLY,
    ),
    "a slot is not handed back": (
        m.without("mbarrier_arrive", 0),
        hangs(r"\d+ of \d+ arrivals"),
    ),
    "a slot is handed back twice": (
        m.twice("mbarrier_arrive", 0),
        rf"for ever|{EARLY}",
    ),
}
# The way of results through shared memory.
STORED = {
    "no fence in front of the store": (m.without("fence_proxy", 1), FENCE),
    "a fence of one thread": (m.under("fence_proxy", 1, m.first_thread), FENCE),
    "a fence before results are written": (
        m.moved("fence_proxy", 1, "warpgroup_sync", 0),
        FENCE,
    ),
    "no sync in front of the store": (m.without("warpgroup_sync", 1), SYNC),
    "a sync in front of what is written": (
        m.moved("warpgroup_sync", 1, "warpgroup_sync", 0),
        SYNC,
    ),
    "a sync with the other consumer's number": (
        m.put("warpgroup_sync", 1, 0, 1),
        "barrier 1 of the block is used by others, too",
    ),
    "a sync with the number of __syncthreads": (
        m.put("warpgroup_sync", 1, 0, 0),
        "barrier 0 of the block is used by others, too",
    ),
    "stores are not waited for before the next": (
        m.without("cp_async_bulk_wait_group", 0),
        READ,
    ),
    "all stores but one are waited for": (m.put("cp_async_bulk_wait_group", 0, 0, 1), READ),
    "another thread waits for the stores": (
        m.by_thread("cp_async_bulk_wait_group", 0, 1),
        READ,
    ),
    "stores are waited for behind the sync": (
        m.moved("cp_async_bulk_wait_group", 0, "warpgroup_sync", 0),
        READ,
    ),
    "no sync behind the wait for stores": (m.without("warpgroup_sync", 0), READ),
    "stores are not committed": (m.without("cp_async_bulk_commit_group", 0), READ),
    "the last stores are not waited for": (m.without("cp_async_bulk_wait_group", -1), ENDS),
}
# What matters most of these.
EACH_ROUND = {
    what: {**MULTIPLIED, **HANDED}[what]
    for what in (
        "no wgmma.fence",
        "products are not committed",
        "a slot is not waited for",
        "a slot is handed back before the wait",
    )
}
TAKEN_AND_STORED = {
    what: {**RING, **STORED}[what]
    for what in (
        "the producer takes full slots",
        "no fence in front of the store",
        "a fence of one thread",
        "no sync in front of the store",
        "stores are not waited for before the next",
        "another thread waits for the stores",
        "stores are not committed",
    )
}
OWN = {  # of one kernel each
    "one_tile": {
        "the tiles are not waited for": (m.without("mbarrier_wait", 0), BEFORE),
        "the tiles are waited for behind wgmma": (
            m.moved("mbarrier_wait", 0, "wgmma_commit_group", 0),
            BEFORE,
        ),
        "sums are not waited for": (m.without("wgmma_wait_group", 0), SUMS),
        "no wgmma.fence": (m.without("wgmma_fence", 0), REGISTERS),
    },
    "copy_boxes": {
        "no fence behind the reads": (m.without("fence_proxy", 1), UNFENCED),
        "neither a fence nor a barrier": (
            lambda kernel: m.without("cta_sync", 1)(m.without("fence_proxy", 1)(kernel)),
            r"TMA overwrites byte \d+ .* threads? ha(s|ve) read; missing: a barrier",
        ),
        "a fence of one thread": (m.under("fence_proxy", 1, m.very_first_thread), UNFENCED),
        "a fence in front of the reads": (m.moved("fence_proxy", 1, "mbarrier_wait", 0), UNFENCED),
        "no barrier behind the reads": (
            m.without("cta_sync", 1),
            r"TMA overwrites byte \d+ .* threads? ha(s|ve) read; missing: a barrier",
        ),
        "the box is not waited for": (
            m.without("mbarrier_wait", 0),
            r"a thread reads byte 0 of shared memory, which TMA brings; missing: a wait",
        ),
    },
    "stream": {
        "no fence behind the reads": (m.without("fence_proxy", 1), UNFENCED),
        "slots are not waited for": (
            m.without("mbarrier_wait", 1),
            r"a thread reads byte 0 of shared memory, which is empty; missing: a wait for a copy",
        ),
        "slots are waited for in the other phase": (
            m.put("mbarrier_wait", 1, 1, lambda parity: parity ^ 1),
            r"a thread reads byte 0 of shared memory, which TMA brings; missing: a wait",
        ),
        "a slot is handed back before it is read": (
            m.moved("mbarrier_arrive", 0, "mbarrier_wait", 1),
            r"TMA overwrites byte \d+ .* a thread has read; missing: a barrier between them",
        ),
        "one thread hands a slot back for all": (
            lambda kernel: m.put("mbarrier_init", 1, 1, 1)(
                m.under("mbarrier_arrive", 0, m.first_consumer)(kernel)
            ),
            r"TMA overwrites byte \d+ .* a thread has read; missing: a barrier between them",
        ),
    },
    "stream_by_threads": {
        "no sync behind the barriers": SYNCED["no sync behind the barriers"],
        "the producers take full slots": (
            m.without("mbarrier_wait", 0),
            r"a thread overwrites byte 0 .* which cp\.async brings; missing: a wait",
        ),
        "copies that no barrier is told of": (
            m.without("cp_async_mbarrier_arrive", 0),
            hangs("128 of 128 arrivals"),
        ),
        "slots are not waited for": (
            m.without("mbarrier_wait", 1),
            r"a thread reads byte 0 of shared memory, which is empty; missing: a wait for a copy",
        ),
        "a slot is handed back before it is read": (
            m.moved("mbarrier_arrive", 0, "mbarrier_wait", 1),
            r"a thread overwrites byte \d+ .* a thread has read; missing: a barrier between",
        ),
    },
    "product": {
        "tiles are not waited for": (m.without("mbarrier_wait", 1), BEFORE),
        "tiles are waited for in the other phase": (
            m.put("mbarrier_wait", 1, 1, lambda parity: parity ^ 1),
            BEFORE,
        ),
        "bytes of one of two boxes are expected": (
            m.put("mbarrier_arrive_expect_tx", 0, 1, 128 * 64 * 2),
            hangs("expect_tx of 8192 bytes"),
        ),
        "one consumer is enough to hand back": (m.put("mbarrier_init", 1, 1, 1), "for ever"),
        "no wait for the kernel before": (
            m.without("griddepcontrol", 1),
            r"TMA is asked before griddepcontrol\.wait",
        ),
    },
    "on_demand": {
        "an answer is not waited for": (
            m.without("mbarrier_wait", 3),
            r"a thread reads byte \d+ .* (is empty|a thread has written); missing: a",
        ),
        "an answer is overwritten": (
            m.without("mbarrier_wait", 1),
            r"a thread overwrites byte \d+ .* threads? ha(s|ve) read; missing: a barrier",
        ),
        "an answer is told of before it is written": (
            m.moved("mbarrier_arrive", 0, "mbarrier_wait", 1),
            r"a thread reads byte \d+ .* (is empty|a thread has written); missing: a",
        ),
        "an answer is handed back before it is read": (
            m.moved("mbarrier_arrive", 3, "mbarrier_wait", 3),
            r"a thread overwrites byte \d+ .* threads? ha(s|ve) read; missing: a barrier",
        ),
    },
    "float32": {
        "one half is collected while it is multiplied": (
            m.put("wgmma_wait_group", 0, 0, 2),
            SUMS,
        ),
        "the slot is handed back before the other half": (
            m.moved("mbarrier_arrive", 0, "wgmma_wait_group", 1, before=True),
            EARLY,
        ),
        "the first half is not committed": (m.without("wgmma_commit_group", 0), SUMS),
    },
    "residual": {
        "it is not waited for": (
            m.without("mbarrier_wait", 2),
            r"a thread reads byte \d+ .* TMA brings; missing: a wait at the mbarrier",
        ),
        "it is fetched over what TMA stores": (
            m.without("cp_async_bulk_wait_group", 0),
            r"TMA overwrites byte \d+ .* TMA stores; missing: cp\.async\.bulk\.wait_group",
        ),
        "it is not expected": (
            m.without("mbarrier_arrive_expect_tx", 1),
            hangs(r"1 of 1 arrivals, expect_tx of \d+ bytes|2 of 2"),
        ),
        "no fence before it is fetched over what was written": (
            m.without("fence_proxy", 1),
            r"TMA (overwrites|stores) byte \d+ .* a thread has written; missing: fence",
        ),
        "it is used before the kernel before has ended": (
            m.moved("griddepcontrol", 1, "cp_async_bulk_wait_group", -1),
            r"by_channel is used before griddepcontrol\.wait",
        ),
        "no sync between biases and results": (
            m.without("warpgroup_sync", 0),
            r"a thread reads byte \d+ .* a thread has written; missing: a barrier",
        ),
    },
    "biases": {
        "they are written over what is read for the tile before": (
            m.without("warpgroup_sync", 0),
            r"a thread overwrites byte \d+ .* threads have read; missing: a barrier",
        ),
        "they are read before they are written": (
            m.without("warpgroup_sync", 1),
            r"a thread reads byte \d+ .* a thread has written; missing: a barrier",
        ),
    },
    "cut": {
        "no sync before parts are counted": (
            m.without("warpgroup_sync", 0),
            "parts are counted; missing: a barrier between them",
        ),
        "parts are not waited for": (
            m.without("func_call", 0),
            "reads parts of other blocks; missing: await_parts",
        ),
        "no sync behind the wait for parts": (
            m.without("warpgroup_sync", 1),
            "reads parts of other blocks; missing: a barrier between them",
        ),
        "nobody leaves": (m.without("func_call", 1), "leaves its counters of parts at"),
    },
    "cluster": {
        "no sync of the cluster behind the barriers": (
            m.without("cluster_sync", 0),
            INITIALIZED,
        ),
        "a sync of the block behind the barriers": (
            m.instead("cluster_sync", 0, "cuda.cta_sync"),
            INITIALIZED,
        ),
        "a slot is handed back before the wait": (
            m.without("wgmma_wait_group", 0),
            EARLY,
        ),
        "a block ends too early": (
            m.without("cluster_sync", 1),
            "a block ends while others may use its memory; missing: a cluster's sync",
        ),
    },
    "turns": {
        "the producer is not waited for": (m.without("mbarrier_wait", 2), BEFORE),
        # What the other one multiplies has not all come, and a wait for what its slot holds next
        # ends at once: a parity tells a phase from the one before, and not from two before.
        "a consumer does not wait for its turn": (
            m.without("mbarrier_wait", 1),
            "more than 1 arrive at a barrier in one phase; before that, " + BEFORE,
        ),
        "a turn is not passed on": (m.without("mbarrier_arrive", 1), hangs("1 of 1 arrivals")),
    },
    "abreast": {
        "a sync of the block behind the barriers": (
            m.instead("cluster_sync", 0, "cuda.cta_sync"),
            INITIALIZED,
        ),
        "a slot is handed back before the wait": (m.without("wgmma_wait_group", 0), EARLY),
        "a slot is handed back a round early": (m.put("wgmma_wait_group", 0, 0, 2), EARLY),
        "a slot is not handed back": (
            m.without("mbarrier_arrive_nocount", 0),
            hangs(r"\d+ of 4 arrivals"),
        ),
        "a slot is handed back twice": (
            m.twice("mbarrier_arrive_nocount", 0),
            TOO_SOON,
        ),
        "arrivals of one block hand back": (
            m.put("mbarrier_init", 1, 1, 2),
            TOO_SOON,
        ),
        "a block ends too early": (
            m.without("cluster_sync", 1),
            "a block ends while others may use its memory; missing: a cluster's sync",
        ),
    },
    "distributed": {
        "others' sums are not waited for": (
            m.without("cluster_sync", 1),
            r"a thread reads byte \d+ .* (is empty|a thread has written); missing: a",
        ),
        "only the warpgroup waits for others' sums": (
            m.instead("cluster_sync", 1, "cuda.warp_sync"),
            r"a thread reads byte \d+ .* (is empty|a thread has written); missing: a",
        ),
        "a block ends while others read its sums": (
            m.without("cluster_sync", 2),
            "a block ends while others may use its memory; missing: a cluster's sync",
        ),
        "a slot is handed back a round early": (m.put("wgmma_wait_group", 0, 0, 2), EARLY),
        "the last sums are not waited for": (m.put("wgmma_wait_group", 1, 0, 1), SUMS),
    },
    "split": {
        "no fence behind the first pieces": (m.without("fence_proxy", 1), SPLIT_FENCE),
        "no fence behind the other pieces": (m.without("fence_proxy", 2), SPLIT_FENCE),
        "a fence before pieces are written": (
            m.moved("fence_proxy", 2, "warp_sync", 1),
            SPLIT_FENCE,
        ),
        "a fence of one thread": (m.under("fence_proxy", 2, m.very_first_thread), SPLIT_FENCE),
        "no sync behind the pieces": (m.without("warpgroup_sync", 3), SPLIT_SYNC),
        "a row is overwritten while it is read": (m.without("warp_sync", 1), UNKNOWN),
        "a slot is not waited for": (
            m.without("mbarrier_wait", 1),
            r"a thread reads byte 0 of shared memory, which is empty; missing: a wait for a copy",
        ),
        "slots are waited for in the other phase": (
            m.put("mbarrier_wait", 2, 1, lambda parity: parity ^ 1),
            hangs("2 of 2 arrivals"),
        ),
        "a slot is handed back before its products": (
            m.moved("mbarrier_arrive", 0, "wgmma_wait_group", 0, before=True),
            EARLY,
        ),
        "sums are collected a slot early": (m.put("wgmma_wait_group", 0, 0, 1), SUMS),
        "no wgmma.fence behind what was collected": (m.without("wgmma_fence", 0), REGISTERS),
        "values are overwritten while they are read": (m.without("warpgroup_sync", 0), UNKNOWN),
    },
    "boxes": {
        "no wait for the kernel before": DEPENDENT["no wait for the kernel before"],
        "the bias is added before the sums are there": (
            m.put("wgmma_wait_group", 1, 0, 1),
            SUMS,
        ),
        "bytes of one of two boxes are expected": (
            m.put("mbarrier_arrive_expect_tx", 0, 1, 128 * 64 * 2),
            hangs(r"expect_tx of \d+ bytes"),
        ),
    },
    "stem": {
        **FEW_CHANNELS,
        "weights are waited for in the other phase": (
            m.put("mbarrier_wait", 0, 1, 1),
            BEFORE,
        ),
        "no sync between convolution and pool": (m.without("cta_sync", 2), UNKNOWN),
        "no sync behind the pool": (m.without("cta_sync", 3), UNKNOWN),
        "wgmma.fence before pixels are loaded": (m.moved("wgmma_fence", 0, "cta_sync", 1), MATRIX),
        "pixels are overwritten while products read them": (
            lambda _: changed(stem.stem, (PIXELS, PIXELS + "left[0] = T.uint32(0)\n" + " " * 20))(
                *STEM
            ),
            r"a thread uses registers that wgmma reads; missing: wgmma\.wait_group before that",
        ),
    },
    "rows": {
        **FEW_CHANNELS,
        "no sync before rows are overwritten": (m.without("cta_sync", 2), UNKNOWN),
        "no sync behind the rows that come next": (m.without("cta_sync", 3), UNKNOWN),
        "no sync of a warp before its tile is read": (m.without("warp_sync", 0), UNKNOWN),
        "no sync of a warp before its tile is overwritten": (m.without("warp_sync", 1), UNKNOWN),
    },
    "depthwise": DEPENDENT,
    "max_pool": DEPENDENT,
    "mean_pool": DEPENDENT,
}


# What kernels do alike, by the same inline functions, one of them does for all.
MUTANTS = {
    "one_tile": {**FED, **SYNCED},
    "stream": {**FED, **SYNCED, **RING},
    "product": {**FED, **SYNCED, **RING, **MULTIPLIED, **HANDED, **STORED},
    "implicit": {**MULTIPLIED, **HANDED},
    "on_demand": {"no sync behind the barriers": SYNCED["no sync behind the barriers"], **RING},
    "float32": {**RING, **STORED},
    "any_shape": {**RING, **MULTIPLIED, **HANDED, **STORED},
    "cluster": {**FED},
    "turns": {**RING},
    "bricks": TAKEN_AND_STORED,
    "abreast": {**FED, **TAKEN_AND_STORED},
    "split": {**RING},
    "tf32": {**FED, **RING, **EACH_ROUND},
    "boxes": {**EACH_ROUND, **TAKEN_AND_STORED},
    "stem": {**FED, **SYNCED},
    "rows": {**FED, **SYNCED},
}
OWN = {name: OWN.get(name, {}) for name in KERNELS}
for name, mutants in OWN.items():
    MUTANTS[name] = MUTANTS.get(name, {}) | mutants


def broken():
    """Parameters of a test. What is like the product's is left out by `make quick`."""
    for name, mutants in MUTANTS.items():
        for what, mutant in mutants.items():
            again = name != "product" and what not in OWN[name]
            marks = [pytest.mark.slow] if again else []
            yield pytest.param(name, *mutant, id=f"{name}: {what}", marks=marks)


@pytest.mark.quick(6)
@pytest.mark.parametrize(("name", "change", "message"), broken())
def test_a_mutant_is_caught(name, change, message):
    with pytest.raises(SynchronizationError, match=message) as caught:
        emulated(name, change)
    assert "\n" not in str(caught.value)


# What PTX allows, and why.
EQUIVALENT = [
    pytest.param(
        "product",
        m.moved("fence_proxy", 1, "warpgroup_sync", 1),
        id="product: the fence behind the sync, which is still on the way from writes to TMA",
    ),
    pytest.param(
        "product",
        m.instead(
            "fence_proxy", 0, "ptx.fence_mbarrier_init", "mbarrier_init", "release", "cluster", ""
        ),
        id="product: fence.mbarrier_init, which CUTLASS has for barriers, and a sync",
    ),
    pytest.param(
        "product",
        m.under("wgmma_fence", 0, m.first_round),
        id="product: wgmma.fence in the first round only: sums of one shape are in order",
    ),
    pytest.param(
        "float32",
        m.without("wgmma_fence", 1),
        id="float32: no second wgmma.fence: no thread uses registers behind the first",
    ),
    pytest.param(
        "residual",
        m.without("cp_async_bulk_wait_group", 1),
        id="residual: no second wait for stores: who fetched the residual has waited",
    ),
    pytest.param(
        "cut",
        m.without("warpgroup_sync", 2),
        id="cut: no sync before a part is left: it only counts, and parts are used once",
    ),
    pytest.param(
        "cut",
        m.without("cp_async_bulk_wait_group", -1),
        id="cut: no wait for stores at the end: all results come from registers",
    ),
    pytest.param(
        "copy_boxes",
        m.moved("fence_proxy", 1, "cta_sync", 1),
        id="copy_boxes: the fence behind the barrier, which is still on the way from reads to TMA",
    ),
    pytest.param(
        "residual",
        m.without("warp_sync", 0),
        id="residual: no sync of the warp: the same lanes of it read a row and write it",
    ),
    pytest.param(
        "split",
        m.without("warpgroup_sync", 1),
        id="split: no sync behind the values: two more come before they are read",
    ),
    pytest.param(
        "distributed",
        m.without("mbarrier_arrive", 1),
        id="distributed: the last slot is not handed back: a block has one tile, nobody waits",
    ),
    pytest.param(
        "stem",
        lambda kernel: m.moved("griddepcontrol", 1, "cta_sync", 0, before=True)(
            m.under("griddepcontrol", 1, m.very_first_thread)(kernel)
        ),
        id="stem: one thread waits for the kernel before, and then all meet",
    ),
    pytest.param(
        "stream_by_threads",
        m.without("cp_async_wait_all", 0),
        id="stream_by_threads: no cp.async.wait_all: barriers were told, and waited for",
    ),
]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("name", "change"), EQUIVALENT)
def test_what_ptx_allows(name, change):
    *_, want = emulated(name)
    *_, result = emulated(name, change)
    np.testing.assert_array_equal(result, want)


@pytest.mark.slow
def test_what_is_wrong_is_known_though_the_result_is_right():
    """It takes no luck: a fence that is missing does not change what the emulator computes."""
    *_, want = emulated("product")
    kernel, (a, b, c) = lowered("product")
    c = c.copy()
    with pytest.raises(OrderError, match=FENCE):
        d2ltvm.emulate(m.without("fence_proxy", 1)(kernel), a, b, c)
    np.testing.assert_array_equal(c, want)


def test_there_are_many():
    assert sum(map(len, MUTANTS.values())) > 150
    assert len({what for mutants in MUTANTS.values() for what in mutants}) > 50
