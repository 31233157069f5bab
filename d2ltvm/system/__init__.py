"""This machine: what is installed, which GPU there is, and the data sheets of GPUs.

Begin with `devices`, which says where kernels run. `toolchain` finds NVIDIA's compiler in its pip
packages, `colab` prepares Colab's driver, `doctor` is `python -m d2ltvm doctor`, `environment`
knows versions that fail together, `threads` counts cores, `chips` has the data sheets.
"""
