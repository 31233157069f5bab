"""Files that are never half written."""

import os
import shutil
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
