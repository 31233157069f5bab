"""Errors of the package that no built-in exception names."""


class MissingError(RuntimeError):
    """Something this machine lacks: a GPU, a driver, a package.

    >>> str(MissingError("no OpenCL device", "CUDA source", "pip install pyopencl"))
    'no OpenCL device; what still works: CUDA source; to get it: pip install pyopencl'

    Args:
        missing: what is not there.
        still: what works without it.
        command: the command that installs it, or the step that does.
    """

    def __init__(self, missing: str, still: str, command: str):
        super().__init__(f"{missing}; what still works: {still}; to get it: {command}")
        self.missing, self.still, self.command = missing, still, command
