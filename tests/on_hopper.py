"""How tests run the kernels for Hopper: on the GPU, where it is one, and emulated."""

import pytest

import d2ltvm


def on_the_gpu(kernel, *arrays):
    d2ltvm.build(kernel)(*arrays)


needs_hopper = pytest.mark.skipif(not d2ltvm.has_hopper(), reason="no H100 or H200")
RUN = [
    pytest.param(on_the_gpu, id="gpu", marks=needs_hopper),
    pytest.param(d2ltvm.emulate, id="emulated"),
]
