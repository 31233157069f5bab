"""What the chapters import of other packages: see `forked_kernels`."""

import os

# Matplotlib reads it when it is imported; ipykernel says the same, later.
os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")

import matplotlib.pyplot
import numpy
import tvm
from ipykernel import kernelapp

__all__ = ["kernelapp", "matplotlib", "numpy", "tvm"]
