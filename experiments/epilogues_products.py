"""Products with epilogues, beside cuBLAS's product and its fused calls.

    python experiments/epilogues_products.py FOLDER [SECONDS] [CLOCK]

writes epilogues_products.jsonl into a folder: a line for each of `TITLES` that there is time for,
with microseconds (median, `low`, `high`) of what `bench.epilogues.sides` has, in turns, by CUDA
graphs or another clock of `time_together`. A product whose result is wrong has the error alone. All
is compiled by 15 processes at first; on a Hopper with 16 cores that takes most of two minutes.

What the library has: bias with ReLU and float32 results by a call each, and a residual that it adds
in its place, with no bias and no ReLU.
"""

import functools
import sys
import time
from pathlib import Path

from case_by_case import compile_first, keep_compiled, kernels_of, write_lines

from d2ltvm.bench import epilogues, set_bench, sets
from d2ltvm.bench.timing import time_together
from d2ltvm.compiler.verify import WrongResultError
from d2ltvm.hopper.any_layer import any_layer

# From the product with fewest rows to those with most work, kinds in turns.
TITLES = (
    "Llama 7B: 16 x 4096 x 4096, A Bᵀ",
    "Llama 7B: 1024 x 11008 x 4096, A Bᵀ",
    "square: 2048 x 2048 x 2048, A Bᵀ",
    "Llama 7B: 256 x 11008 x 4096, A Bᵀ",
    "odd: 1001 x 1001 x 1001, A Bᵀ",
    "Llama 7B: 64 x 4096 x 11008, A Bᵀ",
    "GPT-2: 1024 x 2304 x 768, A B",
    "square: 4096 x 4096 x 4096, A Bᵀ",
    "Llama 7B: 16 x 11008 x 4096, A Bᵀ",
    "Llama 7B: 4096 x 11008 x 4096, A Bᵀ",
    "tall: 65536 x 256 x 512, A B",
    "Mistral 7B: 333 x 14336 x 4096, A Bᵀ",
    "square: 1000 x 1000 x 1000, A B",
    "BERT, T5: 6000 x 1536 x 384, A Bᵀ",
    "square: 8192 x 8192 x 8192, A Bᵀ",
    "GPT-2: 1024 x 768 x 3072, A B",
    "square: 3000 x 3000 x 3000, A B",
    "Llama 7B: 1024 x 4096 x 4096, A Bᵀ",
    "odd: 2047 x 2047 x 2047, A Bᵀ",
    "Llama 7B: 4096 x 4096 x 11008, A Bᵀ",
    "BERT, T5: 2048 x 768 x 3072, A B",
    "tall: 100000 x 64 x 64, A Bᵀ",
)


def cases():
    known = {case.title: case for case in sets.products()}
    return [known[title] for title in TITLES]


def layers(case, setting=set_bench.HOPPER):
    """What `epilogues.sides` runs of ours, by name of the epilogue; '' has none."""
    found = {"": setting.choose(case)}
    for name, options in epilogues.EPILOGUES.items():
        found[name] = any_layer(case.conv, case.transposed is not False, **options)
    return found


def measured(
    case, clock="graph", setting=set_bench.HOPPER, sides=epilogues.sides, timed=time_together
):
    """What becomes of a case: plans, ways, and microseconds or an error."""
    found = layers(case, setting)
    line = {"title": case.title, "plans": {name: str(layer.plan) for name, layer in found.items()}}
    line["ways"] = {name: layer.way for name, layer in found.items()}
    try:
        times = timed(sides(case, setting), clock)
    except WrongResultError as error:
        return line | {"errors": {"TVM": str(error)}}
    for key, which in (("us", "median"), ("low", "low"), ("high", "high")):
        line[key] = {n: float(f"{getattr(t, which) * 1e6:.5g}") for n, t in times.items()}
    return line


def compiled(case):
    """Have a case's kernels in the cache."""
    keep_compiled(
        case.title, lambda: (k for layer in layers(case).values() for k in kernels_of(layer))
    )


def main():
    folder, end = Path(sys.argv[1]), time.time() + float((sys.argv[2:] or [300])[0])
    clock = (sys.argv[3:] or ["graph"])[0]
    compile_first(compiled, cases())
    path = folder / "epilogues_products.jsonl"
    write_lines(path, cases(), functools.partial(measured, clock=clock), end)


if __name__ == "__main__":
    main()
