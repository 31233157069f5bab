"""The kernels that a page runs on its reader's GPU: which of a chapter's schedules, at what sizes.

Data alone; `kernels` compiles it. Each kernel is a schedule of the package by its name. Sizes go
from one that a processor computes at once to one that keeps a laptop's GPU busy for some
milliseconds. Where the book's H200 has run the same kernel, its record is named.
"""

from dataclasses import dataclass, field
from typing import Any

from d2ltvm.explore.operations import Size


@dataclass(frozen=True)
class Recorded:
    """A speed of the H200: a measurement, a legend, a place on the x axis.

    `size` is that of the kernel, where the x axis does not say it.
    """

    measurement: str
    legend: str
    x: Any
    size: Size | None = None


@dataclass(frozen=True)
class Variant:
    """One of the choices that a chapter discusses: options of the schedule, and the record."""

    label: str
    options: dict[str, Any] = field(default_factory=dict)
    record: Recorded | None = None


@dataclass(frozen=True)
class PageKernel:
    """A kernel with a button.

    What the reader predicts follows from it. With several variants: which is the fastest. With
    `against`, the name of another kernel: how many times as fast as that it is. Else: what share of
    the GPU's own ceiling it reaches.

    `note` says what differs from the chapter's kernel by our choice; what WGSL makes different is
    found when it is compiled.
    """

    name: str
    chapter: str
    title: str
    schedule: str
    computes: str
    sizes: tuple[Size, ...]
    variants: tuple[Variant, ...]
    against: str = ""
    note: str = ""


def _one(record: Recorded | None = None, **options: Any) -> tuple[Variant, ...]:
    return (Variant("", options, record),)


VECTORS = ((2**16,), (2**20,), (2**24,))
ODD_VECTORS = ((2**16 + 3,), (2**20 + 3,), (2**24 + 3,))
MATRICES = ((256,), (1024,), (4096,))
SQUARES = ((256,), (1024,), (2048,))
PRODUCTS = ((128,) * 3, (512,) * 3, (1024,) * 3)
CONVOLUTIONS = ((16, 16, 64, 3, 1, 1), (64, 64, 64, 3, 1, 1), (128, 128, 64, 3, 1, 1))
BATCHES = ((64, 64, 16, 7, 3, 1, 1), (64, 128, 64, 14, 3, 1, 1))
TILED_BATCHES = ((128, 128, 8, 4, 3, 1, 1), (128, 128, 64, 14, 3, 1, 1))

DEPTHWISE = ((1, 128, 28, 3, 1, 1), (8, 128, 56, 3, 1, 1), (32, 128, 56, 3, 1, 1))
POOLINGS = ((1, 64, 56, 3, 1, 2), (4, 64, 112, 3, 1, 2), (16, 64, 112, 3, 1, 2))
ROWS = ((256, 256), (4096, 1024), (16384, 1024))
IMAGES = ((32, 56, 3, 1, 1), (128, 112, 3, 1, 1), (1024, 112, 3, 1, 1))
NORMS = ((32, 56), (128, 112), (1024, 112))
PIXELS = ((4 * 56 * 56, 64), (16 * 56 * 56, 64), (64 * 56 * 56, 64))

FEWER_THREADS = "Blocks of 16 × 16 threads, not 32 × 32: WebGPU guarantees 256."
SHALLOW = "A round takes {} along k, not 16: WebGPU guarantees 16 KB of shared memory a block."
SINGLE = "Numbers are float32; the book's are float16, which not every device with WebGPU has"
FOUR = f"{SINGLE}. 16 bytes are four numbers then."
TREE = "Threads add up in shared memory: WGSL has no shuffles that every device offers."


def _add(legend: str) -> Recorded:
    return Recorded("vector_add/bandwidth", legend, 2**24)


def _bcast(legend: str) -> Recorded:
    return Recorded("broadcast_add/bandwidth", legend, 4096)


def _moved(legend: str) -> Recorded:
    return Recorded("seeing_memory/transpose", legend, 8192)


def _rows(measurement: str, legend: str) -> Recorded:
    return Recorded(f"reductions/{measurement}", legend, "8192 x 8192", (8192, 8192))


def _step(legend: str) -> Recorded:
    return Recorded("matmul/steps", legend, 4096)


START = "start/first_kernel"
MACHINE = "machine/gpu_in_numbers"
UNDER_WAY = "machine/under_way"
ADD = "elementwise/vector_add"
BLOCKS = "elementwise/block_starts"
BROADCAST = "elementwise/broadcast_add"
SEEING = "memory/seeing_memory"
TRANSPOSE = "memory/transpose"
PRODUCT = "memory/matmul"
OPERANDS = "memory/register_banks"
BEYOND = "memory/matmul_cublas"
OPERATORS = "convolution/operators"
POOLING = "convolution/pooling"
SUMS = "reductions/sums"
SOFTMAX = "reductions/softmax"

BY_ROWS = tuple(
    Variant(f"{rows} row{'s' * (rows > 1)}", {"rows": rows, "nt": 224}) for rows in (1, 2, 4, 8)
)

KERNELS = (
    PageKernel(
        "first_kernel", START, "Vector add, one element a thread", "one_thread_each", "add",
        ((1000,), *VECTORS[1:]),
        tuple(Variant(f"{nt} threads a block", {"nt": nt}) for nt in (32, 64, 256)),
    ),
    PageKernel(
        "copy_width", MACHINE, "Copy, by how much a thread takes", "copy_unrolled", "copy", VECTORS,
        tuple(
            Variant(f"{steps} × {width} elements", {"width": width, "steps": steps}, record)
            for width, steps, record in (
                (1, 1, None), (4, 1, None),
                (4, 2, Recorded("gpu_in_numbers/copy", "TVM", 2**24)), (4, 4, None),
            )
        ),
    ),
    PageKernel(
        "launch", MACHINE, "Copy of a single number", "copy_unrolled", "copy", ((1,),), _one(),
    ),
    PageKernel(
        "multiply_add", UNDER_WAY, "Multiply-adds and nearly nothing else", "fma_kernel",
        "multiply-add", ((16, 256, 64), (256, 256, 1024), (1024, 256, 1024)),
        tuple(
            Variant(
                f"{chains} chain{'s' * (chains > 1)} a thread", {"chains": chains},
                Recorded(
                    "gpu_in_numbers/fma_chains", f"{chains} chain{'s' * (chains > 1)} a thread", 64,
                    (264, 1024, 2**16),
                ),
            )
            for chains in (1, 2, 4)
        ),
    ),
    PageKernel(
        "add_one", ADD, "Vector add, one element a thread", "one_thread_each", "add", VECTORS,
        _one(_add("one element a thread")),
    ),
    PageKernel(
        "add_four", ADD, "Vector add, four elements a thread", "vectorized", "add", VECTORS,
        _one(_add("four")), against="add_one",
    ),
    PageKernel(
        "add_twice_four", ADD, "Vector add, twice four elements a thread", "unrolled", "add",
        VECTORS, _one(_add("twice four")), against="add_one",
    ),
    PageKernel(
        "add_threads", BLOCKS, "Vector add, by threads in a block", "vectorized", "add", VECTORS,
        tuple(
            Variant(
                f"{nt} threads a block", {"nt": nt},
                Recorded("vector_add/block_size", "2^24", nt, (2**24,)),
            )
            for nt in (32, 64, 128, 256)
        ),
    ),
    PageKernel(
        "add_partitioned", ADD, "Vector add, three elements too many", "partitioned", "add",
        ODD_VECTORS, _one(Recorded("vector_add/tail", "guard kept out", 2**24 + 3)),
        against="add_guarded",
    ),
    PageKernel(
        "add_guarded", ADD, "Vector add, three too many, a guard for each", "unrolled", "add",
        ODD_VECTORS, _one(Recorded("vector_add/tail", "twice four", 2**24 + 3)),
    ),
    PageKernel(
        "bcast_continuous", BROADCAST, "Broadcast add, continuous", "continuous_parallel",
        "broadcast", MATRICES, _one(_bcast("continuous")),
    ),
    PageKernel(
        "bcast_alternate", BROADCAST, "Broadcast add, alternate", "alternate_parallel",
        "broadcast", MATRICES, _one(_bcast("alternate")), against="bcast_continuous",
    ),
    PageKernel(
        "bcast_blocks", BROADCAST, "Broadcast add, alternate, by blocks", "alternate_parallel",
        "broadcast", MATRICES,
        tuple(
            Variant(
                f"{nb:,} blocks", {"nb": nb, "nt": 256},
                Recorded("broadcast_add/blocks", "nt = 256", nb, (8192,)),
            )
            for nb in (256, 1024, 4096, 8192)
        ),
    ),
    PageKernel(
        "bcast_wide", BROADCAST, "Broadcast add, four elements a thread", "bcast_vectorized",
        "broadcast", MATRICES, _one(_bcast("wide")), against="bcast_alternate",
    ),
    PageKernel(
        "bcast_rows", BROADCAST, "Broadcast add, two rows a thread", "bcast_rows", "broadcast",
        ((1024,), (2048,), (4096,)), _one(_bcast("wide, two rows")), against="bcast_wide",
    ),
    PageKernel(
        "strided", SEEING, "Every s-th element", "strided", "every",
        ((2**14,), (2**18,), (2**20,)),
        tuple(
            Variant(
                f"stride {stride}", {"stride": stride, "nt": 256},
                Recorded("seeing_memory/stride", "every s-th element", stride, (2**24,)),
            )
            for stride in (1, 2, 8, 32)
        ),
    ),
    PageKernel(
        "transpose_direct", TRANSPOSE, "Transpose, directly", "transpose", "transpose", SQUARES,
        _one(_moved("direct"), shared=False),
    ),
    PageKernel(
        "transpose_tile", TRANSPOSE, "Transpose, by way of a tile", "transpose", "transpose",
        SQUARES,
        _one(_moved("by way of a tile")), against="transpose_direct",
    ),
    PageKernel(
        "transpose_shape", TRANSPOSE, "Transpose, a warp writes 4 rows of 8", "transpose",
        "transpose",
        SQUARES, _one(_moved("4 rows of 8"), lanes=(4, 8)), against="transpose_tile",
    ),
    PageKernel(
        "transpose_padded", TRANSPOSE, "Transpose, by the tile's padding", "transpose", "transpose",
        SQUARES,
        (
            Variant("no padding", {"pad": 0}, _moved("by way of a tile")),
            Variant("padded by 1", {"pad": 1}, _moved("padded")),
            Variant("padded by 2", {"pad": 2}),
            Variant("padded by 16", {"pad": 16}),
        ),
    ),
    PageKernel(
        "transpose_swizzled", TRANSPOSE, "Transpose, a swizzled tile", "swizzled", "transpose",
        SQUARES, _one(_moved("swizzled")), against="transpose_tile",
    ),
    PageKernel(
        "matmul_naive", PRODUCT, "Product, neighbours in neighbouring rows", "matmul_naive",
        "product", PRODUCTS, _one(_step("naive"), nt=16), note=FEWER_THREADS,
    ),
    PageKernel(
        "matmul_coalesced", PRODUCT, "Product, coalesced", "matmul_coalesced", "product", PRODUCTS,
        _one(_step("coalesced"), nt=16), against="matmul_naive", note=FEWER_THREADS,
    ),
    PageKernel(
        "matmul_shared", PRODUCT, "Product, tiles in shared memory", "matmul_shared", "product",
        PRODUCTS, _one(_step("shared tiles"), nt=16), against="matmul_coalesced",
        note=FEWER_THREADS,
    ),
    PageKernel(
        "matmul_tiled", PRODUCT, "Product, tiles in registers", "matmul_tiled", "product", PRODUCTS,
        _one(_step("register tiles")), against="matmul_shared",
    ),
    PageKernel(
        "matmul_tiles", PRODUCT, "Product, by elements of a thread", "matmul_tiled", "product",
        PRODUCTS,
        (
            Variant("2 × 2", {"rows": (1, 1, 16, 2), "columns": (1, 1, 16, 2)}),
            Variant("4 × 4", {"rows": (1, 1, 16, 4), "columns": (1, 1, 16, 4)}),
            Variant("8 × 8", {}, _step("register tiles")),
            Variant("16 × 8", {"rows": (1, 1, 8, 16), "columns": (1, 1, 16, 8)}),
        ),
    ),
    PageKernel(
        "matmul_unrolled", OPERANDS, "Product, unrolled", "matmul_tiled", "product", PRODUCTS,
        _one(_step("unrolled"), unroll=True), against="matmul_tiled",
    ),
    PageKernel(
        "matmul_vthread", OPERANDS, "Product, virtual threads", "matmul_vthread", "product",
        PRODUCTS, _one(_step("virtual threads")), against="matmul_unrolled",
    ),
    PageKernel(
        "matmul_padded", OPERANDS, "Product, turned and padded", "matmul_vthread", "product",
        PRODUCTS, _one(_step("padded"), wide=True, align=4, depth=8), against="matmul_turned",
        note=SHALLOW.format(8),
    ),
    PageKernel(
        "matmul_turned", OPERANDS, "Product, turned", "matmul_vthread", "product", PRODUCTS,
        _one(_step("turned, virtual threads"), wide=True), against="matmul_vthread",
    ),
    PageKernel(
        "matmul_double", BEYOND, "Product, double buffering", "matmul_vthread", "product",
        PRODUCTS,
        _one(
            _step("double buffering"), wide=True, stages=2, scope="shared.dyn", align=4, depth=4
        ),
        against="matmul_padded", note=SHALLOW.format(4),
    ),
    PageKernel(
        "matmul_warps", BEYOND, "Product, tiles of warps", "matmul_warps", "product", PRODUCTS,
        _one(_step("warp tiles"), depth=4), against="matmul_double", note=SHALLOW.format(4),
    ),
    PageKernel(
        "conv_default", "convolution/on_the_gpu", "Convolution, a row a block", "default_sch",
        "convolution", CONVOLUTIONS, _one(Recorded("conv/steps", "default", 64)),
    ),
    PageKernel(
        "conv_tiling", "convolution/tiling", "Convolution, tiled", "tiling", "convolution",
        CONVOLUTIONS, _one(Recorded("conv/steps", "tiling", 64)), against="conv_default",
    ),
    PageKernel(
        "conv_conflicts", "convolution/bank_conflicts", "Convolution, by how kernels are read",
        "conv_tiled", "convolution", CONVOLUTIONS,
        tuple(
            Variant(
                label,
                {"tile_c": (1, 4, 8), "tile_h": (1, 2, 2), "tile_w": across, read: (1, 3)},
                Recorded("conv/cases", label, 64),
            )
            for label, across, read in (
                ("rows", (1, 16, 4), "tile_rw"),
                ("columns", (1, 16, 4), "tile_rh"),
                ("virtual threads", (2, 16, 2), "tile_rh"),
            )
        ),
    ),
    PageKernel(
        "conv_vthreads", "convolution/virtual_threads", "Convolution, by virtual threads across",
        "conv_tiled", "convolution", CONVOLUTIONS,
        tuple(
            Variant(
                f"{virtual} virtual",
                {
                    "tile_c": (1, 4, 8), "tile_h": (1, 2, 2),
                    "tile_w": (virtual, 16, 4 // virtual), "tile_rh": (1, 3),
                },
                Recorded("conv/vthreads", f"{virtual} virtual", 64),
            )
            for virtual in (1, 2, 4)
        ),
    ),
    PageKernel(
        "conv_vthread", "convolution/split_sum", "Convolution, virtual threads", "vthread",
        "convolution", CONVOLUTIONS, _one(Recorded("conv/sweep", "virtual threads", 64)),
    ),
    PageKernel(
        "conv_split", "convolution/split_sum", "Convolution, the sum split among groups",
        "conv_split", "convolution", CONVOLUTIONS,
        _one(Recorded("conv/steps", "split reduction", 64), parts=4, rows=2, channels=4, depth=1),
        against="conv_vthread",
        note="4 groups of 64 threads with 4 × 2 sums a thread, not 8 groups with 8 × 4: WebGPU "
        "guarantees 256 threads and 16 KB of shared memory a block.",
    ),
    PageKernel(
        "conv_groups", "convolution/all_sizes", "Convolution, by the groups that share a sum",
        "conv_split", "convolution", CONVOLUTIONS,
        tuple(
            Variant(f"{parts} groups", {"parts": parts, "rows": 2, "channels": 4, "depth": 1})
            for parts in (2, 4)
        ),
        note="Groups of 64 threads with 4 × 2 sums a thread: WebGPU guarantees 256 threads and "
        "16 KB of shared memory a block.",
    ),
    PageKernel(
        "depthwise_strips", "convolution/depthwise", "Depthwise convolution, by what a thread has",
        "depthwise_strips", "depthwise", DEPTHWISE,
        tuple(
            Variant(
                label, {"width": width, "strip": (rows, 1), "block": block, "half": False},
            )
            for label, width, rows, block in (
                ("one channel", 1, 1, (1, 7, 32)), ("four channels", 4, 1, (1, 28, 8)),
                ("four, 2 rows", 4, 2, (1, 28, 8)), ("four, 7 rows", 4, 7, (1, 28, 8)),
            )
        ),
        note=FOUR,
    ),
    PageKernel(
        "pool_strips", POOLING, "Max pooling, by the rows of a thread",
        "pool_strips", "pooling", POOLINGS,
        tuple(
            Variant(label, {"width": 4, "strip": (rows, 1), "block": (1, 28, 8), "half": False})
            for label, rows in (("one row", 1), ("2 rows", 2), ("4 rows", 4))
        ),
        note=FOUR,
    ),
    PageKernel(
        "batch_norm_pixels", POOLING, "Batch norm and ReLU, by the pixels of a thread",
        "batch_norm_pixels", "batch norm", PIXELS,
        tuple(
            Variant(
                f"{each} pixel{'s' * (each > 1)}",
                {"each": each, "block": (32, 8), "width": 4, "half": False},
            )
            for each in (1, 2, 4, 8)
        ),
        note=FOUR,
    ),
    PageKernel(
        "depthwise_rows", OPERATORS, "Depthwise convolution, channels first, by a thread's rows",
        "depthwise_rows", "depthwise, channels first", IMAGES,
        BY_ROWS,
    ),
    PageKernel(
        "pool_rows", OPERATORS, "Max pooling, channels first, by the rows of a thread",
        "pool_rows", "pooling, channels first", IMAGES,
        BY_ROWS,
    ),
    PageKernel(
        "batch_norm_flat", OPERATORS, "Batch norm, channels first, an element a thread",
        "batch_norm_flat", "batch norm, channels first", NORMS, _one(nt=256),
        note="Blocks of 256 threads, not 1,024: WebGPU guarantees 256.",
    ),
    PageKernel(
        "sum_a_thread", SUMS, "Sums of rows, a thread for each", "sum_a_thread", "row sum", ROWS,
        _one(_rows("sums", "a thread a row"), dtype="float32"), note=f"{SINGLE}.",
    ),
    PageKernel(
        "sum_a_block", SUMS, "Sums of rows, a block for each", "sum_a_block", "row sum", ROWS,
        _one(_rows("sums", "a block a row"), dtype="float32"), against="sum_a_thread",
        note=f"{SINGLE}. {TREE}",
    ),
    PageKernel(
        "sum_wide", SUMS, "Sums of rows, 16 bytes at a time", "sum_wide", "row sum", ROWS,
        _one(_rows("sums", "16 bytes"), dtype="float32", width=4), against="sum_a_block",
        note=f"{FOUR} {TREE}",
    ),
    PageKernel(
        "softmax_passes", SOFTMAX, "Softmax, three passes", "softmax_passes", "softmax", ROWS,
        _one(_rows("softmax", "three passes"), dtype="float32", nt=64, width=4),
        note=f"{FOUR} {TREE}",
    ),
    PageKernel(
        "softmax_online", SOFTMAX, "Softmax, two passes", "softmax_online", "softmax", ROWS,
        _one(_rows("softmax", "two passes"), dtype="float32", nt=64, width=4),
        against="softmax_passes", note=f"{FOUR} {TREE}",
    ),
    PageKernel(
        "softmax_held", SOFTMAX, "Softmax, kept in registers", "softmax_held", "softmax", ROWS,
        _one(_rows("softmax", "in registers"), dtype="float32", nt=64, width=4),
        against="softmax_online", note=f"{FOUR} {TREE}",
    ),
    PageKernel(
        "layer_norm_passes", SOFTMAX, "Layer norm, three passes", "layer_norm_passes",
        "layer norm", ROWS,
        _one(_rows("layer_norm", "three passes"), dtype="float32", nt=64, width=4),
        note=f"{FOUR} {TREE}",
    ),
    PageKernel(
        "layer_norm_welford", SOFTMAX, "Layer norm, two passes", "layer_norm_welford",
        "layer norm", ROWS,
        _one(_rows("layer_norm", "two passes"), dtype="float32", nt=64, width=4),
        against="layer_norm_passes", note=f"{FOUR} {TREE}",
    ),
    PageKernel(
        "layer_norm_held", SOFTMAX, "Layer norm, kept in registers", "layer_norm_held",
        "layer norm", ROWS,
        _one(_rows("layer_norm", "in registers"), dtype="float32", nt=64, width=4),
        against="layer_norm_welford", note=f"{FOUR} {TREE}",
    ),
    PageKernel(
        "hwcn_blocks", "batched/hwcn", "Convolution of a batch, the tutorial's", "hwcn_blocks",
        "batch", BATCHES, _one(Recorded("batched/hwcn", "tutorial", 256)),
    ),
    PageKernel(
        "hwcn_tiled", "batched/hwcn", "Convolution of a batch, 128 × 128 a block", "hwcn_tiled",
        "batch", TILED_BATCHES,
        (
            Variant(
                "one stage", {"depth": 8, "stages": 1}, Recorded("batched/hwcn", "128 x 128", 256)
            ),
            Variant(
                "two stages", {"depth": 8, "stages": 2}, Recorded("batched/hwcn", "two stages", 256)
            ),
        ),
    ),
)  # fmt: skip

BY_NAME = {kernel.name: kernel for kernel in KERNELS}
