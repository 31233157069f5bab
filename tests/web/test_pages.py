"""Every page in a browser: nothing goes wrong, nothing comes from outside, everyone can read it."""

from pathlib import Path

import axe_playwright_python
import pytest
from browser import HTML, NARROW, WIDE, pages
from playwright.sync_api import Browser, Page, ViewportSize

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()

# The sum of what moved by itself while the page was loaded and read to its end.
SHIFT = """() => new Promise(done => {
  let sum = 0;
  new PerformanceObserver(list => list.getEntries().forEach(e => { sum += e.value; }))
    .observe({type: "layout-shift", buffered: true});
  setTimeout(() => done(sum), 150);
})"""

# What axe finds, each as a line: the rule, how many, the first that breaks it.
VIOLATIONS = """options => axe.run(
  document, {resultTypes: ["violations"], preload: false, ...options}
).then(
  found => found.violations.map(v => `${v.id}: ${v.nodes.length}, such as ${v.nodes[0].html}`))"""

# Solutions and long code are opened. Of the thousands of tokens of code one of each kind stays.
OPEN = """() => {
  document.querySelectorAll("details").forEach(each => { each.open = true; });
  document.getAnimations().forEach(each => each.finish());
  const seen = new Set();
  document.querySelectorAll("pre span, .sig span").forEach(each => {
    const kind = [each.className, each.closest("div, dt").className].join();
    if (seen.has(kind) || !each.className) each.replaceWith(...each.childNodes);
    else seen.add(kind);
  });
  axe.configure({rules: [{id: "color-contrast", selector: "[data-unlike]"}]});
}"""

# Contrast is looked at once for each way in which text looks: colours, grounds, size, weight.
UNLIKE = """() => {
  const seen = new Set();
  document.querySelectorAll("body *").forEach(each => {
    each.removeAttribute("data-unlike");
    if (![...each.childNodes].some(node => node.nodeType === 3 && node.data.trim())) return;
    if (!each.checkVisibility({visibilityProperty: true})) return;
    const {color, fontSize, fontWeight, opacity} = getComputedStyle(each);
    const look = [color, fontSize, fontWeight, opacity];
    for (let above = each; above; above = above.parentElement) {
      const style = getComputedStyle(above);
      if (style.opacity !== "1") look.push(style.opacity);
      if (style.backgroundColor !== "rgba(0, 0, 0, 0)") look.push(style.backgroundColor);
    }
    if (seen.has(look.join())) return;
    seen.add(look.join());
    each.setAttribute("data-unlike", "");
  });
}"""

# The theme lets the keyboard into what can be scrolled, a while after the size has changed.
REACHED = """() => [...document.querySelectorAll("pre, .pst-scrollable-table-container")].every(
  each => each.scrollWidth <= each.clientWidth || each.tabIndex === 0)"""


@pytest.mark.parametrize("where", ["site", "disk"])
@pytest.mark.parametrize("name", pages())
def test_a_page_loads_and_stands_still(
    name: str, where: str, page: Page, request: pytest.FixtureRequest
) -> None:
    """Each fault, a request outside among them, fails the test: see `page`."""
    page.goto(f"{request.getfixturevalue(where)}/{name}")
    if name == "index.html":  # which goes on to the first page
        page.wait_for_url("**/book/intro.html")
    assert page.evaluate(SHIFT) < 0.02
    page.set_viewport_size(NARROW)
    page.wait_for_timeout(50)
    wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wider <= 0, f"{wider} pixels stand out at the right"


def violations(page: Page, theme: str, size: ViewportSize, **options: object) -> list[str]:
    """What axe finds on the page in a theme at a size."""
    page.set_viewport_size(size)
    page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
    page.wait_for_function(REACHED)
    page.evaluate(UNLIKE)
    return [f"{theme}, {size['width']}: {v}" for v in page.evaluate(VIOLATIONS, options)]


@pytest.mark.parametrize("name", [name for name in pages() if name != "index.html"])
def test_axe_finds_nothing(name: str, page: Page, disk: str) -> None:
    """Every rule wide and light, and narrow and dark; some pages both ways round as well."""
    page.goto(f"{disk}/{name}")
    page.evaluate(AXE)
    page.evaluate(OPEN)
    found = violations(page, "light", WIDE) + violations(page, "dark", NARROW)
    if name in ("book/intro.html", "book/start/first_kernel.html", "search.html"):
        found += violations(page, "dark", WIDE) + violations(page, "light", NARROW)
    assert found == []


@pytest.mark.parametrize("where", ["site", "disk"])
def test_search_finds_a_word(where: str, page: Page, request: pytest.FixtureRequest) -> None:
    page.goto(f"{request.getfixturevalue(where)}/book/intro.html")
    page.keyboard.press("Control+K")
    page.locator("#pst-search-dialog input").fill("wavefronts")
    page.keyboard.press("Enter")
    page.wait_for_selector("#search-results .search li a")
    page.wait_for_timeout(300)
    assert page.locator("#search-results .search li").count() > 0
    if where == "site":
        assert page.locator("#search-results p.context").count() > 0


def test_the_theme_is_the_systems_and_then_the_readers(page: Page, disk: str) -> None:
    theme = "document.documentElement.dataset.theme"
    page.emulate_media(color_scheme="dark")
    page.goto(f"{disk}/book/intro.html")
    assert page.evaluate(theme) == "dark"
    page.locator(".theme-switch-button:visible").first.click()
    assert page.evaluate(theme) == "light"
    # The browser writes what a page remembers a while after the page has asked for it.
    for _ in range(20):
        page.reload()
        if page.evaluate(theme) == "light":
            break
        page.wait_for_timeout(100)
    assert page.evaluate(theme) == "light"


def test_without_scripts_a_page_can_be_read(browser: Browser, disk: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{disk}/book/memory/matmul.html")
    assert page.locator("article h1").inner_text().startswith("Matrix multiplication")
    context.close()


@pytest.mark.web
def test_the_site_is_there() -> None:
    assert (HTML / "index.html").exists()


def test_axe_would_find_a_fault(page: Page, disk: str) -> None:
    page.goto(f"{disk}/book/intro.html")
    page.evaluate(AXE)
    page.evaluate(OPEN)
    page.evaluate(
        """() => document.querySelector("article").insertAdjacentHTML("beforeend",
          "<p style='color: #999; background: #fff'>Pale</p><img src='../_static/favicon.svg'>")"""
    )
    found = [line.split(": ")[1] for line in violations(page, "light", WIDE)]
    assert sorted(found) == ["color-contrast", "image-alt"]
