"""`python -m d2ltvm`: the commands of the package."""

import argparse
import importlib
import os
import sys

# The module that holds the `main` of each command.
MODULES = {"doctor": "system.doctor", "bench": "bench.scoreboard", "cache": "compiler.cache"}


def main(argv=None):
    """Run a command; its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m d2ltvm",
        description="Helpers for a book about scheduling GPU kernels with Apache TVM.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="commands:\n"
        "  doctor   what this machine can do, and how to get the rest\n"
        "  bench    the scoreboard: each workload, the library, the book's best kernel\n"
        "  cache    compiled kernels that are kept on disk; --clear removes them\n\n"
        "`python -m d2ltvm doctor -h` tells the options of a command.",
    )
    parser.add_argument("command", choices=MODULES, help="see below")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of the command")
    chosen = parser.parse_args(argv)
    try:
        module = importlib.import_module("d2ltvm." + MODULES[chosen.command])
    except ImportError as error:
        reason = " ".join(str(error).split())
        parser.error(f"{chosen.command} cannot start: {reason}. Try: python -m d2ltvm doctor")
    try:
        code = module.main(chosen.options)
        sys.stdout.flush()
    except BrokenPipeError:  # of `... | head`, which has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
