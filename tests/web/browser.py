"""Where the browser is and how it is started. As a script it says whether there is one."""

import os
import shutil
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome")

# WebGPU on the processor, by SwiftShader; nothing that Chromium asks of the net by itself.
FLAGS = [
    "--no-sandbox",
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--enable-features=Vulkan",
    "--use-vulkan=swiftshader",
    "--disable-background-networking",
]

NONE = (
    "There is no browser here: its tests are left out, and the site, `make test` and all else work "
    "without. To get one: apt-get install chromium; or set CHROMIUM to the path of yours."
)


def executable() -> str | None:
    """The path of Chromium, CHROMIUM's before Debian's, or None."""
    named = os.environ.get("CHROMIUM")
    return next(filter(None, map(shutil.which, [named] if named else NAMES)), None)


if __name__ == "__main__":
    if executable() is None:
        sys.exit(NONE)
