"""Files that are never half written, and caches where files can be written.

It imports the standard library alone: `python -m d2ltvm doctor` has to run where nothing is there.
"""

import atexit
import os
import shutil
import tempfile
import uuid
from pathlib import Path


def write(path: str | Path, content: str | bytes) -> None:
    """Write a file whole, in place of an older one, or leave that one as it was.

    The content goes into a file of another name beside it, reaches the disk, and takes the name in
    one step. A full disk or the end of the process leaves the older file; two who write at once
    leave one content or the other.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "one.txt"
    >>> write(path, "1")
    >>> path.read_text()
    '1'

    Args:
        path: where to; the folder is there. A link stays one, and its target is written.
        content: text, which is written as UTF-8, or bytes.

    Raises:
        OSError: it cannot be written there.
    """
    path = Path(path).resolve()
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with open(partial, "xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def use_writable_caches() -> Path | None:
    """Send caches into a temporary folder where the usual one cannot be written.

    PoCL and pyopencl keep compiled kernels under XDG_CACHE_HOME, by default `~/.cache`, and do not
    start where they cannot. POCL_CACHE_DIR has the same meaning for PoCL alone. It has to be called
    before pyopencl is imported.

    Returns:
        The temporary folder, which goes at the end of the process; None where none is needed.
    """
    usual = {"XDG_CACHE_HOME": os.path.expanduser("~/.cache")}
    told = {n: os.environ[n] for n in ("XDG_CACHE_HOME", "POCL_CACHE_DIR") if n in os.environ}
    useless = [name for name, folder in (usual | told).items() if not _writable(folder)]
    if not useless:
        return None
    folder = tempfile.mkdtemp(prefix="d2ltvm-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ.update(dict.fromkeys(useless, folder))
    return Path(folder)


def _writable(folder: str) -> bool:
    """Whether files can be made in a folder, which is made where it is not there."""
    if not os.path.isabs(folder):  # a ~ that nobody could expand
        return False
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
