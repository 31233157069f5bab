# What builds, shows and checks a kernel; `__init__.py` loads it from here.

from .kernel import Kernel as Kernel, build as build
from .printing import (
    difference as difference,
    kernel_code as kernel_code,
    loop_nest as loop_nest,
    outline as outline,
)
from .cubin import (
    compile_cubin as compile_cubin,
    disassemble as disassemble,
    instructions as instructions,
    resources as resources,
)
from .verify import WrongResultError as WrongResultError, check as check
