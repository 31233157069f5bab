"""Which packages are installed, and which combinations are known to fail."""

from importlib import metadata

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
