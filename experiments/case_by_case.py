"""What the experiments share that have all kernels compiled, and then time a case after the other.

It is no experiment of its own. Each writes a file of lines: a header with the device, and a line
for each case that there was time for.
"""

import json
import multiprocessing as mp
import time

from d2ltvm.bench import set_bench
from d2ltvm.system.devices import describe_device


def compile_first(compiled, tasks):
    """Have all tasks compiled by 15 processes: `compiled` takes one."""
    with mp.get_context("spawn").Pool(15) as pool:
        pool.map(compiled, tasks, chunksize=1)
    print(len(tasks), "compiled", flush=True)


def keep_compiled(name, kernels):
    """Have kernels in the cache; if one cannot be compiled, this is told of, and ends it."""
    try:
        for kernel in kernels():
            set_bench.on_hopper(kernel)
    except Exception as error:
        print(name, repr(error)[-300:], flush=True)


def kernels_of(layer):
    """The kernels of a layer, that of its copy included."""
    return [layer.kernel(), *([layer.copy()] if layer.copies else [])]


def titles_in(path):
    """The titles of the cases that a file has from an earlier run; without a file, none."""
    if not path.exists():
        return set()
    lines = map(json.loads, path.read_text().splitlines())
    return {line["title"] for line in lines if "title" in line}


def write_lines(path, cases, measured, end):
    """Measure cases until a time is reached, and write a line for each as it comes.

    Where the file is there from an earlier run, its cases stay as they are, and the others follow,
    behind a header of their own: a line with a device and no title.
    """
    known = titles_in(path)
    with path.open("a") as file:
        file.write(json.dumps({"device": describe_device()}, default=str) + "\n")
    for case in cases:
        if time.time() < end and case.title not in known:
            line = measured(case)
            print(line, flush=True)
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
