"""Runs kernels on NumPy arrays, block by block, without a GPU.

Begin with `run`: `emulate`. `block` has the threads of a block in step, which is enough for
schedules; `warpgroups` gives each warpgroup a way of its own through a kernel of TMA, barriers and
wgmma, whose instructions are in `barriers`, `copies`, `products` and `results`. `order` knows what
PTX says of who has to wait for whom.
"""
