"""Where the browser is, how it is started, and the pages that it is to show.

As a script it says whether there is one.
"""

import contextlib
import functools
import http.server
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import ViewportSize

HTML = Path(__file__).resolve().parents[2] / "_build" / "html"
WIDE: "ViewportSize" = {"width": 1300, "height": 900}
NARROW: "ViewportSize" = {"width": 360, "height": 740}
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


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and says nothing of it."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of a folder, served on this machine."""
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


def pages() -> list[str]:
    """Names of the site's pages, as in 'book/memory/matmul.html'."""
    found = (path.relative_to(HTML) for path in HTML.rglob("*.html"))
    return sorted(str(path) for path in found if path.parts[0] != "_static")


if __name__ == "__main__":
    if executable() is None:
        sys.exit(NONE)
