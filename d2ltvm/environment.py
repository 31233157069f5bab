"""Which packages are installed, which combinations fail, and how many threads to use."""

import os
from importlib import metadata
from pathlib import Path

# apache-tvm-ffi 0.1.15.post1 and post2 end `Schedule.tensorize` of apache-tvm 0.27 in a
# segmentation fault; 0.1.14.post0 and post1 do not.
_CRASHES = ("0.1.15.post1", "0.1.15.post2")


def installed():
    """Version by package name, of those that an import would find.

    >>> environment.installed()["apache-tvm"]
    '0.27.0.post1'

    Returns:
        A dict; names in small letters, with hyphens.
    """
    versions = {}
    for distribution in metadata.distributions():  # in the order of sys.path: the first one counts
        if name := distribution.metadata["Name"]:
            versions.setdefault(name.lower().replace("_", "-"), distribution.version)
    return versions


def forbidden(versions):
    """What is wrong with a set of packages.

    >>> forbidden({"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.15.post2"})
    ['apache-tvm-ffi 0.1.15.post2 crashes Schedule.tensorize; ...']

    Args:
        versions: version by package name, as `importlib.metadata` gives them.

    Returns:
        One line for each problem; an empty list where there is none.
    """
    problems = []
    ffi = versions.get("apache-tvm-ffi", "")
    if ffi in _CRASHES:
        problems.append(
            f"apache-tvm-ffi {ffi} crashes Schedule.tensorize; "
            "pip install 'apache-tvm-ffi==0.1.14.post1'"
        )
    numpy = versions.get("numpy", "")
    if "mxnet" in versions and numpy.split(".")[0] not in ("", "0", "1"):
        problems.append(
            f"mxnet {versions['mxnet']} cannot be imported under numpy {numpy}; "
            "pip install 'numpy==1.26.4', or pip uninstall mxnet"
        )
    return problems


def cores(folder="/sys/devices/system/cpu"):
    """Processor cores that this process may run on; hardware threads of one core count once.

    Args:
        folder: where Linux says which hardware threads share a core.

    Returns:
        Their number, an int.
    """
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    found = set()
    for cpu in os.sched_getaffinity(0):
        try:
            found.add(Path(folder, f"cpu{cpu}", "topology/thread_siblings_list").read_text())
        except OSError:
            found.add(cpu)
    return len(found)


def use_all_cores():
    """Let TVM and OpenMP, which MXNet uses, start a thread for each core, unless told otherwise.

    Both take half of what the system calls processors, in the belief that two of them are one core.
    Of a virtual machine's processors that is often wrong. It has to be said before they start.
    """
    for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, str(cores()))
