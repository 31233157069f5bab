"""How tests run the kernels for Hopper: on the GPU, where it is one, and emulated."""

import numpy as np
import pytest

import d2ltvm


def on_the_gpu(kernel, *arrays):
    d2ltvm.build(kernel)(*arrays)


needs_hopper = pytest.mark.skipif(not d2ltvm.system.has_hopper(), reason="no H100 or H200")
RUN = [
    pytest.param(on_the_gpu, id="gpu", marks=needs_hopper),
    pytest.param(d2ltvm.emulate, id="emulated"),
]


def random(*shape, dtype="float32"):
    """Normal numbers, the same each time."""
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def result(run, kernel, shape, *inputs):
    """What a kernel makes of its inputs, by one of `RUN`: float32, NaN where it writes nothing."""
    c = np.full(shape, np.nan, "float32")
    run(kernel, *inputs, c)
    return c
