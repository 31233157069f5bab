"""Frames of the stack, of which a source is read when somebody asks for it: see `read_late`."""

import inspect
import sys
from types import FrameType
from typing import Any

import tvm.script.parser.core.parser
import tvm.tirx.script.builder.ir
import tvm.tirx.script.parser.entry


class Frame:
    """A frame as `inspect.FrameInfo` has it, with the same attributes."""

    def __init__(self, frame: FrameType) -> None:
        self.frame = frame

    def __getattr__(self, name: str) -> Any:
        return getattr(inspect.getframeinfo(self.frame), name)


class Inspect:
    """Python's `inspect`, except that it takes the stack apart into objects of `Frame`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(inspect, name)

    def getouterframes(self, frame: FrameType | None, context: int = 1) -> list[Frame]:
        frames = []
        while frame:
            frames.append(Frame(frame))
            frame = frame.f_back
        return frames

    def stack(self, context: int = 1) -> list[Frame]:
        return self.getouterframes(sys._getframe(1))


def read_late() -> None:
    """Let TVM's parser of TIRx look at the few frames that it needs.

    At each macro and each buffer it asks for the whole stack, with a line of source of every frame,
    and takes one. That was most of a kernel's time, and more of it in a notebook, whose cells are
    no modules: Python looks for them among all modules, again and again.
    """
    for module in (
        tvm.script.parser.core.parser,
        tvm.tirx.script.builder.ir,
        tvm.tirx.script.parser.entry,
    ):
        module.inspect = Inspect()
