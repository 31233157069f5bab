"""A browser on the built site: `make test-web`.

Every test in this folder has the mark `web`, by which `make test` leaves it out.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import browser as chromium
import pytest
from browser import HTML, WIDE, serving
from playwright.sync_api import Browser, Page, Request, sync_playwright

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # for what these tests share with the others


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a browser, and leave it out where there is none."""
    none = pytest.mark.skip(reason=chromium.NONE)
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker("web")
        if chromium.executable() is None and "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(none)


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    """The address of the site, served on this machine."""
    with serving(HTML) as address:
        yield address


@pytest.fixture(scope="session")
def disk() -> str:
    """The address of the site as files on the disk."""
    return HTML.as_uri()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One headless Chromium for all tests, with a profile of its own that is empty."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=chromium.executable(), args=chromium.FLAGS
        )
        yield found
        found.close()


@pytest.fixture
def faults() -> list[str]:
    """What went wrong in the page so far: console messages, errors, requests outside or failed.

    It has to be empty when the test ends. A test that plants a fault clears it.
    """
    return []


def watch(page: Page, faults: list[str]) -> Page:
    """Note a page's console messages, its errors, and its requests outside or in vain."""

    def request(address: str) -> None:
        if not address.startswith(("http://localhost:", "file://", "data:", "blob:")):
            faults.append(f"{page.url}: request outside: {address}")

    def failed(request: Request) -> None:
        # A page that is left takes what it was still loading with it, its icon for one. A file that
        # is not there answers with 404 instead.
        if request.failure != "net::ERR_ABORTED":
            faults.append(f"{page.url}: failed: {request.url} {request.failure}")

    page.on("console", lambda m: faults.append(f"{page.url}: console.{m.type}: {m.text}"))
    page.on("pageerror", lambda e: faults.append(f"{page.url}: error: {e}"))
    page.on("request", lambda r: request(r.url))
    page.on("requestfailed", failed)
    page.on(
        "response",
        lambda r: faults.append(f"{page.url}: {r.status}: {r.url}") if r.status >= 400 else None,
    )
    return page


@pytest.fixture
def page(browser: Browser, faults: list[str]) -> Iterator[Page]:
    """A page of 1300 by 900 pixels, nothing stored, light. No fault may happen on it."""
    context = browser.new_context(viewport=WIDE, reduced_motion="reduce", color_scheme="light")
    context.set_default_timeout(20_000)
    yield watch(context.new_page(), faults)
    context.close()
    assert faults == []


@pytest.fixture
def gpu_page(page: Page, site: str) -> Page:
    """A page on the served site where WebGPU has an adapter: SwiftShader, on the processor."""
    page.goto(f"{site}/book/intro.html")
    found = page.evaluate("navigator.gpu && navigator.gpu.requestAdapter().then(a => a !== null)")
    assert found, f"no WebGPU adapter in {chromium.executable()} with {chromium.FLAGS}"
    return page
