"""`python -m d2ltvm`: the commands of the package, one parser for all of them.

The parser is built from what stands here, so that `-h` answers where nothing else is installed. A
command's module is imported when it is run.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import TypeAlias

STOPPED = 130  # what a shell says of a command that Ctrl-C ended: 128 and the signal's number
# What `add_subparsers` returns. Python has no public name for it, and only type checkers see
# that it is generic.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
SEARCHED = ("matmul", "conv", "hwcn", "tensorcores", "depthwise", "softmax")  # its workloads


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code: 1 where it failed, 2 for wrong options, 130 on Ctrl-C."""
    if sys.stdout is None:
        return _failed("standard output is closed")
    try:
        try:
            return _run(parser(), argv)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return _failed("stopped", STOPPED)
    except BrokenPipeError:  # of `... | head`, which has read enough
        _drop_output()
        return 1
    except OSError as error:  # a full disk behind `> file`
        _drop_output()
        return _failed(str(error))


def parser() -> argparse.ArgumentParser:
    """The parser of the command line, with a subparser for each command."""
    top = argparse.ArgumentParser(
        prog="python -m d2ltvm",
        description="Helpers for a book about scheduling GPU kernels with Apache TVM.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    for add in (
        _add_doctor,
        _add_bench,
        _add_record,
        _add_fleet,
        _add_run,
        _add_search,
        _add_cache,
    ):
        add(commands)
    return top


def _add_doctor(commands: Commands) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="what this machine can do, and how to get the rest",
        description="Say what this machine can do with the book, and how to get the rest.",
        epilog="The exit code is 0 unless the notebooks cannot run at all.",
    )
    doctor.add_argument("--json", action="store_true", help="print the report as JSON")
    doctor.set_defaults(module="d2ltvm.system.doctor")


def _add_bench(commands: Commands) -> None:
    bench = commands.add_parser(
        "bench",
        help="the scoreboard: each workload, the library, the book's best kernel",
        description="Print the scoreboard: each workload of the book, the library and the book's "
        "best kernel, side by side. What takes a GPU comes from the records where there is none.",
        epilog="The exit code is 0 unless a record cannot be read. On a fleet each line, or each "
        "part of a set, is measured in a process of its own beside a server of this machine.",
    )
    bench.add_argument("--json", action="store_true", help="print JSON instead of a table")
    _add_set_options(bench)
    bench.add_argument(
        "--only", metavar="NAMES", help="of the scoreboard: these records, with commas between"
    )
    _add_fleet_option(bench)
    bench.set_defaults(module="d2ltvm.bench.scoreboard")


def _add_set_options(bench: argparse.ArgumentParser) -> None:
    """What is measured of a set, and how."""
    bench.add_argument(
        "--set",
        choices=["layers", "products", "unseen", "epilogues"],
        help="on an H100 or H200: all of a set beside the library; a run that was cut off goes on",
    )
    bench.add_argument(
        "--numbers",
        choices=("float16", "float32", "tf32"),
        default="float16",
        help="of a set: what is multiplied; of float32, 'tf32' reads 19 bits (default: float16)",
    )
    bench.add_argument(
        "--tune",
        nargs="?",
        const="few",
        choices=("few", "many", "none"),
        help="of a set: measure four plans of a layer, or 28, and remember the best; or none, nor "
        "take one that was fastest before, but what the model says",
    )
    bench.add_argument("--to", metavar="FILE", help="of a set: where to keep what is measured")
    bench.add_argument(
        "--clock",
        choices=["burst", "sustained", "both"],
        default="burst",
        help="of a set: with a rest before each round, without one, or both",
    )
    bench.add_argument(
        "--part", metavar="K/N", help="of a set: every N-th case alone, beginning with the K-th"
    )


def _add_record(commands: Commands) -> None:
    record = commands.add_parser(
        "record",
        help="on a GPU: measure the book's chapters again, and write their records",
        description="Run chapters of the book on this machine's GPU, or on the GPUs of its fleet, "
        "and write what they measure into book/measurements. A run that was cut off goes on with "
        "the chapters that it had not come to.",
        epilog="The exit code is 0 unless a chapter or a record could not be measured, or there is "
        "no GPU. On a fleet each chapter runs in a process of its own beside a server of this "
        "machine, as many at once as there are servers.",
    )
    record.add_argument(
        "chapters",
        nargs="*",
        metavar="chapter",
        help="such as elementwise/vector_add, or a notebook's path (default: all of the book)",
    )
    record.add_argument(
        "--only",
        metavar="NAMES",
        help="records to write, with commas between, such as vector_add/steps; the chapters that "
        "measure them are found (default: all records of the chapters)",
    )
    record.add_argument(
        "--to",
        metavar="FILE",
        help="where to keep which chapters are done, while some are not (default: in _build)",
    )
    _add_fleet_option(record)
    record.set_defaults(module="d2ltvm.bench.recording")


def _add_fleet(commands: Commands) -> None:
    fleet = commands.add_parser(
        "fleet",
        help="servers that measure kernels: one a GPU, here or on another machine",
        description="Start TVM's RPC tracker and one of its servers for each GPU, say how they "
        "are, or end them. They listen on this machine alone, unless --host says otherwise: TVM's "
        "RPC asks nobody who they are, and runs what it is given. From files of results, report "
        "says with what clock and power each GPU measured, and whether two GPUs agree.",
        epilog="The exit code is 1 where that cannot be done, or no fleet is up.",
    )
    fleet.add_argument("what", choices=["up", "status", "report", "down"])
    fleet.add_argument("files", nargs="*", metavar="file", help="report: of results, as run.jsonl")
    fleet.add_argument(
        "--within",
        type=float,
        default=5.0,
        metavar="PERCENT",
        help="report: how far apart the times of two GPUs may be that agree (default: 5)",
    )
    fleet.add_argument("--cpus", type=int, metavar="N", help="up: N servers on the processor")
    fleet.add_argument(
        "--host", default="127.0.0.1", help="up: the address of the interface to listen on"
    )
    fleet.add_argument(
        "--port", type=int, default=0, help="up: the tracker's; the servers have those behind it"
    )
    fleet.add_argument("--key", help="up: what servers are asked for by; by default the GPU's name")
    fleet.add_argument(
        "--join", metavar="HOST:PORT", help="up: servers go to this tracker, of another machine"
    )
    fleet.set_defaults(module="d2ltvm.fleet.command")


def _add_run(commands: Commands) -> None:
    run = commands.add_parser(
        "run",
        help="a whole network on images: its classes, and the time of each layer",
        description="Run a network of MXNet's model zoo, with random weights, on the processor or "
        "on an H100 or H200: the likeliest classes of each image, and the time of each layer.",
        epilog="The exit code is 0 unless the network, the image or the GPU is not there.",
    )
    run.add_argument(
        "network", help="resnet18, resnet50, resnet101, vgg16, mobilenet or mobilenet_v2"
    )
    run.add_argument("--batch", type=int, default=1, help="how many images; 1 by default")
    run.add_argument("--size", type=int, default=224, help="rows and columns; 224 by default")
    run.add_argument("--image", metavar="FILE", help="a picture; without one, random images")
    run.add_argument(
        "--target",
        choices=["llvm", "cuda"],
        help="the processor, in float32; or an H100 or H200, in float16 (default: an H100 or H200 "
        "where there is one, and else the processor)",
    )
    run.add_argument(
        "--by",
        choices=["launches", "relax"],
        default="launches",
        help="who calls the kernels of an H100 or H200, and plans the memory: the book's launches "
        "(default), or TVM's virtual machine, which runs the network on a processor anyway",
    )
    run.add_argument(
        "--picture", metavar="FILE", help="draw the times of layers as well, into a .png or .svg"
    )
    run.add_argument("--json", action="store_true", help="print JSON instead of a table")
    run.set_defaults(module="d2ltvm.network.run")


def _add_search(commands: Commands) -> None:
    search = commands.add_parser(
        "search",
        help="let the machine search for a schedule, on the processor or on a GPU",
        description="Search for a fast schedule by measuring candidates, on this machine or on the "
        "servers of a fleet, and print the best as Python. A search that was cut off goes on from "
        "what it has kept.",
        epilog="The exit code is 0 unless the search cannot be made here.",
    )
    search.add_argument("workload", choices=SEARCHED, help="what is computed")
    search.add_argument(
        "--size",
        type=int,
        help="rows and columns of matrices (default: 512), channels of the convolution (64), "
        "images of a batch (128; depthwise: 32), or columns of the softmax (4096)",
    )
    _add_candidate_options(search)
    search.add_argument("--to", metavar="FOLDER", help="where to keep what is measured")
    _add_fleet_option(search)
    search.set_defaults(module="d2ltvm.search.command")


def _add_candidate_options(search: argparse.ArgumentParser) -> None:
    """How candidates are proposed, chosen and measured."""
    search.add_argument(
        "--sketch",
        choices=["rules", "book", "both"],
        default="rules",
        help="what to begin with: TVM's rules (default), the book's schedule, or both",
    )
    search.add_argument(
        "--trials", type=int, default=64, help="how many candidates are measured (default: 64)"
    )
    search.add_argument(
        "--target",
        choices=["llvm", "cuda"],
        default="llvm",
        help="the processor (default), or a GPU",
    )
    search.add_argument("--seed", type=int, default=1, help="of what is proposed (default: 1)")
    search.add_argument(
        "--model",
        choices=["learned", "random", "analyser"],
        default="learned",
        help="who chooses among what is proposed (default: learned); 'analyser' is for a GPU, and "
        "where there is none it only predicts",
    )


def _add_cache(commands: Commands) -> None:
    cache = commands.add_parser(
        "cache",
        help="compiled kernels that are kept on disk",
        description="Say where compiled kernels are kept on disk, and how much they take.",
        epilog="The environment variable D2LTVM_CACHE_DIR says where; empty, for no cache.",
    )
    cache.add_argument("--clear", action="store_true", help="remove them")
    cache.set_defaults(module="d2ltvm.compiler.cache")


def _add_fleet_option(command: argparse.ArgumentParser) -> None:
    """The option that says on which fleet something is measured."""
    command.add_argument(
        "--fleet",
        metavar="HOST:PORT",
        help="a fleet's tracker, as HOST:PORT/KEY where it has several kinds of servers; 'none' "
        "measures in this process (default: what D2LTVM_FLEET says, and else the fleet that is up "
        "on this machine, if there is one for that target)",
    )


def _run(top: argparse.ArgumentParser, argv: Sequence[str] | None) -> int:
    options = top.parse_args(argv)
    try:
        module = importlib.import_module(options.module)
    except ImportError as error:
        reason = " ".join(str(error).split())
        top.error(f"{options.command} cannot start: {reason}. Try: python -m d2ltvm doctor")
    code: int = module.main(options)
    return code


def _failed(reason: str, code: int = 1) -> int:
    print(f"python -m d2ltvm: {reason}", file=sys.stderr)
    return code


def _drop_output() -> None:
    """Let what is still in the buffer go nowhere; Python would try once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
