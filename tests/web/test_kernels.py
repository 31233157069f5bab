"""Kernels on a GPU in a browser: each is right, a wrong one is caught, and what is missing is said.

The cards stand on a page of their own, with the scripts that a chapter's page has.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from browser import serving
from playwright.sync_api import Browser, Locator, Page
from playwright.sync_api import TimeoutError as Late

import d2ltvm
from d2ltvm.explore import catalog, kernels, scripts

NAMES = list(catalog.BY_NAME)
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Cards</title>
<link rel="icon" href="data:,"><link rel="stylesheet" href="_static/explore/explore.css">
<script src="_static/explore/explore.js"></script></head><body><main>{}</main></body></html>"""
SEEN = """name => ["done", "wrong", "unable"].includes(
  (document.querySelector(`[data-run=${name}]`) || {dataset: {}}).dataset.state)"""


@pytest.fixture(scope="session")
def cards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a page of all cards."""
    root = tmp_path_factory.mktemp("cards")
    explore = root / "_static" / "explore"
    explore.mkdir(parents=True)
    (explore / "explore.js").write_text(scripts.bundle("page.js"))
    (explore / "explore.css").write_text(scripts.STYLE.read_text())
    kernels.write(root / "_static" / "kernels")
    own = d2ltvm.explore.run(d2ltvm.schedules.matmul_tiled(100, 70, 30))
    all_cards = [*map(d2ltvm.explore.run, NAMES), d2ltvm.explore.your_gpu()]
    (root / "index.html").write_text(PAGE.format("".join(card.markup for card in all_cards)))
    (root / "own.html").write_text(PAGE.format(own.markup))
    few = [*map(d2ltvm.explore.run, ("add_four", "multiply_add")), d2ltvm.explore.your_gpu()]
    (root / "few.html").write_text(PAGE.format("".join(card.markup for card in few)))
    (root / "cell.html").write_text(PAGE.format('<div id="cell"></div>'))
    (root / "notebook.js").write_text(scripts.bundle("notebook.js", "module"))
    (root / "own.json").write_text(json.dumps({"markup": own.markup, "kernels": own.kernels}))
    return root


@pytest.fixture(scope="session")
def served(cards: Path) -> Iterator[str]:
    """The address of that folder, served on this machine."""
    with serving(cards) as address:
        yield address


@pytest.fixture(scope="session")
def shared(browser: Browser, served: str) -> Iterator[Page]:
    """One page for all kernels, so that the ceilings are measured once."""
    page = browser.new_page()
    page.goto(f"{served}/index.html")
    yield page
    page.close()


def run(page: Page, name: str, expected: str = "2") -> Locator:
    """Predict, run, and wait; returns the card."""
    card = page.locator(f"[data-run={name}]")
    predict(card, expected)
    card.locator("button[type=submit]").click()
    try:
        page.wait_for_function(SEEN, arg=name, timeout=120_000)
    except Late:
        pytest.fail(f"{name}: {card.locator('.d2l-says').inner_text()}")
    return card


def predict(card: Locator, expected: str) -> None:
    field = card.locator("[name=expected]")
    if field.evaluate("field => field.tagName") == "SELECT":
        field.select_option(index=1)
    else:
        field.fill(expected)


def said(card: Locator) -> str:
    return card.locator(".d2l-says").inner_text()


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_runs_and_is_right(name: str, shared: Page) -> None:
    card = run(shared, name)
    assert card.get_attribute("data-state") == "done", said(card)
    shown = card.locator(".d2l-result").inner_text()
    assert "Right: all " in shown and "with double precision" in shown
    assert "samples of" in shown and ("timestamps" in shown or "wall clock" in shown)
    rows = len(catalog.BY_NAME[name].variants) + bool(catalog.BY_NAME[name].against)
    assert card.locator("tbody tr").count() == rows
    assert card.locator(".d2l-result svg[aria-label^=Roofline]").count() == 1
    assert "program on your processor" in shown  # SwiftShader is one


def test_from_the_disk_as_well(page: Page, cards: Path) -> None:
    page.goto((cards / "index.html").as_uri())
    assert run(page, "add_one").get_attribute("data-state") == "done"


@pytest.mark.parametrize("where", ["site", "disk"])
def test_a_chapter_has_its_card(where: str, page: Page, request: pytest.FixtureRequest) -> None:
    page.goto(f"{request.getfixturevalue(where)}/book/start/first_kernel.html")
    card = run(page, "first_kernel")
    assert card.get_attribute("data-state") == "done", said(card)


def test_nothing_runs_before_a_prediction(page: Page, served: str) -> None:
    page.goto(f"{served}/index.html")
    for name in ("add_one", "add_four", "add_threads"):
        card = page.locator(f"[data-run={name}]")
        button = card.locator("button[type=submit]")
        assert button.is_disabled()
        predict(card, "-3")
        assert button.is_disabled() == (name != "add_threads")
        predict(card, "3.5")
        assert button.is_enabled()
    assert page.evaluate("self.d2lKernels") is None  # shaders are loaded when asked for


# Each changes a shader's text: the kernel, what is replaced, and by what.
PLANTED = {
    "a factor": ("matmul_tiled", r"fma\((\w)", "fma(0.999 * $1"),
    "one block": ("add_one", r"\+ B_ptr", "+ select(1.0, 1.01, blockIdx.x == 3u) * B_ptr"),
    "one element": (
        "conv_default",
        r"}\s*$",
        "if (blockIdx.x == 9u && threadIdx.x == 5u) { Y_ptr[581] = 1.0; } }",
    ),
    "all but one left out": (
        "add_one",
        r"(let v__1 [^\n]*\n)[^]*}\s*$",
        "$1 if (v__1 == 0i) { C_ptr[0] = A_ptr[0] + B_ptr[0]; } }",
    ),
    "a term left out": ("matmul_shared", "k_1 < 16i", "k_1 < 15i"),
    "a pixel left out": ("pool_strips", r"(PaddedX_local\[)3i", "$12i"),
    "a power": ("softmax_held", r"(e\[0i\] = )", "$11.001f * "),
    "a thread left out": ("sum_a_block", r"threadIdx.x\) < 4i", "threadIdx.x) < 3i"),
    "a variance of one number fewer": (
        "layer_norm_held",
        r"/ (\d\.\d+e\+\d\df)\) \+ ",
        "/ ($1 - 1.0f)) + ",
    ),
    "a thread's mean left out": ("layer_norm_welford", r"threadIdx.x\) < 4i", "threadIdx.x) < 3i"),
    "another epsilon": ("batch_norm_flat", r"1\.0+e-05f", "1.0e-4f"),
    "the mean of a neighbour": ("batch_norm_pixels", r"(\(Mean_ptr\[)", "$11i ^ "),
    "a scale left out": ("batch_norm_pixels", r"threadIdx.x\) < 32i", "threadIdx.x) < 31i"),
    "a weight of a neighbour": ("depthwise_rows", r"\* 9i\) \+ 7i\)", "* 9i) + 8i)"),
    "a border of zeros": ("pool_rows", r"-3\.4\d+e\+38f", "0.0f"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_wrong_shader_is_caught(fault: str, page: Page, served: str) -> None:
    name, pattern, new = PLANTED[fault]
    page.goto(f"{served}/index.html")
    for needed in kernels.shown(name)["needs"]:
        page.add_script_tag(url=f"_static/kernels/{needed}.js")
    changed = page.evaluate(
        """([name, pattern, text]) => {
          let count = 0;
          for (const size of d2lKernels[name].sizes) for (const {launch} of size.variants) {
            const source = launch.source.replace(new RegExp(pattern, 'g'), text);
            count += source !== launch.source;
            launch.source = source;
          }
          return count;
        }""",
        [name, pattern, new],
    )
    assert changed
    card = run(page, name)
    assert card.get_attribute("data-state") == "wrong", said(card)
    shown = card.locator(".d2l-result").inner_text()
    assert "is wrong, so it was not timed" in shown and "should be" in shown
    assert "You expected" not in shown


MISSING = {
    "no WebGPU": (
        "Object.defineProperty(Navigator.prototype, 'gpu', {get: () => undefined})",
        "This browser has no WebGPU.",
    ),
    "http": (
        "Object.defineProperty(Navigator.prototype, 'gpu', {get: () => undefined});"
        "Object.defineProperty(self, 'isSecureContext', {get: () => false})",
        "this page came by http",
    ),
    "no adapter": ("GPU.prototype.requestAdapter = async () => null", "found no GPU here"),
    "a small limit": (
        "Object.defineProperty(GPUSupportedLimits.prototype, "
        "'maxComputeInvocationsPerWorkgroup', {get: () => 64})",
        "The kernel takes 128 threads a block; this GPU allows 64.",
    ),
    "lost": (
        "const request = GPUAdapter.prototype.requestDevice;"
        "GPUAdapter.prototype.requestDevice = async function (...all) {"
        " const d = await request.apply(this, all); setTimeout(() => d.destroy(), 30); return d; }",
        "The GPU was lost while it worked",
    ),
    "out of memory": (
        "const pop = GPUDevice.prototype.popErrorScope; let n = 0;"
        "GPUDevice.prototype.popErrorScope = async function () "
        "{ await pop.call(this); return n++ ? null : new GPUOutOfMemoryError('none'); }",
        "too little memory for Copy, by how much a thread takes",
    ),
    "refused": (
        "const make = GPUDevice.prototype.createShaderModule;"
        "GPUDevice.prototype.createShaderModule = function (d) "
        "{ return make.call(this, {code: d.code.replace('fn ', 'fun ')}); }",
        "The browser refused the kernel: ",
    ),
    "in the background": (
        "Object.defineProperty(Document.prototype, 'hidden', {get: () => true})",
        "The tab was in the background",
    ),
}


@pytest.mark.parametrize("what", MISSING)
def test_what_is_missing_is_said_in_one_line(
    what: str, page: Page, served: str, faults: list[str]
) -> None:
    script, line = MISSING[what]
    page.add_init_script(script)
    page.goto(f"{served}/index.html")
    card = run(page, "add_one")
    assert card.get_attribute("data-state") == "unable"
    assert line in said(card) and "\n" not in said(card)
    assert "NVIDIA H200" in card.locator(".d2l-record").inner_text()
    assert card.locator("button[type=submit]").is_enabled()
    if what == "refused":  # Chromium reports the shader's fault on the console, too
        faults.clear()


def test_a_script_that_is_missing_is_named(page: Page, served: str, faults: list[str]) -> None:
    page.route("**/kernels/*.js", lambda route: route.abort())
    page.goto(f"{served}/index.html")
    assert "kernels/copy_width.js, could not be loaded" in said(run(page, "add_one"))
    faults.clear()


def test_without_timestamps_the_wall_clock_is_used_and_said(page: Page, served: str) -> None:
    page.add_init_script(
        "const has = GPUSupportedFeatures.prototype.has;"
        "GPUSupportedFeatures.prototype.has = function (x) "
        "{ return x !== 'timestamp-query' && has.call(this, x); }"
    )
    page.goto(f"{served}/index.html")
    assert "by the wall clock" in run(page, "add_one").locator(".d2l-result").inner_text()


def test_the_roofline_has_what_ran_on_other_pages(page: Page, served: str) -> None:
    page.goto(f"{served}/index.html")
    run(page, "add_four")
    page.goto(f"{served}/index.html?another")
    gpu = page.locator("[data-gpu]")
    assert gpu.locator("ol li").count() == 2  # the one that it is compared with, too
    assert "Vector add, four elements a thread, n = 65,536" in gpu.inner_text()
    run(page, "transpose_direct")
    page.reload()
    assert "These compute nothing" in gpu.inner_text()
    gpu.locator("button[type=submit]").click()
    page.wait_for_function("() => document.querySelector('[data-gpu]').dataset.state === 'done'")
    cells = gpu.locator("tbody td").all_inner_texts()
    assert len(cells) == 10
    assert cells.index("—") == 9  # no browser asked the H200 for its last one
    gpu.locator(".d2l-forget").click()
    assert gpu.locator("ol li").count() == 0 and "Not measured yet" in said(gpu)


def test_without_storage_a_page_remembers_by_itself(page: Page, served: str) -> None:
    page.add_init_script(
        "Object.defineProperty(self, 'localStorage', {get: () => { throw new Error('none'); }})"
    )
    page.goto(f"{served}/index.html")
    for name in ("add_one", "add_four"):
        card = run(page, name)
        assert card.get_attribute("data-state") == "done"
    assert "2 kernels" in str(card.locator(".d2l-result svg").get_attribute("aria-label"))


def test_the_measurement_can_be_copied(browser: Browser, served: str) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(f"{served}/index.html")
    card = run(page, "add_four", "1.5")
    card.locator(".d2l-copy").click()
    page.wait_for_function("() => document.querySelector('.d2l-copy').textContent === 'Copied'")
    told: dict[str, Any] = json.loads(page.evaluate("navigator.clipboard.readText()"))
    context.close()
    assert told["expected"] == "1.5" and "swiftshader" in told["gpu"]
    assert [result["kernel"] for result in told["results"]] == ["add_one", "add_four"]
    assert all(len(result["spread"]) == 2 and result["speed"] > 0 for result in told["results"])


def test_a_schedule_in_hand_runs_in_a_notebook(page: Page, served: str) -> None:
    page.goto(f"{served}/cell.html")
    page.evaluate(
        """async () => {
          const told = await (await fetch("own.json")).json();
          const module = await import("./notebook.js");
          const model = {get: key => told[key], set() {}, save_changes() {}, on() {}};
          (module.default || module).render({model, el: document.getElementById("cell")});
        }"""
    )
    card = run(page, str(page.locator("figure").get_attribute("data-run")), "3")
    assert card.get_attribute("data-state") == "done", said(card)
    assert "all 7,000 elements agree" in card.locator(".d2l-result").inner_text()
    assert page.evaluate("document.scripts.length") == 1  # no kernel came by a script


def test_a_schedule_in_hand_runs_in_a_page(page: Page, served: str) -> None:
    page.goto(f"{served}/own.html")
    card = run(page, str(page.locator("figure").get_attribute("data-run")), "3")
    assert "all 7,000 elements agree" in card.locator(".d2l-result").inner_text()
    assert said(card) == "your kernel, A (100, 30), B (30, 70) to C (100, 70):"


def test_without_scripts_the_record_and_one_line_stand_there(browser: Browser, served: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{served}/index.html")
    card = page.locator("[data-run=matmul_tiled]")
    assert "NVIDIA H200" in card.inner_text() and "with scripts" in said(card)
    assert not card.locator("form").is_visible()
    context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1300])
def test_axe_finds_nothing_in_cards_that_have_run(
    theme: str, width: int, page: Page, served: str
) -> None:
    page.set_viewport_size({"width": width, "height": 740})
    page.goto(f"{served}/few.html")
    page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
    for name in ("add_four", "multiply_add"):
        assert run(page, name).get_attribute("data-state") == "done"
    page.locator("[data-gpu] button[type=submit]").click()
    page.wait_for_function("() => document.querySelector('[data-gpu]').dataset.state === 'done'")
    page.evaluate(AXE)
    found = page.evaluate("() => axe.run('main').then(found => found.violations)")
    assert [(fault["id"], fault["nodes"][0]["html"]) for fault in found] == []


def test_a_narrow_page_does_not_scroll_sideways(page: Page, served: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{served}/index.html")
    run(page, "multiply_add")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
