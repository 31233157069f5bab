"""Figures that can be touched, in a browser: their arithmetic, and every way to move them."""

import json
import re
from collections.abc import Callable
from typing import Any

import explore_cases
import numpy as np
import pytest
from browser import HTML, NARROW
from playwright.sync_api import Locator, Page

from d2ltvm.explore import scripts

COUNT = 1000
FIGURE = re.compile(r'<figure[^>]*class="d2l-explorer"[^>]*data-explorer="([a-z_]+)"')
# A name of an explorer, and a page that has it. Cards that run kernels have tests of their own.
NAMES = scripts.Engine().call("names")
HOMES = {
    name: path.relative_to(HTML).as_posix()
    for path in sorted(HTML.rglob("book/**/*.html"))
    for name in FIGURE.findall(path.read_text())
    if name in NAMES
}
COUNT_OF_MOVES = 15
# Changes of a control, each with the layout that it causes.
MOVES = """(figure, count) => {
  const control = [...figure.querySelectorAll("input[type=range]:enabled")][0];
  for (let k = 0; k < count; k += 1) {
    control.value = Number(control.value) > Number(control.min) ? control.min : control.max;
    control.dispatchEvent(new Event("input", {bubbles: true}));
    figure.getBoundingClientRect();
  }
}"""


@pytest.fixture(scope="module")
def blank(browser: Any) -> Page:
    """An empty page with the modules, as Python has them."""
    page: Page = browser.new_page()
    page.add_script_tag(content=f"const d2ltvm = {scripts.bundle('python.js', 'value')};")
    return page


@pytest.mark.parametrize("name", explore_cases.CASES)
def test_a_model_says_in_a_browser_what_the_package_says(name: str, blank: Page) -> None:
    case, rng = explore_cases.CASES[name], np.random.default_rng(3)
    inputs = [case.draw(rng) for _ in range(COUNT)]
    found = blank.evaluate("([name, inputs]) => d2ltvm.results(name, inputs)", [name, inputs])
    assert len(found) == COUNT
    for arguments, result in zip(inputs, found, strict=True):
        assert case.shown(result) == case.expected(*arguments), arguments


def test_every_explorer_is_on_a_page() -> None:
    assert len(NAMES) >= 10 and set(HOMES) == set(NAMES)


def opened(name: str, page: Page, site: str, state: str = "") -> Locator:
    """The figure on its page, scrolled into view."""
    page.goto(f"{site}/{HOMES[name]}{state}")
    figure = page.locator(f"figure.d2l-explorer[data-explorer={name}]").first
    figure.scroll_into_view_if_needed()
    return figure


def state(figure: Locator) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(figure.get_attribute("data-state") or "{}")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_keyboard_moves_a_figure_and_the_address_keeps_it(
    name: str, page: Page, site: str
) -> None:
    figure = opened(name, page, site)
    before, picture = state(figure), figure.locator(".d2l-picture").inner_html()
    moved = []
    for control in figure.locator("input[type=range]:enabled, select:enabled").all():
        key = control.get_attribute("name")
        assert page.locator(f"label[for='{control.get_attribute('id')}']").count() == 1
        control.focus()
        for press in ("ArrowRight", "ArrowLeft"):
            was = state(figure)
            page.keyboard.press(
                "ArrowDown" if control.evaluate("c => c.tagName") == "SELECT" else press
            )
            if state(figure) != was:
                moved.append(key)
                break
    assert len(moved) >= 2 and state(figure) != before
    assert figure.locator(".d2l-picture").inner_html() != picture
    kept = state(figure)
    again = opened(name, page, site, "#" + page.url.partition("#")[2])
    page.reload()
    assert state(again) == kept
    again.get_by_role("button", name="Start again").click()
    assert state(again) == before


# Pixels of the smallest text of a picture, and how far its figure reaches over the page's sides.
NARROW_FIGURE = """figure => {
  const picture = figure.querySelector(".d2l-picture svg");
  const scale = picture.getBoundingClientRect().width / picture.viewBox.baseVal.width;
  const texts = [...picture.querySelectorAll("text")];
  const sizes = texts.map(text => scale * parseFloat(getComputedStyle(text).fontSize));
  const place = figure.getBoundingClientRect();
  return [Math.min(...sizes), Math.max(-place.left, place.right - innerWidth)];
}"""


@pytest.mark.parametrize("name", NAMES)
def test_text_of_a_figure_can_be_read_on_a_phone(name: str, page: Page, site: str) -> None:
    page.set_viewport_size(NARROW)
    smallest, over = opened(name, page, site).evaluate(NARROW_FIGURE)
    assert smallest >= 10 and over <= 0


@pytest.mark.parametrize("name", NAMES)
def test_the_pointer_moves_a_figure(name: str, page: Page, site: str) -> None:
    figure = opened(name, page, site)
    before = state(figure)
    wanted: dict[str, Any] = {}
    for part in figure.locator("[data-set]").all():
        sets = json.loads(part.get_attribute("data-set") or "{}")
        place = part.bounding_box()
        if (
            place
            and min(place["width"], place["height"]) > 2
            and not sets.items() <= before.items()
        ):
            x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
            top = "([x, y]) => document.elementFromPoint(x, y)?.closest('[data-set]')?.dataset.set"
            if page.evaluate(top, [x, y]) == part.get_attribute("data-set"):
                page.mouse.click(x, y)
                wanted = sets
                break
    assert wanted, f"nothing in {name} sets another state when pressed"
    after = state(figure)
    assert after != before and wanted.keys() & {k for k in after if after[k] != before[k]}


def busy(page: Page) -> Callable[[], float]:
    """Milliseconds of processor time that a page's thread has taken, however busy the machine."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def taken() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return 1000 * float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))

    return taken


@pytest.mark.parametrize("name", NAMES)
def test_a_move_is_answered_at_once(name: str, page: Page, site: str) -> None:
    figure, taken = opened(name, page, site), busy(page)
    before = taken()
    figure.evaluate(MOVES, COUNT_OF_MOVES)
    assert 0 < (taken() - before) / COUNT_OF_MOVES < 50
