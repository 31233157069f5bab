"""How fast, beside what, and the record of it.

Begin with `run`: `bench_together`. `contenders` has what is timed, `timing` the clocks,
`measurement` what comes of it, `records` keeps that. `libraries` imports MXNet and PyTorch,
`hopper_layers` has the layers of Hopper's chapters, `d2l_names` the functions of Dive into Deep
Learning Compiler, and `scoreboard` is `python -m d2ltvm bench`.
"""
