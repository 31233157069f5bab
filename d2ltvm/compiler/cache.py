"""What compiling and counting found, on disk, so that nothing of it is done twice on a machine.

Cubins, disassemblies, shaders, and what machine code does to memory. An entry is found by a hash of
everything that it follows from: a source, an architecture, options, the versions of the tools, and
the text of the package's modules where they work something out. So it is never out of date, only
unused; when the folder grows beyond `LIMIT`, what was not used for longest goes. The folder is the
user's cache folder, or that of the variable D2LTVM_CACHE_DIR; where the variable is empty there is
no cache. What goes wrong with a disk costs time and nothing else.
"""

import argparse
import contextlib
import functools
import hashlib
import importlib.metadata
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import platformdirs

VARIABLE = "D2LTVM_CACHE_DIR"
LIMIT = 256 * 2**20  # bytes of all entries
LOOKS = 256  # at all entries, until so many bytes are written
SUFFIX = ".entry"


def folder() -> Path | None:
    """Where entries are; None where the reader wants no cache."""
    chosen = os.environ.get(VARIABLE)
    if chosen is None:
        return Path(platformdirs.user_cache_dir("d2ltvm"))
    return Path(chosen) if chosen else None


def remember(make: Callable[[], bytes], *key: object) -> bytes:
    """What a function returns: from the cache, or made now and kept.

    >>> remember(lambda: b"made", "an example", 1)
    b'made'

    Args:
        make: a function without arguments that returns bytes.
        key: what its result follows from; strings, numbers, bytes, and tuples of them.

    Returns:
        bytes.
    """
    if (entry := kept(*key)) is not None:
        return entry
    made = make()
    keep(made, *key)
    return made


def keep(made: bytes, *key: object) -> None:
    """Put bytes into the cache, in the place of what it has for a key."""
    if path := _path(key):
        with contextlib.suppress(OSError):  # no right to write, no space left
            _write(path, made)
            if random.random() * LIMIT < LOOKS * len(made):
                _evict()


def kept(*key: object) -> bytes | None:
    """What the cache has for a key, as `remember` was given it; None where it has nothing."""
    path = _path(key)
    return _read(path) if path else None


def entries() -> Iterator[tuple[float, int, Path]]:
    """Time of last use, bytes and path of each entry."""
    place = folder()
    for path in place.glob(f"*{SUFFIX}") if place else ():
        with contextlib.suppress(OSError):  # another process has removed it
            about = path.stat()
            yield about.st_mtime, about.st_size, path


def clear() -> int:
    """Remove all entries; returns how many there were."""
    paths = [path for _, _, path in entries()]
    for path in paths:
        path.unlink(missing_ok=True)
    return len(paths)


def file_identity(path: Path) -> tuple[str, int, int]:
    """A file's path, size and time of change: other ones than before say that it was replaced."""
    about = path.stat()
    return str(path.resolve()), about.st_size, about.st_mtime_ns


@functools.cache
def hash_of_text(folder: Path, *patterns: str) -> str:
    """A hash of the text of a folder's modules: what a result follows from beside its inputs."""
    paths = (path for pattern in patterns for path in sorted(folder.glob(pattern)))
    return hashlib.sha256("".join(path.read_text() for path in paths).encode()).hexdigest()


@functools.cache
def package_versions(*names: str) -> tuple[str, ...]:
    """Versions of pip packages, '' for one that is not installed."""
    found = []
    for name in names:
        try:
            found.append(importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            found.append("")
    return tuple(found)


def main(options: argparse.Namespace) -> int:
    """`python -m d2ltvm cache`: where it is and how large; `--clear` empties it."""
    place = folder()
    if place is None:
        print(f"no cache: {VARIABLE} is empty")
    elif options.clear:
        print(f"removed {clear():,} entries from {place}")
    else:
        sizes = [size for _, size, _ in entries()]
        print(f"{place}\n{len(sizes):,} entries, {sum(sizes) / 2**20:.1f} of {LIMIT >> 20} MiB")
    return 0


def _path(key: tuple[object, ...]) -> Path | None:
    place = folder()
    return place / (hashlib.sha256(repr(key).encode()).hexdigest() + SUFFIX) if place else None


def _read(path: Path) -> bytes | None:
    """What an entry holds; None where there is none, or its bytes are not those written."""
    try:
        digest, data = (whole := path.read_bytes())[:32], whole[32:]
        if hashlib.sha256(data).digest() == digest:
            with contextlib.suppress(OSError):
                os.utime(path)  # it was used now
            return data
        path.unlink()
    except OSError:
        pass
    return None


def _write(path: Path, data: bytes) -> None:
    """Write an entry so that any other process sees all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(data).digest() + data)
        os.replace(name, path)
    except OSError:
        os.unlink(name)
        raise


def _evict() -> None:
    """Remove the entries that were not used for longest, down to three quarters of the limit."""
    found = sorted(entries())
    total = sum(size for _, size, _ in found)
    if total <= LIMIT:
        return
    for _, size, path in found:
        if total <= LIMIT * 3 // 4:
            break
        path.unlink(missing_ok=True)
        total -= size
