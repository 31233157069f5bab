"""What a kernel does to memory and to a GPU, worked out without one.

Begin with `traffic`: requests, sectors, conflicts. It rests on `accesses` (loads and stores in
the IR), `index_exprs` (their indices as sums), `coalescing` (what a warp asks for), and, for
machine code, `sass`, `sass_arithmetic` and `sass_interpreter`. `requests` are those of one warp, or
thread, `patterns` requests without a kernel. `occupancy`
and `roofline` say how fast a kernel can be at best, `tiling`, `waves` and `in_flight` the same of
tiles, grids and loads without a kernel, `starting` how blocks start, `register_banks` what
multiply-adds wait for, `counters` what the hardware counted; `emulator` runs kernels on NumPy
arrays, and `ring_timeline` says who waits in a ring of slots.
"""
