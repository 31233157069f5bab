"""Seconds that a new process takes to make a CUDA context and to end, alone and beside another one.

    python experiments/cuda_contexts.py

A session of a fleet is a process of its own, so that each candidate paid for this once. Then
seconds until several processes, which begin at once, have opened the driver: with the GPUs in
sight, as a fleet's builders did, and with none in sight. Needs two GPUs.
"""

import ctypes
import json
import os
import statistics
import time

MEGABYTES = 64


def begin(gpu, told):
    """Of a new process: make a context and some memory, tell how long it took, and end."""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    start = time.perf_counter()
    cuda = ctypes.CDLL("libcuda.so.1")
    cuda.cuInit(0)
    begun = time.perf_counter()
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    failed = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    cuda.cuCtxSetCurrent(context)
    failed |= cuda.cuMemAlloc_v2(ctypes.byref(memory), MEGABYTES << 20)
    made = time.perf_counter()
    os.write(told, json.dumps([failed, begun - start, made - begun, time.time()]).encode())
    os.close(told)
    os._exit(0)


def one(gpu):
    """Seconds to initialize CUDA, to make a context, to end, and of the whole process."""
    reads, writes = os.pipe()
    start = time.time()
    child = os.fork()
    if child == 0:
        begin(gpu, writes)
    os.close(writes)
    with os.fdopen(reads) as answer:
        failed, init, make, told = json.loads(answer.read())
    os.waitpid(child, 0)
    if failed:
        raise SystemExit(f"CUDA failed with {failed} on GPU {gpu}")
    end = time.time()
    return init, make, end - told, end - start


def show(how, gpu, count):
    """Medians of so many processes, one after the other."""
    names = ("init", "make", "end", "whole")
    medians = map(statistics.median, zip(*(one(gpu) for _ in range(count)), strict=True))
    seconds = {name: round(median, 3) for name, median in zip(names, medians, strict=True)}
    print(json.dumps({"how": how, "gpu": gpu, **seconds, "processes": count}), flush=True)


def beside(how, gpus, count):
    """The same by several processes at once."""
    children = []
    for gpu in gpus:
        child = os.fork()
        if child == 0:
            show(how, gpu, count)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def opened(told, visible):
    """Of a new process: open the driver, tell that it is done, and end."""
    os.environ["CUDA_VISIBLE_DEVICES"] = visible
    ctypes.CDLL("libcuda.so.1").cuInit(0)
    os.write(told, b".")
    os._exit(0)


def together(how, visible, count, rounds=3):
    """Seconds until the first, and the last, of so many processes has opened the driver."""
    first, last = [], []
    for _ in range(rounds):
        reads, writes = os.pipe()
        start, children = time.perf_counter(), []
        for _ in range(count):
            child = os.fork()
            if child == 0:
                opened(writes, visible)
            children.append(child)
        took = []
        for _ in range(count):
            os.read(reads, 1)
            took.append(time.perf_counter() - start)
        first.append(took[0])
        last.append(took[-1])
        for child in children:
            os.waitpid(child, 0)
        os.close(reads)
        os.close(writes)
    seconds = {"first": statistics.median(first), "last": statistics.median(last)}
    found = {name: round(value, 3) for name, value in seconds.items()}
    print(json.dumps({"how": how, **found, "processes": count, "rounds": rounds}), flush=True)


if __name__ == "__main__":
    show("alone", 0, 6)
    show("alone", 1, 6)
    beside("both", (0, 1), 8)
    beside("two on one", (0, 0), 8)
    for count in (1, 8, 24):
        together("open, two in sight", "0,1", count)
        together("open, none in sight", "", count)
