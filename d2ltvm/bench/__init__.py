"""How fast, beside what, and the record of it.

Begin with `run`: `bench_together`. `timing` has the clocks, `contenders` what is timed, `libraries`
imports MXNet and PyTorch, `records` keeps measurements, `hopper_layers` has the layers of Hopper's
chapters, `d2l_names` the functions of Dive into Deep Learning Compiler, and `scoreboard` is
`python -m d2ltvm bench`.
"""
