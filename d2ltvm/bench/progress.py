"""A progress bar on stderr."""

import sys


def progress(done: int, of: int, what: str) -> None:
    """Draw the bar, where somebody is looking at it; at the end, take it away."""
    if sys.stderr is not None and sys.stderr.isatty():
        bar = "#" * (20 * done // of)
        print(f"\r[{bar:20}] {done}/{of} {what:40}", end="", file=sys.stderr, flush=True)
        if done == of:
            print("\r" + " " * 72 + "\r", end="", file=sys.stderr)
